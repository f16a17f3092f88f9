"""Any two quorums intersect: of a set, of a primary component, and of the sets on both sides of a change."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from totempole.corel.quorum import DYNAMIC, MAJORITY, NO_FORMATION, Formation, ReplicaSet, Voter


def a_set(rng: Random, rule: str, processors: int = 5) -> ReplicaSet:
    chosen = rng.sample(range(1, processors + 1), rng.randint(1, processors))
    floor = rng.randint(1, len(chosen))
    return ReplicaSet({who: Voter(10 + who, rng.randint(1, 4)) for who in sorted(chosen)}, rule, floor)


def subsets(replicas: ReplicaSet) -> list[dict[int, int]]:
    voters = sorted(replicas.voters)
    return [
        {who: replicas.voters[who].disk for who in chosen}
        for size in range(len(voters) + 1)
        for chosen in combinations(voters, size)
    ]


def meet(one: dict[int, int], other: dict[int, int]) -> bool:
    return bool(one.keys() & other.keys())


def test_any_two_majorities_intersect() -> None:
    for seed in range(200):
        replicas = a_set(Random(seed), MAJORITY)
        quorums = [disks for disks in subsets(replicas) if replicas.is_majority(disks)]
        assert quorums, f"{seed}: all together are one"
        assert all(meet(one, other) for one in quorums for other in quorums), seed


def test_of_two_halves_one_is_a_majority() -> None:
    for seed in range(200):
        replicas = a_set(Random(seed), MAJORITY)
        for disks in subsets(replicas):
            rest = {who: voter.disk for who, voter in replicas.voters.items() if who not in disks}
            assert replicas.is_majority(disks) != replicas.is_majority(rest), seed


@pytest.mark.parametrize("rule", [MAJORITY, DYNAMIC])
def test_who_may_form_meets_who_has_made_durable(rule: str) -> None:
    """Also where the primary has members that the set does not count any more."""
    for seed in range(200):
        rng = Random(seed)
        replicas = a_set(rng, rule)
        primary = Formation(7, tuple(sorted(rng.sample(range(1, 6), rng.randint(1, 5)))))
        durable = [disks for disks in subsets(replicas) if replicas.is_durable(disks, primary.members)]
        forming = [disks for disks in subsets(replicas) if replicas.may_form(disks, primary, ())]
        everybody = {who: voter.disk for who, voter in replicas.voters.items()}
        assert replicas.is_durable(everybody, primary.members), seed
        assert replicas.may_form(everybody, primary, ()), seed
        assert all(meet(one, other) for one in durable for other in forming), seed


@pytest.mark.parametrize("rule", [MAJORITY, DYNAMIC])
def test_both_sides_of_a_change_meet(rule: str) -> None:
    """What is durable while a change is open is so in both sets. Who knows only one of them meets it."""
    for seed in range(100):
        rng = Random(seed)
        before = a_set(rng, rule)
        after = before.changed(rng.randint(1, 6), rng.choice((0, 99)), rng.randint(1, 4))
        members = tuple(before.voters)
        primary = Formation(7, members)
        for disks in subsets(before):
            if before.is_durable(disks, members) and after.is_durable(disks, members):
                for replicas in (before, after):
                    forming = [other for other in subsets(replicas) if replicas.may_form(other, primary, ())]
                    assert all(meet(disks, other) for other in forming), seed


def test_a_later_attempt_counts() -> None:
    """COReL §6: three of five attempt; two of them form; the third and the other two must not."""
    replicas = ReplicaSet({who: Voter(who) for who in range(1, 6)}, DYNAMIC)
    everybody, attempt = Formation(1, (1, 2, 3, 4, 5)), Formation(2, (1, 2, 3))
    assert replicas.may_form({3: 3, 4: 4, 5: 5}, everybody, ())
    assert not replicas.may_form({3: 3, 4: 4, 5: 5}, everybody, (attempt,))
    assert replicas.may_form({1: 1, 2: 2}, everybody, ()) is False
    assert replicas.may_form({1: 1, 2: 2}, attempt, ())


def test_dynamic_voting_stops_at_its_floor() -> None:
    replicas = ReplicaSet({who: Voter(who) for who in range(1, 4)}, DYNAMIC, 2)
    assert not replicas.may_form({1: 1}, Formation(2, (1,)), ())
    assert replicas.may_form({1: 1, 2: 2}, Formation(2, (1,)), ())


def test_a_set_that_is_smaller_than_the_floor_can_go_on() -> None:
    """Model seed 300546: two replicas, of which one is removed."""
    replicas = ReplicaSet({1: Voter(1), 2: Voter(2)}, DYNAMIC, 2).changed(2, 0)
    assert replicas.may_form({1: 1}, Formation(2, (1, 2)), ())


def test_before_there_was_a_primary_a_majority_decides() -> None:
    replicas = ReplicaSet({who: Voter(who) for who in range(1, 4)}, DYNAMIC)
    assert replicas.may_form({1: 1, 2: 2}, NO_FORMATION, ())
    assert not replicas.may_form({1: 1}, NO_FORMATION, ())


def test_another_disk_does_not_count() -> None:
    replicas = ReplicaSet({who: Voter(who) for who in range(1, 4)})
    assert not replicas.is_majority({1: 1, 2: 99})
    assert replicas.with_disks({2: 99, 7: 1}).is_majority({1: 1, 2: 99})


def test_the_last_voter_stays() -> None:
    replicas = ReplicaSet({1: Voter(1)})
    assert replicas.changed(1, 0) == replicas
