"""Takes snapshots of a host's object while commands go on.

    taker = SnapshotTaker(store, "bank", subject, stored)
    ...
    taker.applied(position, size)       # between two commands, after each record or batch
    taker.close()

A snapshot is taken at a position, between two commands, and put to the log service beside the host's daemon
while commands go on: a state that is known to be small is encoded at once, a larger one in a forked child
(`spool` says why that is safe). Where a fork is not possible or fails, or the class does not allow it, the
state is encoded at once too, and the log says so: calls wait for that long.

Whatever goes wrong with a snapshot, calls go on: the error is logged once, and the next attempt is twice as
far away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from totempole.log.snapshots import StoredHead
from totempole.objects.pace import Pace
from totempole.objects.snapshot_transfer import Content, SnapshotRefusedError
from totempole.objects.spool import Encode, EncodingChild, Spool, encode_now
from totempole.session.log_frames import SnapshotStored

SMALL_BYTES = 256 * 1024
"""A state whose last snapshot was not larger is encoded at once: that takes less than a fork."""
SLOW_S = 0.02
"""If encoding a small state takes longer, the next one is encoded in a child."""
DEADLINE_S = 600.0
"""Of encoding a state in a child. Between two commands nothing can end a provider that hangs."""
SAID_MAX = 100
"""Different errors that one taker logs."""
_OTHERS = ("old", "busy")
"""Refusals that are no errors: another program of this node takes snapshots of the object too."""


class Subject(NamedTuple):
    """What a snapshot is taken of."""

    object: str
    class_name: str
    version: int
    """Of the class."""
    encode: Encode
    can_fork: bool = True
    """False: the state is more than memory (an open database, say)."""


class Store(Protocol):
    """`BlockingSnapshotStore` is one."""

    def kept(self, object_name: str) -> StoredHead | None:
        """The newest at the service that a put goes to."""
        ...

    def put(self, head: StoredHead, content: Content) -> SnapshotStored: ...


class Asked(NamedTuple):
    newest: StoredHead | None


class Stored(NamedTuple):
    head: StoredHead
    answer: SnapshotStored


class Step(Enum):
    IDLE = auto()
    ASKING = auto()
    """Whether another program of this node has put one by now."""
    PUTTING = auto()
    """It is being encoded, or on its way to the service."""


Run = Callable[[Callable[[], None]], object]


def _on_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="totempole-snapshot", daemon=True).start()


class SnapshotTaker:
    """For the host's thread. What waits for a disk or a socket is done on another, one step at a time."""

    def __init__(
        self,
        store: Store,
        object_name: str,
        subject: Callable[[], Subject],
        stored: Callable[[SnapshotStored], object],
        *,
        pace: Pace | None = None,
        small_bytes: int = SMALL_BYTES,
        deadline_s: float = DEADLINE_S,
        spool_directory: str | None = None,
        logger: logging.Logger | None = None,
        run: Run = _on_thread,
    ) -> None:
        """`stored` is told of each durable snapshot, from another thread: the hold may move
        (`holds.hold_position(told.positions)`). `run` does work that may take long, elsewhere."""
        self.taken = 0
        """Snapshots that have become durable."""
        self.paused_s = 0.0
        """How long commands waited for the last one."""
        self._store = store
        self._subject_name = object_name
        self._subject = subject
        self._stored = stored
        self._pace = pace or Pace()
        self._small_bytes = small_bytes
        self._deadline_s = deadline_s
        self._spool_directory = spool_directory
        self._logger = logger or logging.getLogger("totempole.objects")
        self.run = run
        self._step = Step.IDLE
        self._position = 0
        self._wanted = 0
        """Records before it are applied, too: what lies between is of other logs."""
        self._child: EncodingChild | None = None
        self._news: Stored | Asked | Exception | None = None
        """What the other thread has done: set there, and taken here."""
        self._size: int | None = None
        """Of the last snapshot."""
        self._is_slow = False
        """It was small, and took long nevertheless."""
        self._said: set[str] = set()
        self._is_closed = False

    @property
    def size(self) -> int | None:
        """Of the last snapshot, as far as it is known."""
        return self._size

    @property
    def is_busy(self) -> bool:
        """A snapshot is on its way."""
        return self._step is not Step.IDLE

    def applied(self, position: int, size: int, records: int = 1) -> None:
        """So many bytes of commands were applied; `position` is behind them. To be called between two
        commands: a snapshot may be taken here."""
        self._position = position
        self._pace.applied(position, size, records)
        if self._step is Step.IDLE:
            if self._pace.is_due and not self._is_closed:
                self.begin()
        elif self._news is not None:
            self._advance(self._news)

    def begin(self, position: int = 0) -> None:
        """Takes one soon, though it may not be due: asks first whether another program has put one. With a
        `position`: all records before it are applied, and one that is not older is wanted."""
        if self._step is Step.IDLE and not self._is_closed:
            self._wanted = position
            self._step = Step.ASKING
            self._start(self._ask)

    def settle(self) -> None:
        """Goes on with a snapshot that is on its way while no commands come. As `applied`, it is to be called
        between two commands."""
        if self._news is not None:
            self._advance(self._news)

    def close(self) -> None:
        """A snapshot that is being encoded is given up."""
        self._is_closed = True
        child = self._child
        if child is not None:
            child.kill()

    def _advance(self, news: Stored | Asked | Exception) -> None:
        self._news = None
        match news:
            case Asked(newest):
                if newest is not None:
                    self._size = newest.size
                    self._pace.stored(newest.position, newest.size)
                is_wanted = newest is None or newest.position < self._wanted or self._pace.is_due
                if is_wanted and not self._is_closed:
                    self._take()
                else:
                    self._step = Step.IDLE
            case Stored(head, answer):
                self._step = Step.IDLE
                self.taken += 1
                self._size = head.size
                self._pace.stored(head.position, head.size)
                self._logger.info(
                    "snapshot of object %s at position %d: %d bytes, commands waited for %.1f ms; node %d",
                    *(head.object, head.position, head.size, self.paused_s * 1e3, answer.processor),
                )
            case SnapshotRefusedError(kind=kind) if kind in _OTHERS:
                self._step = Step.IDLE
                self._pace.skipped()
            case _:
                self._fail(news)

    def _take(self) -> None:
        """Between two commands: the state is that of `_position`."""
        started_s = time.perf_counter()
        self._pace.mark()
        self._child = None
        spool: Spool | None = None
        try:
            subject = self._subject()
            spool = Spool(self._spool_directory)
            is_small = self._size is not None and self._size <= self._small_bytes and not self._is_slow
            if subject.can_fork and not is_small:
                self._child = self._fork(subject, spool)
            if self._child is None:
                encode_now(subject.encode, spool)
                self._is_slow = time.perf_counter() - started_s > SLOW_S
        except Exception as error:  # whatever a provider raises: calls go on
            if spool is not None:
                spool.close()
            self._fail(error)
            return
        finally:
            self.paused_s = time.perf_counter() - started_s
        self._step = Step.PUTTING
        position, child = max(self._position, self._wanted), self._child
        if not self._start(lambda: self._put(subject, position, spool, child)):
            if child is not None:
                child.give_up()
            spool.close()

    def _start(self, step: Callable[[], Stored | Asked]) -> bool:
        """Whether it has begun, on another thread. Where the system has none left, it has failed."""
        try:
            self.run(lambda: self._work(step))
        except RuntimeError as error:
            self._fail(error)
            return False
        return True

    def _fork(self, subject: Subject, spool: Spool) -> EncodingChild | None:
        try:
            return EncodingChild(subject.encode, spool, self._deadline_s)
        except OSError as error:
            self._say(
                f"object {subject.object}: a process that encodes its snapshot cannot be started ({error}): "
                "it is encoded between two commands, and calls wait for that long"
            )
            return None

    def _fail(self, error: Exception) -> None:
        self._step = Step.IDLE
        self._pace.failed()
        if self._is_closed:
            return
        name = self._subject_name
        self._say(f"object {name}: no snapshot could be taken; calls go on, and it is tried again: {error}")

    def _say(self, text: str) -> None:
        """Once."""
        if text not in self._said and len(self._said) < SAID_MAX:
            self._said.add(text)
            self._logger.error("%s", text)

    # On another thread

    def _work(self, step: Callable[[], Stored | Asked]) -> None:
        try:
            self._news = step()
        except Exception as error:
            self._news = error

    def _ask(self) -> Asked:
        return Asked(self._store.kept(self._subject_name))

    def _put(self, subject: Subject, position: int, spool: Spool, child: EncodingChild | None) -> Stored:
        try:
            if child is not None:
                child.wait()
            head = StoredHead(
                subject.object, position, subject.class_name, subject.version, spool.size, spool.crc
            )
            answer = self._store.put(head, spool)
        finally:
            spool.close()
        self._stored(answer)
        return Stored(head, answer)
