"""Codecs that remember: a multicast reaches many receivers of one simulation, and is decoded once.

Packets are immutable and may be shared. Sealed ones are not remembered: a receiver that could open a packet
yesterday may not have its key today.
"""

from __future__ import annotations

from functools import lru_cache

from totempole.srp.formats import FORMATS
from totempole.srp.layout import REGULAR_OVERHEAD, PacketType
from totempole.stack import REDUNDANT_FORMATS
from totempole.types import RingKind
from totempole.wire import Codec
from totempole.wire.codec import Packet
from totempole.wire.layout import MAGIC, VERSION

CODECS_MAX = 16

RECENT_MAX = 64
"""Packets that a codec remembers having decoded."""

_TOKEN_STARTS = frozenset(MAGIC + bytes((VERSION, kind)) for kind in (PacketType.TOKEN, PacketType.COMMIT))
"""How packets begin that one processor alone receives."""
_TYPE_STOP = len(MAGIC) + 2


class RememberingCodec(Codec):
    __slots__ = ("_recent",)

    def __init__(
        self, cluster_id: int, ring_kind: RingKind, check_contents: bool = True, routed: bool = False
    ) -> None:
        formats = REDUNDANT_FORMATS if routed else FORMATS
        super().__init__(formats, cluster_id, ring_kind, None, check_contents, routed)
        self._recent: dict[bytes, tuple[bytes, Packet]] = {}

    def decode(self, data: bytes | memoryview) -> Packet:
        data = bytes(data)  # a view's owner cannot change what is remembered
        if data[:_TYPE_STOP] in _TOKEN_STARTS:
            return super().decode(data)
        key = data[:REGULAR_OVERHEAD]
        known = self._recent.get(key)
        if known is not None and known[0] == data:
            return known[1]
        packet = super().decode(data)
        if len(self._recent) >= RECENT_MAX:
            self._recent.clear()
        self._recent[key] = data, packet
        return packet


shared_codec = lru_cache(CODECS_MAX)(RememberingCodec)
"""One for all processors of a simulation."""
