"""The membership and recovery algorithms around the ordering one (000 §4.2, §4.3, figures 4.3 to 4.14).

How to read it: `TABLE` and `TIMER_TABLE` at the end say what each event does in each state. The methods
follow the paper's order: starting, ordering, gather, commit, recover, install. What is sent, and when timers
run, is decided here; the arithmetic is in `ring`, `flow`, `gathering` and `recovery`.

Deviations, beside those that these modules list:
- a processor starts on the singleton ring numbered stable + 4, not stable: with the number of its last ring
  it would pass for a member of that ring that has lost all messages;
- every Join is numbered, and late or repeated ones are dropped; a stale Join cannot fake a consensus;
- a consensus that leads to no ring is counted alike, whether the token was lost in Gather, Commit or Recover;
- rotation counts start at zero on reaching consensus, so that processors that never saw the Commit token
  are the weakest, whatever they did on their old ring;
- the ring's number is written to stable storage from the Commit token's first visit on, and the token waits
  for it at the second: all members write at the same time, not one after the other while the token waits;
- a Commit token that comes after the Token Loss timeout in Gather is still taken, unless a Join of one of its
  members shows that the ring has been given up; the paper discards it unseen;
- Join timeouts do not occur in Commit (figure 4.9 cancels them; figure 4.10 handles them);
- an idle ring's token rests with the leader, not a little with everyone, until it is woken or the hold
  timeout runs out;
- old-ring messages that arrive in Recover other than through the new ring are dropped: only what all members
  of the new ring receive may change what is delivered on the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from totempole.effects import Stopped, Transmit
from totempole.srp.config import RingConfig
from totempole.srp.gathering import Absorbed, Consensus, Gathering
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Held, Ring
from totempole.srp.states import EVENT_OF_TIMER, Event, State, Timer
from totempole.types import NO_PROCESSOR, ConfigurationKind, ProcessorId, RingId
from totempole.wire.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Wake,
)

RING_SEQ_STEP = 4
"""000 §4.2: a new ring's number is four above the highest; two below it names the transitional one."""


REMEMBERED_MAX = 4_096
"""Processors outside the ring that one remembers anything about; the oldest are forgotten first."""


def _forget_oldest(memory: dict[ProcessorId, Any]) -> None:
    if len(memory) > REMEMBERED_MAX:
        del memory[next(iter(memory))]


class Machine:
    """One processor of the single-ring protocol. Inputs come from `endpoint`, effects go to `output`."""

    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        ring_seq: int,
        config: RingConfig,
        ordering: Ordering,
        output: Output,
        decode: Callable[[bytes], RegularMessage | None],
    ) -> None:
        """`ring_seq` is the highest ring number that stable storage knows of."""
        self._me = me
        self._incarnation = incarnation
        self._config = config
        self._ordering = ordering
        self._output = output
        self._decode = decode

        self.state = State.STARTING
        self.ring_id = RingId(ring_seq + RING_SEQ_STEP, me)
        """my_ring_id: of the most recent Commit token accepted."""
        self.installed = Ring(self.ring_id, (me,), me, config)
        self.forming: Ring | None = None
        self.future_ring_seq = self.ring_id.seq
        self._gathering = Gathering(me, (me,), config.members_max)
        self._consensus: Consensus | None = None
        """The consensus that this processor acts on, from reaching it to installing a ring or giving up."""
        self._recovery: Recovery | None = None
        self._promise: frozenset[ProcessorId] = frozenset()
        """my_deliver_memb, once my_received_flg is true; until a ring is installed."""
        self._my_entry: CommitEntry | None = None
        """What this processor wrote into the Commit token at its first visit."""
        self._rotation_count = 0
        self._counter = 0
        self._joins_seen: dict[ProcessorId, tuple[int, int]] = {}
        self._refused: dict[ProcessorId, frozenset[ProcessorId]] = {}
        """Who did not fit on the ring, and in which company."""
        self._passed: Transmit | None = None
        """The token as last sent, for retransmission."""
        self._held_token: RegularToken | None = None
        self._held_commit_token: CommitToken | None = None
        self._ticket = 0
        """The write that the held token, or the start, waits for."""
        self._clock_ticket = 0
        """The write that moves the bound of the timestamps."""
        self._leaving = False

    # Inputs

    def start(self) -> None:
        """000 §4.2: on stable storage before it is used."""
        self._ticket = self._persist()

    def persisted(self, ticket: int) -> None:
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
        else:
            event = EVENT_OF_PACKET[type(packet)]
        if event is Event.FOREIGN_MESSAGE and packet.sender in self.installed.members:
            # A companion's presence, or an echo of a ring that we shared: nobody new.
            return
        TABLE[event][self.state](self, packet, data)

    def _event_of_message(self, message: RegularMessage) -> Event:
        if message.ring_id == self.installed.ring_id:
            return Event.REGULAR_MESSAGE
        if self.forming is not None and message.ring_id == self.forming.ring_id:
            return Event.NEW_RING_MESSAGE
        return Event.FOREIGN_MESSAGE

    def expire(self, timer: Timer) -> None:
        self._output.expired(timer)
        TIMER_TABLE[EVENT_OF_TIMER[timer]][self.state](self)

    def submitted(self) -> None:
        """There is something to send: an idle ring must not let it wait."""
        if self.state is not State.OPERATIONAL:
            return
        if self._held_token is not None:
            self._release_resting_token()
        elif len(self._ordering.queue) == 1 and self.installed.idle_rounds >= self._config.idle_rounds:
            self._output.send(self.installed.leader, Wake(self._me, self._incarnation, self.ring_id))

    def leave(self) -> None:
        if self._leaving or self.state is State.LEFT:
            return
        self._leaving = True
        self._output.set_timer(Timer.LEAVE, self._config.leave_us)
        if self.state is State.OPERATIONAL:
            self._release_resting_token()

    @property
    def accepts_submissions(self) -> bool:
        return not self._leaving

    # Starting

    def _begin(self) -> None:
        """Installs the singleton ring, then looks for others."""
        self._output.install(ConfigurationKind.REGULAR, self.ring_id, (self._me,), self.ring_id, 0)
        self._output.set_timer(Timer.NULL, self._config.null_us)
        self._shift_to_gather("start")

    def _persist(self) -> int:
        return self._output.persist(
            {
                "incarnation": self._incarnation,
                "ring_seq": self.ring_id.seq,
                "future_ring_seq": self.future_ring_seq,
                "timestamp": self._ordering.clock.to_store,
            }
        )

    def _enter(self, state: State, reason: str) -> None:
        if self._output.traces("state"):
            old = self.state.name.lower()
            self._output.trace("state", detail=f"{old}>{state.name.lower()} {reason}")
        self.state = state

    # Ordering: the regular token and regular messages (figures 4.1, 4.2, 4.4)

    def _on_token(self, token: RegularToken, _data: bytes) -> None:
        ring = self._token_ring
        if token.ring_id != ring.ring_id:
            self._output.drop("token of another ring")
            return
        if token.token_seq < ring.my_token_seq:
            self._output.branch("redundant token")
            return
        ring.my_token_seq = token.token_seq + 1
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
        self._output.cancel_timer(Timer.TOKEN_RETRANSMISSION)
        self._reset_token_loss()

    def _must_wait_for_clock(self) -> bool:
        """000 §5.1: no timestamp is used that stable storage does not cover."""
        clock = self._ordering.clock
        steps = self._config.each_time_packets
        if clock.runs_low(steps):
            clock.begin_write()
            self._clock_ticket = self._persist()
        if clock.outruns_storage(steps):
            self._ticket = self._clock_ticket
            return True
        return False

    @property
    def _token_ring(self) -> Ring:
        return self.installed if self.forming is None else self.forming

    def _may_rest(self, ring: Ring, token: RegularToken) -> bool:
        """An idle ring's token waits with the leader."""
        return (
            ring.idle_rounds >= self._config.idle_rounds
            and ring.leader == self._me
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
        blamed = self._ordering.is_blamed(ring, token)
        if blamed != NO_PROCESSOR:
            self._output.branch("failure to receive")
            self._gathering.fail(blamed)
            self._abandon("failure to receive")
            return
        self._rotation_count += 1
        self._passed = self._ordering.visit(ring, token, self._recovery)
        self._output.set_timer(Timer.TOKEN_RETRANSMISSION, self._config.token_retransmission_us)
        self._reset_token_loss()
        if self._recovery is not None:
            self._continue_recovery(self._recovery)
        else:
            self._ordering.deliver(ring)
            self._leave_if_done()

    def _reset_token_loss(self) -> None:
        self._output.set_timer(Timer.TOKEN_LOSS, self._config.token_loss_us)

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
            self._output.cancel_timer(Timer.TOKEN_RETRANSMISSION)
            if self._held_token is None:
                self._reset_token_loss()

    def _on_foreign_message(self, message: Packet, _data: bytes) -> None:
        """Somebody else is out there. If it is recovering, it is not to be disturbed."""
        recovering = isinstance(message, RegularMessage) and message.recovered
        company = self._refused.get(message.sender, ())
        if recovering or not self._gathering.fits(company) or not self._gathering.add(message.sender):
            self._output.drop("foreign message")
            return
        if isinstance(message, NullMessage) and self.state is State.OPERATIONAL:
            self._output.branch("idle rings meet")
        self._shift_to_gather("foreign message")

    def _refuse(self, processor: ProcessorId, company: frozenset[ProcessorId]) -> None:
        """The ring is full. Until it is smaller, what that processor says is not worth a new membership."""
        self._output.branch("no room on the ring")
        self._refused[processor] = company
        _forget_oldest(self._refused)

    def _on_wake(self, wake: Wake, _data: bytes) -> None:
        if wake.ring_id == self.installed.ring_id:
            # Whether the token is here or still on its way.
            self.installed.idle_rounds = 0
            self._release_resting_token()

    def _retransmit_token(self) -> None:
        if self._passed is not None:
            self._output.branch("token retransmitted")
            self._output.add(self._passed)
            self._output.set_timer(Timer.TOKEN_RETRANSMISSION, self._config.token_retransmission_us)

    def _show_presence(self) -> None:
        """000 appendix A: two idle rings on a mended network would otherwise never meet."""
        quiet_us = self._output.now_us - self._output.last_multicast_us
        if self.state is State.OPERATIONAL and quiet_us >= self._config.null_us:
            self._multicast(NullMessage(self._me, self._incarnation, self.ring_id))
        self._output.set_timer(Timer.NULL, self._config.null_us)

    def _multicast(self, packet: Packet) -> None:
        self._output.multicast(packet, self._output.encode(packet))

    # Leaving

    def _leave_if_done(self) -> None:
        done = not self._ordering.queue and self.installed.safe_up_to >= self._ordering.last_originated
        if self._leaving and done:
            self._say_farewell("left")

    def _leave_regardless(self) -> None:
        self._say_farewell("leave timeout")

    def _say_farewell(self, reason: str) -> None:
        if self.state is not State.STARTING:
            self._multicast(Leave(self._me, self._incarnation, self.ring_id))
        for timer in Timer:
            self._output.cancel_timer(timer)
        self._forget_token()
        self._enter(State.LEFT, reason)
        self._output.add(Stopped())

    def _on_leave(self, leave: Leave, _data: bytes) -> None:
        stale = leave.ring_id.seq < self.installed.ring_id.seq
        if stale or leave.sender not in self._gathering.proc_set:
            self._output.drop("leave that does not concern us")
            return
        if self._gathering.fail(leave.sender):
            self._output.branch("graceful leave")
            self._abandon("leave")

    # Gather (figures 4.5 to 4.8)

    def _shift_to_gather(self, reason: str) -> None:
        self._forget_token()
        self._consensus = None
        self._enter(State.GATHER, reason)
        for timer in (Timer.TOKEN_LOSS, Timer.TOKEN_RETRANSMISSION, Timer.HOLD):
            self._output.cancel_timer(timer)
        self._broadcast_join()
        self._output.set_timer(Timer.CONSENSUS, self._config.consensus_us)
        self._try_to_form()

    def _forget_token(self) -> None:
        """discard_regular_token: from here on this processor is on no ring that has one."""
        self.forming = None
        self._recovery = None
        self._passed = None
        self._held_token = None
        self._held_commit_token = None
        self._ticket = 0

    def _broadcast_join(self) -> None:
        self._multicast(self._new_join())
        self._output.set_timer(Timer.JOIN, self._config.join_us)

    def _new_join(self) -> Join:
        self._counter += 1
        proc_set, fail_set = self._gathering.sets
        return Join(
            sender=self._me,
            incarnation=self._incarnation,
            counter=self._counter,
            ring_seq=self.ring_id.seq,
            future_ring_seq=self.future_ring_seq,
            proc_set=proc_set,
            fail_set=fail_set,
            rotation_count=self._rotation_count,
        )

    def _is_fresh(self, join: Join) -> bool:
        stamp = (join.incarnation, join.counter)
        if stamp <= self._joins_seen.get(join.sender, (0, 0)):
            self._output.drop("stale join")
            return False
        self._joins_seen[join.sender] = stamp
        _forget_oldest(self._joins_seen)
        return True

    def _absorb(self, join: Join) -> Absorbed:
        if not self._gathering.fits(join.proc_set):
            self._refuse(join.sender, join.proc_set)
        before = set(self._gathering.fail_set)
        absorbed = self._gathering.absorb(join)
        suspects = self._gathering.fail_set - before
        if suspects and self._output.traces("suspect"):
            self._output.trace("suspect", origin=join.sender, members=tuple(sorted(suspects)))
        return absorbed

    def _on_join_in_operational(self, join: Join, _data: bytes) -> None:
        if not self._is_fresh(join):
            return
        expelled = self._me in join.fail_set
        late = join.sender in self._gathering.proc_set and join.ring_seq < self.ring_id.seq
        if expelled or late:
            self._output.drop("join that does not concern us")
            return
        if not self._gathering.fits(join.proc_set):
            self._refuse(join.sender, join.proc_set)
            # So that it knows who is here, and need not ask again.
            self._output.send(join.sender, self._new_join())
            return
        self._absorb(join)
        self._shift_to_gather("join")

    def _on_join_in_gather(self, join: Join, _data: bytes) -> None:
        if not self._is_fresh(join):
            return
        match self._absorb(join):
            case Absorbed.AGREES:
                self._try_to_form()
            case Absorbed.CHANGED:
                self._shift_to_gather("join")
            case Absorbed.IGNORED:
                pass

    def _on_join_while_forming(self, join: Join, _data: bytes) -> None:
        """Figures 4.10, 4.12: a member that has given up the new ring says so with that ring's number."""
        assert self.forming is not None
        if not self._is_fresh(join):
            return
        if join.sender not in self.forming.members or join.ring_seq < self.ring_id.seq:
            self._output.drop("join that does not concern us")
            return
        self._output.branch("new ring given up by a member")
        self._gathering.note_fruitless(self._consensus)
        self._absorb(join)
        self._shift_to_gather("join")

    def _try_to_form(self) -> None:
        gathering = self._gathering
        if self._consensus is not None or not gathering.consensus:
            return
        if gathering.exhausted:
            self._output.branch("same membership twice")
            gathering.fail_the_weakest(self._rotation_count)
            self._shift_to_gather("same membership twice")
            return
        self._consensus = gathering.sets
        self._rotation_count = 0
        self._output.cancel_timer(Timer.CONSENSUS)
        if gathering.candidates[0] == self._me:
            self._shift_to_commit(self._new_commit_token())
        else:
            self._reset_token_loss()

    def _new_commit_token(self) -> CommitToken:
        highest = max(self.ring_id.seq, self.future_ring_seq, self._gathering.highest_ring_seq())
        blank = RingId(0, NO_PROCESSOR)
        self._counter += 1
        return CommitToken(
            sender=self._me,
            incarnation=self._incarnation,
            counter=self._counter,
            ring_id=RingId(highest + RING_SEQ_STEP, self._me),
            token_seq=0,
            timestamp=self._ordering.clock.now,
            memb_index=0,
            memb_list=tuple(CommitEntry(q, blank, 0, 0, ()) for q in self._gathering.candidates),
        )

    def _on_consensus_timeout(self) -> None:
        self._output.branch("consensus timeout")
        self._gathering.fail_the_silent()
        self._gathering.joins.clear()
        self._shift_to_gather("consensus timeout")

    def _on_token_loss_in_gather(self) -> None:
        self._output.branch("commit token lost before it came")
        self._gathering.note_fruitless(self._consensus)
        self._gathering.joins.clear()
        self._shift_to_gather("token loss")

    def _on_commit_token_in_gather(self, token: CommitToken, _data: bytes) -> None:
        members = tuple(entry.processor for entry in token.memb_list)
        first_rotation = token.token_seq < len(members)
        newer = token.ring_id.seq > max(self.ring_id.seq, self._gathering.highest_ring_seq())
        if (
            first_rotation
            and newer
            and members == self._gathering.candidates
            and not self._gathering.exhausted
        ):
            self._consensus = self._gathering.sets
            self._shift_to_commit(token)
        else:
            self._output.drop("commit token that does not concern us")

    # Commit (figures 4.9, 4.10)

    def _shift_to_commit(self, token: CommitToken) -> None:
        """The Commit token's first visit: say what this processor has of its old ring."""
        members = tuple(entry.processor for entry in token.memb_list)
        self.ring_id = token.ring_id
        self.future_ring_seq = max(self.future_ring_seq, token.ring_id.seq)
        self.forming = Ring(token.ring_id, members, self._me, self._config)
        self._ordering.clock.witness(token.timestamp)
        self._rotation_count = 1
        self._gathering.joins.clear()
        self._output.cancel_timer(Timer.JOIN)
        self._output.cancel_timer(Timer.CONSENSUS)
        self._enter(State.COMMIT, "consensus")
        self._ticket = self._persist()
        self._my_entry = mine = self._new_entry()
        entries = tuple(mine if entry.processor == self._me else entry for entry in token.memb_list)
        self._pass_commit_token(token._replace(memb_list=entries))

    def _new_entry(self) -> CommitEntry:
        old = self.installed
        return CommitEntry(
            processor=self._me,
            old_ring_id=old.ring_id,
            old_ring_aru=old.my_aru,
            high_delivered=old.delivered,
            deliver_memb=tuple(sorted(self._promise)),
            filled=True,
        )

    def _pass_commit_token(self, token: CommitToken) -> None:
        assert self.forming is not None
        index = self.forming.members.index(self._me)
        self.forming.my_token_seq = token.token_seq + 1
        self._passed = self._output.pass_token(
            self.forming.successor,
            token._replace(
                sender=self._me,
                incarnation=self._incarnation,
                token_seq=token.token_seq + 1,
                timestamp=max(token.timestamp, self._ordering.clock.now),
                memb_index=index,
            ),
        )
        self._output.set_timer(Timer.TOKEN_RETRANSMISSION, self._config.token_retransmission_us)
        self._reset_token_loss()

    def _on_commit_token_in_commit(self, token: CommitToken, _data: bytes) -> None:
        """The second visit: the token goes on once the ring's number is on stable storage."""
        assert self.forming is not None
        if not self._is_current(token, self.forming):
            return
        self.forming.my_token_seq = token.token_seq + 1
        self._ordering.clock.witness(token.timestamp)
        if self._ticket:
            self._held_commit_token = token
        else:
            self._shift_to_recover(token)

    def _is_current(self, token: CommitToken, forming: Ring) -> bool:
        if token.ring_id != forming.ring_id or token.token_seq < forming.my_token_seq:
            self._output.branch("redundant commit token")
            return False
        complete = all(entry.filled for entry in token.memb_list)
        members = tuple(entry.processor for entry in token.memb_list)
        # A life that ended before its write was done may have used this number for another ring.
        return complete and members == forming.members and self._my_entry in token.memb_list

    def _on_token_loss_in_commit(self) -> None:
        if self._held_commit_token is not None:
            # Not lost: it waits here for our own disk. The others may lose patience, and will say so.
            self._reset_token_loss()
            return
        self._output.branch("commit token lost on its first rotation")
        self._abandon("token loss")

    def _abandon(self, reason: str) -> None:
        """Gives up the ring, installed or forming, and gathers anew.

        What the failed recovery brought of the old ring stays (its aru may have increased), and so does the
        promise; what was received on the new ring goes.
        """
        if self.forming is not None:
            self._gathering.note_fruitless(self._consensus)
        self._shift_to_gather(reason)

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
                sender=self._me,
                incarnation=self._incarnation,
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
        old = self._decode(message.contents) if message.recovered else None
        if message.recovered and old is None:
            # Damaged inside. Taken in, it would count as received: it has to come again.
            return
        if not self._ordering.accept(self.forming, Held(message, data)):
            return
        self._note_token_is_alive(self.forming, message)
        if old is not None and old.ring_id == self.installed.ring_id:
            self._take_in_old_message(Held(old, message.contents))

    def _take_in_old_message(self, held: Held) -> None:
        assert self._recovery is not None
        self._ordering.accept(self.installed, held)
        self._recovery.queue.pop(held.message.seq, None)

    def _continue_recovery(self, recovery: Recovery) -> None:
        if recovery.received and self._promise != recovery.deliver_memb:
            # 000 "Failure of Recovery": the promise outlives a recovery that fails.
            self._promise = recovery.deliver_memb
            self._output.branch("promise given")
        if recovery.complete:
            self._install_ring(recovery)

    def _on_token_loss_in_recover(self) -> None:
        self._output.branch("recovery failed")
        if self._rotation_count == 2:
            self._output.branch("commit token lost on its second rotation")
        if self._promise:
            self._output.branch("recovery failed after a promise")
        self._abandon("token loss")

    def _on_token_loss_in_operational(self) -> None:
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
        self._gathering = Gathering(self._me, new.members, self._config.members_max)
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
