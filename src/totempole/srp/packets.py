"""The packets of the ring: one named tuple for each message of the papers.

Named tuples rather than frozen dataclasses: they are as immutable and three times cheaper to make, and a
token visit makes several. `sender` and `incarnation` are set by whoever first encoded the packet; a
retransmission is the original bytes, so they never change on the way.

Fields that only chapter 5 uses (timestamp, src_*, groups, gateway flags, block) are carried from the start,
so that the format need not change when the multiple-ring protocol arrives.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.segment.header import PacketName, data_name
from totempole.types import NO_PROCESSOR, ByteRange, MessageId, Payload, ProcessorId, RingId, Service
from totempole.wire.layout import DATAGRAM_BYTES_MAX

_new = tuple.__new__


class RegularMessage(NamedTuple):
    """Totem §4.1 and §5.1: a message with its place on the ring."""

    sender: ProcessorId
    incarnation: int
    ring_id: RingId
    seq: int
    number: int
    """The originator's own counter: with `src_sender` and `incarnation`, the message's identity."""
    service: Service
    timestamp: int
    src_sender: ProcessorId
    src_ring_id: RingId
    groups: tuple[int, ...]
    """Destination groups as 64-bit names, for gateways that filter (Totem CACM)."""
    after_token: bool
    """Sent after its sender had passed the token on: the accelerated ring's sign of its predecessor."""
    recovered: bool
    """Totem §4.3: `contents` is a whole encoded packet of an old ring, rebroadcast on a new one."""
    contents: Payload

    @property
    def message_id(self) -> MessageId:
        return _new(MessageId, (self.src_sender, self.incarnation, self.number))


class RetransmissionRequest(NamedTuple):
    """One entry of the token's rtr list. No ranges: the whole packet is missing."""

    seq: int
    ranges: tuple[ByteRange, ...] = ()


class RegularToken(NamedTuple):
    """Totem §4.1, with the fields of §4.3 (retrans_flg), §4.4 (retrans_round, bytes) and §5.1, §5.3."""

    sender: ProcessorId
    incarnation: int
    ring_id: RingId
    token_seq: int
    seq: int
    aru: int
    aru_id: ProcessorId = NO_PROCESSOR
    timestamp: int = 0
    retrans_flg: bool = False
    retrans_round: int = 0
    bytes_round: int = 0
    """Bytes sent in the last rotation: the window in bytes, kept as retrans_round is."""
    backlog: int = 0
    """Packets left waiting at all members when they last forwarded the token, kept as retrans_round is."""
    block: bool = False
    block_seq: int = 0
    rtr: tuple[RetransmissionRequest, ...] = ()


class SharedSettings(NamedTuple):
    """Settings that the members of a ring should have in common; Joins tell them."""

    token_loss_us: int = 0
    token_retransmission_us: int = 0
    consensus_us: int = 0
    idle_hold_us: int = 0
    outstanding_packets_max: int = 0
    members_max: int = 0


class Join(NamedTuple):
    """Totem §4.2.

    `counter` counts what the sender has said in this incarnation beside messages and regular tokens: Joins,
    Commit tokens and notices. So a replay of any of them is known for what it is.
    """

    sender: ProcessorId
    incarnation: int
    counter: int
    ring_seq: int
    future_ring_seq: int
    proc_set: frozenset[ProcessorId]
    fail_set: frozenset[ProcessorId]
    rotation_count: int
    segment_bytes: int = DATAGRAM_BYTES_MAX
    """The largest datagram that the sender can take."""
    settings: SharedSettings = SharedSettings()


class CommitEntry(NamedTuple):
    """What one member tells the others about its old ring (Totem §4.2)."""

    processor: ProcessorId
    old_ring_id: RingId
    old_ring_aru: int
    high_delivered: int
    deliver_memb: tuple[ProcessorId, ...]
    """The promise of Totem "Failure of Recovery", by name; empty while my_received_flg is false."""
    gateway: bool = False
    filled: bool = False


class CommitToken(NamedTuple):
    """Totem §4.2: on its first rotation it collects entries, on its second it spreads them."""

    sender: ProcessorId
    incarnation: int
    counter: int
    ring_id: RingId
    token_seq: int
    timestamp: int
    memb_index: int
    memb_list: tuple[CommitEntry, ...]


class NullMessage(NamedTuple):
    """Totem appendix A: broadcast now and then, so that healed but idle rings meet."""

    sender: ProcessorId
    incarnation: int
    counter: int
    ring_id: RingId
    members: int = 1
    """How many are on that ring: whether another ring has room for them."""


class Leave(NamedTuple):
    """A member's farewell: the others form the next ring at once instead of waiting for the token."""

    sender: ProcessorId
    incarnation: int
    counter: int
    ring_id: RingId


class Wake(NamedTuple):
    """Asks the holder of an idle ring's token to let it go."""

    sender: ProcessorId
    incarnation: int
    counter: int
    ring_id: RingId


class Unordered(NamedTuple):
    """A few bytes of the layer above for the other members, without a place in the order. It is sent once: it
    may be lost, and is never repaired. As a notice it comes at most once, and never after a later one."""

    sender: ProcessorId
    incarnation: int
    counter: int
    ring_id: RingId
    contents: bytes


Notice = NullMessage | Leave | Wake | Unordered
"""Packets that are numbered within their sender's life, and of which nothing is taken over: the sender is
there, goes, waits for the token, or has something to say that needs no place."""

Packet = RegularMessage | RegularToken | Join | CommitToken | Notice


def name_of(packet: Packet) -> PacketName | None:
    """A message is named by its place on the ring, so that any holder can repair it. Other packets have no
    name of their own: they are never repaired."""
    return data_name(packet.ring_id, packet.seq) if type(packet) is RegularMessage else None
