"""Cuts encoded packets into datagrams, whole or only the ranges that someone misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from totempole.errors import ConfigurationError
from totempole.segment.header import (
    MAGIC,
    OFFSET_BYTES,
    PACKET_TOTAL_MAX,
    SEGMENT,
    VERSION,
    NameKind,
    PacketName,
    data_name,
)
from totempole.types import ByteRange, ProcessorId
from totempole.wire.packets import Packet, RegularMessage

_OTHER = int(NameKind.OTHER)


class Cutter:
    """One sender's cutter: it names the packets that the ring does not name, by counting them."""

    __slots__ = ("_counter", "_incarnation", "_segment_bytes", "_sender")

    def __init__(self, segment_bytes: int, sender: ProcessorId, incarnation: int) -> None:
        if segment_bytes <= SEGMENT.size:
            raise ConfigurationError(
                f"segment_bytes = {segment_bytes}: give more than the segment header's {SEGMENT.size}"
            )
        self._segment_bytes = segment_bytes
        self._sender = sender
        self._incarnation = incarnation
        self._counter = 0

    def cut_packet(self, packet: Packet, data: bytes) -> tuple[bytes, ...]:
        """The whole of a packet, whose encoding is `data`."""
        return cut(self._name(packet), data, self._segment_bytes)

    def cut_ranges(
        self, packet: RegularMessage, data: bytes, ranges: Sequence[ByteRange]
    ) -> tuple[bytes, ...]:
        """What a request asks for: these ranges of the packet, or all of it if there are none."""
        return cut(data_name(packet.ring_id, packet.seq), data, self._segment_bytes, ranges)

    def _name(self, packet: Packet) -> PacketName:
        if isinstance(packet, RegularMessage):
            return data_name(packet.ring_id, packet.seq)
        self._counter += 1
        return PacketName(_OTHER, self._incarnation, self._sender, self._counter)


def cut(
    name: PacketName, data: bytes, segment_bytes: int, ranges: Sequence[ByteRange] = ()
) -> tuple[bytes, ...]:
    """Datagrams of at most `segment_bytes` that carry `data`, or of it the given ranges only."""
    total = len(data)
    if not 0 < total <= PACKET_TOTAL_MAX:
        raise ConfigurationError(
            f"a packet of {total} bytes: it has at least 1 and at most {PACKET_TOTAL_MAX}"
        )
    room = segment_bytes - SEGMENT.size
    if total <= room and not ranges:
        return (SEGMENT.pack(MAGIC, VERSION, *name, total, 0) + data,)
    spans = _clean(ranges, total) if ranges else [(0, total)]
    prefix = SEGMENT.pack(MAGIC, VERSION, *name, total, 0)[:-OFFSET_BYTES]
    return tuple(
        [
            prefix + offset.to_bytes(OFFSET_BYTES, "big") + data[offset : min(offset + room, stop)]
            for start, stop in spans
            for offset in range(start, stop, room)
        ]
    )


def _clean(ranges: Sequence[ByteRange], total: int) -> Iterator[ByteRange]:
    """Ascending, clamped and without overlap: a forged request must not have one byte sent twice."""
    done = 0
    for start, stop in sorted(ranges):
        start, stop = max(start, done), min(stop, total)
        if start < stop:
            yield start, stop
            done = stop
