"""Ring numbers (Totem §4.2) and timestamps (Totem §5.1) are on stable storage before they are used.

Otherwise a crash at the wrong moment makes the next life use them again.
"""

from __future__ import annotations

from operator import attrgetter

from totempole.checkers.history import History, transition
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.srp import RECOVERING
from totempole.trace.lives import Life
from totempole.trace.schema import Row


def written_before_used(history: History, terms: Terms, found: Findings) -> None:
    """Not judged where no writes were recorded, below the level `checked`."""
    if any(life.writes for life in history.lives):
        for life in history.lives:
            _check_life(history, life, found)


def _check_life(history: History, life: Life, found: Findings) -> None:
    begun: dict[int, Row] = {}
    ring_seq = bound = 0
    """The highest ring number written, and the lowest timestamp that is not covered."""
    for row in sorted([*life.writes, *_uses(life)], key=attrgetter("step")):
        if row.kind == "persist":
            begun[row.count] = row
        elif row.kind == "persisted":
            write = begun.get(row.count)
            if write is not None:
                ring_seq, bound = max(ring_seq, write.seq), max(bound, write.timestamp)
        elif row.kind == "originate":
            if row.timestamp >= bound:
                found.violated(
                    f"Node {row.node} gave {row.message} timestamp {row.timestamp}, and stable storage "
                    f"covered timestamps below {bound}.",
                    row,
                )
        elif history.ring(row.ring).seq > ring_seq:
            found.violated(
                f"Node {row.node} went on with ring {row.ring}, and the highest number on stable storage was "
                f"{ring_seq}.",
                row,
            )


def _uses(life: Life) -> list[Row]:
    """Where numbers must be on stable storage: the first ring, the Commit token's second visit, messages."""
    first = [stay.change for stay in life.stays[:1]]
    forwarded = [row for row in life.states if transition(row) == RECOVERING]
    sent = [row for stay in life.stays for row in stay.events if row.kind == "originate"]
    return [*first, *forwarded, *sent]
