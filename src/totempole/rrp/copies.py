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
_PLACE = Struct(">II")
_PLACE_AT = _HEADER_BYTES - _PLACE.size
"""Where a header says how long its packet is, and where the segment begins in it."""
_new = tuple.__new__


class CopyReassembler(Reassembler):
    """One for all links of a ring. Stripes of one packet come on several networks, and copies on several.

    A message that is here is known by its name: its copies are neither put together nor decoded. Other
    packets are few, and each copy of a token says something: these are given each time they come.
    """

    __slots__ = ("_accounts", "_first", "_io")

    def __init__(
        self, bytes_max: int, io: Io, accounts: Accounts, first: int, cluster_id: int = CLUSTER_DEFAULT
    ) -> None:
        """`first`: the number of the ring's first network."""
        super().__init__(bytes_max, cluster_id)
        self._first = first
        self._io = io
        self._accounts = accounts

    def receive(self, datagram: bytes) -> tuple[PacketName, bytes] | None:
        name = self._message_name(datagram)
        if name is None:
            return super().receive(datagram)
        length = len(datagram) - _HEADER_BYTES
        self._accounts.note(name, self._io.network - self._first, length)
        if self._is_here(name, datagram, length):
            return None
        found = super().receive(datagram)
        if found is not None and name not in self._completed:
            self._finish(name)
        return found

    def receive_burst(self, burst: bytes, segment_bytes: int) -> tuple[PacketName, bytes] | None:
        name = self._message_name(burst)
        if name is None or len(burst) <= segment_bytes or segment_bytes <= _HEADER_BYTES:
            return super().receive_burst(burst, segment_bytes)
        count = -(-len(burst) // segment_bytes)
        length = len(burst) - count * _HEADER_BYTES
        last = (count - 1) * segment_bytes
        of_one = burst[last : last + _PREFIX_BYTES] == burst[:_PREFIX_BYTES]
        found = None
        if not of_one or not self._is_here(name, burst, length):
            found = super().receive_burst(burst, segment_bytes)
        self._accounts.note(name, self._io.network - self._first, length)
        return found

    def _is_here(self, name: PacketName, datagram: bytes, length: int) -> bool:
        """Whether the message is here, or the part of it that begins with this header."""
        if name in self._completed:
            return True
        partial = self._partials.get(name)
        if partial is None:
            return False
        total, offset = _PLACE.unpack_from(datagram, _PLACE_AT)
        return partial.total == total and partial.covers(offset, offset + length)

    def _message_name(self, datagram: bytes) -> PacketName | None:
        """The name, if these bytes begin with a header of a message of this cluster."""
        if len(datagram) <= _HEADER_BYTES:
            return None
        magic, version, kind, cluster, ring_seq, processor, number, _, _ = SEGMENT.unpack_from(datagram)
        if kind != _DATA or magic != MAGIC or version != VERSION or cluster != self._cluster_id:
            return None
        return _new(PacketName, (kind, ring_seq, processor, number))
