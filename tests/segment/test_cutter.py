"""Cutting: sizes, names, ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import SAMPLES, byte_ranges
from totempole.errors import ConfigurationError
from totempole.segment import Cutter, PacketName
from totempole.segment.cutter import cut as cut_bursts
from totempole.segment.header import (
    MAGIC,
    OFFSET_BYTES,
    PACKET_TOTAL_MAX,
    SEGMENT,
    VERSION,
    NameKind,
    data_name,
)

MESSAGE = SAMPLES["message"]
NAME = data_name(MESSAGE.ring_id, MESSAGE.seq)
NAME = PacketName(NameKind.DATA, 4, 1, 9)


def parse(segment: bytes) -> tuple[PacketName, int, int, bytes]:
    magic, version, kind, _, ring_seq, processor, number, total, offset = SEGMENT.unpack_from(segment)
    assert (magic, version) == (MAGIC, VERSION)
    return PacketName(kind, ring_seq, processor, number), total, offset, segment[SEGMENT.size :]


def cut(*arguments) -> list[bytes]:
    return datagrams(cut_bursts(*arguments))


def datagrams(bursts) -> list[bytes]:
    return [datagram for burst in bursts for datagram in burst.datagrams]


def pattern(length: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(length))


def test_the_header_ends_with_the_offset():
    assert SEGMENT.pack(MAGIC, VERSION, 1, 1, *NAME[1:], 10, 5)[-OFFSET_BYTES:] == (5).to_bytes(
        OFFSET_BYTES, "big"
    )


@given(st.integers(1, 5_000), st.integers(SEGMENT.size + 1, 1_500))
def test_segments_fit_and_cover_the_packet_once(length, segment_bytes):
    data = pattern(length)
    segments = cut(NAME, data, segment_bytes)
    assert all(len(segment) == segment_bytes for segment in segments[:-1])
    assert len(segments[-1]) <= segment_bytes
    expected = 0
    for segment in segments:
        name, total, offset, piece = parse(segment)
        assert (name, total, offset) == (NAME, length, expected)
        expected += len(piece)
    assert b"".join(parse(segment)[3] for segment in segments) == data


@pytest.mark.parametrize(("length", "count"), [(100, 1), (101, 2), (200, 2), (201, 3)])
def test_a_full_segment_is_not_split(length, count):
    assert len(cut(NAME, bytes(length), SEGMENT.size + 100)) == count


@given(
    st.integers(1, 2_000),
    st.integers(SEGMENT.size + 1, 600),
    st.lists(byte_ranges(limit=2_500), min_size=1, max_size=8),
)
def test_ranges_give_each_wanted_byte_once_and_no_other(length, segment_bytes, ranges):
    data = pattern(length)
    wanted = {at for start, stop in ranges for at in range(start, min(stop, length))}
    sent = []
    for segment in cut(NAME, data, segment_bytes, ranges):
        name, total, offset, piece = parse(segment)
        assert (name, total) == (NAME, length)
        assert len(segment) <= segment_bytes
        assert data[offset : offset + len(piece)] == piece
        sent += range(offset, offset + len(piece))
    assert sent == sorted(wanted)


def test_no_ranges_means_all_and_ranges_past_the_end_nothing():
    cutter = Cutter(200, sender=3, incarnation=5)
    data = pattern(1_000)
    assert cutter.cut(data, NAME, ()) == cutter.cut(data, NAME)
    assert cutter.cut(data, NAME, ((1_000, 2_000),)) == ()


def test_messages_are_named_by_the_ring_whoever_sends_them():
    names = {
        parse(segment)[0]
        for sender in (1, 2)
        for segment in datagrams(Cutter(128, sender, incarnation=8).cut(pattern(500), NAME))
    }
    assert names == {NAME}


def test_other_packets_are_named_by_sender_incarnation_and_counter():
    cutter = Cutter(128, sender=3, incarnation=5)
    names = [parse(cutter.cut(b"token")[0].data)[0] for _ in range(2)]
    assert names == [PacketName(NameKind.OTHER, 5, 3, 1), PacketName(NameKind.OTHER, 5, 3, 2)]


def test_all_segments_of_one_packet_share_its_name():
    segments = datagrams(Cutter(128, sender=3, incarnation=5).cut(pattern(500)))
    assert len({parse(segment)[0] for segment in segments}) == 1


def test_limits():
    with pytest.raises(ConfigurationError):
        Cutter(SEGMENT.size, sender=1, incarnation=1)
    assert cut(NAME, bytes(PACKET_TOTAL_MAX), 1_400)
    for length in (0, PACKET_TOTAL_MAX + 1):
        with pytest.raises(ConfigurationError):
            cut(NAME, bytes(length), 1_400)
