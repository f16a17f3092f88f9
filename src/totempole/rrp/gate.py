"""Holds a token back while messages that it follows may still be under way on another network (004 §5 to §7).

Networks keep no order among each other: a token on a fast one overtakes messages on a slow one. Taken at
once, it would have them requested needlessly. A copy of the token on each network proves, when the last one
is here, that what is missing then is lost, for each network keeps its own order. No timer is needed for that,
unless a copy is lost itself.

Deviations: 004's figure 2 passes a token up twice if a copy comes after its timer; here a key says which
token it was. A key is the ring's name and token_seq, which grows at each hop; the figure's `seq` stands still
on an idle ring. The timer follows the skew between copies (004: 10 ms): with nine processors ten milliseconds
at each hop would be longer than the token loss timeout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from totempole.types import NO_PROCESSOR, ProcessorId

WAIT_LEAST_US = 1_000
"""Copies may always be so far apart without a needless retransmission."""

WAIT_SKEWS = 3
SKEW_DECAY = 64


class Waiting(NamedTuple):
    network: int
    token: Any
    data: bytes


class TokenGate:
    """The latest token of this ring, and the copies of it that have come."""

    __slots__ = ("_first_us", "_skew_us", "held", "key", "named", "seen", "sender")

    def __init__(self) -> None:
        self.key: tuple[Any, int] | None = None
        self.sender = NO_PROCESSOR
        self.named = 0
        """The networks that it was sent on, by its own route."""
        self.seen = 0
        """Those on which a copy has come."""
        self.held: Waiting | None = None
        self._first_us = 0
        self._skew_us = 0

    @property
    def lost(self) -> int:
        """The networks that have not brought the latest token."""
        return self.named & ~self.seen

    def begin(self, key: tuple[Any, int], sender: ProcessorId, named: int, network: int, now_us: int) -> None:
        """The first copy of the next token."""
        assert key != self.key, "a token begins once"
        self.key, self.sender, self.named, self.seen = key, sender, named, 1 << network
        self.held = None
        self._first_us = now_us
        self._skew_us -= self._skew_us // SKEW_DECAY

    def copy(self, network: int, now_us: int) -> None:
        bit = 1 << network
        if not self.seen & bit:
            self.seen |= bit
            self._skew_us = max(self._skew_us, now_us - self._first_us)

    def release(self) -> Waiting:
        held, self.held = self.held, None
        assert held is not None, "nothing is held"
        return held

    def wait_us(self, most_us: int) -> int:
        return max(min(WAIT_SKEWS * self._skew_us, most_us), min(WAIT_LEAST_US, most_us))
