"""Holds a token back while messages that it follows may still be under way on another network (RRP §5 to §7).

Networks keep no order among each other: a token on a fast one overtakes messages on a slow one. Taken at
once, it would have them requested needlessly. A copy of the token on each network proves, when the last one
is here, that what is missing then is lost, for each network keeps its own order. No timer is needed for that,
unless a copy is lost itself.

Deviations: RRP's figure 2 passes a token up twice if a copy comes after its timer; here a key says which
token it was. A key is the ring's name and token_seq, which grows at each hop; the figure's `seq` stands still
on an idle ring. The timer follows the skew between copies (RRP: 10 ms): with nine processors ten milliseconds
at each hop would be longer than the token loss timeout.

A token may go round faster than a slow network carries its copy. So a copy counts as lost only after a while,
and one that comes later than the next token is still known for what it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from totempole.rrp.route import networks_in
from totempole.types import NO_PROCESSOR, ProcessorId

WAIT_LEAST_US = 1_000
"""Copies may always be so far apart without a needless retransmission."""

WAIT_SKEWS = 3
SKEW_DECAY = 64

LATE_LEAST_US = 5_000
"""A copy that is later than that, and than three times the skew, is lost."""

LATE_MOST_US = 10_000
"""A copy of a former token that is later than that is the repetition of a lost one: it tells nothing of the
networks."""

FORMER_MAX = 64
"""Tokens before the latest of which it is known what came where."""

Key = tuple[Any, int]


class Waiting(NamedTuple):
    network: int
    token: Any
    data: bytes


class Former:
    """A token before the latest."""

    __slots__ = ("first_us", "named", "seen", "sender")

    def __init__(self, sender: ProcessorId, named: int, seen: int, first_us: int) -> None:
        self.sender = sender
        self.named = named
        self.seen = seen
        self.first_us = first_us


class Copied(NamedTuple):
    """Whether one network has brought one token."""

    sender: ProcessorId
    network: int
    is_lost: bool


class TokenGate:
    """The latest token of this ring, and the copies of it that have come; and those before it for a while."""

    __slots__ = ("_first_us", "_former", "_open", "_skew_us", "held", "key", "named", "seen", "sender")

    def __init__(self) -> None:
        self._former: OrderedDict[Key, Former] = OrderedDict()
        self._open: list[Former] = []
        """Those of them of which not all is told."""
        self.key: Key | None = None
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

    def begin(self, key: Key, sender: ProcessorId, named: int, network: int, now_us: int) -> None:
        """The first copy of the next token."""
        assert key != self.key, "a token begins once"
        if self.key is not None:
            former = Former(self.sender, self.named, self.seen, self._first_us)
            self._former[self.key] = former
            self._open.append(former)
            if len(self._former) > FORMER_MAX:
                self._former.popitem(last=False)
        self.key, self.sender, self.named, self.seen = key, sender, named, 1 << network
        self.held = None
        self._first_us = now_us
        self._skew_us -= self._skew_us // SKEW_DECAY

    def copy(self, network: int, now_us: int) -> None:
        bit = 1 << network
        if not self.seen & bit:
            self.seen |= bit
            self._skew_us = max(self._skew_us, now_us - self._first_us)

    @property
    def late_us(self) -> int:
        """What is so much later than on the first network is lost."""
        return max(LATE_LEAST_US, WAIT_SKEWS * self._skew_us)

    def late_copy(self, key: Key, network: int, now_us: int) -> None:
        """Of another token than the latest, if it is known."""
        former = self._former.get(key)
        if former is not None and not former.seen >> network & 1:
            former.seen |= 1 << network
            late_us = now_us - former.first_us
            if late_us <= LATE_MOST_US:
                self._skew_us = max(self._skew_us, late_us)

    def settled(self, now_us: int) -> Iterator[Copied]:
        """What is known by now, and was not before, of the tokens before the latest."""
        late_us = self.late_us
        still = []
        for former in self._open:
            lost = former.named & ~former.seen
            if lost and now_us - former.first_us < late_us:
                still.append(former)
                continue
            for network in networks_in(former.named):
                yield Copied(former.sender, network, bool(lost >> network & 1))
        self._open = still

    def forget(self, network: int) -> None:
        """Nothing can come on it any more."""
        self.named &= ~(1 << network)

    def release(self) -> Waiting:
        held, self.held = self.held, None
        assert held is not None, "nothing is held"
        return held

    def wait_us(self, most_us: int) -> int:
        return max(min(WAIT_SKEWS * self._skew_us, most_us), min(WAIT_LEAST_US, most_us))
