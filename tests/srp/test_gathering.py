"""What a Join does to its receiver: a table of cases, each with the words of Totem §4.2 that decide it.

"Updating" is the section "Updating the Membership on Reception of a Join Message".
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from srp_bench import join_of

from totempole.srp.gathering import Absorbed, Gathering
from totempole.srp.packets import Join

ME = 1


class Sets(NamedTuple):
    proc: set[int]
    fail: set[int]


class Case(NamedTuple):
    claim: str
    memb: set[int]
    before: Sets
    sender: int
    join: Sets
    result: Absorbed
    after: Sets


AGREES, IGNORED, CHANGED = Absorbed.AGREES, Absorbed.IGNORED, Absorbed.CHANGED

CASES = [
    Case(
        "Updating: a Join with identical sets records its sender as agreeing",
        {1, 2}, Sets({1, 2}, set()), 2, Sets({1, 2}, set()), AGREES, Sets({1, 2}, set()),
    ),
    Case(
        "Updating: identical sets from an outsider count as well",
        {1}, Sets({1, 2, 3}, {3}), 2, Sets({1, 2, 3}, {3}), AGREES, Sets({1, 2, 3}, {3}),
    ),
    Case(
        "figure 4.6: a Join that says less than is known already changes nothing",
        {1, 2, 3}, Sets({1, 2, 3}, {3}), 2, Sets({1, 2}, set()), IGNORED, Sets({1, 2, 3}, {3}),
    ),
    Case(
        "figure 4.6: a subset in both sets is ignored even from an outsider",
        {1}, Sets({1, 2, 3}, set()), 3, Sets({3}, set()), IGNORED, Sets({1, 2, 3}, set()),
    ),
    Case(
        "Updating: a Join whose sender is in my_fail_set is ignored",
        {1, 2, 3}, Sets({1, 2, 3}, {3}), 3, Sets({1, 2, 3, 4}, {2}), IGNORED, Sets({1, 2, 3}, {3}),
    ),
    Case(
        "Updating: a failed sender is ignored even where it agrees on all but itself",
        {1, 2}, Sets({1, 2}, {2}), 2, Sets({1, 2}, set()), IGNORED, Sets({1, 2}, {2}),
    ),
    Case(
        "Updating: whoever has failed me is failed in turn, and considered",
        {1}, Sets({1}, set()), 2, Sets({1, 2}, {1}), CHANGED, Sets({1, 2}, {2}),
    ),
    Case(
        "Updating: one that has failed me is believed in nothing else",
        {1, 2, 3}, Sets({1, 2, 3}, set()), 2, Sets({1, 2, 3, 4}, {1, 3}), CHANGED, Sets({1, 2, 3}, {2}),
    ),
    Case(
        "Updating: new processors are considered",
        {1}, Sets({1}, set()), 2, Sets({2, 3}, set()), CHANGED, Sets({1, 2, 3}, set()),
    ),
    Case(
        "Updating: a companion's failures are believed, of my old ring too",
        {1, 2, 3}, Sets({1, 2, 3}, set()), 2, Sets({1, 2, 3}, {3}), CHANGED, Sets({1, 2, 3}, {3}),
    ),
    Case(
        "Updating, the exception: an outsider may not fail a member of my old ring",
        {1, 3}, Sets({1, 2, 3}, set()), 2, Sets({1, 2, 3}, {3}), IGNORED, Sets({1, 2, 3}, set()),
    ),
    Case(
        "Updating: an outsider is believed about other outsiders",
        {1, 3}, Sets({1, 2, 3, 4}, set()), 2, Sets({1, 2, 3, 4}, {3, 4}), CHANGED, Sets({1, 2, 3, 4}, {4}),
    ),
    Case(
        "Updating, the exception: it takes nothing from an outsider's proc_set",
        {1, 3}, Sets({1, 3}, set()), 2, Sets({1, 2, 3, 5}, {3}), CHANGED, Sets({1, 2, 3, 5}, set()),
    ),
    Case(
        "§4.2, the sets only grow: what the sender does not consider stays",
        {1, 2, 5}, Sets({1, 2, 5}, {5}), 2, Sets({2, 3}, {3}), CHANGED, Sets({1, 2, 3, 5}, {3, 5}),
    ),
]  # fmt: skip


def gathering(memb: set[int], before: Sets, members_max: int = 60) -> Gathering:
    made = Gathering(ME, memb, members_max)
    for processor in sorted(before.proc - memb):
        made.add(processor)
    for processor in sorted(before.fail):
        made.fail(processor)
    assert made.sets == before
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.claim)
def test_a_join_does_what_the_paper_says(case: Case) -> None:
    mine = gathering(case.memb, case.before)
    assert mine.absorb(join_of(case.sender, *case.join)) is case.result
    assert mine.sets == case.after


@given(
    st.sets(st.integers(1, 6)),
    st.lists(st.tuples(st.integers(2, 6), st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)))),
)
def test_the_sets_only_grow_and_a_processor_never_fails_itself(
    memb: set[int], joins: list[tuple[int, set[int], set[int]]]
) -> None:
    """Totem §4.2: that is what makes the membership algorithm terminate."""
    mine = Gathering(ME, memb | {ME}, 60)
    for sender, proc_set, fail_set in joins:
        before = mine.sets
        result = mine.absorb(join_of(sender, proc_set | {sender} | fail_set, fail_set - {sender}))
        assert before[0] <= mine.sets[0]
        assert before[1] <= mine.sets[1]
        assert ME not in mine.fail_set
        assert (result is CHANGED) == (before != mine.sets)


# Consensus


def agreeing(mine: Gathering, sender: int, rotation_count: int = 0, ring_seq: int = 0) -> Join:
    proc_set, fail_set = mine.sets
    return join_of(sender, proc_set, fail_set, rotation_count=rotation_count, ring_seq=ring_seq)


@pytest.mark.parametrize("first", [2, 3])
def test_of_two_that_accuse_each_other_the_smaller_is_believed(first: int) -> None:
    """Totem has the sets joined, which leaves a processor that hears both with neither (docs/decisions/0016).
    In whatever order the two are heard, all keep the same one."""
    gathering = Gathering(4, (4,), 16)
    everyone = {1, 2, 3, 4}
    for sender in (2, 3):
        gathering.absorb(join_of(sender, everyone, ()))
    for sender in (first, 5 - first):
        gathering.absorb(join_of(sender, everyone, {5 - sender}))
    assert gathering.fail_set == {3}


def test_two_that_hear_both_ends_of_a_dead_link_stay_together() -> None:
    """4 heard that 3 has failed, 5 heard first that 2 has."""
    four, five = (Gathering(me, (me,), 16) for me in (4, 5))
    everyone = {2, 3, 4, 5}
    for gathering, order in ((four, (2, 3)), (five, (3, 2))):
        for sender in order:
            gathering.absorb(join_of(sender, everyone, ()))
        for sender in order:
            gathering.absorb(join_of(sender, everyone, {5 - sender}))
    assert four.sets == five.sets
    assert four.candidates == (2, 4, 5)


def test_a_smaller_one_that_is_not_heard_has_failed() -> None:
    gathering = Gathering(4, (4,), 16)
    assert gathering.absorb(join_of(3, {2, 3, 4}, {2})) is CHANGED
    assert gathering.fail_set == {2}


def test_failures_of_those_who_accuse_nobody_here_are_joined() -> None:
    """2 and 4 have each noticed one crash: both are believed."""
    gathering = Gathering(1, (1,), 16)
    everyone = {1, 2, 3, 4, 5}
    assert gathering.absorb(join_of(2, everyone, {3})) is CHANGED
    assert gathering.absorb(join_of(4, everyone, {5})) is CHANGED
    assert gathering.fail_set == {3, 5}


def test_a_companion_on_the_other_side_is_believed() -> None:
    """The old ring stays together, though its members have heard different sides."""
    gathering = Gathering(1, (1, 4), 16)
    everyone = {1, 2, 3, 4}
    assert gathering.absorb(join_of(2, everyone, {3})) is CHANGED
    assert gathering.absorb(join_of(4, everyone, {2})) is CHANGED
    assert gathering.fail_set == {2, 3}


def test_one_alone_is_agreed_with_itself() -> None:
    assert Gathering(ME, {ME}, 60).consensus


def test_consensus_takes_a_matching_join_of_every_candidate() -> None:
    """Totem §4.2, Reaching Consensus."""
    mine = gathering({1}, Sets({1, 2, 3, 4}, {4}))
    assert not mine.consensus
    mine.absorb(agreeing(mine, 2))
    assert not mine.consensus
    mine.absorb(agreeing(mine, 3))
    assert mine.consensus
    assert mine.candidates == (1, 2, 3)


def test_consensus_is_gone_when_the_sets_change() -> None:
    mine = gathering({1}, Sets({1, 2}, set()))
    mine.absorb(agreeing(mine, 2))
    assert mine.consensus
    mine.add(3)
    assert not mine.consensus


def test_a_later_join_that_differs_takes_the_agreement_back() -> None:
    mine = gathering({1}, Sets({1, 2}, set()))
    mine.absorb(agreeing(mine, 2))
    mine.absorb(join_of(2, {2}))
    assert not mine.consensus


@pytest.mark.parametrize(
    ("join", "overtaken"),
    [
        (Sets({1, 2, 3}, {3}), False),
        (Sets({1, 2}, set()), False),
        (Sets({1, 2, 3}, {1, 3}), False),
        (Sets({1, 2, 3, 4}, {3, 4}), False),
        (Sets({1, 2, 3, 4, 5}, {3}), False),
        (Sets({1, 2, 3, 4}, {3}), True),
        (Sets({1, 2, 4}, set()), True),
    ],
    ids=["the same", "less", "me failed", "more, but failed", "too many", "one more", "and less failed"],
)
def test_a_candidate_that_wants_a_larger_ring_refuses_the_commit_token(join: Sets, overtaken: bool) -> None:
    """Totem §4.2: it takes a Commit token only for its own candidates, and its sets only grow."""
    mine = gathering({1, 3}, Sets({1, 2, 3}, {3}), members_max=4)
    assert mine.is_overtaken_by(join_of(2, *join)) is overtaken


def test_the_silent_and_those_who_disagree_are_failed_together() -> None:
    """Totem §4.2, The Consensus Timeout."""
    mine = gathering({1}, Sets({1, 2, 3, 4}, set()))
    mine.absorb(agreeing(mine, 2))
    mine.absorb(join_of(3, {3}))
    mine.fail_the_silent()
    assert mine.sets == ({1, 2, 3, 4}, {3, 4})
    assert mine.candidates == (1, 2)


@pytest.mark.parametrize(
    ("counts", "weakest", "candidates"),
    [
        ({1: 3, 2: 1, 3: 2}, 2, (1, 3)),
        ({1: 3, 2: 2, 3: 2}, 2, (1, 3)),  # the first on the token's path of equals
        ({1: 1, 2: 1, 3: 0}, 3, (1, 2)),
        ({1: 0, 2: 1, 3: 1}, 1, (1,)),  # itself: it goes on alone
        ({1: 0, 2: 0, 3: 0}, 1, (1,)),
    ],
)
def test_the_same_membership_twice_costs_the_weakest_its_place(
    counts: dict[int, int], weakest: int, candidates: tuple[int, ...]
) -> None:
    """Totem §4.2, The Token Loss Timeout: the first on the path that forwarded the token fewest times."""
    mine = gathering({1}, Sets({1, 2, 3}, set()))
    for sender in (2, 3):
        mine.absorb(agreeing(mine, sender, counts[sender]))
    assert mine.fail_the_weakest(counts[1]) == weakest
    assert mine.candidates == candidates


def test_the_new_ring_is_numbered_above_every_join_used() -> None:
    """Totem §4.2: four plus the largest ring sequence number in any of the Joins used to reach consensus."""
    mine = gathering({1}, Sets({1, 2, 3, 4}, {4}))
    mine.joins[4] = join_of(4, {4}, ring_seq=400)
    mine.absorb(agreeing(mine, 2, ring_seq=12))
    mine.absorb(agreeing(mine, 3, ring_seq=8)._replace(future_ring_seq=20))
    assert mine.highest_ring_seq() == 20


# Limits


def test_no_more_than_members_max_are_considered() -> None:
    mine = gathering({1, 2}, Sets({1, 2}, set()), members_max=3)
    assert mine.add(3)
    assert not mine.add(4)
    assert mine.absorb(join_of(5, {5})) is IGNORED
    assert mine.sets == ({1, 2, 3}, set())


def test_many_that_have_failed_me_do_not_swell_the_sets() -> None:
    """A Join that carries more than 1024 processors cannot be encoded: the ring itself would raise."""
    mine = gathering({1, 2}, Sets({1, 2}, set()), members_max=10)
    for sender in range(100, 200):
        mine.absorb(join_of(sender, {1, sender}, {1}))
    assert len(mine.proc_set) <= 10


def test_joins_of_more_than_members_max_are_not_kept() -> None:
    mine = gathering({1, 2}, Sets({1, 2}, set()), members_max=10)
    for sender in range(100, 200):
        mine.absorb(join_of(sender, {sender}))
    assert len(mine.joins) <= 10
