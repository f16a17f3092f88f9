"""Timestamps that never run backwards, crashes included (000 §5.1).

Stable storage holds a value S such that no timestamp at or above S + timestamp_interval has been used. Before
a token visit could reach that, the token waits for a new S; after a restart the clock begins at the old
bound.
"""

from __future__ import annotations


class TimestampClock:
    """my_timestamp and my_stable_timestamp."""

    __slots__ = ("_interval", "now", "stable")

    def __init__(self, stored: int, interval: int) -> None:
        self._interval = interval
        self.stable = stored + interval
        """To be on stable storage before the first timestamp is used."""
        self.now = self.stable

    def witness(self, timestamp: int) -> None:
        if timestamp > self.now:
            self.now = timestamp

    def next(self) -> int:
        self.now += 1
        return self.now

    def outruns_storage(self, witnessed: int, steps: int) -> bool:
        """Whether this many steps from here would reach what stable storage does not cover."""
        return max(self.now, witnessed) + steps >= self.stable + self._interval
