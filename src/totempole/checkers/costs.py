"""What changes of configuration cost in a run: figures for its report, and the one bound that always holds.

Totem theorem 4.3: from one installed ring to the next my_proc_set and my_fail_set only grow, so that n
processors make at most 2n - 1 different proposals. Each is tried twice at most (figure 4.7). How long that
takes depends on the timeouts, the disks and the faults: it is measured, and bounded only where nothing is
wrong (`steady`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from totempole.checkers.history import History, transition
from totempole.trace.lives import Life
from totempole.trace.schema import Row

ATTEMPTS_OF_A_PROPOSAL = 2


@dataclass(frozen=True, slots=True)
class Costs:
    configurations: int
    """Regular configurations at the processor that installed most."""
    without_ring_us: int
    """The longest time from leaving Operational to coming back to it."""
    attempts: int
    """The most rings that one processor tried to form from one installed ring to the next."""
    attempts_max: int
    """The bound on that."""
    retransmissions: int
    """Packets sent again; known at the level `protocol` only."""


def costs_of(rows: Iterable[Row]) -> Costs:
    rows = list(rows)
    history = History(rows)
    installed = Counter(life.node for life in history.lives for stay in life.stays if stay.regular)
    proposals = 2 * len(history.by_node) - 1
    return Costs(
        configurations=max(installed.values(), default=0),
        without_ring_us=max((_longest_without(life) for life in history.lives), default=0),
        attempts=max((_most_attempts(life) for life in history.lives), default=0),
        attempts_max=ATTEMPTS_OF_A_PROPOSAL * proposals,
        retransmissions=sum(row.kind == "retransmit" for row in rows),
    )


def _longest_without(life: Life) -> int:
    longest, since_us = 0, None
    for row in life.states:
        old, new = transition(row)
        if old == "operational":
            since_us = row.at_us
        if new == "operational" and since_us is not None:
            longest, since_us = max(longest, row.at_us - since_us), None
    return longest


def _most_attempts(life: Life) -> int:
    most = attempts = 0
    for row in life.states:
        new = row.new_state
        if new == "commit":
            attempts += 1
            most = max(most, attempts)
        elif new == "operational":
            attempts = 0
    return most
