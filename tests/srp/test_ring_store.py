"""One ring's messages and low-water marks (Totem §4.1, figures 4.1, 4.2 and 4.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from srp_bench import RING, held

from totempole.srp.config import RingConfig
from totempole.srp.formats import ring_codec
from totempole.srp.layout import RANGES_PER_REQUEST_MAX
from totempole.srp.packets import RegularToken, RetransmissionRequest
from totempole.srp.ring import VAIN_ANSWERS_MAX, Ring
from totempole.types import NO_PROCESSOR, RingId, RingKind, Service

SAFE = Service.SAFE
WHOLE: tuple[tuple[int, int], ...] = ()


def ring_of(*members: int, me: int = 1) -> Ring:
    return Ring(RING, members or (1, 2, 3), me, RingConfig())


def filled(*seqs: int, safe: tuple[int, ...] = (), recovered: tuple[int, ...] = ()) -> Ring:
    ring = ring_of()
    for seq in seqs:
        service = SAFE if seq in safe else Service.AGREED
        ring.insert(held(seq, service=service, recovered=seq in recovered))
    return ring


def given_out(ring: Ring) -> list[int]:
    return [message.seq for message in ring.take_deliverable()]


def no_holes(_ring_id: RingId, _seq: int) -> tuple[tuple[int, int], ...]:
    return ()


def asked(*seqs: int) -> list[RetransmissionRequest]:
    return [RetransmissionRequest(seq) for seq in seqs]


# The token's path


@pytest.mark.parametrize(
    ("members", "me", "predecessor", "successor"),
    [
        ((1, 2, 3), 1, 3, 2),
        ((1, 2, 3), 2, 1, 3),
        ((1, 2, 3), 3, 2, 1),
        ((1, 2), 2, 1, 1),
        ((7,), 7, 7, 7),
    ],
)
def test_the_token_goes_round_in_member_order(
    members: tuple[int, ...], me: int, predecessor: int, successor: int
) -> None:
    ring = Ring(RING, members, me, RingConfig())
    assert (ring.predecessor, ring.successor, ring.leader) == (predecessor, successor, members[0])


# my_aru


@pytest.mark.parametrize(
    ("arrivals", "aru"),
    [((), 0), ((1,), 1), ((2,), 0), ((1, 3), 1), ((3, 1, 2), 3), ((1, 2, 4, 5, 3), 5), ((5, 1, 2, 4), 2)],
)
def test_my_aru_stands_below_the_first_gap(arrivals: tuple[int, ...], aru: int) -> None:
    ring = filled(*arrivals)
    assert ring.my_aru == aru
    assert all(ring.has(seq) for seq in arrivals)
    assert not ring.has(aru + 1)


def test_a_message_is_taken_in_once() -> None:
    ring = ring_of()
    assert ring.insert(held(1))
    assert not ring.insert(held(1))
    assert ring.insert(held(3))
    assert not ring.insert(held(3))


def test_a_message_that_was_released_is_not_taken_in_again() -> None:
    ring = filled(1, 2)
    ring.safe_up_to = 2
    given_out(ring)
    ring.release()
    assert ring.messages == {}
    assert not ring.insert(held(2))
    assert ring.has(2)


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_the_order_of_arrival_never_changes_the_order_of_delivery(
    order: list[int], missing: set[int]
) -> None:
    ring = ring_of()
    out: list[int] = []
    for seq in order:
        if seq not in missing:
            ring.insert(held(seq))
        out += given_out(ring)
    first_gap = min(missing, default=9)
    assert out == list(range(1, first_gap))
    assert ring.my_aru == first_gap - 1


# Delivery


def test_agreed_messages_are_given_out_up_to_the_first_gap_and_once() -> None:
    ring = filled(1, 2, 4)
    assert given_out(ring) == [1, 2]
    assert given_out(ring) == []
    ring.insert(held(3))
    assert given_out(ring) == [3, 4]


def test_a_safe_message_holds_back_all_behind_it_until_it_is_safe() -> None:
    ring = filled(1, 2, 3, safe=(2,))
    assert given_out(ring) == [1]
    ring.safe_up_to = 1
    assert given_out(ring) == []
    ring.safe_up_to = 2
    assert given_out(ring) == [2, 3]


def test_what_recovery_rebroadcast_is_passed_over_in_silence() -> None:
    """Totem §4.3: old-ring messages are ordered as the old ring's, not as the new one's."""
    ring = filled(1, 2, 3, recovered=(1, 2))
    assert given_out(ring) == [3]
    assert ring.delivered == 3


# Safe: two successive rotations


def test_safe_is_what_the_last_two_forwarded_tokens_agree_on() -> None:
    ring = filled(*range(1, 10))
    assert not ring.forwarded(seq=5, aru=5)
    assert ring.safe_up_to == 0
    assert ring.forwarded(seq=8, aru=3)
    assert ring.safe_up_to == 3
    assert not ring.forwarded(seq=8, aru=3)
    assert ring.forwarded(seq=9, aru=8) is False
    assert ring.forwarded(seq=9, aru=9)
    assert ring.safe_up_to == 8


def test_a_lower_aru_never_makes_a_safe_message_unsafe() -> None:
    ring = filled(*range(1, 10))
    for aru in (6, 6, 2, 2):
        ring.forwarded(seq=9, aru=aru)
    assert ring.safe_up_to == 6


@pytest.mark.parametrize(
    ("safe_up_to", "delivered", "kept"),
    [(0, 4, [1, 2, 3, 4, 5]), (3, 4, [4, 5]), (5, 2, [3, 4, 5]), (9, 5, [])],
)
def test_a_message_is_kept_until_all_have_it_and_this_one_has_delivered_it(
    safe_up_to: int, delivered: int, kept: list[int]
) -> None:
    ring = filled(1, 2, 3, 4, 5)
    ring.safe_up_to, ring.delivered = safe_up_to, delivered
    ring.release()
    ring.release()
    assert sorted(ring.messages) == kept


# The aru of the token (figure 4.1)


@pytest.mark.parametrize(
    ("my_aru", "aru", "aru_id", "seq", "after"),
    [
        (3, 5, NO_PROCESSOR, 5, (3, 1)),  # I miss something: lower it, in my name
        (3, 5, 2, 9, (3, 1)),  # lower than the one who lowered it before
        (5, 3, 2, 9, (3, 2)),  # another's low mark is not mine to raise
        (5, 3, 1, 9, (5, 1)),  # my own mark rises with me
        (9, 3, 1, 9, (9, NO_PROCESSOR)),  # and is nobody's once it is seq
        (7, 5, NO_PROCESSOR, 7, (7, NO_PROCESSOR)),  # in step with what I have just sent
        (0, 0, NO_PROCESSOR, 0, (0, NO_PROCESSOR)),
    ],
)
def test_the_token_s_aru_follows_figure_4_1(
    my_aru: int, aru: int, aru_id: int, seq: int, after: tuple[int, int]
) -> None:
    ring = ring_of()
    ring.my_aru = my_aru
    assert ring.updated_aru(aru, aru_id, seq, me=1) == after


def test_visits_with_an_unchanged_aru_below_seq_are_counted() -> None:
    """Figure 4.4: my_aru_count."""
    ring = filled(*range(1, 6))
    ring.forwarded(seq=9, aru=4)
    assert [ring.note_failure_to_receive(4, 2, now_us) for now_us in (50, 60, 80)] == [
        (1, 0),
        (2, 10),
        (3, 30),
    ]
    assert ring.note_failure_to_receive(5, 2, 90) == (0, 0)
    assert ring.note_failure_to_receive(4, NO_PROCESSOR, 100) == (0, 0)
    assert ring.note_failure_to_receive(4, 2, 110) == (1, 0)


# Retransmission


def test_requests_are_met_with_what_is_held_and_the_rest_is_passed_on() -> None:
    ring = filled(1, 2, 4)
    answers, passed_on = ring.answer(tuple(asked(2, 3, 4)), packets=9)
    assert [answer.message.seq for answer, _ in answers] == [2, 4]
    assert passed_on == asked(3)


def test_a_request_that_was_answered_in_vain_is_passed_on() -> None:
    """Another may reach whoever asks. If nobody does, it is answered again."""
    ring = filled(1, 2)
    for _ in range(2):
        answers, passed_on = ring.answer(tuple(asked(2)), packets=9)
        assert ([answer.message.seq for answer, _ in answers], passed_on) == ([2], [])
        assert ring.answer(tuple(asked(2)), packets=9) == ([], asked(2))


def test_after_many_answers_in_vain_requests_are_left_to_others_first() -> None:
    """One that comes back even so is met: nobody else could."""
    last = VAIN_ANSWERS_MAX + 1
    ring = filled(*range(1, last + 1))
    for seq in range(1, last):
        assert len(ring.answer(tuple(asked(seq)), packets=9)[0]) == 1
        assert ring.answer(tuple(asked(seq)), packets=9) == ([], asked(seq))
    assert ring.answer(tuple(asked(last)), packets=9) == ([], asked(last))
    answers, passed_on = ring.answer(tuple(asked(last)), packets=9)
    assert ([answer.message.seq for answer, _ in answers], passed_on) == ([last], [])


def test_an_answer_that_helped_ends_the_succession() -> None:
    ring = filled(*range(1, 20))
    ring.vain_answers = VAIN_ANSWERS_MAX - 1
    whole, rest = RetransmissionRequest(1), RetransmissionRequest(1, ((0, 5),))
    ring.answer((whole,), packets=9)
    assert ring.answer((rest,), packets=9) == ([], [rest])  # less of it is missing
    assert ring.vain_answers == 0
    ring.vain_answers = VAIN_ANSWERS_MAX - 1
    ring.answer(tuple(asked(2, 3)), packets=9)
    ring.answer(tuple(asked(3)), packets=9)
    assert ring.vain_answers == 0, "2 was heard"


def test_what_was_left_to_others_is_forgotten_once_all_have_it() -> None:
    ring = filled(*range(1, 20))
    ring.vain_answers = VAIN_ANSWERS_MAX
    assert ring.answer(tuple(asked(1, 15)), packets=9) == ([], asked(1, 15))
    ring.safe_up_to = 2
    given_out(ring)
    ring.release()
    assert ring.deferred == {15}


def test_on_a_ring_of_two_nothing_is_left_to_others() -> None:
    ring = ring_of(1, 2)
    ring.insert(held(1))
    for _ in range(2 * VAIN_ANSWERS_MAX):
        assert len(ring.answer(tuple(asked(1)), packets=9)[0]) == 1


def test_the_size_of_what_is_missing_is_that_of_the_others() -> None:
    ring = filled(1, 2, 4)
    size = len(held(1).data)
    assert ring.bytes_of(0, 4) == 4 * size
    assert ring.bytes_of(1, 2) == size
    assert ring.bytes_of(4, 4) == ring.bytes_of(4, 9) == 0


def test_on_a_ring_of_two_a_request_is_answered_each_time() -> None:
    ring = ring_of(1, 2)
    ring.insert(held(1))
    for _ in range(3):
        answers, passed_on = ring.answer(tuple(asked(1)), packets=9)
        assert (len(answers), passed_on) == (1, [])


def test_requests_beyond_the_allowance_stay_on_the_token() -> None:
    ring = filled(1, 2, 3)
    answers, passed_on = ring.answer(tuple(asked(1, 2, 3)), packets=2)
    assert [answer.message.seq for answer, _ in answers] == [1, 2]
    assert passed_on == asked(3)


def test_a_request_for_what_all_have_received_is_taken_off_the_token() -> None:
    ring = filled(1, 2, 3)
    ring.safe_up_to = 2
    given_out(ring)
    ring.release()
    answers, passed_on = ring.answer(tuple(asked(1, 2)), packets=9)
    assert (answers, passed_on) == ([], [])


def test_an_answer_keeps_the_ranges_that_were_asked_for() -> None:
    ring = filled(1)
    answers, _ = ring.answer((RetransmissionRequest(1, ((0, 5),)),), packets=9)
    assert answers == [(ring.messages[1], ((0, 5),))]


def test_what_is_missing_up_to_the_bound_is_asked_for_in_order() -> None:
    ring = filled(1, 4)
    assert ring.request_missing(asked(9), 5, no_holes, 90) == tuple(asked(2, 3, 5, 9))


def test_nothing_is_asked_for_when_nothing_is_missing() -> None:
    ring = filled(1, 2)
    assert ring.request_missing(asked(7), 2, no_holes, 90) == tuple(asked(7))


def test_only_the_holes_of_a_packet_here_in_part_are_asked_for() -> None:
    ring = filled(1)
    (request,) = ring.request_missing([], 2, lambda _ring, _seq: ((10, 20), (30, 40)), 90)
    assert request == RetransmissionRequest(2, ((10, 20), (30, 40)))


@pytest.mark.parametrize(
    ("theirs", "mine", "both"),
    [
        (((0, 5),), ((10, 15),), ((0, 5), (10, 15))),
        (((0, 5),), ((5, 9),), ((0, 9),)),
        (((0, 20),), ((5, 9),), ((0, 20),)),
        (WHOLE, ((5, 9),), WHOLE),
        (((5, 9),), WHOLE, WHOLE),
        (WHOLE, WHOLE, WHOLE),
    ],
)
def test_a_request_of_two_covers_what_either_misses(
    theirs: tuple[tuple[int, int], ...],
    mine: tuple[tuple[int, int], ...],
    both: tuple[tuple[int, int], ...],
) -> None:
    ring = ring_of()
    (request,) = ring.request_missing([RetransmissionRequest(1, theirs)], 1, lambda _ring, _seq: mine, 90)
    assert request.ranges == both


def test_the_rtr_list_never_grows_past_its_maximum() -> None:
    ring = ring_of()
    assert len(ring.request_missing([], 500, no_holes, requests_max=90)) == 90
    assert len(ring.request_missing(asked(*range(600, 690)), 500, no_holes, requests_max=90)) == 90


def test_a_full_rtr_list_keeps_the_lowest_requests() -> None:
    """The aru waits for the lowest: high requests of others must not keep it off the token, or its
    setter stands still until it is expelled for failure to receive."""
    ring = ring_of()
    ring.my_aru = 10
    request = ring.request_missing(asked(*range(100, 104)), 11, no_holes, requests_max=4)
    assert request[0].seq == 11


@pytest.mark.parametrize("askers", [1, 2, 3, 4])
def test_the_ranges_of_many_askers_still_fit_a_token(askers: int) -> None:
    """Each names at most 16 ranges (segment.RANGES_MAX); the token carries at most 32 per request."""
    rtr: tuple[RetransmissionRequest, ...] = ()
    for asker in range(askers):
        mine = tuple((1_000 * place + 20 * asker, 1_000 * place + 20 * asker + 10) for place in range(16))
        rtr = ring_of().request_missing(list(rtr), 1, lambda _ring, _seq, mine=mine: mine, 90)
        for start, stop in mine:
            assert any(low <= start and stop <= high for low, high in rtr[0].ranges) or not rtr[0].ranges
    assert len(rtr[0].ranges) <= RANGES_PER_REQUEST_MAX
    ring_codec(1, RingKind.CLASSIC).encode(RegularToken(1, 1, RING, 1, 1, 0, rtr=rtr))
