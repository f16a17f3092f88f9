"""One ring as one of its members sees it: the state of the total ordering algorithm (Totem §4.1).

A processor that changes rings has two of these at once: the installed one, whose messages it still owes to
the application, and the one being formed. They never share a buffer, so recovery cannot mix them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from totempole.srp.config import RingConfig
from totempole.srp.flow import FlowControl
from totempole.srp.layout import RANGES_PER_REQUEST_MAX
from totempole.srp.packets import RegularMessage, RetransmissionRequest
from totempole.types import NO_PROCESSOR, ByteRange, ProcessorId, RingId, Service

KEPT_UP_VISITS = 2
"""At so many visits in succession one must keep up with the others, to lag no longer."""

NOTORIOUS_PARTS = 4
"""One that lags for this part of the allowed time is known for it, if another member expels it."""

VAIN_ANSWERS_MAX = 16
"""Answers in succession that did not help, before a processor leaves requests to others first. On a
dead link that is soon. Where half of the packets are lost, chance does it once in 65,000."""

NO_LIMIT = 2**64

Holes = Callable[[RingId, int], tuple[ByteRange, ...]]
"""Which byte ranges of a packet are missing, when part of it is here; nothing when all of it is missing."""


class Held(NamedTuple):
    """A message and its bytes as its originator encoded them, which is what a retransmission sends."""

    message: RegularMessage
    data: bytes


def predecessor_of(me: ProcessorId, members: tuple[ProcessorId, ...]) -> ProcessorId:
    """Who passes the token to `me`, on a ring of these members in the token's order."""
    return members[members.index(me) - 1]


def successor_of(member: ProcessorId, members: tuple[ProcessorId, ...]) -> ProcessorId:
    """To whom `member` passes the token."""
    return members[(members.index(member) + 1) % len(members)]


class Ring:
    """Messages, low-water marks and token bookkeeping of one ring."""

    __slots__ = (
        "_last_answers",
        "acknowledges_to",
        "answered",
        "aru_count",
        "aru_since_us",
        "deferred",
        "delivered",
        "flow",
        "idle_rounds",
        "kept_up",
        "laggard",
        "lagging_since_us",
        "last_aru_seen",
        "last_numbered",
        "last_sent_seq",
        "members",
        "messages",
        "my_aru",
        "my_token_seq",
        "notorious",
        "predecessor",
        "previous_sent_seq",
        "released",
        "ring_id",
        "safe_up_to",
        "successor",
        "token_first",
        "vain_answers",
    )

    def __init__(
        self, ring_id: RingId, members: tuple[ProcessorId, ...], me: ProcessorId, config: RingConfig
    ) -> None:
        """`members` in the order in which the token travels, the representative first."""
        assert me in members, f"{me} is not on its own ring {members}"
        assert all(low < high for low, high in pairwise(members)), f"members {members} out of order"
        self.ring_id = ring_id
        self.members = members
        self.successor = successor_of(me, members)
        self.predecessor = predecessor_of(me, members)
        self.messages: dict[int, Held] = {}
        self.my_aru = 0
        self.acknowledges_to = NO_LIMIT
        """The highest aru that this processor lets the token have, once it leaves."""
        self.delivered = 0
        """my_high_delivered: the sequence number in the most recently delivered message."""
        self.released = 0
        self.safe_up_to = 0
        self.my_token_seq = 0
        self.last_aru_seen = 0
        """The aru when this processor last forwarded the token."""
        self.last_sent_seq = 0
        """The seq when this processor last forwarded the token."""
        self.previous_sent_seq = 0
        """The seq when it forwarded the token the time before."""
        self.last_numbered = 0
        """The seq of the last message that this processor broadcast on the ring, new or rebroadcast."""
        self.aru_count = 0
        self.aru_since_us = 0
        """Since when the aru has stood still, if aru_count is not 0."""
        self.answered: set[int] = set()
        """What this processor answered when it was last asked for it."""
        self._last_answers: dict[int, tuple[ByteRange, ...]] = {}
        """Those of the last visit at which it was asked for anything."""
        self.vain_answers = 0
        """How many answers in succession did not help: the same was asked for again."""
        self.deferred: set[int] = set()
        """Requests that this processor could have met, and has left to others first."""
        self.laggard = NO_PROCESSOR
        """Who holds the others back, and since when."""
        self.lagging_since_us = 0
        self.kept_up = 0
        """Visits since then, one after the other, at which it did not."""
        self.notorious = NO_PROCESSOR
        """Who last did so for a good part of the time that is allowed."""
        self.idle_rounds = 0
        """Visits, one after the other, at which all was safe and nobody had sent anything."""
        self.token_first = False
        self.flow = FlowControl(config, len(members))

    @property
    def leader(self) -> ProcessorId:
        return self.members[0]

    def has(self, seq: int) -> bool:
        return seq <= self.my_aru or seq in self.messages

    def insert(self, held: Held) -> bool:
        """Takes a message into the store; false if it was there already."""
        seq = held.message.seq
        messages = self.messages
        if seq <= self.my_aru or seq in messages:
            return False
        messages[seq] = held
        aru = self.my_aru
        while aru + 1 in messages:
            aru += 1
        self.my_aru = aru
        return True

    def bytes_of(self, after: int, up_to: int) -> int:
        """The size of the messages in this range, encoded. One that is missing here counts as the average."""
        sizes = [len(held.data) for seq in range(after + 1, up_to + 1) if (held := self.messages.get(seq))]
        return sum(sizes) * (up_to - after) // len(sizes) if sizes else 0

    def take_deliverable(self) -> Iterator[RegularMessage]:
        """Agreed messages in order without a gap, safe ones once they are safe. Each is given out once."""
        while (held := self.messages.get(self.delivered + 1)) is not None:
            message = held.message
            assert message.seq == self.delivered + 1, f"message {message.seq} kept at {self.delivered + 1}"
            if message.service is Service.SAFE and message.seq > self.safe_up_to:
                return
            self.delivered = message.seq
            if not message.recovered:
                yield message

    def updated_aru(
        self, aru: int, aru_id: ProcessorId, seq: int, me: ProcessorId
    ) -> tuple[int, ProcessorId]:
        """Figure 4.1: the token's aru and aru_id after this processor has looked at them."""
        mine = min(self.my_aru, self.acknowledges_to)
        if mine < aru or aru_id in (me, NO_PROCESSOR):
            aru = min(mine, seq)  # a forged message can have a place that no token gave
            aru_id = NO_PROCESSOR if aru == seq else me
        assert aru <= seq, f"aru {aru} above seq {seq}"
        return aru, aru_id

    def note_failure_to_receive(self, aru: int, aru_id: ProcessorId, now_us: int) -> tuple[int, int]:
        """Figure 4.4: counts the visits at which the aru stood still below seq; and for how long it has."""
        if aru != self.last_aru_seen or aru_id == NO_PROCESSOR:
            self.aru_count = 0
            return 0, 0
        if self.aru_count == 0:
            self.aru_since_us = now_us
        self.aru_count += 1
        assert self.aru_since_us <= now_us, "the clock ran backwards"
        return self.aru_count, now_us - self.aru_since_us

    def note_lag(self, laggard: ProcessorId, now_us: int, limit_us: int) -> int:
        """Who holds the others back at this visit, if anyone; gives for how long it has."""
        if laggard == self.laggard:
            self.kept_up = 0
        elif self.laggard == NO_PROCESSOR or self.kept_up + 1 == KEPT_UP_VISITS:
            self.laggard = laggard
            self.lagging_since_us = now_us
            self.kept_up = 0
        else:
            # By luck, perhaps.
            self.kept_up += 1
            assert self.kept_up < KEPT_UP_VISITS, "a laggard that kept up still counts as one"
            return 0
        if laggard == NO_PROCESSOR:
            return 0
        lag_us = now_us - self.lagging_since_us
        assert lag_us >= 0, "the clock ran backwards"
        if NOTORIOUS_PARTS * lag_us >= limit_us:
            self.notorious = laggard
        return lag_us

    def note_idleness(self, seq: int, aru: int, nothing_asked: bool) -> None:
        """Counts the visits since all is safe here. A rotation after the first, it is safe everywhere:
        then everyone, too, has twice seen the token leave with this aru (see `forwarded`)."""
        unchanged = seq == aru == self.last_sent_seq == self.last_aru_seen
        self.idle_rounds = self.idle_rounds + 1 if unchanged and nothing_asked else 0

    def rests_here(self, seq: int, me: ProcessorId) -> bool:
        """Whether an idle token with this seq waits here: with the last to send, or else with the leader."""
        return self.last_numbered == seq if seq else self.leader == me

    def forwarded(self, seq: int, aru: int) -> bool:
        """Remembers what the token said when it left; true if more messages became safe by it.

        Safe is what two successive rotations agree on: the lesser of the last two arus that were sent.
        """
        assert aru <= self.my_aru, f"the token leaves with aru {aru}, and only {self.my_aru} received here"
        safe = min(aru, self.last_aru_seen)
        self.last_aru_seen = aru
        self.previous_sent_seq = self.last_sent_seq
        self.last_sent_seq = seq
        if safe <= self.safe_up_to:
            return False
        self.safe_up_to = safe
        return True

    def release(self) -> None:
        """Frees what every member has received and this one has delivered."""
        stop = min(self.safe_up_to, self.delivered)
        for seq in range(self.released + 1, stop + 1):
            del self.messages[seq]
        self.released = max(self.released, stop)
        assert self.released <= self.safe_up_to, "a message was freed that somebody may ask for"
        assert self.released <= self.delivered, "a message was freed before it was delivered"
        if self.answered:
            self.answered = {seq for seq in self.answered if seq > stop}
        if self.deferred:
            self.deferred = {seq for seq in self.deferred if seq > stop}

    def answer(
        self, rtr: tuple[RetransmissionRequest, ...], packets: int
    ) -> tuple[list[tuple[Held, tuple[ByteRange, ...]]], list[RetransmissionRequest]]:
        """The requests that this processor can meet now, and those that it passes on.

        One that comes back although it was answered the last time is passed on instead: whoever asks may be
        out of this processor's reach, and within another's. After `VAIN_ANSWERS_MAX` of them in succession it
        leaves requests to others first, and meets those that come back: or else all that is lost on a dead
        link would be repeated twice, once in vain.
        """
        answers: list[tuple[Held, tuple[ByteRange, ...]]] = []
        passed_on: list[RetransmissionRequest] = []
        if self._last_answers:
            self._judge_last_answers(rtr)
        for request in rtr:
            held = self.messages.get(request.seq)
            if request.seq in self.answered and len(self.members) > 2:
                self.answered.discard(request.seq)
                passed_on.append(request)
            elif held is not None and self._leaves_to_others(request.seq):
                passed_on.append(request)
            elif held is not None and len(answers) < packets:
                assert request.seq > self.released, f"message {request.seq} still here after its release"
                answers.append((held, request.ranges))
                self.answered.add(request.seq)
            elif request.seq > self.released:
                passed_on.append(request)
        self._last_answers = {held.message.seq: ranges for held, ranges in answers}
        return answers, passed_on

    def _judge_last_answers(self, rtr: tuple[RetransmissionRequest, ...]) -> None:
        asked = {request.seq: request.ranges for request in rtr}
        if all(asked.get(seq) == ranges for seq, ranges in self._last_answers.items()):
            self.vain_answers += len(self._last_answers)
        else:
            self.vain_answers = 0

    def _leaves_to_others(self, seq: int) -> bool:
        if self.vain_answers < VAIN_ANSWERS_MAX or seq in self.deferred or len(self.members) <= 2:
            return False
        self.deferred.add(seq)
        return True

    def request_missing(
        self, rtr: list[RetransmissionRequest], up_to: int, holes: Holes, requests_max: int
    ) -> tuple[RetransmissionRequest, ...]:
        """Adds what is missing here, up to `up_to`, to what others have asked for."""
        if self.my_aru >= up_to:
            return tuple(rtr)
        asked = {request.seq: request for request in rtr}
        wanted = 0
        for seq in range(self.my_aru + 1, up_to + 1):
            if seq in self.messages:
                continue
            ranges = holes(self.ring_id, seq)
            if seq in asked:
                ranges = _union(asked[seq].ranges, ranges)
            asked[seq] = RetransmissionRequest(seq, ranges)
            wanted += 1
            if wanted == requests_max:
                break
        # The lowest first: they are what keeps the aru down.
        return tuple(asked[seq] for seq in sorted(asked)[:requests_max])


def _union(a: tuple[ByteRange, ...], b: tuple[ByteRange, ...]) -> tuple[ByteRange, ...]:
    """Ranges that cover both; no ranges means the whole packet, and so do too many of them."""
    if not a or not b:
        return ()
    merged: list[ByteRange] = []
    for start, stop in sorted(a + b):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged) if len(merged) <= RANGES_PER_REQUEST_MAX else ()
