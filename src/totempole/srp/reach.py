"""Refuses packets whose numbers leap too far above the receiver's own.

Ring numbers, timestamps and the token's counts only grow, and receivers take the higher ones over (Totem
§4.1, §4.2, §5.1). So one damaged number, sent before any check was computed, would stay with the whole
cluster, on stable storage too. A true number is never far ahead: processors that have lost their storage, or
have just been installed, begin with numbers from the clock (`srp.stable`), and the reach spans all that the
clock can give, in both directions.

Nothing is taken over above CEILING either. It is so far below the codec's NUMBER_MAX that whatever a
processor adds to the numbers it has can still be encoded: a million timestamps a second reach CEILING after
100,000 years. A cluster that got there by leaps would form no ring any more, and count why. It has to be
started anew, with empty directories.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.srp.packets import CommitToken, Join, Packet, RegularMessage, RegularToken
from totempole.srp.stable import RING_SEQ_PER_SECOND, SECONDS_MAX, TIMESTAMPS_PER_SECOND
from totempole.wire.layout import NUMBER_MAX, PACKET_BYTES_MAX, PROCESSOR_BYTES, PROCESSORS_MAX

RING_SEQ_REACH = 2 * SECONDS_MAX * RING_SEQ_PER_SECOND
"""2**40: from nothing to the highest first number, and as far again."""

TIMESTAMP_REACH = 2 * SECONDS_MAX * TIMESTAMPS_PER_SECOND
"""2**52, likewise."""

TOKEN_SEQ_REACH = 2 * PROCESSORS_MAX
"""Between two visits, each other member passes the token on once."""

SEQ_REACH = 2**20
"""Messages between what a processor has received without a gap and the last one sent. The settings bound the
true distance: `outstanding_packets_max`."""

CEILING = NUMBER_MAX - TIMESTAMP_REACH

COMMIT_BYTES_MAX = PACKET_BYTES_MAX - PROCESSOR_BYTES * PROCESSORS_MAX
"""A Commit token must have room for the receiver's own promise."""


class Own(NamedTuple):
    """The receiver's own numbers."""

    ring_seq: int
    timestamp: int
    token_seq: int
    """my_token_seq of the ring whose token it waits for."""
    aru: int
    sent_seq: int
    """On that ring: my_aru, and the seq of the token when it last left."""


def leap(packet: Packet, length: int, own: Own) -> str:
    """What is out of reach in a packet of so many bytes; empty if nothing is."""
    match packet:
        case RegularMessage():
            return _leap(packet.src_ring_id.seq, packet.timestamp, own)
        case RegularToken():
            return _leap(0, packet.timestamp, own) or _token_leap(packet, own)
        case Join():
            return _leap(max(packet.ring_seq, packet.future_ring_seq), 0, own)
        case CommitToken():
            if length > COMMIT_BYTES_MAX:
                return "commit token too long"
            return _leap(packet.ring_id.seq, packet.timestamp, own) or _token_seq_leap(packet, own)
        case _:
            return ""  # nobody takes over what is in it


def _leap(ring_seq: int, timestamp: int, own: Own) -> str:
    if ring_seq > min(own.ring_seq + RING_SEQ_REACH, CEILING):
        return "ring number out of reach"
    if timestamp > min(own.timestamp + TIMESTAMP_REACH, CEILING):
        return "timestamp out of reach"
    return ""


def _token_seq_leap(token: RegularToken | CommitToken, own: Own) -> str:
    return "token_seq out of reach" if token.token_seq > own.token_seq + TOKEN_SEQ_REACH else ""


def _token_leap(token: RegularToken, own: Own) -> str:
    """For a token of the receiver's ring that is not an old one."""
    if token.token_seq < own.token_seq:
        return ""
    if max(token.retrans_round, token.bytes_round, token.backlog, token.block_seq) > CEILING:
        return "token sums out of reach"
    if not max(own.aru, own.sent_seq) <= token.seq <= own.aru + SEQ_REACH:
        # Below: the token once was ahead of this, or a message has a place that no token gave.
        return "token seq out of reach"
    return _token_seq_leap(token, own)
