"""The order extends causality (COReL, Property 3.7), and a replica never has a run without those before it
(the invariant Causal of §5.4).

A run depends on all that its origin had when it accepted it: its own earlier runs, and what it had from
others. Replicas take the runs of an origin in their order, so the last of each origin and life says what a
replica has.
"""

from __future__ import annotations

from totempole.checkers.corel_history import LogHistory, RunName, is_green, run_name
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row
from totempole.types import ProcessorId

Vector = dict[tuple[ProcessorId, int], int]
"""By origin and life, the last run."""


def causal(log: LogHistory, terms: Terms, found: Findings) -> None:
    floors = _floors(log)
    for node, rows in sorted(log.by_node.items()):
        _check_queue(node, rows, floors, found)
    _check_order(log, floors, found)


def _floors(log: LogHistory) -> dict[str, Vector]:
    """What each run depends on."""
    floors: dict[str, Vector] = {}
    for rows in log.by_node.values():
        had = _Had()
        for row in rows:
            name = had.take(row)
            if name is not None:
                had.note(name)
            if row.kind == "accept" and row.message not in floors:
                mine = run_name(row.message)
                own = {(mine.origin, mine.life): mine.number - 1} if mine.number > 1 else {}
                floors[row.message] = had.vector | own
    return floors


class _Had:
    """What a replica has, along its rows."""

    def __init__(self) -> None:
        self.vector: Vector = {}
        self.is_known = False
        """From its first opening on."""

    def take(self, row: Row) -> RunName | None:
        """The run that the row brings, if it is new to the replica."""
        if row.kind == "log_open":
            self.vector = _vector(row)
            self.is_known = True
        elif row.kind == "fetched" and row.reason == "mark":
            for who, number in _vector(row).items():
                self.vector[who] = max(number, self.vector.get(who, 0))
        elif row.kind == "colour" and not row.old_state:
            name = run_name(row.message)
            if not name.is_record and name.number > self.vector.get((name.origin, name.life), 0):
                return name
        return None

    def note(self, name: RunName) -> None:
        self.vector[name.origin, name.life] = name.number


def _vector(row: Row) -> Vector:
    names = map(run_name, row.corel.vector)
    return {(name.origin, name.life): name.number for name in names}


def _check_queue(node: ProcessorId, rows: list[Row], floors: dict[str, Vector], found: Findings) -> None:
    """Both clauses of Causal, when a run comes in."""
    had = _Had()
    for row in rows:
        name = had.take(row)
        if name is None:
            continue
        if had.is_known:
            _check_taken(node, row, name, had.vector, floors.get(row.message), found)
        had.note(name)


def _check_taken(
    node: ProcessorId, row: Row, name: RunName, vector: Vector, floor: Vector | None, found: Findings
) -> None:
    own = vector.get((name.origin, name.life), 0)
    if own != name.number - 1:
        found.violated(
            f"Node {node} took run {row.message}, and the last of that origin that it had is number {own}.",
            row,
        )
        return
    for (origin, life), number in (floor or {}).items():
        if vector.get((origin, life), 0) < number:
            found.violated(
                f"Node {node} took run {row.message} without run {origin}.{life}.{number}, which node "
                f"{name.origin} had when it accepted it.",
                row,
            )
            return


def _check_order(log: LogHistory, floors: dict[str, Vector], found: Findings) -> None:
    """In the order itself: along the places, all that a run depends on comes before it."""
    first: dict[int, Row] = {}
    for row in log.of_kind("colour"):
        if is_green(row):
            first.setdefault(row.corel.place, row)
    ordered: Vector = {}
    last = -1
    for place, row in sorted(first.items()):
        name = run_name(row.message)
        if place != last + 1:
            return  # what comes before is not in this trace
        last = place
        if name.is_record:
            continue
        for (origin, life), number in floors.get(row.message, {}).items():
            if ordered.get((origin, life), 0) < number:
                found.violated(
                    f"Run {row.message} has place {place} of the order, before run {origin}.{life}.{number}, "
                    f"which node {name.origin} had when it accepted it.",
                    row,
                )
                break
        who = (name.origin, name.life)
        ordered[who] = max(name.number, ordered.get(who, 0))
