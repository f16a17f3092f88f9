"""The protocol object alone: requests, answers, the loss of a connection, and a daemon that errs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_daemon import (
    CREDIT,
    LIMITS,
    ME,
    OTHER,
    THIRD,
    Hearing,
    asked,
    encoded,
    hear,
    messages,
    view,
    welcome,
)

from totempole.client.events import Reconnected
from totempole.client.protocol import Answer, Joining, Phase, Protocol, policy_of
from totempole.client.sending import Target
from totempole.errors import SessionError
from totempole.groups import Batch
from totempole.groups.events import StateAsked
from totempole.session import (
    AskGroups,
    Bye,
    Credit,
    Done,
    Ended,
    GroupTable,
    Hello,
    Join,
    Kind,
    Large,
    Leave,
    Policy,
    Refused,
    Send,
)
from totempole.session.codec import encode
from totempole.types import ProcessId, Service

G = Target(("g",), Service.AGREED, False)


def opened(process: ProcessId = ME, name: str = "") -> Protocol:
    protocol = Protocol(name)
    protocol.connect()
    hear(protocol, encoded(welcome(process)))
    protocol.sending.out.clear()
    return protocol


def said(protocol: Protocol) -> list[Any]:
    protocol.sending.close_batch()
    out, protocol.sending.out = protocol.sending.out, []
    return Hearing().feed(b"".join(out))


def joining(group: str = "g", provider: Any = None) -> Joining:
    return Joining(group, Policy.BLOCK, provider, False)


def test_the_first_frame_is_a_greeting() -> None:
    protocol = Protocol("example")
    protocol.connect()
    assert said(protocol) == [Hello("example")]
    assert protocol.phase is Phase.CONNECTING
    with pytest.raises(SessionError, match="not open"):
        _ = protocol.process
    hear(protocol, encoded(welcome()))
    assert protocol.phase is Phase.OPEN
    assert protocol.process == ME


def test_a_join_is_done_when_its_view_has_come() -> None:
    protocol = opened()
    request = protocol.join(joining(provider=lambda: b""))
    assert said(protocol) == [Join(request, "g", Policy.BLOCK, donor=True, wants_state=False)]
    hear(protocol, encoded(Done(request)))
    assert protocol.answers == []
    assert protocol.asking
    hear(protocol, encoded(view(1, first=True)))
    assert protocol.answers == [Answer(request)]
    assert not protocol.asking


def test_a_join_that_is_refused_leaves_nothing_behind() -> None:
    protocol = opened()
    request = protocol.join(joining())
    hear(protocol, encoded(Refused(request, "no")))
    (answer,) = protocol.answers
    assert str(answer.error) == "no"
    assert not protocol.inbox.memberships
    protocol.join(joining())


def test_requests_come_after_what_was_multicast_before() -> None:
    protocol = opened()
    protocol.sending.check(G, 1)
    protocol.sending.offer(G, b"1")
    request = protocol.ask_groups()
    protocol.sending.offer(G, b"2")
    protocol.bye()
    first, second, third, fourth = said(protocol)
    assert list(Batch(first.batch)) == [b"1"]
    assert second == AskGroups(request)
    assert list(Batch(third.batch)) == [b"2"]
    assert fourth == Bye()


def test_the_table_of_groups_is_an_answer() -> None:
    protocol = opened()
    request = protocol.ask_groups()
    hear(protocol, encoded(GroupTable(request, {"g": (ME, OTHER)})))
    assert protocol.answers == [Answer(request, None, {"g": (ME, OTHER)})]


def test_a_large_message_waits_for_leave_and_goes_in_parts() -> None:
    protocol = opened()
    request, parts = protocol.ask_large(G, b"x" * 3_000_000)
    (large,) = said(protocol)
    assert isinstance(large, Large)
    assert large[:2] == (request, Kind.SEND)
    hear(protocol, encoded(Done(request)))
    assert protocol.answers == [Answer(request)]
    hearing = Hearing()
    hearing.feed(encode(large))
    heard = [frame for part in parts for frame in hearing.feed(b"".join(part))]
    assert [type(frame) for frame in heard] == [Send]
    assert list(Batch(heard[0].batch)) == [b"x" * 3_000_000]
    assert max(len(piece) for part in parts for piece in part) <= 1024 * 1024


# Losing the daemon


def lost_and_back(protocol: Protocol, process: ProcessId = OTHER) -> list[Any]:
    protocol.lost("gone")
    protocol.connect()
    hear(protocol, encoded(welcome(process)))
    return said(protocol)


def test_groups_are_joined_again_in_their_order() -> None:
    protocol = opened()
    for number, group in enumerate("bac", 1):
        request = protocol.join(joining(group))
        hear(protocol, encoded(Done(request), view(number, group=group, first=True)))
    hello, *joins = lost_and_back(protocol)
    assert isinstance(hello, Hello)
    assert [join.group for join in joins] == ["b", "a", "c"]
    assert len({join.request for join in joins}) == 3


def test_a_join_under_way_is_asked_for_again_and_answered_once() -> None:
    protocol = opened()
    request = protocol.join(joining())
    assert [frame.request for frame in lost_and_back(protocol) if isinstance(frame, Join)] == [request]
    hear(protocol, encoded(Done(request), view(1, me=OTHER, first=True)))
    assert protocol.answers == [Answer(request)]


def test_a_group_that_cannot_be_joined_again_ends_with_an_error() -> None:
    protocol = opened()
    hear(protocol, encoded(Done(protocol.join(joining())), view(1, first=True)))
    stream = protocol.inbox.memberships["g"].own
    (join,) = [frame for frame in lost_and_back(protocol) if isinstance(frame, Join)]
    hear(protocol, encoded(Refused(join.request, "full")))
    assert str(stream.error) == "full"
    assert not any(answer.error for answer in protocol.answers)


def test_what_was_left_stays_left_and_other_requests_fail() -> None:
    protocol = opened()
    hear(protocol, encoded(Done(protocol.join(joining())), view(1, first=True)))
    protocol.answers.clear()
    leaving, asking = protocol.leave("g"), protocol.ask_groups()
    frames = lost_and_back(protocol)
    assert not any(isinstance(frame, Join | Leave) for frame in frames)
    assert [(answer.request, answer.error is None) for answer in protocol.answers] == [
        (leaving, True),
        (asking, False),
    ]


def test_losing_it_twice_counts_together() -> None:
    """Between the two, nothing was received: the first loss is where the program stood."""
    protocol = opened()
    hear(protocol, encoded(Done(protocol.join(joining())), view(1, first=True)))
    stream = protocol.inbox.memberships["g"].own
    protocol.inbox.take(stream)
    protocol.sending.check(G, 1)
    protocol.sending.offer(G, b"1")
    protocol.lost("first")
    protocol.connect()
    protocol.lost("second")
    lost_and_back(protocol, THIRD)
    item = protocol.inbox.take(stream)
    assert item is not None
    event = item.event
    assert isinstance(event, Reconnected)
    assert (event.before, event.process, event.unacknowledged, event.reason) == (ME, THIRD, 1, "first")


def test_credit_begins_anew_with_each_connection() -> None:
    protocol = opened()
    hear(protocol, encoded(Credit(CREDIT * 5)))
    lost_and_back(protocol)
    assert protocol.sending._credit == CREDIT


def test_the_end_answers_everyone() -> None:
    protocol = opened()
    request = protocol.join(joining())
    stream = protocol.inbox.memberships["g"].own
    error = SessionError("over")
    protocol.end(error)
    assert protocol.answers == [Answer(request, error)]
    assert (stream.over, stream.error) == (True, error)


# State for joiners


def donor() -> tuple[Protocol, StateAsked]:
    protocol = opened()
    request = protocol.join(joining(provider=lambda: b"state"))
    hear(protocol, encoded(Done(request), view(1, first=True), view(2, OTHER), asked(2)))
    said(protocol)
    return protocol, asked(2)


def test_a_state_is_given_in_pieces() -> None:
    protocol, question = donor()
    assert protocol.gift(question) is not None
    assert protocol.give(question, b"sta", False)
    assert protocol.is_wanted(question)
    assert protocol.give(question, b"te", True)
    assert not protocol.is_wanted(question)
    assert [(frame.joiner, frame.place, bytes(frame.content), frame.last) for frame in said(protocol)] == [
        (OTHER, question.place, b"sta", False),
        (OTHER, question.place, b"te", True),
    ]


def test_a_joiner_that_has_gone_wants_no_state() -> None:
    protocol, question = donor()
    protocol.gift(question)
    hear(protocol, encoded(view(3, THIRD)))
    assert not protocol.is_wanted(question)


def test_who_has_left_or_lost_its_daemon_gives_nothing() -> None:
    protocol, question = donor()
    protocol.gift(question)
    protocol.leave("g")
    assert not protocol.is_wanted(question)
    assert protocol.gift(question) is None


# A daemon that errs


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00\xff",
        b"\xff\xff\xff\xff\x14",
        encode(Hello("a daemon does not greet")),
        encoded(welcome()),
        encoded(messages(1, b"x"))[:-1] + b"",
    ],
)
def test_what_is_no_frame_of_a_daemon_raises(data: bytes) -> None:
    protocol = opened()
    data += b"\x00\x00\x00\x00\xff" * 2
    with pytest.raises(SessionError, match="cannot read"):
        hear(protocol, data)


def test_another_version_is_refused() -> None:
    protocol = Protocol()
    protocol.connect()
    with pytest.raises(SessionError, match="version 99"):
        hear(protocol, encoded(welcome()._replace(version=99)))


def test_the_daemons_last_word_is_kept() -> None:
    for frame in (Ended("it leaves"), Refused(0, "it leaves")):
        protocol = opened()
        hear(protocol, encoded(frame))
        assert protocol.farewell == "it leaves"


def test_answers_to_what_was_not_asked_are_passed_over() -> None:
    protocol = opened()
    hear(protocol, encoded(Done(77), Refused(78, "x"), GroupTable(79, {})))
    assert protocol.answers == []


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_random_bytes_never_raise_anything_else(data: bytes, seed: int) -> None:
    protocol = opened()
    protocol.join(joining())
    whole = bytearray(encoded(view(1, first=True), messages(2, b"abc"), Credit(10**6)))
    whole[random.Random(seed).randrange(len(whole))] ^= 1 + seed % 255
    for piece in (bytes(whole), data):
        try:
            hear(protocol, piece)
        except SessionError:
            return


@given(st.lists(st.integers(1, 400), max_size=30))
def test_frames_may_come_in_any_pieces(sizes: list[int]) -> None:
    protocol = opened()
    protocol.join(joining())
    data = encoded(view(1, first=True), *[messages(seq, b"x" * seq) for seq in range(2, 12)])
    at = 0
    for size in [*sizes, len(data)]:
        hear(protocol, data[at : at + size])
        at = min(len(data), at + size)
    assert len(protocol.inbox.memberships["g"].own.ready) == 11


def test_policies_have_names() -> None:
    assert [policy_of(name) for name in ("disconnect", "block", "shed")] == list(Policy)
    with pytest.raises(SessionError, match="disconnect, block, shed"):
        policy_of("wait")
    assert LIMITS.send_bytes_max < CREDIT
