"""Flow control (Totem §4.4): the window of a rotation, in packets and in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from srp_bench import RING

from totempole.srp.config import RingConfig
from totempole.srp.flow import (
    LOSSY_PACKET_BYTES,
    PACKET_BYTES_LEAST,
    WINDOW_BYTES_LEAST,
    FlowControl,
    Repeats,
)
from totempole.srp.packets import RegularToken
from totempole.types import RingKind

CONFIG = RingConfig(
    window_packets=20,
    each_time_packets=8,
    window_bytes=200_000,
    each_time_bytes=80_000,
    packet_bytes_max=60_000,
    outstanding_packets_max=30,
)


PLENTY = 100
"""Packets waiting at a saturated processor."""


def token(
    seq: int = 0,
    aru: int | None = None,
    retrans_round: int = 0,
    bytes_round: int = 0,
    backlog: int = 0,
) -> RegularToken:
    aru = seq if aru is None else aru
    return RegularToken(
        1, 1, RING, 1, seq, aru, retrans_round=retrans_round, bytes_round=bytes_round, backlog=backlog
    )


@pytest.mark.parametrize(("members", "share"), [(2, 8), (3, 6), (4, 5), (20, 1), (21, 1), (100, 1)])
def test_a_visit_takes_each_time_or_its_share_while_others_wait(members: int, share: int) -> None:
    saturated = token(backlog=(members - 1) * PLENTY)
    assert FlowControl(CONFIG, members).allowance(saturated, PLENTY).new_packets == share


@pytest.mark.parametrize("members", [1, 2, 20, 100])
def test_a_lone_sender_has_all_of_each_time(members: int) -> None:
    """Totem §4.4: throughput is relatively unaffected by the number of senders."""
    assert FlowControl(CONFIG, members).allowance(token(), PLENTY).new_packets == 8


def test_shares_go_by_what_waits_and_leave_one_packet_for_the_least() -> None:
    flow = FlowControl(CONFIG, 5)
    assert flow.allowance(token(backlog=300), 1).new_packets == 1
    assert flow.allowance(token(backlog=300), 100).new_packets == 1 + 15 * 100 // 400


@pytest.mark.parametrize(("others_sent", "allowed"), [(0, 8), (12, 8), (13, 7), (19, 1), (20, 0), (35, 0)])
def test_what_others_sent_since_the_last_visit_counts_against_the_window(
    others_sent: int, allowed: int
) -> None:
    flow = FlowControl(CONFIG, 2)
    flow.account(token(seq=100), 105, 0, 0, 0)
    assert flow.allowance(token(seq=105 + others_sent), PLENTY).new_packets == allowed


def test_what_this_processor_sent_itself_does_not_count() -> None:
    flow = FlowControl(CONFIG, 2)
    flow.account(token(seq=100), 108, 0, 50_000, 0)
    fresh = FlowControl(CONFIG, 2)
    assert flow.allowance(token(seq=108, bytes_round=50_000), 1) == fresh.allowance(token(), 1)


def test_retransmissions_of_others_count_and_my_own_do_not() -> None:
    flow = FlowControl(CONFIG, 2)
    assert flow.account(token(), 0, 4, 0, 0).retrans == 4
    assert flow.allowance(token(retrans_round=4), PLENTY).new_packets == 8
    assert flow.allowance(token(retrans_round=4 + 15), PLENTY).new_packets == 5


def test_the_round_counters_forget_a_visit_after_one_rotation() -> None:
    """Totem §4.4: subtract last_retrans, add what was retransmitted on this visit."""
    flow = FlowControl(CONFIG, 2)
    assert flow.account(token(retrans_round=3, bytes_round=500), 10, 2, 70, 9) == (5, 570, 9)
    assert flow.account(token(retrans_round=5, bytes_round=570, backlog=9), 10, 1, 30, 4) == (4, 530, 4)
    assert flow.account(token(retrans_round=1, bytes_round=30, backlog=4), 10, 0, 0, 0) == (0, 0, 0)


def test_the_round_counters_never_fall_below_zero() -> None:
    flow = FlowControl(CONFIG, 2)
    flow.account(token(), 0, 9, 900, 9)
    assert flow.account(token(retrans_round=2, bytes_round=10), 0, 1, 5, 2) == (1, 5, 2)


def test_one_retransmission_is_always_allowed() -> None:
    flow = FlowControl(CONFIG, 2)
    allowance = flow.allowance(token(seq=500, aru=0, retrans_round=90), PLENTY)
    assert (allowance.packets, allowance.new_packets) == (1, 0)


@pytest.mark.parametrize(("outstanding", "allowed"), [(0, 8), (22, 8), (23, 7), (29, 1), (30, 0), (99, 0)])
def test_new_packets_wait_while_too_many_are_outstanding(outstanding: int, allowed: int) -> None:
    flow = FlowControl(CONFIG, 2)
    flow.account(token(seq=200), 200, 0, 0, 0)
    assert flow.allowance(token(seq=200, aru=200 - outstanding), PLENTY).new_packets == allowed


@pytest.mark.parametrize(
    ("members", "others_bytes", "allowed"),
    [(2, 0, 80_000), (4, 0, 50_000), (2, 150_000, 50_000), (2, 200_000, 1), (2, 900_000, 1)],
)
def test_bytes_are_shared_as_packets_are_and_one_packet_is_always_allowed(
    members: int, others_bytes: int, allowed: int
) -> None:
    flow = FlowControl(CONFIG, members)
    flow.window_bytes = CONFIG.window_bytes
    saturated = token(bytes_round=others_bytes, backlog=(members - 1) * PLENTY)
    assert flow.allowance(saturated, PLENTY).new_bytes == allowed


# Repeats


@pytest.mark.parametrize(
    ("mine", "others", "share"),
    [(0, 0, 5), (4, 0, 4), (0, 4, 4), (4, 4, 3), (8, 0, 0), (0, 16, 1), (0, 99, 0)],
)
def test_shares_are_of_what_repeats_leave_of_the_window_whoever_repeats(
    mine: int, others: int, share: int
) -> None:
    """With 8 of its own a visit has no more than each_time; with 99 of others the window is full."""
    saturated = token(backlog=3 * PLENTY, retrans_round=others)
    assert FlowControl(CONFIG, 4).allowance(saturated, PLENTY, Repeats(mine)).new_packets == share


@pytest.mark.parametrize(
    ("mine", "others", "allowed"),
    [(0, 0, 50_000), (40_000, 0, 40_000), (0, 40_000, 40_000), (80_000, 0, 1), (0, 300_000, 1)],
)
def test_bytes_are_shared_likewise(mine: int, others: int, allowed: int) -> None:
    flow = FlowControl(CONFIG, 4)
    flow.window_bytes = CONFIG.window_bytes
    saturated = token(backlog=3 * PLENTY, retrans_round=9 if others else 0)
    repeats = Repeats(1 if mine else 0, mine, others)
    assert flow.allowance(saturated, PLENTY, repeats).new_bytes == allowed


def test_repeats_that_fill_the_window_leave_no_new_bytes() -> None:
    flow = FlowControl(CONFIG, 4)
    repeats = Repeats(1, flow.window_bytes)
    assert flow.allowance(token(backlog=3 * PLENTY), PLENTY, repeats).new_bytes == 0
    assert flow.allowance(token(), PLENTY, repeats).new_bytes == 0


def test_on_the_accelerated_ring_each_pays_for_what_it_repeats() -> None:
    """Senders overlap, each on a link of its own."""
    flow = FlowControl(replace(CONFIG, ring_kind=RingKind.ACCELERATED), 4)
    saturated = token(backlog=3 * PLENTY, retrans_round=4)
    assert flow.allowance(saturated, PLENTY).new_packets == 5
    assert flow.allowance(saturated, PLENTY, Repeats(3)).new_packets == 2
    assert flow.others_repeats(token(retrans_round=4, bytes_round=900), lambda after, up_to: 0) == 0


def test_what_others_repeated_is_what_they_sent_less_what_was_new() -> None:
    flow = FlowControl(CONFIG, 4)
    flow.account(token(), 10, 2, 500, 0)

    def bytes_of(after: int, up_to: int) -> int:
        assert (after, up_to) == (10, 14)
        return 400

    now = token(seq=14, retrans_round=2 + 3, bytes_round=500 + 700)
    assert flow.others_repeats(now, bytes_of) == 300
    assert flow.others_repeats(now._replace(retrans_round=2), bytes_of) == 0
    assert flow.others_repeats(now._replace(bytes_round=600), bytes_of) == 0


def test_a_member_that_repeats_what_a_dead_link_loses_sends_as_much_as_the_others() -> None:
    """Totem §4.4 counts repeats against the window. The last of four repeats all that one of them sends."""
    config = RingConfig(window_packets=100, each_time_packets=60)
    flows = [FlowControl(config, 4) for _ in range(4)]
    now, row = token(), [0] * 4
    for _ in range(30):
        for place, flow in enumerate(flows):
            repeats = Repeats(row[0] if place == 3 else 0)
            row[place] = flow.allowance(now, PLENTY, repeats).new_packets
            now = token(
                now.seq + row[place],
                None,
                *flow.account(now, now.seq + row[place], repeats.packets, 0, PLENTY),
            )
    assert max(row) - min(row) <= 1
    assert 95 <= sum(row) + row[0] <= config.window_packets


# A whole ring, saturated


def rotations(config: RingConfig, members: int, count: int, lost: Sequence[int] = ()) -> list[list[int]]:
    """New packets of each member in each rotation, when all have more than enough to send.

    `lost` gives, by turns, how many retransmissions a member is asked for.
    """
    flows = [FlowControl(config, members) for _ in range(members)]
    now = token()
    sent: list[list[int]] = []
    for rotation in range(count):
        row = []
        for place, flow in enumerate(flows):
            allowance = flow.allowance(now, PLENTY)
            requests = lost[(rotation * members + place) % len(lost)] if lost else 0
            answers = min(requests, allowance.packets)
            new = flow.allowance(now, PLENTY, Repeats(answers)).new_packets
            rounds = flow.account(now, now.seq + new, answers, 0, PLENTY)
            now = token(now.seq + new, None, *rounds)
            row.append(new)
        sent.append(row)
    return sent


@pytest.mark.parametrize("members", [1, 2, 3, 5, 7, 20])
def test_a_saturated_ring_serves_every_member_alike(members: int) -> None:
    for row in rotations(CONFIG, members, 10)[2:]:  # from when all know what waits
        assert len(set(row)) == 1
        assert 0 < sum(row) <= CONFIG.window_packets


@pytest.mark.parametrize("members", [21, 30, 60])
def test_a_member_of_a_ring_larger_than_the_window_is_not_starved(members: int) -> None:
    sent = rotations(CONFIG, members, 3 * members)
    assert min(sum(row[place] for row in sent) for place in range(members)) > 0


def test_the_largest_ring_of_the_default_settings_serves_every_member() -> None:
    config = RingConfig()
    sent = rotations(config, config.members_max, 3 * config.members_max)
    assert min(sum(row[place] for row in sent) for place in range(config.members_max)) > 0


@given(st.integers(2, 20), st.lists(st.integers(0, 3), min_size=1, max_size=7))
def test_a_rotation_never_exceeds_the_window_and_never_stands_still(members: int, lost: list[int]) -> None:
    sent = rotations(CONFIG, members, 12, lost)
    assert all(sum(row) <= CONFIG.window_packets for row in sent)
    assert sum(map(sum, sent)) > 0 or all(lost)


# Links of all speeds


KINDS = pytest.mark.parametrize("kind", RingKind, ids=lambda kind: kind.name.lower())


def carried(flow: FlowControl, bytes_per_us: float, rotations: int) -> int:
    """A saturated ring on a link of this speed: the bytes of its last rotation. If it is accelerated, the
    token follows what was sent in the rotation before."""
    now_us, sent, before = flow._visited_us + 1_000, 0, 0
    for _ in range(rotations):
        flow.note_visit(now_us, sent)
        sent, before = flow.window_bytes, sent
        now_us += 1 + round((before if flow._accelerated else sent) / bytes_per_us)
    return sent


@KINDS
def test_on_a_fast_link_the_window_soon_is_what_is_set(kind: RingKind) -> None:
    flow = FlowControl(RingConfig(ring_kind=kind), 4)
    assert flow.window_bytes < RingConfig().window_bytes
    assert carried(flow, 1_000.0, 10) == RingConfig().window_bytes


@KINDS
@pytest.mark.parametrize("megabits", [20, 100, 400])
def test_on_a_slow_link_a_rotation_lasts_no_longer_than_is_set(megabits: int, kind: RingKind) -> None:
    bytes_per_us = megabits / 8
    sent = carried(FlowControl(RingConfig(ring_kind=kind), 4), bytes_per_us, 30)
    assert sent / bytes_per_us == pytest.approx(RingConfig().rotation_target_us, rel=0.01)


def test_however_slow_the_link_a_rotation_carries_something() -> None:
    assert carried(FlowControl(RingConfig(), 4), 0.1, 20) == WINDOW_BYTES_LEAST


def test_rotations_that_carry_little_say_nothing_about_the_link() -> None:
    flow = FlowControl(RingConfig(), 4)
    before = flow.window_bytes
    for turn in range(1, 50):
        flow.note_visit(turn * 500_000, 1_000)
    assert flow.window_bytes == before


def test_one_slow_rotation_does_not_say_that_the_link_is_slow() -> None:
    flow = FlowControl(RingConfig(), 4)
    full = carried(flow, 1_000.0, 20)
    flow.note_visit(flow._visited_us + 150_000, full)  # somebody was kept from running
    flow.note_visit(flow._visited_us + 5_000, flow.window_bytes)
    assert flow.window_bytes > full // 4
    assert carried(flow, 1_000.0, 10) == full


@pytest.mark.parametrize("members", [2, 4, 10, 50])
def test_a_window_has_room_for_a_packet_of_each_who_has_something_to_send(members: int) -> None:
    flow = FlowControl(RingConfig(), members)
    for window in (60_000, 500_000, 2_000_000, 5_000_000):
        flow.window_bytes = window
        flow.account(token(backlog=100), 0, 0, 0, waiting=3)
        flow.account(token(backlog=100), 0, 0, 0, waiting=3)
        assert members * flow.packet_bytes <= max(window, members * PACKET_BYTES_LEAST)
        flow.account(token(backlog=3), 0, 0, 0, waiting=3)
        assert flow.packet_bytes == min(RingConfig().packet_bytes_max, window // 2), "nobody else has"
        assert flow.packets_ahead * flow.packet_bytes >= min(window // 2, RingConfig().each_time_bytes // 2)


def test_packets_are_small_while_they_are_lost() -> None:
    flow = FlowControl(RingConfig(), 4)
    flow.window_bytes = RingConfig().window_bytes
    for lost in (token(retrans_round=1), 1), (token(), 1), (token(retrans_round=1), 0):
        flow.account(lost[0], 0, lost[1], 0, 1)
        assert flow.packet_bytes == LOSSY_PACKET_BYTES
    flow.account(token(), 0, 0, 0, 1)
    assert flow.packet_bytes == RingConfig().packet_bytes_max


def test_no_packet_is_larger_than_is_set() -> None:
    flow = FlowControl(CONFIG, 4)
    flow.window_bytes = 10_000_000
    flow.account(token(), 0, 0, 0, 1)
    assert flow.packet_bytes == CONFIG.packet_bytes_max


def test_a_rotation_is_short_beside_the_token_loss_timeout() -> None:
    config = RingConfig(token_loss_us=40_000)
    assert carried(FlowControl(config, 4), 12.5, 20) == pytest.approx(12.5 * 20_000, rel=0.01)
