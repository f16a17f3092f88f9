"""A barrier has passed all that was green anywhere when it was asked for: reads behind it are linearisable.

A replica counts the barriers that its programs ask for, and lets them pass in this order: a row which says
that so many have passed is for all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import attrgetter

from totempole.checkers.corel_history import LogHistory
from totempole.checkers.terms import Liveness, Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.corel import ASKED, FORGOTTEN, PASSED, PRIMARY
from totempole.trace.schema import Row


def barriers(log: LogHistory, terms: Terms, found: Findings) -> None:
    greens = _Greens(log.of_kind("colour", "log_open", "fetched", "phase")) if terms.same_clock else None
    for asked, passed in _lives(log):
        _check_life(log, asked, passed, greens, found)
    if terms.complete and terms.expectation is not None:
        _check_end(log, terms.expectation, found)


class _Greens:
    """How much was green anywhere, at each instant."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = sorted(rows, key=attrgetter("at_us", "node", "step"))
        self._longest = list(accumulate(self._rows, _longer))

    def before(self, at_us: int) -> Row | None:
        """A row with the most green runs of all that were written before the instant."""
        count = bisect_left(self._rows, at_us, key=attrgetter("at_us"))
        return self._longest[count - 1] if count else None


def _longer(one: Row, other: Row) -> Row:
    return other if other.corel.green_runs > one.corel.green_runs else one


def _lives(log: LogHistory) -> Iterator[tuple[list[Row], list[Row]]]:
    """What each replica has told in each of its lives: barriers that were asked for, and passed."""
    for _, rows in sorted(log.by_node.items()):
        by_life: dict[int, tuple[list[Row], list[Row]]] = {}
        for row in rows:
            if row.kind == "barrier" and row.reason in (ASKED, PASSED):
                by_life.setdefault(row.incarnation, ([], []))[row.reason == PASSED].append(row)
        yield from by_life.values()


def _check_life(
    log: LogHistory, asked: list[Row], passed: list[Row], greens: _Greens | None, found: Findings
) -> None:
    for row in passed:
        _check_passed(log, row, found)
    counts = list(accumulate((row.count for row in passed), max))
    for row in asked:
        at = bisect_left(counts, row.count)
        if at == len(passed):
            continue
        answer = passed[at]
        if answer.step < row.step:
            found.violated(
                f"Node {row.node} has let {answer.count} barriers pass before the last was asked for.",
                answer,
                row,
            )
            continue
        most = greens.before(row.at_us) if greens is not None else None
        longest = row if most is None else _longer(row, most)
        if longest.corel.green_runs > answer.corel.place:
            found.violated(
                f"Barrier {row.count} of node {row.node} has passed at place {answer.corel.place}. When it "
                f"was asked for, node {longest.node} had {longest.corel.green_runs} green runs.",
                *([] if longest is row else [longest]),
                row,
                answer,
            )


def _check_passed(log: LogHistory, row: Row, found: Findings) -> None:
    phase = log.phase_before(row)
    if phase is not None and phase.new_state != PRIMARY:
        found.violated(
            f"Node {row.node} has let a barrier pass while it was {phase.new_state}, not in a primary "
            "component.",
            phase,
            row,
        )
    if row.corel.place > row.corel.green_runs:
        found.violated(
            f"Node {row.node} has let a barrier pass at place {row.corel.place}, with "
            f"{row.corel.green_runs} green runs.",
            row,
        )


def _check_end(log: LogHistory, expectation: Liveness, found: Findings) -> None:
    """Who ends in a primary component has nobody waiting."""
    for node in sorted({node for nodes in expectation.groups for node in nodes}):
        life = log.alive(node)
        if life is None or not log.phases.get(node) or log.phases[node][-1].new_state != PRIMARY:
            continue
        rows = [row for row in log.by_node[node] if row.kind == "barrier"]
        mine = [row for row in rows if row.incarnation == life.incarnation]
        done = max((row.count for row in mine if row.reason in (PASSED, FORGOTTEN)), default=0)
        for row in mine:
            if row.reason == ASKED and row.count > done:
                found.violated(f"Barrier {row.count} of node {node} has never passed.", row)
