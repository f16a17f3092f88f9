"""Timestamps that never run backwards, crashes included (Totem §5.1).

Stable storage holds a value S such that no timestamp at or above S + timestamp_interval has been used. A
token visit that could reach that waits for a new S; after a restart the clock begins at the old bound.

Deviation: the next S is written when half the interval is used up, and the token waits only when the write is
not done by the end of it. Otherwise all members of a busy ring reach the bound in the same rotation, and the
token waits for their disks one after the other.
"""

from __future__ import annotations


class TimestampClock:
    """my_timestamp and my_stable_timestamp."""

    __slots__ = ("_interval", "_stable", "now", "to_store")

    def __init__(self, stored: int, interval: int) -> None:
        self._interval = interval
        self._stable = stored + interval
        self.to_store = self._stable
        """What stable storage should hold. At start, it does before the first timestamp is used."""
        self.now = self._stable

    def witness(self, timestamp: int) -> None:
        if timestamp > self.now:
            self.now = timestamp

    def next(self) -> int:
        self.now += 1
        return self.now

    @property
    def writing(self) -> bool:
        return self.to_store != self._stable

    def runs_low(self, steps: int) -> bool:
        """Whether it is time to write, if this many steps are taken before the next chance.

        A write that is under way is waited for, unless a leap has taken the clock past what it will cover.
        """
        covered = self.to_store + (self._interval if self.writing else self._interval // 2)
        return self.now + steps >= covered

    def outruns_storage(self, steps: int) -> bool:
        """Whether this many steps from here would reach what stable storage does not cover."""
        return self.now + steps >= self._stable + self._interval

    def begin_write(self) -> None:
        assert self.now >= self.to_store, "the clock is below what was written before"
        self.to_store = self.now

    def written(self) -> None:
        """The latest write is done."""
        assert self.to_store >= self._stable, "the bound of the timestamps falls"
        self._stable = self.to_store
