"""An object's log and snapshots, for `totem log state` and `diff`: from files, or from log services."""

from __future__ import annotations

import argparse
import base64
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from totempole.cli.log_source import DirectorySource, LogSource, ServiceSource, Span, log_directory
from totempole.cli.reaching import TLS_FILES
from totempole.client.appending import OBJECTS_PREFIX
from totempole.client.blocking_log_reader import LogReader as ServiceReader
from totempole.client.endpoint import Tls
from totempole.client.log_endpoints import log_endpoints
from totempole.client.log_records import Record, batch_of
from totempole.corel.run import RunKind
from totempole.errors import LogDamagedError, TotemError
from totempole.log.snapshots import SnapshotFile, StoredHead, heads_in, snapshot_name, snapshots_of
from totempole.objects.holds import starting_point
from totempole.objects.machine import ObjectMachine
from totempole.objects.snapshot_store import BlockingSnapshotStore
from totempole.objects.snapshots import Snapshot
from totempole.session.log_frames import OrderedRun

CLASS_HELP = "the object's class; the module is looked for in the current directory too"


class Kept(NamedTuple):
    """A snapshot that was read and fits its checksum."""

    head: StoredHead
    content: bytes | bytearray


class Standing(NamedTuple):
    log: int
    """The log's own name."""
    span: Span
    holds: Mapping[str, int]


class Storage(Protocol):
    """Where the log and the snapshots are."""

    def standing(self) -> Standing: ...

    def heads(self, object_name: str) -> list[StoredHead]:
        """The newest first."""
        ...

    def content(self, head: StoredHead) -> bytes | bytearray:
        """Raises TotemError if it cannot be had."""
        ...


class DirectoryStorage:
    def __init__(self, source: DirectorySource) -> None:
        self._source = source
        self._directory = snapshots_of(source.directory)
        self._log = 0

    def standing(self) -> Standing:
        zones = self._source.zones()
        self._log = zones.log
        return Standing(zones.log, Span(self._source.span().first, zones.position), zones.holds)

    def heads(self, object_name: str) -> list[StoredHead]:
        heads, _ = heads_in(self._directory, object_name, self._log)
        return [head for head in heads if head.log == self._log]

    def content(self, head: StoredHead) -> bytes | bytearray:
        path = self._directory / snapshot_name(head.object, head.position)
        try:
            with SnapshotFile(path) as file:
                file.check()
                return b"".join(file.chunks())
        except OSError as error:
            raise LogDamagedError(f"{path}: {error.strerror}") from None


class ServiceStorage:
    def __init__(self, reader: ServiceReader) -> None:
        self._reader = reader
        self._store = BlockingSnapshotStore(reader)

    def standing(self) -> Standing:
        status = self._reader.status()
        return Standing(status.log, Span(status.first, status.position), status.holds)

    def heads(self, object_name: str) -> list[StoredHead]:
        return self._store.heads(object_name)

    def content(self, head: StoredHead) -> bytes | bytearray:
        return b"".join(self._store.chunks(head))


class ObjectLog:
    """One object at one replica."""

    def __init__(self, name: str, source: LogSource, where: str) -> None:
        if isinstance(source, DirectorySource):
            self._storage: Storage = DirectoryStorage(source)
        else:
            assert isinstance(source, ServiceSource), "there are two kinds"
            self._storage = ServiceStorage(source.reader)
        self.name = name
        self.where = where
        """For people."""
        self.standing = self._storage.standing()
        self._source = source

    @property
    def span(self) -> Span:
        return self.standing.span

    def heads(self) -> list[StoredHead]:
        """Of its snapshots, the newest first."""
        return self._storage.heads(self.name)

    def snapshot(self, head: StoredHead) -> Kept:
        return Kept(head, self._storage.content(head))

    def machine(self, cls: type[Any], head: StoredHead | None) -> ObjectMachine[Any]:
        """As it was when the snapshot was taken; without one, as it begins."""
        if head is None:
            return ObjectMachine(cls)
        return ObjectMachine.restore(cls, Snapshot.decode(memoryview(self.snapshot(head).content)))

    def start(self, head: StoredHead | None) -> int:
        """Where to read on. Raises ObjectTrimmedError."""
        return starting_point(self.name, self.span.first, self.standing.holds, head)

    def records(self, start: int, stop: int) -> Iterator[Record]:
        """At positions from `start` on, before `stop`."""
        if start >= stop:
            return
        log = OBJECTS_PREFIX + self.name
        for ordered in self._source.runs(start, stop, log, follow=False):
            if ordered.run.kind is not RunKind.RECORDS:
                continue
            batch = batch_of(OrderedRun.of(ordered), start, stop)
            if batch is not None and batch.log == log:
                yield from batch


def check_object_name(name: str) -> str:
    """`bank`, or the name of its log, `objects/bank`."""
    name = name.removeprefix(OBJECTS_PREFIX)
    if not name or not name.isprintable():
        raise argparse.ArgumentTypeError(f"{name!r}: give the name of an object")
    return name


def named_source(text: str, arguments: argparse.Namespace) -> LogSource:
    """A directory of a log or a node, the socket of a daemon or of its log service, or ADDRESS:PORT."""
    path = Path(text)
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode):
        return DirectorySource(log_directory(text))
    if stat.S_ISSOCK(mode):
        return ServiceSource(ServiceReader(log_endpoints(path), name="totem log"))
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal()) or "/" in text:
        raise TotemError(f"{text}: no directory, no socket, and no ADDRESS:PORT of a log service")
    files = {name: getattr(arguments, f"tls_{name}") for name in TLS_FILES}
    for name, file in files.items():
        if not file:
            raise TotemError(f"{text}: give --tls-{name} FILE too: other hosts are reached by TLS only")
    tls = Tls(**files, server_name=arguments.tls_name)
    return ServiceSource(ServiceReader(log_endpoints(None, text, tls), name="totem log"))


def load_class(text: str) -> type[Any]:
    """`module:Class`."""
    module_name, colon, name = text.partition(":")
    if not (module_name and colon and name):
        raise TotemError(f"--class {text}: give module:Class, as in --class bank:Bank")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise TotemError(f"--class {text}: {module_name} cannot be imported: {error}") from None
    except AttributeError:
        raise TotemError(f"--class {text}: {module_name} has no {name}") from None
    except Exception as error:
        raise TotemError(
            f"--class {text}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from None
    if not isinstance(found, type):
        raise TotemError(f"--class {text}: {name} is no class")
    return found


# Values for people and programs


def plain(value: Any) -> Any:
    """Of a state, as JSON can have it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): plain(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(each) for each in sorted(value, key=repr)]
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return [plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    fields = getattr(value, "__dict__", None)
    if fields is not None:
        return {name: plain(each) for name, each in fields.items()}
    return repr(value)


def state_of(machine: ObjectMachine[Any]) -> Any:
    return plain(machine.state)
