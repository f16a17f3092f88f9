"""Batches and credit."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_daemon import CREDIT, LIMITS, ME, Hearing, place

from totempole.client.sending import Run, Sending, Target, target_of
from totempole.errors import SessionError
from totempole.groups import Batch
from totempole.session import State, cost_of
from totempole.types import Service

G = Target(("g",), Service.AGREED, False)
SAFE = Target(("g",), Service.SAFE, False)


def opened(credit: int = CREDIT) -> Sending:
    sending = Sending()
    sending.opened(credit, LIMITS)
    for to in (G, SAFE):
        sending.check(to, 0)
    return sending


def written(sending: Sending) -> list[Any]:
    sending.close_batch()
    return Hearing().feed(b"".join(sending.out))


def payloads(frames: list[Any]) -> list[list[bytes]]:
    return [list(Batch(frame.batch)) for frame in frames]


def test_messages_that_are_handed_in_separately_share_a_frame() -> None:
    sending = opened()
    assert all(sending.offer(G, bytes([number])) for number in range(5))
    assert not sending.out
    assert payloads(written(sending)) == [[bytes([number]) for number in range(5)]]


def test_another_service_begins_another_frame_and_the_order_stays() -> None:
    sending = opened()
    for to, payload in ((G, b"1"), (G, b"2"), (SAFE, b"3"), (G, b"4")):
        assert sending.offer(to, payload)
    frames = written(sending)
    assert payloads(frames) == [[b"1", b"2"], [b"3"], [b"4"]]
    assert [frame.service for frame in frames] == [Service.AGREED, Service.SAFE, Service.AGREED]


def test_a_batch_fills_one_ring_packet_and_no_more() -> None:
    sending = opened()
    assert sending.offer_run(G, Run([b"x" * 64] * 2000))
    frames = written(sending)
    sizes = [len(frame.batch) + 2 for frame in frames]
    assert max(sizes) <= 60_000
    assert sizes[0] > 60_000 - 64 - 2


def test_a_message_larger_than_a_batch_goes_alone() -> None:
    sending = opened()
    sending.offer(G, b"a")
    assert sending.offer(G, b"x" * 80_000)
    sending.offer(G, b"b")
    assert [len(batch) for batch in payloads(written(sending))] == [1, 1, 1]


def test_without_credit_nothing_is_taken_and_credit_lets_it_go_on() -> None:
    sending = opened(credit=1_000)
    taken = 0
    while sending.offer(G, b"x" * 100):
        taken += 1
        sending.close_batch()
    assert taken == 1_000 // cost_of(4 + 2 + 9 + 100)
    assert not sending.offer(G, b"x" * 100)
    sending.credited(2_000)
    assert sending.offer(G, b"x" * 100)


def test_what_credit_has_not_come_back_for_is_unacknowledged() -> None:
    sending = opened()
    sending.offer_run(G, Run([b"1", b"2"]))
    sending.close_batch()
    first = cost_of(4 + 2 + 9 + 2)
    sending.offer(G, b"3")
    assert sending.unacknowledged == 3
    sending.credited(CREDIT + first)
    assert sending.unacknowledged == 1
    assert sending.lost("cut") == 1
    assert sending.unacknowledged == 0


def test_an_own_message_that_came_back_acknowledges_all_before_it() -> None:
    sending = opened()
    for _ in range(3):
        sending.offer_run(G, Run([b"1", b"2"]))
        sending.close_batch()
    sending.delivered(4, place(1), None)
    assert sending.unacknowledged == 2


def test_a_target_has_to_be_checked_first() -> None:
    sending = Sending()
    sending.opened(CREDIT, LIMITS)
    assert not sending.offer(G, b"1")
    sending.check(G, 1)
    assert sending.offer(G, b"1")


@pytest.mark.parametrize(
    ("groups", "longest", "text"),
    [
        ((), 0, "to 0 groups"),
        (tuple("abcdefghijklmnopq"), 0, "to 17 groups"),
        (("",), 0, "0 bytes"),
        (("x" * 101,), 0, "101 bytes"),
        (("\ud800",), 0, "UTF-8"),
        (("g",), 9_000_000, "message_bytes_max"),
    ],
)
def test_what_the_daemon_would_refuse_is_refused_here(
    groups: tuple[str, ...], longest: int, text: str
) -> None:
    with pytest.raises(SessionError, match=text):
        opened().check(Target(groups, Service.AGREED, False), longest)


def test_names_may_be_one_or_several_and_each_counts_once() -> None:
    assert target_of("g", Service.AGREED, False) == G
    assert target_of(["g", "h", "g"], Service.AGREED, True).groups == ("g", "h")


@pytest.mark.parametrize("payload", ["text", 5, None])
def test_a_message_is_bytes(payload: Any) -> None:
    with pytest.raises(TypeError, match="bytes"):
        Run([b"x", payload])


def test_buffers_may_be_used_again() -> None:
    buffer = bytearray(b"one")
    run = Run([buffer, memoryview(b"two")])  # type: ignore[list-item]
    buffer[:] = b"xxx"
    assert run.payloads == (b"one", b"two")


def test_state_leaves_half_of_the_credit_to_messages() -> None:
    sending = opened()
    content = b"x" * sending.state_piece_bytes
    pieces = 0
    while sending.offer_state(State("g", ME, place(1), False, content)):
        pieces += 1
    assert 1 <= pieces <= CREDIT // 2 // len(content)
    assert sending.offer(G, b"x" * 50_000)


@given(
    runs=st.lists(
        st.tuples(st.sampled_from((G, SAFE)), st.lists(st.binary(max_size=90), max_size=30)), max_size=20
    ),
    window=st.integers(700, 3_000),
)
def test_whatever_the_credit_all_arrives_in_order(
    runs: list[tuple[Target, list[bytes]]], window: int
) -> None:
    """Also: the daemon, which counts along, never sees more spent than it gave."""
    sending, hearing, credit = opened(window), Hearing(), window
    heard: list[tuple[Service, bytes]] = []

    def write() -> None:
        nonlocal credit
        sending.close_batch()
        for frame in hearing.feed(b"".join(sending.out)):
            heard.extend((frame.service, payload) for payload in Batch(frame.batch))
        sending.out = []
        assert hearing.spent <= credit
        credit = hearing.spent + window
        sending.credited(credit)

    for to, batch in runs:
        if len(batch) == 1:
            while not sending.offer(to, batch[0]):
                write()
        run = Run(batch if len(batch) != 1 else [])
        while not sending.offer_run(to, run):
            write()
    write()
    assert heard == [(to.service, payload) for to, batch in runs for payload in batch]
    assert sending.unacknowledged == 0


def test_a_thousand_messages_cost_a_few_calls() -> None:
    """Cost is per batch, not per message: counted in calls, not in time."""
    sending = opened()
    batch = [b"x" * 64] * 1000
    with cProfile.Profile() as profile:
        assert sending.offer_run(G, Run(batch))
        sending.close_batch()
    assert pstats.Stats(profile).total_calls < 150  # type: ignore[attr-defined]
