"""Commit: the Commit token collects what each member has of its old ring (Totem §4.2, figures 4.9, 4.10).

Deviations:
- the ring's number is written to stable storage from the Commit token's first visit on, and the token waits
  for it at the second: all members write at the same time, not one after the other while the token waits;
- a processor in Commit goes back to Gather as soon as a member's Join shows that this member refuses the
  Commit token: it wants a larger ring, or it had agreed and now regards a member as failed. Figure 4.10
  ignores Joins with an old ring's number, so the processor waits for the Token Loss timeout. The consensus
  timeouts of the others may expire before it, and healthy processors are then regarded as failed;
- Join timeouts do not occur in Commit (figure 4.9 cancels them; figure 4.10 handles them).
"""

from __future__ import annotations

from totempole.srp.forming import Forming
from totempole.srp.packets import CommitToken, Join, Leave, RegularMessage
from totempole.srp.phase import Phase, Shifts
from totempole.srp.processor import Processor
from totempole.srp.recovery import Recovery
from totempole.srp.states import State


class Commit(Phase):
    """From the Commit token's first visit to its second."""

    __slots__ = ("_held", "_ticket", "forming")

    state = State.COMMIT

    def __init__(self, processor: Processor, shift: Shifts, forming: Forming) -> None:
        super().__init__(processor, shift, forming.ring)
        self.forming = forming
        self._ticket = 0
        """The write of the ring's number, while it is under way."""
        self._held: CommitToken | None = None
        """The Commit token at its second visit, while that write is under way."""

    def begin(self, token: CommitToken) -> None:
        """The Commit token's first visit: say what this processor has of its old ring."""
        processor, forming = self.processor, self.forming
        assert token.ring_id == forming.ring.ring_id, f"a Commit token of {token.ring_id}"
        assert not self._ticket, "the Commit token's first visit comes twice"
        processor.ring_id = token.ring_id
        processor.future_ring_seq = max(processor.future_ring_seq, token.ring_id.seq)
        processor.rotation_count = 1
        processor.peers.limit_segments(forming.ring)
        processor.peers.gathering.forget_joins()
        processor.timeouts.new_ring()
        processor.ordering.clock.witness(token.timestamp)
        self._ticket = processor.persist_with_clock()
        mine = forming.my_entry
        entries = tuple(mine if entry.processor == processor.me else entry for entry in token.memb_list)
        forming.pass_commit_token(token._replace(memb_list=entries))
        if len(forming.ring.members) > 1:
            processor.timeouts.token_left(self.output.now_us)

    # The Commit token

    def on_commit_token(self, token: CommitToken, _data: bytes) -> None:
        """Recover, once the ring's number is written."""
        if not self.forming.is_current(token):
            return
        processor = self.processor
        self.ring.my_token_seq = token.token_seq + 1
        processor.timeouts.token_came(self.output.now_us)
        processor.ordering.clock.witness(token.timestamp)
        processor.write_clock_ahead()
        if self._ticket:
            self._held = token
        else:
            self._recover(token)

    def on_written(self, ticket: int) -> None:
        """Recover, if the Commit token waits for it."""
        if ticket != self._ticket:
            return
        self._ticket = 0
        if self._held is not None:
            self._recover(self._held)

    def _recover(self, token: CommitToken) -> None:
        """The Commit token's second visit, with everyone's word in it."""
        assert not self._ticket, "the ring's number is not on stable storage"
        assert token.ring_id == self.processor.ring_id, "recovery on another ring than the latest agreed on"
        recovery = Recovery(token.memb_list, self.processor.installed)
        promise = self.processor.promise
        if promise and not promise <= set(recovery.trans_memb):
            self.output.branch("promise carried into a smaller configuration")
        self.shift.to_recover(self.forming, recovery, token)

    def on_token_retransmission_timeout(self) -> None:
        """Pass the Commit token again."""
        self.forming.holder.retransmit()

    def on_token_loss(self) -> None:
        """Gather."""
        assert self.processor.rotation_count == 1, "in Commit with another count than the first visit's"
        if self._held is not None:
            # Not lost: it waits here for our own disk. The others may lose patience, and will say so.
            self.processor.reset_token_loss()
            return
        self.output.branch("commit token lost on its first rotation")
        self._abandon("token loss")

    def _abandon(self, reason: str) -> None:
        self.forming.note_fruitless()
        self.shift.to_gather(reason)

    # What else comes

    def on_message(self, message: RegularMessage, data: bytes) -> None:
        """Take in and deliver."""
        self.processor.take_message(message, data)

    def on_join(self, join: Join, _data: bytes) -> None:
        """Gather, if the sender gave the ring up or refuses it."""
        processor = self.processor
        if not processor.peers.is_fresh(join):
            return
        if self._is_refused_by(join):
            self.output.branch("new ring refused by a member")
        elif not self.forming.is_given_up_by(join):
            return
        self.forming.note_fruitless()
        processor.peers.absorb(join, processor.installed, self.ring)
        self.shift.to_gather("join")

    def _is_refused_by(self, join: Join) -> bool:
        """A member that refuses the Commit token says so with its old ring's number.

        One that agreed and then regards a member as failed has left the consensus: sets only grow until a
        ring is installed. One that wants to be alone may have been, and have agreed again, while its Join was
        on its way; a ring of several takes longer than that. If its agreement has not been heard here, its
        Join may be older. In Recover all members have taken the Commit token, so such a Join is late there.
        """
        if join.sender not in self.ring.members or join.ring_seq >= self.ring.ring_id.seq:
            return False
        had_agreed = join.sender in self.forming.agreed and len(join.proc_set - join.fail_set) > 1
        left = had_agreed and not join.fail_set.isdisjoint(self.ring.members)
        return left or self.processor.peers.gathering.is_overtaken_by(join)

    def on_leave(self, leave: Leave, _data: bytes) -> None:
        """Gather without the sender."""
        if self.processor.peers.has_left(leave, self.processor.installed):
            self._abandon("leave")
