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

Under load a slow network falls behind a fast one, further with each token. Tokens then wait for it as long as
the ring bears, so that the ring is no faster than that network. A network that brings no messages either, or
none of the latest `BEHIND_MOST` tokens, may be dead: they wait no longer for it than for any lost copy.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from totempole.rrp.config import NETWORKS_MAX
from totempole.rrp.route import networks_in
from totempole.types import NO_PROCESSOR, ProcessorId

WAIT_LEAST_US = 1_000
"""Copies may always be so far apart without a needless retransmission."""

WAIT_SKEWS = 3
SKEW_DECAY = 64

BEHIND_MOST = 4
"""A network that lags, and is not dead, is fewer tokens behind than this, also when load begins."""

LATE_LEAST_US = 5_000
"""A copy that is later than that, than `BEHIND_MOST` tokens, and than three times the skew, is lost."""

SKEW_MOST_US = 10_000
SKEW_MOST_TOKENS = 2
"""A copy that comes later than that, and than so many further tokens, teaches no larger skew: it may be the
repetition of a lost one. And the larger the skew, the later it is known that a network is dead."""

FORMER_MAX = 64
"""Tokens before the latest of which it is known what came where."""

Key = tuple[Any, int]


class Waiting(NamedTuple):
    network: int
    token: Any
    data: bytes


class Former:
    """A token before the latest."""

    __slots__ = ("first_us", "named", "number", "seen", "sender")

    def __init__(self, number: int, sender: ProcessorId, named: int, seen: int, first_us: int) -> None:
        self.number = number
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

    __slots__ = (
        "_alive",
        "_began_us",
        "_brought",
        "_former",
        "_number",
        "_open",
        "_skew_us",
        "held",
        "key",
        "named",
        "seen",
        "sender",
    )

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
        self._alive = 0
        self._number = 0
        """How many tokens have begun."""
        self._brought = [0] * NETWORKS_MAX
        """The number of the latest token that each network has brought."""
        self._began_us = deque([0], BEHIND_MOST + 1)
        """When the latest tokens began."""
        self._skew_us = 0

    @property
    def lost(self) -> int:
        """The networks that have not brought the latest token."""
        return self.named & ~self.seen

    def begin(
        self, key: Key, sender: ProcessorId, named: int, network: int, now_us: int, alive: int = 0
    ) -> None:
        """The first copy of the next token. `alive`: the networks that have brought messages lately."""
        assert key != self.key, "a token begins once"
        if self.key is not None:
            former = Former(self._number, self.sender, self.named, self.seen, self._began_us[-1])
            self._former[self.key] = former
            self._open.append(former)
            if len(self._former) > FORMER_MAX:
                self._former.popitem(last=False)
        self.key, self.sender, self.named, self.seen = key, sender, named, 1 << network
        self.held = None
        self._alive = alive
        self._number += 1
        self._brought[network] = self._number
        self._began_us.append(now_us)
        self._skew_us -= self._skew_us // SKEW_DECAY

    def copy(self, network: int, now_us: int) -> None:
        bit = 1 << network
        if not self.seen & bit:
            self.seen |= bit
            self._learn(network, self._number, now_us - self._began_us[-1])

    @property
    def late_us(self) -> int:
        """What is so much later than on the first network is lost."""
        return max(LATE_LEAST_US, self._lasted_us(BEHIND_MOST), WAIT_SKEWS * self._skew_us)

    def late_copy(self, key: Key, network: int, now_us: int) -> None:
        """Of another token than the latest, if it is known."""
        former = self._former.get(key)
        if former is not None and not former.seen >> network & 1:
            former.seen |= 1 << network
            self._learn(network, former.number, now_us - former.first_us)

    def _learn(self, network: int, number: int, late_us: int) -> None:
        """A network has brought a token so much later than the first one did."""
        self._brought[network] = max(self._brought[network], number)
        most_us = max(SKEW_MOST_US, self._lasted_us(SKEW_MOST_TOKENS))
        self._skew_us = max(self._skew_us, min(late_us, most_us))

    def _lasted_us(self, tokens: int) -> int:
        """How long the latest `tokens` tokens took; 0 if there were fewer."""
        return self._began_us[-1] - self._began_us[-1 - tokens] if self._number > tokens else 0

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

    @property
    def is_behind(self) -> bool:
        """Whether a network that is alive has brought neither the latest token nor the one before."""
        before = self._number - 1
        behind = [before - self._brought[network] for network in networks_in(self.lost & self._alive)]
        return 0 < max(behind, default=0) < BEHIND_MOST

    def wait_us(self, most_us: int) -> int:
        """How long the latest token waits for what has not come."""
        if self.is_behind:
            return most_us
        return max(min(WAIT_SKEWS * self._skew_us, most_us), min(WAIT_LEAST_US, most_us))
