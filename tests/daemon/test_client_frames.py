"""Frames between programs and their daemon: golden bytes, round trips, and what is refused before it is
kept."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import CodecError
from totempole.groups import pack
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.packing import INFO_BYTES_MAX
from totempole.session import (
    CLIENT_KINDS,
    DAEMON_KINDS,
    FRAME_BYTES_MAX,
    HEAD,
    Append,
    AskBarrier,
    AskGroups,
    AskNetworks,
    BarrierPassed,
    Bye,
    Credit,
    Done,
    Ended,
    FindRun,
    FollowEnd,
    FollowEnded,
    Following,
    FollowLog,
    Freed,
    Gap,
    GroupTable,
    Hello,
    HoldLog,
    Join,
    Kind,
    Large,
    Leave,
    Limits,
    LogRuns,
    NetworkNews,
    NetworkStatus,
    NetworkTable,
    Part,
    Policy,
    Refused,
    RunAccepted,
    RunDurable,
    RunFenced,
    RunLost,
    RunPlaced,
    RunUnknown,
    Send,
    Shared,
    State,
    Unfollow,
    Welcome,
)
from totempole.session.codec import FrameReader, cut, decode, encode
from totempole.types import ConfigurationKind, Fence, OrderKey, Place, ProcessId, RingId, Service

PLACE = Place(OrderKey(RingId(8, 1), 70, RingId(9, 2)), 3)
P, Q = ProcessId(1, 5, 7), ProcessId(2, 6, 8)
LIMITS = Limits(131_072, 60_000, 67_108_864, 100, 16, 1000, 50_000)

PLACE_HEX = "0000000000000008 00000001 0000000000000046 0000000000000009 00000002 00000003"
P_HEX = "00000001 0000000000000005 00000007"
Q_HEX = "00000002 0000000000000006 00000008"
RUN = (1, 7, 9)
RUN_HEX = "00000001 0000000000000007 0000000000000009"

GOLDEN: list[tuple[Any, str]] = [
    (Hello("chat"), "01" + b'{"name":"chat","version":5}'.hex()),
    (Join(2, "a", Policy.SHED, True, True), "02 00000002 03 03 01 61"),
    (Join(2, "a", info=b"xy"), "02 00000002 01 00 01 61 7879"),
    (Leave(3, "a"), "03 00000003 61"),
    (Send(("a", "bc"), b"xyz", Service.SAFE, True), "04 02 01 0005 0161 026263 78797a"),
    (State("a", Q, PLACE, True, b"s"), f"05 {Q_HEX} {PLACE_HEX} 01 01 61 73"),
    (AskGroups(4), "06 00000004"),
    (Bye(), "07"),
    (Large(5, Kind.SEND, 2**32), "08 00000005 04 0000000100000000"),
    (Part(b"p"), "09 70"),
    (AskNetworks(9, True), "0a 00000009 01"),
    (Append(2, "a", b"xyz", b"k", True), "0b 00000002 01 01 00000001 61 6b 78797a"),
    (
        Append(2, "a", b"xyz", b"k", False, Fence("qq", 9, 7, 8)),
        "0b 00000002 02 01 00000001 61 0000000000000009 0000000000000007 0000000000000008 02 7171 6b 78797a",
    ),
    (FindRun(3, RUN), f"0c 00000003 {RUN_HEX}"),
    (HoldLog(4, "a", -1), "0d 00000004 ffffffffffffffff 61"),
    (FollowLog(5, "a"), "0e 00000005 61"),
    (Unfollow("a"), "0f 61"),
    (AskBarrier(6), "28 00000006"),
    (Refused(6, "no"), "11 00000006 6e6f"),
    (Freed(2**40), "2b 0000010000000000"),
    (Shared(20, 64, 5, 2**40), "2a 14 00000040 00000005 0000010000000000"),
    (Done(7), "12 00000007"),
    (Credit(2**40), "13 0000010000000000"),
    (
        GroupMessages(P, 9, 2, ("a", "bc"), b"xyz", Service.AGREED, PLACE),
        f"14 {P_HEX} 0000000000000009 00000002 01 {PLACE_HEX} 0005 0161 026263 78797a",
    ),
    (
        GroupView("a", ConfigurationKind.TRANSITIONAL, (P, Q), (P,), PLACE, "leave"),
        f"15 02 {PLACE_HEX} 01 05 00000002 00000001 61 6c65617665 {P_HEX} {Q_HEX} {P_HEX}",
    ),
    (BecameSafe(P, 9, 2, ("a",), PLACE), f"16 {P_HEX} 0000000000000009 00000002 {PLACE_HEX} 0161"),
    (StateAsked("a", Q, PLACE), f"17 {Q_HEX} {PLACE_HEX} 61"),
    (StateBegins("a", P, PLACE), f"18 {P_HEX} {PLACE_HEX} 61"),
    (StateBegins("a", None, PLACE), f"18 {'00' * 16} {PLACE_HEX} 61"),
    (StateChunk("a", P, b"s", False, PLACE), f"19 {P_HEX} {PLACE_HEX} 00 01 61 73"),
    (Gap("a", 3, 200), "1a 0000000000000003 00000000000000c8 61"),
    (GroupTable(8, {"a": (P,)}), "1b 00000008" + b'{"a":[[1,5,7]]}'.hex()),
    (Ended("over"), "1c" + b"over".hex()),
    (
        NetworkTable(9, (NetworkStatus("a", "faulty", "3 cannot send"),)),
        "1d 00000009" + b'[{"name":"a","state":"faulty","why":"3 cannot send"}]'.hex(),
    ),
    (
        NetworkNews("a", "in_service", "sick", "why", PLACE.key),
        "1e" + b'{"name":"a","before":"in_service","state":"sick","why":"why","key":[[8,1],70,[9,2]]}'.hex(),
    ),
    (RunAccepted(2, RUN, 6), f"1f 00000002 {RUN_HEX} 0000000000000006"),
    (RunDurable(2, RUN), f"20 00000002 {RUN_HEX}"),
    (
        RunPlaced(2, RUN, 6, 3, ((1, 5),)),
        f"21 00000002 {RUN_HEX} 0000000000000006 00000003 00000001 00000001 0000000000000005",
    ),
    (RunFenced(2, RUN, 6, -1), f"29 00000002 {RUN_HEX} 0000000000000006 ffffffffffffffff"),
    (RunLost(2, RUN, "why"), f"22 00000002 {RUN_HEX} 776879"),
    (RunUnknown(2, RUN, True), f"23 00000002 {RUN_HEX} 01"),
    (Following(2, 5, 6, 7), "24 00000002 0000000000000005 0000000000000006 0000000000000007"),
    (LogRuns("a", b"\x90", 6, 7), "25 0000000000000006 0000000000000007 01 61 90"),
    (FollowEnded(FollowEnd.CLOSED), "26 02"),
    (BarrierPassed(2, 6), "27 00000002 0000000000000006"),
    (
        Welcome(P, 4, 1000, LIMITS),
        "10"
        + (
            b'{"process":[1,5,7],"cluster_id":4,"credit":1000,"limits":{"send_bytes_max":131072,'
            b'"batch_bytes":60000,"message_bytes_max":67108864,"group_name_bytes_max":100,"groups_per_message_max":16,'
            b'"groups_per_process_max":1000,"append_bytes_max":50000},"version":5}'
        ).hex(),
    ),
]


def golden_bytes(text: str) -> bytes:
    data = bytes.fromhex(text)
    return (len(data) - 1).to_bytes(4) + data


@pytest.mark.parametrize(("frame", "text"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(frame: Any, text: str) -> None:
    assert encode(frame) == golden_bytes(text)
    assert decode(golden_bytes(text)[4], golden_bytes(text)[5:]) == frame


def test_every_kind_has_golden_bytes() -> None:
    assert {encode(frame)[4] for frame, _ in GOLDEN} == set(Kind) == {*CLIENT_KINDS, *DAEMON_KINDS}


names = st.text(min_size=1, max_size=60).filter(lambda text: 0 < len(text.encode(errors="replace")) <= 100)
names = names.filter(lambda text: not re.search("[\ud800-\udfff]", text))
groups = st.lists(names, min_size=1, max_size=4).map(tuple)
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
processes = st.builds(ProcessId, st.integers(1, 2**32 - 1), u64, u32)
rings = st.builds(RingId, u64, u32)
places = st.builds(Place, st.builds(OrderKey, rings, u64, rings), u32)
contents = st.binary(max_size=80)
runs = st.tuples(u32, u64, u64)
fences = st.builds(Fence, names, u64, u64, u64)
services = st.sampled_from(Service)
some_processes = st.lists(processes, max_size=5).map(tuple)
some_info = st.binary(max_size=INFO_BYTES_MAX)


@st.composite
def views(draw: st.DrawFn) -> GroupView:
    members = draw(some_processes)
    info = tuple(draw(some_info) for _ in members) if draw(st.booleans()) else ()
    kind = draw(st.sampled_from(ConfigurationKind))
    return GroupView(draw(names), kind, members, draw(some_processes), draw(places), draw(names), info)


@st.composite
def tables(draw: st.DrawFn) -> GroupTable:
    found = draw(st.dictionaries(names, some_processes, max_size=3))
    told = {
        name: {member: draw(some_info) for member in members if draw(st.booleans())}
        for name, members in found.items()
    }
    return GroupTable(draw(u32), found, {name: info for name, info in told.items() if info})


frames = st.one_of(
    st.builds(Join, u32, names, st.sampled_from(Policy), st.booleans(), st.booleans(), some_info),
    st.builds(Send, groups, contents, services, st.booleans()),
    st.builds(State, names, processes, places, st.booleans(), contents),
    st.builds(GroupMessages, processes, u64, u32, groups, contents, services, places),
    views(),
    st.builds(BecameSafe, processes, u64, u32, groups, places),
    st.builds(StateBegins, names, st.none() | processes, places),
    st.builds(StateChunk, names, processes, contents, st.booleans(), places),
    tables(),
    st.builds(Refused, u32, names),
    st.builds(Gap, names, u64, u64),
    st.builds(AskNetworks, u32, st.booleans()),
    st.builds(NetworkTable, u32, st.lists(st.builds(NetworkStatus, names, names, names)).map(tuple)),
    st.builds(Append, u32, names, contents, contents, st.booleans(), st.none() | fences),
    st.builds(FindRun, u32, runs),
    st.builds(HoldLog, u32, names, st.integers(-1, 2**63 - 1)),
    st.builds(RunAccepted, u32, runs, u64),
    st.builds(RunDurable, u32, runs),
    st.builds(RunPlaced, u32, runs, u64, u32, st.lists(st.tuples(u32, u64), max_size=3).map(tuple)),
    st.builds(RunFenced, u32, runs, u64, st.integers(-1, 2**63 - 1)),
    st.builds(RunLost, u32, runs, names),
    st.builds(RunUnknown, u32, runs, st.booleans()),
    st.builds(FollowLog, u32, names),
    st.builds(Unfollow, names),
    st.builds(AskBarrier, u32),
    st.builds(Following, u32, u64, u64, u64),
    st.builds(LogRuns, st.just("") | names, contents, u64, u64),
    st.builds(FollowEnded, st.sampled_from(FollowEnd)),
    st.builds(BarrierPassed, u32, u64),
    st.builds(NetworkNews, names, names, names, names, places.map(lambda place: place.key)),
)
EITHER = {**CLIENT_KINDS, **DAEMON_KINDS}


@given(frames)
def test_what_is_encoded_is_decoded(frame: Any) -> None:
    data = encode(frame)
    assert decode(data[4], data[HEAD.size :]) == frame


def give(reader: FrameReader, piece: bytes, into: bool) -> int:
    """How much of it the reader has taken: it is fed, or read into its buffer as far as there is room."""
    if not into:
        reader.feed(piece)
        return len(piece)
    with reader.room() as room:
        assert len(room) > 0
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
    reader.filled(count)
    return count


@given(st.lists(frames, max_size=10), st.data())
def test_a_stream_cut_anywhere_gives_the_frames(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    reader, found, start = FrameReader(EITHER), [], 0
    while start < len(stream):
        step = data.draw(st.integers(1, len(stream) - start))
        start += give(reader, stream[start : start + step], data.draw(st.booleans()))
        found += [decode(*frame) for frame in reader.take(data.draw(st.integers(1, 3)))]
    found += [decode(*frame) for frame in reader.take()]
    assert found == sent
    assert not len(reader)


@pytest.mark.parametrize("read", [1_000, 20_000, 10**9])
def test_a_reader_reads_frames_of_any_length_into_a_buffer_that_stays_small(read: int) -> None:
    body = bytes(range(256)) * 4_096
    sizes = [0, 1, FRAME_BYTES_MAX, 5, 300_000, 16_384, FRAME_BYTES_MAX, FRAME_BYTES_MAX]
    stream = b"".join(HEAD.pack(size, Kind.PART) + body[:size] for size in sizes)
    reader, found, start, longest = FrameReader(DAEMON_KINDS), [], 0, 0
    while start < len(stream):
        longest = max(longest, len(reader.room()) + len(reader))
        start += give(reader, stream[start : start + read], into=True)
        found += reader.take()
    assert found == [(Kind.PART, body[:size]) for size in sizes]
    assert longest <= 4 * FRAME_BYTES_MAX


@given(st.sampled_from(Kind), st.binary(max_size=120))
def test_random_bodies_are_decoded_or_refused(kind: Kind, body: bytes) -> None:
    with suppress(CodecError):
        frame = decode(kind, body)
        assert decode(kind, encode(frame)[HEAD.size :]) == frame


@given(st.sampled_from([frame for frame, _ in GOLDEN]), st.data())
def test_a_body_cut_short_is_never_the_frame(frame: Any, data: st.DataObject) -> None:
    body = encode(frame)[HEAD.size :]
    short = body[: data.draw(st.integers(0, max(0, len(body) - 1)))]
    with suppress(CodecError):
        assert decode(encode(frame)[4], short) != frame or not body


@given(st.binary(max_size=300))
def test_random_bytes_are_kept_only_as_far_as_a_frame_may_go(data: bytes) -> None:
    reader = FrameReader(CLIENT_KINDS)
    reader.feed(data)
    with suppress(CodecError):
        for kind, body in reader.take():
            assert len(body) <= CLIENT_KINDS[kind]


def test_a_length_is_refused_before_the_body_has_come() -> None:
    reader = FrameReader(CLIENT_KINDS)
    reader.feed(HEAD.pack(FRAME_BYTES_MAX + 1, Kind.SEND))
    with pytest.raises(CodecError, match="SEND of 1048577 bytes"):
        reader.take()


def test_the_other_sides_frames_are_refused() -> None:
    reader = FrameReader(CLIENT_KINDS)
    reader.feed(encode(Ended("x")))
    with pytest.raises(CodecError, match="ENDED is not expected here"):
        reader.take()


def test_frames_before_a_bad_one_are_taken_first() -> None:
    reader = FrameReader(CLIENT_KINDS)
    reader.feed(encode(Bye()) + b"\xff" * 20)
    assert reader.take() == [(Kind.BYE, b"")]
    with pytest.raises(CodecError, match="kind 255"):
        reader.take()


def test_nested_json_is_refused() -> None:
    with pytest.raises(CodecError):
        decode(Kind.HELLO, b'{"name":' + b"[" * 4_000)


LONG = GroupMessages(P, 1, 1, ("a",), pack([bytes(range(256)) * 12_000]), Service.SAFE, PLACE)


def test_a_long_frame_travels_as_large_and_parts_that_are_not_copied() -> None:
    pieces = cut(LONG)
    assert all(sum(map(len, piece)) <= HEAD.size + FRAME_BYTES_MAX for piece in pieces)
    assert [piece[0][4] for piece in pieces] == [Kind.LARGE] + [Kind.PART] * 4
    assert all(piece[1].obj is LONG.batch for piece in pieces[2:])  # type: ignore[union-attr]
    reader = FrameReader(DAEMON_KINDS, large_bytes_max=2**23)
    reader.feed(b"".join(part for piece in pieces for part in piece) + encode(Done(1)))
    assert [decode(*frame) for frame in reader.take()] == [LONG, Done(1)]


def test_a_short_frame_is_one_buffer() -> None:
    assert cut(Done(1)) == [(encode(Done(1)),)]


def test_a_program_believes_only_so_much() -> None:
    for stream in (
        encode(Large(0, Kind.VIEW, 2**40)),
        encode(Large(0, Kind.VIEW, 0)),
        encode(Part(b"x")),
        encode(Large(0, Kind.VIEW, 2)) + encode(Part(b"xxx")),
        encode(Large(0, Kind.VIEW, 2)) + encode(Large(0, Kind.VIEW, 2)),
        encode(Large(0, Kind.VIEW, 2)) + encode(Part(b"")),
    ):
        reader = FrameReader(DAEMON_KINDS, large_bytes_max=2**20)
        reader.feed(stream)
        with pytest.raises(CodecError):
            reader.take()


def test_a_session_may_end_amid_parts() -> None:
    reader = FrameReader(DAEMON_KINDS, large_bytes_max=2**20)
    reader.feed(encode(Large(0, Kind.VIEW, 9)) + encode(Part(b"x")) + encode(Ended("slow")))
    assert reader.take() == [(Kind.ENDED, b"slow")]


def test_one_frame_has_a_limit() -> None:
    with pytest.raises(CodecError, match="MESSAGES of"):
        encode(LONG)
