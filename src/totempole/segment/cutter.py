"""Cuts encoded packets into datagrams, whole or only the ranges that someone misses.

A burst is laid out by one join, not datagram by datagram: a packet of 60 KB is 44 of them, and copying each
on its own would cost more than sending all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from totempole.errors import ConfigurationError
from totempole.segment.burst import Burst
from totempole.segment.header import (
    CLUSTER_DEFAULT,
    MAGIC,
    OFFSET_BYTES,
    PACKET_TOTAL_MAX,
    SEGMENT,
    VERSION,
    NameKind,
    PacketName,
)
from totempole.types import ByteRange, ProcessorId

_new = tuple.__new__
"""Makes a named tuple at a third of the cost of calling its class."""
_OTHER = int(NameKind.OTHER)
_HEADER_BYTES = SEGMENT.size
_PREFIX_BYTES = _HEADER_BYTES - OFFSET_BYTES
LAYOUTS_MAX = 512
"""Layouts of packet lengths that are remembered."""


class Cutter:
    """One sender's cutter: it names the packets that the ring does not name, by counting them."""

    __slots__ = ("_cluster_id", "_counter", "_incarnation", "_sender", "segment_bytes")

    def __init__(
        self,
        segment_bytes: int,
        sender: ProcessorId,
        incarnation: int,
        cluster_id: int = CLUSTER_DEFAULT,
    ) -> None:
        if segment_bytes <= SEGMENT.size:
            raise ConfigurationError(
                f"segment_bytes = {segment_bytes}: give more than the segment header's {SEGMENT.size}"
            )
        self.segment_bytes = segment_bytes
        self._cluster_id = cluster_id
        self._sender = sender
        self._incarnation = incarnation
        self._counter = 0

    def cut(
        self, data: bytes, name: PacketName | None = None, ranges: Sequence[ByteRange] = ()
    ) -> tuple[Burst, ...]:
        """The whole of an encoded packet, or these ranges of it. A packet without a name gets one."""
        return cut(name or self.next_name(), data, self.segment_bytes, ranges, self._cluster_id)

    def next_name(self) -> PacketName:
        """For a packet that the ring does not name."""
        self._counter += 1
        assert self._counter > 0, "the counter only grows"
        name: PacketName = _new(PacketName, (_OTHER, self._incarnation, self._sender, self._counter))
        return name


def cut(
    name: PacketName,
    data: bytes,
    segment_bytes: int,
    ranges: Sequence[ByteRange] = (),
    cluster_id: int = CLUSTER_DEFAULT,
) -> tuple[Burst, ...]:
    """Datagrams of at most `segment_bytes` that carry `data`, or of it the given ranges only."""
    total = len(data)
    if not 0 < total <= PACKET_TOTAL_MAX:
        raise ConfigurationError(
            f"a packet of {total} bytes: it has at least 1 and at most {PACKET_TOTAL_MAX}"
        )
    room = segment_bytes - SEGMENT.size
    kind, ring_seq, processor, number = name
    header = SEGMENT.pack(MAGIC, VERSION, kind, cluster_id, ring_seq, processor, number, total, 0)
    if ranges:
        prefix = header[:-OFFSET_BYTES]
        spans = _clean(ranges, total)
        return tuple([_range_burst(prefix, data, start, stop, room) for start, stop in spans])
    if total <= room:
        return (_new(Burst, (header + data, segment_bytes)),)
    return (Burst(_lay_out(header[:-OFFSET_BYTES], memoryview(data), 0, room), segment_bytes),)


def _lay_out(prefix: bytes, view: memoryview, first: int, room: int) -> bytes:
    """Segments back to back, of the bytes from `first` on. Each byte is copied once: copies are what bursts
    cost."""
    assert len(prefix) == _PREFIX_BYTES, "each segment has its header"
    chunks = [view[start : start + room] for start in range(first, len(view), room)]
    parts: list[bytes | memoryview] = [prefix] * (3 * len(chunks))
    parts[1::3] = offsets(first, len(chunks), room)
    parts[2::3] = chunks
    return b"".join(parts)


@lru_cache(LAYOUTS_MAX)
def offsets(first: int, count: int, room: int) -> tuple[bytes, ...]:
    """The offsets of neighbouring segments, as their headers write them."""
    assert room > 0, "a segment has room for more than its header"
    assert 0 <= first + (count - 1) * room < PACKET_TOTAL_MAX, "an offset lies within a packet"
    return tuple([(first + place * room).to_bytes(OFFSET_BYTES, "big") for place in range(count)])


def _range_burst(prefix: bytes, data: bytes, start: int, stop: int, room: int) -> Burst:
    assert 0 <= start < stop <= len(data), "a range lies within its packet"
    burst = _lay_out(prefix, memoryview(data)[:stop], start, room)
    return Burst(burst, room + SEGMENT.size)


def _clean(ranges: Sequence[ByteRange], total: int) -> Iterator[ByteRange]:
    """Ascending, clamped and without overlap: a forged request must not have one byte sent twice."""
    done = 0
    for start, stop in sorted(ranges):
        start, stop = max(start, done), min(stop, total)
        if start < stop:
            yield start, stop
            done = stop
