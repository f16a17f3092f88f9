"""The requirements of RRP §5 (A1 to A6, active replication) and §6 (P1 to P5, passive), by name.

Figure 1 shows the six orders in which two things that are sent on two networks can come: each network keeps
its own order, and there is none between networks (inequalities 1 to 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import pytest
from rrp_bench import GATE, NEXT_RING, RING, WAIT_MOST_US, Bench

from sweeps import first_of
from totempole.rrp.gate import WAIT_LEAST_US
from totempole.rrp.layer import ROTATION_WEIGHT
from totempole.rrp.paths import Evidence, Lost, Path

X, Y = 0, 1


def six_orders() -> Iterator[tuple[tuple[str, int], ...]]:
    """m1 and m2 on x and on y, in every order that keeps each network's own."""
    for places in combinations(range(4), 2):
        on_x, on_y = iter((("first", X), ("second", X))), iter((("first", Y), ("second", Y)))
        yield tuple(next(on_x if place in places else on_y) for place in range(4))


ORDERS = [
    pytest.param(order, id=" ".join(f"{what}{'xy'[on]}" for what, on in order)) for order in six_orders()
]


# Active replication


def test_a1_a_message_goes_up_once_and_with_its_first_copy() -> None:
    bench = Bench("active")
    sent = bench.message(1)
    bench.come(sent, Y)
    assert bench.sequence == [1]
    bench.come(sent, X)
    bench.come(sent, Y)
    assert bench.sequence == [1]


def test_a1_a_token_goes_up_once_though_a_copy_comes_after_its_timer() -> None:
    """Figure 2 of RRP delivers it twice."""
    bench = Bench("active")
    sent = bench.token(5)
    bench.come(sent, X)
    bench.run_out(GATE)
    assert bench.tokens == [(RING, 5)]
    bench.come(sent, Y)
    bench.come(sent, X)
    assert bench.tokens == [(RING, 5)]


@pytest.mark.parametrize("order", ORDERS)
def test_a2_none_of_the_six_timings_has_a_message_requested(order: tuple[tuple[str, int], ...]) -> None:
    """A message, and the token after it."""
    bench = Bench("active")
    sent = {"first": bench.message(1), "second": bench.token(5, seq=1)}
    for what, network in order:
        bench.come(sent[what], network)
        for token in bench.ring.tokens:
            assert not bench.ring.missing(token), "the token went up before the message"
    assert bench.tokens == [(RING, 5)]
    assert GATE not in bench.timers


@pytest.mark.parametrize("order", ORDERS)
def test_a2_none_of_the_six_timings_has_two_messages_out_of_one(order: tuple[tuple[str, int], ...]) -> None:
    bench = Bench("active")
    sent = {"first": bench.message(1), "second": bench.message(2)}
    for what, network in order:
        bench.come(sent[what], network)
    assert bench.sequence == [1, 2]


def test_a2_a_message_lost_on_one_network_is_not_requested() -> None:
    bench = Bench("active")
    bench.come(bench.message(1), X)
    bench.come(bench.token(5, seq=1), X, Y)
    assert bench.tokens == [(RING, 5)]
    assert not bench.ring.missing(bench.ring.tokens[0])


def test_a3_networks_stay_in_step_as_a_token_waits_for_its_last_copy() -> None:
    bench = Bench("active", networks=3)
    sent = bench.token(5)
    bench.come(sent, 0, 2)
    assert bench.tokens == []
    assert bench.holds
    bench.come(sent, 1)
    assert bench.tokens == [(RING, 5)]


def test_a4_a_lost_copy_of_the_token_holds_nothing_up_for_long() -> None:
    bench = Bench("active")
    began_us = bench.now_us
    bench.come(bench.token(5), X)
    assert bench.timers[GATE] - began_us == WAIT_LEAST_US
    bench.run_out(GATE)
    assert bench.tokens == [(RING, 5)]
    assert bench.says("token passed up by its timer") == 1


def test_a4_what_a_network_loses_the_other_brings() -> None:
    bench = Bench("active")
    for seq in range(1, 20):
        bench.come(bench.message(seq), seq % 2)
    assert bench.sequence == list(range(1, 20))


def test_a4_a_lost_token_comes_again_on_every_network() -> None:
    """Passed again it has the same name, and is taken if no copy came before."""
    bench = Bench("active")
    bench.come(bench.token(5), X, Y)
    again = bench.token(5)
    bench.come(again, X, Y)
    assert bench.tokens == [(RING, 5)]
    bench.come(bench.token(6), Y)
    bench.run_out(GATE)
    assert bench.tokens == [(RING, 5), (RING, 6)]


def test_a5_a_network_that_brings_no_tokens_is_found() -> None:
    bench = Bench("active")
    for token_seq in range(1, 20):
        bench.come(bench.token(token_seq), X)
        bench.run_out(GATE)
    (finding,) = bench.found
    assert (finding.network, finding.sender, finding.dead) == (Y, 3, True)


def test_a5_a_network_that_brings_no_messages_of_a_sender_is_found() -> None:
    bench = Bench("active")
    for rotation in range(1, 16):
        bench.now_us += 1_000
        bench.come(bench.message(2 * rotation - 1), X)
        bench.come(bench.message(2 * rotation), X)
        bench.come(bench.token(rotation, seq=2 * rotation), X, Y)
    (finding,) = bench.found
    assert (finding.network, finding.sender, finding.dead) == (Y, 2, True)


def test_a6_sporadic_loss_is_no_fault() -> None:
    """One token in twenty on each network, thousands of them."""
    bench, random = Bench("active"), Random(6)
    for token_seq in range(1, 5_000):
        bench.now_us += 1_000
        sent = bench.token(token_seq)
        for network in (X, Y):
            if random.random() > 0.05:
                bench.come(sent, network)
        if bench.holds:
            bench.run_out(GATE)
    assert bench.found == []


@pytest.mark.parametrize("evidence", first_of(Evidence))
def test_a6_p5_five_percent_raise_no_alarm_in_a_million(evidence: Evidence) -> None:
    path, random = Path(), Random(f"five percent/{evidence}")
    for _ in range(1_000_000):
        path.note(evidence, float(random.random() < 0.05))
    assert not path.bad


@pytest.mark.parametrize("messages", first_of([2, 1, 4, 9]))
def test_a6_p5_five_percent_of_the_messages_of_each_rotation_raise_no_alarm(messages: int) -> None:
    """A rotation counts as several messages, and all of these have the same share of loss."""
    path, random = Path(), Random(f"rotations/{messages}")
    for _ in range(300_000 // messages):
        lost = sum(random.random() < 0.05 for _ in range(messages)) / messages
        path.note(Evidence.MESSAGES, lost, min(messages, ROTATION_WEIGHT))
    assert not path.bad


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_share_that_counts_several_times_is_as_many_shares(count: int) -> None:
    once, each, random = Path(), Path(), Random(f"shares/{count}")
    for _ in range(2_000):
        lost = random.choice([0.0, 0.0, 0.0, 0.1, 1.0])
        told = [each.note(Evidence.MESSAGES, lost) for _ in range(count)]
        assert once.note(Evidence.MESSAGES, lost, count) is (True in told)
        assert (once.bad, once.dead, once.lost) == (each.bad, each.dead, each.lost)
        assert once.loss == pytest.approx(each.loss)
        if once.bad and random.random() < 0.1:
            once.clear()
            each.clear()


def test_a6_p5_messages_that_lose_a_part_of_their_segments() -> None:
    """Each message of twenty segments loses one: five percent as well."""
    path = Path()
    for _ in range(100_000):
        path.note(Evidence.MESSAGES, 0.05)
    assert not path.bad


@pytest.mark.parametrize("evidence", [Evidence.MESSAGES, Evidence.SHORT])
@pytest.mark.parametrize("tokens_lost", [0.0, 1.0])
def test_a_path_that_loses_what_goes_to_all_says_whether_tokens_came(
    evidence: Evidence, tokens_lost: float
) -> None:
    """By hellos, too: once another path has failed, messages go elsewhere."""
    path = Path()
    path.note(Evidence.TOKENS, 0.0)
    for _ in range(11):
        path.note(Evidence.TOKENS, tokens_lost)
        path.note(evidence, 1.0)
    assert path.bad
    assert bool(path.lost & Lost.NOT_TOKENS) is (tokens_lost == 0.0)


def test_a_path_that_lost_some_and_then_all_is_dead() -> None:
    """Too many are lost before eleven are in a row: that nothing comes any more shows later."""
    path = Path()
    for lost in [1.0] * 5 + [0.0] + [1.0] * 7:
        path.note(Evidence.LONG, lost)
    assert (path.bad, path.dead) == (True, False)
    news = [path.note(Evidence.LONG, 1.0) for _ in range(10)]
    assert (path.bad, path.dead) == (True, True)
    assert news.count(True) == 1, "that is told once"


def test_a_path_without_tokens_says_nothing_of_them() -> None:
    path = Path()
    for _ in range(11):
        path.note(Evidence.SHORT, 1.0)
    assert path.bad
    assert not path.lost & Lost.NOT_TOKENS


def test_a6_p5_a_network_that_is_slower_than_the_token_loses_nothing() -> None:
    """The token goes round several times before its copy comes on the slow network."""
    bench = Bench("passive")
    late: list[list[bytes]] = []
    for token_seq in range(1, 500):
        bench.now_us += 700
        late.append(bench.token(token_seq))
        bench.come(late[-1], X)
        if len(late) == 4:
            bench.come(late.pop(0), Y)
    assert len(bench.tokens) == 499
    assert bench.found == []


def test_a6_p5_a_copy_of_a_message_may_come_rotations_later() -> None:
    bench = Bench("active-passive", networks=3, copies=2)
    late: list[list[bytes]] = []
    for rotation in range(1, 200):
        bench.now_us += 700
        late.append(bench.message(rotation, on=(0, 1)))
        bench.come(late[-1], 0)
        bench.come(bench.token(rotation, seq=rotation), 0, 1, 2)
        if len(late) == 4:
            bench.come(late.pop(0), 1)
    assert bench.found == []


# Passive replication


@pytest.mark.parametrize("tokens", ["all", "one"])
def test_p1_a_message_that_the_token_overtakes_is_not_requested(tokens: str) -> None:
    """Figure 3, left: m2 by y is overtaken by t2 by z."""
    bench = Bench("passive", tokens=tokens)
    bench.come(bench.message(1, on=(X,)), X)
    late = bench.message(2, on=(Y,))
    token = bench.token(5, seq=2, on=(X,) if tokens == "one" else (X, Y))
    bench.come(token, X)
    assert bench.tokens == []
    assert bench.holds
    bench.come(late, Y)
    assert bench.tokens == [(RING, 5)]
    assert not bench.ring.missing(bench.ring.tokens[0])


@pytest.mark.parametrize("tokens", ["all", "one"])
def test_p1_a_message_that_others_and_the_token_overtake_is_not_requested(tokens: str) -> None:
    """Figure 3, right: m2 by y is overtaken by m3 and t3 by z."""
    bench = Bench("passive", networks=3, tokens=tokens)
    bench.come(bench.message(1, on=(0,)), 0)
    bench.come(bench.message(3, on=(2,)), 2)
    token = bench.token(5, seq=3, on=(2,) if tokens == "one" else ())
    bench.come(token, 2)
    assert bench.tokens == []
    bench.come(bench.message(2, on=(1,)), 1)
    assert bench.tokens == [(RING, 5)]


def test_p1_a_message_that_is_not_due_does_not_hold_the_token_up() -> None:
    """The accelerated ring asks only for what its predecessor had sent before the token."""
    bench = Bench("passive")
    bench.ring.due = 1
    bench.come(bench.message(1, on=(X,)), X)
    bench.come(bench.token(5, seq=3), X)
    assert bench.tokens == [(RING, 5)]


def test_p2_the_token_waits_for_the_slow_network_so_that_both_stay_in_step() -> None:
    bench = Bench("passive")
    for rotation in range(1, 50):
        bench.now_us += 1_000
        fast, slow = 2 * rotation - 1, 2 * rotation
        bench.come(bench.message(fast, on=(X,)), X)
        token = bench.token(rotation, seq=slow)
        bench.come(token, X)
        assert len(bench.tokens) == rotation - 1
        bench.come(bench.message(slow, on=(Y,)), Y)
        assert len(bench.tokens) == rotation
        bench.come(token, Y)
    assert bench.found == []


def test_p3_the_last_copy_of_the_token_proves_a_loss_without_a_timer() -> None:
    bench = Bench("passive")
    token = bench.token(5, seq=1)
    bench.come(token, X)
    assert bench.tokens == []
    bench.come(token, Y)
    assert bench.tokens == [(RING, 5)]
    assert list(bench.ring.missing(bench.ring.tokens[0])) == [1]
    assert bench.says("token passed up by its timer") == 0


@pytest.mark.parametrize("tokens", ["all", "one"])
def test_p3_without_the_other_copy_a_timer_lets_the_token_go_on(tokens: str) -> None:
    bench = Bench("passive", tokens=tokens)
    bench.come(bench.token(5, seq=1, on=(X,) if tokens == "one" else ()), X)
    bench.run_out(GATE)
    assert bench.tokens == [(RING, 5)]


def test_p3_the_timer_is_not_restarted_by_further_copies() -> None:
    bench = Bench("passive", networks=3)
    token = bench.token(5, seq=1)
    bench.come(token, 0)
    due_us = bench.timers[GATE]
    bench.now_us += 500
    bench.come(token, 1)
    assert bench.timers[GATE] == due_us


def test_p3_the_timer_follows_the_skew_and_stays_below_what_the_ring_bears() -> None:
    bench = Bench("passive")
    waits = []
    for rotation, skew_us in enumerate((0, 900, 1_500, 100_000), 1):
        token = bench.token(rotation, seq=rotation)
        bench.come(token, X)
        waits.append(bench.timers[GATE] - bench.now_us)
        bench.now_us += skew_us
        bench.come(bench.message(rotation, on=(Y,)), Y)
        bench.come(token, Y)
    assert waits[:2] == [WAIT_LEAST_US, WAIT_LEAST_US]
    assert 2_600 < waits[2] <= 2_700  # three times as long; it fades a little with each token
    token = bench.token(9, seq=9)
    bench.come(token, X)
    assert bench.timers[GATE] - bench.now_us == WAIT_MOST_US


def test_p4_a_network_that_brings_no_messages_is_found_by_what_their_senders_say() -> None:
    """Half of a sender's messages are missing, and what has come names its network: y is charged, not x."""
    bench = Bench("passive")
    for rotation in range(1, 40):
        bench.now_us += 1_000
        kept, lost = 2 * rotation - 1, 2 * rotation
        bench.come(bench.message(kept, on=(X,)), X)
        bench.come(bench.token(rotation, seq=lost), X, Y)
        bench.come(bench.message(lost, on=(Y,)), X)  # sent again, by whoever has it, with its old route
    assert {finding.network for finding in bench.found} == {Y}
    assert {finding.sender for finding in bench.found} == {2}


def test_p4_a_network_that_brings_no_tokens_is_found() -> None:
    bench = Bench("passive")
    for token_seq in range(1, 20):
        bench.now_us += 1_000
        bench.come(bench.token(token_seq), Y)
    (finding,) = bench.found
    assert (finding.network, finding.sender, finding.dead) == (X, 3, True)


def test_p4_tokens_on_one_network_in_turn_make_no_path_bad() -> None:
    bench = Bench("passive", tokens="one")
    for token_seq in range(1, 100):
        bench.now_us += 1_000
        bench.come(bench.token(token_seq, on=(token_seq % 2,)), token_seq % 2)
    assert len(bench.tokens) == 99
    assert bench.found == []


def test_p5_unequal_shares_are_no_fault() -> None:
    """RRP compares networks with each other. All messages on one network are no loss of the other."""
    bench = Bench("passive")
    for rotation in range(1, 500):
        bench.now_us += 1_000
        bench.come(bench.message(rotation, on=(X,)), X)
        bench.come(bench.token(rotation, seq=rotation), X, Y)
    assert bench.found == []


def test_p5_sporadic_loss_is_no_fault() -> None:
    bench, random = Bench("passive"), Random(5)
    for rotation in range(1, 3_000):
        bench.now_us += 1_000
        network = rotation % 2
        message = bench.message(rotation, on=(network,))
        if random.random() > 0.05:
            bench.come(message, network)
        bench.come(bench.token(rotation, seq=rotation), X, Y)
        if bench.sequence[-1:] != [rotation]:
            bench.come(message, X)
            bench.come(message, Y)
    assert bench.found == []


# The order of tokens


def test_tokens_are_ordered_by_ring_and_token_seq() -> None:
    """A new ring's first token has a smaller number than the last one of the old ring."""
    bench = Bench("active")
    bench.come(bench.token(70), X, Y)
    token = bench.token(1, ring=NEXT_RING)
    bench.come(token, Y)
    assert bench.tokens == [(RING, 70)]
    assert bench.holds
    bench.come(token, X)
    assert bench.tokens == [(RING, 70), (NEXT_RING, 1)]


def test_tokens_of_one_number_on_two_rings_are_two() -> None:
    bench = Bench("passive")
    bench.come(bench.token(5), X, Y)
    bench.come(bench.token(5, ring=NEXT_RING), X, Y)
    assert bench.tokens == [(RING, 5), (NEXT_RING, 5)]


def test_an_older_token_never_takes_the_place_of_a_held_one() -> None:
    bench = Bench("active")
    bench.come(bench.token(4), X, Y)
    bench.come(bench.token(7), X)
    bench.come(bench.token(3), Y)
    assert bench.holds
    assert bench.replicator._gate.key == (RING, 7)
    bench.run_out(GATE)
    assert (RING, 7) in bench.tokens


def test_a_token_of_one_alone_passes_by() -> None:
    """A ring of one gets its own token, on no network: it is neither held nor counted (RRP is silent)."""
    bench = Bench("active", members=(1,))
    for token_seq in range(1, 100):
        bench.come(bench.token(token_seq, sender=1), 0)
    assert len(bench.tokens) == 99
    assert not bench.holds
    assert bench.found == []
    assert GATE not in bench.timers
