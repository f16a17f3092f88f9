"""Agreeing on who is on the next ring: Gather and Commit, and leaving (000 §4.2, figures 4.4 to 4.10).

What a processor believes about the others is in `gathering`; here is when it says so, and what makes it.

Deviations:
- every Join is numbered, and late or repeated ones are dropped; a stale Join cannot fake a consensus;
- a consensus that leads to no ring is counted alike, whether the token was lost in Gather, Commit or Recover;
- rotation counts start at zero on reaching consensus, so that processors that never saw the Commit token
  are the weakest, whatever they did on their old ring;
- the ring's number is written to stable storage from the Commit token's first visit on, and the token waits
  for it at the second: all members write at the same time, not one after the other while the token waits;
- a Commit token that comes after the Token Loss timeout in Gather is still taken, unless a Join of one of its
  members shows that the ring has been given up; the paper discards it unseen;
- a processor in Commit goes back to Gather as soon as a member's Join shows that this member wants a larger
  ring and refuses the Commit token. Figure 4.10 ignores Joins with an old ring's number, so the processor
  waits for the Token Loss timeout. The consensus timeouts of the others may expire before it, and healthy
  processors are then regarded as failed;
- a processor that waits in Gather for a Commit token ends this wait as soon as a member's Join shows that the
  ring has been given up. Otherwise it takes the Joins of the second attempt for those of the first, forgets
  them at its Token Loss timeout, and regards the others as failed while they are silent in Commit;
- a processor waits after each Join before it broadcasts the next, an eighth of the join timeout at first and
  twice as long each time; what it learns meanwhile goes out together. The paper broadcasts a Join at every
  change, so that n processors that start together send n * n of them and drown in them;
- a processor that was expelled as a laggard, or was left out of the ring several times, is for some time no
  reason to form a new one (outsiders.py, docs/decisions/0008-laggards.md);
- a Commit token counts only from the predecessor on the ring that it forms;
- the consensus timeout is a little longer each time, at random (003): processors whose timeouts ran in step
  would give each other up at the same instant;
- a Join tells the largest datagram that its sender can take, and a ring's packets are cut for its members;
- Join timeouts do not occur in Commit (figure 4.9 cancels them; figure 4.10 handles them).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection

from totempole.srp.alarms import SettingsDiffer
from totempole.srp.config import RingConfig
from totempole.srp.gathering import ATTEMPTS_MAX, Absorbed, Consensus, Gathering
from totempole.srp.ordering import LAGGARD, Blame, Ordering
from totempole.srp.output import Output
from totempole.srp.outsiders import Outsiders, remember
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    SharedSettings,
)
from totempole.srp.passing import RING_SEQ_STEP, TokenPassing
from totempole.srp.ring import Ring, predecessor_of
from totempole.srp.states import State, Timer
from totempole.srp.timeouts import NEVER
from totempole.types import NO_RING, ProcessorId, RingId

JOINS_PER_TIMEOUT = 8
"""How often a Join may be broadcast in a join timeout, at the beginning of Gather."""

CONSENSUS_SPREAD_PERCENT = 25
"""How much longer than set a consensus timeout may be."""


class Membership(TokenPassing):
    """The membership side of a processor."""

    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        ring_seq: int,
        config: RingConfig,
        ordering: Ordering,
        output: Output,
        draw: Callable[[], float],
    ) -> None:
        """`draw` gives random numbers from 0 to 1."""
        super().__init__(me, incarnation, ring_seq, config, ordering, output)
        self._draw = draw
        self.outsiders = Outsiders(config)
        self._settings = SharedSettings(*(getattr(config, name) for name in SharedSettings._fields))
        self._settings_told: dict[ProcessorId, SharedSettings] = {}
        """Of processors whose settings differ, so that each difference is reported once."""
        self._gathering = Gathering(me, (me,), config.members_max)
        self._consensus: Consensus | None = None
        """The consensus that this processor acts on, from reaching it to installing a ring or giving up."""
        self._promise: frozenset[ProcessorId] = frozenset()
        """my_deliver_memb, once my_received_flg is true; until a ring is installed."""
        self._my_entry: CommitEntry | None = None
        """What this processor wrote into the Commit token at its first visit."""
        self._held_commit_token: CommitToken | None = None
        self._joined_us = -NEVER
        """When this processor last broadcast a Join."""
        self._join_gap_us = 0
        """How long it waits after that one."""
        self._join_is_due = False
        """A Join is held back that would say something new."""
        self._segment_bytes: dict[ProcessorId, int] = {}
        """The largest datagram that others can take, as they say."""

    @abstractmethod
    def _shift_to_recover(self, token: CommitToken) -> None:
        """The Commit token's second visit, with everyone's word in it."""

    # What starts a new membership (figure 4.4)

    def _on_foreign_message(self, message: Packet, _data: bytes) -> None:
        """Somebody else is out there. If it is recovering, it is not to be disturbed."""
        if isinstance(message, NullMessage):
            # It may have started long ago, and its Joins gone to nobody.
            self._output.heard(message.sender, just_now=False)
            if self._gathering.has_room_for(message.members):
                self.outsiders.note_room(message.sender)
        recovering = isinstance(message, RegularMessage) and message.recovered
        if recovering or not self._is_worth_a_ring(message.sender) or not self._gathering.add(message.sender):
            self._output.drop("foreign message")
            return
        if isinstance(message, NullMessage) and self.state is State.OPERATIONAL:
            self._output.branch("idle rings meet")
        self._shift_to_gather("foreign message")

    def _is_worth_a_ring(self, processor: ProcessorId) -> bool:
        """Whether a new membership for its sake has a chance."""
        outsiders, now_us = self.outsiders, self._output.now_us
        if outsiders.fails_often(processor, now_us):
            self._output.branch("called again later")
            return False
        return (
            not self._is_barred(processor)
            and not outsiders.is_shunned_by(processor, now_us)
            and self._gathering.fits(outsiders.refused_company(processor))
        )

    def _refuse(self, processor: ProcessorId, company: frozenset[ProcessorId]) -> None:
        self._output.branch("no room on the ring")
        self.outsiders.refuse(processor, company)

    def _expel(self, blame: Blame) -> None:
        self._output.branch(blame.reason)
        self._gathering.fail(blame.processor)
        if blame.reason == LAGGARD:
            self._bar_laggard(self._gathering.fail_set)
        self._abandon(blame.reason)

    def _bar_laggard(self, expelled: Collection[ProcessorId]) -> None:
        """Whoever saw the processor lag does not want it back at once, and it knows that by itself."""
        ring = self._token_ring
        if ring.notorious == self._me and self._me in expelled:
            self.outsiders.note_shunned(ring.members, self._output.now_us)
        elif ring.notorious in expelled:
            self.outsiders.bar(ring.notorious, self._output.now_us)

    def _is_barred(self, processor: ProcessorId) -> bool:
        barred = self.outsiders.is_barred(processor, self._output.now_us)
        if barred:
            self._output.branch("laggard not taken back yet")
        return barred

    def _is_called_in_vain(self, join: Join) -> bool:
        """By one with whom there was no ring lately: its Join does not name this processor, or belongs to the
        attempt that failed."""
        outsiders, now_us = self.outsiders, self._output.now_us
        if self._me not in join.proc_set and outsiders.fails_often(join.sender, now_us):
            return True
        attempt_us = ATTEMPTS_MAX * (self.timeouts.token_loss_us + self.timeouts.consensus_us)
        return outsiders.still_tries(join.sender, now_us, attempt_us)

    def _on_leave(self, leave: Leave, _data: bytes) -> None:
        stale = leave.ring_id.seq < self.installed.ring_id.seq
        if stale or leave.sender not in self._gathering.proc_set:
            self._output.drop("leave that does not concern us")
            return
        if self._gathering.fail(leave.sender):
            self._output.branch("graceful leave")
            self._abandon("leave")

    def _abandon(self, reason: str) -> None:
        """Gives up the ring, installed or forming, and gathers anew.

        What the failed recovery brought of the old ring stays (its aru may have increased), and so does the
        promise; what was received on the new ring goes.
        """
        if self.forming is not None:
            self._gathering.note_fruitless(self._consensus)
        self._shift_to_gather(reason)

    # Gather (figures 4.5 to 4.8)

    def _shift_to_gather(self, reason: str) -> None:
        self._forget_token()
        self._consensus = None
        if self.state is not State.GATHER:
            self._join_gap_us = self.timeouts.join_us // JOINS_PER_TIMEOUT
        self._enter(State.GATHER, reason)
        self._token_loss.cancel()
        self._token_retransmission.cancel()
        self._output.cancel_timer(Timer.HOLD)
        self._broadcast_join_when_due()
        self._output.set_timer(Timer.CONSENSUS, self._consensus_us())
        self._try_to_form()

    def _consensus_us(self) -> int:
        percent = 100 + int(CONSENSUS_SPREAD_PERCENT * self._draw())
        return self.timeouts.consensus_us * percent // 100

    def _forget_token(self) -> None:
        """discard_regular_token: from here on this processor is on no ring that has one."""
        self.forming = None
        self._recovery = None
        self._passed = None
        self._held_token = None
        self._held_commit_token = None
        self._ticket = 0

    def _broadcast_join_when_due(self) -> None:
        """At once, or when the last one is old enough: by then there may be more to say."""
        wait_us = self._joined_us + self._join_gap_us - self._output.now_us
        if wait_us <= 0:
            self._broadcast_join()
        elif not self._join_is_due:
            self._output.branch("join held back")
            self._join_is_due = True
            self._output.set_timer(Timer.JOIN, wait_us)

    def _broadcast_join(self) -> None:
        self._multicast(self._new_join())
        self._join_is_due = False
        self._joined_us = self._output.now_us
        self._join_gap_us = min(2 * self._join_gap_us, self.timeouts.join_us)
        self._output.set_timer(Timer.JOIN, self.timeouts.join_us)

    def _new_join(self) -> Join:
        proc_set, fail_set = self._gathering.sets
        if self._output.traces("join"):
            self._output.trace("join", members=tuple(sorted(proc_set)), failed=tuple(sorted(fail_set)))
        return Join(
            sender=self._me,
            incarnation=self._incarnation,
            counter=self._count(),
            ring_seq=self.ring_id.seq,
            future_ring_seq=self.future_ring_seq,
            proc_set=proc_set,
            fail_set=fail_set,
            rotation_count=self._rotation_count,
            segment_bytes=self._output.segment_bytes,
            settings=self._settings,
        )

    def _is_fresh(self, join: Join) -> bool:
        if not self.outsiders.is_fresh_join(join):
            self._output.drop("stale join")
            return False
        remember(self._segment_bytes, join.sender, join.segment_bytes)
        self._compare_settings(join)
        self._output.heard(join.sender, just_now=True)
        return True

    def _compare_settings(self, join: Join) -> None:
        """Tells of each difference once. The order stays right with it, but the ring may break up often."""
        if join.settings == self._settings_told.get(join.sender, self._settings):
            return
        remember(self._settings_told, join.sender, join.settings)
        for name, theirs, mine in zip(SharedSettings._fields, join.settings, self._settings, strict=True):
            if theirs != mine:
                self._output.branch("settings differ")
                self._output.alarm(SettingsDiffer(join.sender, name, theirs, mine))

    def _limit_segments(self, ring: Ring) -> None:
        """Packets are cut for the member that can take least."""
        told = [self._segment_bytes[q] for q in ring.members if q in self._segment_bytes]
        self._output.limit_segments(min(told, default=self._output.segment_bytes))

    def _absorb(self, join: Join) -> Absorbed:
        if not self._gathering.fits(join.proc_set):
            self._refuse(join.sender, join.proc_set)
        if join.sender in self.installed.members:
            self._bar_laggard(join.fail_set)
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
        if expelled and join.sender in self.installed.members:
            self._bar_laggard(join.fail_set)
        if expelled or late or self._is_barred(join.sender) or self._is_called_in_vain(join):
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
        if self._is_given_up_by(join):
            self._output.branch("commit token given up by a member")
            self._begin_anew("join")
        match self._absorb(join):
            case Absorbed.AGREES:
                self._try_to_form()
            case Absorbed.CHANGED:
                self._shift_to_gather("join")
            case Absorbed.IGNORED:
                pass

    def _is_given_up_by(self, join: Join) -> bool:
        """Whether this processor waits for a Commit token, and the sender has taken and given up that token.

        Its ring's number is then above all those that the consensus was reached with.
        """
        known = max(self.ring_id.seq, self._gathering.highest_ring_seq())
        awaited = self._consensus is not None and join.sender in self._gathering.candidates
        return awaited and join.ring_seq > known

    def _on_join_while_forming(self, join: Join, _data: bytes) -> None:
        """Figures 4.10, 4.12: a member that has given up the new ring says so with that ring's number.

        A member that refuses its Commit token says so with the old ring's number.
        """
        assert self.forming is not None
        if not self._is_fresh(join):
            return
        if self._is_refused_by(join, self.forming):
            self._output.branch("new ring refused by a member")
        elif join.sender not in self.forming.members or join.ring_seq < self.ring_id.seq:
            self._output.drop("join that does not concern us")
            return
        else:
            self._output.branch("new ring given up by a member")
        self._gathering.note_fruitless(self._consensus)
        self._absorb(join)
        self._shift_to_gather("join")

    def _is_refused_by(self, join: Join, forming: Ring) -> bool:
        """In Recover all members have taken the Commit token, so such a Join is late there."""
        return (
            self.state is State.COMMIT
            and join.sender in forming.members
            and join.ring_seq < forming.ring_id.seq
            and self._gathering.is_overtaken_by(join)
        )

    def _try_to_form(self) -> None:
        gathering = self._gathering
        if self._consensus is not None or not gathering.consensus:
            return
        if gathering.exhausted:
            self._output.branch("same membership twice")
            gathering.fail_the_weakest(self._rotation_count)
            self._shift_to_gather("same membership twice")
            return
        if self._join_is_due:
            # The others need to hear that this processor agrees, too.
            self._broadcast_join()
        self._consensus = gathering.sets
        self._rotation_count = 0
        self._output.cancel_timer(Timer.CONSENSUS)
        if gathering.candidates[0] == self._me:
            self._shift_to_commit(self._new_commit_token())
        else:
            self._reset_token_loss()

    def _new_commit_token(self) -> CommitToken:
        highest = max(self.ring_id.seq, self.future_ring_seq, self._gathering.highest_ring_seq())
        return CommitToken(
            sender=self._me,
            incarnation=self._incarnation,
            counter=self._count(),
            ring_id=RingId(highest + RING_SEQ_STEP, self._me),
            token_seq=0,
            timestamp=self._ordering.clock.now,
            memb_index=0,
            memb_list=tuple(CommitEntry(q, NO_RING, 0, 0, ()) for q in self._gathering.candidates),
        )

    def _on_consensus_timeout(self) -> None:
        self._output.branch("consensus timeout")
        self._gathering.fail_the_silent()
        self._gathering.forget_joins()
        self._shift_to_gather("consensus timeout")

    def _on_token_loss_in_gather(self) -> None:
        self._output.branch("commit token lost before it came")
        self._begin_anew("token loss")

    def _begin_anew(self, reason: str) -> None:
        """The consensus led to no ring: reach it again."""
        self._gathering.note_fruitless(self._consensus)
        self._gathering.forget_joins()
        self._shift_to_gather(reason)

    def _on_commit_token_in_gather(self, token: CommitToken, _data: bytes) -> None:
        members = tuple(entry.processor for entry in token.memb_list)
        first_rotation = token.token_seq < len(members)
        newer = token.ring_id.seq > max(self.ring_id.seq, self._gathering.highest_ring_seq())
        if (
            first_rotation
            and newer
            and members == self._gathering.candidates
            and token.sender == predecessor_of(self._me, members)
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
        self._limit_segments(self.forming)
        self.timeouts.new_ring()
        self._rotation_count = 1
        self._gathering.forget_joins()
        self._output.cancel_timer(Timer.JOIN)
        self._output.cancel_timer(Timer.CONSENSUS)
        self._enter(State.COMMIT, "consensus", self._gathering.fail_set)
        self._ordering.clock.witness(token.timestamp)
        self._ticket = self._persist_with_clock()
        self._my_entry = mine = self._new_entry()
        entries = tuple(mine if entry.processor == self._me else entry for entry in token.memb_list)
        self._pass_commit_token(token._replace(memb_list=entries))
        self.timeouts.token_left(self._output.now_us)

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
        self._token_retransmission.set(self.timeouts.token_retransmission_us)
        self._reset_token_loss()

    def _on_commit_token_in_commit(self, token: CommitToken, _data: bytes) -> None:
        """The second visit: the token goes on once the ring's number is on stable storage."""
        assert self.forming is not None
        if not self._is_current(token, self.forming):
            return
        self.forming.my_token_seq = token.token_seq + 1
        self.timeouts.token_came(self._output.now_us)
        self._ordering.clock.witness(token.timestamp)
        self._write_clock_ahead()
        if self._ticket:
            self._held_commit_token = token
        else:
            self._shift_to_recover(token)

    def _is_current(self, token: CommitToken, forming: Ring) -> bool:
        if token.ring_id != forming.ring_id or token.token_seq < forming.my_token_seq:
            self._output.branch("redundant commit token")
            return False
        if token.sender != forming.predecessor:
            self._output.drop("token from another than the predecessor")
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

    # Leaving

    def _leave_if_done(self) -> None:
        """When its own messages are safe, and every safe message that it acknowledged is delivered: others
        deliver those on its word (000 §3.3). It acknowledges no further ones, or it could never leave while
        others send."""
        ring = self.installed
        if self._takes_more or self._ordering.queue or ring.my_aru < self._ordering.last_originated:
            return
        ring.acknowledges_to = min(ring.acknowledges_to, ring.my_aru)
        if ring.safe_up_to >= ring.acknowledges_to:
            self._say_farewell("left")

    def _leave_regardless(self) -> None:
        self._say_farewell("leave timeout")

    def _say_farewell(self, reason: str) -> None:
        if self.state is not State.STARTING:
            self._multicast(Leave(self._me, self._incarnation, self._count(), self.ring_id))
        for timer in Timer:
            self._output.cancel_timer(timer)
        self._forget_token()
        self._enter(State.LEFT, reason)
        self._output.stopped()
