"""The body of a group packet: what goes in comes out, the bytes are these, and others are refused."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import processors, rings, rings_or_none, u32, u64
from totempole.errors import CodecError
from totempole.groups.body import (
    HEAD_BYTES,
    PROCESS_NUMBER_MAX,
    RUN_BYTES,
    Entry,
    Part,
    Run,
    RunKind,
    epoch_of,
    head,
    is_grouped,
    pack_part,
    pack_transfer,
    run_head,
    runs_of,
    unpack_part,
    unpack_transfer,
)
from totempole.groups.packing import NAME_BYTES_MOST, pack_names, unpack_names
from totempole.types import OrderKey, Place, ProcessId, RingId

names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60).filter(
    lambda name: len(name.encode()) <= NAME_BYTES_MOST
)
numbers = st.integers(1, PROCESS_NUMBER_MAX)
process_ids = st.builds(ProcessId, processors, u64, numbers)
places = st.builds(Place, st.builds(OrderKey, rings, u64, rings_or_none), u32)
entries = st.booleans().map(Entry) | st.builds(Entry, st.booleans(), process_ids, places)
parts = st.builds(
    Part,
    st.frozensets(processors, max_size=5),
    st.dictionaries(numbers, st.dictionaries(names, entries, max_size=4), max_size=5),
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    content = draw(st.binary(max_size=50))
    offset = draw(st.integers(0, 2**31))
    total = offset + len(content) + draw(st.integers(0, 2**30))
    groups = tuple(draw(st.lists(names, max_size=4)))
    kind, flags = draw(st.sampled_from(RunKind)), draw(st.integers(0, 255))
    return Run(kind, flags, draw(u32), draw(u64), draw(u32), offset, total, groups, content)


def packed(run: Run) -> bytes:
    *fields, groups, content = run
    return run_head(*fields, pack_names(groups), len(content)) + content


@given(rings, st.lists(runs(), max_size=6), st.booleans())
def test_runs_come_out_as_they_went_in(epoch: RingId, sent: list[Run], as_view: bool) -> None:
    body = head(epoch) + b"".join(map(packed, sent))
    got = memoryview(body) if as_view else body
    assert is_grouped(got)
    assert epoch_of(got) == epoch
    assert [run._replace(content=bytes(run.content)) for run in runs_of(got)] == sent


@given(rings, st.lists(runs(), min_size=1, max_size=4), st.data())
def test_a_body_that_is_cut_short_is_refused(epoch: RingId, sent: list[Run], data: st.DataObject) -> None:
    whole = [len(head(epoch))]
    for run in sent:
        whole.append(whole[-1] + len(packed(run)))
    body = head(epoch) + b"".join(map(packed, sent))
    length = data.draw(st.integers(0, len(body) - 1).filter(lambda length: length not in whole))
    with pytest.raises(CodecError):
        _read(body[:length])


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for start in (b"", head(RingId(1, 1))):
        with suppress(CodecError):
            _read(start + body)


def _read(body: bytes) -> list[Run]:
    epoch_of(body)
    return list(runs_of(body))


def test_the_bytes_of_a_packet() -> None:
    """Processors of one cluster may have different versions: these bytes stay as they are."""
    body = head(RingId(0x0102030405060708, 0x090A0B0C)) + packed(
        Run(RunKind.MESSAGES, 1, 2, 3, 4, 5, 9, ("g", "höhe"), b"abc")
    )
    assert body.hex(" ") == (
        "03 01 02 03 04 05 06 07 08 09 0a 0b 0c "  # kind, epoch
        "01 01 00 00 00 02 00 00 00 00 00 00 00 03 "  # kind, flags, process, number
        "00 00 00 04 00 00 00 05 00 00 00 09 "  # count, offset, total
        "00 08 00 00 00 03 "  # lengths of names and content
        "01 67 05 68 c3 b6 68 65 "
        "61 62 63"
    )
    assert len(body) == HEAD_BYTES + RUN_BYTES + 8 + 3


def test_the_bytes_of_a_table() -> None:
    place = Place(OrderKey(RingId(8, 1), 5, RingId(0, 0)), 2)
    part = Part(frozenset((2, 1)), {3: {"h": Entry(), "g": Entry(True, ProcessId(1, 1, 7), place)}})
    assert pack_part(part) == (
        b'{"together":[1,2],"processes":{"3":{"g":[true,[1,1,7],[[[8,1],5,[0,0]],2]],"h":[false,null,null]}}}'
    )


def test_the_bytes_before_a_piece_of_state() -> None:
    place = Place(OrderKey(RingId(4, 5), 6, RingId(7, 8)), 9)
    assert pack_transfer(ProcessId(1, 2, 3), place).hex(" ", -4) == (
        "00000001 00000000 00000002 00000003 00000000 00000004 00000005 "
        "00000000 00000006 00000000 00000007 00000008 00000009"
    )


@given(parts)
def test_a_part_of_the_table_comes_out_as_it_went_in(part: Part) -> None:
    assert unpack_part(memoryview(pack_part(part))) == part


@given(process_ids, places, st.binary(max_size=20))
def test_whom_state_is_for_comes_out_as_it_went_in(joiner: ProcessId, place: Place, content: bytes) -> None:
    data = pack_transfer(joiner, place) + content
    assert unpack_transfer(data) == (joiner, place, content)
    with pytest.raises(CodecError):
        unpack_transfer(data[: len(pack_transfer(joiner, place)) - 1])


@given(st.lists(names, max_size=8).map(tuple))
def test_names_come_out_as_they_went_in(groups: tuple[str, ...]) -> None:
    assert unpack_names(pack_names(groups)) == groups


@given(st.binary(max_size=20))
def test_any_names_are_read_or_refused(data: bytes) -> None:
    with suppress(CodecError):
        assert pack_names(unpack_names(data)) == data


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )
)
def test_any_table_is_read_or_refused(read: object) -> None:
    for document in (
        read,
        {"together": [1], "processes": read},
        {"together": read, "processes": {"1": read}},
    ):
        with suppress(CodecError):
            unpack_part(json.dumps(document).encode())
