"""All that a host has to do with snapshots: where it begins, when one is taken, and the hold that moves.

    snapshots = ObjectSnapshots(ObjectType.of(Bank), "bank", endpoints)
    begun = await snapshots.open()              # or open_blocking()
    ...                                         # begun.machine takes records from begun.start on
    snapshots.applied(begun.machine, size)      # between two records, after each or after some
    if (hold := snapshots.next_hold()) is not None:
        ...                                     # ask the daemon for it, then: snapshots.hold_answered(True)
    snapshots.close()

It belongs to the thread that applies the records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from totempole.client import blocking_log_reader, log_reader
from totempole.client.endpoint import Endpoint, Reconnect
from totempole.errors import ObjectClassError, ObjectError, ObjectVersionError, TotemError
from totempole.log.snapshots import StoredHead
from totempole.objects.commands import ObjectType
from totempole.objects.holds import hold_name, hold_position, starting_point
from totempole.objects.machine import ObjectMachine
from totempole.objects.pace import LEAST_BYTES, Pace, stagger_of
from totempole.objects.pieces import Piece
from totempole.objects.snapshot_store import BlockingSnapshotStore, LoadedSnapshot, SnapshotStore
from totempole.objects.snapshot_taker import SnapshotTaker, Subject
from totempole.objects.snapshots import Snapshot
from totempole.session.log_frames import ReplicaStatus, SnapshotStored

if TYPE_CHECKING:
    from totempole.objects.sqlite import DatabaseFile

T = TypeVar("T")

CHECKED_BYTES_MAX = 64 * 1024 * 1024
"""Up to this size a snapshot is read back and compared with the state before it is put. What cannot be read
back is a matter of types: it shows while the state is small. A large one would take long, and a large value
that cannot be divided would be in memory three times."""

LOOK_S = 60.0
"""How often a host looks whether its hold keeps the log from being trimmed."""
HELD_POSITIONS_MIN = 10_000


def is_held_back(status: ReplicaStatus, object_name: str) -> bool:
    """Whether this node's hold for the object is the lowest of all, and keeps at least half of the log."""
    held = status.holds.get(hold_name(object_name, status.processor))
    if held is None or held > min(status.holds.values()):
        return False
    kept = status.position - status.first
    return kept >= HELD_POSITIONS_MIN and 2 * (status.position - max(held, status.first)) >= kept


class Hold(NamedTuple):
    """To be set: `Appending.hold(reader, position)`, or `log.hold`."""

    reader: str
    position: int


class Begun(NamedTuple, Generic[T]):
    machine: ObjectMachine[T]
    start: int
    """Where to read the object's log: the machine has what is before."""


class ObjectSnapshots(Generic[T]):
    def __init__(
        self,
        object_type: ObjectType[T],
        name: str,
        endpoints: Sequence[Endpoint],
        *,
        reconnect: Reconnect | None = None,
        file: DatabaseFile | None = None,
        least_bytes: int = LEAST_BYTES,
        can_fork: bool | None = None,
        logger: logging.Logger | None = None,
        **options: Any,
    ) -> None:
        """`endpoints`: the log services; the first is the one beside the host's daemon, and gets the
        snapshots. `file`: has the object, too. `least_bytes`: of commands between two. `can_fork`: whether a
        forked child may encode the state; as the class's `object_can_fork` says, if not given. `options`: of
        `SnapshotTaker`."""
        self._type = object_type
        self._name = name
        self._endpoints = tuple(endpoints)
        self._reconnect = reconnect
        self._file = file
        self._least_bytes = least_bytes
        self._can_fork = getattr(object_type.cls, "object_can_fork", True) if can_fork is None else can_fork
        self._logger = logger or logging.getLogger("totempole.objects")
        self._options = options
        self._machine: ObjectMachine[T] | None = None
        self._taker: SnapshotTaker | None = None
        self._lock = threading.Lock()
        self._hold: Hold | None = None
        """To be asked for; set by another thread too."""
        self._asked: Hold | None = None
        self._look_s = time.monotonic() + LOOK_S
        self._seen: ReplicaStatus | None = None

    # Opening

    async def open(self) -> Begun[T]:
        """From the newest snapshot that can be had and read. Raises ObjectTrimmedError, ObjectClassError,
        ObjectVersionError; SessionError or LogError, if no log service answers."""
        reader = log_reader.LogReader(self._endpoints, name=self._name, reconnect=self._reconnect)
        if self._file is not None and (kept := self._from_file(await reader.status())) is not None:
            return kept
        store = SnapshotStore(reader)
        bad: set[StoredHead] = set()
        while True:
            loaded = await store.load(self._name, bad=bad)
            begun = self._begin(loaded, await reader.status(), bad)
            if begun is not None:
                return begun

    def open_blocking(self) -> Begun[T]:
        """The same, without asyncio."""
        reader = blocking_log_reader.LogReader(self._endpoints, name=self._name, reconnect=self._reconnect)
        if self._file is not None and (kept := self._from_file(reader.status())) is not None:
            return kept
        store = BlockingSnapshotStore(reader)
        bad: set[StoredHead] = set()
        while True:
            loaded = store.load(self._name, bad=bad)
            begun = self._begin(loaded, reader.status(), bad)
            if begun is not None:
                return begun

    def _from_file(self, status: ReplicaStatus) -> Begun[T] | None:
        assert self._file is not None, "there is one"
        machine = self._file.open(self._type, status.log, status.first)
        if machine is None:
            return None
        self._machine = machine
        self._first_hold(None, status.processor, status.holds)
        self._make_taker(None, machine.applied, status.processor)
        return Begun(machine, machine.applied)

    def _begin(
        self, loaded: LoadedSnapshot | None, status: ReplicaStatus, bad: set[StoredHead]
    ) -> Begun[T] | None:
        """None: the snapshot cannot be read, the next is to be tried."""
        head = loaded.head if loaded is not None else None
        if head is not None and head.position < status.first:
            bad.add(head)  # the log was trimmed meanwhile: there are newer ones
            return None
        start = starting_point(self._name, status.first, status.holds, head)
        if loaded is None:
            machine: ObjectMachine[T] = ObjectMachine(self._type)
        else:
            try:
                machine = ObjectMachine.restore(
                    self._type, Snapshot.decode(memoryview(loaded.content).toreadonly())
                )
            except (ObjectClassError, ObjectVersionError):
                raise  # an older one is of no use: the log behind it would say the same
            except ObjectError as error:
                self._logger.error("object %s: a snapshot cannot be read: %s", self._name, error)
                bad.add(loaded.head)
                return None
        self._machine = machine
        self._first_hold(head, status.processor, status.holds)
        self._make_taker(head, start, status.processor)
        return Begun(machine, start)

    def _first_hold(self, head: StoredHead | None, processor: int, holds: Mapping[str, int]) -> None:
        """Until there are two snapshots at this node, its hold keeps what this host has read from."""
        name = hold_name(self._name, processor)
        if name not in holds:
            self._hold = Hold(name, head.position if head is not None else 0)

    def _make_taker(self, head: StoredHead | None, start: int, processor: int) -> None:
        if self._taker is not None:
            self._taker.close()
        if self._endpoints[0].is_simulated:
            return
        reader = blocking_log_reader.LogReader(
            self._endpoints[:1], name=self._name, reconnect=self._reconnect
        )
        self._taker = SnapshotTaker(
            BlockingSnapshotStore(reader),
            self._name,
            self._subject,
            self._stored,
            pace=Pace(
                self._least_bytes,
                stagger=stagger_of(self._name, processor),
                position=start,
                size=head.size if head is not None else 0,
            ),
            logger=self._logger,
            **self._options,
        )
        if head is not None:
            self._taker.begin()  # if this node has none, it came from another

    # While it runs

    def applied(self, machine: ObjectMachine[T], size: int, records: int = 1) -> None:
        """So many records, of so many bytes, were applied. Between two records: a snapshot may be taken."""
        if self._taker is not None and machine.version:
            self._machine = machine
            self._taker.applied(machine.applied, size, records)

    def settle(self, place: int = 0) -> None:
        """Now and then while no records come. `place`: all runs of the order before it are applied, or of
        other logs. An object whose commands are few is then looked after, too: if it is its hold that keeps
        the log from being trimmed, a snapshot is taken at a later position."""
        taker = self._taker
        if taker is None or self._machine is None or not self._machine.version:
            return
        taker.settle()
        if not place or taker.is_busy:
            return
        seen, self._seen = self._seen, None
        if seen is not None and place >= seen.runs and is_held_back(seen, self._name):
            taker.begin(seen.position)
        elif time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + LOOK_S
            with suppress(RuntimeError):  # the system has no thread left
                taker.run(self._look)

    def next_hold(self) -> Hold | None:
        """A hold to be asked for now. `hold_answered` follows; until then there is no other."""
        with self._lock:
            if self._asked is not None or self._hold is None:
                return None
            self._asked, self._hold = self._hold, None
            return self._asked

    def hold_answered(self, is_done: bool) -> None:
        """If it is not done, it is asked for again, unless a later one has come."""
        with self._lock:
            asked, self._asked = self._asked, None
            if not is_done and self._hold is None:
                self._hold = asked

    def close(self) -> None:
        if self._taker is not None:
            self._taker.close()

    @property
    def taker(self) -> SnapshotTaker | None:
        return self._taker

    def _subject(self) -> Subject:
        machine = self._machine
        assert machine is not None, "it is open"

        is_checked = self._taker is None or (self._taker.size or 0) <= CHECKED_BYTES_MAX

        def encode() -> Iterable[Piece]:
            return machine.pieces(is_checked=is_checked)

        return Subject(self._name, machine.name, machine.version, encode, self._can_fork)

    def _look(self) -> None:
        """On another thread."""
        reader = blocking_log_reader.LogReader(self._endpoints[:1], name=self._name)
        with suppress(TotemError):  # it is looked again later
            self._seen = reader.status()

    def _stored(self, told: SnapshotStored) -> None:
        """On another thread."""
        position = hold_position(told.positions)
        if position is not None:
            with self._lock:
                self._hold = Hold(hold_name(self._name, told.processor), position)
