"""Each assertion of `segment` fails when what it says is broken."""

from __future__ import annotations

from itertools import pairwise
from struct import Struct

import pytest

from invariants_seen import Breakage, assertions_in, failed_at
from totempole.segment import Cutter, Reassembler, cutter, reassembler
from totempole.segment.header import PACKET_TOTAL_MAX, SEGMENT, PacketName, data_name
from totempole.segment.reassembler import COMPLETED_MAX, RANGES_MAX, _Partial
from totempole.types import RingId

RING = RingId(4, 1)
ROOM = 100
DATA = bytes(10 * ROOM)


def name(seq: int = 1) -> PacketName:
    return data_name(RING, seq)


def a_cutter() -> Cutter:
    return Cutter(SEGMENT.size + ROOM, 1, 1)


def datagrams(seq: int = 1) -> tuple[bytes, ...]:
    return a_cutter().cut(DATA, name(seq))[0].datagrams


def a_reassembler(*pieces: int, bytes_max: int = 1_000_000) -> Reassembler:
    """With these pieces of packet 1, and the first one of packet 2."""
    taken = Reassembler(bytes_max)
    for piece in pieces:
        taken.receive(datagrams()[piece])
    taken.receive(datagrams(2)[0])
    return taken


def a_partial(*ranges: tuple[int, int]) -> _Partial:
    partial = _Partial(1_000)
    partial._lay_out()
    partial._ranges = list(ranges)
    return partial


# Cutter


def a_counter_below_zero(patch: pytest.MonkeyPatch) -> None:
    sender = a_cutter()
    sender._counter = -1
    sender.cut(DATA)


def segments_with_half_a_header(patch: pytest.MonkeyPatch) -> None:
    cutter._lay_out(b"half", memoryview(DATA), 0, ROOM)


def segments_without_room(patch: pytest.MonkeyPatch) -> None:
    sender = a_cutter()
    sender.segment_bytes = SEGMENT.size - 1
    sender.cut(DATA, name())


def an_offset_past_the_longest_packet(patch: pytest.MonkeyPatch) -> None:
    cutter.offsets(0, 2, PACKET_TOTAL_MAX)


def a_range_past_its_packet(patch: pytest.MonkeyPatch) -> None:
    cutter._range_burst(b"", DATA, 0, len(DATA) + 1, ROOM)


# A partial packet


def a_packet_of_no_bytes(patch: pytest.MonkeyPatch) -> None:
    _Partial(0)


def a_run_past_its_packet(patch: pytest.MonkeyPatch) -> None:
    _Partial(3).add(0, (b"four",), 4)


def a_whole_packet_that_goes_on(patch: pytest.MonkeyPatch) -> None:
    partial = _Partial(4)
    partial.add(0, (b"four",), 4)
    partial.add(0, (b"four",), 4)


def a_piece_placed_before_there_is_a_buffer(patch: pytest.MonkeyPatch) -> None:
    _Partial(4)._place(1, b"x")


def merged_ranges_that_overlap_what_is_before(patch: pytest.MonkeyPatch) -> None:
    a_partial((0, 300), (200, 400), (500, 600))._insert(350, 450)


def ranges_out_of_order(patch: pytest.MonkeyPatch) -> None:
    a_partial((500, 600), (0, 100)).holes()


# Reassembler


def a_partial_packet_that_lacks_nothing(patch: pytest.MonkeyPatch) -> None:
    taken = a_reassembler(1)
    taken._partials[name()]._lay_out()
    taken._partials[name()]._ranges = [(0, len(DATA))]
    taken.holes(RING, 1)


def a_finished_packet_that_is_too_short(patch: pytest.MonkeyPatch) -> None:
    taken = a_reassembler(0, 1)
    taken._partials[name()]._runs[0].stop = len(DATA) - ROOM
    taken.receive(datagrams()[-1])


def bytes_of_nobody(patch: pytest.MonkeyPatch) -> None:
    taken = Reassembler(len(DATA))
    taken._bytes = 1
    taken.receive(datagrams()[0])


def an_evicted_packet_larger_than_all(patch: pytest.MonkeyPatch) -> None:
    taken = a_reassembler(0, bytes_max=2 * len(DATA))
    taken._partials[name()].total *= 3
    taken.receive(datagrams(3)[0])


def bytes_below_zero(patch: pytest.MonkeyPatch) -> None:
    taken = a_reassembler(0)
    taken._bytes = -1
    taken.receive(datagrams(3)[0])


def a_dropped_packet_that_keeps_bytes(patch: pytest.MonkeyPatch) -> None:
    taken = a_reassembler()
    taken._partials[name(2)].total -= 1
    taken.forget(name(2))


def too_many_finished_packets(patch: pytest.MonkeyPatch) -> None:
    taken = Reassembler(1)
    taken._completed.update(dict.fromkeys(map(name, range(COMPLETED_MAX + 1))))
    taken._finish(name(-1))


def a_layout_with_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reassembler, "Struct", lambda layout: Struct("x" + layout))
    reassembler._parts.__wrapped__(2 * (SEGMENT.size + ROOM), SEGMENT.size + ROOM)


def a_hole_that_no_range_covers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reassembler, "pairwise", lambda items: pairwise(items[:-1]))
    reassembler._merge_nearest([(at, at + 1) for at in range(0, 10 * RANGES_MAX, 2)])


BREAKAGES: tuple[Breakage, ...] = (
    a_counter_below_zero,
    segments_with_half_a_header,
    segments_without_room,
    an_offset_past_the_longest_packet,
    a_range_past_its_packet,
    a_packet_of_no_bytes,
    a_run_past_its_packet,
    a_whole_packet_that_goes_on,
    a_piece_placed_before_there_is_a_buffer,
    merged_ranges_that_overlap_what_is_before,
    ranges_out_of_order,
    a_partial_packet_that_lacks_nothing,
    a_finished_packet_that_is_too_short,
    bytes_of_nobody,
    an_evicted_packet_larger_than_all,
    bytes_below_zero,
    a_dropped_packet_that_keeps_bytes,
    too_many_finished_packets,
    a_layout_with_gaps,
    a_hole_that_no_range_covers,
)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_what_is_broken_is_noticed(breakage: Breakage) -> None:
    assert failed_at(breakage) in assertions_in("segment")


def test_every_assertion_was_seen_to_fail() -> None:
    assert {failed_at(breakage) for breakage in BREAKAGES} == assertions_in("segment")
