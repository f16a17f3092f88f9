"""Where each field of the ring's packets stands, behind the header (wire/layout.py).

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
Unordered  counter u64, ring u64 u32, contents u16; then the contents
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct

from totempole.wire.layout import HEADER, PACKET_BYTES_MAX, SEAL_BYTES


class PacketType(IntEnum):
    MESSAGE = 1
    TOKEN = 2
    JOIN = 3
    COMMIT = 4
    NULL = 5
    LEAVE = 6
    WAKE = 7
    UNORDERED = 8


class MessageFlag(IntFlag):
    AFTER_TOKEN = 1
    RECOVERED = 2


class TokenFlag(IntFlag):
    RETRANS = 1
    BLOCK = 2


class EntryFlag(IntFlag):
    GATEWAY = 1
    FILLED = 2


MESSAGE = Struct(">QIQQQIQIBBI")
TOKEN = Struct(">QIQQQIQQQQQHH")
JOIN = Struct(">QQQQI6QHH")
COMMIT = Struct(">QQIQQHHI")
ENTRY = Struct(">IQIQQHB")
NOTICE = Struct(">QQI")
"""Leave and Wake say only which ring they are about."""
NULL = Struct(">QQIH")
UNORDERED = Struct(">QQIH")

GROUP_BYTES = 8
REQUEST_BYTES = 9
RANGE_BYTES = 8

GROUPS_MAX = 255
REQUESTS_MAX = 1024
UNORDERED_BYTES_MAX = 1024
"""Contents without a place: what is longer can wait for the token."""
RANGES_PER_REQUEST_MAX = 32

REGULAR_OVERHEAD = HEADER.size + MESSAGE.size
"""What encoding adds to the contents of a message without groups and without a seal."""

PLAIN_CONTENTS_MAX = 500_000
"""The largest `RingConfig.packet_bytes_max`: several bursts of 64 KiB."""

CONTENTS_MAX = PLAIN_CONTENTS_MAX + REGULAR_OVERHEAD + GROUP_BYTES * GROUPS_MAX + SEAL_BYTES
"""Contents of a recovered message: any plain message, encoded and sealed. A recovered message is itself never
encapsulated (Totem §4.3 rebroadcasts the original), so one level is enough."""

assert REGULAR_OVERHEAD + CONTENTS_MAX <= PACKET_BYTES_MAX, "a recovered message must fit a packet"
