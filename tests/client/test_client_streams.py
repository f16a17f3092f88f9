"""Where events go, and what waits for a group's state. Driven through the protocol object, as in life."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_daemon import (
    OTHER,
    THIRD,
    asked,
    begins,
    chunk,
    encoded,
    hear,
    merged,
    messages,
    place,
    safe,
    view,
    welcome,
)

from totempole.client.events import Gap, Messages, Reconnected, Safe, State, Stream, View
from totempole.client.protocol import Joining, Protocol
from totempole.errors import SessionError
from totempole.groups.events import StateAsked
from totempole.session import Done, Policy
from totempole.session import Gap as GapFrame
from totempole.types import ProcessId, ProcessorId


def joined(
    *groups: str, state_bytes_max: int = 10**6, provider: Any = None, want_state: bool = True
) -> Protocol:
    """A program that is in these groups, each since the place of its number."""
    protocol = Protocol(state_bytes_max=state_bytes_max)
    protocol.connect()
    hear(protocol, encoded(welcome()))
    for number, group in enumerate(groups or ("g",), 1):
        request = protocol.join(Joining(group, Policy.DISCONNECT, provider, want_state))
        hear(protocol, encoded(Done(request), view(number, group=group, first=True)))
    return protocol


def own(protocol: Protocol, group: str = "g") -> Stream:
    return protocol.inbox.memberships[group].own


def told(protocol: Protocol, stream: Stream) -> list[str]:
    """What the program gets now, in short: v1 is the view of place 1, m5 the message, s3 the state."""
    short = []
    while (item := protocol.inbox.take(stream)) is not None:
        short.append(in_short(item.event))
    return short


def in_short(event: Any) -> str:
    letters = {Messages: "m", View: "v", Safe: "safe", State: "s", StateAsked: "asked"}
    if isinstance(event, Gap):
        return f"gap{event.messages}"
    if isinstance(event, Reconnected | SessionError):
        return type(event).__name__
    return f"{letters[type(event)]}{event.place.key.seq}"


def test_a_message_to_two_groups_is_in_both_and_once_in_the_session() -> None:
    protocol = joined("g", "h")
    for group in ("g", "h"):
        protocol.inbox.iterate(protocol.inbox.memberships[group])
    whole = protocol.inbox.open_whole()
    both, alone = messages(5, b"x", groups=("g", "h", "z")), messages(6, b"y", groups=("h",))
    hear(protocol, encoded(both, alone, messages(7, b"z", groups=("z",))))
    assert told(protocol, whole) == ["m5", "m6"]
    assert told(protocol, own(protocol, "g")) == ["v1", "m5"]
    assert told(protocol, own(protocol, "h")) == ["v2", "m5", "m6"]
    assert protocol.inbox.meter.bytes == 0


def test_the_session_begins_with_what_was_not_taken_from_its_groups() -> None:
    protocol = joined("g", "h")
    hear(protocol, encoded(messages(5, b"x", groups=("h",)), messages(6, b"y", groups=("g", "h"))))
    whole = protocol.inbox.open_whole()
    assert told(protocol, whole) == ["v1", "v2", "m5", "m6"]
    hear(protocol, encoded(messages(7, b"x")))
    assert told(protocol, whole) == ["m7"]
    assert not own(protocol, "g").ready, "nobody iterates over it: it must not fill up"


def test_a_group_that_is_iterated_over_keeps_its_own_events() -> None:
    protocol = joined("g", "h")
    protocol.inbox.iterate(protocol.inbox.memberships["g"])
    whole = protocol.inbox.open_whole()
    assert told(protocol, whole) == ["v2"]
    hear(protocol, encoded(messages(7, b"x", groups=("g", "h"))))
    assert told(protocol, own(protocol, "g")) == ["v1", "m7"]
    assert told(protocol, whole) == ["m7"]


def test_closing_the_session_stream_gives_the_groups_theirs_again() -> None:
    protocol = joined("g")
    whole = protocol.inbox.open_whole()
    protocol.inbox.close_whole()
    assert whole.over
    assert protocol.inbox.meter.bytes == 0
    hear(protocol, encoded(messages(7, b"x")))
    assert told(protocol, own(protocol)) == ["m7"]


def test_members_are_those_of_the_view_that_was_taken_last() -> None:
    protocol = joined("g")
    membership = protocol.inbox.memberships["g"]
    hear(protocol, encoded(view(2, OTHER), view(3, OTHER, THIRD)))
    assert len(membership.members) == 1
    told(protocol, membership.own)
    assert len(membership.members) == 3


def test_what_is_for_an_earlier_membership_is_not_for_this_one() -> None:
    protocol = joined("g")
    protocol.leave("g")
    protocol.join(Joining("g", Policy.SHED, None, False))
    hear(protocol, encoded(messages(5, b"old"), view(6, OTHER), GapFrame("g", 1, 1)))
    assert told(protocol, own(protocol)) == []
    hear(protocol, encoded(view(7, OTHER, first=True), messages(8, b"new")))
    assert told(protocol, own(protocol)) == ["v7", "m8"]


# State for this program


def test_the_state_comes_after_the_view_and_before_the_first_message() -> None:
    protocol = joined("g")
    hear(protocol, encoded(begins(1), messages(2, b"x"), chunk(b"ab"), messages(3, b"y")))
    assert told(protocol, own(protocol)) == ["v1"]
    hear(protocol, encoded(chunk(b"cd", last=True), messages(4, b"z")))
    first = protocol.inbox.take(own(protocol))
    assert first is not None
    assert first.event == State("g", OTHER, b"abcd", place(1))
    assert told(protocol, own(protocol)) == ["m2", "m3", "m4"]
    assert protocol.inbox.meter.bytes == 0


def test_without_a_donor_there_is_a_state_of_nothing_at_once() -> None:
    protocol = joined("g")
    hear(protocol, encoded(begins(1, None), messages(2, b"x")))
    items = [protocol.inbox.take(own(protocol)) for _ in range(2)]
    assert items[1] is not None
    assert items[1].event == State("g", None, None, place(1))
    assert told(protocol, own(protocol)) == ["m2"]


def test_another_donor_takes_over_and_its_state_contains_more() -> None:
    protocol = joined("g")
    hear(protocol, encoded(begins(1), chunk(b"lost"), messages(2, b"contained"), view(3, THIRD)))
    hear(protocol, encoded(begins(3, THIRD), messages(4, b"x"), chunk(b"late", last=True)))
    assert told(protocol, own(protocol)) == ["v1"]
    hear(protocol, encoded(chunk(b"whole", last=True, donor=THIRD)))
    assert told(protocol, own(protocol)) == ["v3", "s3", "m4"]


def test_when_the_last_donor_fails_the_program_begins_afresh_with_every_message() -> None:
    protocol = joined("g")
    hear(protocol, encoded(begins(1), messages(2, b"x"), view(3), begins(3, THIRD), messages(4, b"y")))
    hear(protocol, encoded(view(5), begins(5, None)))
    assert told(protocol, own(protocol)) == ["v1", "s5", "m2", "v3", "m4", "v5"]


def test_news_of_safety_for_what_the_state_contains_are_dropped() -> None:
    protocol = joined("g")
    hear(protocol, encoded(begins(1), messages(2, b"x"), begins(3, THIRD), safe(2), messages(4, b"y")))
    hear(protocol, encoded(safe(4), chunk(b"", last=True, donor=THIRD)))
    assert told(protocol, own(protocol)) == ["v1", "s3", "m4", "safe4"]


def test_a_state_holds_up_its_own_group_only() -> None:
    protocol = joined("g", "h")
    hear(protocol, encoded(begins(2, group="h"), messages(5, b"x", groups=("g", "h")), messages(6, b"y")))
    assert told(protocol, own(protocol, "g")) == ["v1", "m5", "m6"]
    assert told(protocol, own(protocol, "h")) == ["v2"]


def test_in_the_session_everything_waits_for_a_state() -> None:
    protocol = joined("g", "h")
    whole = protocol.inbox.open_whole()
    hear(protocol, encoded(begins(2, group="h"), messages(5, b"x", groups=("h",)), messages(6, b"y")))
    assert told(protocol, whole) == ["v1", "v2"]
    hear(protocol, encoded(chunk(b"", last=True, group="h")))
    assert told(protocol, whole) == ["s2", "m5", "m6"]


def test_a_message_that_one_groups_state_contains_is_still_news_to_another() -> None:
    protocol = joined("g", "h")
    whole = protocol.inbox.open_whole()
    hear(protocol, encoded(begins(2, group="h"), messages(5, b"x", groups=("g", "h"))))
    hear(protocol, encoded(messages(6, b"y", groups=("h",)), begins(7, THIRD, group="h")))
    hear(protocol, encoded(chunk(b"", last=True, donor=THIRD, group="h")))
    assert told(protocol, whole) == ["v1", "v2", "m5", "s7"]


def test_who_is_asked_for_a_state_is_not_held_up_by_another() -> None:
    """Two programs that each want what the other one has would wait for ever."""
    protocol = joined("g", "h", "i")
    whole = protocol.inbox.open_whole()
    hear(
        protocol,
        encoded(
            begins(2, group="h"),
            messages(5, b"h", groups=("h",)),
            messages(6, b"g"),
            messages(7, b"hi", groups=("h", "i")),
            messages(8, b"i", groups=("i",)),
        ),
    )
    assert told(protocol, whole) == ["v1", "v2", "v3"]
    hear(protocol, encoded(asked(9)))
    assert told(protocol, whole) == ["m6", "asked9"], "and i waits, since it has a message with h in between"
    hear(protocol, encoded(messages(10, b"g"), messages(11, b"i", groups=("i",))))
    assert told(protocol, whole) == ["m10"]
    hear(protocol, encoded(chunk(b"", last=True, group="h")))
    assert told(protocol, whole) == ["s2", "m5", "m7", "m8", "m11"]


def test_a_state_that_is_too_large_makes_the_program_leave_the_group() -> None:
    protocol = joined("g", "h", state_bytes_max=1_000)
    whole = protocol.inbox.open_whole()
    hear(protocol, encoded(begins(2, group="h"), messages(5, b"x"), chunk(b"x" * 1_001, group="h")))
    assert "h" not in protocol.inbox.memberships
    assert told(protocol, whole) == ["v1", "v2", "m5", "SessionError"]


def test_messages_that_wait_for_a_state_are_bounded_too() -> None:
    protocol = joined("g", state_bytes_max=5_000)
    stream = own(protocol)
    hear(protocol, encoded(begins(1)))
    for seq in range(2, 20):
        hear(protocol, encoded(messages(seq, b"x" * 500)))
    assert told(protocol, stream) == ["v1"]
    assert stream.error is not None
    assert "state_bytes_max" in str(stream.error)


def test_the_question_for_a_state_goes_to_one_consumer() -> None:
    protocol = joined("g")
    protocol.inbox.iterate(protocol.inbox.memberships["g"])
    whole = protocol.inbox.open_whole()
    hear(protocol, encoded(messages(5, b"x"), asked(6)))
    assert told(protocol, whole) == ["m5"]
    assert told(protocol, own(protocol)) == ["v1", "m5", "asked6"]


def test_a_group_whose_iteration_begins_late_waits_for_its_state_too() -> None:
    protocol = joined("g")
    protocol.inbox.open_whole()
    hear(protocol, encoded(begins(1)))
    protocol.inbox.iterate(protocol.inbox.memberships["g"])
    hear(protocol, encoded(messages(2, b"x")))
    assert told(protocol, own(protocol)) == []
    hear(protocol, encoded(chunk(b"", last=True)))
    assert told(protocol, own(protocol)) == ["s1", "m2"]


@given(
    steps=st.lists(
        st.sampled_from(["g", "h", "gh", "view g", "asked h", "open", "take", "take g"]), max_size=40
    ),
    finish=st.booleans(),
)
def test_each_groups_order_holds_in_every_stream(steps: list[str], finish: bool) -> None:
    """Whatever waits for what: a stream never goes back in a group, and nothing is lost or doubled."""
    protocol = joined("g", "h")
    hear(protocol, encoded(begins(2, group="g")))
    whole: Stream | None = None
    got: list[Any] = []
    sent = []
    seq = 10
    for step in steps:
        seq += 1
        match step:
            case "g" | "h" | "gh":
                hear(protocol, encoded(messages(seq, b"x", groups=tuple(step))))
                sent.append(seq)
            case "view g":
                hear(protocol, encoded(view(seq)))
            case "asked h":
                hear(protocol, encoded(asked(seq, group="h")))
            case "open":
                whole = protocol.inbox.open_whole()
            case "take" if whole is not None:
                got += [protocol.inbox.take(whole)]
            case "take g":
                protocol.inbox.take(own(protocol, "h"))
    if not finish or whole is None:
        return
    hear(protocol, encoded(chunk(b"", last=True, group="g")))
    while (item := protocol.inbox.take(whole)) is not None:
        got.append(item)
    events = [item.event for item in got if item is not None]
    for group in ("g", "h"):
        places = [e.place for e in events if group in getattr(e, "groups", (getattr(e, "group", ""),))]
        assert places == sorted(places)
    seen = [event.place.key.seq for event in events if isinstance(event, Messages)]
    assert len(seen) == len(set(seen))
    assert protocol.inbox.meter.bytes == sum(item.weight for item in own(protocol, "h").ready)


# The end, and the loss of a connection


def test_a_loss_voids_what_waits_and_says_where_the_program_stands() -> None:
    protocol = joined("g", "h", provider=lambda: b"")
    hear(protocol, encoded(messages(5, b"x"), begins(2, group="h"), messages(6, b"y", groups=("h",))))
    hear(protocol, encoded(asked(7)))
    protocol.lost("gone")
    protocol.connect()
    hear(protocol, encoded(welcome(OTHER)))
    assert told(protocol, own(protocol, "g")) == ["v1", "m5", "Reconnected"]
    items = [protocol.inbox.take(own(protocol, "h")) for _ in range(2)]
    event = items[1].event if items[1] else None
    assert isinstance(event, Reconnected)
    assert dict(event.seen) == {"g": place(5), "h": place(2)}
    assert (event.process, event.reason) == (OTHER, "gone")


def test_leaving_drops_what_was_not_taken_and_ends_the_stream() -> None:
    protocol = joined("g")
    stream = own(protocol)
    hear(protocol, encoded(messages(5, b"x")))
    protocol.leave("g")
    assert stream.over
    assert stream.error is None
    assert told(protocol, stream) == []
    assert protocol.inbox.meter.bytes == 0


def test_a_gap_is_told_in_its_place() -> None:
    protocol = joined("g")
    hear(protocol, encoded(messages(5, b"x"), GapFrame("g", 3, 99), messages(9, b"y")))
    assert told(protocol, own(protocol)) == ["v1", "m5", "gap3", "m9"]


@pytest.mark.parametrize("frame", [begins(5), chunk(b"x"), asked(5), view(5, OTHER), messages(5, b"x")])
def test_what_is_for_a_group_that_was_left_is_dropped(frame: Any) -> None:
    protocol = joined("g")
    protocol.leave("g")
    hear(protocol, encoded(frame))
    assert protocol.inbox.meter.bytes == 0


# Sides that come together


def warnings_of(protocol: Protocol) -> list[str]:
    said: list[str] = []
    protocol.warn = said.append
    return said


def test_a_program_with_state_that_does_not_look_at_strangers_is_warned_once() -> None:
    protocol = joined("g")
    said = warnings_of(protocol)
    protocol.inbox.iterate(protocol.inbox.memberships["g"])
    whole = protocol.inbox.open_whole()
    hear(protocol, encoded(merged(5, OTHER, THIRD), messages(6, b"x")))
    assert told(protocol, own(protocol)) == ["v1", "v5", "m6"]
    assert told(protocol, whole) == ["v5", "m6"]
    (text,) = said
    assert text.startswith("group 'g': sides of a partition have come together")
    assert f"({OTHER}, {THIRD})" in text
    hear(protocol, encoded(merged(7, OTHER)))
    told(protocol, whole)
    assert len(said) == 2, "each time"


def test_a_program_that_looks_at_strangers_is_not_warned() -> None:
    protocol = joined("g")
    said = warnings_of(protocol)
    hear(protocol, encoded(merged(5, OTHER), messages(6, b"x")))
    stream = own(protocol)
    protocol.inbox.take(stream)
    met = protocol.inbox.take(stream)
    assert met is not None
    assert isinstance(met.event, View)
    assert met.event.strangers == (OTHER,)
    assert told(protocol, stream) == ["m6"]
    assert said == []


def test_it_is_not_warned_before_it_had_time_to_look() -> None:
    protocol = joined("g")
    said = warnings_of(protocol)
    hear(protocol, encoded(merged(5, OTHER)))
    protocol.inbox.take(own(protocol))
    protocol.inbox.take(own(protocol))
    assert said == []
    protocol.inbox.take(own(protocol))
    assert len(said) == 1


def test_a_program_without_state_has_nothing_that_could_differ() -> None:
    for provider, wants, count in ((None, False, 0), (bytes, False, 1), (None, True, 1)):
        protocol = joined("g", provider=provider, want_state=wants)
        said = warnings_of(protocol)
        hear(protocol, encoded(merged(5, OTHER), view(6, OTHER)))
        told(protocol, own(protocol))
        assert len(said) == count


def test_of_many_strangers_some_are_named() -> None:
    protocol = joined("g")
    said = warnings_of(protocol)
    many = [ProcessId(ProcessorId(number), 1, 1) for number in range(11, 19)]
    hear(protocol, encoded(merged(5, *many)))
    told(protocol, own(protocol))
    assert "(11.1.1, 12.1.1, 13.1.1, 14.1.1, 15.1.1 and 3 more)" in said[0]


def test_views_are_equal_whoever_has_looked() -> None:
    one, two = (View("regular", "g", (OTHER,), (), place(1), "configuration") for _ in range(2))
    assert one.strangers == (OTHER,)
    assert one == two
    assert hash(one) == hash(two)
    assert repr(one) == repr(two)
