"""Puts packets together from their segments, in any order, within a memory cap.

What is still missing of a packet is known by `holes`, for the token's rtr list: at 20 % loss a burst of 44
segments almost never arrives whole, and asking for all of it again would never end.

Overlapping segments are welcome, as ranges are resent by holders that cut elsewhere. Where two differ, the
last one stands; the codec's check, or the seal, judges the whole, and the caller forgets what it refuses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from struct import Struct

from totempole.errors import CodecError
from totempole.segment.cutter import LAYOUTS_MAX, offsets
from totempole.segment.header import (
    CLUSTER_DEFAULT,
    MAGIC,
    OFFSET_BYTES,
    PACKET_TOTAL_MAX,
    SEGMENT,
    VERSION,
    NameKind,
    PacketName,
    data_name,
)
from totempole.types import ByteRange, Payload, RingId

COMPLETED_MAX = 1024
"""Names of finished packets that are remembered; the oldest is forgotten first."""

PARTIALS_MAX = 4096
"""Partial packets, however short they claim to be; beyond it the oldest is evicted."""

PIECES_LEAST = 64
PIECE_BYTES = 64
"""A partial packet is in at most one piece per PIECE_BYTES, or PIECES_LEAST if that is more. Every second
one of the smallest segments stays far below; a forger's single bytes must not cost more than the packet."""

RUNS_MAX = 16
"""Runs of a packet that are kept as they came: more than a packet has stripes."""

SEGMENTS_MAX = 1024
"""Segments of a packet whose bursts are taken in one go. It bounds what is remembered of layouts, which
strangers may choose."""

RANGES_MAX = 16
"""Ranges that name the holes of one packet."""

_HEADER_BYTES = SEGMENT.size
_KINDS = frozenset(map(int, NameKind))
_DATA = int(NameKind.DATA)
_start_of, _stop_of = itemgetter(0), itemgetter(1)


class NotNeighbours(Exception):
    """A burst that is not a run of one packet's segments."""


class _Run:
    """Neighbours that have come, one by one as they came."""

    __slots__ = ("pieces", "start", "stop")

    def __init__(self, start: int, stop: int, pieces: Sequence[Payload]) -> None:
        self.start = start
        self.stop = stop
        self.pieces = [*pieces]


class _Partial:
    """A packet of which something has arrived.

    As long as its pieces fit beside each other they are only kept, in runs, to be joined at the end: on a
    quiet network there is one run, and where a packet comes on several networks one for each. From the first
    piece that overlaps another, or that makes too many runs, all are copied to their places, and `ranges`
    says what is here.
    """

    __slots__ = ("_buffer", "_pieces", "_pieces_max", "_ranges", "_runs", "total")

    def __init__(self, total: int) -> None:
        assert total > 0, "a packet has at least a byte"
        self.total = total
        self._runs: list[_Run] = []
        """By where they start. There is a hole between each and the next."""
        self._pieces = 0
        self._pieces_max = max(PIECES_LEAST, total // PIECE_BYTES)
        self._buffer: bytearray | None = None
        self._ranges: list[ByteRange] = []

    def add(self, start: int, pieces: Sequence[Payload], length: int) -> bool:
        """Takes neighbours in, `length` bytes together; true when nothing is missing any more."""
        if self._buffer is None:
            stop = start + length
            assert stop <= self.total, "a run ends within its packet"
            if self._keep(start, stop, pieces):
                first = self._runs[0]
                return first.stop - first.start == self.total
            self._lay_out()
        return self._place(start, b"".join(pieces))

    def _keep(self, start: int, stop: int, pieces: Sequence[Payload]) -> bool:
        """Whether there is room for them between the runs."""
        if self._pieces + len(pieces) > self._pieces_max:
            return False
        runs = self._runs
        place = len(runs)
        while place and runs[place - 1].start > start:
            place -= 1
        after = runs[place] if place < len(runs) else None
        if after is not None and stop > after.start:
            return False
        if place and runs[place - 1].stop >= start:
            run = runs[place - 1]
            if run.stop > start:
                return False
            run.pieces += pieces
            run.stop = stop
        elif len(runs) < RUNS_MAX:
            run = _Run(start, stop, pieces)
            runs.insert(place, run)
        else:
            return False
        self._pieces += len(pieces)
        if after is not None and after.start == stop:
            run.pieces += after.pieces
            run.stop = after.stop
            runs.remove(after)
        return True

    @property
    def data(self) -> bytes:
        """The packet, when all of it is here."""
        return b"".join(self._runs[0].pieces) if self._buffer is None else bytes(self._buffer)

    def _lay_out(self) -> None:
        ranges = self._here
        assert ranges != [(0, self.total)], "a packet that is whole is finished"
        buffer = self._buffer = bytearray(self.total)
        for run in self._runs:
            buffer[run.start : run.stop] = b"".join(run.pieces)
        self._ranges = ranges
        self._runs = []

    @property
    def _here(self) -> list[ByteRange]:
        if self._buffer is not None:
            return self._ranges
        return [(run.start, run.stop) for run in self._runs]

    def _place(self, start: int, piece: bytes) -> bool:
        assert self._buffer is not None, "the run is laid out first"
        stop = start + len(piece)
        ranges = self._ranges
        if ranges and ranges[-1][1] == start:  # in order, as mostly
            ranges[-1] = (ranges[-1][0], stop)
        elif not ranges or start < ranges[-1][0] or stop > ranges[-1][1]:  # else it is a copy
            self._insert(start, stop)
        self._buffer[start:stop] = piece
        return ranges[0] == (0, self.total)

    def _insert(self, start: int, stop: int) -> None:
        ranges = self._ranges
        first = bisect_left(ranges, start, key=_stop_of)
        last = bisect_right(ranges, stop, key=_start_of)
        if first < last:
            start = min(start, ranges[first][0])
            stop = max(stop, ranges[last - 1][1])
            assert not first or ranges[first - 1][1] < start, "ranges ascend, with holes between them"
        elif len(ranges) >= self._pieces_max:
            raise CodecError("segment pieces")
        ranges[first:last] = [(start, stop)]

    def holes(self) -> list[ByteRange]:
        edges = [(0, 0), *self._here, (self.total, self.total)]
        assert edges == sorted(edges), "ranges ascend within the packet"
        return [(before[1], after[0]) for before, after in pairwise(edges) if before[1] < after[0]]


class Reassembler:
    """Takes datagrams, gives packets. `bytes_max` caps the memory of all partial packets together."""

    __slots__ = ("_bytes", "_bytes_max", "_cluster_id", "_completed", "_partials", "evicted")

    def __init__(self, bytes_max: int, cluster_id: int = CLUSTER_DEFAULT) -> None:
        self._cluster_id = cluster_id
        self.evicted = 0
        """Partial packets that made room for newer ones."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._partials: OrderedDict[PacketName, _Partial] = OrderedDict()
        self._completed: OrderedDict[PacketName, None] = OrderedDict()

    def receive(self, datagram: bytes) -> tuple[PacketName, bytes] | None:
        """The whole packet that this segment completes, or None while more is needed or nothing is new.

        A packet that comes in a single segment is given each time it comes. Junk raises CodecError.
        """
        length = len(datagram) - _HEADER_BYTES
        if length < 1:
            raise CodecError("segment truncated")
        (
            magic,
            version,
            kind,
            cluster,
            ring_seq,
            processor,
            number,
            total,
            offset,
        ) = SEGMENT.unpack_from(datagram)
        if magic != MAGIC:
            raise CodecError("segment magic")
        if version != VERSION:
            raise CodecError("segment version")
        if cluster != self._cluster_id:
            raise CodecError("cluster")
        if kind not in _KINDS or offset + length > total:
            raise CodecError("segment malformed")
        if total > PACKET_TOTAL_MAX:
            raise CodecError("segment oversized")
        name: PacketName = tuple.__new__(PacketName, (kind, ring_seq, processor, number))
        if length < total:
            return self._take(name, total, offset, (datagram[_HEADER_BYTES:],), length)
        if name in self._partials:
            self._finish(name)
        return name, datagram[_HEADER_BYTES:]

    def receive_burst(self, burst: bytes, segment_bytes: int) -> tuple[PacketName, bytes] | None:
        """As `receive`, for datagrams of one size back to back, the last perhaps shorter.

        Mostly they are neighbours of one packet, or all of it, in order: then they cost little more than one
        datagram. If they are not, NotNeighbours is raised: they are to be taken one by one.
        """
        room = segment_bytes - _HEADER_BYTES
        if room < 1 or len(burst) <= segment_bytes or 0 < len(burst) % segment_bytes <= _HEADER_BYTES:
            raise NotNeighbours
        magic, version, kind, cluster, ring_seq, processor, number, total, offset = SEGMENT.unpack_from(burst)
        count = -(-len(burst) // segment_bytes)
        length = len(burst) - count * _HEADER_BYTES
        if magic != MAGIC or version != VERSION or kind not in _KINDS or total > PACKET_TOTAL_MAX:
            raise NotNeighbours
        if cluster != self._cluster_id or offset + length > total or count > SEGMENTS_MAX:
            raise NotNeighbours
        parts = _parts(len(burst), segment_bytes).unpack(burst)
        if parts[::3].count(parts[0]) != count or parts[1::3] != offsets(offset, count, room):
            raise NotNeighbours
        name: PacketName = tuple.__new__(PacketName, (kind, ring_seq, processor, number))
        pieces = parts[2::3]
        partial = self._partials.get(name)
        if partial is not None and partial.total != total:
            raise NotNeighbours  # the first of them drops what was here, and the others begin anew
        if length < total or partial is not None or name in self._completed:
            return self._take(name, total, offset, pieces, length)
        self._finish(name)
        return name, b"".join(pieces)

    def holes(self, ring_id: RingId, seq: int) -> tuple[ByteRange, ...]:
        """What is missing of a message of which a part is here; empty when nothing is.

        Whoever asks lacks the message. If it was completed once, the ring has dropped it since, and it is
        welcome again.
        """
        name = data_name(ring_id, seq)
        partial = self._partials.get(name)
        if partial is None:
            self._completed.pop(name, None)
            return ()
        holes = partial.holes()
        assert holes, "a packet that lacks nothing is finished"
        return tuple(_merge_nearest(holes))

    def forget(self, name: PacketName) -> None:
        """Drops all that is known of a packet, as after the codec has refused it."""
        self._completed.pop(name, None)
        self._drop(name)

    def forget_ring(self, ring_id: RingId) -> None:
        """Drops the partial messages of a ring that is over."""
        ring = (_DATA, *ring_id)
        for name in [name for name in self._partials if name[:3] == ring]:
            self._drop(name)

    def _take(
        self, name: PacketName, total: int, offset: int, pieces: Sequence[Payload], length: int
    ) -> tuple[PacketName, bytes] | None:
        if name in self._completed:
            return None
        partial = self._partials.get(name)
        if partial is None:
            partial = self._open(name, total)
        elif partial.total != total:
            # One of the two is damaged or forged, and nobody can tell which: the true one will come again.
            self._drop(name)
            raise CodecError("segment conflict")
        if not partial.add(offset, pieces, length):
            return None
        self._finish(name)
        data = partial.data
        assert len(data) == total, "a packet is as long as its segments say"
        return name, data

    def _open(self, name: PacketName, total: int) -> _Partial:
        if total > self._bytes_max:
            raise CodecError("segment oversized")
        while self._bytes + total > self._bytes_max or len(self._partials) >= PARTIALS_MAX:
            assert self._partials, "bytes are held by nobody"
            _, oldest = self._partials.popitem(last=False)
            self._bytes -= oldest.total
            self.evicted += 1
            assert self._bytes >= 0, "what is evicted gives back its bytes"
        partial = self._partials[name] = _Partial(total)
        self._bytes += total
        assert total <= self._bytes <= self._bytes_max, "partial packets are within their memory"
        return partial

    def _drop(self, name: PacketName) -> None:
        partial = self._partials.pop(name, None)
        if partial is not None:
            self._bytes -= partial.total
            assert self._bytes > 0 if self._partials else self._bytes == 0, "only partial packets hold bytes"

    def _finish(self, name: PacketName) -> None:
        self._drop(name)
        self._completed[name] = None
        if len(self._completed) > COMPLETED_MAX:
            self._completed.popitem(last=False)
            assert len(self._completed) == COMPLETED_MAX, "names are forgotten one by one"


@lru_cache(LAYOUTS_MAX)
def _parts(length: int, segment_bytes: int) -> Struct:
    """Prefix, offset and piece of each segment of a burst of so many bytes."""
    whole, rest = divmod(length, segment_bytes)
    head = f"{_HEADER_BYTES - OFFSET_BYTES}s{OFFSET_BYTES}s"
    last = f"{head}{rest - _HEADER_BYTES}s" if rest else ""
    layout = Struct(f"{head}{segment_bytes - _HEADER_BYTES}s" * whole + last)
    assert layout.size == length, "the layout covers the burst"
    return layout


def _merge_nearest(holes: list[ByteRange]) -> list[ByteRange]:
    """At most RANGES_MAX ranges that cover the holes, and as little as may be of what is here."""
    if len(holes) <= RANGES_MAX:
        return holes
    between = [after[0] - before[1] for before, after in pairwise(holes)]
    widest = sorted(range(len(between)), key=between.__getitem__, reverse=True)[: RANGES_MAX - 1]
    breaks = [0, *sorted(index + 1 for index in widest), len(holes)]
    merged = [(holes[first][0], holes[past - 1][1]) for first, past in pairwise(breaks)]
    assert len(merged) == RANGES_MAX, "as many ranges as may be named"
    return merged
