"""A run as configurations: what each processor installed, when, and how many messages it delivered in each.

A `Timeline` is read off a trace. Its `bands` put side by side the changes that belong together, so that
`figure` can draw them as figures 4.15 and 4.16 of 000 do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from totempole.trace.schema import Row
from totempole.types import ProcessorId

STARTUP_US = 400_000
"""Configurations that come and go within so long of a start, and deliver nothing, are left out."""
TOGETHER_US = 300_000
"""Changes of different processors within so long of each other, no fault between, stand side by side."""


@dataclass(slots=True)
class Segment:
    """One configuration of one processor: a vertical line of the figures."""

    node: ProcessorId
    at_us: int
    configuration: str
    regular: bool
    members: tuple[ProcessorId, ...]
    origins: Counter[ProcessorId] = field(default_factory=Counter)
    """Messages delivered in it, by originator."""
    safe: int = 0
    """How many of them were sent as safe."""

    @property
    def delivered(self) -> int:
        return self.origins.total()


@dataclass(slots=True)
class Change:
    """What a processor installs at one instant: a regular configuration, mostly by way of a transitional."""

    regular: Segment
    transitional: Segment | None = None

    @property
    def at_us(self) -> int:
        return self.regular.at_us

    @property
    def segments(self) -> list[Segment]:
        return [self.regular] if self.transitional is None else [self.transitional, self.regular]


@dataclass(slots=True)
class Band:
    """Changes drawn side by side, and what came before them."""

    notes: list[tuple[int, str]] = field(default_factory=list)
    ends: dict[ProcessorId, str] = field(default_factory=dict)
    """Who crashed or left."""
    changes: dict[ProcessorId, Change] = field(default_factory=dict)

    def takes(self, change: Change) -> bool:
        if change.regular.node in self.changes:
            return False
        first_us = min((other.at_us for other in self.changes.values()), default=change.at_us)
        return change.at_us - first_us <= TOGETHER_US

    def add(self, change: Change) -> None:
        self.changes[change.regular.node] = change


@dataclass(slots=True)
class _Life:
    started_us: int
    changes: list[Change] = field(default_factory=list)
    transitional: Segment | None = None
    current: Segment | None = None

    def install(self, segment: Segment) -> None:
        self.current = segment
        if segment.regular:
            self.changes.append(Change(segment, self.transitional))
        self.transitional = None if segment.regular else segment

    def told(self) -> list[Change]:
        """The changes but those that were only passed through while starting up."""
        kept = list(self.changes)
        while len(kept) > 1 and kept[1].at_us <= self.started_us + STARTUP_US and not _delivered(kept[0]):
            kept.pop(0)
        started = kept and kept[0].at_us <= self.started_us + STARTUP_US
        if started and kept[0].transitional and not kept[0].transitional.delivered:
            kept[0] = Change(kept[0].regular)
        return kept


def _delivered(change: Change) -> int:
    return sum(segment.delivered for segment in change.segments)


class Timeline:
    """The rows of one run, in order, as configurations."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.notes: list[tuple[int, str]] = []
        """Faults: when, and what."""
        self.ends: list[tuple[int, ProcessorId, str]] = []
        self.originated: Counter[ProcessorId] = Counter()
        self._lives: dict[ProcessorId, list[_Life]] = {}
        for row in rows:
            self._hear(row)

    @property
    def nodes(self) -> list[ProcessorId]:
        return sorted(self._lives)

    def lives(self, node: ProcessorId) -> int:
        return len(self._lives[node])

    def segments(self, node: ProcessorId) -> list[Segment]:
        """Every configuration of one processor, first to last."""
        lives = self._lives.get(node, ())
        return [part for life in lives for change in life.changes for part in change.segments]

    def bands(self, since_us: int = 0, until_us: int | None = None) -> list[Band]:
        """`until_us` leaves out later faults and changes; what was delivered is counted to the end."""
        bands: list[Band] = []
        pending = Band()
        for at_us, what in self._told_events():
            if at_us < since_us or (until_us is not None and at_us >= until_us):
                continue
            if isinstance(what, str):
                pending.notes.append((at_us, what))
            elif isinstance(what, tuple):
                pending.ends[what[0]] = what[1]
            elif bands and bands[-1].takes(what) and not (pending.notes or pending.ends):
                bands[-1].add(what)
            else:
                pending.add(what)
                bands.append(pending)
                pending = Band()
        return [*bands, pending] if pending.notes or pending.ends else bands

    def _told_events(self) -> list[tuple[int, str | tuple[ProcessorId, str] | Change]]:
        """Notes, ends and changes, those of one instant in this order."""
        events: list[tuple[int, str | tuple[ProcessorId, str] | Change]] = list(self.notes)
        events += [(at_us, (node, how)) for at_us, node, how in self.ends]
        for node in self.nodes:
            events += [(change.at_us, change) for life in self._lives[node] for change in life.told()]
        return sorted(events, key=lambda event: event[0])

    def _hear(self, row: Row) -> None:
        if row.kind == "deliver":
            self._deliver(row)
        elif row.kind == "originate":
            self.originated[row.node] += 1
        elif row.kind == "configuration":
            regular = row.configuration_kind == "regular"
            segment = Segment(row.node, row.at_us, row.configuration, regular, row.members)
            self._lives[row.node][-1].install(segment)
        elif row.kind == "restart":
            self._lives.setdefault(row.node, []).append(_Life(row.at_us))
        elif row.kind in ("crash", "leave"):
            self.ends.append((row.at_us, row.node, row.kind))
        elif row.kind == "fault" and not row.detail.startswith("dropped"):
            self.notes.append((row.at_us, row.detail))

    def _deliver(self, row: Row) -> None:
        segment = self._lives[row.node][-1].current
        assert segment is not None, "a message delivered in no configuration"
        segment.origins[row.origin] += row.count or 1
        segment.safe += (row.count or 1) if row.service == "safe" else 0
