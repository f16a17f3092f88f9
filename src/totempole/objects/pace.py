"""When a host takes a snapshot of its object. No I/O, no clock: the same commands give the same moments.

A snapshot is due when the commands since the last one have as many bytes as that snapshot had, and never
before `LEAST_BYTES`. So all snapshots together cost about as much as the commands themselves, however large
the state is; as it grows they come at 1, 2, 4, 8 times the bytes. A host that starts reads commands of about
the size of the state, at most.
"""

from __future__ import annotations

from bisect import bisect_right
from zlib import crc32

LEAST_BYTES = 16 * 1024 * 1024
"""A small state costs as much as several megabytes of commands: connections, threads, syncs, a hold in the
log. A host that starts reads so much in less than a second."""
RECORD_BYTES = 64
"""What a record costs beside its bytes."""
FAILURES_MAX = 6
"""After so many failures in a row the distance, which doubles with each, does not grow any more."""
MARKS_MAX = 128
STAGGER_PART = 0.5


def stagger_of(object_name: str, processor: int) -> float:
    """From 0 to 1: so that the hosts of an object do not all take theirs at the same record."""
    return crc32(f"{object_name}@{processor}".encode()) % 1024 / 1023


class Pace:
    def __init__(
        self,
        least_bytes: int = LEAST_BYTES,
        *,
        part: float = 1.0,
        stagger: float = 0.0,
        position: int = 0,
        size: int = 0,
    ) -> None:
        """`part`: bytes of commands per byte of the last snapshot. `position` and `size`: of the snapshot
        that the host has begun with."""
        self._least = max(1, int(least_bytes * (1 + STAGGER_PART * stagger)))
        self._part = part * (1 + STAGGER_PART * stagger)
        self._size = size
        self._total = 0
        self._last_total = 0
        self._failures = 0
        self._position = position
        self._positions = [position]
        self._totals = [0]
        """What was applied before some positions since the last snapshot: about evenly spread."""
        self._step = self._first_step = max(1, self._least // 16)

    @property
    def since_bytes(self) -> int:
        """What was applied since the last snapshot."""
        return self._total - self._last_total

    @property
    def distance_bytes(self) -> int:
        return max(self._least, int(self._part * self._size)) << self._failures

    @property
    def is_due(self) -> bool:
        return self._total - self._last_total >= self.distance_bytes

    def applied(self, position: int, size: int, records: int = 1) -> None:
        """Commands were applied; `position` is behind them."""
        self._position = position
        self._total += size + RECORD_BYTES * records
        if self._total - self._totals[-1] >= self._step:
            self.mark()

    def mark(self) -> None:
        """A snapshot may be taken here: the position is remembered exactly."""
        if self._position > self._positions[-1]:
            self._positions.append(self._position)
            self._totals.append(self._total)
        if len(self._totals) > MARKS_MAX:
            del self._positions[1:-1:2], self._totals[1:-1:2]
            self._step *= 2

    def stored(self, position: int, size: int) -> None:
        """There is a snapshot: this host's own, or one that another program has put beside it."""
        known = bisect_right(self._positions, position) - 1
        if known >= 0:
            self._last_total = max(self._last_total, self._totals[known])
            del self._positions[:known], self._totals[:known]
            self._step = self._first_step
        self._size = size
        self._failures = 0

    def skipped(self) -> None:
        """Another program takes them."""
        self._last_total = self._total

    def failed(self) -> None:
        self._last_total = self._total
        self._failures = min(self._failures + 1, FAILURES_MAX)
