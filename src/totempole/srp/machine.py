"""One processor of the single-ring protocol: its inputs, its recovery, and the table of what each event does.

How to read it: `TABLE` and `TIMER_TABLE` at the end say what each event does in each state. What they name is
here for starting, recovering and installing a ring (000 §4.3, figures 4.11 to 4.14), in `membership` for
gathering and committing (§4.2), in `passing` for the token and the messages (§4.1). The arithmetic is in
`ring`, `flow`, `gathering` and `recovery`.

Deviations, beside those that these modules list:
- a processor starts on the singleton ring numbered stable + 4, not stable: with the number of its last ring
  it would pass for a member of that ring that has lost all messages;
- old-ring messages that arrive in Recover other than through the new ring are dropped: only what all members
  of the new ring receive may change what is delivered on the old one.
"""

from __future__ import annotations

from collections.abc import Callable

from totempole.srp.config import RingConfig
from totempole.srp.gathering import Gathering
from totempole.srp.membership import Membership
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.packets import (
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Wake,
)
from totempole.srp.passing import RING_SEQ_STEP
from totempole.srp.reach import CEILING, SEQ_REACH, TIMESTAMP_REACH, TOKEN_SEQ_REACH, Own
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Held, Ring
from totempole.srp.states import EVENT_OF_TIMER, Event, State, Timer
from totempole.types import ConfigurationKind, ProcessorId, RingId


class Machine(Membership):
    """Inputs come from `endpoint`, effects go to `output`."""

    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        ring_seq: int,
        config: RingConfig,
        ordering: Ordering,
        output: Output,
        draw: Callable[[], float],
        decode: Callable[[bytes], RegularMessage | None],
    ) -> None:
        """`decode` reads the packet inside a message that was rebroadcast in recovery."""
        super().__init__(me, incarnation, ring_seq, config, ordering, output, draw)
        self._decode = decode

    # Inputs

    def start(self) -> None:
        """000 §4.2: on stable storage before it is used."""
        self._ticket = self._persist()

    def persisted(self, ticket: int) -> None:
        if self._output.traces("persisted"):
            self._output.trace("persisted", count=ticket)
        if ticket == self._clock_ticket:
            self._ordering.clock.written()
        if ticket != self._ticket:
            return
        self._ticket = 0
        if self.state is State.STARTING:
            self._begin()
        elif self._held_commit_token is not None:
            token, self._held_commit_token = self._held_commit_token, None
            self._shift_to_recover(token)
        elif self._held_token is not None and not self._must_wait_for_clock():
            self._visit_held_token()

    def receive(self, packet: Packet, data: bytes) -> None:
        if isinstance(packet, RegularMessage):
            event = self._event_of_message(packet)
            if event is Event.FOREIGN_MESSAGE and not self.outsiders.is_fresh_message(packet):
                self._output.drop("stale message")
                return
        else:
            event = EVENT_OF_PACKET[type(packet)]
            if isinstance(packet, NOTICES) and not self.outsiders.is_fresh_notice(packet):
                self._output.drop("stale notice")
                return
        if event is Event.FOREIGN_MESSAGE and packet.sender in self.installed.members:
            # A companion's presence, or an echo of a ring that we shared: nobody new.
            return
        TABLE[event][self.state](self, packet, data)

    def is_near(self, message: RegularMessage) -> bool:
        """Whether its numbers are within reach for certain, and nothing more need be asked (reach.py)."""
        return (
            message.src_ring_id[0] <= self.future_ring_seq
            and message.timestamp < CEILING
            and message.timestamp - self._ordering.clock.now < TIMESTAMP_REACH
        )

    def is_near_token(self, token: RegularToken) -> bool:
        """The same of a token."""
        ring = self._token_ring
        return (
            token.ring_id == ring.ring_id
            and 0 <= token.token_seq - ring.my_token_seq <= TOKEN_SEQ_REACH
            and ring.last_sent_seq <= token.seq
            and 0 <= token.seq - ring.my_aru <= SEQ_REACH
            and token.timestamp < CEILING
            and token.timestamp - self._ordering.clock.now < TIMESTAMP_REACH
            and token.retrans_round < CEILING
            and token.bytes_round < CEILING
            and token.backlog < CEILING
            and token.block_seq < CEILING
        )

    def own_numbers(self, packet: Packet) -> Own:
        """What the packet's numbers are compared with before it is received."""
        ring = self._token_ring
        ring_seq, timestamp = max(self.ring_id.seq, self.future_ring_seq), self._ordering.clock.now
        if type(packet) is RegularToken and packet.ring_id != ring.ring_id:
            # Dropped later, for being another ring's.
            return Own(ring_seq, timestamp, packet.token_seq + 1, 0, 0)
        return Own(ring_seq, timestamp, ring.my_token_seq, ring.my_aru, ring.last_sent_seq)

    def _event_of_message(self, message: RegularMessage) -> Event:
        if message.ring_id == self.installed.ring_id:
            return Event.REGULAR_MESSAGE
        if self.forming is not None and message.ring_id == self.forming.ring_id:
            return Event.NEW_RING_MESSAGE
        return Event.FOREIGN_MESSAGE

    def expire(self, timer: Timer) -> None:
        self._output.expired(timer)
        if timer is Timer.TOKEN_LOSS and not self._token_loss.ran_out():
            return
        if timer is Timer.TOKEN_RETRANSMISSION and not self._token_retransmission.ran_out():
            return
        TIMER_TABLE[EVENT_OF_TIMER[timer]][self.state](self)

    def leave(self, more_to_come: bool) -> None:
        if self.state is State.LEFT:
            return
        if not self._leaving:
            self._leaving = True
            self._output.set_timer(Timer.LEAVE, self._config.leave_us)
        self._takes_more = self._takes_more and more_to_come
        if self.state is State.OPERATIONAL:
            self._release_resting_token()

    @property
    def accepts_submissions(self) -> bool:
        return self._takes_more and self.state is not State.LEFT

    # Starting

    def _begin(self) -> None:
        """Installs the singleton ring, then looks for others."""
        self._output.install(ConfigurationKind.REGULAR, self.ring_id, (self._me,), self.ring_id, 0)
        self._output.set_timer(Timer.NULL, self._config.null_us)
        self._shift_to_gather("start")

    # Ordering

    def _after_visit(self, ring: Ring) -> None:
        if self._recovery is not None:
            self._continue_recovery(self._recovery)
        else:
            self._ordering.deliver(ring)
            self._leave_if_done()

    def _on_token_loss_in_operational(self) -> None:
        if self.installed.laggard == self._me:
            # The others have probably gone on without this processor.
            self._bar_laggard((self._me,))
        self._abandon("token loss")

    # Recover (figures 4.11 to 4.13)

    def _shift_to_recover(self, token: CommitToken) -> None:
        self._recovery = Recovery(token.memb_list, self.installed)
        if self._promise and not self._promise <= set(self._recovery.trans_memb):
            self._output.branch("promise carried into a smaller configuration")
        self._rotation_count += 1
        self._enter(State.RECOVER, "commit token")
        self._pass_commit_token(token)

    def _on_commit_token_in_recover(self, token: CommitToken, data: bytes) -> None:
        """Its third arrival at the representative: it becomes the new ring's regular token."""
        assert self.forming is not None
        if not self._is_current(token, self.forming) or self.forming.leader != self._me:
            return
        self._on_token(
            RegularToken(
                sender=token.sender,
                incarnation=token.incarnation,
                ring_id=token.ring_id,
                token_seq=token.token_seq,
                seq=0,
                aru=0,
                timestamp=token.timestamp,
            ),
            data,
        )

    def _on_new_ring_message(self, message: RegularMessage, data: bytes) -> None:
        assert self.forming is not None
        old_data = bytes(message.contents) if message.recovered else b""
        old = self._decode(old_data) if message.recovered else None
        if message.recovered and old is None:
            # Damaged inside. Taken in, it would count as received: it has to come again.
            return
        if not self._ordering.accept(self.forming, Held(message, data)):
            return
        self._note_token_is_alive(self.forming, message)
        if old is not None and old.ring_id == self.installed.ring_id:
            self._take_in_old_message(Held(old, old_data))

    def _take_in_old_message(self, held: Held) -> None:
        assert self._recovery is not None
        self._ordering.take_in(self.installed, held)
        self._recovery.queue.pop(held.message.seq, None)

    def _continue_recovery(self, recovery: Recovery) -> None:
        if recovery.received and self._promise != recovery.deliver_memb:
            # 000 "Failure of Recovery": the promise outlives a recovery that fails.
            self._promise = recovery.deliver_memb
            self._output.branch("promise given")
        if not recovery.complete:
            return
        if self.installed.my_aru < recovery.high_ring_delivered:
            # Somebody said that it had delivered what nobody has.
            self._output.branch("gap below a delivered message")
            self._abandon("gap")
        else:
            self._install_ring(recovery)

    def _on_token_loss_in_recover(self) -> None:
        self._output.branch("recovery failed")
        if self._rotation_count == 2:
            self._output.branch("commit token lost on its second rotation")
        if self._promise:
            self._output.branch("recovery failed after a promise")
        self._abandon("token loss")

    # Install (figure 4.14)

    def _install_ring(self, recovery: Recovery) -> None:
        """Steps 2 to 6, one atomic action: the old ring's messages, then the new ring."""
        assert self.forming is not None
        old, new = self.installed, self.forming
        output = self._output
        deliveries = recovery.deliveries(old)
        for message in deliveries.regular:
            output.deliver(message)
        transitional = RingId(new.ring_id.seq - RING_SEQ_STEP // 2, recovery.trans_memb[0])
        output.install(
            ConfigurationKind.TRANSITIONAL, transitional, recovery.trans_memb, old.ring_id, old.delivered
        )
        for message in deliveries.transitional:
            output.deliver(message)
        output.install(ConfigurationKind.REGULAR, new.ring_id, new.members, new.ring_id, 0)

        self.installed = new
        self.forming = None
        self._recovery = None
        self._consensus = None
        self._promise = frozenset()
        self._ordering.last_originated = 0
        self.outsiders.note_ring(
            old.ring_id,
            set(old.members) - set(new.members),
            new.members,
            self._gathering.fail_set,
            output.now_us,
            self._draw(),
        )
        self._gathering = Gathering(self._me, new.members, self._config.members_max)
        self._limit_segments(new)
        self._enter(State.OPERATIONAL, "ring installed")
        self._ordering.deliver(new)

    # Cells of the tables that have nothing to do

    def _drop(self, packet: Packet, _data: bytes) -> None:
        self._output.drop(f"{type(packet).__name__} in {self.state.name.lower()}")

    def _idle(self) -> None:
        """A timer that was cancelled on entering this state, or has no meaning in it."""


EVENT_OF_PACKET: dict[type, Event] = {
    RegularToken: Event.REGULAR_TOKEN,
    Join: Event.JOIN,
    CommitToken: Event.COMMIT_TOKEN,
    NullMessage: Event.FOREIGN_MESSAGE,
    Leave: Event.LEAVE,
    Wake: Event.WAKE,
}

NOTICES = (NullMessage, Leave, Wake)

_M = Machine
_drop = Machine._drop
_idle = Machine._idle

# Columns: STARTING, OPERATIONAL, GATHER, COMMIT, RECOVER, LEFT.
TABLE: dict[Event, tuple[Callable[..., None], ...]] = {
    Event.REGULAR_TOKEN: (_drop, _M._on_token, _drop, _drop, _M._on_token, _drop),
    Event.REGULAR_MESSAGE: (_drop, _M._on_message, _M._on_message, _M._on_message, _drop, _drop),
    Event.NEW_RING_MESSAGE: (_drop, _drop, _drop, _drop, _M._on_new_ring_message, _drop),
    Event.FOREIGN_MESSAGE: (_drop, _M._on_foreign_message, _M._on_foreign_message, _drop, _drop, _drop),
    Event.JOIN: (
        _drop,
        _M._on_join_in_operational,
        _M._on_join_in_gather,
        _M._on_join_while_forming,
        _M._on_join_while_forming,
        _drop,
    ),
    Event.COMMIT_TOKEN: (
        _drop,
        _drop,
        _M._on_commit_token_in_gather,
        _M._on_commit_token_in_commit,
        _M._on_commit_token_in_recover,
        _drop,
    ),
    Event.LEAVE: (_drop, _M._on_leave, _M._on_leave, _M._on_leave, _M._on_leave, _drop),
    Event.WAKE: (_drop, _M._on_wake, _drop, _drop, _drop, _drop),
}

TIMER_TABLE: dict[Event, tuple[Callable[[Machine], None], ...]] = {
    Event.TOKEN_RETRANSMISSION_TIMEOUT: (
        _idle,
        _M._retransmit_token,
        _idle,
        _M._retransmit_token,
        _M._retransmit_token,
        _idle,
    ),
    Event.TOKEN_LOSS_TIMEOUT: (
        _idle,
        _M._on_token_loss_in_operational,
        _M._on_token_loss_in_gather,
        _M._on_token_loss_in_commit,
        _M._on_token_loss_in_recover,
        _idle,
    ),
    Event.JOIN_TIMEOUT: (_idle, _idle, _M._broadcast_join, _idle, _idle, _idle),
    Event.CONSENSUS_TIMEOUT: (_idle, _idle, _M._on_consensus_timeout, _idle, _idle, _idle),
    Event.HOLD_TIMEOUT: (_idle, _M._release_resting_token, _idle, _idle, _idle, _idle),
    Event.NULL_TIMEOUT: (
        _idle,
        _M._show_presence,
        _M._show_presence,
        _M._show_presence,
        _M._show_presence,
        _idle,
    ),
    Event.LEAVE_TIMEOUT: (
        _M._leave_regardless,
        _M._leave_regardless,
        _M._leave_regardless,
        _M._leave_regardless,
        _M._leave_regardless,
        _idle,
    ),
}
