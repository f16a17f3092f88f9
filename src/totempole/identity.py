"""What a node does when another speaks in its number: the rule that real and simulated hosts share.

A node that has just started gives way: the other was there before it. One that has run for a while stays. If
the other's life is the later one, the rest of the ring takes the node for a ghost, so it begins a life above
that. Two that have both run for long would outlive each other for ever: one that has begun several lives
within a minute gives way.

Whoever has spoken never gives way to an earlier life: the others have heard the later one, and would refuse
the earlier for ever. It stays, so that the other hears of it, and gives way or outlives it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

PROBATION_US = 5_000_000
"""So long after its start a node that meets its own number gives way; later it only complains."""
LIVES_MAX, LIVES_US = 3, 60_000_000
"""A node that has begun so many new lives within so long gives way."""
LEAP_MAX = 1_000
"""How far a new life's number may be above the other's: two that begin one at once must not share it."""


class Answer(Enum):
    STAY = "stay"
    GIVE_WAY = "give way"
    OUTLIVE = "begin a new life"


class Identity:
    """One run of a node, from its start to its end. It may have several lives."""

    __slots__ = ("_new_lives_us", "_probation_us")

    def __init__(self, probation_us: int = PROBATION_US) -> None:
        self._probation_us = probation_us
        self._new_lives_us: deque[int] = deque(maxlen=LIVES_MAX)
        """When the latest new lives began."""

    def meet(self, other: int, own: int, now_us: int, age_us: int, has_spoken: bool) -> Answer:
        """Another speaks in this number, in incarnation `other`; this node's is `own`."""
        outlived = other >= own
        if has_spoken and not outlived:
            return Answer.STAY
        if age_us < self._probation_us or self._has_spent_its_lives(now_us):
            return Answer.GIVE_WAY
        return Answer.OUTLIVE if outlived else Answer.STAY

    def begin_life(self, now_us: int) -> None:
        self._new_lives_us.append(now_us)

    def _has_spent_its_lives(self, now_us: int) -> bool:
        lives = self._new_lives_us
        return len(lives) == LIVES_MAX and now_us - lives[0] < LIVES_US
