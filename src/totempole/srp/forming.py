"""The ring that is being formed, and its Commit token (Totem §4.2, §4.3, figures 4.9 to 4.13).

It is there from the Commit token's first visit until the ring is installed or given up. Commit has it first
and hands it over to Recover.

Deviations:
- a Commit token counts only from the predecessor on the ring that it forms;
- a consensus that leads to no ring is counted alike, whether the token was lost in Gather, Commit or Recover.
"""

from __future__ import annotations

from totempole.srp.gathering import Consensus
from totempole.srp.packets import CommitEntry, CommitToken, Join
from totempole.srp.processor import Processor
from totempole.srp.ring import Ring
from totempole.srp.token_holder import TokenHolder


class Forming:
    """A ring that its members have agreed on and have not installed yet."""

    __slots__ = ("_processor", "agreed", "consensus", "holder", "my_entry", "ring")

    def __init__(self, processor: Processor, token: CommitToken, consensus: Consensus) -> None:
        self._processor = processor
        members = tuple(entry.processor for entry in token.memb_list)
        assert members == processor.peers.gathering.candidates, f"a ring of {members}, whom nobody proposed"
        assert token.ring_id.seq > processor.ring_id.seq, f"ring {token.ring_id} after {processor.ring_id}"
        self.ring = Ring(token.ring_id, members, processor.me, processor.config)
        self.holder = TokenHolder(processor, self.ring)
        self.consensus = consensus
        """What the membership was agreed on with, should it lead to nothing."""
        self.agreed = processor.peers.gathering.agreeing
        """Whose Joins had agreed when this processor took the Commit token."""
        self.my_entry = self._new_entry()
        """What this processor writes into the Commit token at its first visit."""

    def _new_entry(self) -> CommitEntry:
        """What this processor has of its old ring."""
        old, promise = self._processor.installed, self._processor.promise
        assert old.delivered <= old.my_aru, "delivered past a gap on the old ring"
        assert not promise or self._processor.me in promise, "a promise without oneself"
        return CommitEntry(
            processor=self._processor.me,
            old_ring_id=old.ring_id,
            old_ring_aru=old.my_aru,
            high_delivered=old.delivered,
            deliver_memb=tuple(sorted(promise)),
            filled=True,
        )

    # The Commit token

    def is_current(self, token: CommitToken) -> bool:
        """Whether it is this ring's Commit token, with everyone's entry in it, and has not been here yet."""
        ring = self.ring
        if token.ring_id != ring.ring_id or token.token_seq < ring.my_token_seq:
            self._processor.output.branch("redundant commit token")
            return False
        if token.sender != ring.predecessor:
            self._processor.output.drop("token from another than the predecessor")
            return False
        complete = all(entry.filled for entry in token.memb_list)
        members = tuple(entry.processor for entry in token.memb_list)
        # A life that ended before its write was done may have used this number for another ring.
        return complete and members == ring.members and self.my_entry in token.memb_list

    def pass_commit_token(self, token: CommitToken) -> None:
        processor, ring = self._processor, self.ring
        index = ring.members.index(processor.me)
        assert token.ring_id == ring.ring_id, f"a Commit token of {token.ring_id} passed on {ring.ring_id}"
        assert token.memb_list[index] == self.my_entry, "the Commit token lacks one's own entry"
        assert token.token_seq + 1 >= ring.my_token_seq, "token_seq falls"
        ring.my_token_seq = token.token_seq + 1
        self.holder.passed = processor.output.pass_token(
            ring.successor,
            token._replace(
                sender=processor.me,
                incarnation=processor.incarnation,
                token_seq=token.token_seq + 1,
                timestamp=max(token.timestamp, processor.ordering.clock.now),
                memb_index=index,
            ),
        )
        processor.reset_token_retransmission()
        processor.reset_token_loss()

    # Giving it up

    def is_given_up_by(self, join: Join) -> bool:
        """Figures 4.10, 4.12: a member that has given up the ring says so with that ring's number."""
        if join.sender not in self.ring.members or join.ring_seq < self.ring.ring_id.seq:
            self._processor.output.drop("join that does not concern us")
            return False
        self._processor.output.branch("new ring given up by a member")
        return True

    def note_fruitless(self) -> None:
        """The ring will not be installed. Its consensus counts as tried.

        What the failed recovery brought of the old ring stays (its aru may have increased), and so does the
        promise; what was received on the new ring goes.
        """
        proc_set, fail_set = self.consensus
        assert self._processor.me in proc_set - fail_set, "a consensus without this processor"
        self._processor.peers.gathering.note_fruitless(self.consensus)
