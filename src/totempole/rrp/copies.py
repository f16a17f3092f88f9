"""Puts packets together from what comes on all networks of a ring, and drops copies by their header."""

from __future__ import annotations

from struct import Struct

from totempole.core.io import Io
from totempole.rrp.accounts import Accounts
from totempole.segment.header import (
    CLUSTER_DEFAULT,
    MAGIC,
    OFFSET_BYTES,
    SEGMENT,
    VERSION,
    NameKind,
    PacketName,
)
from totempole.segment.reassembler import Reassembler

_HEADER_BYTES = SEGMENT.size
_PREFIX_BYTES = _HEADER_BYTES - OFFSET_BYTES
_DATA = int(NameKind.DATA)
_NAME = Struct(">QIQ")
_PLACE = Struct(">QIQII")
"""What a header says after its first bytes: the name of its message, how long that is, and where in it the
segment begins."""
_HEAD_BYTES = _HEADER_BYTES - _PLACE.size
_new = tuple.__new__


class CopyReassembler(Reassembler):
    """One for all links of a ring. Stripes of one packet come on several networks, and copies on several.

    A message that is here is known by its name: its copies are neither put together nor decoded. While it is
    not, copies of a part are taken, for nobody can tell yet which of them is the true one. Other packets are
    few, and each copy of a token says something: these are given each time they come.
    """

    __slots__ = ("_accounts", "_first", "_head", "_io")

    def __init__(
        self, bytes_max: int, io: Io, accounts: Accounts, first: int, cluster_id: int = CLUSTER_DEFAULT
    ) -> None:
        """`first`: the number of the ring's first network."""
        super().__init__(bytes_max, cluster_id)
        self._first = first
        self._io = io
        self._accounts = accounts
        self._head = SEGMENT.pack(MAGIC, VERSION, _DATA, cluster_id, 0, 0, 0, 0, 0)[:_HEAD_BYTES]
        """How headers of this cluster's messages begin."""

    def receive(self, datagram: bytes) -> tuple[PacketName, bytes] | None:
        length = len(datagram) - _HEADER_BYTES
        if length < 1 or not datagram.startswith(self._head):
            return super().receive(datagram)
        ring_seq, processor, number, total, offset = _PLACE.unpack_from(datagram, _HEAD_BYTES)
        name: PacketName = _new(PacketName, (_DATA, ring_seq, processor, number))
        self._accounts.note(name, self._io.network - self._first, length)
        if name in self._completed:
            return None
        if length != total or offset:
            return super().receive(datagram)
        self._finish(name)
        return name, datagram[_HEADER_BYTES:]

    def receive_burst(self, burst: bytes, segment_bytes: int) -> tuple[PacketName, bytes] | None:
        if len(burst) <= segment_bytes or segment_bytes <= _HEADER_BYTES or not burst.startswith(self._head):
            return super().receive_burst(burst, segment_bytes)
        name: PacketName = _new(PacketName, (_DATA, *_NAME.unpack_from(burst, _HEAD_BYTES)))
        count = -(-len(burst) // segment_bytes)
        last, found = (count - 1) * segment_bytes, None
        # What is here is dropped, if all of the burst are segments of it.
        if name not in self._completed or not burst.startswith(burst[:_PREFIX_BYTES], last):
            found = super().receive_burst(burst, segment_bytes)
        self._accounts.note(name, self._io.network - self._first, len(burst) - count * _HEADER_BYTES)
        return found
