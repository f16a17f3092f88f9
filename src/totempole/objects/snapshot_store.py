"""Where a program's objects keep their snapshots: the log services of its replicas.

    store = SnapshotStore(log.reader)
    loaded = await store.load("bank")        # the newest that can be had: its head and its content
    stored = await store.put(head, content)  # durable when this returns

`BlockingSnapshotStore` has the same calls for threads, and programs without asyncio.

The first service that has a snapshot of use gives it: that beside the program's own daemon is the first. A
transfer that breaks off goes on, a get at any service with the same snapshot. A snapshot whose content does
not fit its checksum is passed over for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple

from totempole.client import blocking_log_reader, log_reader
from totempole.client.endpoint import Endpoint
from totempole.client.log_endpoints import ANSWER_S_MAX, Replicas, unexpected
from totempole.errors import LogError, SessionError
from totempole.log.snapshots import StoredHead
from totempole.objects.resting import Rest
from totempole.objects.snapshot_transfer import Content, Getting, Putting, SnapshotError
from totempole.session.log_frames import (
    SILENCE_S,
    Answer,
    Failed,
    ListSnapshots,
    Snapshots,
    SnapshotStored,
    Welcome,
)


class LoadedSnapshot(NamedTuple):
    head: StoredHead
    content: bytearray


class Found(NamedTuple):
    """The snapshots of one object at one service, the newest first."""

    heads: tuple[StoredHead, ...]
    first: int
    """The earliest position that is kept there."""

    def of_use(self, below: int | None, bad: frozenset[StoredHead]) -> StoredHead | None:
        """The newest from which the log can be read on."""
        for head in self.heads:
            if head.position >= self.first and (below is None or head.position <= below) and head not in bad:
                return head
        return None


def _found(replicas: Replicas, welcome: Welcome, object_name: str, answer: Answer) -> Found:
    if isinstance(answer, Failed):
        raise replicas.refused(answer)
    if not isinstance(answer, Snapshots):
        raise unexpected(answer)
    heads = [head for head in answer.heads if head.object == object_name and head.log == welcome.log]
    newest_first = sorted(heads, key=lambda head: -head.position)
    return Found(tuple(newest_first), welcome.first)


def _check_keeps(welcome: Welcome, endpoint: Endpoint) -> None:
    if not welcome.snapshots:
        raise LogError(f"the log service at {endpoint} keeps no snapshots: update its node")


class SnapshotStore:
    """For asyncio."""

    def __init__(self, reader: log_reader.LogReader) -> None:
        self._reader = reader

    async def newest(
        self, object_name: str, below: int | None = None, bad: Iterable[StoredHead] = ()
    ) -> StoredHead | None:
        """The newest of the first service that has one of use; not behind position `below`, and not one of
        `bad`. None: no service that answers has one. SessionError: none answers."""
        left_out = frozenset(bad)
        turns = self._reader.replicas()
        while True:
            errors: list[SessionError | LogError] = []
            for endpoint in self._reader.endpoints:
                try:
                    found = await self._ask(endpoint, object_name)
                except (SessionError, LogError) as error:
                    errors.append(error)
                    continue
                head = found.of_use(below, left_out)
                if head is not None:
                    return head
            if len(errors) < len(self._reader.endpoints):
                return None
            await self._reader.pause(turns, _worth_waiting(errors))

    async def _ask(self, endpoint: Endpoint, object_name: str) -> Found:
        replicas = self._reader.replicas(endpoint)
        async with self._reader.connected(replicas) as (link, welcome):
            _check_keeps(welcome, endpoint)
            link.send(ListSnapshots(object_name))
            return _found(replicas, welcome, object_name, await link.next(ANSWER_S_MAX))

    async def chunks(self, head: StoredHead) -> AsyncIterator[bytes]:
        """The content, from any service that has this snapshot. SnapshotError: none has it, or not any more;
        SnapshotDamagedError, at the end: what has come is not what it should be."""
        getting = Getting(head)
        turns = self._reader.replicas()
        while not getting.is_done:
            errors: list[SessionError | LogError] = []
            for endpoint in self._reader.endpoints:
                try:
                    async with self._reader.connected(self._reader.replicas(endpoint)) as (link, welcome):
                        _check_keeps(welcome, endpoint)
                        link.send(getting.request())
                        while not getting.is_done and not getting.missing:
                            answer = await link.next(SILENCE_S)
                            content = getting.take(answer)
                            turns.answered(answer)
                            if content:
                                yield content
                except (SessionError, LogError) as error:
                    errors.append(error)
                if getting.is_done:
                    break
            else:
                _check_found(getting, errors)
                await self._reader.pause(turns, _worth_waiting(errors))
        getting.check()

    async def load(
        self, object_name: str, below: int | None = None, bad: Iterable[StoredHead] = ()
    ) -> LoadedSnapshot | None:
        """The newest, whole and checked. One that is damaged, or removed meanwhile, is passed over."""
        left_out = set(bad)
        while True:
            head = await self.newest(object_name, below, left_out)
            if head is None:
                return None
            content = bytearray()
            try:
                async for chunk in self.chunks(head):
                    content += chunk
                return LoadedSnapshot(head, content)
            except SnapshotError:
                left_out.add(head)

    async def put(self, head: StoredHead, content: Content) -> SnapshotStored:
        """As that of `BlockingSnapshotStore`, on a thread: a snapshot is read from a file."""
        given = self._reader
        reader = blocking_log_reader.LogReader(given.endpoints, name=given.name, reconnect=given.reconnect)
        blocking = BlockingSnapshotStore(reader)
        return await asyncio.to_thread(blocking.put, head, content)


class BlockingSnapshotStore:
    """For one thread at a time."""

    def __init__(self, reader: blocking_log_reader.LogReader) -> None:
        self._reader = reader

    def newest(
        self, object_name: str, below: int | None = None, bad: Iterable[StoredHead] = ()
    ) -> StoredHead | None:
        """As that of `SnapshotStore`."""
        left_out = frozenset(bad)
        turns = self._reader.replicas()
        while True:
            errors: list[SessionError | LogError] = []
            for endpoint in self._reader.endpoints:
                try:
                    found = self._ask(endpoint, object_name)
                except (SessionError, LogError) as error:
                    errors.append(error)
                    continue
                head = found.of_use(below, left_out)
                if head is not None:
                    return head
            if len(errors) < len(self._reader.endpoints):
                return None
            self._reader.pause(turns, _worth_waiting(errors))

    def _ask(self, endpoint: Endpoint, object_name: str) -> Found:
        replicas = self._reader.replicas(endpoint)
        with self._reader.connected(replicas) as (link, welcome):
            _check_keeps(welcome, endpoint)
            link.send(ListSnapshots(object_name))
            return _found(replicas, welcome, object_name, link.next(ANSWER_S_MAX))

    def kept(self, object_name: str) -> StoredHead | None:
        """The newest at the service that `put` would give one to."""
        heads = self.heads(object_name)
        return heads[0] if heads else None

    def heads(self, object_name: str) -> list[StoredHead]:
        """What the first service that answers keeps of an object, the newest first."""
        turns = self._reader.replicas()
        while True:
            try:
                return list(self._ask(turns.endpoint, object_name).heads)
            except SessionError as error:
                self._reader.pause(turns, error)

    def chunks(self, head: StoredHead) -> Iterator[bytes]:
        """As those of `SnapshotStore`."""
        getting = Getting(head)
        turns = self._reader.replicas()
        while not getting.is_done:
            errors: list[SessionError | LogError] = []
            for endpoint in self._reader.endpoints:
                try:
                    with self._reader.connected(self._reader.replicas(endpoint)) as (link, welcome):
                        _check_keeps(welcome, endpoint)
                        link.send(getting.request())
                        while not getting.is_done and not getting.missing:
                            answer = link.next(SILENCE_S)
                            content = getting.take(answer)
                            turns.answered(answer)
                            if content:
                                yield content
                except (SessionError, LogError) as error:
                    errors.append(error)
                if getting.is_done:
                    break
            else:
                _check_found(getting, errors)
                self._reader.pause(turns, _worth_waiting(errors))
        getting.check()

    def load(
        self, object_name: str, below: int | None = None, bad: Iterable[StoredHead] = ()
    ) -> LoadedSnapshot | None:
        """As that of `SnapshotStore`."""
        left_out = set(bad)
        while True:
            head = self.newest(object_name, below, left_out)
            if head is None:
                return None
            content = bytearray()
            try:
                for chunk in self.chunks(head):
                    content += chunk
                return LoadedSnapshot(head, content)
            except SnapshotError:
                left_out.add(head)

    def put(self, head: StoredHead, content: Content) -> SnapshotStored:
        """Gives a snapshot to the first service that answers; it is durable when this returns. `head.log` may
        be 0: the service's own. A put that breaks off goes on. SnapshotRefusedError: it is not kept;
        SessionError, LogError: no service takes it."""
        turns = self._reader.replicas()
        while True:
            try:
                with self._reader.connected(turns) as (link, welcome):
                    _check_keeps(welcome, turns.endpoint)
                    return self._put(link, Putting(_of_log(head, welcome.log), content))
            except SessionError as error:
                self._reader.pause(turns, error)

    def _put(self, link: blocking_log_reader.Link, putting: Putting) -> SnapshotStored:
        rest = Rest()
        link.send(putting.request())
        while putting.stored is None:
            again = putting.take(link.next(SILENCE_S))
            if again is not None:
                link.send(again)
            rest.begin()
            while not link.has_news() and (chunk := putting.chunk()) is not None:
                link.send(chunk)
                rest.end()
        return putting.stored


def _of_log(head: StoredHead, log: int) -> StoredHead:
    if head.log and head.log != log:
        raise LogError(
            f"the snapshot of object {head.object!r} is of log {head.log:x}, and this replica has log {log:x}"
        )
    return StoredHead(head.object, head.position, head.class_name, head.version, head.size, head.crc, log)


def _check_found(getting: Getting, errors: list[SessionError | LogError]) -> None:
    """After every service was asked: raises SnapshotError if none has it, and asking again is no use."""
    if not errors:
        head = getting.head
        raise SnapshotError(
            f"no log service has the snapshot of object {head.object!r} at position {head.position}: "
            f"{getting.missing}"
        )


def _worth_waiting(errors: list[SessionError | LogError]) -> SessionError:
    """Raises the error, if all services have refused for good."""
    for error in errors:
        if isinstance(error, SessionError):
            return error
    raise errors[0]
