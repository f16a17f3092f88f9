"""A run as configurations: what each processor installed, when, and how many messages it delivered in each.

A `Timeline` is read off a trace. Its `bands` put side by side the changes that belong together, so that
`figure` can draw them as figures 4.15 and 4.16 of Totem do.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from totempole.trace.layers.node import DROPPED
from totempole.trace.lives import Life, Lives, Stay
from totempole.trace.schema import Row
from totempole.trace.told import told
from totempole.types import ProcessorId

STARTUP_US = 400_000
"""Configurations that come and go within so long of a start, and deliver nothing, are left out."""
TOGETHER_US = 300_000
"""Changes of different processors within so long of each other, no fault between, stand side by side."""


@dataclass(slots=True)
class Change:
    """What a processor installs at one instant: a regular configuration, mostly by way of a transitional."""

    regular: Stay
    transitional: Stay | None = None

    @property
    def at_us(self) -> int:
        return self.regular.at_us

    @property
    def stays(self) -> list[Stay]:
        return [self.regular] if self.transitional is None else [self.transitional, self.regular]


@dataclass(slots=True)
class Band:
    """Changes drawn side by side, and what came before them."""

    notes: list[tuple[int, str]] = field(default_factory=list)
    ends: dict[ProcessorId, str] = field(default_factory=dict)
    """Who crashed or left."""
    changes: dict[ProcessorId, Change] = field(default_factory=dict)

    @property
    def at_us(self) -> int:
        return min(change.at_us for change in self.changes.values())

    def add(self, changes: Iterable[Change]) -> None:
        self.changes.update({change.regular.node: change for change in changes})


def changes_of(life: Life) -> list[Change]:
    """The changes to regular configurations, each with the transitional one on the way to it."""
    return [
        Change(stay, before if before is not None and not before.regular else None)
        for stay in life.stays
        if stay.regular
        for before in [life.before(stay)]
    ]


def _told(life: Life, first: bool) -> list[Change]:
    """The changes but those that were only passed through while starting up."""
    changes = changes_of(life)
    kept = deque(changes)
    while len(kept) > 1 and kept[1].at_us <= life.first.at_us + STARTUP_US and _untold(kept[0], first):
        kept.popleft()
    if kept and kept[0] is not changes[0] and not _delivered(kept[0].transitional):
        kept[0] = Change(kept[0].regular)
    return list(kept)


def _untold(change: Change, first: bool) -> bool:
    """A restarted processor's first rings are told, because others tell of them."""
    alone = len(change.regular.members) == 1
    return (first or alone) and not _delivered(change.regular) + _delivered(change.transitional)


def _delivered(stay: Stay | None) -> int:
    return stay.delivered if stay else 0


class Timeline:
    """The rows of one run, in order, as configurations."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.notes: list[tuple[int, str]] = []
        """Faults: when, and what."""
        self.ends: list[tuple[int, ProcessorId, str]] = []
        self.originated: Counter[ProcessorId] = Counter()
        self.installers: dict[str, set[ProcessorId]] = {}
        """Who installed each configuration."""
        self._lives = Lives()
        for row in rows:
            self._hear(row)

    @property
    def nodes(self) -> list[ProcessorId]:
        return sorted(node for node, lives in self._lives.by_node.items() if lives)

    def lives(self, node: ProcessorId) -> int:
        return len(self._lives.by_node[node])

    def stays(self, node: ProcessorId) -> list[Stay]:
        """Every configuration of one processor, first to last."""
        lives = self._lives.by_node.get(node, ())
        return [part for life in lives for change in changes_of(life) for part in change.stays]

    def bands(self, until_us: int | None = None) -> list[Band]:
        """`until_us` leaves out later faults and changes; what was delivered is counted to the end."""
        stop_us = until_us or 2**62
        changes = [
            [change for change in self._changes(node) if change.at_us < stop_us] for node in self.nodes
        ]
        notes = [note for note in self.notes if note[0] < stop_us]
        ends = [end for end in self.ends if end[0] < stop_us]
        return _Layout(changes, notes, ends).bands()

    def _changes(self, node: ProcessorId) -> Iterator[Change]:
        lives = self._lives.by_node[node]
        for life in lives:
            yield from _told(life, first=life is lives[0])

    def _hear(self, row: Row) -> None:
        self._lives.hear(row)
        if row.kind == "originate":
            self.originated[row.node] += 1
        elif row.kind == "configuration":
            self.installers.setdefault(row.configuration, set()).add(row.node)
        elif row.kind in ("crash", "leave"):
            self.ends.append((row.at_us, row.node, row.kind))
        elif row.kind == "fault" and row.reason != DROPPED:
            self.notes.append((row.at_us, told(row)))


class _Layout:
    """Puts configurations into bands: each into one, after all that its members installed before it."""

    def __init__(
        self,
        changes: Iterable[Iterable[Change]],
        notes: list[tuple[int, str]],
        ends: list[tuple[int, ProcessorId, str]],
    ) -> None:
        self._waiting = [deque(line) for line in changes]
        """What each processor has still to install, in its order."""
        self._notes = deque(notes)
        self._ends = deque(ends)
        self._bands: list[Band] = []

    def bands(self) -> list[Band]:
        while any(self._waiting):
            self._place(self._next())
        rest = self._open(2**62)
        return [*self._bands, rest] if rest.notes or rest.ends else self._bands

    def _next(self) -> list[Change]:
        """The earliest configuration that nobody has to install another one before."""
        heads = [line[0] for line in self._waiting if line]
        # A broken protocol may have installed two in different orders: then the earliest comes first.
        ready = [head for head in heads if not self._is_further_down(head)] or heads
        name = min(ready, key=lambda change: change.at_us).regular.name
        lines = [line for line in self._waiting if line and line[0].regular.name == name]
        return [line.popleft() for line in lines]

    def _is_further_down(self, head: Change) -> bool:
        name = head.regular.name
        return any(change.regular.name == name for line in self._waiting for change in islice(line, 1, None))

    def _place(self, changes: list[Change]) -> None:
        first_us = min(change.at_us for change in changes)
        if not self._fits(changes, first_us):
            self._bands.append(self._open(first_us))
        self._bands[-1].add(changes)

    def _fits(self, changes: list[Change], first_us: int) -> bool:
        if not self._bands or any(change.regular.node in self._bands[-1].changes for change in changes):
            return False
        disturbed = any(events and events[0][0] <= first_us for events in (self._notes, self._ends))
        return not disturbed and first_us - self._bands[-1].at_us <= TOGETHER_US

    def _open(self, at_us: int) -> Band:
        band = Band()
        while self._notes and self._notes[0][0] <= at_us:
            band.notes.append(self._notes.popleft())
        while self._ends and self._ends[0][0] <= at_us:
            _, node, how = self._ends.popleft()
            band.ends[node] = how
        return band
