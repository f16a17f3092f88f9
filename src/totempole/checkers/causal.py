"""Delivery in causal order: Totem §3.5, theorems 4.11 and 4.12.

Only direct predecessors are compared; the transitive closure follows by induction. A message's direct
predecessors on its ring are what its originator had delivered or originated there before. Let `high` be the
highest of them: a deliverer that has, before the message, all of the ring's messages up to `high` has them
all, which one number per delivery shows. Only behind a gap are predecessors looked up one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life, Stay
from totempole.trace.schema import Row
from totempole.types import RingId


class _Origination(NamedTuple):
    row: Row
    high: int
    """The highest sequence number among the direct predecessors."""
    past: dict[int, int]
    """The originator's steps on this ring: sequence number to the first delivery or origination."""


def causal_order(history: History, terms: Terms, found: Findings) -> None:
    for lives in history.by_node.values():
        _check_identifiers(history, lives, found)
    originations = _originations_by_ring(history)
    for life in history.lives:
        for stay in life.stays:
            if stay.regular and stay.name in history.slots:
                deliveries = _on_ring(life, stay)
                _check_predecessors(history, stay, deliveries, originations.get(stay.name, {}), found)


def _check_identifiers(history: History, lives: list[Life], found: Findings) -> None:
    """Theorem 4.11: what a node originates sorts after all it ever delivered or originated, in any life."""
    high: tuple[RingId, int] = (RingId(-1, -1), -1)
    highest: Row | None = None
    for life in lives:
        for stay in life.stays:
            for row in stay.events:
                key = (history.ring(row.ring), row.seq)
                if key > high:
                    high, highest = key, row
                elif row.kind == "originate" and highest is not None:
                    found.violated(
                        f"Node {row.node} originated {row.message} at {row.seq} of {row.ring} after "
                        f"{highest.message}, which has the higher place {highest.seq} of {highest.ring}.",
                        highest,
                        row,
                    )


def _originations_by_ring(history: History) -> dict[str, dict[int, _Origination]]:
    rings: dict[str, dict[int, _Origination]] = {}
    for life in history.lives:
        for stay in life.stays:
            if stay.regular and len(stay.events) > len(stay.deliveries):
                _note_originations(stay, rings.setdefault(stay.name, {}))
    return rings


def _note_originations(stay: Stay, originations: dict[int, _Origination]) -> None:
    high = 0
    past: dict[int, int] = {}
    for row in stay.events:
        if row.ring != stay.name:
            continue
        seq = row.seq
        if row.kind == "originate":
            originations.setdefault(seq, _Origination(row, high, past))
        past.setdefault(seq, row.step)
        if seq > high:
            high = seq


def _on_ring(life: Life, stay: Stay) -> Iterator[Row]:
    """The deliveries of a ring's messages, in its regular configuration and in the transitional one after."""
    following = life.transitional_after(stay)
    for part in (stay, following):
        if part is not None:
            yield from (row for row in part.deliveries if row.ring == stay.name)


def _check_predecessors(
    history: History,
    stay: Stay,
    deliveries: Iterator[Row],
    originations: dict[int, _Origination],
    found: Findings,
) -> None:
    numbers = history.numbers(stay.name)
    delivered: set[int] = set()
    complete = 0  # how many of the ring's first messages have all been delivered
    for row in deliveries:
        source = originations.get(row.seq)
        if source is None:
            _check_absent_originator(history, row, found)
        elif source.high and (not complete or numbers[complete - 1] < source.high):
            for seq in numbers[complete : bisect_right(numbers, source.high)]:
                if source.past.get(seq, source.row.step) < source.row.step and seq not in delivered:
                    _report(history, seq, source.row, row, found)
        delivered.add(row.seq)
        while complete < len(numbers) and numbers[complete] in delivered:
            complete += 1


def _check_absent_originator(history: History, row: Row, found: Findings) -> None:
    if row.origin not in history.by_node:
        found.undecided(f"Node {row.origin}, the originator of {row.message}, left no trace.")


def _report(history: History, seq: int, source: Row, row: Row, found: Findings) -> None:
    before = history.slots[source.ring][seq]
    found.violated(
        f"Node {row.node} delivered {row.message} without having delivered {before.message}, which node "
        f"{source.node} had delivered or originated before it originated {row.message}.",
        row,
        before,
        source,
        nodes=[row.node],
    )
