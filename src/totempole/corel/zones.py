"""What a replica has: the message queue of COReL §5.2, its green prefix, yellow zone and red suffix.

The green prefix is on disk only; what is kept of it here are counters, the last runs (for those who are a
little behind), and what it has decided: the replica set, readers' holds, the positions of recent keys and the
marks of fences.
`apply` is the only way to change anything. The log's readers replay frames with the same function.

Deviations from COReL, each with its reason:
- Red runs are always sorted by stamp, also those that fall back from yellow: MQs would differ at the next
  commit otherwise.
- The record of a primary component comes before the red runs that it takes in. So whoever fetches a green
  prefix learns of a primary before any run whose place that primary decided.
- The record of a primary that falls back to red is dropped: nobody's message is lost with it, and it would
  announce a primary that is long past.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from totempole.corel.fences import FenceMark, Fences
from totempole.corel.frames import (
    FORMAT,
    Agreed,
    Attempted,
    Begun,
    Colour,
    Committed,
    Frame,
    Greened,
    Heard,
    Identified,
    Mark,
    Opened,
    Opening,
    Placed,
    Promoted,
    Rescued,
    Shown,
)
from totempole.corel.quorum import NO_FORMATION, NO_SET, Formation, ReplicaSet, Voter
from totempole.corel.run import (
    Run,
    RunId,
    RunKind,
    Stamp,
    change_of,
    head_of,
    hold_of,
    primary_of,
)

KEYS_MAX = 65_536
"""A key is remembered until so many later records with keys are green."""

CHANGES = frozenset((RunKind.CHANGE, RunKind.PRIMARY))
"""They change the replica set, or may."""

OPENINGS_MAX = 64
"""So many lives of its disk a replica remembers."""

RECENT_BYTES = 8 * 1024 * 1024
"""Green runs that are kept at hand. A replica that lacks more has to fetch them."""


_OF_THE_SET = (RunKind.PRIMARY, RunKind.CHANGE)


class Ordered(NamedTuple):
    """A green run."""

    run: Run
    place: int
    """It is the run of this number in the order, from 0."""
    position: int
    """Of its first record that has one."""
    repeats: tuple[tuple[int, int], ...]
    """Records whose key was there before: (index in the run, the position of the first). They take none."""
    time_us: int
    fenced: FenceMark | None = None
    """The mark that has kept the run out: it was passed over, and none of its records takes a position."""

    @property
    def positions(self) -> int:
        """How many records have taken a position."""
        return 0 if self.fenced is not None else self.run.count - len(self.repeats)

    def position_of(self, index: int) -> int:
        """Of a record of the run."""
        assert self.fenced is None, "records that were passed over have no positions"
        before = 0
        for repeated, position in self.repeats:
            if repeated == index:
                return position
            before += repeated < index
        return self.position + index - before


def _stamp(run: Run) -> Stamp:
    return run.stamp


class Zones:
    def __init__(self, recent_bytes: int = RECENT_BYTES) -> None:
        self.log = 0
        """The log's own name; 0 before it is founded."""
        self.disk = 0
        self.frames = 0
        """So many have been applied."""
        self.green_runs = 0
        self.position = 0
        """Of the next record."""
        self.time_us = 0
        self.yellow: deque[Run] = deque()
        self.red: list[Run] = []
        """Sorted by their stamps."""
        self._red: dict[RunId, Run] = {}
        self.vector: dict[tuple[int, int], int] = {}
        """By origin and life, the last run that the replica has: it has all before (COReL, note 4)."""
        self.attempted = 0
        self.attempts: list[Formation] = []
        """Later than the one committed."""
        self.committed = NO_FORMATION
        self.established = NO_FORMATION
        """The last primary component whose record is green."""
        self.replicas = NO_SET
        self.keys: OrderedDict[tuple[str, str], int] = OrderedDict()
        """By log and key: positions, the oldest first. A plain dict takes long to find its first entry where
        many before it were removed: 25 µs with so many keys."""
        self.fences = Fences()
        self.holds: dict[str, int] = {}
        self.heard: dict[int, Shown] = {}
        """By processor: what its disk has shown."""
        self.openings: list[Opening] = []
        self.recent: deque[Run] = deque()
        self._recent_bytes_max = recent_bytes
        self._recent_bytes = 0
        self.pending_bytes = 0
        """Of yellow and red runs."""
        self._changes = 0
        """Yellow runs that change the replica set."""
        self.red_bytes = 0

    # Questions

    def has(self, run: RunId) -> bool:
        """Not asked of the records of primaries, which no one sends."""
        return run.number <= self.vector.get((run.origin, run.life), 0)

    def is_red(self, run: RunId) -> bool:
        return run in self._red

    @property
    def recent_from(self) -> int:
        """The first green run that is at hand."""
        return self.green_runs - len(self.recent)

    def recent_runs(self, start: int) -> Iterator[Run]:
        """Green runs from this place on."""
        assert self.recent_from <= start <= self.green_runs, "green runs that are at hand"
        return islice(self.recent, start - self.recent_from, None)

    @property
    def sets(self) -> list[ReplicaSet]:
        """The replica set at the green line, and those after each change in the yellow zone. Before the log
        is founded there is none."""
        sets = [self.replicas]
        if self._changes:
            for run in self.yellow:
                if run.kind in CHANGES:
                    sets.append(set_after(sets[-1], run))
        return [each for each in sets if each.voters]

    def yellow_while(self, is_enough: Callable[[ReplicaSet], bool]) -> int:
        """How many yellow runs come before the first that makes a set of which this does not hold."""
        replicas = self.replicas
        for count, run in enumerate(self.yellow):
            if run.kind in CHANGES:
                replicas = set_after(replicas, run)
                if not is_enough(replicas):
                    return count
        return len(self.yellow)

    def mark(self) -> Mark:
        return Mark(
            FORMAT,
            self.log,
            self.disk,
            self.frames + 1,
            self.green_runs,
            self.position,
            self.time_us,
            self.attempted,
            tuple(self.attempts),
            self.committed,
            self.established,
            self.replicas,
            tuple([RunId(*who, number) for who, number in sorted(self.vector.items())]),
            tuple([(*key, position) for key, position in self.keys.items()]),
            self.fences.rows,
            dict(sorted(self.holds.items())),
            tuple([shown for _, shown in sorted(self.heard.items())]),
            tuple(self.yellow),
            tuple(self.red),
            tuple(self.openings),
        )

    # Frames

    def apply(self, frame: Frame) -> list[Ordered]:
        """Takes the step. Returns the runs that have become green."""
        self.frames += 1
        match frame:
            case Placed():
                return self._place(frame)
            case Greened():
                return [self._green(self._pop_yellow()) for _ in range(frame.runs - self.green_runs)]
            case Promoted():
                self._to_yellow(frame.runs)
            case Agreed():
                return self._agree(frame)
            case Attempted():
                assert frame.formation.number > self.attempted, "attempts are numbered upwards"
                self.attempted = frame.formation.number
                self.attempts.append(frame.formation)
            case Committed():
                assert frame.formation.number == self.attempted, "what is committed was attempted"
                self._commit(frame.formation)
                self._add_yellow(frame.record)
                self._to_yellow(frame.runs)
            case Identified():
                self.disk = frame.disk
            case Heard():
                self.heard.update((shown.processor, shown) for shown in frame.disks)
            case Opened():
                self.openings = [*self.openings, frame.opening][-OPENINGS_MAX:]
            case Begun():
                self._begin(frame.mark)
            case Mark():
                self._load(frame)
            case Rescued():
                self._rescue(frame)
        return []

    def _place(self, frame: Placed) -> list[Ordered]:
        run = frame.run
        if frame.colour is Colour.GREEN:
            return [self._fetch(run)]
        assert not self.has(run.id), "a run is placed once"
        self._know(run.id)
        if frame.colour is Colour.YELLOW:
            self._add_yellow(run)
        else:
            self._add_red(run)
        return []

    def _fetch(self, run: Run) -> Ordered:
        """The next green run, from another's prefix. If it is not the next yellow one, a later primary has
        decided without this replica: what is yellow here has no claim to its place."""
        if self.yellow and self.yellow[0].id == run.id:
            return self._green(self._pop_yellow())
        self._yellow_to_red()
        if run.kind is not RunKind.PRIMARY:
            if self.has(run.id):
                self._take_red([run.id])
            else:
                self._know(run.id)
        return self._green(run)

    def _agree(self, frame: Agreed) -> list[Ordered]:
        assert frame.base <= self.green_runs, "the representative begins where all are green"
        assert self.log in (0, frame.log), "a replica stays with its log"
        self.log = frame.log
        ours = self.green_runs - frame.base
        self._check_green(frame.order[:ours], frame.base)
        rest = frame.order[ours:]
        held = {run.id: run for run in (*self.yellow, *self.red)}
        held.update((run.id, run) for run in frame.records if run.id not in held)
        order = [held.pop(run) for run in rest]
        self._clear_pending()
        for run in order:
            self._add_yellow(run)
        for run in held.values():
            if run.kind is not RunKind.PRIMARY:
                self._add_red(run)
        self._commit(frame.committed)
        return [self._green(self._pop_yellow()) for _ in range(frame.green - self.green_runs)]

    def _check_green(self, order: tuple[RunId, ...], base: int) -> None:
        """No Changes in Green (COReL §5.4), as far back as runs are at hand."""
        start = max(base, self.recent_from)
        mine = [run.id for run in self.recent_runs(start)] if start <= self.green_runs else []
        assert list(order[start - base :]) == mine, "green runs never change their places"

    def _begin(self, mark: Mark) -> None:
        """Takes over what the mark says of the green prefix, keeps its own disk, name and red runs."""
        assert mark.green_runs > self.green_runs, "only who lacks what is trimmed begins anew"
        assert not (*mark.yellow, *mark.red), "nobody else's pending runs come along"
        self._yellow_to_red()
        mine, disk, frames, heard, openings = self.red, self.disk, self.frames, self.heard, self.openings
        attempted, attempts, committed = self.attempted, self.attempts, self.committed
        vector = self.vector
        self._load(mark)
        self._clear_pending()
        self.vector = {(run.origin, run.life): run.number for run in mark.vector}
        self.disk, self.frames, self.heard, self.openings = disk, frames, heard, openings
        self.attempted, self.attempts, self.committed = attempted, attempts, committed
        self._commit(mark.established)  # not what the donor had committed: its yellow runs did not come along
        for run in mine:
            if not self.has(run.id):
                self._know(run.id)
                self._add_red(run)
        assert all(
            self.vector.get(who, 0) >= number or any((run.id.origin, run.id.life) == who for run in mine)
            for who, number in vector.items()
        ), "what the replica had is green, or it has it still"

    def _load(self, mark: Mark) -> None:
        self.log, self.disk, self.frames = mark.log, mark.disk, mark.frames
        self.green_runs, self.position, self.time_us = mark.green_runs, mark.position, mark.time_us
        self.attempted, self.attempts = mark.attempted, list(mark.attempts)
        self.committed, self.established, self.replicas = mark.committed, mark.established, mark.replicas
        self.vector = {(run.origin, run.life): run.number for run in mark.vector}
        self.keys = OrderedDict(((log, key), position) for log, key, position in mark.keys)
        self.fences = Fences(mark.fences)
        self.holds = dict(mark.holds)
        self.heard = {shown.processor: shown for shown in mark.heard}
        self.openings = list(mark.openings)
        self._clear_pending()
        for run in mark.yellow:
            self._add_yellow(run)
        for run in mark.red:
            self._add_red(run)
        self.recent.clear()
        self._recent_bytes = 0

    def _rescue(self, frame: Rescued) -> None:
        """A set of one, and a primary of its own. What is not green will be: nobody else can order it.
        Pending changes of the set, and records of primaries, are about the old one."""
        yellow = [run for run in self.yellow if run.kind not in _OF_THE_SET]
        red = [run for run in self.red if run.kind not in _OF_THE_SET]
        self._clear_pending()
        for run in yellow:
            self._add_yellow(run)
        for run in red:
            self._add_red(run)
        self.log, self.disk, self.heard = frame.log, frame.disk, {}
        self.replicas = ReplicaSet({frame.processor: Voter(frame.disk)}, self.replicas.rule)
        self.attempted += 1
        self.attempts = []
        self.committed = self.established = Formation(self.attempted, (frame.processor,))

    # Steps within

    def _know(self, run: RunId) -> None:
        who = run.origin, run.life
        assert self.vector.get(who, 0) == run.number - 1, "runs of one origin come in their order"
        self.vector[who] = run.number

    def _commit(self, formation: Formation) -> None:
        if formation.number >= self.committed.number:
            self.committed = formation
        number = self.committed.number
        self.attempted = max(self.attempted, number)
        self.attempts = [each for each in self.attempts if each.number > number]

    def _add_yellow(self, run: Run) -> None:
        self.yellow.append(run)
        self.pending_bytes += run.size
        self._changes += run.kind in CHANGES

    def _pop_yellow(self) -> Run:
        run = self.yellow.popleft()
        self.pending_bytes -= run.size
        self._changes -= run.kind in CHANGES
        return run

    def _add_red(self, run: Run) -> None:
        insort(self.red, run, key=_stamp)
        self._red[run.id] = run
        self.pending_bytes += run.size
        self.red_bytes += run.size

    def _take_red(self, runs: Sequence[RunId]) -> list[Run]:
        """Takes them out of the red zone, in the order given. Reds may be very many, and go one by one."""
        assert all(run in self._red for run in runs), "they are red"
        taken = [self._red.pop(run) for run in runs]
        if len(taken) == 1:
            del self.red[bisect_left(self.red, taken[0].stamp, key=_stamp)]
        else:
            self.red = [run for run in self.red if run.id in self._red]
        size = sum(run.size for run in taken)
        self.pending_bytes -= size
        self.red_bytes -= size
        return taken

    def _to_yellow(self, runs: tuple[RunId, ...]) -> None:
        for run in self._take_red(runs):
            self._add_yellow(run)

    def _yellow_to_red(self) -> None:
        while self.yellow:
            run = self._pop_yellow()
            if run.kind is not RunKind.PRIMARY:
                self._add_red(run)

    def _clear_pending(self) -> None:
        self.yellow.clear()
        self.red = []
        self._red.clear()
        self.pending_bytes = self.red_bytes = self._changes = 0

    def _green(self, run: Run) -> Ordered:
        place = self.green_runs
        self.green_runs += 1
        self.recent.append(run)
        self._recent_bytes += run.size
        while self._recent_bytes > self._recent_bytes_max:
            self._recent_bytes -= self.recent.popleft().size
        if run.kind is not RunKind.RECORDS:
            self._obey(run)
            return Ordered(run, place, self.position, (), self.time_us)
        head = head_of(run)
        fenced = self.fences.keeps_out(head.fence) if head.fence is not None else None
        if fenced is not None:
            return Ordered(run, place, self.position, (), self.time_us, fenced)
        self.time_us = max(self.time_us, run.time_us)
        repeats = self._repeats(head.log, head.keys) if head.keys else ()
        ordered = Ordered(run, place, self.position, repeats, self.time_us)
        if head.fence is not None:
            self.fences.move(head.fence, ordered.position_of(0) if run.count else -1)
        self.position += ordered.positions
        return ordered

    def _repeats(self, log: str, keys: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
        repeats: list[tuple[int, int]] = []
        known = self.keys
        for index, key in enumerate(keys):
            if key:
                first = known.get((log, key))
                if first is not None:
                    repeats.append((index, first))
                else:
                    known[log, key] = self.position + index - len(repeats)
        while len(known) > KEYS_MAX:
            known.popitem(last=False)
        return tuple(repeats)

    def _obey(self, run: Run) -> None:
        """A green run of the log's own."""
        if run.kind is RunKind.HOLD:
            hold = hold_of(run)
            if hold.position < 0:
                self.holds.pop(hold.reader, None)
            else:
                self.holds[hold.reader] = hold.position
            return
        self.replicas = set_after(self.replicas, run)
        if run.kind is RunKind.PRIMARY:
            primary = primary_of(run)
            self.established = Formation(primary.number, primary.voters)
            self._commit(self.established)


def set_after(replicas: ReplicaSet, run: Run) -> ReplicaSet:
    """The replica set once this run, a primary's record or a change of it, is green."""
    if run.kind is RunKind.PRIMARY:
        primary = primary_of(run)
        return (primary.founding or replicas).with_disks(primary.disks)
    change = change_of(run)
    return replicas.changed(change.processor, change.disk, change.weight)


def without_pending(mark: Mark) -> Mark:
    """What a mark says of the green prefix alone, for whoever begins there."""
    vector = {(run.origin, run.life): run.number for run in mark.vector}
    for run in (*mark.yellow, *mark.red):
        who = run.id.origin, run.id.life
        if run.kind is not RunKind.PRIMARY:
            vector[who] = min(vector[who], run.id.number - 1)
    known = tuple([RunId(*who, number) for who, number in sorted(vector.items()) if number])
    return msgspec.structs.replace(mark, vector=known, yellow=(), red=())


def replay(frames: Iterable[Frame], recent_bytes: int = RECENT_BYTES) -> Zones:
    """The state after these frames."""
    zones = Zones(recent_bytes)
    for frame in frames:
        zones.apply(frame)
    return zones
