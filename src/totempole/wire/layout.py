"""Where each field of a packet stands, and how large a packet may be.

A packet is a header, the protocol fields of its type, and for a RegularMessage the contents. All numbers are
big-endian. The fixed fields of a type come first and hold every count, so that the length of a packet is
known, and checked, before any list is read.

    header     magic 2s, version u8, type u8, ring kind u8, key id u8, flags u16, cluster id u64,
               sender u32, incarnation u32, check u32
    Message    ring u64 u32, seq u64, number u64, timestamp u64, src_sender u32, src_ring u64 u32,
               service u8, groups u8, contents u32; then the groups u64, then the contents
    Token      ring u64 u32, token_seq, seq, aru u64, aru_id u32, timestamp, retrans_round, bytes_round,
               backlog, block_seq u64, requests u16, ranges u16; then all seqs u64, the number of ranges
               of each u8, all ranges u32 u32
    Join       counter, ring_seq, future_ring_seq, rotation_count u64, segment_bytes u32, six settings u64,
               |proc_set| u16, |fail_set| u16; then both sets, ascending, u32
    Commit     counter u64, ring u64 u32, token_seq u64, timestamp u64, memb_index u16, entries u16,
               names u32; then the entries, then the names of all deliver_memb u32
      entry    processor u32, old ring u64 u32, old_ring_aru u64, high_delivered u64, names u16, flags u8
    Null       counter u64, ring u64 u32, members u16
    Leave, Wake         counter u64, ring u64 u32

A sealed packet (seal.py) names its key in the header, whose check is 0; then come a counter u64, the fields
and contents, encrypted, and a tag of 16 bytes.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct

MAGIC = b"TP"
VERSION = 2
UNSEALED = 0
"""The key id of a packet without a seal."""
KEY_ID_MAX = 255


class PacketType(IntEnum):
    MESSAGE = 1
    TOKEN = 2
    JOIN = 3
    COMMIT = 4
    NULL = 5
    LEAVE = 6
    WAKE = 7


class MessageFlag(IntFlag):
    AFTER_TOKEN = 1
    RECOVERED = 2
    UNCHECKED = 4
    """The check does not cover the contents."""


class TokenFlag(IntFlag):
    RETRANS = 1
    BLOCK = 2


class EntryFlag(IntFlag):
    GATEWAY = 1
    FILLED = 2


HEAD = Struct(">2sBBBBHQII")
"""The header up to its check."""
HEADER = Struct(">2sBBBBHQIII")
MESSAGE = Struct(">QIQQQIQIBBI")
TOKEN = Struct(">QIQQQIQQQQQHH")
JOIN = Struct(">QQQQI6QHH")
COMMIT = Struct(">QQIQQHHI")
ENTRY = Struct(">IQIQQHB")
NOTICE = Struct(">QQI")
"""Leave and Wake say only which ring they are about."""
NULL = Struct(">QQIH")

IDENTITY = slice(8, HEAD.size)
"""Where the header names the cluster, the sender and its incarnation: the last fields before the check."""

COUNTER_BYTES = 8
TAG_BYTES = 16
SEAL_BYTES = COUNTER_BYTES + TAG_BYTES
"""What a seal adds to any packet."""

CHECK_BYTES = 4
GROUP_BYTES = 8
REQUEST_BYTES = 9
RANGE_BYTES = 8
PROCESSOR_BYTES = 4

GROUPS_MAX = 255
REQUESTS_MAX = 1024
RANGES_PER_REQUEST_MAX = 32
PROCESSORS_MAX = 1024
"""Members of a set, entries of a commit token, names in a promise."""

DATAGRAM_BYTES_MIN = 128
DATAGRAM_BYTES_MAX = 65_507
"""What UDP over IPv4 takes."""

REGULAR_OVERHEAD = HEADER.size + MESSAGE.size
"""What encoding adds to the contents of a message without groups and without a seal."""

PLAIN_CONTENTS_MAX = 500_000
"""The largest `RingConfig.packet_bytes_max`: several bursts of 64 KiB."""

CONTENTS_MAX = PLAIN_CONTENTS_MAX + REGULAR_OVERHEAD + GROUP_BYTES * GROUPS_MAX + SEAL_BYTES
"""Contents of a recovered message: any plain message, encoded and sealed. A recovered message is itself never
encapsulated (000 §4.3 rebroadcasts the original), so one level is enough."""

PACKET_BYTES_MAX = 524_288
"""Any packet. What the list maxima allow together is larger, but no packet that a ring makes is."""


def regular_bytes(contents: int, groups: int = 0) -> int:
    """Length of a RegularMessage, encoded but not sealed."""
    return REGULAR_OVERHEAD + GROUP_BYTES * groups + contents
