"""Memory for large messages on their way from clients to the ring: lent first come, first served.

A client asks before it sends, and the daemon has never more of them in memory than the pool holds. Whoever
comes first waits until there is room for him, even if a smaller one behind him would fit: none waits for
ever.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Owner = TypeVar("Owner")


class LargePool(Generic[Owner]):
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        """Lent."""
        self._waiting: deque[tuple[Owner, int]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ask(self, owner: Owner, size: int) -> None:
        """`size` is not above `bytes_max`. `granted` says when it is lent."""
        self._waiting.append((owner, size))

    def granted(self) -> list[Owner]:
        """Those whose turn has come since."""
        owners = []
        while self._waiting and self.bytes + self._waiting[0][1] <= self.bytes_max:
            owner, size = self._waiting.popleft()
            self.bytes += size
            owners.append(owner)
        return owners

    def give_back(self, size: int) -> None:
        self.bytes -= size

    def withdraw(self, owner: Owner) -> None:
        """He does not wait any more."""
        self._waiting = deque(item for item in self._waiting if item[0] is not owner)
