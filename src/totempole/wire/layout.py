"""The header that every packet of every engine begins with, and how large a packet may be.

A packet is a header, the protocol fields of its type, and perhaps contents. All numbers are big-endian. The
fixed fields of a type come first and hold every count, so that the length of a packet is known, and checked,
before any list is read. Each engine lays out its own packets (srp/layout.py).

    header     magic 2s, version u8, type u8, ring kind u8, key id u8, flags u16, cluster id u64,
               sender u32, incarnation u32, check u32

The high byte of the flags is the packet's route, where its ring is on several networks (rrp/route.py). It is
0 on a ring that is on one.

A sealed packet (seal.py) names its key in the header, whose check is 0; then come a counter u64, the fields
and contents, encrypted, and a tag of 16 bytes.
"""

from __future__ import annotations

from struct import Struct

MAGIC = b"TP"
VERSION = 2
UNSEALED = 0
"""The key id of a packet without a seal."""
KEY_ID_MAX = 255

HEAD = Struct(">2sBBBBHQII")
"""The header up to its check."""
HEADER = Struct(">2sBBBBHQIII")

IDENTITY = slice(8, HEAD.size)
"""Where the header names the cluster, the sender and its incarnation: the last fields before the check."""

ROUTE_AT = 6
ROUTE_SHIFT = 8
"""Where the route stands, in the packet and within the flags."""

COUNTER_BYTES = 8
TAG_BYTES = 16
SEAL_BYTES = COUNTER_BYTES + TAG_BYTES
"""What a seal adds to any packet."""

CHECK_BYTES = 4
PROCESSOR_BYTES = 4

PROCESSORS_MAX = 1024
"""Members of a ring, and of any set that a packet names."""

NUMBER_MAX = 2**62
"""Every counter is below this. The fields have 64 bits, so a number can be added to and still be written."""

INCARNATION_MAX = 2**32 - 2**20
"""The highest incarnation. Its field has 32 bits; a processor counts its lives from the clock, in seconds
since 2020, so only a damaged number is above this."""

DATAGRAM_BYTES_MIN = 128
DATAGRAM_BYTES_MAX = 65_507
"""What UDP over IPv4 takes."""

PACKET_BYTES_MAX = 524_288
"""Any packet. What the list maxima allow together is larger, but no packet that a ring makes is."""
