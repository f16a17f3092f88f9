"""Delivery in safe order: Totem §3.5, theorem 4.15.

A safe message delivered in configuration C promises that every member of C has it and delivers it too, in
whatever configuration (figure 4.16), unless the member fails before it installs its next regular one.
Leaving is no failure.
"""

from __future__ import annotations

from collections.abc import Iterator

from totempole.checkers.history import History, ran_out_of_time
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life, Stay
from totempole.trace.schema import Row
from totempole.types import ProcessorId


def safe_delivery(history: History, terms: Terms, found: Findings) -> None:
    timed = terms.same_clock and history.facts.receipts
    for row, stay in _first_safe_deliveries(history):
        deliverers = history.delivered[row.message]
        for member in stay.members:
            if member not in deliverers:
                _check_fate(history, terms, row, stay, member, found)
        if timed:
            _check_receipts(history, terms, row, stay, found)


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


def _check_receipts(history: History, terms: Terms, row: Row, stay: Stay, found: Findings) -> None:
    """A receipt by another life of the member is none: what that life had is forgotten."""
    for member in stay.members:
        life = history.life_on(row.ring, member)
        receipt = life.receipts.get(row.ring, {}).get(row.seq) if life is not None else None
        if receipt is not None and receipt.at_us <= row.at_us:
            continue
        if member not in history.by_node:
            found.undecided(f"Node {member} of configuration {stay.name} left no trace.")
            continue
        told = receipt is not None or _tells(history, terms, member, row)
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
    if next_stay is None and life.ended and not _left_in_order(life):
        return
    text = f"Node {row.node} delivered {row.message} as safe in {stay.name}, and its member {member} "
    if next_stay is not None:
        text += f"installed {next_stay.name} without having delivered it."
        found.violated(text, row, next_stay.change)
    elif life.ended:
        found.violated(text + "left without having delivered it.", row, nodes=[row.node, member])
    else:
        found.overdue(terms.complete, text + "never delivered it.", row, nodes=[row.node, member])


def _tells(history: History, terms: Terms, member: ProcessorId, row: Row) -> bool:
    """Whether the trace of its life on the ring reaches as far as the row: that of a killed life may not. A
    life that shows nothing of the ring may be one of those."""
    life = history.life_on(row.ring, member)
    if life is None or life.last is None:
        return terms.complete and not history.was_killed(member)
    if life.cut_short:
        return life.last.at_us >= row.at_us
    return terms.complete or life.last.at_us >= row.at_us


def _left_in_order(life: Life) -> bool:
    """A leave that runs out of time is a failure; any other is not."""
    hurried = bool(life.states) and ran_out_of_time(life.states[-1])
    return life.end == "leave" and not hurried


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
