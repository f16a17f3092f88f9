"""The token of one ring at one of its members: taken, held, visited, passed on, passed again (Totem §4.1).

It is there from the Commit token's first visit to the ring's end: Commit uses it to pass its token again,
Recover and Operational to take and pass the regular one. What a visit means beyond that is the state's own.
"""

from __future__ import annotations

from totempole.link import Transmission
from totempole.srp.alarms import DeadLink
from totempole.srp.ordering import Blame
from totempole.srp.packets import RegularMessage, RegularToken
from totempole.srp.processor import Processor
from totempole.srp.recovery import Recovery
from totempole.srp.relay import Relay
from totempole.srp.ring import Ring, successor_of
from totempole.types import NO_PROCESSOR, ProcessorId


class TokenHolder:
    """One ring's token, as this processor has it, waits for it, or has sent it last."""

    __slots__ = (
        "_clock",
        "_each_time_packets",
        "_ordering",
        "_output",
        "_processor",
        "_relay",
        "_visited_us",
        "held",
        "passed",
        "ring",
        "ticket",
    )

    def __init__(self, processor: Processor, ring: Ring) -> None:
        self._processor = processor
        self._output = processor.output
        self._ordering = processor.ordering
        self._clock = processor.ordering.clock
        self._each_time_packets = processor.config.each_time_packets
        self.ring = ring
        self.held: RegularToken | None = None
        """A token that waits here: for a write, or because the ring is idle."""
        self.ticket = 0
        """The write that it waits for; 0 if none."""
        self.passed: Transmission | None = None
        """The token as last sent, for retransmission."""
        self._visited_us = 0
        """When the token was last here."""
        self._relay = Relay(ring, processor.me)

    # Taking it

    def take(self, token: RegularToken, data: bytes) -> bool:
        """Whether the token is this ring's next one, and need not wait for stable storage."""
        ring = self.ring
        if token.ring_id != ring.ring_id:
            self._output.drop("token of another ring")
            return False
        if token.token_seq < ring.my_token_seq:
            self._output.branch("redundant token")
            self._answer(token, data)
            return False
        if token.sender != ring.predecessor:
            self._hand_on(token, data)
            return False
        ring.my_token_seq = token.token_seq + 1
        self._relay.came_round()
        self._processor.timeouts.token_came(self._output.now_us)
        self._clock.witness(token.timestamp)
        if self._must_wait_for_clock():
            self.hold(token)
            return False
        return True

    def hold(self, token: RegularToken) -> None:
        assert token.ring_id == self.ring.ring_id, f"a token of {token.ring_id} held on {self.ring.ring_id}"
        self.held = token
        self._processor.token_retransmission.cancel()
        self._processor.reset_token_loss()

    def _must_wait_for_clock(self) -> bool:
        """Totem §5.1: no timestamp is used that stable storage does not cover."""
        self._processor.write_clock_ahead()
        if self._clock.outruns_storage(self._each_time_packets):
            self.ticket = self._processor.clock_ticket
            assert self.ticket, "the token waits for a write that nobody asked for"
            return True
        return False

    def written(self, ticket: int) -> RegularToken | None:
        """The token that may go on, now that this write is done."""
        if ticket != self.ticket:
            return None
        self.ticket = 0
        return self.released()

    def released(self) -> RegularToken | None:
        """The token that is here, unless it must wait: a message may have come with a later timestamp."""
        if self.held is not None and self._must_wait_for_clock():
            self.hold(self.held)
            return None
        return self.held

    # Passing it on

    def visit(self, token: RegularToken, recovery: Recovery | None) -> Blame | None:
        """Sends what may be sent and passes the token on, unless somebody is to be expelled instead."""
        self.held = None
        ring = self.ring
        assert token.token_seq + 1 == ring.my_token_seq, "another token than the latest that was taken"
        assert not self.ticket, "a token is passed on that waits for a write"
        blame = self._ordering.blame(ring, token)
        if blame is not None:
            self._trace_blame(blame, token)
            return blame
        processor, now_us = self._processor, self._output.now_us
        self._visited_us = now_us
        through = self._relay.through
        self.passed = self._ordering.visit(ring, token, recovery, through)
        if through != NO_PROCESSOR and self._relay.goes_on():
            self._output.branch("dead link")
            self._output.alarm(DeadLink(ring.successor, through))
        timeouts = processor.timeouts
        if len(ring.members) > 1:
            timeouts.token_left(now_us, ring.idle_rounds >= processor.config.idle_rounds)
        processor.token_retransmission.set(timeouts.token_retransmission_us)
        processor.token_loss.set(timeouts.token_loss_us)
        return None

    def _trace_blame(self, blame: Blame, token: RegularToken) -> None:
        if self._output.traces("blame"):
            away_us = self._output.now_us - self._visited_us
            self._output.trace(
                "blame",
                origin=blame.processor,
                ring=self.ring.ring_id,
                seq=token.aru,
                count=away_us,
                reason=blame.reason,
            )

    def retransmit(self) -> None:
        assert self.held is None, "a token is passed again that is here"
        if self.passed is not None:
            self._output.branch("token retransmitted")
            self._output.repeat_token(self.passed)
            self._show_to(self._relay.next())
            self._processor.reset_token_retransmission()

    # By way of another member (relay.py)

    def _show_to(self, member: ProcessorId) -> None:
        """The token that was passed."""
        token = self.passed[0].packet if self.passed else None
        if member != NO_PROCESSOR and type(token) is RegularToken and self._output.relays:
            self._relay.is_shown_to(member)
            self._output.relay_token(member, token)

    def _answer(self, token: RegularToken, data: bytes) -> None:
        """The predecessor's latest token has come a second time: it gets that one back."""
        ring = self.ring
        if token.sender == self._processor.me and token.token_seq + len(ring.members) == ring.my_token_seq:
            self._relay.is_sent_back_late()
        latest = token.token_seq + 1 == ring.my_token_seq and token.sender == ring.predecessor
        if latest and self._relay.others and self._output.relays:
            self._output.relay_token(ring.predecessor, token, data)

    def _hand_on(self, token: RegularToken, data: bytes) -> None:
        """Somebody shows this processor a token that is not for it. Taken, there would be two tokens."""
        output, ring, members = self._output, self.ring, self.ring.members
        if token.sender == self._processor.me:
            self._relay.is_sent_back()
        elif token.seq < max(ring.my_aru, ring.last_sent_seq):
            output.branch("redundant token")  # somebody has had it since, and numbered messages
        elif token.sender not in members or not output.relays:
            output.drop("token from another than the predecessor")
        else:
            output.branch("token handed on")
            output.relay_token(successor_of(token.sender, members), token, data)

    def note_alive(self, message: RegularMessage) -> None:
        """Somebody numbered a message after this processor passed the token on: it was not lost."""
        if message.seq > self.ring.last_sent_seq:
            self._processor.token_retransmission.cancel()
            if self.held is None:
                self._processor.reset_token_loss()
