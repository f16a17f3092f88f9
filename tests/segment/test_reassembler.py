"""Reassembly: any order, duplication, overlap and loss; memory within its cap; junk refused."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import SAMPLES, byte_ranges
from totempole.errors import CodecError
from totempole.segment import Cutter, NotNeighbours, PacketName, Reassembler
from totempole.segment.cutter import cut as cut_bursts
from totempole.segment.header import (
    CLUSTER_DEFAULT,
    MAGIC,
    PACKET_TOTAL_MAX,
    SEGMENT,
    VERSION,
    NameKind,
    data_name,
)
from totempole.segment.reassembler import (
    COMPLETED_MAX,
    PARTIALS_MAX,
    PIECE_BYTES,
    PIECES_LEAST,
    RANGES_MAX,
    RUNS_MAX,
)
from totempole.srp.formats import ring_codec
from totempole.srp.packets import RegularMessage
from totempole.types import RingId, RingKind

RING = RingId(4, 1)
NAME = data_name(RING, 9)
ROOM = 100
SEGMENT_BYTES = SEGMENT.size + ROOM
MESSAGE: RegularMessage = SAMPLES["message"]._replace(ring_id=RING, seq=9)


def pattern(length: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(length))


def cut(*arguments) -> list[bytes]:
    return datagrams(cut_bursts(*arguments))


def datagrams(bursts) -> list[bytes]:
    return [datagram for burst in bursts for datagram in burst.datagrams]


def segment(total: int, offset: int, piece: bytes, name: PacketName = NAME) -> bytes:
    kind, *rest = name
    return SEGMENT.pack(MAGIC, VERSION, kind, CLUSTER_DEFAULT, *rest, total, offset) + piece


def feed(reassembler: Reassembler, segments) -> list[tuple[PacketName, bytes]]:
    return [done for done in map(reassembler.receive, segments) if done is not None]


def reason(reassembler: Reassembler, datagram: bytes) -> str:
    with pytest.raises(CodecError) as caught:
        reassembler.receive(datagram)
    return caught.value.reason


@given(st.integers(ROOM + 14, 3_000), st.data())
def test_any_order_with_duplicates_and_overlaps_gives_the_packet_once(length, data):
    packet = pattern(length)
    overlapping = data.draw(st.lists(byte_ranges(limit=length), max_size=4))
    segments = [
        *cut(NAME, packet, SEGMENT_BYTES),
        *(cut(NAME, packet, SEGMENT_BYTES + 13, overlapping) if overlapping else ()),
    ]
    segments += data.draw(st.lists(st.sampled_from(segments), max_size=10))
    reassembler = Reassembler(length)
    assert feed(reassembler, data.draw(st.permutations(segments))) == [(NAME, packet)]
    assert reassembler.evicted == 0


@given(st.integers(ROOM + 1, 6_000), st.data())
def test_holes_and_resent_ranges_repair_any_loss(length, data):
    packet = pattern(length)
    segments = cut(NAME, packet, SEGMENT_BYTES)
    arrived = data.draw(st.lists(st.sampled_from(segments), unique=True, max_size=len(segments) - 1))
    reassembler = Reassembler(length)
    assert feed(reassembler, arrived) == []
    holder = Cutter(data.draw(st.integers(64, 2_000)), sender=2, incarnation=1)
    resent = datagrams(holder.cut(packet, NAME, reassembler.holes(RING, 9)))
    done = feed(reassembler, data.draw(st.permutations(resent)))
    assert done[0] == (NAME, packet)


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_holes_are_exactly_what_is_missing(present):
    packet = pattern(ROOM * len(present))
    segments = cut(NAME, packet, SEGMENT_BYTES)
    here = {index for index, is_here in enumerate(present) if is_here}
    if len(here) == len(segments):
        here.pop()
    reassembler = Reassembler(len(packet))
    feed(reassembler, [segments[index] for index in sorted(here)])
    holes = reassembler.holes(RING, 9)
    missing = set(range(len(segments))) - here if here else set()
    named = {at // ROOM for start, stop in holes for at in range(start, stop)}
    assert missing <= named
    assert len(holes) <= RANGES_MAX
    assert all(before[1] < after[0] for before, after in pairwise(holes))
    if len(holes) < RANGES_MAX:
        assert named == missing


def test_too_many_holes_are_merged_where_the_least_is_sent_twice():
    total = 4_000
    reassembler = Reassembler(total)
    here = [(200 * hole + 100, 20 if hole in (3, 7) else 50) for hole in range(RANGES_MAX + 1)]
    for offset, length in here:
        reassembler.receive(segment(total, offset, bytes(length)))
    holes = reassembler.holes(RING, 9)
    assert len(holes) == RANGES_MAX
    stretches = [(offset, offset + length) for offset, length in here if length == 50]
    assert holes == tuple(
        zip((0, *(stop for _, stop in stretches)), (*(start for start, _ in stretches), total), strict=True)
    )


def test_a_single_segment_is_given_at_once_and_each_time():
    reassembler = Reassembler(0)
    (only,) = cut(NAME, b"packet", SEGMENT_BYTES)
    assert feed(reassembler, [only, only]) == [(NAME, b"packet")] * 2


def test_a_whole_packet_replaces_its_partial():
    packet = pattern(500)
    reassembler = Reassembler(500)
    pieces = cut(NAME, packet, SEGMENT_BYTES)
    reassembler.receive(pieces[0])
    assert feed(reassembler, cut(NAME, packet, 1_400)) == [(NAME, packet)]
    assert feed(reassembler, pieces) == []
    assert reassembler.holes(RING, 9) == ()
    other = data_name(RING, 10)
    assert feed(reassembler, cut(other, packet, SEGMENT_BYTES)) == [(other, packet)]
    assert reassembler.evicted == 0


def test_a_late_duplicate_opens_no_partial_until_the_ring_asks_again():
    packet = pattern(500)
    pieces = cut(NAME, packet, SEGMENT_BYTES)
    reassembler = Reassembler(500)
    assert feed(reassembler, pieces) == [(NAME, packet)]
    assert feed(reassembler, pieces) == []
    assert reassembler.holes(RING, 9) == ()
    assert feed(reassembler, pieces) == [(NAME, packet)]


def test_completed_names_are_bounded_and_the_oldest_goes_first():
    reassembler = Reassembler(1_000)
    for seq in range(COMPLETED_MAX + 1):
        assert feed(reassembler, cut(data_name(RING, seq), b"ab", SEGMENT.size + 1))
    assert feed(reassembler, cut(data_name(RING, 1), b"ab", SEGMENT.size + 1)) == []
    assert feed(reassembler, cut(data_name(RING, 0), b"ab", SEGMENT.size + 1)) != []


def test_memory_is_used_to_the_cap_and_the_oldest_partial_makes_room():
    reassembler = Reassembler(1_000)
    packets = {seq: pattern(500) for seq in range(3)}
    pieces = {seq: cut(data_name(RING, seq), packet, SEGMENT_BYTES) for seq, packet in packets.items()}
    reassembler.receive(pieces[0][0])
    reassembler.receive(pieces[1][0])
    assert reassembler.evicted == 0
    reassembler.receive(pieces[2][0])
    assert reassembler.evicted == 1
    assert reassembler.holes(RING, 0) == ()
    assert reassembler.holes(RING, 1) == reassembler.holes(RING, 2) == ((ROOM, 500),)
    assert feed(reassembler, pieces[1]) == [(data_name(RING, 1), packets[1])]
    reassembler.receive(pieces[0][0])
    assert reassembler.evicted == 1


def test_one_large_packet_evicts_several_small_ones():
    reassembler = Reassembler(1_000)
    for seq in range(5):
        reassembler.receive(segment(200, 0, b"x", data_name(RING, seq)))
    reassembler.receive(segment(401, 0, b"x", data_name(RING, 5)))
    assert reassembler.evicted == 3
    assert [bool(reassembler.holes(RING, seq)) for seq in range(6)] == [False] * 3 + [True] * 3


def test_what_can_never_fit_is_refused_and_evicts_nothing():
    reassembler = Reassembler(1_000)
    reassembler.receive(segment(1_000, 0, b"x"))
    assert reason(reassembler, segment(1_001, 0, b"x", data_name(RING, 10))) == "segment oversized"
    assert reassembler.evicted == 0
    assert reassembler.holes(RING, 9) == ((1, 1_000),)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(2, 400)), max_size=80))
def test_the_cap_is_never_exceeded(opened):
    reassembler = Reassembler(1_000)
    totals: dict[int, int] = {}
    for seq, total in opened:
        totals.setdefault(seq, total)
        if not reassembler.holes(RING, seq):
            totals[seq] = total
        reassembler.receive(segment(totals[seq], 0, b"x", data_name(RING, seq)))
        assert sum(total for seq, total in totals.items() if reassembler.holes(RING, seq)) <= 1_000


def test_partials_are_counted_too():
    reassembler = Reassembler(8_000_000)
    for seq in range(PARTIALS_MAX):
        reassembler.receive(segment(2, 0, b"x", data_name(RING, seq)))
    assert reassembler.evicted == 0
    reassembler.receive(segment(2, 0, b"x", data_name(RING, PARTIALS_MAX)))
    assert reassembler.evicted == 1
    assert reassembler.holes(RING, 0) == ()


@pytest.mark.parametrize("total", [200, 131_072])
def test_a_packet_in_crumbs_is_bounded_but_still_repairable(total):
    pieces_max = max(PIECES_LEAST, total // PIECE_BYTES)
    reassembler = Reassembler(total)
    packet = pattern(total)
    for index in range(pieces_max):
        reassembler.receive(segment(total, 2 * index, packet[2 * index : 2 * index + 1]))
    at = 2 * pieces_max
    assert reason(reassembler, segment(total, at, packet[at : at + 1])) == "segment pieces"
    done = feed(reassembler, cut(NAME, packet, SEGMENT_BYTES, reassembler.holes(RING, 9)))
    assert done == [(NAME, packet)]


def test_the_smallest_segments_of_the_largest_packet_may_lose_every_second_one():
    packet = pattern(PACKET_TOTAL_MAX)
    pieces = cut(NAME, packet, 128)
    reassembler = Reassembler(PACKET_TOTAL_MAX)
    assert feed(reassembler, pieces[::2]) == []
    assert feed(reassembler, pieces[1::2]) == [(NAME, packet)]


JUNK = {
    "segment truncated": [b"", b"TS", segment(5, 0, b""), segment(5, 0, b"x")[:-2]],
    "segment magic": [b"XX" + segment(5, 0, b"x")[2:]],
    "segment version": [b"TS\1" + segment(5, 0, b"x")[3:]],
    "cluster": cut(NAME, b"packet", SEGMENT_BYTES, (), 2),
    "segment malformed": [
        segment(5, 0, b"123456"),
        segment(5, 4, b"12"),
        segment(5, 2**32 - 1, b"1"),
        segment(0, 0, b"1"),
        segment(5, 0, b"1", PacketName(0, 1, 1, 1)),
        segment(5, 0, b"1", PacketName(3, 1, 1, 1)),
    ],
    "segment oversized": [segment(PACKET_TOTAL_MAX + 1, 0, b"1"), segment(2**32 - 1, 0, b"1")],
}


@pytest.mark.parametrize("expected", JUNK)
def test_junk_is_refused_with_its_reason(expected):
    reassembler = Reassembler(8_000_000)
    for datagram in JUNK[expected]:
        assert reason(reassembler, datagram) == expected


@given(
    st.lists(st.binary(max_size=80), max_size=20), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))
)
def test_junk_raises_nothing_but_codec_error(junk, claims):
    reassembler = Reassembler(100)
    datagrams = [*junk, *(b"TS\2" + datagram for datagram in junk)]
    datagrams += [segment(total, offset, b"abc") for total, offset in claims]
    for datagram in datagrams:
        with suppress(CodecError):
            reassembler.receive(datagram)


@given(st.data())
def test_segments_of_two_clusters_never_make_one_packet(data):
    """The same ring, the same seq, the same length, on one port."""
    ours, theirs = pattern(1_000), pattern(1_001)[1:]
    mixed = [(0, piece) for piece in cut(NAME, ours, SEGMENT_BYTES, (), 7)]
    mixed += [(1, piece) for piece in cut(NAME, theirs, SEGMENT_BYTES, (), 8)]
    order = data.draw(st.permutations(mixed))
    for cluster, packet in ((7, ours), (8, theirs)):
        reassembler = Reassembler(8_000, cluster)
        arrived = []
        for _, piece in order:
            with suppress(CodecError):
                arrived.append(reassembler.receive(piece))
        assert [done for done in arrived if done] == [(NAME, packet)]


def test_a_burst_of_another_cluster_is_not_taken():
    (burst,) = cut_bursts(NAME, pattern(1_000), SEGMENT_BYTES, (), 8)
    with pytest.raises(NotNeighbours):
        Reassembler(8_000, 7).receive_burst(burst.data, SEGMENT_BYTES)


def test_a_forged_total_conflicts_and_both_are_dropped_until_the_true_ones_come_again():
    packet = pattern(500)
    pieces = cut(NAME, packet, SEGMENT_BYTES)
    reassembler = Reassembler(8_000)
    reassembler.receive(pieces[0])
    assert reason(reassembler, segment(501, 100, b"forged")) == "segment conflict"
    assert feed(reassembler, pieces[1:]) == []
    assert feed(reassembler, pieces[:1]) == [(NAME, packet)]


def test_a_packet_that_the_codec_refuses_is_forgotten_and_comes_again():
    codec = ring_codec(1, RingKind.CLASSIC)
    message = MESSAGE._replace(contents=pattern(400))
    pieces = cut(NAME, codec.encode(message), SEGMENT_BYTES)
    damaged = pieces[0][:-1] + bytes([pieces[0][-1] ^ 1])
    reassembler = Reassembler(8_000)
    ((name, data),) = feed(reassembler, [damaged, *pieces[1:]])
    with pytest.raises(CodecError):
        codec.decode(data)
    reassembler.forget(name)
    ((_, data),) = feed(reassembler, pieces)
    assert codec.decode(data) == message


def test_forget_drops_a_partial_and_its_memory():
    reassembler = Reassembler(500)
    reassembler.receive(segment(500, 0, b"x"))
    reassembler.forget(NAME)
    reassembler.forget(NAME)
    assert reassembler.holes(RING, 9) == ()
    reassembler.receive(segment(500, 0, b"x", data_name(RING, 10)))
    assert reassembler.evicted == 0


def test_forget_ring_drops_the_partials_of_that_ring_only():
    others = [
        data_name(RingId(4, 2), 9),
        data_name(RingId(5, 1), 9),
        PacketName(NameKind.OTHER, RING.seq, RING.representative, 9),
    ]
    reassembler = Reassembler(8_000)
    for name in (NAME, data_name(RING, 10), *others):
        reassembler.receive(segment(2, 0, b"a", name))
    reassembler.forget_ring(RING)
    assert reassembler.holes(RING, 9) == reassembler.holes(RING, 10) == ()
    for name in others:
        assert reassembler.receive(segment(2, 1, b"b", name)) == (name, b"ab")
    assert reassembler.receive(segment(2, 1, b"b")) is None


def test_other_packets_reassemble_too():
    cutter = Cutter(SEGMENT_BYTES, sender=3, incarnation=5)
    packet = pattern(1_000)
    for number in (1, 2):
        done = feed(Reassembler(1_000), datagrams(cutter.cut(packet)))
        assert done == [(PacketName(NameKind.OTHER, 5, 3, number), packet)]


@given(st.integers(ROOM + 1, 5_000))
def test_a_whole_burst_is_its_packet(length):
    packet = pattern(length)
    (burst,) = cut_bursts(NAME, packet, SEGMENT_BYTES)
    reassembler = Reassembler(length)
    assert reassembler.receive_burst(*burst) == (NAME, packet)
    assert reassembler.receive_burst(*burst) is None  # its datagrams are all known by now
    assert feed(reassembler, burst.datagrams) == []


def take(reassembler: Reassembler, pieces: list[bytes]):
    """As a read gives them: one datagram, or several as a burst."""
    if len(pieces) == 1:
        return reassembler.receive(pieces[0])
    return reassembler.receive_burst(b"".join(pieces), SEGMENT_BYTES)


@given(st.integers(2 * ROOM, 5_000), st.data())
def test_a_packet_comes_in_several_bursts_in_any_order(length, data):
    packet = pattern(length)
    pieces = cut(NAME, packet, SEGMENT_BYTES)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(pieces) - 1), min_size=1, max_size=4)))
    bursts = [pieces[start:stop] for start, stop in pairwise([0, *cuts, len(pieces)])]
    order = data.draw(st.permutations(bursts))
    reassembler = Reassembler(length)
    given = [take(reassembler, burst) for burst in order]
    assert given == [None] * (len(bursts) - 1) + [(NAME, packet)]
    assert reassembler.holes(RING, 9) == ()


@given(st.integers(3 * ROOM, 2_000), st.data())
def test_what_is_missing_of_bursts_is_known(length, data):
    packet = pattern(length)
    pieces = cut(NAME, packet, SEGMENT_BYTES)
    lost = data.draw(st.integers(0, len(pieces) - 1))
    reassembler = Reassembler(length)
    for burst in (pieces[:lost], pieces[lost + 1 :]):
        if burst:
            assert take(reassembler, burst) is None
    assert reassembler.holes(RING, 9) == ((lost * ROOM, min((lost + 1) * ROOM, length)),)
    assert reassembler.receive(pieces[lost]) == (NAME, packet)


@given(st.integers(4 * ROOM, 2_000), st.data())
def test_a_burst_that_is_no_run_of_one_packet_is_taken_apart(length, data):
    pieces = cut(NAME, pattern(length), SEGMENT_BYTES)
    other = cut(data_name(RING, 10), pattern(length), SEGMENT_BYTES)
    at = data.draw(st.integers(1, len(pieces) - 3))
    broken = {
        "lost": pieces[:at] + pieces[at + 1 :],
        "swapped": [*pieces[:at], *reversed(pieces[at : at + 2]), *pieces[at + 2 :]],
        "mixed": [*pieces[:at], other[at], *pieces[at + 1 :]],
        "repeated": [*pieces[:at], pieces[at + 1], *pieces[at + 1 :]],
    }[data.draw(st.sampled_from(["lost", "swapped", "mixed", "repeated"]))]
    with pytest.raises(NotNeighbours):
        Reassembler(length).receive_burst(b"".join(broken), SEGMENT_BYTES)


@given(st.binary(max_size=400), st.integers(1, 200))
def test_a_burst_of_junk_is_no_packet(junk, segment_bytes):
    with pytest.raises(NotNeighbours):
        Reassembler(1_000).receive_burst(junk, segment_bytes)


def test_a_burst_joins_what_has_arrived_in_part():
    packet = pattern(1_000)
    (burst,) = cut_bursts(NAME, packet, SEGMENT_BYTES)
    reassembler = Reassembler(1_000)
    reassembler.receive(burst.datagrams[3])
    assert reassembler.receive_burst(*burst) == (NAME, packet)


def test_stripes_of_a_packet_are_put_together_in_whatever_order_they_come() -> None:
    """Each in order, as networks bring them; what is missing is known all the while."""
    data = pattern(40 * ROOM)
    segments = cut(NAME, data, SEGMENT_BYTES)
    reassembler = Reassembler(1_000_000)
    for place, (left, right) in enumerate(zip(segments[:20], segments[20:], strict=True)):
        assert reassembler.receive(right) is None
        holes = [(place * ROOM, 20 * ROOM), ((21 + place) * ROOM, 40 * ROOM)]
        assert list(reassembler.holes(RING, 9)) == [hole for hole in holes if hole[0] < hole[1]]
        done = reassembler.receive(left)
    assert done == (NAME, data)


@pytest.mark.parametrize("runs", [RUNS_MAX, RUNS_MAX + 1])
def test_a_packet_in_many_runs_is_put_together(runs: int) -> None:
    data = pattern(2 * runs * ROOM)
    segments = cut(NAME, data, SEGMENT_BYTES)
    reassembler = Reassembler(1_000_000)
    assert feed(reassembler, segments[::-2]) == []
    assert feed(reassembler, segments[::2]) == [(NAME, data)]
