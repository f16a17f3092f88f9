"""The total ordering algorithm: what a processor does with the token (Totem §4.1, figure 4.1).

Deviations:
- failure to receive is determined before anything is sent on the visit, not after: the token is about to be
  discarded, so nothing should be numbered by it. The aru must also have stood still for `token_loss_us`: on a
  fast network the rotations alone are over in milliseconds;
- a request that was answered in vain is passed on to the next that can answer it (ring.py);
- a processor delivers its own messages before it sends them, where they are next in order: sending takes
  longer than all else on a visit, and whether others get them does not depend on it;
- while an idle ring's token rests with a processor, that one may broadcast a few messages and keep it, if
  nobody waits to hear that they are safe: two rotations would cost all members more than the messages do;
- a processor that is alone on its ring sends its messages to nobody: they would only take a slow network
  from those whom it is about to meet, and null messages show that it is there;
- the retransmission timer is stopped only by a message with a higher sequence number than the forwarded
  token's, which alone proves that somebody held the token since;
- a processor that receives, but too slowly, is expelled too (docs/decisions/0008-laggards.md): the paper's
  rule sees only an aru that stands still;
- the accelerated ring (docs/accelerated.md): up to `accelerated_window` packets follow the token instead of
  preceding it, and packets are asked for only up to the seq that this processor last sent.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple
from zlib import crc32

from totempole.link import Transmission
from totempole.srp.config import RingConfig
from totempole.srp.flow import Repeats
from totempole.srp.output import Output
from totempole.srp.packets import RegularMessage, RegularToken, RetransmissionRequest
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Held, Holes, Ring
from totempole.srp.timestamps import TimestampClock
from totempole.types import NO_PROCESSOR, MessageId, ProcessorId, RingKind, Service

LAG_PARTS = 8
"""One lags that misses more than this part of a window a rotation after it was sent, and more than a packet:
where a link is dead, one is always missing that has to be repeated."""

REACH = 4
"""Members may be set to different `outstanding_packets_max`, but not that different."""


REPORTS_MAX = 32
"""Submissions that may go before all others, beside a full queue: what is said of the ring's networks."""


class Submission(NamedTuple):
    number: int
    service: Service
    payload: bytes
    groups: tuple[int, ...]
    at_rest: bool = False
    """It may be sent while an idle ring's token rests."""


class Sent(NamedTuple):
    """What a visit sends beside the token."""

    new: list[Held]
    late: list[Held]
    """Those of the new ones that follow the token."""
    passed_on: list[RetransmissionRequest]
    """Requests that were not met."""
    retransmitted: int
    bytes: int


FAILURE_TO_RECEIVE = "failure to receive"
LAGGARD = "laggard expelled"


class Blame(NamedTuple):
    """A processor that the others are better off without."""

    processor: ProcessorId
    reason: str


NOTHING = Sent([], [], [], 0, 0)


class Ordering:
    """The send queue, and the token visits that empty it."""

    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        config: RingConfig,
        clock: TimestampClock,
        output: Output,
        holes: Holes,
    ) -> None:
        self.me = me
        self.clock = clock
        self.queue: deque[Submission] = deque()
        self._reports = 0
        """How many at its head were to go first."""
        self.last_originated = 0
        """The seq of this processor's latest message on the installed ring."""
        self._incarnation = incarnation
        self._config = config
        self._output = output
        self._holes = holes
        self._number = 0
        self._pushed_back = False
        self._accelerated = config.ring_kind is RingKind.ACCELERATED
        self._reach = REACH * config.outstanding_packets_max
        """How far above my_aru a sequence number can truly be; it bounds the store."""

    # The send queue

    def submit(
        self,
        payload: bytes,
        service: Service,
        groups: tuple[int, ...],
        first: bool = False,
        at_rest: bool = False,
    ) -> bool:
        """`first`: before all that waits, and though the queue is full."""
        room = self._config.send_queue_max + (REPORTS_MAX if first else 0)
        if len(self.queue) >= room:
            self._pushed_back = True
            return False
        self._number += 1
        submission = Submission(self._number, service, payload, groups, at_rest)
        if first:
            self.queue.insert(self._reports, submission)
            self._reports += 1
        else:
            self.queue.append(submission)
        if self._output.traces("submit"):
            self._output.trace(
                "submit",
                message=MessageId(self.me, self._incarnation, self._number),
                origin=self.me,
                service=service,
                bytes=len(payload),
                digest=crc32(payload) if self._output.traces_receive else 0,
            )
        return True

    def _invite_submissions(self) -> None:
        if self._pushed_back and len(self.queue) <= self._config.send_queue_ready:
            self._pushed_back = False
            self._output.ready()

    # The token

    def visit(
        self,
        ring: Ring,
        token: RegularToken,
        recovery: Recovery | None,
        through: ProcessorId = NO_PROCESSOR,
    ) -> Transmission:
        """Retransmits, broadcasts, updates the token and passes it on. In Recover, `recovery` sends.

        `through`: to whom a copy of the token goes (relay.py), ahead of the data that follows it.
        """
        output = self._output
        sent = NOTHING
        assert token.ring_id == ring.ring_id, f"a token of {token.ring_id} visits {ring.ring_id}"
        ring.flow.note_visit(output.now_us, token.bytes_round)
        if token.rtr or self.queue or recovery is not None:
            sent = self._send_before_token(ring, token, recovery)

        seq = token.seq + len(sent.new)
        aru, aru_id = ring.updated_aru(token.aru, token.aru_id, seq, self.me)
        rtr = self._requests(ring, token, sent.passed_on, recovery)
        ring.note_idleness(seq, aru, recovery is None and not rtr)
        waiting = len(self.queue if recovery is None else recovery.queue)
        rounds = ring.flow.account(token, seq, sent.retransmitted, sent.bytes, waiting)
        retrans_flg = token.retrans_flg
        if recovery is not None:
            retrans_flg = recovery.update_flag(retrans_flg)
            recovery.note_visit(retrans_flg, seq, aru, ring.my_aru)
        ring.my_token_seq = token.token_seq + 1
        ring.token_first = False
        # By position: _replace takes four times as long, on every token visit.
        updated = RegularToken(
            self.me,
            self._incarnation,
            ring.ring_id,
            token.token_seq + 1,
            seq,
            aru,
            aru_id,
            self.clock.now,
            retrans_flg,
            rounds.retrans,
            rounds.bytes,
            rounds.backlog,
            token.block,
            token.block_seq,
            rtr,
        )
        passed = output.pass_token(ring.successor, updated)
        if through != NO_PROCESSOR:
            output.relay_token(through, updated)
        self._broadcast(ring, sent.late)
        if output.traces_token:
            here, visit = str(ring.ring_id), token.token_seq
            output.trace("token", ring=here, seq=seq, count=visit, aru=aru, rtr=len(rtr))
        if ring.forwarded(seq, aru) and recovery is None:
            output.safe(ring.ring_id, ring.safe_up_to)
        self._invite_submissions()
        return passed

    @property
    def may_send_at_rest(self) -> bool:
        """Whether nobody waits for the token's way round with what waits here. The accelerated ring passes
        its token before most messages, and knows them by it."""
        return not self._accelerated and all(
            each.at_rest and each.service is Service.AGREED for each in self.queue
        )

    def send_at_rest(self, ring: Ring, token: RegularToken) -> RegularToken:
        """Broadcasts what waits. Gives the token as it is then: it stays here."""
        new = self._originate(ring, token.seq, len(self.queue), ring.flow.window_bytes)
        self.deliver(ring)
        self._broadcast(ring, new)
        return token._replace(seq=token.seq + len(new))

    def _send_before_token(self, ring: Ring, token: RegularToken, recovery: Recovery | None) -> Sent:
        """Requested retransmissions, then new packets, as far as flow control allows."""
        output = self._output
        waiting = len(self.queue if recovery is None else recovery.queue)
        flow = ring.flow
        answers, passed_on = ring.answer(token.rtr, flow.allowance(token, waiting).packets)
        sent_bytes = 0
        for held, ranges in answers:
            sent_bytes += output.retransmit(held, ranges)
            if ranges:
                output.branch("hole in a burst repaired")
        repeats = Repeats(len(answers), sent_bytes, flow.others_repeats(token, ring.bytes_of))
        allowance = flow.allowance(token, waiting, repeats)
        if recovery is None:
            new = self._originate(ring, token.seq, allowance.new_packets, allowance.new_bytes)
            if new:
                self.deliver(ring)
            late = self._late_packets(len(new))
        else:
            new = self._rebroadcast(ring, token.seq, allowance.new_packets, allowance.new_bytes, recovery)
            late = 0
        self._broadcast(ring, new[: len(new) - late])
        assert not new or len(answers) + len(new) <= allowance.packets, "more sent than the window allows"
        sent_bytes += sum(len(held.data) for held in new)
        return Sent(new, new[len(new) - late :], passed_on, len(answers), sent_bytes)

    def _broadcast(self, ring: Ring, new: list[Held]) -> None:
        if len(ring.members) > 1:
            for held in new:
                self._output.multicast(held.message, held.data)

    def _requests(
        self,
        ring: Ring,
        token: RegularToken,
        passed_on: list[RetransmissionRequest],
        recovery: Recovery | None,
    ) -> tuple[RetransmissionRequest, ...]:
        """What others ask for and this processor cannot give, and what it misses itself."""
        up_to = self.due_up_to(ring, token, recovery is not None)
        if ring.my_aru >= up_to and not passed_on:
            return ()
        up_to = min(up_to, ring.my_aru + self._reach)
        return ring.request_missing(passed_on, up_to, self._holes, self._config.requests_max)

    def due_up_to(self, ring: Ring, token: RegularToken, recovering: bool) -> int:
        """Messages up to here should be here when the token comes, and are asked for if they are not."""
        return ring.last_sent_seq if self._accelerated and not recovering else token.seq

    def _late_packets(self, new_packets: int) -> int:
        """How many of this visit's new packets follow the token."""
        return min(new_packets, self._config.accelerated_window) if self._accelerated else 0

    def _originate(self, ring: Ring, seq: int, packets: int, bytes_left: int) -> list[Held]:
        """Takes submissions off the queue and gives them their places on the ring."""
        most = self._config.send_queue_max + REPORTS_MAX
        assert len(self.queue) <= most, f"{len(self.queue)} submissions queued"
        assert seq >= ring.last_sent_seq, f"the places after {seq} have been given away before"
        chosen: list[Submission] = []
        while self.queue and len(chosen) < packets and bytes_left > 0:
            submission = self.queue.popleft()
            bytes_left -= len(submission.payload)
            chosen.append(submission)
        self._reports = max(0, self._reports - len(chosen))
        first_late = len(chosen) - self._late_packets(len(chosen))
        new = []
        for place, submission in enumerate(chosen):
            message = self._regular_message(
                ring, seq + 1 + place, submission, after_token=place >= first_late
            )
            self._trace_origination(message)
            new.append(self._keep(ring, message))
        if new:
            self.last_originated = ring.last_numbered = seq + len(new)
        return new

    def _regular_message(
        self, ring: Ring, seq: int, submission: Submission, after_token: bool
    ) -> RegularMessage:
        return RegularMessage(
            sender=self.me,
            incarnation=self._incarnation,
            ring_id=ring.ring_id,
            seq=seq,
            number=submission.number,
            service=submission.service,
            timestamp=self.clock.next(),
            src_sender=self.me,
            src_ring_id=ring.ring_id,
            groups=submission.groups,
            after_token=after_token,
            recovered=False,
            contents=submission.payload,
        )

    def _rebroadcast(
        self, ring: Ring, seq: int, packets: int, bytes_left: int, recovery: Recovery
    ) -> list[Held]:
        """Totem §4.3: old-ring messages, encapsulated as messages of the new ring."""
        new: list[Held] = []
        while recovery.queue and len(new) < packets and bytes_left > 0:
            old = recovery.queue.pop(next(iter(recovery.queue)))
            bytes_left -= len(old.data)
            submission = Submission(0, Service.AGREED, old.data, ())
            message = self._regular_message(ring, seq + 1 + len(new), submission, after_token=False)
            new.append(self._keep(ring, message._replace(recovered=True)))
            ring.last_numbered = message.seq
        return new

    def _keep(self, ring: Ring, message: RegularMessage) -> Held:
        held = Held(message, self._output.encode(message))
        ring.insert(held)
        return held

    def _trace_origination(self, message: RegularMessage) -> None:
        if self._output.traces("originate"):
            self._output.trace(
                "originate",
                message=message.message_id,
                origin=message.src_sender,
                service=message.service,
                ring=message.ring_id,
                seq=message.seq,
                timestamp=message.timestamp,
                bytes=len(message.contents),
                digest=crc32(message.contents) if self._output.traces_receive else 0,
            )

    # Messages

    def accept(self, ring: Ring, held: Held) -> bool:
        """Figure 4.2: takes in a message of the ring; false if it is here already."""
        message = held.message
        if message.seq > ring.my_aru + self._reach:
            self._output.drop("seq out of reach")
            return False
        return self.take_in(ring, held)

    def take_in(self, ring: Ring, held: Held) -> bool:
        """The same without a limit to how far ahead it is, for messages that were rebroadcast in recovery.
        Those count as received on the new ring, so every member must hold them."""
        message = held.message
        assert message.ring_id == ring.ring_id, f"a message of {message.ring_id} taken for {ring.ring_id}"
        self.clock.witness(message.timestamp)
        if not ring.insert(held):
            return False
        if self._output.traces_receive and not message.recovered:
            self._output.trace(
                "receive",
                message=message.message_id,
                origin=message.src_sender,
                ring=message.ring_id,
                seq=message.seq,
                digest=crc32(message.contents),
            )
        if message.after_token and message.sender == ring.predecessor and message.seq > ring.last_sent_seq:
            ring.token_first = self._accelerated
        return True

    def deliver(self, ring: Ring) -> None:
        """Delivers what meets its criteria, and frees what no one will ask for again."""
        for message in ring.take_deliverable():
            self._output.deliver(message)
        assert ring.released <= ring.delivered <= ring.my_aru, "delivered past a gap, or freed too early"
        if ring.released < ring.safe_up_to:
            ring.release()

    def _laggard(self, ring: Ring, token: RegularToken) -> ProcessorId:
        """Who missed much, as the token comes, of what was there a rotation before it told its aru.

        Less may still be under way: on the accelerated ring it often is, and nobody's fault.
        """
        behind = ring.previous_sent_seq - token.aru
        return token.aru_id if behind > max(1, self._config.window_packets // LAG_PARTS) else NO_PROCESSOR

    def blame(self, ring: Ring, token: RegularToken) -> Blame | None:
        """Whom this visit finds to have failed to receive (figure 4.4), or to have lagged for too long."""
        if token.aru_id == NO_PROCESSOR and ring.my_aru >= token.seq:
            ring.aru_count = 0
            if ring.laggard != NO_PROCESSOR:
                ring.note_lag(NO_PROCESSOR, self._output.now_us, self._config.laggard_us)
            return None
        config = self._config
        aru, aru_id = ring.updated_aru(token.aru, token.aru_id, token.seq, self.me)
        rounds, still_us = ring.note_failure_to_receive(aru, aru_id, self._output.now_us)
        lag_us = ring.note_lag(self._laggard(ring, token), self._output.now_us, config.laggard_us)
        if aru_id in (self.me, NO_PROCESSOR):
            return None
        if rounds > config.fail_to_receive_rounds and still_us >= config.token_loss_us:
            return Blame(aru_id, FAILURE_TO_RECEIVE)
        return Blame(aru_id, LAGGARD) if lag_us >= config.laggard_us and aru_id == ring.laggard else None
