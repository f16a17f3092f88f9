"""Gather: Joins are exchanged until all propose the same membership (Totem §4.2, figures 4.5 to 4.8).

What a processor believes about the others is in `gathering`; here is when it says so, and what follows.

Deviations:
- rotation counts start at zero when a ring is installed and when a consensus is reached, and count only the
  tokens of rings that are being formed. So processors that never saw the Commit token are the weakest,
  whatever they did on their old ring. One that never reached the consensus, because it does not hear
  somebody, is among them;
- a Commit token that comes after the Token Loss timeout in Gather is still taken, unless a Join of one of its
  members shows that the ring has been given up; the paper discards it unseen. It counts only from the
  predecessor on the ring that it forms;
- a processor that waits in Gather for a Commit token ends this wait as soon as a member's Join shows that the
  ring has been given up. Otherwise it takes the Joins of the second attempt for those of the first, forgets
  them at its Token Loss timeout, and regards the others as failed while they are silent in Commit;
- a processor waits after each Join before it broadcasts the next, an eighth of the join timeout at first and
  twice as long each time; what it learns meanwhile goes out together. The paper broadcasts a Join at every
  change, so that n processors that start together send n * n of them and drown in them;
- the consensus timeout is a little longer each time, at random (Totem CACM): processors whose timeouts ran in
  step would give each other up at the same instant.
"""

from __future__ import annotations

from totempole.srp.gathering import Absorbed, Consensus
from totempole.srp.packets import CommitEntry, CommitToken, Join, Leave, Packet, RegularMessage
from totempole.srp.phase import Phase, Shifts
from totempole.srp.processor import RING_SEQ_STEP, Processor
from totempole.srp.ring import predecessor_of
from totempole.srp.states import State, Timer
from totempole.types import NO_RING, RingId

JOINS_PER_TIMEOUT = 8
"""How often a Join may be broadcast in a join timeout, at the beginning of Gather."""

CONSENSUS_SPREAD_PERCENT = 25
"""How much longer than set a consensus timeout may be."""


class Gather(Phase):
    """The token of the old ring is gone; that of the next one has not come."""

    __slots__ = ("_consensus", "_join_gap_us", "_join_is_held_back")

    state = State.GATHER

    def __init__(self, processor: Processor, shift: Shifts) -> None:
        super().__init__(processor, shift, processor.installed)
        self._consensus: Consensus | None = None
        """What has been agreed on; from then on the Commit token is waited for."""
        self._join_gap_us = processor.timeouts.join_us // JOINS_PER_TIMEOUT
        """How long this processor waits after a Join before it broadcasts the next."""
        self._join_is_held_back = False
        """A Join that would say something new waits for its timer."""

    def begin(self) -> None:
        """On entering Gather, and whenever it begins anew."""
        assert self.processor.me in self.processor.peers.gathering.candidates, "gathers without itself"
        self._consensus = None
        self.processor.token_loss.cancel()
        self.processor.token_retransmission.cancel()
        self.output.cancel_timer(Timer.HOLD)
        self._broadcast_join_when_due()
        self.output.set_timer(Timer.CONSENSUS, self._consensus_us())
        self._try_to_form()

    def _consensus_us(self) -> int:
        percent = 100 + int(CONSENSUS_SPREAD_PERCENT * self.processor.draw())
        assert 100 <= percent <= 100 + CONSENSUS_SPREAD_PERCENT, f"a timeout of {percent} %"
        return self.processor.timeouts.consensus_us * percent // 100

    # Joins

    def _broadcast_join_when_due(self) -> None:
        """At once, or when the last one is old enough: by then there may be more to say."""
        processor = self.processor
        assert 0 <= self._join_gap_us <= processor.timeouts.join_us, f"a gap of {self._join_gap_us} us"
        assert processor.joined_us <= self.output.now_us, "the clock ran backwards"
        wait_us = processor.joined_us + self._join_gap_us - self.output.now_us
        if wait_us <= 0:
            self.broadcast_join()
        elif not self._join_is_held_back:
            self.output.branch("join held back")
            self._join_is_held_back = True
            self.output.set_timer(Timer.JOIN, wait_us)

    def broadcast_join(self) -> None:
        """Broadcast a Join."""
        processor = self.processor
        processor.multicast(processor.new_join())
        self._join_is_held_back = False
        processor.joined_us = self.output.now_us
        self._join_gap_us = min(2 * self._join_gap_us, processor.timeouts.join_us)
        self.output.set_timer(Timer.JOIN, processor.timeouts.join_us)

    def on_join(self, join: Join, _data: bytes) -> None:
        """Take over its sets; form a ring on consensus."""
        peers = self.processor.peers
        if not peers.is_fresh(join):
            return
        if self._is_given_up_by(join):
            self.output.branch("commit token given up by a member")
            self._begin_anew("join")
        match peers.absorb(join, self.ring, self.ring):
            case Absorbed.AGREES:
                self._try_to_form()
            case Absorbed.CHANGED:
                self.shift.to_gather("join")
            case Absorbed.IGNORED:
                pass

    def _is_given_up_by(self, join: Join) -> bool:
        """Whether this processor waits for a Commit token, and the sender has taken and given up that token.

        Its ring's number is then above all those that the consensus was reached with.
        """
        gathering = self.processor.peers.gathering
        if self._consensus is None or join.sender not in gathering.candidates:
            return False
        return join.ring_seq > max(self.processor.ring_id.seq, gathering.highest_ring_seq())

    def on_consensus_timeout(self) -> None:
        """Regard the silent as failed, gather anew."""
        assert self._consensus is None, "a consensus timeout after the consensus"
        self.output.branch("consensus timeout")
        self.processor.peers.gathering.fail_the_silent()
        self.processor.peers.gathering.forget_joins()
        self.shift.to_gather("consensus timeout")

    # Consensus

    def _try_to_form(self) -> None:
        gathering = self.processor.peers.gathering
        if self._consensus is not None or not gathering.consensus:
            return
        if gathering.exhausted:
            self.output.branch("same membership twice")
            gathering.fail_the_weakest(self.processor.rotation_count)
            self.shift.to_gather("same membership twice")
            return
        if self._join_is_held_back:
            # The others need to hear that this processor agrees, too.
            self.broadcast_join()
        self._consensus = gathering.sets
        self.processor.rotation_count = 0
        self.output.cancel_timer(Timer.CONSENSUS)
        if gathering.candidates[0] == self.processor.me:
            self._commit(self._new_commit_token(), self._consensus)
        else:
            self.processor.reset_token_loss()

    def _new_commit_token(self) -> CommitToken:
        processor, gathering = self.processor, self.processor.peers.gathering
        assert gathering.candidates[0] == processor.me, "a Commit token of another than the representative"
        highest = max(processor.ring_id.seq, processor.future_ring_seq, gathering.highest_ring_seq())
        return CommitToken(
            sender=processor.me,
            incarnation=processor.incarnation,
            counter=processor.count(),
            ring_id=RingId(highest + RING_SEQ_STEP, processor.me),
            token_seq=0,
            timestamp=processor.ordering.clock.now,
            memb_index=0,
            memb_list=tuple(CommitEntry(q, NO_RING, 0, 0, ()) for q in gathering.candidates),
        )

    def on_commit_token(self, token: CommitToken, _data: bytes) -> None:
        """Commit, if it is for the proposed ring."""
        processor, gathering = self.processor, self.processor.peers.gathering
        members = tuple(entry.processor for entry in token.memb_list)
        first_rotation = token.token_seq < len(members)
        newer = token.ring_id.seq > max(processor.ring_id.seq, gathering.highest_ring_seq())
        if (
            first_rotation
            and newer
            and members == gathering.candidates
            and token.sender == predecessor_of(processor.me, members)
            and not gathering.exhausted
        ):
            self._commit(token, gathering.sets)
        else:
            self.output.drop("commit token that does not concern us")

    def _commit(self, token: CommitToken, consensus: Consensus) -> None:
        assert consensus == self.processor.peers.gathering.sets, "a consensus about other sets than proposed"
        self.output.cancel_timer(Timer.JOIN)
        self.output.cancel_timer(Timer.CONSENSUS)
        self.shift.to_commit(token, consensus)

    def on_token_loss(self) -> None:
        """Gather anew: the Commit token did not come."""
        assert self._consensus is not None, "waited for a Commit token without a consensus"
        self.output.branch("commit token lost before it came")
        self._begin_anew("token loss")

    def _begin_anew(self, reason: str) -> None:
        """The consensus led to no ring: reach it again."""
        self.processor.peers.gathering.note_fruitless(self._consensus)
        self.processor.peers.gathering.forget_joins()
        self.shift.to_gather(reason)

    # What else comes

    def on_message(self, message: RegularMessage, data: bytes) -> None:
        """Take in and deliver."""
        self.processor.take_message(message, data)

    def on_foreign_message(self, message: Packet, _data: bytes) -> None:
        """Gather anew, if it is worth it."""
        if self.processor.peers.considers(message):
            self.shift.to_gather("foreign message")

    def on_leave(self, leave: Leave, _data: bytes) -> None:
        """Gather anew without the sender."""
        if self.processor.peers.has_left(leave, self.ring):
            self.shift.to_gather("leave")
