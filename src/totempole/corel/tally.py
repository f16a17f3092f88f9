"""Who has acknowledged what in the present primary component (COReL §5.1, Order Rule 1).

Runs are counted as they are delivered in it, so that a number names the same runs at every member. What a
number says of a disk is true wherever and whenever it is heard: acknowledgements need no place in the order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from totempole.types import ProcessorId


class Tally:
    def __init__(self) -> None:
        self.taken = 0
        """Runs delivered in this primary component."""
        self.ordered = 0
        """Those of them that are green."""
        self.acknowledged: dict[ProcessorId, int] = {}
        self.durable = 0
        """Runs that this replica may acknowledge."""
        self.awaited = 0
        """Those of them up to the last that came from another replica, which waits to hear of it."""
        self.told = 0
        """Its last acknowledgement in the order."""
        self.hinted = 0
        """Its last one outside of the order, which may have been lost."""
        self.due = 0
        """What is to be acknowledged when the timer for it runs out, unless it was before."""
        self._frames: deque[tuple[int, int, bool]] = deque()
        """(frames, taken, is its own), until so many frames are durable."""

    def take(self, frames: int, is_own: bool) -> None:
        """A run was delivered; it is in the last of so many frames."""
        self.taken += 1
        self._frames.append((frames, self.taken, is_own))

    def became_durable(self, frames: int) -> None:
        while self._frames and self._frames[0][0] <= frames:
            _, self.durable, is_own = self._frames.popleft()
            if not is_own:
                self.awaited = self.durable

    def acknowledge(self, who: ProcessorId, count: int) -> None:
        assert count <= self.taken, "what is acknowledged was delivered before"
        self.acknowledged[who] = max(count, self.acknowledged.get(who, 0))

    def advance(self, is_enough: Callable[[set[ProcessorId]], bool]) -> int:
        """How many more runs are green now. `is_enough`: whether the disks of these make a run durable."""
        counts = {count for count in self.acknowledged.values() if count > self.ordered}
        for count in sorted(counts, reverse=True):
            if is_enough({who for who, number in self.acknowledged.items() if number >= count}):
                fresh, self.ordered = count - self.ordered, count
                return fresh
        return 0


def may_be_durable(
    most: int,
    answers: Mapping[ProcessorId, int],
    members: Iterable[ProcessorId],
    is_enough: Callable[[set[ProcessorId]], bool],
) -> int:
    """Of so many runs, how many may be on enough disks. `answers`: what the disks of some members have. Those
    of the others may have all."""
    for count in sorted({most, *(each for each in answers.values() if each < most)}, reverse=True):
        if is_enough({who for who in members if answers.get(who, most) >= count}):
            return count
    return 0
