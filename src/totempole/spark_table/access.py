"""How the driver and the executors reach the log: by options that travel with every task."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from totempole.client import blocking, log_reader
from totempole.client import session as asyncio_session
from totempole.client.blocking_log_reader import LogReader
from totempole.client.endpoint import Endpoint, Reconnect, Tls, endpoints_of
from totempole.client.log_endpoints import log_endpoints
from totempole.errors import ConfigurationError, SessionError
from totempole.log.blocks import Blocks

STAGED = "staged/"
"""Names of logs begin so that rows wait in until their batch is complete. Readers leave them out."""

TLS_OPTIONS = ("tlsCertificate", "tlsKey", "tlsAuthorities", "tlsServerName")
OPTIONS = ("replicas", "daemons", "path", "timeout", *TLS_OPTIONS)
"""That say how the log is reached."""

REFUSALS = 3
"""A certificate counts as refused after so many attempts: one that hangs up may have been about to end."""


@dataclass(frozen=True)
class Access:
    """`replicas` and `daemons` are words: "host:port", or the path of a daemon's socket on this host."""

    replicas: tuple[str, ...] = ()
    """Log services to read from."""
    daemons: tuple[str, ...] = ()
    """Daemons to append with, and to set holds."""
    directory: str = ""
    """Of a log, or of a copy of one, instead of replicas."""
    tls: Tls | None = None
    patience_s: float = 60.0
    """How long a replica that is away is waited for."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Access:
        replicas, daemons = _words(options, "replicas"), _words(options, "daemons")
        if not daemons:
            daemons = tuple([word for word in replicas if _is_path(word)])
        return cls(replicas, daemons, options.get("path", ""), _tls_of(options), patience_of(options))

    def __getstate__(self) -> dict[str, Any]:
        """Certificates are loaded again where it is used."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def reader(self, first: int = 0, prefer: Sequence[str] = (), blocks: Blocks | None = None) -> LogReader:
        """Asks the replica of this number first, then the others in turn; those that `prefer` names
        ("host:port", or a socket's path) before them. `blocks`: as `LogReader` has it."""
        endpoints = self.endpoints()
        turn = first % len(endpoints)
        in_turn = [*endpoints[turn:], *endpoints[:turn]]
        rank = {name: number for number, name in enumerate(prefer)}
        in_turn.sort(key=lambda endpoint: rank.get(str(endpoint), len(rank)))
        return LogReader(in_turn, name="spark", reconnect=self._reconnect, blocks=blocks)

    def endpoints(self) -> list[Endpoint]:
        """Of all replicas. A name of several hosts gives one for each of those that it stands for now."""
        return [each for endpoint in self.named for each in resolved(endpoint) or [endpoint]]

    def check_replicas(self) -> None:
        """ConfigurationError: they cannot be reached by what the options say."""
        if self.directory and self.replicas:
            raise ConfigurationError("option replicas and a directory are given: give one of them")
        if not self.directory:
            assert self.named, "it has raised otherwise"

    @cached_property
    def named(self) -> list[Endpoint]:
        """As the option has them: names of hosts are not looked up."""
        if not self.replicas:
            raise ConfigurationError(
                'option replicas is missing: give "host:port,…" as the setting log.listen of the nodes has '
                "it, the path of a daemon's socket, or load(DIRECTORY) with a log's directory"
            )
        found: list[Endpoint] = []
        for word in self.replicas:
            if _is_path(word):
                found += log_endpoints(path=word)
                continue
            tls = self._tls_for(word, "replicas")
            try:
                (endpoint,) = log_endpoints(replicas=word, tls=self._context)
            except SessionError:
                raise ConfigurationError(f"option replicas = {word}: give host:port") from None
            found.append(replace(endpoint, server_name=tls.server_name or endpoint.server_name))
        return found

    @cached_property
    def _context(self) -> ssl.SSLContext:
        assert self.tls is not None, "it was asked for"
        try:
            return self.tls.context()
        except SessionError as error:
            raise ConfigurationError(f"options tlsCertificate, tlsKey, tlsAuthorities: {error}") from None

    def session(self, name: str) -> blocking.Session:
        """With a daemon; for `with`."""
        return blocking.Session(self._daemon_endpoints(), name=name, reconnect=self._reconnect)

    def async_session(self, name: str) -> asyncio_session.Session:
        """The same, for `async with`."""
        return asyncio_session.Session(self._daemon_endpoints(), name=name, reconnect=self._reconnect)

    def async_reader(self, log: str) -> log_reader.LogReader:
        """Of one log, from the replicas, or from the log services beside the daemons of this host."""
        beside = tuple([word for word in self.daemons if _is_path(word)])
        access = self if self.replicas else replace(self, replicas=beside)
        return log_reader.LogReader(access.endpoints(), log=log, name="spark", reconnect=self._reconnect)

    def check_daemons(self) -> None:
        """ConfigurationError: rows cannot be appended, or read back, by what the options say."""
        if self.tls is not None and not self.replicas and not any(map(_is_path, self.daemons)):
            raise ConfigurationError(
                'option replicas is missing: give "host:port,…" as the setting log.listen of the nodes has '
                "it; the driver reads there what tasks have staged"
            )
        self._daemon_endpoints()

    def _daemon_endpoints(self) -> list[Endpoint]:
        if not self.daemons:
            raise ConfigurationError(
                'option daemons is missing: give "host:port,…" as the setting clients.listen of the nodes '
                "has it, or the path of a daemon's socket"
            )
        paths = [Path(word) for word in self.daemons if _is_path(word)]
        if paths and len(paths) < len(self.daemons):
            raise ConfigurationError("option daemons: give paths of sockets or addresses, not both")
        if paths:
            return endpoints_of(paths, None, None)
        return endpoints_of(None, self.daemons, self._tls_for(self.daemons[0], "daemons"))

    @property
    def _reconnect(self) -> Reconnect:
        return Reconnect(most_s=1.0, give_up_s=self.patience_s)

    def _tls_for(self, word: str, option: str) -> Tls:
        if self.tls is None:
            raise ConfigurationError(
                f"option {option} = {word}: other hosts are reached by TLS; give the options tlsCertificate, "
                "tlsKey and tlsAuthorities"
            )
        return self.tls


def resolved(endpoint: Endpoint) -> list[Endpoint]:
    """Of each host that its name stands for now; none if it cannot be looked up: connecting says why."""
    if endpoint.path:
        return [endpoint]
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    return [replace(endpoint, host=host) for host in hosts]


def patience_of(options: Mapping[str, str]) -> float:
    """`timeout`, in seconds."""
    text = options.get("timeout", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise ConfigurationError(f"option timeout = {text}: give seconds, like 60")
    return seconds


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple([word for word in map(str.strip, options.get(name, "").split(",")) if word])


def _is_path(word: str) -> bool:
    return "/" in word


def _tls_of(options: Mapping[str, str]) -> Tls | None:
    given = [name for name in TLS_OPTIONS if options.get(name)]
    if not given:
        return None
    missing = [name for name in TLS_OPTIONS[:3] if name not in given]
    if missing:
        raise ConfigurationError(f"option {missing[0]} is missing: TLS needs {', '.join(TLS_OPTIONS[:3])}")
    certificate, key, authorities, server_name = (options.get(name, "") for name in TLS_OPTIONS)
    return Tls(certificate, key, authorities, server_name or None)
