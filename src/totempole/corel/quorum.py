"""Which members may form a primary component, which acknowledgements make a run durable (COReL §5.5.1, §6).

A replica is a processor with its disk: a processor whose disk was emptied or replaced does not count until an
ordered record has taken the new disk in. Any two quorums of a set intersect; so do a quorum that may form a
primary and one whose acknowledgements made a run green.

Dynamic voting follows Yeger Lotem, Keidar and Dolev (1997): a primary may form with a majority of the last
committed primary and of every later one that any member knows to have been attempted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

MAJORITY = "majority"
DYNAMIC = "dynamic"
RULES = (MAJORITY, DYNAMIC)


class Voter(msgspec.Struct, frozen=True, array_like=True):
    disk: int
    weight: int = 1


class Formation(msgspec.Struct, frozen=True, array_like=True):
    """A primary component that was attempted or committed: its number and its voters."""

    number: int
    members: tuple[int, ...]


NO_FORMATION = Formation(0, ())


class ReplicaSet(msgspec.Struct, frozen=True, array_like=True):
    """The processors whose disks count."""

    voters: dict[int, Voter]
    rule: str = MAJORITY
    floor: int = 1
    """Dynamic voting never goes below so many members, while the set has as many."""

    def present(self, disks: Mapping[int, int]) -> frozenset[int]:
        """Those of the processors with these disks that count."""
        return frozenset(
            processor
            for processor, disk in disks.items()
            if processor in self.voters and self.voters[processor].disk == disk
        )

    def is_majority(self, disks: Mapping[int, int]) -> bool:
        return self._is_majority(self.present(disks), self.voters)

    def _is_majority(self, there: Iterable[int], of: Iterable[int]) -> bool:
        """By weight. Of two halves, the one with the heaviest voter; of equals, that of lowest number."""
        weights = {processor: self.voters[processor].weight for processor in of}
        total = sum(weights.values())
        mine = sum(weights[processor] for processor in there if processor in weights)
        if 2 * mine != total:
            return 2 * mine > total
        first = min(weights, key=lambda processor: (-weights[processor], processor), default=0)
        return first in set(there)

    def may_form(self, disks: Mapping[int, int], committed: Formation, attempts: Iterable[Formation]) -> bool:
        """Whether the processors with these disks may form a primary. `committed` is the last one that any of
        them knows, `attempts` are all later ones that any of them knows."""
        if self.rule == MAJORITY or not committed.number:
            return self.is_majority(disks)
        there = self.present(disks)
        past = [committed, *(each for each in attempts if each.number > committed.number)]
        return len(there) >= min(self.floor, len(self.voters)) and all(
            self._is_majority(there, self._counting(each.members)) for each in past
        )

    def is_durable(self, acknowledged: Mapping[int, int], primary: Iterable[int]) -> bool:
        """Whether the disks of these processors make a run durable. `primary` are the voters of the present
        primary component."""
        if self.rule == MAJORITY:
            return self.is_majority(acknowledged)
        return self._is_majority(self.present(acknowledged), self._counting(primary))

    def _counting(self, members: Iterable[int]) -> Iterable[int]:
        """Those of a primary component whose votes this set counts. Members that were removed since would be
        waited for in vain; if all were, the whole set decides."""
        return [each for each in members if each in self.voters] or self.voters

    def changed(self, processor: int, disk: int, weight: int = 1) -> ReplicaSet:
        """With the processor added, its disk replaced, or (disk 0) without it."""
        voters = dict(self.voters)
        if disk:
            voters[processor] = Voter(disk, weight)
        else:
            voters.pop(processor, None)
        return ReplicaSet(voters, self.rule, self.floor) if voters else self

    def with_disks(self, disks: Mapping[int, int]) -> ReplicaSet:
        """With the disks of these processors, as far as they are in the set."""
        voters = {
            processor: Voter(disks.get(processor, voter.disk), voter.weight)
            for processor, voter in self.voters.items()
        }
        return ReplicaSet(voters, self.rule, self.floor)


NO_SET = ReplicaSet({})
