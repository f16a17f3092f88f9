"""Once the faults stop, the connected come together and all is delivered (Totem theorems 4.3, 4.7, 4.8)."""

from __future__ import annotations

from collections.abc import Iterable

from totempole.checkers.history import History
from totempole.checkers.reliable import undelivered
from totempole.checkers.terms import Liveness, Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life, Stay
from totempole.types import ProcessorId


def liveness(history: History, terms: Terms, found: Findings) -> None:
    if terms.expectation is None or not terms.complete:
        found.undecided("A complete run and an expectation are needed to tell.")
        return
    for group in terms.expectation.groups:
        for node in history.absent(sorted(group)):
            found.undecided(f"Node {node} left no trace.")
        if not history.absent(group):
            _check_group(history, terms.expectation, sorted(group), found)


def _check_group(history: History, expected: Liveness, group: list[ProcessorId], found: Findings) -> None:
    alive = [life for node in group if (life := history.current(node)) is not None]
    members = tuple(life.node for life in alive)
    final = [_final_stay(expected, life, members, found) for life in alive]
    common = {stay.name: stay for stay in final if stay is not None}
    if len(common) > 1:
        found.violated(
            f"The connected nodes {_listed(members)} ended in different configurations, "
            f"{_listed(sorted(common))}.",
            *(stay.change for stay in common.values()),
            nodes=members,
        )
    for life, stay in zip(alive, final, strict=True):
        _check_submissions(history, life, found)
        if stay is not None:
            _check_deliveries(history, life, stay, found)


def _final_stay(
    expected: Liveness, life: Life, members: tuple[ProcessorId, ...], found: Findings
) -> Stay | None:
    """The last stay of the life, if it is the one hoped for."""
    if not life.stays:
        found.violated(f"Node {life.node} never installed a configuration.", nodes=[life.node])
        return None
    stay = life.stays[-1]
    if not stay.regular or stay.members != members:
        found.violated(
            f"Node {life.node} ended in the {stay.change.configuration_kind} configuration {stay.name} of "
            f"{_listed(stay.members)} and not with exactly the connected nodes {_listed(members)}.",
            stay.change,
        )
        return None
    late_us = stay.change.at_us - expected.at_us - expected.bound_us
    if late_us > 0:
        found.violated(
            f"Node {life.node} installed its final configuration {stay.name} {late_us} us later than the "
            f"bound of {expected.bound_us} us after the faults stopped.",
            stay.change,
        )
    return stay


def _check_submissions(history: History, life: Life, found: Findings) -> None:
    for row in life.submissions:
        if row.message and row.node not in history.delivered.get(row.message, ()):
            found.violated(f"Node {row.node} never delivered {row.message}, which was submitted to it.", row)


def _check_deliveries(history: History, life: Life, stay: Stay, found: Findings) -> None:
    for row in undelivered(history, life, stay):
        found.violated(
            f"Node {life.node} never delivered {row.message} of its final configuration {stay.name}.",
            row,
            nodes=[life.node],
        )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
