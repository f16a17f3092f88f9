"""What the node tells its log service: one line of JSON on standard input, which stays open as long as the
node lives. And what the service tells its node: a line of JSON on standard output for each damage.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from totempole.daemon.config import ClientsConfig


class ServiceSettings(msgspec.Struct, frozen=True):
    directory: str
    """Of the log."""
    cluster_id: int
    processor: int
    socket: str = ""
    """The Unix socket for programs on this host; empty: none."""
    socket_mode: int = 0o660
    users: tuple[str, ...] = ()
    listen: str = ""
    """ADDRESS:PORT for programs on other hosts, by TLS; empty: none."""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_authorities: str = ""
    readers_max: int = 1_000
    snapshots_bytes_max: int = 256 * 2**30
    """Of all snapshots of objects together."""
    log_level: str = "info"
    log_format: str = "text"

    @property
    def clients(self) -> ClientsConfig:
        """The same rules as for clients of the daemon."""
        files = [
            Path(file) if file else None
            for file in (self.tls_certificate, self.tls_key, self.tls_authorities)
        ]
        certificate, key, authorities = files if self.listen else (None, None, None)
        return ClientsConfig(
            socket=Path(self.socket) if self.socket else None,
            socket_mode=self.socket_mode,
            users=self.users,
            listen=self.listen,
            tls_certificate=certificate,
            tls_key=key,
            tls_authorities=authorities,
            clients_max=self.readers_max,
        )


def encode_settings(settings: ServiceSettings) -> bytes:
    return msgspec.json.encode(settings) + b"\n"


def decode_settings(line: bytes) -> ServiceSettings:
    return msgspec.json.decode(line, type=ServiceSettings)


def encode_report(text: str) -> bytes:
    """Of damage."""
    return msgspec.json.encode(text) + b"\n"


def decode_report(line: bytes) -> str:
    return msgspec.json.decode(line, type=str)
