"""Many messages in one body: what goes in comes out, forged bodies are refused, and none costs memory."""

from __future__ import annotations

import tracemalloc
from struct import pack as write

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import CodecError
from totempole.groups import Batch, pack, packing
from totempole.groups.packing import (
    LAYOUTS_MAX,
    MESSAGES_MAX,
    OVERHEAD_MAX,
    layout_of,
    pack_joined,
    packed_bytes,
)

UNIFORM, VARIED = 1, 2

payloads = st.lists(st.binary(max_size=40), min_size=1, max_size=50)
alike = st.integers(0, 40).flatmap(
    lambda length: st.lists(st.binary(min_size=length, max_size=length), min_size=1, max_size=50)
)


def uniform(count: int, length: int, data: bytes = b"") -> bytes:
    return write(">BII", UNIFORM, count, length) + data


def varied(count: int, lengths: list[int], data: bytes = b"") -> bytes:
    return write(f">BI{len(lengths)}I", VARIED, count, *lengths) + data


@given(payloads | alike)
def test_what_goes_in_comes_out(messages: list[bytes]) -> None:
    batch = Batch(pack(messages))
    assert [bytes(view) for view in batch.views()] == messages
    assert list(batch) == messages
    assert len(batch) == len(messages)
    assert batch.size == sum(map(len, messages))
    assert [batch[place] for place in range(len(messages))] == messages
    assert batch[-1] == messages[-1]
    assert batch[1:] == messages[1:]
    assert batch[::-2] == messages[::-2]


@given(payloads | alike)
def test_a_batch_is_a_sequence(messages: list[bytes]) -> None:
    batch = Batch(pack(messages))
    assert list(reversed(batch)) == messages[::-1]
    assert messages[0] in batch
    for outside in (len(messages), -len(messages) - 1):
        with pytest.raises(IndexError):
            batch[outside]


@given(payloads | alike)
def test_no_body_is_longer_than_foretold(messages: list[bytes]) -> None:
    assert len(pack(messages)) <= packed_bytes(len(messages), sum(map(len, messages)))


@given(st.binary(max_size=300))
def test_one_message_costs_the_overhead(message: bytes) -> None:
    assert len(pack([message])) == OVERHEAD_MAX + len(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_refused(body: bytes) -> None:
    reasons = set()
    try:
        batch = Batch(body)
    except CodecError as error:
        reasons.add(error.reason)
    else:
        assert sum(map(len, batch)) == batch.size <= len(body)
    assert reasons <= {"batch truncated", "batch malformed"}


@given(payloads | alike, st.data())
def test_a_damaged_body_is_a_batch_or_refused(messages: list[bytes], data: st.DataObject) -> None:
    body = bytearray(pack(messages))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, min(len(body) - 1, 40)))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for forged in (bytes(body), cut, bytes(body) + b"x"):
        try:
            found = list(Batch(forged))
        except CodecError:
            with pytest.raises(CodecError):
                layout_of(forged)
            continue
        assert sum(map(len, found)) <= len(forged)
        layout = layout_of(memoryview(forged))
        assert (layout.count, bytes(layout.contents)) == (len(found), b"".join(found))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01" * (OVERHEAD_MAX - 1),
        uniform(0, 0),
        uniform(0, 5),
        uniform(1, 5, b"four"),
        uniform(1, 5, b"sixsix"),
        uniform(2**32 - 1, 0),
        uniform(2**32 - 1, 2**32 - 1),
        uniform(MESSAGES_MAX + 1, 0),
        uniform(1, 2**32 - 1),
        varied(0, [0]),
        varied(2, [0]),
        varied(2, [1, 2**32 - 1], b"x"),
        varied(MESSAGES_MAX + 1, [0] * 10),
        varied(2**32 - 1, [0] * 10),
        b"\x00" + pack([b"a"])[1:],
        b"\x03" + pack([b"a"])[1:],
        b"\xff" * 20,
    ],
)
def test_forged_bodies_are_refused_without_a_cost(body: bytes) -> None:
    tracemalloc.start()
    try:
        for refuse in (Batch, layout_of):
            with pytest.raises(CodecError):
                refuse(body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_most_messages_that_there_may_be() -> None:
    empty = Batch(pack([b""] * MESSAGES_MAX))
    assert len(empty) == MESSAGES_MAX
    assert list(empty) == [b""] * MESSAGES_MAX


def test_the_body_of_two_kinds_of_length() -> None:
    assert pack([b"ab", b"cd"]) == uniform(2, 2, b"abcd")
    assert pack([b"ab", b"c"]) == varied(2, [2, 1], b"abc")


def test_remembered_layouts_take_little_memory() -> None:
    """A layout of 60,000 short messages is some megabytes, and a busy ring has one for each count."""
    packing._uniform.cache_clear()
    tracemalloc.start()
    try:
        for count in range(MESSAGES_MAX - 40, MESSAGES_MAX):
            assert sum(map(len, Batch(uniform(count, 0)))) == 0
        kept = tracemalloc.get_traced_memory()[0] * LAYOUTS_MAX / 40
    finally:
        tracemalloc.stop()
        packing._uniform.cache_clear()
    assert kept < 64_000_000, f"{kept / 1e6:.0f} MB when {LAYOUTS_MAX} of them are remembered"


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=20))
def test_messages_that_are_back_to_back_already(messages: list[bytes]) -> None:
    lengths = list(map(len, messages))
    packed = b"".join(length.to_bytes(4, "big") for length in lengths) if len(set(lengths)) > 1 else None
    joined = b"".join(messages)
    for contents in ([joined], [memoryview(joined)[:3], joined[3:]]):
        assert pack_joined(len(messages), lengths[0], packed, contents) == pack(messages)
    assert list(Batch(pack(messages)).lengths) == lengths
