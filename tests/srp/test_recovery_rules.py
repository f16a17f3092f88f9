"""The rules of recovery (Totem §4.3): what is exchanged, when it is over, what is delivered and where."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from srp_bench import OLD_RING, held

from totempole.srp.config import RingConfig
from totempole.srp.packets import CommitEntry
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Ring
from totempole.types import RingId, Service

OTHER_RING = RingId(8, 4)


def entry(
    processor: int, aru: int = 0, high: int = 0, promise: tuple[int, ...] = (), old: RingId = OLD_RING
) -> CommitEntry:
    return CommitEntry(processor, old, aru, high, promise, filled=True)


def old_ring(text: str, delivered: int = 0) -> Ring:
    """The old ring from words `<seq><service><sender>`: "1a2 2s3" is agreed 1 of 2, then safe 2 of 3."""
    ring = Ring(OLD_RING, (1, 2, 3, 4, 5), 1, RingConfig())
    for word in text.split():
        service = {"a": Service.AGREED, "s": Service.SAFE}[word[-2]]
        ring.insert(held(int(word[:-2]), int(word[-1]), service, ring_id=OLD_RING))
    ring.delivered = delivered
    return ring


# Who transitions, and what is exchanged


def test_the_transitional_membership_is_those_who_come_from_my_old_ring() -> None:
    entries = (entry(1), entry(2), entry(3, old=OTHER_RING), entry(5))
    assert Recovery(entries, old_ring("")).trans_memb == (1, 2, 5)


def test_marks_are_taken_from_companions_only() -> None:
    entries = (entry(1, aru=5, high=3), entry(2, aru=4, high=4), entry(3, aru=0, high=99, old=OTHER_RING))
    recovery = Recovery(entries, old_ring("1a1 2a1 3a1 4a1 5a1 6a1"))
    assert (recovery.low_ring_aru, recovery.high_ring_delivered) == (4, 4)


def test_what_is_held_above_the_lowest_aru_is_queued_in_order() -> None:
    recovery = Recovery((entry(1, aru=2), entry(2, aru=3)), old_ring("6a1 1a1 2a2 4a2 3a1"))
    assert list(recovery.queue) == [3, 4, 6]


def test_nothing_is_queued_when_all_have_the_same() -> None:
    recovery = Recovery((entry(1, aru=3), entry(2, aru=3)), old_ring("1a1 2a2 3a1"))
    assert not recovery.queue


# The promise (Failure of Recovery)


@pytest.mark.parametrize(
    ("promises", "deliver_memb"),
    [
        (((), ()), {1, 2}),
        (((1, 2, 4), (1, 2, 4)), {1, 2, 4}),
        (((1, 4), ()), {1, 2, 4}),  # one companion promised on a failed ring, the other was not there
        (((1, 4), (2, 5)), {1, 2, 4, 5}),  # promises of different failed rings
    ],
)
def test_a_promise_of_any_companion_binds_all(
    promises: tuple[tuple[int, ...], tuple[int, ...]], deliver_memb: set[int]
) -> None:
    entries = (entry(1, promise=promises[0]), entry(2, promise=promises[1]))
    assert Recovery(entries, old_ring("")).deliver_memb == deliver_memb


def test_promises_of_another_old_ring_bind_nobody_here() -> None:
    entries = (entry(1), entry(3, promise=(3, 4), old=OTHER_RING))
    assert Recovery(entries, old_ring("")).deliver_memb == {1}


def test_a_promise_is_kept_in_a_smaller_configuration() -> None:
    """Figure 4.16: q promised to deliver for s and t, and delivers their messages though it is alone."""
    old = old_ring("1a2 3s4 4a5 5a2")
    recovery = Recovery((entry(1, aru=1, high=1, promise=(1, 4, 5)),), old)
    deliveries = recovery.deliveries(old)
    assert recovery.trans_memb == (1,)
    assert [message.seq for message in deliveries.transitional] == [3, 4]


# Where a message is delivered (Steps 2 to 4)


class Split(NamedTuple):
    claim: str
    held: str
    delivered: int
    high: int
    regular: list[int]
    transitional: list[int]


SPLITS = [
    Split("agreed messages without a gap belong to the old ring", "1a1 2a3 3a4", 0, 0, [1, 2, 3], []),
    Split("what was delivered already is not delivered again", "1a1 2a3 3a4", 2, 2, [3], []),
    Split("a gap ends the old configuration", "1a1 3a2 4a1", 0, 0, [1], [3, 4]),
    Split("past a gap only deliver_memb is delivered for", "1a1 3a2 4a4 5a5 6a1", 0, 0, [1], [3, 6]),
    Split("a safe message that nobody delivered ends it too", "1a1 2s2 3a1", 0, 0, [1], [2, 3]),
    Split(
        "a safe message that someone delivered belongs to the old ring", "1a1 2s2 3a1", 0, 2, [1, 2, 3], []
    ),
    Split("the next safe one above high_ring_delivered does not", "1s1 2s2 3s1", 0, 2, [1, 2], [3]),
    Split("up to the gap all originators are delivered for", "1s4 2a5 3a1 5a4", 0, 0, [], [1, 2, 3]),
    Split("agreed ones behind the safe one wait with it", "1a1 2s4 3a4 5a2 6a4", 0, 0, [1], [2, 3, 5]),
    Split("nothing is held, nothing is delivered", "", 0, 0, [], []),
]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.claim)
def test_a_message_is_delivered_in_the_right_configuration(split: Split) -> None:
    old = old_ring(split.held, split.delivered)
    recovery = Recovery((entry(1, old.my_aru, split.delivered), entry(2, old.my_aru, split.high)), old)
    deliveries = recovery.deliveries(old)
    assert [message.seq for message in deliveries.regular] == split.regular
    assert [message.seq for message in deliveries.transitional] == split.transitional
    assert old.delivered == max([split.delivered, *split.regular])


def test_messages_that_came_to_the_old_ring_by_its_own_recovery_are_not_delivered_again() -> None:
    old = old_ring("")
    old.insert(held(1, 2, ring_id=OLD_RING, recovered=True))
    old.insert(held(2, 2, ring_id=OLD_RING))
    deliveries = Recovery((entry(1),), old).deliveries(old)
    assert [message.seq for message in deliveries.regular] == [2]


@given(st.data())
def test_companions_with_the_same_messages_deliver_the_same(data: st.DataObject) -> None:
    """Whatever each had delivered before, both end the old configuration at the same message."""
    letters = data.draw(st.lists(st.tuples(st.booleans(), st.sampled_from("as"), st.sampled_from("1245"))))
    words = [f"{seq}{service}{sender}" for seq, (here, service, sender) in enumerate(letters, 1) if here]
    safe_up_to = data.draw(st.integers(0, old_ring(" ".join(words)).my_aru))
    ends = []
    for _ in range(2):
        old = old_ring(" ".join(words))
        old.safe_up_to = safe_up_to
        before = [message.seq for message in old.take_deliverable()]
        stop = data.draw(st.integers(0, len(before)))
        ends.append((before[:stop], old))
    high = max(len(before) for before, _ in ends)
    orders = []
    for before, _ in ends:
        old = old_ring(" ".join(words), delivered=len(before))
        deliveries = Recovery((entry(1, old.my_aru, high), entry(2, old.my_aru, high)), old).deliveries(old)
        regular = before + [message.seq for message in deliveries.regular]
        orders.append((regular, [message.seq for message in deliveries.transitional]))
    assert orders[0] == orders[1]


# When the exchange is over (figure 4.12)


def quiet(recovery: Recovery, seq: int = 5, aru: int = 5, my_aru: int = 5) -> None:
    recovery.note_visit(recovery.update_flag(False), seq, aru, my_aru)


def idle_recovery() -> Recovery:
    return Recovery((entry(1), entry(2)), old_ring(""))


def test_a_processor_with_messages_to_send_raises_the_flag_and_lowers_only_its_own() -> None:
    recovery = Recovery((entry(1), entry(2, aru=0)), old_ring("1a1"))
    assert recovery.update_flag(False) is True
    assert recovery.update_flag(True) is True
    recovery.queue.clear()
    assert recovery.update_flag(True) is False
    assert recovery.update_flag(True) is True, "by now it is another's"


def test_a_flag_raised_by_another_is_not_mine_to_lower() -> None:
    recovery = Recovery((entry(1), entry(2, aru=0)), old_ring("1a1"))
    assert recovery.update_flag(True) is True
    recovery.queue.clear()
    assert recovery.update_flag(True) is True


def test_the_promise_is_given_on_the_second_quiet_visit() -> None:
    recovery = idle_recovery()
    quiet(recovery)
    assert not recovery.received
    assert recovery.install_seq is None
    quiet(recovery, seq=5, my_aru=5)
    assert recovery.received
    assert recovery.install_seq == 5


def test_no_promise_is_given_while_something_is_missing() -> None:
    recovery = idle_recovery()
    for _ in range(3):
        quiet(recovery, aru=4, my_aru=4)
    assert not recovery.received
    quiet(recovery, my_aru=5)
    assert recovery.received


def test_the_ring_is_installed_on_the_third_quiet_visit_when_all_have_all_on_the_last_two() -> None:
    recovery = idle_recovery()
    for complete in (False, False, True):
        quiet(recovery)
        assert recovery.complete is complete


def test_a_low_aru_delays_the_installation_by_two_visits() -> None:
    recovery = idle_recovery()
    quiet(recovery)
    quiet(recovery)
    quiet(recovery, aru=4)
    assert not recovery.complete
    quiet(recovery)
    assert not recovery.complete
    quiet(recovery)
    assert recovery.complete


def test_a_raised_flag_starts_the_count_again() -> None:
    recovery = idle_recovery()
    quiet(recovery)
    quiet(recovery)
    recovery.note_visit(True, 7, 7, 7)
    for complete in (False, False, True):
        assert not recovery.complete
        quiet(recovery, seq=8, aru=8, my_aru=8)
        assert recovery.complete is complete
    assert recovery.install_seq == 8


def test_new_messages_of_those_who_installed_first_do_not_move_install_seq() -> None:
    """Totem §4.3: some are Operational already while others still recover."""
    recovery = idle_recovery()
    quiet(recovery)
    quiet(recovery, seq=5, aru=5)
    quiet(recovery, seq=9, aru=5, my_aru=7)
    assert recovery.install_seq == 5
    assert recovery.complete
