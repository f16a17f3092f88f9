"""One index of what the durable order wrote into a trace, shared by all checks of it (COReL).

A replica's rows fall into openings: from one `log_open` to the next. A crash makes a replica forget what was
not on its disk, so an opening begins with what the disk had: a green prefix of so many runs, and, as rows
that follow at once, the runs that are not green. Nothing here judges: wrong traces are indexed as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.errors import TraceError
from totempole.trace.layers.corel import COMMITTED, GREEN, KINDS, LEARNED
from totempole.trace.lives import Life
from totempole.trace.schema import Row
from totempole.types import ProcessorId

_KINDS = frozenset(kind.name for kind in KINDS)


class RunName(NamedTuple):
    """What `message` says of a run."""

    origin: ProcessorId
    life: int
    number: int

    @property
    def is_record(self) -> bool:
        """Of a primary: its members make it, and nobody sends it. Its life is the primary's number."""
        return self.origin == 0


def run_name(text: str) -> RunName:
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise TraceError(f"{text!r} names no run of the log; one is written origin.life.number")
    return RunName(*map(int, parts))


class LogHistory:
    """The durable order's rows of one run, or of a part of it."""

    def __init__(self, rows: Iterable[Row], ring: History) -> None:
        self.ring = ring
        self.by_node: dict[ProcessorId, list[Row]] = {}
        for row in rows:
            if row.kind in _KINDS:
                self.by_node.setdefault(row.node, []).append(row)
        for mine in self.by_node.values():
            mine.sort(key=lambda row: row.step)

    def of_kind(self, *kinds: str) -> Iterator[Row]:
        return (row for mine in self.by_node.values() for row in mine if row.kind in kinds)

    @cached_property
    def accepts(self) -> dict[str, Row]:
        """The first row that accepts each run."""
        found: dict[str, Row] = {}
        for row in self.of_kind("accept"):
            found.setdefault(row.message, row)
        return found

    @cached_property
    def by_run(self) -> dict[str, dict[ProcessorId, list[Row]]]:
        """The colours of each run at each replica."""
        found: dict[str, dict[ProcessorId, list[Row]]] = {}
        for row in self.of_kind("colour"):
            found.setdefault(row.message, {}).setdefault(row.node, []).append(row)
        return found

    @cached_property
    def by_place(self) -> dict[int, dict[ProcessorId, list[Row]]]:
        """What took and gave up each place at each replica."""
        found: dict[int, dict[ProcessorId, list[Row]]] = {}
        for row in self.of_kind("colour"):
            if row.corel.place >= 0:
                found.setdefault(row.corel.place, {}).setdefault(row.node, []).append(row)
        return found

    @cached_property
    def openings(self) -> dict[ProcessorId, list[Row]]:
        return self._each("log_open")

    @cached_property
    def phases(self) -> dict[ProcessorId, list[Row]]:
        return self._each("phase")

    def opening_of(self, row: Row) -> Row | None:
        return _before(self.openings.get(row.node, []), row.step)

    def phase_before(self, row: Row) -> Row | None:
        """The row of the phase that the replica was in when the row was written."""
        return _before(self.phases.get(row.node, []), row.step)

    def openings_of(self, node: ProcessorId, rows: Iterable[Row]) -> Iterator[tuple[Row | None, list[Row]]]:
        """The rows of one replica, cut at its openings. Openings without rows are there, too."""
        mine = self.openings.get(node, [])
        cut: list[tuple[Row | None, list[Row]]] = [(None, []), *((row, list[Row]()) for row in mine)]
        for row in rows:
            cut[bisect_left(mine, row.step, key=lambda opening: opening.step)][1].append(row)
        return (part for part in cut if part[0] is not None or part[1])

    @cached_property
    def sets(self) -> dict[ProcessorId, list[Row]]:
        return self._each("replica_set")

    def _each(self, kind: str) -> dict[ProcessorId, list[Row]]:
        return {node: [row for row in mine if row.kind == kind] for node, mine in self.by_node.items()}

    def set_before(self, row: Row) -> Row | None:
        """The replica set at the replica's green line, when the row was written. An opening tells it anew."""
        found, opening = _before(self.sets.get(row.node, []), row.step), self.opening_of(row)
        if found is not None and opening is not None and found.step < opening.step:
            return None  # an emptied disk knows of none
        return found

    @cached_property
    def primaries(self) -> list[Row]:
        return list(self.of_kind("primary"))

    @cached_property
    def committed(self) -> dict[int, Row]:
        """A row for each primary that a replica has committed, by its number."""
        found: dict[int, Row] = {}
        for row in self.primaries:
            if row.reason == COMMITTED:
                found.setdefault(row.corel.primary, row)
        return found

    @cached_property
    def processors(self) -> list[ProcessorId]:
        """All that were ever in a view of the log."""
        return sorted({member for row in self.of_kind("phase") for member in row.members})

    # How far traces go

    def alive(self, node: ProcessorId) -> Life | None:
        """The life that the node is in at the end, if it has a log open in it."""
        life = self.ring.current(node)
        mine = self.by_node.get(node)
        if life is None or not mine:
            return None
        last = next((row for row in reversed(mine) if row.kind in ("log_open", "log_close")), None)
        is_open = last is not None and last.kind == "log_open" and last.incarnation == life.incarnation
        return life if is_open else None

    def must_tell(self, terms: Terms, node: ProcessorId, since: Row, life: int | None = None) -> bool:
        """Whether the trace of a node has by now all that led to the row `since`: from its beginning, or from
        the opening on in which its runs had this life. That of a node that was killed lacks rows."""
        lives = self.ring.by_node.get(node, [])
        opening = next((row for row in self.openings.get(node, []) if row.corel.life == life), None)
        if opening is not None:
            lives = [each for each in lives if each.incarnation == opening.incarnation]
        elif not lives or lives[0].first.kind != "restart" or self._began_with_a_log(node):
            return False
        if any(each.cut_short for each in lives):
            return False
        return terms.complete or (terms.same_clock and self.ring.last_at.get(node, -1) >= since.at_us)

    def _began_with_a_log(self, node: ProcessorId) -> bool:
        """Whether the node had a past that the trace does not tell of."""
        return any(row.corel.frames for row in self.openings.get(node, [])[:1])


def knows_of(row: Row) -> int | None:
    """The number of the last primary that the replica knows from this row on, if the row says so."""
    if row.kind == "log_open" or (row.kind == "primary" and row.reason in (COMMITTED, LEARNED)):
        return row.corel.primary
    return None


def is_green(row: Row) -> bool:
    return row.new_state == GREEN


def _before(rows: list[Row], step: int) -> Row | None:
    index = bisect_left(rows, step, key=lambda row: row.step)
    return rows[index - 1] if index else None
