"""Logs on disk beside the traces of the replicas that wrote them: what their checks look at.

A log on disk gives its green runs in their order, and marks: the state that each segment begins with. A check
follows a log from mark to mark with a state of its own, `LogState`, which knows nothing of the replica's
code. The first mark is taken as it is, since what is before it was trimmed; every later one must say what the
runs before it give.

A long log is judged in ranges of places. A range begins with the last mark before it and the runs from there
on; the range before it has checked that mark. So the ranges together say what the whole says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from totempole.checkers.corel_fences import FENCES_MAX
from totempole.checkers.corel_history import is_green
from totempole.checkers.corel_keys import KEYS_MAX
from totempole.trace.schema import Row
from totempole.types import Fence, ProcessorId

Keys = Mapping[tuple[str, str], int]
"""Of a log's name and a key: the position of the record that has it. The oldest is the first."""

Fences = Mapping[str, tuple[int, int]]
"""Of a fence's name: its mark, and the position where that was set. The one moved longest ago is first."""


class StoredRun(NamedTuple):
    """A green run, as a log on disk has it."""

    place: int
    position: int
    """Of its first record that takes one."""
    positions: int
    """How many of its records take one."""
    message: str
    """origin.life.number, as in the trace."""
    kind: str
    records: int
    bytes: int
    digest: int
    """CRC-32 of the content, begun as the trace begins it."""
    stamp: str
    time_us: int
    """The time that the order gives it: never before that of an earlier run."""
    log: str = ""
    keys: tuple[str, ...] = ()
    """One for each record, empty if it has none; or none at all."""
    repeats: tuple[tuple[int, int], ...] = ()
    """Records whose key was there before: index, and the position of the first."""
    fence: Fence | None = None
    kept_out: tuple[int, ...] = ()
    """Its fence has kept it out: the mark in force, and where it was set. None of its records takes a
    position, and its keys count for nothing."""

    @property
    def end(self) -> int:
        """The position behind its last."""
        return self.position + self.positions

    @property
    def first(self) -> int:
        """The position of its first record, which may be that of an earlier one; -1 if it has no records."""
        return dict(self.repeats).get(0, self.position) if self.records else -1


class StoredMark(NamedTuple):
    """A state that the log has written down: that of the runs before a place."""

    where: str
    """The file."""
    place: int
    position: int
    time_us: int
    keys: Keys
    fences: Fences
    is_given: bool = False
    """Nothing that was read leads up to it."""


class StoredDamage(NamedTuple):
    """Something that was written cannot be read any more. What follows begins with another mark."""

    text: str


StoredItem = StoredRun | StoredMark | StoredDamage


@dataclass(slots=True)
class LogState:
    """What the runs so far make of a log. It is kept here by the rules of the documents, not by the replica's
    code."""

    place: int
    position: int
    time_us: int
    keys: OrderedDict[tuple[str, str], int]
    fences: dict[str, tuple[int, int]]
    has_keys: bool = True
    """Whether it takes keys: most checks do not ask for them, and they are many."""

    @classmethod
    def of(cls, mark: StoredMark, has_keys: bool = True) -> LogState:
        keys = OrderedDict(mark.keys if has_keys else {})
        return cls(mark.place, mark.position, mark.time_us, keys, dict(mark.fences), has_keys)

    def take(self, run: StoredRun) -> None:
        """It goes on from what the log says of the run, so that one mistake is found once."""
        self.place = run.place + 1
        self.position = run.end
        self.time_us = max(self.time_us, run.time_us)
        if run.kept_out:
            return
        if run.keys and self.has_keys:
            self._take_keys(run)
        if run.fence is not None:
            self.fences.pop(run.fence.name, None)
            self.fences[run.fence.name] = run.fence.number, run.first
            if len(self.fences) > FENCES_MAX:
                del self.fences[next(iter(self.fences))]

    def _take_keys(self, run: StoredRun) -> None:
        repeated = {index for index, _ in run.repeats}
        position = run.position
        for index, key in enumerate(run.keys):
            if index in repeated:
                continue
            if key:
                self.keys.pop((run.log, key), None)
                self.keys[run.log, key] = position
            position += 1
        while len(self.keys) > KEYS_MAX:
            self.keys.popitem(last=False)

    def as_mark(self, where: str) -> StoredMark:
        state = self.place, self.position, self.time_us, self.keys, self.fences
        return StoredMark(where, *state, is_given=True)


@dataclass
class StoredLog:
    """The log of one replica, or the range of it that is judged."""

    node: ProcessorId
    items: Sequence[StoredItem]
    """In their order. The first is a mark, unless there is nothing."""
    stop: int
    """The place behind the last green run of the whole log."""
    pending: Sequence[str] = ()
    """The runs that are yellow on this disk, from `stop` on."""

    def steps(self, has_keys: bool = False) -> Iterator[tuple[LogState, StoredRun | StoredMark]]:
        """Each run and each mark that something leads up to, with the state before it; with keys, if these
        are asked for."""
        state: LogState | None = None
        for item in self.items:
            if isinstance(item, StoredDamage):
                state = None
            elif isinstance(item, StoredMark):
                if state is not None and not item.is_given:
                    yield state, item
                state = LogState.of(item, has_keys)
            elif state is not None:
                yield state, item
                state.take(item)

    @cached_property
    def runs(self) -> dict[int, StoredRun]:
        """By place."""
        return {item.place: item for item in self.items if isinstance(item, StoredRun)}


class Telling(NamedTuple):
    """The places from `start` to `stop` became green at a replica in one opening of its log, by its trace:
    it tells of each."""

    node: ProcessorId
    start: int
    stop: int


def tellings(rows: Iterable[Row]) -> Iterator[Telling]:
    """Of rows in the order of node and step. Where an opening begins, or a replica begins anew with another's
    mark, those begin that follow."""
    for node, mine in groupby(rows, key=lambda row: row.node):
        start: int | None = None
        stop = 0
        for row in mine:
            if is_green(row) and row.kind == "colour":
                stop = max(stop, row.corel.place + 1)
            elif row.kind == "log_open" or (row.kind == "fetched" and row.reason == "mark"):
                if start is not None and stop:
                    yield Telling(node, start, stop)
                start, stop = row.corel.green_runs, 0
        if start is not None and stop:
            yield Telling(node, start, stop)


@dataclass
class StoredLogs:
    """A range of places in all logs that were given, with the rows of the trace that are about it."""

    logs: Sequence[StoredLog]
    greens: Sequence[Row] = ()
    """Rows of kind colour that make a run green, in the order of node and step."""
    tellings: Sequence[Telling] = ()
    """Of the whole trace."""
    replicas: frozenset[ProcessorId] = frozenset()
    """The replica set at the end of the trace; empty if the trace does not say."""
    start: int = 0
    stop: int | None = None
    """The range. None: all that follows."""

    @classmethod
    def whole(cls, logs: Sequence[StoredLog], rows: Iterable[Row] = ()) -> StoredLogs:
        """Logs that were read whole, and all rows of a run."""
        mine = sorted((row for row in rows if row.layer == "corel"), key=lambda row: (row.node, row.step))
        greens = [row for row in mine if row.kind == "colour" and is_green(row)]
        sets = [row for row in mine if row.kind == "replica_set"]
        last = max(sets, key=lambda row: row.corel.place, default=None)
        replicas = frozenset(() if last is None else last.members)
        return cls(logs, greens, tuple(tellings(mine)), replicas)

    def __post_init__(self) -> None:
        self.by_node = {log.node: log for log in self.logs}

    def within(self, telling: Telling) -> range:
        """The places of the range that a trace tells of."""
        stop = telling.stop if self.stop is None else min(telling.stop, self.stop)
        return range(max(telling.start, self.start), stop)

    @cached_property
    def by_place(self) -> dict[int, list[Row]]:
        """What the traces tell to be green."""
        found: dict[int, list[Row]] = {}
        for row in self.greens:
            found.setdefault(row.corel.place, []).append(row)
        return found
