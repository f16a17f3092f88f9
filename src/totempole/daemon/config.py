"""The settings of a daemon's clients: who may connect, where, and how much each may take up."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from totempole.groups.config import GroupConfig
from totempole.settings import FLAG, MAYBE_PATH, TEXT, Kind, check_settings, refused, setting, whole

KIB = 1024
MIB = 1024 * KIB

CREDIT_BYTES_LEAST = 64 * KIB
"""Half of it holds the names of any message's groups, and a good deal of messages."""

LARGE_HEAD_BYTES = 64 * KIB
"""What a large message may have beside its bytes: the names of its groups, and its packing."""

SOCKET_PATH_BYTES_MAX = 107
"""What the kernel takes as the path of a Unix socket."""

MODE = Kind(
    'permissions in octal digits, like "0660"',
    takes=lambda raw: isinstance(raw, str) and re.fullmatch("0?[0-7]{3}", raw) is not None,
    accepts=lambda value: type(value) is int and 0 <= value <= 0o777,
    read=lambda raw: int(raw, 8),
    show=lambda value: f"{value:04o}",
)
USERS = Kind(
    'a list of users, like ["alice", "1001"]',
    takes=lambda raw: isinstance(raw, list) and all(isinstance(user, str) and user for user in raw),
    accepts=lambda value: isinstance(value, tuple) and all(isinstance(user, str) and user for user in value),
    read=tuple,
    show=list,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsConfig:
    """Checked on construction; `check_with` does so together with the settings of the groups."""

    enabled: bool = field(default=True, metadata=setting(FLAG, "let programs connect to this daemon"))
    socket: Path | None = field(
        default=None,
        metadata=setting(
            MAYBE_PATH, "the Unix socket for programs; not given: clients.sock in the node's directory"
        ),
    )
    socket_mode: int = field(
        default=0o660,
        metadata=setting(MODE, "who may open the socket, as file permissions; users are checked as well"),
    )
    users: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            USERS, "who may connect besides the daemon's own user and root: names or numbers of users"
        ),
    )
    listen: str = field(
        default="",
        metadata=setting(
            TEXT, "ADDRESS:PORT for programs on other hosts, by TCP with mutual TLS; empty: none"
        ),
    )
    tls_certificate: Path | None = field(
        default=None, metadata=setting(MAYBE_PATH, "listen: the daemon's certificate, PEM, with its chain")
    )
    tls_key: Path | None = field(
        default=None, metadata=setting(MAYBE_PATH, "listen: the certificate's private key, PEM")
    )
    tls_authorities: Path | None = field(
        default=None,
        metadata=setting(
            MAYBE_PATH, "listen: whose certificates let programs in, PEM; use an authority of your own"
        ),
    )
    clients_max: int = field(
        default=1_000, metadata=setting(whole(1, 100_000), "programs connected at a time")
    )
    client_receive_bytes_max: int = field(
        default=16 * MIB,
        metadata=setting(
            whole(64 * KIB, 2**40), "what a program may leave unread before its policy takes effect"
        ),
    )
    memory_bytes_max: int = field(
        default=512 * MIB,
        metadata=setting(
            whole(1 * MIB, 2**40),
            "what all programs leave unread, together with large messages on their way in",
        ),
    )
    credit_bytes: int = field(
        default=4 * MIB,
        metadata=setting(whole(CREDIT_BYTES_LEAST, 64 * MIB), "what one program may send ahead of the ring"),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        self._check_socket()
        self._check_listen()
        if self.memory_bytes_max < 2 * self.client_receive_bytes_max:
            raise refused(
                "memory_bytes_max",
                self.memory_bytes_max,
                "half of it is for what programs leave unread, and one alone may leave "
                f"client_receive_bytes_max = {self.client_receive_bytes_max}: give at least twice that",
            )

    @property
    def large_bytes_max(self) -> int:
        """Large messages on their way in have up to half of the memory."""
        return self.memory_bytes_max // 2

    @property
    def address(self) -> tuple[str, int] | None:
        """Of `listen`."""
        return parse_address(self.listen) if self.listen else None

    def check_with(self, groups: GroupConfig) -> None:
        """Raises for settings that do not go together with those of groups."""
        least = 2 * (groups.message_bytes_max + LARGE_HEAD_BYTES)
        if self.memory_bytes_max < least:
            raise refused(
                "memory_bytes_max",
                self.memory_bytes_max,
                f"half of it is for large messages, and message_bytes_max = {groups.message_bytes_max}: "
                f"give at least {least}, or lower message_bytes_max",
            )

    def _check_socket(self) -> None:
        if self.socket is not None and len(bytes(self.socket)) > SOCKET_PATH_BYTES_MAX:
            raise refused(
                "socket",
                str(self.socket),
                f"give a path of at most {SOCKET_PATH_BYTES_MAX} bytes, by Unix's rules",
            )

    def _check_listen(self) -> None:
        given = {name: getattr(self, name) for name in ("tls_certificate", "tls_key", "tls_authorities")}
        if not self.listen:
            for name, value in given.items():
                if value is not None:
                    raise refused(
                        name,
                        str(value),
                        "it is for programs on other hosts: give listen too, or leave it out",
                    )
            return
        parse_address(self.listen)
        for name, value in given.items():
            if value is None:
                raise refused(
                    "listen", self.listen, f"without TLS nobody is let in: give {name}, or leave listen out"
                )


def parse_address(text: str) -> tuple[str, int]:
    """`10.0.0.1:5410` or `[fd00::1]:5410`."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        colon = ""
    if not colon or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise refused("listen", text, "give ADDRESS:PORT, like 10.0.0.1:5410 or [fd00::1]:5410")
    return host, int(port)
