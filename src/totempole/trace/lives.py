"""The one model of what nodes did over time: lives, and stays in configurations.

A life is one incarnation of a node. It is a list of stays, one for each configuration that it installed, and
a stay is what the node did in that configuration. The checkers, reports and the terminal use it; Spark's
silver tables say the same of many runs at once, and a test holds them to this.

Nothing here judges: wrong traces are told as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from totempole.trace.layers.node import KILLED
from totempole.trace.schema import Row
from totempole.types import NO_RING, ProcessorId, RingId

OPEN = "open"
"""How a stay ends that the trace does not see the end of."""


@dataclass(slots=True)
class Stay:
    """A node's time in one configuration."""

    change: Row
    id: RingId
    regular: bool
    place: int
    """Index among the stays of the life."""
    events: list[Row] = field(default_factory=list)
    """Originations and deliveries, in the node's order."""
    deliveries: list[Row] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.change.configuration

    @property
    def members(self) -> tuple[ProcessorId, ...]:
        return self.change.members

    @property
    def node(self) -> ProcessorId:
        return self.change.node

    @property
    def at_us(self) -> int:
        return self.change.at_us

    @property
    def delivered(self) -> int:
        """Messages; a row may tell of several."""
        return sum([row.count or 1 for row in self.deliveries])

    @property
    def safe(self) -> int:
        """How many of them were sent as safe."""
        return sum([row.count or 1 for row in self.deliveries if row.service == "safe"])

    @property
    def origins(self) -> Counter[ProcessorId]:
        """How many of them each processor originated."""
        found: Counter[ProcessorId] = Counter()
        for row in self.deliveries:
            found[row.origin] += row.count or 1
        return found


@dataclass(slots=True)
class Life:
    node: ProcessorId
    incarnation: int
    first: Row
    """The restart, or the first row that is there."""
    stays: list[Stay] = field(default_factory=list)
    stray: list[Row] = field(default_factory=list)
    """Deliveries and originations before any configuration was installed."""
    submissions: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)
    joins: list[Row] = field(default_factory=list)
    writes: list[Row] = field(default_factory=list)
    """Writes to stable storage, begun and done."""
    receipts: dict[str, dict[int, Row]] = field(default_factory=dict)
    """By ring and sequence number, when this life first had a message: it received or originated it."""
    ended: bool = False
    """It crashed, left, or was followed by another life."""
    end: str = ""
    """How it ended: "crash", "leave", or nothing when it was killed."""
    end_row: Row | None = None
    """The row that says so, whoever wrote it."""
    last: Row | None = None

    @property
    def cut_short(self) -> bool:
        """It was killed, so that its last rows are missing: it is judged up to those that are there."""
        return self.ended and not self.end

    def left_for_good(self, place: int) -> Stay | None:
        """The next regular configuration that this life installed after the stay at `place`."""
        return next((stay for stay in self.stays[place + 1 :] if stay.regular), None)

    def after(self, stay: Stay) -> Stay | None:
        return self.stays[stay.place + 1] if stay.place + 1 < len(self.stays) else None

    def before(self, stay: Stay) -> Stay | None:
        return self.stays[stay.place - 1] if stay.place else None

    def transitional_after(self, stay: Stay) -> Stay | None:
        following = self.after(stay)
        return following if following is not None and not following.regular else None

    def end_of(self, stay: Stay) -> tuple[str, int | None]:
        """The kind of row that ended the stay, and when.

        Two of them tell no time: `restart`, the node was killed and nobody wrote that down, and `open`.
        """
        following = self.after(stay)
        ending = following.change if following is not None else self.end_row
        if ending is not None:
            return ending.kind, ending.at_us
        return "restart" if self.ended else OPEN, None


class Lives:
    """The lives of a run's nodes. Rows come one by one, those of a node in its order."""

    def __init__(self, identify: Callable[[str], RingId] = lambda name: NO_RING) -> None:
        """`identify`: what a configuration's name stands for, if that is asked for."""
        self.lives: list[Life] = []
        self.by_node: dict[ProcessorId, list[Life]] = {}
        self._identify = identify
        self._current: Life | None = None

    def hear(self, row: Row) -> Life | None:
        """The life that the row is of. None for a fault: it is done to a node, that may not even run."""
        kind = row.kind
        if kind == "fault":
            self.by_node.setdefault(row.node, [])
            return None
        life = self._current
        if kind == "restart":
            # A life that ended before its first write leaves its incarnation to the next.
            life = self._current = self._begin(row)
        elif life is None or life.node != row.node or life.incarnation != row.incarnation:
            life = self._current = self._find(row)
        if kind == "deliver":
            if life.stays:
                stay = life.stays[-1]
                stay.events.append(row)
                stay.deliveries.append(row)
            else:
                life.stray.append(row)
        elif kind == "originate":
            (life.stays[-1].events if life.stays else life.stray).append(row)
        elif kind == "configuration":
            regular = row.configuration_kind == "regular"
            life.stays.append(Stay(row, self._identify(row.configuration), regular, len(life.stays)))
        elif kind == "crash" or kind == "leave":
            life.ended, life.end = True, "" if row.reason == KILLED else kind
            life.end_row = row
        life.last = row
        return life

    def _find(self, row: Row) -> Life:
        for life in reversed(self.by_node.get(row.node, ())):
            if life.incarnation == row.incarnation:
                return life
        return self._begin(row)

    def _begin(self, row: Row) -> Life:
        life = Life(row.node, row.incarnation, row)
        mine = self.by_node.setdefault(row.node, [])
        if mine:
            mine[-1].ended = True
        mine.append(life)
        self.lives.append(life)
        return life
