"""What a processor knows and believes while it gathers a membership (Totem §4.2, figures 4.5 to 4.8).

The prose under "Updating the Membership on Reception of a Join Message" is the rule where it and figure 4.6
differ. The sets only grow until a ring is installed; that is what makes the algorithm terminate.

Deviations:
- figure 4.7 is the rule for the same membership reached twice: the second attempt is made too, and only when
  it fails the weakest goes. The prose expels it on reaching the consensus again; on a network that loses a
  tenth of its packets, rings then took half as long again to merge;
- of two outsiders that regard each other as failed, a processor that hears both believes the smaller. The
  paper has it believe both, and lose whom it could be with (docs/decisions/0016);
- a processor whose proposal would make the ring larger than `members_max` is treated as one that cannot
  hear us: there is no membership for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from totempole.srp.packets import Join
from totempole.types import ProcessorId

ATTEMPTS_MAX = 2
"""How often one consensus may lead to no ring before it costs the weakest its membership (figure 4.7)."""

Consensus = tuple[frozenset[ProcessorId], frozenset[ProcessorId]]
"""The my_proc_set and my_fail_set that a consensus was about."""


class Absorbed(Enum):
    """What a Join meant to its receiver."""

    IGNORED = auto()
    AGREES = auto()
    CHANGED = auto()


class Gathering:
    """my_proc_set, my_fail_set, the consensus on them, and the Joins that tell."""

    def __init__(self, me: ProcessorId, memb: Iterable[ProcessorId], members_max: int) -> None:
        self._me = me
        self._memb = frozenset(memb)
        assert me in self._memb, f"{me} is not on the ring of {sorted(self._memb)}"
        assert len(self._memb) <= members_max, f"{len(self._memb)} members, at most {members_max}"
        self._members_max = members_max
        self.proc_set = set(self._memb)
        self.fail_set: set[ProcessorId] = set()
        self.joins: dict[ProcessorId, Join] = {}
        """my_last: the latest Join of each other processor."""
        self._heard: set[ProcessorId] = set()
        """Who has sent a Join since the gathering began."""
        self._agreed: dict[ProcessorId, Consensus] = {}
        """What each other processor last agreed to; it stands until this processor's own sets change."""
        self._fruitless: Consensus | None = None
        self._attempts = 0

    @property
    def sets(self) -> Consensus:
        return frozenset(self.proc_set), frozenset(self.fail_set)

    @property
    def candidates(self) -> tuple[ProcessorId, ...]:
        """The membership of the proposed ring, in token order: its representative is the smallest."""
        return tuple(sorted(self.proc_set - self.fail_set))

    def fits(self, processors: Iterable[ProcessorId]) -> bool:
        """Whether a ring of all of them and all who are considered already would not be too large."""
        return len(self.proc_set.union(processors)) <= self._members_max

    def has_room_for(self, members: int) -> bool:
        """Whether as many more would fit."""
        return len(self.proc_set) + members <= self._members_max

    def add(self, processor: ProcessorId) -> bool:
        """Considers another processor; false if it is considered already or the ring would be too large."""
        if processor in self.proc_set or not self.fits((processor,)):
            return False
        self.proc_set.add(processor)
        return True

    def fail(self, processor: ProcessorId) -> bool:
        """Regards a processor as failed; false if it was so already, or is one too many even for that."""
        if processor in self.fail_set or processor == self._me or not self.fits((processor,)):
            return False
        self.proc_set.add(processor)
        self.fail_set.add(processor)
        return True

    def absorb(self, join: Join) -> Absorbed:
        assert join.sender != self._me, "a processor hears its own Join"
        if join.sender in self.fail_set:
            return Absorbed.IGNORED
        before = self.sets
        self._heard.add(join.sender)
        if self._me in join.fail_set or not self.fits(join.proc_set):
            # No membership can hold both of us.
            self.fail(join.sender)
        else:
            self.joins[join.sender] = join
            if self._matches(join):
                self._agreed[join.sender] = self.sets
                return Absorbed.AGREES
            self.proc_set |= join.proc_set
            self.fail_set |= self._believable_failures(join)
        assert self._me not in self.fail_set, "a processor regards itself as failed"
        assert self.fail_set <= self.proc_set, "failed, and not considered"
        assert len(self.proc_set) <= self._members_max, f"{len(self.proc_set)} considered"
        return Absorbed.IGNORED if self.sets == before else Absorbed.CHANGED

    def _believable_failures(self, join: Join) -> set[ProcessorId]:
        """An outsider may not break up the receiver's old ring. Nor is it believed about a smaller processor
        that is heard here: all who hear both ends of a dead link keep the same one. If the smaller one is
        gone, the consensus timeout tells."""
        if join.sender in self._memb:
            return set(join.fail_set)
        return {q for q in join.fail_set - self._memb if q > join.sender or q not in self._heard}

    def _matches(self, join: Join) -> bool:
        return join.proc_set == self.proc_set and join.fail_set == self.fail_set

    def _agrees(self, processor: ProcessorId) -> bool:
        join = self.joins.get(processor)
        return processor == self._me or (join is not None and self._matches(join))

    def is_overtaken_by(self, join: Join) -> bool:
        """Whether a candidate wants a larger ring, and so refuses a Commit token for these candidates.

        New failures do not count here: whoever regards others as failed may form a ring without them, hear of
        them again and agree, all while its Join is on its way.
        """
        larger = not join.proc_set <= self.proc_set and self.fits(join.proc_set)
        return larger and join.fail_set <= self.fail_set

    @property
    def consensus(self) -> bool:
        assert self._me in self.proc_set, "a consensus without oneself"
        return all(self._agrees(processor) for processor in self.candidates)

    @property
    def agreeing(self) -> frozenset[ProcessorId]:
        """The candidates that agree at present, this processor included."""
        return frozenset(filter(self._agrees, self.candidates))

    def fail_the_silent(self) -> None:
        """Consensus timeout: those who did not come to agree are regarded as failed."""
        sets = self.sets
        silent = [q for q in self.candidates if not self._agrees(q) and self._agreed.get(q) != sets]
        for processor in silent:
            self.fail(processor)

    def forget_joins(self) -> None:
        """A new round: what was said in the last one counts no more."""
        self.joins.clear()
        self._agreed.clear()

    def note_fruitless(self, consensus: Consensus | None) -> None:
        """This consensus was reached and led to no ring."""
        self._attempts = self._attempts + 1 if consensus == self._fruitless else 1
        self._fruitless = consensus

    @property
    def exhausted(self) -> bool:
        """Whether the present consensus has been tried often enough."""
        return self._attempts >= ATTEMPTS_MAX and self._fruitless == self.sets and len(self.candidates) > 1

    def fail_the_weakest(self, my_rotation_count: int) -> ProcessorId:
        """The same consensus twice: the first on the token's path that forwarded it the fewest times goes.

        If that is this processor, it goes on alone.
        """
        weakest = min(
            self.candidates, key=lambda processor: (self._rotations(processor, my_rotation_count), processor)
        )
        if weakest == self._me:
            for processor in self.candidates:
                self.fail(processor)
        else:
            self.fail(weakest)
        return weakest

    def _rotations(self, processor: ProcessorId, my_rotation_count: int) -> int:
        return my_rotation_count if processor == self._me else self.joins[processor].rotation_count

    def highest_ring_seq(self) -> int:
        """Of those in any Join of a candidate: the largest ring sequence number heard of."""
        heard = (self.joins[q] for q in self.candidates if q in self.joins)
        return max((max(join.ring_seq, join.future_ring_seq) for join in heard), default=0)
