"""Puts packets together from their segments, in any order, within a memory cap.

What is still missing of a packet is known by `holes`, for the token's rtr list: at 20 % loss a burst of 44
segments almost never arrives whole, and asking for all of it again would never end.

Overlapping segments are welcome, as ranges are resent by holders that cut elsewhere. Where two differ, the
last one stands; the codec's check, or the seal, judges the whole, and the caller forgets what it refuses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from struct import Struct

from totempole.errors import CodecError
from totempole.segment.cutter import LAYOUTS_MAX, offsets
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
from totempole.types import ByteRange, RingId

COMPLETED_MAX = 1024
"""Names of finished packets that are remembered; the oldest is forgotten first."""

PARTIALS_MAX = 4096
"""Partial packets, however short they claim to be; beyond it the oldest is evicted."""

PIECES_LEAST = 64
PIECE_BYTES = 64
"""A partial packet is in at most one piece per PIECE_BYTES, or PIECES_LEAST if that is more. Every second
one of the smallest segments stays far below; a forger's single bytes must not cost more than the packet."""

WHOLE_SEGMENTS_MAX = 256
"""Segments of a burst that is taken in one go; more than any kernel gives at once. It bounds what is
remembered of layouts, which strangers may choose."""

RANGES_MAX = 16
"""Ranges that name the holes of one packet."""

_HEADER_BYTES = SEGMENT.size
_KINDS = frozenset(map(int, NameKind))
_DATA = int(NameKind.DATA)
_start_of, _stop_of = itemgetter(0), itemgetter(1)


class _Partial:
    """A packet of which something has arrived: its bytes, and the ranges here, ascending and apart."""

    __slots__ = ("buffer", "pieces")

    def __init__(self, total: int) -> None:
        self.buffer = bytearray(total)
        self.pieces: list[ByteRange] = []

    def add(self, start: int, piece: bytes) -> bool:
        """Takes a piece in; true when nothing is missing any more."""
        stop = start + len(piece)
        pieces = self.pieces
        if pieces and pieces[-1][1] == start:  # in order, as mostly
            pieces[-1] = (pieces[-1][0], stop)
        else:
            self._insert(start, stop)
        self.buffer[start:stop] = piece
        return pieces[0] == (0, len(self.buffer))

    def _insert(self, start: int, stop: int) -> None:
        pieces = self.pieces
        first = bisect_left(pieces, start, key=_stop_of)
        last = bisect_right(pieces, stop, key=_start_of)
        if first < last:
            start = min(start, pieces[first][0])
            stop = max(stop, pieces[last - 1][1])
        elif len(pieces) >= max(PIECES_LEAST, len(self.buffer) // PIECE_BYTES):
            raise CodecError("segment pieces")
        pieces[first:last] = [(start, stop)]

    def holes(self) -> list[ByteRange]:
        total = len(self.buffer)
        edges = [(0, 0), *self.pieces, (total, total)]
        return [(before[1], after[0]) for before, after in pairwise(edges) if before[1] < after[0]]


class Reassembler:
    """Takes datagrams, gives packets. `bytes_max` caps the memory of all partial packets together."""

    __slots__ = ("_bytes", "_bytes_max", "_completed", "_partials", "evicted")

    def __init__(self, bytes_max: int) -> None:
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
        magic, version, kind, ring_seq, processor, number, total, offset = SEGMENT.unpack_from(datagram)
        if magic != MAGIC:
            raise CodecError("segment magic")
        if version != VERSION:
            raise CodecError("segment version")
        if kind not in _KINDS or offset + length > total:
            raise CodecError("segment malformed")
        if total > PACKET_TOTAL_MAX:
            raise CodecError("segment oversized")
        name: PacketName = tuple.__new__(PacketName, (kind, ring_seq, processor, number))
        if length < total:
            return self._take_piece(name, total, offset, datagram[_HEADER_BYTES:])
        if name in self._partials:
            self._finish(name)
        return name, datagram[_HEADER_BYTES:]

    def receive_whole(self, burst: bytes, segment_bytes: int) -> tuple[PacketName, bytes] | None:
        """The packet that a burst is, if it is one, all of it, in order: what a quiet network gives.

        None if it is not, or not all new: then its datagrams are to be taken one by one.
        """
        room = segment_bytes - _HEADER_BYTES
        if room < 1 or len(burst) <= segment_bytes:
            return None
        magic, version, kind, ring_seq, processor, number, total, _ = SEGMENT.unpack_from(burst)
        count = -(-total // room)
        if len(burst) != total + count * _HEADER_BYTES or magic != MAGIC or version != VERSION:
            return None
        if kind not in _KINDS or total > PACKET_TOTAL_MAX or count > WHOLE_SEGMENTS_MAX:
            return None
        name: PacketName = tuple.__new__(PacketName, (kind, ring_seq, processor, number))
        if name in self._partials or name in self._completed:
            return None
        heads = _heads(len(burst), segment_bytes).unpack(burst)
        if heads[::2].count(heads[0]) != count or heads[1::2] != offsets(count, room):
            return None
        self._finish(name)
        view = memoryview(burst)
        starts = range(_HEADER_BYTES, len(burst), segment_bytes)
        return name, b"".join([view[start : start + room] for start in starts])

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
        return tuple(_merge_nearest(partial.holes()))

    def forget(self, name: PacketName) -> None:
        """Drops all that is known of a packet, as after the codec has refused it."""
        self._completed.pop(name, None)
        self._drop(name)

    def forget_ring(self, ring_id: RingId) -> None:
        """Drops the partial messages of a ring that is over."""
        ring = (_DATA, *ring_id)
        for name in [name for name in self._partials if name[:3] == ring]:
            self._drop(name)

    def _take_piece(
        self, name: PacketName, total: int, offset: int, piece: bytes
    ) -> tuple[PacketName, bytes] | None:
        if name in self._completed:
            return None
        partial = self._partials.get(name)
        if partial is None:
            partial = self._open(name, total)
        elif len(partial.buffer) != total:
            # One of the two is damaged or forged, and nobody can tell which: the true one will come again.
            self._drop(name)
            raise CodecError("segment conflict")
        if not partial.add(offset, piece):
            return None
        self._finish(name)
        return name, bytes(partial.buffer)

    def _open(self, name: PacketName, total: int) -> _Partial:
        if total > self._bytes_max:
            raise CodecError("segment oversized")
        while self._bytes + total > self._bytes_max or len(self._partials) >= PARTIALS_MAX:
            _, oldest = self._partials.popitem(last=False)
            self._bytes -= len(oldest.buffer)
            self.evicted += 1
        partial = self._partials[name] = _Partial(total)
        self._bytes += total
        return partial

    def _drop(self, name: PacketName) -> None:
        partial = self._partials.pop(name, None)
        if partial is not None:
            self._bytes -= len(partial.buffer)

    def _finish(self, name: PacketName) -> None:
        self._drop(name)
        self._completed[name] = None
        if len(self._completed) > COMPLETED_MAX:
            self._completed.popitem(last=False)


@lru_cache(LAYOUTS_MAX)
def _heads(length: int, segment_bytes: int) -> Struct:
    """Prefix and offset of each segment of a burst of so many bytes."""
    whole, rest = divmod(length, segment_bytes)
    head = f"{_HEADER_BYTES - OFFSET_BYTES}s{OFFSET_BYTES}s"
    last = f"{head}{rest - _HEADER_BYTES}x" if rest else ""
    return Struct(f"{head}{segment_bytes - _HEADER_BYTES}x" * whole + last)


def _merge_nearest(holes: list[ByteRange]) -> list[ByteRange]:
    """At most RANGES_MAX ranges that cover the holes, and as little as may be of what is here."""
    if len(holes) <= RANGES_MAX:
        return holes
    between = [after[0] - before[1] for before, after in pairwise(holes)]
    widest = sorted(range(len(between)), key=between.__getitem__, reverse=True)[: RANGES_MAX - 1]
    breaks = [0, *sorted(index + 1 for index in widest), len(holes)]
    return [(holes[first][0], holes[past - 1][1]) for first, past in pairwise(breaks)]
