"""No change without a cause, and no long time without a ring (Totem §3.4, theorem 4.3), during the whole run.

The caller knows when nothing went wrong: `Terms.calm`. From some time after the beginning of such a stretch
to its end every processor that is up is in Operational, and nothing changes.
"""

from __future__ import annotations

from totempole.checkers.history import History, transition
from totempole.checkers.terms import Calm, Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life
from totempole.trace.schema import Row

RING_STATE = "operational"


def steady_rings(history: History, terms: Terms, found: Findings) -> None:
    blamed = [row.at_us for row in history.blames]
    for calm in terms.calm:
        # Overload is no fault that was injected, and yet it explains that somebody is expelled.
        if not any(calm.from_us <= at_us <= calm.to_us for at_us in blamed):
            for life in history.lives:
                _check_life(life, calm, found)


def _check_life(life: Life, calm: Calm, found: Findings) -> None:
    state: Row | None = None
    for row in life.states:
        if row.at_us <= calm.settled_us:
            state = row
        elif row.at_us <= calm.to_us:
            found.violated(
                f"Node {life.node} went from {' to '.join(transition(row))} at {row.at_us} us, and "
                f"nothing had gone wrong since {calm.from_us} us.",
                row,
            )
    if state is not None and _is_up(life, calm) and state.new_state != RING_STATE:
        found.violated(
            f"Node {life.node} had no ring at {calm.settled_us} us, and nothing had gone wrong since "
            f"{calm.from_us} us.",
            state,
        )


def _is_up(life: Life, calm: Calm) -> bool:
    return not life.end or (life.last is not None and life.last.at_us > calm.settled_us)
