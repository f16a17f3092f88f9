"""Delivery in safe order: 000 §3.5, theorem 4.15.

A safe message delivered in configuration C promises that every member of C has it and delivers it too, in
whatever configuration (figure 4.16), unless the member fails before it installs its next regular one.
"""

from __future__ import annotations

from collections.abc import Iterator

from totempole.checkers.history import History, Life, Stay
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row
from totempole.types import ProcessorId


def safe_delivery(history: History, terms: Terms, found: Findings) -> None:
    received = _receipts(history) if terms.same_clock else {}
    for row, stay in _first_safe_deliveries(history):
        deliverers = history.delivered[row.message]
        for member in stay.members:
            if member not in deliverers:
                _check_fate(history, terms, row, stay, member, found)
        if received:
            _check_receipts(history, terms, row, stay, received.get(row.message, {}), found)


def _first_safe_deliveries(history: History) -> Iterator[tuple[Row, Stay]]:
    """For each safe message and each configuration that it was delivered in, the earliest delivery."""
    first: dict[tuple[str, str], tuple[Row, Stay]] = {}
    for life in history.lives:
        for stay in life.stays:
            for row in stay.deliveries:
                if row.service == "safe":
                    key = (row.message, stay.name)
                    known = first.get(key)
                    if known is None or row.at_us < known[0].at_us:
                        first[key] = (row, stay)
    yield from first.values()


def _receipts(history: History) -> dict[str, dict[ProcessorId, Row]]:
    """Who had which message, and since when. Empty when the trace is not at protocol level."""
    receipts: dict[str, dict[ProcessorId, Row]] = {}
    if history.receives:
        for rows in (history.originations, history.receives):
            for row in rows:
                receipts.setdefault(row.message, {}).setdefault(row.node, row)
    return receipts


def _check_receipts(
    history: History,
    terms: Terms,
    row: Row,
    stay: Stay,
    holders: dict[ProcessorId, Row],
    found: Findings,
) -> None:
    for member in stay.members:
        receipt = holders.get(member)
        if receipt is not None and receipt.at_us <= row.at_us:
            continue
        if member not in history.by_node:
            found.undecided(f"Node {member} of configuration {stay.name} left no trace.")
            continue
        told = terms.complete or receipt is not None or history.last_at.get(member, -1) >= row.at_us
        found.overdue(
            told,
            f"Node {row.node} delivered {row.message} as safe in {stay.name} when its member {member} had "
            "not received it.",
            row,
            *([receipt] if receipt is not None else []),
            nodes=[row.node, member],
        )


def _check_fate(
    history: History, terms: Terms, row: Row, stay: Stay, member: ProcessorId, found: Findings
) -> None:
    life, place = _life_on_ring(history, row.ring, member)
    if life is None:
        found.undecided(f"Nothing is known of node {member} on ring {row.ring}.")
        return
    next_stay = life.left_for_good(place)
    if next_stay is None and life.ended:
        return
    text = f"Node {row.node} delivered {row.message} as safe in {stay.name}, and its member {member} "
    if next_stay is not None:
        text += f"installed {next_stay.name} without having delivered it."
        found.violated(text, row, next_stay.change)
    else:
        found.overdue(terms.complete, text + "never delivered it.", row, nodes=[row.node, member])


def _life_on_ring(history: History, ring: str, member: ProcessorId) -> tuple[Life | None, int]:
    """The member's life that was to be on the ring, and its last stay on or before it.

    Identifiers only grow, over restarts too, so it is the last life that began below the ring's.
    """
    installed = history.installers.get(ring, {}).get(member)
    if installed is not None:
        return installed[0], installed[1].place
    limit = history.ring(ring)
    for life in reversed(history.by_node.get(member, [])):
        below = [stay.place for stay in life.stays if stay.id < limit]
        if below:
            return life, below[-1]
    return None, 0
