"""What a program reads of a log: records, whole runs of them, and how far it has come. No I/O.

A `Reading` is a question and the place that its answers have reached. Asked again at that place, of any
replica of the same log, the answers go on where they were: no record is missing and none comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Literal, NamedTuple

from totempole.corel.run import (
    Change,
    Hold,
    Primary,
    RunId,
    RunKind,
    change_of,
    hold_of,
    primary_of,
    records_of,
)
from totempole.errors import CodecError, LogError
from totempole.groups.packing import Batch
from totempole.session.log_frames import (
    COLUMNS,
    EARLIEST,
    LATEST,
    Answer,
    Finished,
    OrderedRun,
    Reached,
    Read,
    Runs,
)

STALLED_BEATS = 5
POSITION_MAX = 2**63

Start = int | Literal["earliest", "latest"]


class Record(NamedTuple):
    """A record of a log."""

    position: int
    """In the durable order, from 0."""
    time_us: int
    """By the wall clock of its origin. In the order it never runs backwards."""
    origin: int
    """The processor that it was appended at."""
    run: RunId
    """The run that brought it: records of one append share one."""
    log: str
    """The log's name."""
    key: str
    """What the program gave as its key; empty: none."""
    payload: bytes
    """The record itself."""


_record = partial(tuple.__new__, Record)


class LogBatch:
    """The records of one run, or those of them that were asked for. Their positions follow each other."""

    __slots__ = ("keys", "log", "payloads", "positions", "run", "time_us")

    def __init__(
        self,
        log: str,
        run: RunId,
        time_us: int,
        positions: range,
        payloads: Sequence[bytes],
        keys: Sequence[str],
    ) -> None:
        self.log = log
        self.run = run
        self.time_us = time_us
        self.positions = positions
        self.payloads = payloads
        self.keys = keys
        """One for each record, or none at all."""

    @property
    def origin(self) -> int:
        """The processor that the records were appended at."""
        return self.run.origin

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Record]:
        run, count = self.run, len(self.positions)
        keys = self.keys or repeat("", count)
        payloads = self.payloads or repeat(b"", count)
        rows = zip(
            self.positions,
            repeat(self.time_us),
            repeat(run.origin),
            repeat(run),
            repeat(self.log),
            keys,
            payloads,
        )
        return map(_record, rows)


class Notice(NamedTuple):
    """A run of the log's own: a new primary, a change of the replica set, a reader's hold. It has a place in
    the order and no position: it comes before the record at `position`."""

    position: int
    """Of the record that it comes before."""
    place: int
    """Among all runs, notices included."""
    run: RunId
    """Its name."""
    content: Primary | Change | Hold
    """What has happened."""


def batch_of(ordered: OrderedRun, start: int = 0, stop: int = POSITION_MAX) -> LogBatch | None:
    """The records at positions from `start` to `stop`; None if the run has none there. Raises CodecError."""
    run = ordered.run
    if ordered.fenced is not None:
        return None
    records = records_of(run)
    keys: Sequence[str] = records.keys
    payloads: Sequence[bytes] = Batch(records.batch) if records.batch else ()
    first, last = ordered.position, ordered.stop
    if ordered.repeats:
        repeated = {index for index, _ in ordered.repeats}
        kept = [index for index in range(run.count) if index not in repeated]
        payloads = [payloads[index] for index in kept] if payloads else ()
        keys = [keys[index] for index in kept] if keys else ()
    if start > first or stop < last:
        start, stop = max(start, first), min(stop, last)
        payloads = payloads[start - first : stop - first]
        keys = keys[start - first : stop - first]
        first, last = start, stop
    if first >= last:
        return None
    return LogBatch(records.log, run.id, ordered.time_us, range(first, last), payloads, keys)


def notice_of(ordered: OrderedRun) -> Notice:
    run = ordered.run
    content: Primary | Change | Hold
    if run.kind is RunKind.PRIMARY:
        content = primary_of(run)
    elif run.kind is RunKind.CHANGE:
        content = change_of(run)
    else:
        content = hold_of(run)
    return Notice(ordered.position, ordered.place, run.id, content)


class Reading:
    def __init__(
        self,
        log: str = "",
        start: Start = "earliest",
        stop: int | None = None,
        *,
        follow: bool = False,
        bytes_max: int = 0,
        notices: bool = False,
        columns: Sequence[str] = COLUMNS,
        known: int = 0,
        place: int = 0,
        logs: Sequence[str] = (),
        without: str = "",
    ) -> None:
        """`known`: positions before this one are known to be green, whatever the replica that is asked has on
        its disk by now. A program reads its own appends. `place`: runs before it are not wanted. `logs` and
        `without` as in `Read`: an older service sends runs of other logs too."""
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown:
            raise LogError(f"column {unknown[0]!r}: a record has {', '.join(COLUMNS)}")
        if isinstance(start, int) and start < 0:
            raise LogError(f'start = {start}: give a position from 0, "earliest" or "latest"')
        if stop is not None and stop < 0:
            raise LogError(f"stop = {stop}: give a position from 0")
        self.is_done = False
        self._log = log
        self._start = {"earliest": EARLIEST, "latest": LATEST}[start] if isinstance(start, str) else start
        self._place = place
        self._stop = stop
        self._is_stop_fixed = follow
        """All before it is green at some replica, or is waited for."""
        self._known = known
        self.green = 0
        """What the replica had when it was asked."""
        self._stalled = 0
        self._follow = follow
        self._bytes_max = bytes_max
        self._notices = notices
        self._columns = tuple(columns)
        self._logs = tuple(logs)
        self._without = without

    @property
    def position(self) -> int | None:
        """All records before it were given out. None: no service has said where the reading begins."""
        return self._start if self._start >= 0 else None

    @property
    def place(self) -> int:
        """All runs before it were given out, or are not wanted."""
        return self._place

    def request(self, green: int) -> Read:
        """`green`: the position that the replica has reached, which is asked."""
        self.green = green
        if not self._is_stop_fixed:
            end = max(green, self._known)
            self._stop = end if self._stop is None else min(self._stop, end)
            self._is_stop_fixed = True
        self._stalled = 0
        if self._stop is not None and self._start >= self._stop:
            self.is_done = True
        return Read(
            self._log,
            self._start,
            self._place,
            -1 if self._stop is None else self._stop,
            self._bytes_max,
            True,
            self._notices,
            self._columns,
            self._logs,
            self._without,
        )

    @property
    def is_stalled(self) -> bool:
        """The replica has not got so far as another one, and does not come nearer."""
        return not self._follow and self._stalled >= STALLED_BEATS

    def take(self, answer: Answer) -> list[LogBatch | Notice]:
        """What has come, cut to what was asked for."""
        start, stop = self._start, POSITION_MAX if self._stop is None else self._stop
        taken: list[LogBatch | Notice] = []
        for ordered in self.advance(answer):
            if ordered.run.kind is not RunKind.RECORDS:
                taken.append(notice_of(ordered))
            elif (batch := batch_of(ordered, start, stop)) is not None:
                taken.append(batch)
        return taken

    def advance(self, answer: Answer) -> list[OrderedRun]:
        """The same as whole runs."""
        if isinstance(answer, Runs):
            fresh = [ordered for ordered in answer.runs if ordered.place >= self._place]
            if fresh:
                last = fresh[-1]
                stop = POSITION_MAX if self._stop is None else self._stop
                self._start = max(self._start, min(last.stop, stop))
                self._place = last.place + 1
            return fresh
        if isinstance(answer, Reached | Finished):
            self._stalled = self._stalled + 1 if answer.place == self._place else 0
            self._start = max(self._start, answer.position)
            self._place = max(self._place, answer.place)
            if isinstance(answer, Finished):
                reached = self._stop is not None and answer.position >= self._stop
                self.is_done = reached or bool(self._bytes_max)
            return []
        raise CodecError("frame unexpected", f"{type(answer).__name__} from a log service")
