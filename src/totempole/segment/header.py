"""The segment header: which packet this is a piece of, how long that packet is, and where the piece begins.

A RegularMessage is named by its place on the ring, so that a range resent by any holder fits every receiver's
partial packet. Other packets are never repaired; their sender names them by its incarnation and a counter.

    magic 2s, version u8, kind u8, cluster id u64, name u64 u32 u64, total u32, offset u32

The cluster's id is here too, and not in the packet alone: rings of two clusters that share a port have the
same numbers, and their segments must never make one packet.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from totempole.types import ProcessorId, RingId
from totempole.wire.layout import PACKET_BYTES_MAX

MAGIC = b"TS"
VERSION = 2
CLUSTER_DEFAULT = 1
"""As in `RingConfig.cluster_id`."""
SEGMENT = Struct(">2sBBQQIQII")
KIND_PLACE = 3
"""Where the kind of the name stands."""
OFFSET_BYTES = 4
"""The offset stands last: all else is the same for every segment of a packet."""

PACKET_TOTAL_MAX = PACKET_BYTES_MAX
"""No packet is longer, so no segment may claim that its packet is."""


class NameKind(IntEnum):
    DATA = 1
    OTHER = 2


_DATA = int(NameKind.DATA)


class PacketName(NamedTuple):
    """DATA: (ring seq, representative, seq). OTHER: (sender's incarnation, sender, sender's counter)."""

    kind: int
    ring_seq: int
    processor: ProcessorId
    number: int


def data_name(ring_id: RingId, seq: int) -> PacketName:
    name: PacketName = tuple.__new__(PacketName, (_DATA, *ring_id, seq))
    return name
