"""Each assertion of `srp` fails when what it says is broken."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest
from srp_bench import OLD_RING, RING, alone_in, held, join_of

from invariants_seen import Breakage, assertions_in, failed_at
from totempole.srp import layout
from totempole.srp.commit import Commit
from totempole.srp.config import RingConfig
from totempole.srp.flow import FlowControl
from totempole.srp.forming import Forming
from totempole.srp.gather import Gather
from totempole.srp.gathering import Gathering
from totempole.srp.machine import Machine
from totempole.srp.operational import Operational
from totempole.srp.ordering import LAGGARD, REPORTS_MAX, Blame, Ordering, Submission
from totempole.srp.outsiders import REMEMBERED_MAX, Outsiders, remember
from totempole.srp.packets import CommitEntry, CommitToken, Leave, RegularToken, RetransmissionRequest
from totempole.srp.phase import Left, Starting
from totempole.srp.processor import Processor
from totempole.srp.recover import Recover
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Ring
from totempole.srp.stable import first_numbers
from totempole.srp.states import State, Timer
from totempole.srp.timeouts import LazyTimer, Timeouts
from totempole.srp.timestamps import TimestampClock
from totempole.types import RingId, Service
from totempole.wire import layout as wire_layout

OTHER_RING = RingId(400, 9)
Patch = pytest.MonkeyPatch


# Things that are still whole


def machine_in(state: State) -> Machine:
    """Processor 1, alone, in this state."""
    return alone_in(state)[1].machine


def starting() -> Starting:
    current = machine_in(State.STARTING).current
    assert isinstance(current, Starting)
    return current


def operational() -> Operational:
    current = machine_in(State.OPERATIONAL).current
    assert isinstance(current, Operational)
    return current


def gather() -> Gather:
    current = machine_in(State.GATHER).current
    assert isinstance(current, Gather)
    return current


def commit() -> Commit:
    current = machine_in(State.COMMIT).current
    assert isinstance(current, Commit)
    return current


def recover() -> Recover:
    current = machine_in(State.RECOVER).current
    assert isinstance(current, Recover)
    return current


def exchanged() -> Recover:
    """One that has only to install its ring."""
    current = recover()
    recovery = current.recovery
    recovery.received = True
    recovery._quiet_rounds, recovery._covered_rounds = 3, 2
    current.processor.promise = recovery.deliver_memb
    return current


def second_visit(state: Commit | Recover) -> CommitToken:
    """The Commit token with this processor's entry in it."""
    return commit_token(state.ring.ring_id, state.forming.my_entry)


def commit_token(ring_id: RingId, *entries: CommitEntry, token_seq: int = 9) -> CommitToken:
    return CommitToken(1, 1, 1, ring_id, token_seq, 0, 0, entries)


def token_of(ring: Ring, **fields: Any) -> RegularToken:
    """The next one of the ring."""
    usual = {"token_seq": ring.my_token_seq, "seq": ring.last_sent_seq, "aru": ring.last_aru_seen}
    return RegularToken(ring.predecessor, 1, ring.ring_id, **{**usual, **fields})


def taken(state: Operational) -> RegularToken:
    """The ring's next token, as `take` leaves things."""
    token = token_of(state.ring)
    state.ring.my_token_seq += 1
    return token


def ring_of(*seqs: int, members: tuple[int, ...] = (1, 2, 3)) -> Ring:
    ring = Ring(RING, members, 1, RingConfig())
    for seq in seqs:
        ring.insert(held(seq))
    return ring


def old_ring(*seqs: int) -> Ring:
    ring = Ring(OLD_RING, (1, 2, 3), 1, RingConfig())
    for seq in seqs:
        ring.insert(held(seq, ring_id=OLD_RING))
    return ring


def entry(me: int = 1, aru: int = 0, high: int = 0, old: RingId = OLD_RING) -> CommitEntry:
    return CommitEntry(me, old, aru, high, (), filled=True)


def recovery_of(*seqs: int, aru: int = 0, high: int = 0) -> Recovery:
    return Recovery((entry(aru=aru, high=high),), old_ring(*seqs))


def settings(**changed: int) -> Any:
    """Settings that no `RingConfig` can have."""
    config = RingConfig()
    return SimpleNamespace(**{**{name: getattr(config, name) for name in config.__slots__}, **changed})


def timeouts_with(**changed: int) -> Timeouts:
    return Timeouts(settings(**changed), operational().output)


# Ring


def a_ring_without_its_owner(patch: Patch) -> None:
    ring_of(members=(2, 3))


def members_out_of_order(patch: Patch) -> None:
    ring_of(members=(1, 3, 2))


def a_message_in_another_ones_place(patch: Patch) -> None:
    ring = ring_of()
    ring.messages[1] = held(2)
    list(ring.take_deliverable())


def an_aru_above_seq(patch: Patch) -> None:
    ring_of(1, 2, 3).updated_aru(aru=3, aru_id=2, seq=2, me=1)


def an_aru_that_has_stood_still_since_tomorrow(patch: Patch) -> None:
    ring = ring_of()
    ring.aru_count, ring.aru_since_us = 1, 9
    ring.note_failure_to_receive(0, 2, now_us=8)


def a_laggard_since_tomorrow(patch: Patch) -> None:
    ring = ring_of()
    ring.laggard, ring.lagging_since_us = 2, 9
    ring.note_lag(2, now_us=8, limit_us=100)


def a_laggard_that_always_keeps_up(patch: Patch) -> None:
    ring = ring_of()
    ring.laggard, ring.kept_up = 2, 5
    ring.note_lag(3, now_us=8, limit_us=100)


def a_token_that_acknowledges_too_much(patch: Patch) -> None:
    ring_of(1, 2).forwarded(seq=5, aru=3)


def freed_before_safe(patch: Patch) -> None:
    ring = ring_of(1, 2)
    ring.released = ring.delivered = 2
    ring.release()


def freed_before_delivered(patch: Patch) -> None:
    ring = ring_of(1, 2)
    ring.released = ring.safe_up_to = 2
    ring.release()


def a_message_that_outlived_its_release(patch: Patch) -> None:
    ring = ring_of(1, 2)
    ring.released = 2
    ring.answer((RetransmissionRequest(1),), packets=1)


# Ordering


def a_token_of_another_ring_visits(patch: Patch) -> None:
    state = operational()
    state.processor.ordering.visit(state.ring, token_of(state.ring)._replace(ring_id=OTHER_RING), None)


def more_originated_than_allowed(patch: Patch) -> None:
    patch.setattr(Ordering, "_originate", lambda *_: [held(seq) for seq in range(1, 500)])
    state = operational()
    state.processor.ordering._send_before_token(state.ring, token_of(state.ring), None)


def a_queue_without_end(patch: Patch) -> None:
    state = operational()
    ordering = state.processor.ordering
    ordering.queue.extend(
        [Submission(1, Service.AGREED, b"", ())] * (RingConfig().send_queue_max + REPORTS_MAX + 1)
    )
    ordering._originate(state.ring, seq=0, packets=1, bytes_left=1)


def places_given_twice(patch: Patch) -> None:
    state = operational()
    state.ring.last_sent_seq = 5
    state.processor.ordering._originate(state.ring, seq=4, packets=1, bytes_left=1)


def a_message_of_another_ring_taken_in(patch: Patch) -> None:
    state = operational()
    state.processor.ordering.take_in(state.ring, held(1, ring_id=OTHER_RING))


def delivered_past_a_gap(patch: Patch) -> None:
    state = operational()
    state.ring.delivered = state.ring.my_aru + 1
    state.processor.ordering.deliver(state.ring)


# Flow control


def a_visit_before_the_last_one(patch: Patch) -> None:
    flow = FlowControl(RingConfig(), 3)
    flow.note_visit(9, 0)
    flow.note_visit(8, 0)


def a_window_below_nothing(patch: Patch) -> None:
    flow = FlowControl(RingConfig(), 3)
    flow.note_visit(8, 0)
    flow.window_bytes = -1
    flow.note_visit(9, 0)


def packets_larger_than_a_visit_may_send(patch: Patch) -> None:
    FlowControl(settings(each_time_bytes=1), 3)


def a_window_smaller_than_the_ring(patch: Patch) -> None:
    flow = FlowControl(RingConfig(), 3)
    flow._window = 2
    flow.allowance(token_of(ring_of()), waiting=1)


def a_seq_that_falls(patch: Patch) -> None:
    flow = FlowControl(RingConfig(), 3)
    flow.account(token_of(ring_of(), seq=5), seq=4, retransmitted=0, sent_bytes=0, waiting=0)


# Timestamps and timeouts


def a_clock_below_what_is_written(patch: Patch) -> None:
    clock = TimestampClock(0, 100)
    clock.now = clock.to_store - 1
    clock.begin_write()


def a_bound_that_falls(patch: Patch) -> None:
    clock = TimestampClock(0, 100)
    clock.to_store -= 1
    clock.written()


def a_token_that_comes_before_it_left(patch: Patch) -> None:
    timeouts = timeouts_with()
    timeouts.token_left(9)
    timeouts.token_came(8)


def passed_again_after_it_is_lost(patch: Patch) -> None:
    timeouts_with(token_retransmission_us=10**6)


def joins_repeated_after_the_consensus_timeout(patch: Patch) -> None:
    timeouts_with(join_us=10**6)


def timeouts_shorter_than_set(patch: Patch) -> None:
    timeouts_with(timeout_stretch_max_percent=50)


def a_timer_in_the_past(patch: Patch) -> None:
    LazyTimer(Timer.TOKEN_LOSS, operational().output).set(0)


# Gathering


def a_membership_without_oneself(patch: Patch) -> None:
    Gathering(1, (2, 3), 10)


def a_membership_that_is_too_large(patch: Patch) -> None:
    Gathering(1, (1, 2, 3), 2)


def ones_own_join(patch: Patch) -> None:
    Gathering(1, (1, 2), 10).absorb(join_of(1, {1, 2}))


def one_that_has_failed_by_its_own_account(patch: Patch) -> None:
    gathering = Gathering(1, (1, 2), 10)
    gathering.fail_set.add(1)
    gathering.absorb(join_of(2, {1, 2, 3}))


def failed_and_never_considered(patch: Patch) -> None:
    gathering = Gathering(1, (1, 2), 10)
    gathering.fail_set.add(9)
    gathering.absorb(join_of(2, {1, 2, 3}))


def more_considered_than_fit(patch: Patch) -> None:
    gathering = Gathering(1, (1, 2), 10)
    gathering._members_max = 1
    gathering.absorb(join_of(2, {1, 2, 3}))


def a_consensus_without_oneself(patch: Patch) -> None:
    gathering = Gathering(1, (1, 2), 10)
    gathering.proc_set.discard(1)
    _ = gathering.consensus


# What is thought of others


def too_much_remembered(patch: Patch) -> None:
    remember(dict.fromkeys(range(REMEMBERED_MAX + 5), 0), 1, 1)


def a_spread_above_one(patch: Patch) -> None:
    Outsiders(RingConfig()).note_ring(OLD_RING, (), (1,), (2,), now_us=1, spread=2.0)


def ones_own_leave(patch: Patch) -> None:
    state = operational()
    state.on_leave(Leave(1, 1, 1, state.ring.ring_id), b"")


def one_that_expels_itself(patch: Patch) -> None:
    state = operational()
    state.processor.peers.expel(Blame(1, LAGGARD), state.ring)


def installed_with_one_that_failed(patch: Patch) -> None:
    state = operational()
    state.processor.peers.gathering.fail_set.add(1)
    state.processor.peers.note_installed(state.ring, state.ring, 0.0)


# Processor


def a_life_before_the_first(patch: Patch) -> None:
    processor = operational().processor
    Processor(1, 0, 0, processor.config, processor.ordering, processor.output, float, processor.decode)


def a_join_that_leaves_its_sender_out(patch: Patch) -> None:
    processor = operational().processor
    processor.peers.gathering.fail_set.add(1)
    processor.new_join()


def a_ring_number_nobody_has_heard_of(patch: Patch) -> None:
    processor = operational().processor
    processor.future_ring_seq = processor.ring_id.seq - 1
    processor.persist()


def a_write_that_was_never_asked_for(patch: Patch) -> None:
    operational().processor.note_written(0)


# Transitions


def a_state_entered_from_a_wrong_one(patch: Patch) -> None:
    machine = machine_in(State.LEFT)
    machine.to_gather("join")


def the_state_of_another_processor(patch: Patch) -> None:
    machine = machine_in(State.OPERATIONAL)
    machine._enter(Left(operational().processor, machine), "left")


def a_write_before_the_first_one(patch: Patch) -> None:
    state = starting()
    state.ticket = 0
    state.on_written(1)


def a_start_on_a_ring_of_others(patch: Patch) -> None:
    state = starting()
    state.processor.ring_id = OTHER_RING
    state.install_alone()


# The token


def a_token_of_another_ring_held(patch: Patch) -> None:
    state = operational()
    state.holder.hold(token_of(state.ring)._replace(ring_id=OTHER_RING))


def a_wait_for_no_write(patch: Patch) -> None:
    patch.setattr(Processor, "write_clock_ahead", lambda _: None)
    state = operational()
    state.processor.clock_ticket = 0
    state.processor.ordering.clock._stable = -(10**9)
    state.on_token(token_of(state.ring), b"")


def a_token_visited_that_was_not_taken(patch: Patch) -> None:
    state = operational()
    state.holder.visit(token_of(state.ring), None)


def a_token_passed_on_that_waits_for_a_write(patch: Patch) -> None:
    state = operational()
    token = taken(state)
    state.holder.ticket = 7
    state.holder.visit(token, None)


def a_token_passed_again_that_is_here(patch: Patch) -> None:
    state = operational()
    state.holder.held = token_of(state.ring)
    state.on_token_retransmission_timeout()


# Operational


def operational_on_a_ring_that_is_not_installed(patch: Patch) -> None:
    state = operational()
    state.holder.ring = ring_of()
    Operational(state.processor, state.shift, state.holder)


def operational_with_a_token_from_before(patch: Patch) -> None:
    state = operational()
    state.holder.held = token_of(state.ring)
    Operational(state.processor, state.shift, state.holder)


def originated_and_not_counted(patch: Patch) -> None:
    state = operational()
    state.processor.takes_more = False
    state.ring.my_aru = state.processor.ordering.last_originated = state.ring.last_sent_seq + 1
    state._leave_if_done()


# Gather


def one_that_gathers_without_itself(patch: Patch) -> None:
    state = gather()
    state.processor.peers.gathering.fail_set.add(1)
    state.begin()


def a_draw_above_one(patch: Patch) -> None:
    state = gather()
    state.processor.draw = lambda: 2.0
    state._consensus_us()


def a_gap_longer_than_the_join_timeout(patch: Patch) -> None:
    state = gather()
    state._join_gap_us = state.processor.timeouts.join_us + 1
    state._broadcast_join_when_due()


def a_join_of_tomorrow(patch: Patch) -> None:
    state = gather()
    state.processor.joined_us = state.output.now_us + 1
    state._broadcast_join_when_due()


def a_consensus_timeout_after_the_consensus(patch: Patch) -> None:
    state = gather()
    state._consensus = state.processor.peers.gathering.sets
    state.on_consensus_timeout()


def a_commit_token_of_another_than_the_representative(patch: Patch) -> None:
    state = gather()
    state.processor.me = 2
    state._new_commit_token()


def a_consensus_about_other_sets(patch: Patch) -> None:
    state = gather()
    state._commit(commit_token(OTHER_RING, entry()), (frozenset({1}), frozenset()))


def a_commit_token_awaited_without_consensus(patch: Patch) -> None:
    gather().on_token_loss()


# The ring that is being formed


def a_ring_that_nobody_proposed(patch: Patch) -> None:
    processor = gather().processor
    Forming(processor, commit_token(OTHER_RING, entry(7)), processor.peers.gathering.sets)


def a_ring_with_an_old_number(patch: Patch) -> None:
    processor = gather().processor
    token = commit_token(RingId(processor.ring_id.seq, 1), entry(1), entry(2))
    Forming(processor, token, processor.peers.gathering.sets)


def an_entry_of_more_than_was_received(patch: Patch) -> None:
    state = commit()
    state.processor.installed.delivered += 1
    state.forming._new_entry()


def a_promise_without_oneself(patch: Patch) -> None:
    state = commit()
    state.processor.promise = frozenset({2})
    state.forming._new_entry()


def a_commit_token_of_another_ring_passed(patch: Patch) -> None:
    state = commit()
    state.forming.pass_commit_token(second_visit(state)._replace(ring_id=OTHER_RING))


def a_commit_token_passed_without_ones_entry(patch: Patch) -> None:
    state = commit()
    state.forming.pass_commit_token(second_visit(state)._replace(memb_list=(entry(1, old=OTHER_RING),)))


def a_token_seq_that_falls(patch: Patch) -> None:
    state = commit()
    state.ring.my_token_seq = 10**6
    state.forming.pass_commit_token(second_visit(state))


def a_consensus_that_others_reached(patch: Patch) -> None:
    state = commit()
    state.forming.consensus = (frozenset({2, 3}), frozenset())
    state.forming.note_fruitless()


# Commit


def a_first_visit_with_another_rings_token(patch: Patch) -> None:
    state = commit()
    state.begin(second_visit(state)._replace(ring_id=OTHER_RING))


def a_second_first_visit(patch: Patch) -> None:
    state = commit()
    state.begin(second_visit(state))


def recovery_before_the_number_is_written(patch: Patch) -> None:
    state = commit()
    state._recover(second_visit(state))


def recovery_on_an_older_ring(patch: Patch) -> None:
    state = commit()
    state._ticket = 0
    state.processor.ring_id = OTHER_RING
    state._recover(second_visit(state))


def a_count_that_is_not_the_first_visits(patch: Patch) -> None:
    state = commit()
    state.processor.rotation_count = 2
    state.on_token_loss()


# Recovery


def an_old_ring_that_nobody_speaks_of(patch: Patch) -> None:
    Recovery((entry(old=OTHER_RING),), old_ring())


def ones_own_word_not_counted(patch: Patch) -> None:
    recovery_of(1, 2, aru=3)


def an_aru_above_seq_in_recovery(patch: Patch) -> None:
    recovery_of().note_visit(False, seq=4, aru=5, my_aru=5)


def an_aru_above_ones_own_in_recovery(patch: Patch) -> None:
    recovery_of().note_visit(False, seq=5, aru=5, my_aru=4)


def an_exchange_called_over_too_early(patch: Patch) -> None:
    recovery_of(1, 2).note_visit(False, seq=5, aru=5, my_aru=5)


def more_covered_rounds_than_quiet_ones(patch: Patch) -> None:
    recovery = recovery_of()
    recovery._quiet_rounds, recovery._covered_rounds = 1, 5
    recovery.note_visit(False, seq=5, aru=5, my_aru=5)


def old_messages_delivered_past_a_gap(patch: Patch) -> None:
    recovery, old = recovery_of(), old_ring()
    old.delivered = 1
    recovery.deliveries(old)


def a_gap_below_a_delivered_message(patch: Patch) -> None:
    recovery_of(1, aru=1, high=2).deliveries(old_ring(1))


# Recover


def recovery_on_another_ring_than_agreed_on(patch: Patch) -> None:
    state = recover()
    state.processor.ring_id = OTHER_RING
    Recover(state.processor, state.shift, state.forming, state.recovery)


def a_recovery_without_oneself(patch: Patch) -> None:
    state = recover()
    state.recovery.trans_memb = (2, 3)
    Recover(state.processor, state.shift, state.forming, state.recovery)


def recovery_before_the_second_visit(patch: Patch) -> None:
    state = recover()
    state.processor.rotation_count = 1
    state.on_token_loss()


def a_promise_without_companions(patch: Patch) -> None:
    state = recover()
    state.recovery.deliver_memb = frozenset()
    state._go_on()


def installed_before_all_have_all(patch: Patch) -> None:
    state = exchanged()
    state.recovery._quiet_rounds = 2
    state._install_ring()


def installed_without_a_promise(patch: Patch) -> None:
    state = exchanged()
    state.processor.promise = frozenset()
    state._install_ring()


def installed_with_a_lower_number(patch: Patch) -> None:
    state = exchanged()
    state.ring.ring_id = RingId(2, 1)
    state._install_ring()


def new_messages_delivered_before_the_ring_is_installed(patch: Patch) -> None:
    state = exchanged()
    state.ring.delivered = 1
    state._install_ring()


# Beside the state machine


def a_first_life_before_the_epoch(patch: Patch) -> None:
    first_numbers(0)


def a_packet_too_small_for_an_old_message(patch: Patch) -> None:
    patch.setattr(wire_layout, "PACKET_BYTES_MAX", 100)
    runpy.run_path(str(layout.__file__), run_name=layout.__name__)


BREAKAGES: list[Breakage] = [
    each for each in list(globals().values()) if "patch" in getattr(each, "__annotations__", {})
]
"""All functions above that take one."""


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_what_is_broken_is_noticed(breakage: Breakage) -> None:
    assert failed_at(breakage) in assertions_in("srp")


def test_every_assertion_was_seen_to_fail() -> None:
    places = [failed_at(breakage) for breakage in BREAKAGES]
    assert set(places) == assertions_in("srp")
    assert len(set(places)) == len(places), "two breakages of one assertion"


def test_there_are_at_least_sixty() -> None:
    assert len(assertions_in("srp")) >= 60
