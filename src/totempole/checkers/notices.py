"""What a processor says of others is true: that they have received messages, and that they have not.

`safe` rows tell that every member has all messages up to a place (Totem §4.1). `blame` rows tell who is
expelled because it holds up the aru (Totem §4.1, failure to receive; docs/decisions/0008-laggards.md).
"""

from __future__ import annotations

from bisect import bisect_right

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life
from totempole.trace.schema import Row
from totempole.types import ProcessorId

NEVER_US = 2**62
CLOCK_PART = 50
"""Clocks that run this part faster or slower are not taken for a wrong word."""


def safe_notices(history: History, terms: Terms, found: Findings) -> None:
    """Everything up to the place has been received by every member, in the life that is on the ring."""
    if not history.facts.receipts:
        return
    complete: dict[tuple[str, ProcessorId], list[int]] = {}
    for _, row in history.safe_notices:
        ring = history.configurations.get(row.ring)
        if ring is None:
            found.violated(f"Node {row.node} told what is safe on {row.ring}, which nobody installed.", row)
            continue
        count = bisect_right(history.numbers(row.ring), row.seq)
        for member in ring.members if count else ():
            since = complete.get((row.ring, member))
            if since is None:
                since = complete[row.ring, member] = _complete_since(history, row.ring, member)
            if since[count - 1] > (row.at_us if terms.same_clock else NEVER_US - 1):
                _check_notice(history, terms, row, member, found)


def _complete_since(history: History, ring: str, member: ProcessorId) -> list[int]:
    """For each of the ring's messages, when the member had it and all before it."""
    life = history.life_on(ring, member)
    receipts = life.receipts.get(ring, {}) if life is not None else {}
    since, latest = [], 0
    for seq in history.numbers(ring):
        receipt = receipts.get(seq)
        latest = max(latest, receipt.at_us if receipt is not None else NEVER_US)
        since.append(latest)
    return since


def _check_notice(history: History, terms: Terms, row: Row, member: ProcessorId, found: Findings) -> None:
    """Names the first message that the member had not received."""
    if member not in history.by_node:
        found.undecided(f"Node {member} of ring {row.ring} left no trace.")
        return
    life = history.life_on(row.ring, member)
    receipts = life.receipts.get(row.ring, {}) if life is not None else {}
    limit_us = row.at_us if terms.same_clock else NEVER_US - 1
    for seq in history.numbers(row.ring):
        receipt = receipts.get(seq)
        if receipt is None or receipt.at_us > limit_us:
            break
    missed = history.slots[row.ring][seq]
    found.overdue(
        receipt is not None or _goes_on(history, terms, life, row),
        f"Node {row.node} said that all up to {row.seq} of {row.ring} is everywhere when member {member} had "
        f"not received {missed.message} at {seq}.",
        row,
        missed,
        nodes=[row.node, member],
    )


def _goes_on(history: History, terms: Terms, life: Life | None, row: Row) -> bool:
    """Whether the life's trace reaches as far as the row: that of a killed life may not."""
    if life is None or life.last is None or life.cut_short:
        return False
    return terms.complete or (terms.same_clock and life.last.at_us >= row.at_us)


def justified_expulsion(history: History, terms: Terms, found: Findings) -> None:
    """The one that is blamed lacked the message after the aru when the token last left the blamer; or it
    has left. One that leaves acknowledges nothing more, so it looks like a laggard until the others know."""
    for row in history.blames:
        life = history.life_on(row.ring, row.origin)
        if row.origin == row.node or (life is None and row.origin in history.by_node and terms.complete):
            found.violated(
                f"Node {row.node} blamed node {row.origin} on ring {row.ring}, where it is no other member.",
                row,
                nodes=[row.node, row.origin],
            )
        elif life is not None and terms.same_clock:
            _check_blame(life, row, found)


def _check_blame(life: Life, row: Row, found: Findings) -> None:
    receipt = life.receipts.get(row.ring, {}).get(row.seq + 1)
    if life.end == "leave" and life.last is not None and life.last.at_us <= row.at_us:
        return
    if receipt is not None and receipt.at_us < row.at_us - row.count - row.count // CLOCK_PART:
        found.violated(
            f"Node {row.node} blamed node {row.origin} ({row.reason}) for the message after {row.seq} of "
            f"{row.ring}, which it had received before.",
            row,
            receipt,
        )
