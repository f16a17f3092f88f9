"""The token at one processor: taken, held, left to rest, visited, passed on, passed again (000 §4.1).

Who is on the ring is none of its business; `membership` and `machine` build on it.

Deviation: an idle ring's token rests with the processor that broadcast last, not a little with everyone as in
appendix A, until it is woken or the hold timeout runs out; and not after a number of rounds, but as soon as
everyone knows that all messages are safe. A lone sender then has the token at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from totempole.link import Transmission
from totempole.srp.config import RingConfig
from totempole.srp.ordering import Blame, Ordering
from totempole.srp.output import Output
from totempole.srp.packets import NullMessage, Packet, RegularMessage, RegularToken, Wake
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Held, Ring
from totempole.srp.states import State, Timer
from totempole.srp.timeouts import LazyTimer, Timeouts
from totempole.types import ProcessorId, RingId

RING_SEQ_STEP = 4
"""000 §4.2: a new ring's number is four above the highest; two below it names the transitional one."""


class TokenPassing(ABC):
    """The ordering side of a processor, with the state that all sides share."""

    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        ring_seq: int,
        config: RingConfig,
        ordering: Ordering,
        output: Output,
    ) -> None:
        """`ring_seq` is the highest ring number that stable storage knows of."""
        self._me = me
        self._incarnation = incarnation
        self._config = config
        self._ordering = ordering
        self._output = output
        self.timeouts = Timeouts(config, output)
        self._token_loss = LazyTimer(Timer.TOKEN_LOSS, output)
        self._token_retransmission = LazyTimer(Timer.TOKEN_RETRANSMISSION, output)

        self.state = State.STARTING
        self.ring_id = RingId(ring_seq + RING_SEQ_STEP, me)
        """my_ring_id: of the most recent Commit token accepted."""
        self.installed = Ring(self.ring_id, (me,), me, config)
        self.forming: Ring | None = None
        self.future_ring_seq = self.ring_id.seq
        self._recovery: Recovery | None = None
        self._rotation_count = 0
        self._passed: Transmission | None = None
        """The token as last sent, for retransmission."""
        self._held_token: RegularToken | None = None
        self._ticket = 0
        """The write that a held token, or the start, waits for."""
        self._clock_ticket = 0
        """The write that moves the bound of the timestamps."""
        self._leaving = False
        self.counter = 0
        """Of what this processor has said in this life, messages and regular tokens left out."""
        self._takes_more = True
        """Submissions: not once the layer above has handed over its last."""
        self._visited_us = 0
        """When the token was last here."""

    @abstractmethod
    def _expel(self, blame: Blame) -> None:
        """The others cannot wait for this processor any longer; the token is discarded."""

    @abstractmethod
    def _after_visit(self, ring: Ring) -> None:
        """The token has been passed on: deliver, or go on recovering."""

    def submitted(self) -> None:
        """There is something to send: an idle ring must not let it wait."""
        if self.state is not State.OPERATIONAL:
            return
        ring = self.installed
        if self._held_token is not None:
            self._release_resting_token()
        elif (
            len(self._ordering.queue) == 1
            and ring.idle_rounds >= self._config.idle_rounds
            and not ring.rests_here(ring.last_sent_seq, self._me)  # or else it is on its way here
        ):
            # Whoever holds the token lets it go, and nobody else need say so again.
            ring.idle_rounds = 0
            self._multicast(Wake(self._me, self._incarnation, self._count(), self.ring_id))

    def _persist(self) -> int:
        ticket = self._output.persist(
            {
                "incarnation": self._incarnation,
                "ring_seq": self.ring_id.seq,
                "future_ring_seq": self.future_ring_seq,
                "timestamp": self._ordering.clock.to_store,
            }
        )
        if self._output.traces("persist"):
            covered = self._ordering.clock.to_store + self._config.timestamp_interval
            self._output.trace("persist", count=ticket, seq=self.ring_id.seq, timestamp=covered)
        return ticket

    def _enter(self, state: State, reason: str, failed: Iterable[ProcessorId] = ()) -> None:
        if self._output.traces("state"):
            ring = self._token_ring
            self._output.trace(
                "state",
                ring=ring.ring_id,
                members=tuple(sorted(ring.members)),
                failed=tuple(sorted(failed)),
                old_state=self.state.name.lower(),
                new_state=state.name.lower(),
                reason=reason,
            )
        self.state = state

    def _count(self) -> int:
        """The number of the next Join, Commit token, Null, Leave or Wake."""
        self.counter += 1
        return self.counter

    def _multicast(self, packet: Packet) -> None:
        self._output.multicast(packet, self._output.encode(packet))

    # The token

    def _on_token(self, token: RegularToken, _data: bytes) -> None:
        ring = self._token_ring
        if token.ring_id != ring.ring_id:
            self._output.drop("token of another ring")
            return
        if token.token_seq < ring.my_token_seq:
            self._output.branch("redundant token")
            return
        if token.sender != ring.predecessor:
            # Somebody shows it to the wrong processor. Taken, there would be two tokens.
            self._output.drop("token from another than the predecessor")
            return
        ring.my_token_seq = token.token_seq + 1
        self.timeouts.token_came(self._output.now_us)
        self._held_token = token
        self._ordering.clock.witness(token.timestamp)
        if self._must_wait_for_clock():
            self._note_token_is_held()
        elif self._may_rest(ring, token):
            self._note_token_is_held()
            self._output.set_timer(Timer.HOLD, self._config.idle_hold_us)
        else:
            self._visit_held_token()

    def _note_token_is_held(self) -> None:
        self._token_retransmission.cancel()
        self._reset_token_loss()

    def _must_wait_for_clock(self) -> bool:
        """000 §5.1: no timestamp is used that stable storage does not cover."""
        self._write_clock_ahead()
        if self._ordering.clock.outruns_storage(self._config.each_time_packets):
            self._ticket = self._clock_ticket
            return True
        return False

    def _write_clock_ahead(self) -> None:
        if self._ordering.clock.runs_low(self._config.each_time_packets):
            self._persist_with_clock()

    def _persist_with_clock(self) -> int:
        """Writes all numbers, the timestamp as it is now."""
        self._ordering.clock.begin_write()
        self._clock_ticket = self._persist()
        return self._clock_ticket

    @property
    def _token_ring(self) -> Ring:
        return self.installed if self.forming is None else self.forming

    def _may_rest(self, ring: Ring, token: RegularToken) -> bool:
        """An idle ring's token waits with the last to send."""
        return (
            ring.idle_rounds >= self._config.idle_rounds
            and ring.rests_here(token.seq, self._me)
            and self.state is State.OPERATIONAL
            and token.seq == token.aru == ring.last_sent_seq
            and not token.rtr
            and not self._ordering.queue
            and not self._leaving
        )

    def _release_resting_token(self) -> None:
        if self._held_token is not None and not self._ticket:
            self._output.cancel_timer(Timer.HOLD)
            self._visit_held_token()

    def _visit_held_token(self) -> None:
        token, self._held_token = self._held_token, None
        assert token is not None
        ring = self._token_ring
        blame = self._ordering.blame(ring, token)
        if blame is not None:
            self._trace_blame(blame, ring, token)
            self._expel(blame)
            return
        self._rotation_count += 1
        self._visited_us = self._output.now_us
        self._passed = self._ordering.visit(ring, token, self._recovery)
        may_rest = ring.idle_rounds >= self._config.idle_rounds
        self.timeouts.token_left(self._output.now_us, may_rest)
        self._token_retransmission.set(self.timeouts.token_retransmission_us)
        self._reset_token_loss()
        self._after_visit(ring)

    def _trace_blame(self, blame: Blame, ring: Ring, token: RegularToken) -> None:
        if self._output.traces("blame"):
            away_us = self._output.now_us - self._visited_us
            self._output.trace(
                "blame",
                origin=blame.processor,
                ring=ring.ring_id,
                seq=token.aru,
                count=away_us,
                reason=blame.reason,
            )

    def _reset_token_loss(self) -> None:
        self._token_loss.set(self.timeouts.token_loss_us)

    def _retransmit_token(self) -> None:
        if self._passed is not None:
            self._output.branch("token retransmitted")
            self._output.repeat_token(self._passed)
            self._token_retransmission.set(self.timeouts.token_retransmission_us)

    def _on_wake(self, wake: Wake, _data: bytes) -> None:
        if wake.ring_id == self.installed.ring_id:
            # Whether the token is here or still on its way.
            self.installed.idle_rounds = 0
            if self._held_token is not None:
                self._output.branch("idle ring woken")
                self._release_resting_token()

    # Messages

    def _on_message(self, message: RegularMessage, data: bytes) -> None:
        """A message of the installed ring. In Gather and Commit it may still come and be delivered."""
        ring = self.installed
        if not self._ordering.accept(ring, Held(message, data)):
            return
        self._note_token_is_alive(ring, message)
        self._note_ring_heard_of(message.src_ring_id)
        self._ordering.deliver(ring)

    def _note_ring_heard_of(self, ring_id: RingId) -> None:
        """000 §5.1: rings are numbered above every ring that anyone has heard of, crashes included."""
        if ring_id.seq > self.future_ring_seq:
            self.future_ring_seq = ring_id.seq
            self._persist()

    def _note_token_is_alive(self, ring: Ring, message: RegularMessage) -> None:
        """Somebody numbered a message after this processor passed the token on: it was not lost."""
        if message.seq > ring.last_sent_seq and self.state in (State.OPERATIONAL, State.RECOVER):
            self._token_retransmission.cancel()
            if self._held_token is None:
                self._reset_token_loss()

    def _show_presence(self) -> None:
        """000 appendix A: two idle rings on a mended network would otherwise never meet."""
        quiet_us = self._output.now_us - self._output.last_multicast_us
        if self.state is State.OPERATIONAL and quiet_us >= self._config.null_us:
            members = len(self.installed.members)
            self._multicast(NullMessage(self._me, self._incarnation, self._count(), self.ring_id, members))
        self._output.set_timer(Timer.NULL, self._config.null_us)
