"""One processor of the single-ring protocol: the table of what each event does in each state, and the
transitions between states (Totem §4.2, figure 4.3).

How to read it: the tables below say what each event does in each state. Each column is a class, with the
module of its name: `operational` (§4.1), `gather` and `commit` (§4.2), `recover` (§4.3); `phase` has the two
states that the paper does not have. What outlives a state is in `processor`, what is thought of the others in
`peers`. Each state is entered here and nowhere else, with the reason that the trace shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from totempole.srp.commit import Commit
from totempole.srp.config import RingConfig
from totempole.srp.forming import Forming
from totempole.srp.gather import Gather
from totempole.srp.gathering import Consensus
from totempole.srp.operational import Operational
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.outsiders import Outsiders
from totempole.srp.packets import (
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Unordered,
    Wake,
)
from totempole.srp.phase import Left, Phase, Starting
from totempole.srp.processor import Decode, Processor
from totempole.srp.reach import CEILING, SEQ_REACH, TIMESTAMP_REACH, TOKEN_SEQ_REACH, Own
from totempole.srp.recover import Recover
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Ring
from totempole.srp.states import EVENT_OF_TIMER, Event, State, Timer
from totempole.srp.timeouts import Timeouts
from totempole.srp.token_holder import TokenHolder
from totempole.types import ProcessorId, RingId

Row = tuple[Callable[..., None], ...]
"""What an event does in each state. Columns: STARTING, OPERATIONAL, GATHER, COMMIT, RECOVER, LEFT."""

_drop = Phase.drop
_idle = Phase.idle

# Packets that arrive.
TABLE: dict[Event, Row] = {
    Event.REGULAR_TOKEN: (_drop, Operational.on_token, _drop, _drop, Recover.on_token, _drop),
    Event.REGULAR_MESSAGE: (
        _drop,
        Operational.on_message,
        Gather.on_message,
        Commit.on_message,
        _drop,
        _drop,
    ),
    Event.NEW_RING_MESSAGE: (_drop, _drop, _drop, _drop, Recover.on_new_ring_message, _drop),
    Event.FOREIGN_MESSAGE: (
        _drop,
        Operational.on_foreign_message,
        Gather.on_foreign_message,
        _drop,
        _drop,
        _drop,
    ),
    Event.JOIN: (_drop, Operational.on_join, Gather.on_join, Commit.on_join, Recover.on_join, _drop),
    Event.COMMIT_TOKEN: (
        _drop,
        _drop,
        Gather.on_commit_token,
        Commit.on_commit_token,
        Recover.on_commit_token,
        _drop,
    ),
    Event.LEAVE: (_drop, Operational.on_leave, Gather.on_leave, Commit.on_leave, Recover.on_leave, _drop),
    Event.WAKE: (_drop, Operational.on_wake, _drop, _drop, _drop, _drop),
    Event.UNORDERED: (_drop, Operational.on_unordered, _drop, _drop, _drop, _drop),
}

# Timers that run out.
TIMER_TABLE: dict[Event, Row] = {
    Event.TOKEN_RETRANSMISSION_TIMEOUT: (
        _idle,
        Operational.on_token_retransmission_timeout,
        _idle,
        Commit.on_token_retransmission_timeout,
        Recover.on_token_retransmission_timeout,
        _idle,
    ),
    Event.TOKEN_LOSS_TIMEOUT: (
        _idle,
        Operational.on_token_loss,
        Gather.on_token_loss,
        Commit.on_token_loss,
        Recover.on_token_loss,
        _idle,
    ),
    Event.JOIN_TIMEOUT: (_idle, _idle, Gather.broadcast_join, _idle, _idle, _idle),
    Event.CONSENSUS_TIMEOUT: (_idle, _idle, Gather.on_consensus_timeout, _idle, _idle, _idle),
    Event.HOLD_TIMEOUT: (_idle, Operational.release_resting_token, _idle, _idle, _idle, _idle),
    Event.NULL_TIMEOUT: (
        _idle,
        Operational.on_null_timeout,
        Gather.on_null_timeout,
        Commit.on_null_timeout,
        Recover.on_null_timeout,
        _idle,
    ),
    Event.LEAVE_TIMEOUT: (
        Starting.on_leave_timeout,
        Operational.on_leave_timeout,
        Gather.on_leave_timeout,
        Commit.on_leave_timeout,
        Recover.on_leave_timeout,
        _idle,
    ),
}

# What this processor's own node tells it.
OWN_TABLE: dict[Event, Row] = {
    Event.STARTED: (Starting.on_started, _idle, _idle, _idle, _idle, _idle),
    Event.WRITTEN: (
        Starting.on_written,
        Operational.on_written,
        _idle,
        Commit.on_written,
        Recover.on_written,
        _idle,
    ),
    Event.SUBMITTED: (_idle, Operational.on_submitted, _idle, _idle, _idle, _idle),
    Event.LEAVE_ASKED: (_idle, Operational.release_resting_token, _idle, _idle, _idle, _idle),
}

EVENT_OF_PACKET: dict[type, Event] = {
    RegularToken: Event.REGULAR_TOKEN,
    Join: Event.JOIN,
    CommitToken: Event.COMMIT_TOKEN,
    NullMessage: Event.FOREIGN_MESSAGE,
    Leave: Event.LEAVE,
    Wake: Event.WAKE,
    Unordered: Event.UNORDERED,
}

NOTICES = (NullMessage, Leave, Wake, Unordered)

TRANSITIONS = {
    State.STARTING: (State.GATHER, State.LEFT),
    State.OPERATIONAL: (State.GATHER, State.LEFT),
    State.GATHER: (State.GATHER, State.COMMIT, State.LEFT),
    State.COMMIT: (State.GATHER, State.RECOVER, State.LEFT),
    State.RECOVER: (State.GATHER, State.OPERATIONAL, State.LEFT),
    State.LEFT: (),
}
"""Figure 4.3, and the two states outside it."""


class Machine:
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
        decode: Decode,
    ) -> None:
        self.processor = Processor(me, incarnation, ring_seq, config, ordering, output, draw, decode)
        self._output = output
        self._clock = ordering.clock
        self.current: Phase = Starting(self.processor, self)
        """The state that this processor is in."""

    # Inputs

    def start(self) -> None:
        OWN_TABLE[Event.STARTED][self.current.state](self.current)

    def persisted(self, ticket: int) -> None:
        if self._output.traces("persisted"):
            self._output.trace("persisted", count=ticket)
        self.processor.note_written(ticket)
        OWN_TABLE[Event.WRITTEN][self.current.state](self.current, ticket)

    def receive(self, packet: Packet, data: bytes) -> None:
        processor, current = self.processor, self.current
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
        if event is Event.FOREIGN_MESSAGE and packet.sender in processor.installed.members:
            # A companion's presence, or an echo of a ring that we shared: nobody new.
            return
        TABLE[event][current.state](current, packet, data)

    def _event_of_message(self, message: RegularMessage) -> Event:
        if message.ring_id == self.processor.installed.ring_id:
            return Event.REGULAR_MESSAGE
        if message.ring_id == self.current.ring.ring_id:
            return Event.NEW_RING_MESSAGE
        return Event.FOREIGN_MESSAGE

    def expire(self, timer: Timer) -> None:
        self._output.expired(timer)
        if timer is Timer.TOKEN_LOSS and not self.processor.token_loss.ran_out():
            return
        if timer is Timer.TOKEN_RETRANSMISSION and not self.processor.token_retransmission.ran_out():
            return
        TIMER_TABLE[EVENT_OF_TIMER[timer]][self.current.state](self.current)

    def submitted(self) -> None:
        """There is something to send: an idle ring must not let it wait."""
        OWN_TABLE[Event.SUBMITTED][self.current.state](self.current)

    def send_unordered(self, contents: bytes) -> None:
        """To the other members of the ring, if there is one with others at present."""
        processor = self.processor
        if self.state is State.OPERATIONAL and len(processor.installed.members) > 1:
            message = Unordered(
                processor.me, processor.incarnation, processor.count(), processor.ring_id, contents
            )
            self._output.send_unordered(message)

    def leave(self, more_to_come: bool) -> None:
        if self.state is not State.LEFT:
            self.processor.begin_leaving(more_to_come)
            OWN_TABLE[Event.LEAVE_ASKED][self.current.state](self.current)

    # Transitions

    def to_gather(self, reason: str) -> None:
        """Discards the token: from here on this processor is on no ring that has one."""
        current = self.current
        gather = current if isinstance(current, Gather) else Gather(self.processor, self)
        self._enter(gather, reason)
        gather.begin()

    def to_commit(self, token: CommitToken, consensus: Consensus) -> None:
        commit = Commit(self.processor, self, Forming(self.processor, token, consensus))
        self._enter(commit, "consensus", self.processor.peers.gathering.fail_set)
        commit.begin(token)

    def to_recover(self, forming: Forming, recovery: Recovery, token: CommitToken) -> None:
        recover = Recover(self.processor, self, forming, recovery)
        self._enter(recover, "commit token")
        recover.begin(token)

    def to_operational(self, holder: TokenHolder) -> None:
        operational = Operational(self.processor, self, holder)
        self._enter(operational, "ring installed")
        operational.begin()

    def to_left(self, reason: str) -> None:
        """Says farewell, unless nobody has heard of this life."""
        processor = self.processor
        if self.state is not State.STARTING:
            leave = Leave(processor.me, processor.incarnation, processor.count(), processor.ring_id)
            processor.multicast(leave)
        for timer in Timer:
            self._output.cancel_timer(timer)
        self._enter(Left(processor, self), reason)
        self._output.stopped()

    def _enter(self, phase: Phase, reason: str, failed: Iterable[ProcessorId] = ()) -> None:
        assert phase.state in TRANSITIONS[self.state], f"{self.state.name} to {phase.state.name} ({reason})"
        assert phase.processor is self.processor, "the state of another processor"
        if self._output.traces("state"):
            ring = phase.ring
            self._output.trace(
                "state",
                ring=ring.ring_id,
                members=tuple(sorted(ring.members)),
                failed=tuple(sorted(failed)),
                old_state=self.state.name.lower(),
                new_state=phase.state.name.lower(),
                reason=reason,
            )
        self.current = phase

    # What others ask

    @property
    def state(self) -> State:
        return self.current.state

    @property
    def installed(self) -> Ring:
        return self.processor.installed

    @property
    def ring_id(self) -> RingId:
        return self.processor.ring_id

    @property
    def future_ring_seq(self) -> int:
        return self.processor.future_ring_seq

    @property
    def timeouts(self) -> Timeouts:
        return self.processor.timeouts

    @property
    def outsiders(self) -> Outsiders:
        return self.processor.peers.outsiders

    @property
    def counter(self) -> int:
        return self.processor.counter

    @property
    def accepts_submissions(self) -> bool:
        return self.processor.takes_more and self.state is not State.LEFT

    def is_near(self, message: RegularMessage) -> bool:
        """Whether its numbers are within reach for certain, and nothing more need be asked (reach.py)."""
        return (
            message.src_ring_id[0] <= self.processor.future_ring_seq
            and message.timestamp < CEILING
            and message.timestamp - self._clock.now < TIMESTAMP_REACH
        )

    def is_near_token(self, token: RegularToken) -> bool:
        """The same of a token."""
        ring = self.current.ring
        return (
            token.ring_id == ring.ring_id
            and 0 <= token.token_seq - ring.my_token_seq <= TOKEN_SEQ_REACH
            and ring.last_sent_seq <= token.seq
            and 0 <= token.seq - ring.my_aru <= SEQ_REACH
            and token.timestamp < CEILING
            and token.timestamp - self._clock.now < TIMESTAMP_REACH
            and token.retrans_round < CEILING
            and token.bytes_round < CEILING
            and token.backlog < CEILING
            and token.block_seq < CEILING
        )

    def awaits(self, token: RegularToken) -> bool:
        """Whether it is the one that this processor would take next."""
        holds = self.state is State.OPERATIONAL or self.state is State.RECOVER
        return holds and token.sender == self.current.ring.predecessor and self.is_near_token(token)

    def due_up_to(self, token: RegularToken) -> int:
        """Messages of the ring that are asked for when this token is taken, if they are missing."""
        recovering = self.state is State.RECOVER
        return self.processor.ordering.due_up_to(self.current.ring, token, recovering)

    def own_numbers(self, packet: Packet) -> Own:
        """What the packet's numbers are compared with before it is received."""
        processor, ring = self.processor, self.current.ring
        ring_seq, timestamp = max(processor.ring_id.seq, processor.future_ring_seq), self._clock.now
        if type(packet) is RegularToken and (
            packet.ring_id != ring.ring_id or packet.sender != ring.predecessor
        ):
            # Never taken: another ring's, or one that is handed on or sent back.
            return Own(ring_seq, timestamp, packet.token_seq + 1, 0, 0)
        return Own(ring_seq, timestamp, ring.my_token_seq, ring.my_aru, ring.last_sent_seq)
