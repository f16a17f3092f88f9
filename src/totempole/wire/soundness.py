"""What a packet must be to mean anything: the one judge of what is encoded and of what was decoded.

Only what holds for a packet by itself, whoever sends it (the domains of 000 §4.1 and §4.2). That the numbers
fit their fields is the business of `struct`. The ring still asks whether a packet makes sense to it now.
"""

from __future__ import annotations

from collections.abc import Collection

from totempole.types import NO_PROCESSOR, NO_RING, ByteRange, ProcessorId, RingId, Service
from totempole.wire.layout import (
    CONTENTS_MAX,
    DATAGRAM_BYTES_MAX,
    DATAGRAM_BYTES_MIN,
    GROUPS_MAX,
    PLAIN_CONTENTS_MAX,
    PROCESSORS_MAX,
    RANGES_PER_REQUEST_MAX,
    REQUESTS_MAX,
)
from totempole.wire.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    RegularMessage,
    RegularToken,
    Wake,
)


def message_is_sound(message: RegularMessage) -> bool:
    return (
        message.sender != NO_PROCESSOR
        and type(message.service) is Service
        and message.src_sender != NO_PROCESSOR
        and message.ring_id[1] != NO_PROCESSOR
        and (message.src_ring_id[1] != NO_PROCESSOR or message.src_ring_id == NO_RING)
        and len(message.groups) <= GROUPS_MAX
        and len(message.contents) <= (CONTENTS_MAX if message.recovered else PLAIN_CONTENTS_MAX)
    )


def token_is_sound(token: RegularToken) -> bool:
    return (
        token.sender != NO_PROCESSOR
        and token.ring_id[1] != NO_PROCESSOR
        and len(token.rtr) <= REQUESTS_MAX
        and all(_are_ranges(ranges) for _, ranges in token.rtr if ranges)
    )


def join_is_sound(join: Join) -> bool:
    return (
        join.sender != NO_PROCESSOR
        and _are_processors(join.proc_set)
        and _are_processors(join.fail_set)
        and DATAGRAM_BYTES_MIN <= join.segment_bytes <= DATAGRAM_BYTES_MAX
    )


def commit_is_sound(token: CommitToken) -> bool:
    return (
        token.sender != NO_PROCESSOR
        and token.ring_id.representative != NO_PROCESSOR
        and token.memb_index <= len(token.memb_list) <= PROCESSORS_MAX
        and all(map(_entry_is_sound, token.memb_list))
    )


def notice_is_sound(notice: NullMessage | Leave | Wake) -> bool:
    return notice.sender != NO_PROCESSOR and _is_ring_or_none(notice.ring_id)


def _are_ranges(ranges: tuple[ByteRange, ...]) -> bool:
    return len(ranges) <= RANGES_PER_REQUEST_MAX and all(start < stop for start, stop in ranges)


def _entry_is_sound(entry: CommitEntry) -> bool:
    return (
        entry.processor != NO_PROCESSOR
        and _is_ring_or_none(entry.old_ring_id)
        and _are_processors(entry.deliver_memb)
    )


def _is_ring_or_none(ring_id: RingId) -> bool:
    return ring_id.representative != NO_PROCESSOR or ring_id == NO_RING


def _are_processors(ids: Collection[ProcessorId]) -> bool:
    return len(ids) <= PROCESSORS_MAX and NO_PROCESSOR not in ids
