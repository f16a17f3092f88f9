"""Totem §4.2, the membership algorithm (and how appendix A lets rings meet and rest), a test per claim."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from paperlab import CALM, MS, Lab, join

from sweeps import first_of
from totempole.core.order import InstallConfiguration
from totempole.sim.conditions import Condition, DiskSpeed
from totempole.sim.disk import Fate, read_log
from totempole.srp import RingConfig
from totempole.srp.gathering import Absorbed, Gathering
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    NullMessage,
    RegularMessage,
    RegularToken,
    Wake,
)
from totempole.srp.states import State
from totempole.trace.told import told
from totempole.types import NO_RING, ConfigurationKind, ProcessorId, RingId, RingKind, Service

REGULAR, TRANSITIONAL = ConfigurationKind.REGULAR, ConfigurationKind.TRANSITIONAL

SLOW_DISK = DiskSpeed(latency_us=(20 * MS, 20 * MS))
"""Slow enough for a test to look at the Commit state."""


def foreign_message(
    sender: ProcessorId, ring_id: RingId, recovered: bool = False, seq: int = 1
) -> RegularMessage:
    return RegularMessage(
        sender, 1, ring_id, seq, seq, Service.AGREED, 1, sender, ring_id, (), False, recovered, b"from afar"
    )


# Starting


def test_a_processor_starts_on_a_ring_of_its_own() -> None:
    """§4.2: a processor that starts first installs a singleton ring, then broadcasts a Join and gathers."""
    lab = Lab(3).form()
    for me in lab.everyone:
        first = lab.installed(me)[0]
        assert (first.kind, first.members, first.id.representative) == (REGULAR, (me,), me)
        start = next(entry for entry in lab.entries(me) if entry.packets)
        assert isinstance(start.packets[0], Join)
        assert lab.details("state", me)[0] == "starting>gather start"


def test_a_lone_processor_is_operational() -> None:
    """§4.2: nobody else is needed to form and install a ring."""
    lab = Lab(1).form()
    lab.send(1, 3, Service.SAFE)
    lab.run(10 * MS)
    assert len(lab.delivered(1)) == 3


def test_a_restart_takes_its_ring_number_from_stable_storage() -> None:
    """§4.2: my_ring_id's sequence number comes from stable storage when a processor comes up again."""
    lab = Lab(3).form()
    ring_seq = lab.ring(2).ring_id.seq
    lab.world.crash(2)
    lab.world.restart(2)
    lab.until(lambda: lab.state(2) is State.GATHER)
    assert lab.joins(source=2)[-1].ring_seq > ring_seq
    assert lab.installed(2)[-1].id.seq > ring_seq


# The seven events


def test_token_loss_starts_the_membership_algorithm() -> None:
    """§4.2: on a Token Loss timeout in Operational a processor broadcasts a Join and shifts to Gather."""
    lab = Lab(3).form()
    since_us = lab.mark
    lab.lose_token()
    lab.run(CALM.token_loss_us + 50 * MS)
    first = lab.rows("state", since_us=since_us)[0]
    assert told(first) == "operational>gather token loss"
    assert abs(first.at_us - since_us - CALM.token_loss_us) < MS
    assert lab.members(1) == lab.everyone
    assert any(sent.at_us == first.at_us and sent.source == first.node for sent in lab.sent(Join, since_us))


def test_a_foreign_message_starts_the_membership_algorithm() -> None:
    """§4.2: a message of a processor that is not on the ring activates the membership algorithm."""
    config = RingConfig(null_us=1_000 * MS)
    lab = Lab(4, config).form([1, 2], [3, 4])
    since_us = lab.mark
    lab.world.heal()
    lab.send(4)
    lab.until_rings(lab.everyone)
    first = lab.rows("state", since_us=since_us)[0]
    assert first.node in (1, 2)
    assert told(first) == "operational>gather foreign message"
    assert 4 in next(j for j in lab.joins(since_us) if j.sender == first.node).proc_set


def test_a_join_starts_the_membership_algorithm() -> None:
    """§4.2: a Join of an outsider takes a processor from Operational to Gather."""
    lab = Lab(2).form()
    lab.inject(1, join(9, {9}, ring_seq=4))
    assert lab.details("state", 1)[-1] == "operational>gather join"
    assert lab.joins(source=1)[-1].proc_set == {1, 2, 9}


def test_failure_to_receive_starts_the_membership_algorithm() -> None:
    """§4.2: when the aru has stood still for long, the one that set it is declared failed and expelled."""
    lab = Lab(4, RingConfig(idle_rounds=300, fail_to_receive_rounds=10)).form()
    since_us = lab.mark
    lab.world.set_condition(Condition(loss=1.0, token_loss=0.0), target=3)
    lab.send(1, 3)
    lab.until_rings([1, 2, 4])
    first = lab.rows("state", since_us=since_us)[0]
    assert told(first) == "operational>gather failure to receive"
    assert first.node != 3
    assert next(j for j in lab.joins(since_us) if j.sender == first.node).fail_set == {3}


def test_nobody_declares_itself_failed() -> None:
    """§4.2: a processor never declares itself failed, though the aru it set stands still at it too."""
    lab = Lab(4, RingConfig(idle_rounds=300, fail_to_receive_rounds=10)).form()
    lab.world.set_condition(Condition(loss=1.0, token_loss=0.0), target=3)
    lab.send(1, 3)
    lab.run(400 * MS)
    assert all(join.sender not in join.fail_set for join in lab.joins())
    assert not any("failure to receive" in detail for detail in lab.details("state", 3))


# Operational: what is not acted upon


def test_a_join_from_one_that_has_expelled_the_receiver_is_ignored() -> None:
    """§4.2: in Operational a Join that has the receiver in its fail_set is ignored."""
    lab = Lab(3).form()
    lab.inject(1, join(9, {1, 2, 3, 9}, {1}, ring_seq=100))
    assert lab.state(1) is State.OPERATIONAL
    assert lab.details("drop", 1)[-1] == "join that does not concern us"


def test_a_late_join_of_a_member_is_ignored() -> None:
    """§4.2: in Operational a member's Join with a ring_seq below the ring's own number is ignored."""
    lab = Lab(3).form()
    lab.inject(1, join(2, {1, 2, 3}, ring_seq=lab.ring(1).ring_id.seq - 4))
    assert lab.state(1) is State.OPERATIONAL
    lab.inject(1, join(2, {1, 2, 3}, ring_seq=lab.ring(1).ring_id.seq, counter=10**6 + 1))
    assert lab.state(1) is State.GATHER


def test_a_commit_token_means_nothing_to_an_operational_processor() -> None:
    """§4.2: a processor that receives a Commit token in the Operational state discards it."""
    lab = Lab(3).form()
    seq = lab.ring(1).ring_id.seq
    entries = tuple(CommitEntry(me, NO_RING, 0, 0, ()) for me in (1, 2, 3))
    (entry,) = lab.inject(1, CommitToken(3, 1, 1, RingId(seq + 4, 1), 0, 0, 0, entries))
    assert lab.state(1) is State.OPERATIONAL
    assert entry.packets == []


# Gather


def gathering(me: ProcessorId, memb: tuple[ProcessorId, ...], proc_set: set[ProcessorId]) -> Gathering:
    state = Gathering(me, memb, 60)
    state.proc_set |= proc_set
    return state


def test_a_join_is_repeated_until_consensus() -> None:
    """§4.2: when the Join timeout expires in Gather the Join is broadcast again."""
    lab = Lab(1).form()
    since_us = lab.mark
    lab.inject(1, foreign_message(9, RingId(40, 9)))
    lab.run(CALM.consensus_us - MS)
    times = [sent.at_us for sent in lab.sent(Join, since_us)]
    assert [after - before for before, after in pairwise(times)] == [CALM.join_us] * 4
    assert len({(join.proc_set, join.fail_set) for join in lab.joins(since_us)}) == 1


def test_those_who_stay_silent_are_regarded_as_failed() -> None:
    """§4.2: on a Consensus timeout all from which no agreeing Join came go into my_fail_set."""
    lab = Lab(1).form()
    since_us = lab.mark
    lab.inject(1, foreign_message(9, RingId(40, 9)))
    lab.run(CALM.consensus_us + 10 * MS)
    assert (lab.joins(since_us)[-1].proc_set, lab.joins(since_us)[-1].fail_set) == ({1, 9}, {9})
    assert lab.members(1) == (1,)


def test_gather_ends_in_bounded_time() -> None:
    """§4.2: the time in each state is bounded by timeouts, and the sets only grow, so that a ring comes."""
    lab = Lab(4).form()
    lab.world.crash(2)
    lab.world.crash(4)
    lab.until_rings([1, 3], within_us=CALM.token_loss_us + CALM.consensus_us + 20 * MS)


def test_the_sets_only_grow_until_a_ring_is_installed() -> None:
    """§4.2: termination comes of letting proc_set and fail_set only increase."""
    lab = Lab(6, condition=Condition(loss=0.2)).form([1, 2, 3], [4, 5, 6], within_us=20_000 * MS)
    lab.world.heal()
    lab.run(300 * MS)
    lab.world.crash(5)
    lab.run(700 * MS)
    grew = 0
    for me in lab.everyone:
        previous: Join | None = None
        for entry in lab.entries(me):
            for packet in entry.sent(Join):
                if previous is not None and previous.incarnation == packet.incarnation:
                    assert previous.proc_set <= packet.proc_set
                    assert previous.fail_set <= packet.fail_set
                    grew += previous.proc_set != packet.proc_set
                previous = packet
            if any(isinstance(effect, InstallConfiguration) for effect in entry.effects):
                previous = None
    assert grew


def test_a_join_with_the_same_sets_is_agreement() -> None:
    """§4.2: a Join with identical sets records its sender as taking part in the consensus."""
    state = gathering(1, (1, 2), {1, 2})
    assert not state.consensus
    assert state.absorb(join(2, {1, 2}, ring_seq=8)) is Absorbed.AGREES
    assert state.consensus


def test_an_agreement_stays_until_the_sets_change() -> None:
    """§4.2, figures 4.5 to 4.7: consensus[q] stays true until this processor's own sets change.

    Processor 7, an outsider, has agreed, and is a moment earlier than 2 to give up the silent 1. Its Join
    changes nothing here, since an outsider may not break up the ring of 1 and 2; at 2's own Consensus
    timeout, only 1 has not been heard to agree.
    """
    state = gathering(2, (1, 2), {1, 2, 7})
    state.absorb(join(7, {1, 2, 7}, ring_seq=8))
    assert state.absorb(join(7, {1, 2, 7}, {1}, ring_seq=8)) is Absorbed.IGNORED
    state.fail_the_silent()
    assert state.fail_set == {1}


def test_consensus_takes_everyone_who_has_not_failed() -> None:
    """§4.2: consensus needs equal sets from every processor in my_proc_set less my_fail_set."""
    state = gathering(1, (1, 2, 3), {1, 2, 3})
    state.fail(3)
    state.absorb(join(2, {1, 2, 3}, ring_seq=8))
    assert not state.consensus
    state.absorb(join(2, {1, 2, 3}, {3}, ring_seq=8))
    assert state.consensus


def test_a_join_of_one_regarded_as_failed_is_ignored() -> None:
    """§4.2: if the sender is in the receiver's my_fail_set, the Join is ignored."""
    state = gathering(1, (1, 2, 3), {1, 2, 3})
    state.fail(2)
    assert state.absorb(join(2, {1, 2, 3, 9}, {3}, ring_seq=8)) is Absorbed.IGNORED
    assert state.sets == ({1, 2, 3}, {2})


def test_one_that_regards_the_receiver_as_failed_is_regarded_as_failed() -> None:
    """§4.2: who has the receiver in its fail_set cannot be on a ring with it; nothing else is believed."""
    state = gathering(1, (1, 2, 3), {1, 2, 3})
    state.absorb(join(2, {1, 2, 3, 9}, {1, 3}, ring_seq=8))
    assert state.sets == ({1, 2, 3}, {2})


def test_a_members_suspicions_are_believed() -> None:
    """§4.2: the receiver adds the identifiers in the fail_set of a companion's Join to its own."""
    lab = Lab(3).form()
    lab.inject(1, join(2, {1, 2, 3}, {3}, ring_seq=lab.ring(1).ring_id.seq))
    assert lab.joins(source=1)[-1].fail_set == {3}


def test_an_outsiders_suspicions_of_the_ring_are_not_believed() -> None:
    """§4.2: an outsider cannot have a member of the receiver's old ring put in its my_fail_set."""
    lab = Lab(3).form()
    lab.inject(1, join(9, {1, 2, 3, 8, 9}, {2, 8}, ring_seq=4))
    last = lab.joins(source=1)[-1]
    assert last.proc_set == {1, 2, 3, 8, 9}
    assert last.fail_set == {8}


def test_those_who_cannot_hear_each_other_share_no_ring() -> None:
    """§4.2: in a membership every processor can communicate with every other, when the ring is formed."""
    lab = Lab(3).form()
    lab.world.cut(1, 2)
    lab.lose_token()
    lab.run(3_000 * MS)
    since_us = lab.mark
    lab.run(3_000 * MS)
    later = [c.members for me in lab.everyone for c in lab.installed(me, REGULAR, since_us)]
    present = [lab.ring(me).members for me in lab.everyone]
    assert not [members for members in later + present if {1, 2} <= set(members)]


# Forming the ring


def test_the_representative_is_the_smallest_and_the_first_on_the_ring() -> None:
    """§4.2: the representative is chosen deterministically and placed first in the memb_list."""
    lab = Lab([70, 30, 90, 50]).form()
    assert lab.ring(90).ring_id.representative == 30
    tokens = [sent.packet for sent in lab.sent(CommitToken) if len(sent.packet.memb_list) == 4]
    assert tokens
    assert all([e.processor for e in token.memb_list] == [30, 50, 70, 90] for token in tokens)
    lab.run(10 * MS)
    path = [(sent.source, sent.to) for sent in lab.sent(RegularToken)[-4:]]
    assert set(path) == {(30, 50), (50, 70), (70, 90), (90, 30)}


def test_a_rings_number_is_four_above_the_highest() -> None:
    """§4.2: a new ring's number is four more than the largest ring number in the Joins of the consensus."""
    lab = Lab(5).form([1, 2, 3], [4, 5])
    lab.world.partition([[1, 2, 3], [4], [5]])
    lab.until_rings([4], [5])
    lab.world.partition([[1, 2, 3], [4, 5]])
    lab.until_rings([4, 5])
    highest = max(lab.ring(me).ring_id.seq for me in lab.everyone)
    assert highest == lab.ring(4).ring_id.seq > lab.ring(1).ring_id.seq
    lab.world.heal()
    lab.until_rings(lab.everyone)
    assert lab.ring(1).ring_id == RingId(highest + 4, 1)


def test_a_transitional_configuration_is_named_two_below_the_ring() -> None:
    """§4.2, §4.3: its number is two less than the new ring's, its representative is of my_trans_memb."""
    lab = Lab(5).form([1, 4], [2, 3, 5])
    since_us = lab.mark
    lab.world.heal()
    lab.until_rings(lab.everyone)
    seq = lab.ring(1).ring_id.seq
    for part in ((1, 4), (2, 3, 5)):
        for me in part:
            (transitional,) = lab.installed(me, TRANSITIONAL, since_us)
            assert transitional.members == part
            assert transitional.id == RingId(seq - 2, part[0])


def test_no_two_configurations_share_a_name() -> None:
    """§4.2: ring numbers make every regular and transitional configuration's identifier unique."""
    lab = Lab(5).form([1, 2], [3, 4, 5])
    for components in ([[1, 2, 3], [4, 5]], [[1], [2, 3, 4, 5]], [[1, 2, 3, 4, 5]]):
        lab.world.partition(components)
        lab.until_rings(*components)
    named: dict[RingId, tuple[ProcessorId, ...]] = {}
    for me in lab.everyone:
        for configuration in lab.installed(me):
            assert named.setdefault(configuration.id, configuration.members) == configuration.members
    lab.assert_checkers_hold()


def commit_tokens(lab: Lab, since_us: int) -> list[CommitToken]:
    return [sent.packet for sent in lab.sent(CommitToken, since_us)]


def test_the_first_rotation_of_the_commit_token_collects() -> None:
    """§4.2: on the Commit token's first rotation each member fills in its own entry."""
    lab = Lab(4).form([1, 2], [3, 4])
    lab.send(1, 3)
    lab.run(10 * MS)
    since_us = lab.mark
    old = {me: lab.ring(me).ring_id for me in lab.everyone}
    lab.world.heal()
    lab.until_rings(lab.everyone)
    first = [token for token in commit_tokens(lab, since_us) if len(token.memb_list) == 4][-8:-4]
    assert [sum(entry.filled for entry in token.memb_list) for token in first] == [1, 2, 3, 4]
    assert {entry.processor: entry.old_ring_id for entry in first[-1].memb_list} == old
    assert [entry.old_ring_aru for entry in first[-1].memb_list] == [3, 3, 0, 0]
    assert [entry.high_delivered for entry in first[-1].memb_list] == [3, 3, 0, 0]


def test_the_second_rotation_of_the_commit_token_spreads() -> None:
    """§4.2: on the second reception a member learns what all others supplied, and shifts to Recover."""
    lab = Lab(4).form([1, 2], [3, 4])
    since_us = lab.mark
    lab.world.heal()
    lab.until_rings(lab.everyone)
    second = [token for token in commit_tokens(lab, since_us) if len(token.memb_list) == 4][-4:]
    assert [token.sender for token in second] == [1, 2, 3, 4]
    assert len({token.memb_list for token in second}) == 1
    for me in lab.everyone:
        shift = next(row for row in lab.rows("state", me, since_us) if row.new_state == "recover")
        assert shift.at_us == next(s.at_us for s in lab.sent(CommitToken, shift.at_us, me))


def test_one_lost_commit_token_is_sent_again() -> None:
    """§4.2, figure 4.9: the Token Retransmission timeout runs in Commit, too; no new consensus is needed."""
    lab = Lab(3).form()
    since_us = lab.mark
    lab.lose_token()
    lab.lose(lambda p: isinstance(p, CommitToken) and p.sender == 2, count=1)
    lab.until_next_rings([1, 2, 3])
    commits = {token.ring_id for token in commit_tokens(lab, since_us)}
    assert commits == {lab.ring(1).ring_id}


def test_the_commit_token_must_fit_the_receivers_sets() -> None:
    """§4.2: a Commit token with another membership, or an old ring number, is discarded in Gather."""
    lab = Lab(2).form()
    lab.world.partition([[1], [2]])
    lab.until(lambda: lab.state(1) is State.GATHER)
    seq = lab.ring(1).ring_id.seq
    for number, members in ((seq + 4, (1, 2, 3)), (seq + 4, (1,)), (seq, (1, 2))):
        entries = tuple(CommitEntry(me, NO_RING, 0, 0, ()) for me in members)
        lab.inject(1, CommitToken(2, 1, 1, RingId(number, 1), 0, 0, 0, entries))
        assert lab.state(1) is State.GATHER
        assert lab.details("drop", 1)[-1] == "commit token that does not concern us"


def test_a_fitting_commit_token_is_consensus() -> None:
    """§4.2: one that gets a Commit token with its own membership has reached consensus by it."""
    lab = Lab(3).form()
    since_us = lab.mark
    # 3 never hears 2's agreement, so it can only learn of the consensus from the Commit token.
    lab.lose(lambda p: isinstance(p, Join) and p.sender == 2, to=3)
    lab.lose_token()
    lab.until_next_rings([1, 2, 3], within_us=CALM.token_loss_us + 20 * MS)
    assert all(c.members == (1, 2, 3) for me in lab.everyone for c in lab.installed(me, REGULAR, since_us))


def test_the_same_membership_twice_costs_the_weakest() -> None:
    """§4.2: rather than repeat a proposed membership, the first that forwarded the token least is failed."""
    lab = Lab(4).form()
    since_us = lab.mark
    lab.lose_token()
    # The Commit token comes to 1 and 2 but never to 3, so 3 and 4 have forwarded it least, and 3 is first.
    lab.lose(lambda p: isinstance(p, CommitToken), to=3)
    lab.until_rings([1, 2, 4])
    tried = [tuple(e.processor for e in t.memb_list) for t in commit_tokens(lab, since_us) if t.sender == 1]
    assert set(tried[:-1]) <= {(1, 2, 3, 4), (1, 2, 4)}
    assert "same membership twice" in lab.details("branch", since_us=since_us)
    assert {join.fail_set for join in lab.joins(since_us, source=1)} == {frozenset(), frozenset({3})}


def test_the_weakest_goes_on_alone() -> None:
    """§4.2: if the processor with the fewest rotations is the processor itself, it forms a singleton ring."""
    lab = Lab(4).form()
    since_us = lab.mark
    lab.lose_token()
    lab.lose(lambda p: isinstance(p, CommitToken), to=3)
    lab.until_rings([3])
    assert [c.members for c in lab.installed(3, REGULAR, since_us)] == [(3,)]


def waiting_for_a_commit_token() -> Lab:
    """1 and 2 have the Commit token of a new ring of four. 3 agrees, and waits for it in vain."""
    lab = Lab(4).form()
    lab.lose_token()
    lab.lose(lambda p: isinstance(p, CommitToken), to=3)
    lab.until(lambda: lab.state(2) is State.COMMIT)
    lab.run(5 * MS)
    assert lab.state(3) is State.GATHER
    return lab


def test_a_commit_token_that_others_have_given_up_is_not_waited_for() -> None:
    """Deviation from figure 4.6: a Join with a new ring's number shows that the Commit token went round in
    vain. Its sender begins anew, and the others do so with it: the next wait is for the next token."""
    lab = waiting_for_a_commit_token()
    attempt, since_us = lab.machine(1).ring_id.seq, lab.mark
    lab.inject(3, join(1, {1, 2, 3, 4}, ring_seq=attempt))
    assert lab.details("state", 3, since_us) == ["gather>gather join"]
    assert "commit token given up by a member" in lab.details("branch", 3, since_us)


def test_a_join_with_an_old_rings_number_does_not_end_the_wait_for_a_commit_token() -> None:
    """§4.2: it says no more than that its sender agrees."""
    lab = waiting_for_a_commit_token()
    since_us = lab.mark
    lab.inject(3, join(1, {1, 2, 3, 4}, ring_seq=lab.ring(3).ring_id.seq))
    assert lab.details("state", 3, since_us) == []


def test_the_ring_number_is_on_stable_storage_before_the_commit_token_leaves_again() -> None:
    """§4.2: on the second visit a processor writes the ring's number to stable storage, then forwards."""
    lab = Lab(3, disk=SLOW_DISK).form()
    since_us = lab.mark
    lab.lose_token()
    for me in lab.everyone:
        lab.until(lambda me=me: lab.state(me) is State.RECOVER)
        on_disk, _ = read_log(bytes(lab.world.hosts[me].disk.log))
        assert on_disk["ring_seq"] == lab.machine(me).ring_id.seq
    waited = [row for row in lab.rows("state", since_us=since_us) if row.new_state == "recover"]
    begun = [row for row in lab.rows("state", since_us=since_us) if row.new_state == "commit"]
    assert waited[0].at_us - begun[0].at_us >= 20 * MS


def test_a_crash_after_the_second_commit_visit_never_reuses_the_number() -> None:
    """§4.2: whoever crashes after forwarding the Commit token the second time comes back above its number."""
    lab = Lab(3, disk=SLOW_DISK).form()
    lab.lose_token()
    lab.until(lambda: lab.state(1) is State.RECOVER)
    number = lab.machine(1).ring_id.seq
    lab.world.crash(1, Fate.LOST)
    since_us = lab.mark
    lab.world.restart(1)
    lab.until_rings([1, 2, 3])
    assert all(c.id.seq > number for c in lab.installed(1, REGULAR, since_us))
    lab.assert_checkers_hold()


# Commit and Recover


def in_state(state: State, members: int = 3) -> Lab:
    """Processor 1 in Commit or Recover of a ring that it forms with the others."""
    lab = Lab(members, disk=SLOW_DISK).form()
    lab.lose_token()
    lab.until(lambda: lab.state(1) is state)
    return lab


@pytest.mark.parametrize("state", [State.COMMIT, State.RECOVER])
def test_a_member_that_gives_the_new_ring_up_takes_the_others_along(state: State) -> None:
    """§4.2: in Commit and Recover a member's Join with the new ring's number sends a processor to Gather."""
    lab = in_state(state)
    lab.inject(1, join(2, {1, 2, 3}, ring_seq=lab.machine(1).ring_id.seq))
    assert lab.details("state", 1)[-1] == f"{state.name.lower()}>gather join"


@pytest.mark.parametrize("state", [State.COMMIT, State.RECOVER])
def test_older_joins_and_outsiders_do_not_disturb_a_ring_in_the_making(state: State) -> None:
    """§4.2: in Commit and Recover other Joins are ignored, and foreign messages too."""
    lab = in_state(state)
    number = lab.machine(1).ring_id.seq
    lab.inject(1, join(2, {1, 2, 3}, ring_seq=number - 1))
    lab.inject(1, join(9, {1, 2, 3, 9}, ring_seq=number + 100))
    lab.inject(1, foreign_message(9, RingId(number, 9)))
    assert lab.state(1) is state


def test_a_member_that_refuses_the_commit_token_ends_the_wait_for_it() -> None:
    """Deviation from figure 4.10: a member that has learned of 9 discards the Commit token (§4.2, "If they
    differ"). Its Join says so, and the others need not wait for the Token Loss timeout."""
    lab = in_state(State.COMMIT)
    lab.inject(1, join(2, {1, 2, 3, 9}, ring_seq=lab.machine(1).ring_id.seq - 4))
    assert lab.details("state", 1)[-1] == "commit>gather join"
    lab.run(CALM.join_us)
    assert lab.joins(source=1)[-1].proc_set == {1, 2, 3, 9}


def test_a_join_from_before_the_commit_token_is_late_in_recover() -> None:
    """All members have taken the Commit token by then (§4.2: it goes round twice)."""
    lab = in_state(State.RECOVER)
    lab.inject(1, join(2, {1, 2, 3, 9}, ring_seq=lab.machine(1).ring_id.seq - 4))
    assert lab.state(1) is State.RECOVER
    assert lab.details("drop", 1)[-1] == "join that does not concern us"


@pytest.mark.parametrize("state", [State.COMMIT, State.RECOVER])
def test_token_loss_in_commit_and_recover_leads_back_to_gather(state: State) -> None:
    """§4.2: if the Commit token or the new ring's token is lost, the processor gathers again."""
    lab = in_state(state)
    since_us = lab.mark
    for me in (2, 3):
        lab.world.crash(me)
    lab.run(CALM.token_loss_us + MS)
    assert f"{state.name.lower()}>gather token loss" in lab.details("state", 1, since_us)


@pytest.mark.parametrize("state", [State.GATHER, State.COMMIT])
def test_the_old_rings_token_is_discarded_in_gather_and_commit(state: State) -> None:
    """§4.2: after the shift to Gather, and in Commit, regular tokens are discarded."""
    lab = in_state(state)
    ring = lab.ring(1)
    (entry,) = lab.inject(1, RegularToken(ring.predecessor, 1, ring.ring_id, ring.my_token_seq + 1, 0, 0))
    assert entry.packets == []
    assert lab.details("drop", 1)[-1] == f"RegularToken in {state.name.lower()}"


@pytest.mark.parametrize("state", [State.GATHER, State.COMMIT])
def test_old_ring_messages_are_still_taken_in_gather_and_commit(state: State) -> None:
    """§4.2, figures 4.6 and 4.10: regular messages are handled in Gather and Commit as in Operational."""
    lab = in_state(state)
    (entry,) = lab.inject(1, foreign_message(2, lab.ring(1).ring_id))
    assert [bytes(delivery.payload) for delivery in entry.delivered] == [b"from afar"]


def test_messages_of_a_recovering_ring_disturb_nobody() -> None:
    """§4.2: a foreign message that is one retransmitted in the Recover state does not start Gather."""
    lab = Lab(2).form()
    lab.inject(1, foreign_message(9, RingId(400, 9), recovered=True))
    assert lab.state(1) is State.OPERATIONAL
    lab.inject(1, foreign_message(9, RingId(400, 9), seq=2))
    assert lab.state(1) is State.GATHER


# Meeting, leaving and resting (appendix A)


def test_idle_rings_meet_when_the_network_heals() -> None:
    """Appendix A: the periodic null message lets two idle rings hear of each other and merge."""
    lab = Lab(4).form([1, 2], [3, 4])
    lab.world.heal()
    since_us = lab.mark
    lab.until_rings(lab.everyone, within_us=3 * CALM.null_us)
    assert lab.sent(RegularMessage, since_us) == []
    assert lab.sent(NullMessage, since_us)
    assert "idle rings meet" in lab.details("branch", since_us=since_us)


def test_no_null_message_is_sent_while_there_is_traffic() -> None:
    """Appendix A: null messages are for the quiet; a processor's own messages show it just as well."""
    config = RingConfig(null_us=50 * MS)
    lab = Lab(2, config).form()
    lab.run(100 * MS)
    since_us = lab.mark
    for _ in range(30):
        lab.send(1)
        lab.run(10 * MS)
    assert not lab.sent(NullMessage, since_us, source=1)
    assert lab.sent(NullMessage, since_us, source=2)


def test_a_leave_re_forms_the_ring_at_once() -> None:
    """A departing member says so, and the others form the next ring without waiting for token loss (§4.2)."""
    lab = Lab(4).form()
    since_us = lab.mark
    lab.world.leave(2)
    lab.until_rings([1, 3, 4], within_us=CALM.token_loss_us // 5)
    assert lab.details("branch", 1, since_us)[0] == "graceful leave"
    assert not lab.world.hosts[2].alive


def test_one_that_leaves_sees_its_messages_delivered_first() -> None:
    """A departing member's messages reach everyone, in their configuration with it (§4.2, self-delivery)."""
    lab = Lab(3).form()
    ring_id = lab.ring(1).ring_id
    lab.send(2, 20, Service.SAFE)
    lab.world.leave(2)
    lab.until_rings([1, 3])
    for me in lab.everyone:
        assert [(d.origin, d.configuration) for d in lab.delivered(me)] == [(2, ring_id)] * 20


@pytest.mark.parametrize("kind", RingKind)
@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("later_us", first_of([330, 0, 170, 490]))
def test_one_that_leaves_delivers_every_safe_message_that_it_acknowledged(
    later_us: int, loss: float, kind: RingKind
) -> None:
    """§3.3: a message that is safe in a regular configuration is delivered by all its members, or they fail.
    A leave is no failure, though the others go on sending."""
    lab = Lab(3, replace(CALM, ring_kind=kind), condition=Condition(loss=loss)).form()
    ring_id = lab.ring(1).ring_id
    since_us = lab.mark
    for _ in range(30):
        for me in (1, 3):
            lab.send(me, 2, Service.SAFE)
        lab.run(200)
    lab.run(later_us)
    lab.world.leave(2)
    for _ in range(30):
        for me in (1, 3):
            lab.send(me, 2, Service.SAFE)
        lab.run(200)
    lab.until(lambda: not lab.world.hosts[2].alive, within_us=CALM.leave_us - MS)
    lab.run(200 * MS)
    for me in (1, 3):
        safe = [d.message for d in lab.delivered(me, since_us) if d.configuration == ring_id]
        assert safe
        assert set(safe) <= {d.message for d in lab.delivered(2, since_us)}


def test_an_idle_rings_token_slows_down() -> None:
    """Appendix A: after MAX_FAST_ROUNDS without traffic the token is delayed on its way."""
    lab = Lab(4).form()
    lab.run(50 * MS)
    since_us = lab.mark
    lab.run(300 * MS)
    rotations = len(lab.tokens(since_us, source=1))
    assert abs(rotations - 300 * MS // CALM.idle_hold_us) <= 2
    assert lab.rows("state", since_us=since_us) == []


def test_a_submission_wakes_an_idle_ring() -> None:
    """A resting token must not delay messages: latency stays far below the hold (appendix A's delay)."""
    lab = Lab(4).form()
    lab.run(100 * MS)
    for me in (1, 3, 3, 2, 2, 2, 4):
        lab.run(51 * MS)
        since_us = lab.mark
        at_hand = lab.ring(me).rests_here(lab.ring(me).last_sent_seq, me)
        lab.send(me)
        lab.until_delivered(since_us, CALM.idle_hold_us // 10)
        woken = lab.sent(Wake, since_us)
        assert [sent.to for sent in woken] == ([] if at_hand else [None])


def test_an_idle_rings_token_rests_with_the_last_to_send() -> None:
    """A lone light sender has the token at hand, and delivers its own message as it submits it."""
    lab = Lab(4).form()
    lab.run(50 * MS)
    for me in (3, 2, 4):
        lab.send(me)
        lab.run(50 * MS)
        holders = [other for other in lab.everyone if lab.holds_token(other)]
        assert holders == [me]
        since_us = lab.mark
        lab.send(me)
        assert len(lab.delivered(me, since_us)) == 1
        lab.run(50 * MS)


@pytest.mark.parametrize("kind", RingKind)
@pytest.mark.parametrize("missed_by", [None, 2, 3, 4])
def test_the_token_rests_only_when_everyone_knows_that_all_is_safe(
    kind: RingKind, missed_by: ProcessorId | None
) -> None:
    """Nobody waits for the end of a rest to deliver a safe message, whoever had to ask for it again."""
    lab = Lab(4, RingConfig(ring_kind=kind)).form()
    lab.run(50 * MS)
    if missed_by is not None:
        lab.lose(lambda p: isinstance(p, RegularMessage), missed_by, count=1)
    since_us = lab.mark
    lab.send(1, service=Service.SAFE)
    lab.until(lambda: lab.holds_token(1), CALM.idle_hold_us)
    assert [len(lab.delivered(me, since_us)) for me in lab.everyone] == [1] * 4


def test_a_token_that_comes_to_rest_here_is_not_called() -> None:
    """It can rest with nobody else: a call would only wake them all."""
    lab = Lab(4).form()
    lab.send(2)
    lab.run(50 * MS)
    lab.until(lambda: not lab.holds_token(2), 2 * CALM.idle_hold_us)
    assert lab.ring(2).idle_rounds >= CALM.idle_rounds
    since_us = lab.mark
    lab.send(2)
    lab.until_delivered(since_us, CALM.idle_hold_us // 10)
    assert lab.sent(Wake, since_us) == []


def test_a_wake_that_is_lost_costs_no_more_than_the_hold() -> None:
    """The hold timeout bounds the wait, whoever holds the token (appendix A, MAX_DELAY_PROC)."""
    lab = Lab(4).form()
    lab.send(3)
    lab.run(100 * MS)
    lab.lose(lambda p: isinstance(p, Wake))
    since_us = lab.mark
    lab.send(1)
    lab.until_delivered(since_us, CALM.idle_hold_us + 2 * MS)
    assert len(lab.sent(Wake, since_us)) == 1


def test_a_message_wakes_the_ring_only_once() -> None:
    """The holder is woken by the first submission; those behind it in the queue need no more packets."""
    lab = Lab(4).form()
    lab.run(100 * MS)
    since_us = lab.mark
    lab.send(3, 10)
    lab.run(5 * MS)
    assert len(lab.sent(Wake, since_us)) == 1
    assert len(lab.delivered(2, since_us)) == 10
