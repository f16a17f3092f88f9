"""What a packet must be to mean anything: the one judge of what is encoded and of what was decoded.

Only what holds for a packet by itself, whoever sends it (the domains of Totem §4.1 and §4.2). Whether its
numbers are near the receiver's own is judged by `srp.reach`; whether it makes sense now, by the ring.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from totempole.srp.layout import (
    CONTENTS_MAX,
    GROUPS_MAX,
    PLAIN_CONTENTS_MAX,
    RANGES_PER_REQUEST_MAX,
    REQUESTS_MAX,
    UNORDERED_BYTES_MAX,
)
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Notice,
    NullMessage,
    RegularMessage,
    RegularToken,
    RetransmissionRequest,
    Unordered,
)
from totempole.types import NO_PROCESSOR, NO_RING, ByteRange, ProcessorId, RingId, Service
from totempole.wire.layout import (
    DATAGRAM_BYTES_MAX,
    DATAGRAM_BYTES_MIN,
    INCARNATION_MAX,
    NUMBER_MAX,
    PROCESSORS_MAX,
)


def message_is_sound(message: RegularMessage) -> bool:
    ring_id, src_ring_id = message.ring_id, message.src_ring_id
    # Many numbers, one comparison: a message is checked at every receiver.
    numbers = ring_id[0] | src_ring_id[0] | message.seq | message.number | message.timestamp
    return (
        message.sender != NO_PROCESSOR
        and numbers < NUMBER_MAX
        and message.incarnation <= INCARNATION_MAX
        and type(message.service) is Service
        and message.src_sender != NO_PROCESSOR
        and ring_id[1] != NO_PROCESSOR
        and (src_ring_id[1] != NO_PROCESSOR or src_ring_id == NO_RING)
        and len(message.groups) <= GROUPS_MAX
        and len(message.contents) <= (CONTENTS_MAX if message.recovered else PLAIN_CONTENTS_MAX)
    )


def token_is_sound(token: RegularToken) -> bool:
    numbers = token.ring_id[0] | token.token_seq | token.seq | token.timestamp | token.block_seq
    rounds = token.retrans_round | token.bytes_round | token.backlog
    return (
        token.sender != NO_PROCESSOR
        and token.ring_id[1] != NO_PROCESSOR
        and numbers | rounds < NUMBER_MAX
        and token.incarnation <= INCARNATION_MAX
        and token.aru <= token.seq
        and (not token.rtr or _are_requests(token.rtr, token.seq))
    )


def join_is_sound(join: Join) -> bool:
    """Totem §4.2: a sender considers itself, has not failed, and regards as failed whom it considers."""
    numbers = join.counter | join.ring_seq | join.future_ring_seq | join.rotation_count
    return (
        join.sender != NO_PROCESSOR
        and max(numbers, *join.settings) < NUMBER_MAX
        and join.incarnation <= INCARNATION_MAX
        and _are_processors(join.proc_set)
        and join.fail_set <= join.proc_set
        and join.sender in join.proc_set - join.fail_set
        and DATAGRAM_BYTES_MIN <= join.segment_bytes <= DATAGRAM_BYTES_MAX
    )


def commit_is_sound(token: CommitToken) -> bool:
    """Totem §4.2: the members in the order of the ring, the representative first."""
    numbers = token.counter | token.ring_id.seq | token.token_seq | token.timestamp
    members = [entry.processor for entry in token.memb_list]
    return (
        token.sender != NO_PROCESSOR
        and numbers < NUMBER_MAX
        and token.incarnation <= INCARNATION_MAX
        and 1 <= len(members) <= PROCESSORS_MAX
        and token.memb_index < len(members)
        and members[0] == token.ring_id.representative
        and _ascend(members)
        and all(_entry_is_sound(entry, token.ring_id) for entry in token.memb_list)
    )


def notice_is_sound(notice: Notice) -> bool:
    return (
        notice.sender != NO_PROCESSOR
        and notice.counter | notice.ring_id.seq < NUMBER_MAX
        and notice.incarnation <= INCARNATION_MAX
        and _is_ring_or_none(notice.ring_id)
        and (type(notice) is not NullMessage or 1 <= notice.members <= PROCESSORS_MAX)
        and (type(notice) is not Unordered or 1 <= len(notice.contents) <= UNORDERED_BYTES_MAX)
    )


def _are_requests(rtr: tuple[RetransmissionRequest, ...], seq: int) -> bool:
    """Ascending, and of messages that have been sent. One may be below the token's aru for a while: another
    member that was behind has raised the aru, and the requester has not seen that yet."""
    seqs = [request.seq for request in rtr]
    return (
        len(rtr) <= REQUESTS_MAX
        and seqs[0] >= 1
        and seqs[-1] <= seq
        and _ascend(seqs)
        and all(_are_ranges(ranges) for _, ranges in rtr if ranges)
    )


def _are_ranges(ranges: tuple[ByteRange, ...]) -> bool:
    return len(ranges) <= RANGES_PER_REQUEST_MAX and all(start < stop for start, stop in ranges)


def _entry_is_sound(entry: CommitEntry, ring_id: RingId) -> bool:
    processor, old_ring_id, aru, high_delivered, deliver_memb, _, filled = entry
    return (
        processor != NO_PROCESSOR
        and _is_ring_or_none(old_ring_id)
        and (old_ring_id.seq < ring_id.seq if old_ring_id != NO_RING else not filled)
        and high_delivered <= aru < NUMBER_MAX
        and _are_processors(deliver_memb)
        and _ascend(deliver_memb)
        and (not deliver_memb or processor in deliver_memb)
    )


def _ascend(numbers: Sequence[int]) -> bool:
    return all(low < high for low, high in pairwise(numbers))


def _is_ring_or_none(ring_id: RingId) -> bool:
    return ring_id.representative != NO_PROCESSOR or ring_id == NO_RING


def _are_processors(ids: Collection[ProcessorId]) -> bool:
    return len(ids) <= PROCESSORS_MAX and NO_PROCESSOR not in ids
