"""The ring's packets as bytes (Totem §4.1, §4.2, §5.1; where each field stands is in layout.py).

Messages and tokens are the ring's hot packets: for them `tuple.__new__` makes the named tuples, at a third
of the cost of calling their classes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from totempole.errors import CodecError
from totempole.srp.layout import (
    COMMIT,
    CONTENTS_MAX,
    ENTRY,
    GROUP_BYTES,
    JOIN,
    MESSAGE,
    NOTICE,
    NULL,
    RANGE_BYTES,
    RANGES_PER_REQUEST_MAX,
    REQUEST_BYTES,
    REQUESTS_MAX,
    TOKEN,
    UNORDERED,
    UNORDERED_BYTES_MAX,
    EntryFlag,
    MessageFlag,
    PacketType,
    TokenFlag,
)
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    RetransmissionRequest,
    SharedSettings,
    Unordered,
    Wake,
)
from totempole.srp.soundness import (
    commit_is_sound,
    join_is_sound,
    message_is_sound,
    notice_is_sound,
    token_is_sound,
)
from totempole.types import ByteRange, Payload, RingId, RingKind, Service
from totempole.wire.codec import (
    UNCHECKED,
    VOUCHED,
    Codec,
    Format,
    Formats,
    Head,
    Written,
    accept,
    demand,
    fixed,
    limit,
    verify,
)
from totempole.wire.layout import PROCESSOR_BYTES, PROCESSORS_MAX

if TYPE_CHECKING:
    from totempole.wire.seal import Seal

_new = tuple.__new__
_SERVICES = {int(service): service for service in Service}

VIEW_BYTES_LEAST = 4_096

# Plain numbers: operations on an IntFlag cost ten times as much.
_AFTER_TOKEN, _RECOVERED = int(MessageFlag.AFTER_TOKEN), int(MessageFlag.RECOVERED)
_RETRANS, _BLOCK = int(TokenFlag.RETRANS), int(TokenFlag.BLOCK)
_GATEWAY, _FILLED = int(EntryFlag.GATEWAY), int(EntryFlag.FILLED)

Reader = Callable[[bytes, int, Head], Packet]


def _write_message(message: RegularMessage) -> Written:
    demand(message_is_sound(message), message)
    (
        _,
        _,
        (ring_seq, representative),
        seq,
        number,
        service,
        timestamp,
        src_sender,
        (src_ring_seq, src_representative),
        groups,
        after_token,
        recovered,
        contents,
    ) = message
    fields = MESSAGE.pack(
        ring_seq,
        representative,
        seq,
        number,
        timestamp,
        src_sender,
        src_ring_seq,
        src_representative,
        service,
        len(groups),
        len(contents),
    )
    if groups:
        fields += struct.pack(f">{len(groups)}Q", *groups)
    return (_AFTER_TOKEN if after_token else 0) | (_RECOVERED if recovered else 0), fields, contents


def _read_message(data: bytes, start: int, head: Head) -> RegularMessage:
    flags, sender, incarnation, check = head
    groups_start = start + MESSAGE.size
    if len(data) < groups_start:
        raise CodecError("truncated")
    (
        ring_seq,
        representative,
        seq,
        number,
        timestamp,
        src_sender,
        src_ring_seq,
        src_representative,
        service_number,
        groups_count,
        length,
    ) = MESSAGE.unpack_from(data, start)
    contents_start = groups_start + GROUP_BYTES * groups_count
    if length > CONTENTS_MAX:
        raise CodecError("oversized")
    unchecked = flags & UNCHECKED
    verify(data, start, contents_start, contents_start + length, check, not unchecked)
    accept(flags <= _AFTER_TOKEN | _RECOVERED | UNCHECKED)
    accept(not unchecked or (length > 0 and check != VOUCHED))
    message = _new(
        RegularMessage,
        (
            sender,
            incarnation,
            _new(RingId, (ring_seq, representative)),
            seq,
            number,
            _SERVICES.get(service_number),
            timestamp,
            src_sender,
            _new(RingId, (src_ring_seq, src_representative)),
            struct.unpack_from(f">{groups_count}Q", data, groups_start) if groups_count else (),
            flags & _AFTER_TOKEN != 0,
            flags & _RECOVERED != 0,
            _contents(data, contents_start, flags),
        ),
    )
    accept(message_is_sound(message))
    return message


def _contents(data: bytes, start: int, flags: int) -> Payload:
    """Long ones stay where they are: copying them is a tenth of all that receiving costs."""
    if len(data) - start < VIEW_BYTES_LEAST or flags & _RECOVERED:
        return data[start:]
    return memoryview(data)[start:]


def _write_token(token: RegularToken) -> Written:
    demand(token_is_sound(token), token)
    ranges, requests = _pack_requests(token.rtr) if token.rtr else (0, b"")
    fields = TOKEN.pack(
        *token.ring_id,
        token.token_seq,
        token.seq,
        token.aru,
        token.aru_id,
        token.timestamp,
        token.retrans_round,
        token.bytes_round,
        token.backlog,
        token.block_seq,
        len(token.rtr),
        ranges,
    )
    return (_RETRANS if token.retrans_flg else 0) | (_BLOCK if token.block else 0), fields + requests, b""


def _pack_requests(rtr: tuple[RetransmissionRequest, ...]) -> tuple[int, bytes]:
    """The number of ranges, and the requests by columns."""
    seqs, spans = zip(*rtr, strict=True)
    counts = tuple(map(len, spans))
    ends = tuple(chain.from_iterable(chain.from_iterable(spans)))
    layout = f">{len(seqs)}Q{len(seqs)}B{len(ends)}I"
    return len(ends) // 2, struct.pack(layout, *seqs, *counts, *ends)


def _read_token(data: bytes, start: int, head: Head) -> RegularToken:
    flags, sender, incarnation, check = head
    requests_start = start + TOKEN.size
    if len(data) < requests_start:
        raise CodecError("truncated")
    (
        ring_seq,
        representative,
        token_seq,
        seq,
        aru,
        aru_id,
        timestamp,
        retrans_round,
        bytes_round,
        backlog,
        block_seq,
        requests,
        ranges,
    ) = TOKEN.unpack_from(data, start)
    if requests > REQUESTS_MAX or ranges > requests * RANGES_PER_REQUEST_MAX:
        raise CodecError("oversized")
    stop = requests_start + REQUEST_BYTES * requests + RANGE_BYTES * ranges
    verify(data, start, stop, stop, check)
    accept(flags <= _RETRANS | _BLOCK)
    token = _new(
        RegularToken,
        (
            sender,
            incarnation,
            _new(RingId, (ring_seq, representative)),
            token_seq,
            seq,
            aru,
            aru_id,
            timestamp,
            flags & _RETRANS != 0,
            retrans_round,
            bytes_round,
            backlog,
            flags & _BLOCK != 0,
            block_seq,
            _unpack_requests(data, requests_start, requests, ranges) if requests else (),
        ),
    )
    accept(token_is_sound(token))
    return token


def _unpack_requests(
    data: bytes, start: int, requests: int, ranges: int
) -> tuple[RetransmissionRequest, ...]:
    numbers = struct.unpack_from(f">{requests}Q{requests}B{2 * ranges}I", data, start)
    seqs, counts, ends = numbers[:requests], numbers[requests : 2 * requests], numbers[2 * requests :]
    accept(sum(counts) == ranges)
    if not ranges:
        return tuple([_new(RetransmissionRequest, (seq, ())) for seq in seqs])
    spans: zip[ByteRange] = zip(ends[::2], ends[1::2], strict=True)
    return tuple(
        [
            _new(RetransmissionRequest, (seq, tuple(islice(spans, count))))
            for seq, count in zip(seqs, counts, strict=True)
        ]
    )


def _write_join(join: Join) -> Written:
    demand(join_is_sound(join), join)
    fields = JOIN.pack(
        join.counter,
        join.ring_seq,
        join.future_ring_seq,
        join.rotation_count,
        join.segment_bytes,
        *join.settings,
        len(join.proc_set),
        len(join.fail_set),
    )
    names = (*sorted(join.proc_set), *sorted(join.fail_set))
    return 0, fields + struct.pack(f">{len(names)}I", *names), b""


def _read_join(data: bytes, start: int, head: Head) -> Join:
    flags, sender, incarnation, check = head
    counter, ring_seq, future_ring_seq, rotations, segment_bytes, *settings, procs, fails = fixed(
        JOIN, data, start
    )
    limit(max(procs, fails), PROCESSORS_MAX)
    names_start = start + JOIN.size
    stop = names_start + PROCESSOR_BYTES * (procs + fails)
    verify(data, start, stop, stop, check)
    names = struct.unpack_from(f">{procs + fails}I", data, names_start)
    accept(flags == 0 and _ascends(names[:procs]) and _ascends(names[procs:]))
    sets = frozenset(names[:procs]), frozenset(names[procs:])
    join = Join(
        sender,
        incarnation,
        counter,
        ring_seq,
        future_ring_seq,
        *sets,
        rotations,
        segment_bytes,
        SharedSettings(*settings),
    )
    accept(join_is_sound(join))
    return join


def _ascends(names: tuple[int, ...]) -> bool:
    """A set has one encoding: its members ascending, each once."""
    return list(names) == sorted(set(names))


def _write_commit(token: CommitToken) -> Written:
    demand(commit_is_sound(token), token)
    names = tuple(chain.from_iterable(entry.deliver_memb for entry in token.memb_list))
    start = COMMIT.pack(
        token.counter,
        *token.ring_id,
        token.token_seq,
        token.timestamp,
        token.memb_index,
        len(token.memb_list),
        len(names),
    )
    fields = (start, *map(_pack_entry, token.memb_list), struct.pack(f">{len(names)}I", *names))
    return 0, b"".join(fields), b""


def _pack_entry(entry: CommitEntry) -> bytes:
    return ENTRY.pack(
        entry.processor,
        *entry.old_ring_id,
        entry.old_ring_aru,
        entry.high_delivered,
        len(entry.deliver_memb),
        (_GATEWAY if entry.gateway else 0) | (_FILLED if entry.filled else 0),
    )


def _read_commit(data: bytes, start: int, head: Head) -> CommitToken:
    flags, sender, incarnation, check = head
    counter, ring_seq, representative, token_seq, timestamp, memb_index, entries, names = fixed(
        COMMIT, data, start
    )
    limit(entries, PROCESSORS_MAX)
    limit(names, PROCESSORS_MAX * entries)
    entries_start = start + COMMIT.size
    stop = entries_start + ENTRY.size * entries + PROCESSOR_BYTES * names
    verify(data, start, stop, stop, check)
    accept(flags == 0)
    ring_id = RingId(ring_seq, representative)
    memb_list = _unpack_entries(data, entries_start, entries, names)
    token = CommitToken(sender, incarnation, counter, ring_id, token_seq, timestamp, memb_index, memb_list)
    accept(commit_is_sound(token))
    return token


def _unpack_entries(data: bytes, start: int, entries: int, names: int) -> tuple[CommitEntry, ...]:
    stop = start + ENTRY.size * entries
    rows = list(ENTRY.iter_unpack(data[start:stop]))
    accept(sum(count for *_, count, _ in rows) == names)
    promised = iter(struct.unpack_from(f">{names}I", data, stop))
    return tuple([_entry(row, tuple(islice(promised, row[5]))) for row in rows])


def _entry(row: tuple[Any, ...], deliver_memb: tuple[int, ...]) -> CommitEntry:
    processor, ring_seq, representative, aru, high, _, flags = row
    accept(flags <= _GATEWAY | _FILLED)
    ring_id = RingId(ring_seq, representative)
    return CommitEntry(
        processor, ring_id, aru, high, deliver_memb, flags & _GATEWAY != 0, flags & _FILLED != 0
    )


def _write_null(null: NullMessage) -> Written:
    demand(notice_is_sound(null), null)
    return 0, NULL.pack(null.counter, *null.ring_id, null.members), b""


def _read_null(data: bytes, start: int, head: Head) -> NullMessage:
    flags, sender, incarnation, check = head
    counter, ring_seq, representative, members = fixed(NULL, data, start)
    stop = start + NULL.size
    verify(data, start, stop, stop, check)
    null = NullMessage(sender, incarnation, counter, RingId(ring_seq, representative), members)
    accept(flags == 0 and notice_is_sound(null))
    return null


def _write_notice(notice: Leave | Wake) -> Written:
    demand(notice_is_sound(notice), notice)
    return 0, NOTICE.pack(notice.counter, *notice.ring_id), b""


def _notice_reader(packet_class: type[Leave | Wake]) -> Reader:
    def read(data: bytes, start: int, head: Head) -> Packet:
        flags, sender, incarnation, check = head
        counter, ring_seq, representative = fixed(NOTICE, data, start)
        stop = start + NOTICE.size
        verify(data, start, stop, stop, check)
        notice = packet_class(sender, incarnation, counter, RingId(ring_seq, representative))
        accept(flags == 0 and notice_is_sound(notice))
        return notice

    return read


def _write_unordered(message: Unordered) -> Written:
    demand(notice_is_sound(message), message)
    fields = UNORDERED.pack(message.counter, *message.ring_id, len(message.contents))
    return 0, fields + message.contents, b""


def _read_unordered(data: bytes, start: int, head: Head) -> Unordered:
    flags, sender, incarnation, check = head
    counter, ring_seq, representative, length = fixed(UNORDERED, data, start)
    limit(length, UNORDERED_BYTES_MAX)
    contents_start = start + UNORDERED.size
    stop = contents_start + length
    verify(data, start, stop, stop, check)
    ring_id = RingId(ring_seq, representative)
    message = Unordered(sender, incarnation, counter, ring_id, data[contents_start:stop])
    accept(flags == 0 and notice_is_sound(message))
    return message


FORMATS = Formats(
    Format(PacketType.MESSAGE, RegularMessage, _write_message, _read_message),
    Format(PacketType.TOKEN, RegularToken, _write_token, _read_token),
    Format(PacketType.JOIN, Join, _write_join, _read_join),
    Format(PacketType.COMMIT, CommitToken, _write_commit, _read_commit),
    Format(PacketType.NULL, NullMessage, _write_null, _read_null),
    Format(PacketType.LEAVE, Leave, _write_notice, _notice_reader(Leave)),
    Format(PacketType.WAKE, Wake, _write_notice, _notice_reader(Wake)),
    Format(PacketType.UNORDERED, Unordered, _write_unordered, _read_unordered),
)


def ring_codec(
    cluster_id: int, ring_kind: RingKind, seal: Seal | None = None, check_contents: bool = True
) -> Codec:
    return Codec(FORMATS, cluster_id, ring_kind, seal, check_contents)
