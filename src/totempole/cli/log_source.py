"""Where `totem log` reads from: a log service, on this host or others, or the files of a log themselves."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from totempole.cli.reaching import TLS_FILES, add_daemon
from totempole.client.blocking_log_reader import LogReader as ServiceReader
from totempole.client.endpoint import Reconnect, Tls
from totempole.client.log_endpoints import log_endpoints
from totempole.client.log_records import Reading
from totempole.corel.zones import Ordered, Zones
from totempole.errors import TotemError
from totempole.log.reader import LogReader
from totempole.log.segments import segment_numbers
from totempole.session.log_frames import ReplicaStatus

WHERE = """\
Records are read from the log service of the node on this host; --config FILE or --socket PATH names the node.
--host ADDRESS:PORT, or several with commas between, names log services on other hosts ([log] listen), with
--tls-… for who you are. --directory DIR reads the files themselves, beside a node or without one.
"""


class Span(NamedTuple):
    """What is kept: positions from `first` on, before `stop`."""

    first: int
    stop: int

    def __str__(self) -> str:
        """In words, with the last position that there is."""
        if self.first >= self.stop:
            return f"no records before position {self.stop:,}"
        if self.first + 1 == self.stop:
            return f"position {self.first:,}"
        return f"positions {self.first:,} to {self.stop - 1:,}"


class LogSource(Protocol):
    def span(self) -> Span: ...

    def runs(self, start: int | None, stop: int | None, log: str, follow: bool) -> Iterator[Ordered]:
        """Green runs that have records there; of the first and the last, records may be outside. `start`
        None: the earliest, or with `follow` only what comes. Runs of other logs may be among them."""
        ...


def add_source(parser: argparse.ArgumentParser) -> None:
    add_daemon(parser)
    parser.add_argument("--directory", metavar="DIR", help="read the log's files here, without a node")


def source_of(arguments: argparse.Namespace, reconnect: Reconnect | None = None) -> LogSource:
    """`reconnect`: how to come back to a log service that goes away."""
    if arguments.directory:
        given = [name for name in ("socket", "config", "host") if getattr(arguments, name)]
        if given:
            raise TotemError(f"give --directory or --{given[0]}, not both")
        return DirectorySource(log_directory(arguments.directory))
    return ServiceSource(service_of(arguments, reconnect))


def log_directory(given: str) -> Path:
    """A log's directory; or a node's, which has its log in `log`."""
    directory = Path(given)
    if not directory.is_dir():
        raise TotemError(f"{directory}: no such directory: name that of a log, or of its node")
    inner = directory / "log"
    return inner if not segment_numbers(directory) and inner.is_dir() else directory


def service_of(arguments: argparse.Namespace, reconnect: Reconnect | None = None) -> ServiceReader:
    given = [name for name in ("socket", "config", "host") if getattr(arguments, name)]
    if len(given) > 1:
        raise TotemError(f"give --{given[0]} or --{given[1]}, not both")
    files = {name: getattr(arguments, f"tls_{name}") for name in TLS_FILES}
    if not arguments.host:
        if any(files.values()) or arguments.tls_name:
            raise TotemError("--tls-… is for log services on other hosts: give --host ADDRESS:PORT too")
        endpoints = log_endpoints(_socket_of(arguments))
    else:
        for name, file in files.items():
            if not file:
                raise TotemError(f"--host: give --tls-{name} FILE too: other hosts are reached by TLS only")
        endpoints = log_endpoints(None, arguments.host, Tls(**files, server_name=arguments.tls_name))
    return ServiceReader(endpoints, name="totem log", reconnect=reconnect)


def _socket_of(arguments: argparse.Namespace) -> str | None:
    if arguments.config:
        from totempole.runtime.config import NodeConfig  # and with it the whole node

        return str(NodeConfig.load(arguments.config, places=False).clients_socket)
    path: str | None = arguments.socket
    return path


class ServiceSource:
    def __init__(self, reader: ServiceReader) -> None:
        self.reader = reader

    def status(self) -> ReplicaStatus:
        return self.reader.status()

    def span(self) -> Span:
        status = self.status()
        return Span(status.first, status.position)

    def runs(self, start: int | None, stop: int | None, log: str, follow: bool) -> Iterator[Ordered]:
        first: Any = start if start is not None else "latest" if follow else "earliest"
        reading = Reading(log, first, stop, follow=follow, notices=True)
        for answer in self.reader.answers(reading):
            for ordered in reading.advance(answer):
                yield ordered.ordered


class DirectorySource:
    def __init__(self, directory: Path, pause: Callable[[float], object] = time.sleep) -> None:
        self.directory = directory
        self._reader = LogReader(directory)
        self._pause = pause

    def span(self) -> Span:
        first = self._reader.first_position
        return Span(first, self.zones().position)

    def zones(self) -> Zones:
        """What the replica knows at the end of its log."""
        with self._reader.at_end() as cursor:
            return cursor.zones

    def runs(self, start: int | None, stop: int | None, log: str, follow: bool) -> Iterator[Ordered]:
        if start is None:
            span = self.span()
            start = span.stop if follow else span.first
        if follow:
            return self._reader.follow(start, pause=self._pause)
        return self._reader.runs(start, stop)
