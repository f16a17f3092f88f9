"""What is green anywhere is not lost: the invariant Yellow (COReL §5.4), and that every later primary
component begins with it.

The paper lets all members of a primary acknowledge a run before it is green, so whoever knows of that primary
has the run in its place. With the acknowledgements of a quorum a member may lack it; but every quorum has
a member that has it, so whoever knows of a *later* primary has it in its place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from totempole.checkers.corel_history import LogHistory, is_green, knows_of
from totempole.checkers.corel_quorum import is_quorum
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.corel import ALL, ESTABLISHED, GREEN, YELLOW
from totempole.trace.schema import Row
from totempole.types import ProcessorId

UNKNOWN = "?"
"""A run in a green prefix that the trace does not tell of."""

ENDLESS = 2**62
"""More runs than any log has."""


def greened(log: LogHistory, place: int) -> list[Row]:
    """For each run that became green at this place, the row of the earliest primary in which it did. What a
    replica fetches became green before, in a primary that the row does not tell."""
    first: dict[str, Row] = {}
    for rows in log.by_place[place].values():
        for row in rows:
            if is_green(row) and row.reason in ("greened", "agreed"):
                known = first.get(row.message)
                if known is None or row.corel.primary < known.corel.primary:
                    first[row.message] = row
    return sorted(first.values(), key=attrgetter("corel.primary", "node", "step"))


# corel-yellow


def yellow(log: LogHistory, terms: Terms, found: Findings) -> None:
    contexts = {node: _Context(mine) for node, mine in sorted(log.by_node.items())}
    for place in sorted(log.by_place):
        greens = greened(log, place)
        if not greens:
            continue
        told = log.by_place[place]
        paths = {
            node: list(_path(place, told.get(node, []), context.about(place, told.get(node, []), greens)))
            for node, context in contexts.items()
        }
        for green in greens:
            for node, path in paths.items():
                _check_replica(node, place, path, green, found)
        _check_holders(log, place, paths, terms, found)


@dataclass(slots=True)
class _Standing:
    """What a replica has at one place, from a step on, and the last primary that it knows of."""

    row: Row
    holds: str
    """The run; nothing; or UNKNOWN."""
    primary: int


class _Context:
    """A replica's openings and the primaries that it learns of: few rows, but they concern every place. Those
    that change nothing for a place are left out, or a long run would cost their product."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = [row for row in rows if knows_of(row) is not None or _is_mark(row)]
        self._steps = [row.step for row in self._rows]
        self._highest = [0, *accumulate((knows_of(row) or 0 for row in self._rows), max)]
        """Up to each row, the highest number of a primary."""
        places = [place if knows_of(row) is not None else 0 for place, row in enumerate(self._rows)]
        self._known = [0, *accumulate(places, max)]
        """Before each row, the last one that says what is known."""
        lengths = [row.corel.green_runs if _tells_length(row) else 0 for row in self._rows]
        self._longest = [0, *accumulate(lengths, max)]
        """Up to each row, the longest green prefix that an opening or a mark has told."""
        left = [row.corel.green_runs if _tells_length(row) else ENDLESS for row in self._rows]
        self._shortest = [*list(accumulate(reversed(left), min))[::-1], ENDLESS]
        """From each row on, the shortest."""

    def about(self, place: int, told: list[Row], greens: list[Row]) -> list[Row]:
        """`told`: what the replica has told of the place; `greens`: the runs that are green there."""
        if not told:
            return self._rows
        first, last = bisect_left(self._steps, told[0].step), bisect_left(self._steps, told[-1].step)
        start, stop = 0, len(self._rows)
        if self._highest[first] <= greens[0].corel.primary and self._longest[first] <= place:
            start = self._known[first]  # before it has anything there, it knows of no later primary
        if len(greens) == 1 and is_green(told[-1]) and self._shortest[last] > place:
            stop = last  # green stays, and no opening says otherwise
        return self._rows[start:stop]


def _is_mark(row: Row) -> bool:
    return row.kind == "fetched" and row.reason == "mark"


def _tells_length(row: Row) -> bool:
    return row.kind == "log_open" or _is_mark(row)


def _path(place: int, told: list[Row], context: list[Row]) -> Iterator[_Standing]:
    """One for each atomic step of a replica that concerns the place."""
    rows = sorted([*told, *context], key=attrgetter("step"))
    holds, primary = "", 0
    for together in _steps(rows):
        for row in together:
            number = knows_of(row)
            if number is not None:
                primary = number
            if _tells_length(row):
                is_within = place < row.corel.green_runs
                holds = (holds or UNKNOWN) if is_within else ""
            elif row.kind == "colour":
                holds = _held(holds, row)
        yield _Standing(row, holds, primary)


def _held(holds: str, row: Row) -> str:
    if row.new_state in (YELLOW, GREEN):
        return row.message
    return "" if holds == row.message else holds


def _steps(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows of one frame tell of one step, as do those of an opening."""
    step: list[Row] = []
    for row in rows:
        if step and (row.kind == "log_open" or row.corel.frames != step[0].corel.frames):
            yield step
            step = []
        step.append(row)
    if step:
        yield step


def _check_replica(
    node: ProcessorId, place: int, path: Iterable[_Standing], green: Row, found: Findings
) -> None:
    for standing in path:
        later = standing.primary > green.corel.primary
        same = standing.primary == green.corel.primary and standing.holds
        if (later or same) and standing.holds not in (green.message, UNKNOWN):
            found.violated(
                f"Run {green.message} became green at place {place} at node {green.node}, in primary "
                f"{green.corel.primary}. Node {node} knows of primary {standing.primary}, and has "
                f"{standing.holds or 'nothing'} there.",
                green,
                standing.row,
            )
            return


def _check_holders(
    log: LogHistory, place: int, paths: dict[ProcessorId, list[_Standing]], terms: Terms, found: Findings
) -> None:
    """When a run becomes green, all voters of its primary have it, or a quorum of the replicas, as the
    replica that orders it goes by. Those that left no trace, or not all of it, may have it."""
    for node in sorted(log.by_place[place]):
        for row in log.by_place[place][node]:
            if not is_green(row) or row.reason != "greened":
                continue
            opening, replicas = log.opening_of(row), log.set_before(row)
            if opening is None:
                continue
            voters = _voters(log, row)
            holders = {other for other in (*log.by_node, *voters) if _may_hold(log, other, paths, row, terms)}
            if opening.corel.awaits == ALL:
                is_enough = set(voters) <= holders
            else:
                everyone = _with_absent(log, holders, replicas)
                is_enough = replicas is None or is_quorum(everyone, replicas, voters)
            if not is_enough:
                found.violated(
                    f"Run {row.message} became green at place {place} at node {node}, and only nodes "
                    f"{', '.join(map(str, sorted(holders)))} had it.",
                    row,
                )
                return


def _with_absent(log: LogHistory, holders: set[ProcessorId], replicas: Row | None) -> set[ProcessorId]:
    members = replicas.members if replicas is not None else ()
    return holders | {who for who in members if who not in log.by_node}


def _voters(log: LogHistory, row: Row) -> tuple[ProcessorId, ...]:
    """Of the primary in which the run became green."""
    known = log.committed.get(row.corel.primary)
    return known.corel.voters if known is not None else ()


def _may_hold(
    log: LogHistory, node: ProcessorId, paths: dict[ProcessorId, list[_Standing]], green: Row, terms: Terms
) -> bool:
    """Whether the node has had the run in this place by then, by one clock, or ever. Its disk may have been
    lost since; that it gives the run up for another is no excuse in `_check_replica`."""
    path = paths.get(node)
    if path is None or log.ring.was_killed(node):
        return True
    return any(
        standing.holds in (green.message, UNKNOWN)
        for standing in path
        if not terms.same_clock or standing.row.at_us <= green.at_us
    )


# corel-green-survives


def green_survives(log: LogHistory, terms: Terms, found: Findings) -> None:
    """A primary component is established with all that became green in earlier ones."""
    established = [row for row in log.primaries if row.reason == ESTABLISHED]
    established.sort(key=attrgetter("corel.primary", "node", "step"))
    shortest = list(accumulate(reversed(established), _shorter))[::-1]
    """From each one on, the one with the fewest green runs."""
    for place in sorted(log.by_place):
        for green in greened(log, place):
            later = bisect_right(established, green.corel.primary, key=attrgetter("corel.primary"))
            if later == len(established) or shortest[later].corel.green_runs > place:
                continue
            row = shortest[later]
            found.violated(
                f"Run {green.message} became green at place {place} at node {green.node}, in primary "
                f"{green.corel.primary}. Node {row.node} has established primary {row.corel.primary} with "
                f"{row.corel.green_runs} green runs.",
                green,
                row,
            )


def _shorter(one: Row, other: Row) -> Row:
    return min(one, other, key=attrgetter("corel.green_runs", "node", "step"))
