"""What one process has sent and the ring has not taken yet, and so what it may send.

The client is told a credit that only grows: its SENDs and STATEs may have cost so much altogether
(`session.cost_of`). It grows as the group layer hands what the process sent to the ring (`Taken`). Requests
to join and leave are not counted by the client, but they wait in the same lane: credit grows later for them,
and the client is not listened to while too much waits (`overloaded`).
"""

from __future__ import annotations

from collections import deque

from totempole.groups.body import RUN_BYTES, TRANSFER_BYTES
from totempole.groups.packing import pack_names
from totempole.session import SEND_OVERHEAD


def request_weight(group: str) -> int:
    """What a join or a leave weighs in the group layer."""
    return RUN_BYTES + len(pack_names((group,)))


def send_weight(groups: tuple[str, ...], size: int) -> int:
    return RUN_BYTES + len(pack_names(groups)) + size


def state_weight(group: str, size: int) -> int:
    return RUN_BYTES + len(pack_names((group,))) + TRANSFER_BYTES + size


class Account:
    __slots__ = ("_larges", "_waiting", "credit_bytes", "spent", "told")

    def __init__(self, credit_bytes: int) -> None:
        self.credit_bytes = credit_bytes
        self.told = credit_bytes
        """The credit that the client knows of."""
        self.spent = 0
        self._waiting = 0
        self._larges: deque[tuple[int, int]] = deque()
        """Weight, and what the pool lent for it, of large messages that wait."""

    def spend(self, cost: int) -> bool:
        """Whether the client had it."""
        self.spent += cost
        return self.spent <= self.told

    def add(self, weight: int) -> None:
        """Given to the group layer."""
        self._waiting += weight + SEND_OVERHEAD

    def add_large(self, weight: int, lent: int) -> None:
        self._larges.append((weight, lent))

    def taken(self, weight: int) -> int:
        """The ring has it. What the pool gets back."""
        if self._larges and self._larges[0][0] == weight:
            return self._larges.popleft()[1]
        self._waiting = max(0, self._waiting - weight - SEND_OVERHEAD)
        return 0

    def drop_large(self) -> int:
        """The last one was not accepted. What the pool gets back."""
        return self._larges.pop()[1]

    def drop_larges(self) -> int:
        """Nobody will take them. What the pool gets back."""
        lent = sum(lent for _, lent in self._larges)
        self._larges.clear()
        return lent

    @property
    def lends(self) -> bool:
        """Whether large messages still wait."""
        return bool(self._larges)

    @property
    def overloaded(self) -> bool:
        return self._waiting > 2 * self.credit_bytes

    def news(self, in_passing: bool = False) -> int | None:
        """The credit to tell the client, if there is more and it may soon need to know, or, in passing,
        because something is written to it anyway."""
        credit = self.spent + self.credit_bytes - self._waiting
        if credit <= self.told or not (in_passing or self.told - self.spent <= self.credit_bytes * 3 // 4):
            return None
        self.told = credit
        return credit
