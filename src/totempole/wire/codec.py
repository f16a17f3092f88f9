"""Packets to bytes and back (000 §4.1, §4.2, §5.1; the bytes are in layout.py).

Decoding asks, in this order, so that each refusal has its true reason: is it ours (magic, version, cluster,
ring kind, key, type), is it all there and no more (truncated, oversized), is it unharmed (checksum), does it
mean anything (malformed). What the check covers: check.py.

With a seal, packets without one are refused (unsealed), and what follows the key is asked only of packets
that the seal vouches for (seal): docs/decisions/0009-the-seal.md.

Messages and tokens are the ring's hot packets: for them `tuple.__new__` makes the named tuples, at a third
of the cost of calling their classes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from totempole.errors import CodecError, ConfigurationError
from totempole.types import ByteRange, Payload, RingId, RingKind, Service
from totempole.wire.check import check_of
from totempole.wire.layout import (
    CHECK_BYTES,
    COMMIT,
    CONTENTS_MAX,
    ENTRY,
    GROUP_BYTES,
    HEAD,
    HEADER,
    JOIN,
    MAGIC,
    MESSAGE,
    NOTICE,
    NULL,
    PACKET_BYTES_MAX,
    PROCESSOR_BYTES,
    PROCESSORS_MAX,
    RANGE_BYTES,
    RANGES_PER_REQUEST_MAX,
    REGULAR_OVERHEAD,
    REQUEST_BYTES,
    REQUESTS_MAX,
    TOKEN,
    UNSEALED,
    VERSION,
    EntryFlag,
    MessageFlag,
    PacketType,
    TokenFlag,
)
from totempole.wire.packets import (
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
    Wake,
)
from totempole.wire.soundness import (
    commit_is_sound,
    join_is_sound,
    message_is_sound,
    notice_is_sound,
    token_is_sound,
)

if TYPE_CHECKING:
    from totempole.wire.seal import Seal  # else whoever needs no seal would wait for `cryptography` to load

_Written = tuple[int, bytes, Payload]
"""Flags, protocol fields, contents."""

_Head = tuple[int, int, int, int]
"""Flags, sender, incarnation, check (or VOUCHED)."""

VOUCHED = -1
"""Stands for the check of a packet whose seal was whole, which says more than any check."""

_NO_CHECK = bytes(CHECK_BYTES)
"""The check of a sealed packet, in its header."""

_Reader = Callable[[bytes, int, _Head], Packet]
"""Takes bytes, where in them the protocol fields start, and what the header says."""

_new = tuple.__new__
_FIELDS = HEADER.size
_SERVICES = {int(service): service for service in Service}

_MESSAGE_START = MAGIC + bytes((VERSION, PacketType.MESSAGE))
_TYPE_STOP = len(_MESSAGE_START)

VIEW_BYTES_LEAST = 4_096

RECENT_MAX = 64
"""Messages that a codec remembers having decoded."""

# Plain numbers: operations on an IntFlag cost ten times as much.
_AFTER_TOKEN, _RECOVERED = int(MessageFlag.AFTER_TOKEN), int(MessageFlag.RECOVERED)
_UNCHECKED = int(MessageFlag.UNCHECKED)
_RETRANS, _BLOCK = int(TokenFlag.RETRANS), int(TokenFlag.BLOCK)
_GATEWAY, _FILLED = int(EntryFlag.GATEWAY), int(EntryFlag.FILLED)


class Codec:
    """Encodes and decodes the packets of one cluster and one ring kind.

    `check_contents`: whether the check of what is encoded without a seal covers contents. What is decoded
    says so itself.

    Without a seal, both directions are pure functions. A multicast reaches many receivers of one simulation,
    so `decode` remembers its latest messages; packets are immutable and may be shared.

    With one, the codec is its sender's own, and each encoding differs from all before. Nothing is remembered:
    who opened a packet yesterday may not have its key today.
    """

    __slots__ = ("_check_contents", "_cluster_id", "_recent", "_ring_kind", "_seal")

    def __init__(
        self, cluster_id: int, ring_kind: RingKind, seal: Seal | None = None, check_contents: bool = True
    ) -> None:
        if not 0 <= cluster_id < 2**64:
            raise ConfigurationError(f"cluster_id = {cluster_id}: give a number from 0 to 2**64 - 1")
        self._cluster_id = cluster_id
        self._ring_kind = int(ring_kind)
        self._seal = seal
        self._check_contents = check_contents
        self._recent: dict[bytes, tuple[bytes, Packet]] = {}

    def encode(self, packet: Packet) -> bytes:
        """The packet's bytes. What `decode` would refuse is not built, but raises ConfigurationError."""
        kind, write = _WRITERS[type(packet)]
        seal = self._seal
        key = UNSEALED if seal is None else seal.key_id
        try:
            flags, fields, contents = write(packet)
            unchecked = contents and seal is None and not self._check_contents
            if unchecked:
                flags |= _UNCHECKED
            head = HEAD.pack(
                MAGIC, VERSION, kind, self._ring_kind, key, flags, self._cluster_id, packet[0], packet[1]
            )
        except struct.error as error:
            raise ConfigurationError(f"{type(packet).__name__}: a number does not fit: {error}") from error
        if seal is None:
            check = check_of(head, fields, b"" if unchecked else contents).to_bytes(CHECK_BYTES, "big")
            data = b"".join((head, check, fields, contents))
        else:
            data = seal.close(head + _NO_CHECK, fields + contents)
        if len(data) > PACKET_BYTES_MAX:
            raise ConfigurationError(
                f"{type(packet).__name__}: {len(data)} bytes; a packet has at most {PACKET_BYTES_MAX}"
            )
        return data

    def decode(self, data: bytes | memoryview) -> Packet:
        """The packet that these bytes are, or CodecError with one of the reasons named above."""
        # No copy of bytes; of a view a copy, which its owner cannot change under the memo.
        data = bytes(data)
        if self._seal is not None or data[:_TYPE_STOP] != _MESSAGE_START:
            return self._read(data)
        key = data[:REGULAR_OVERHEAD]
        known = self._recent.get(key)
        if known is not None and known[0] == data:
            return known[1]
        packet = self._read(data)
        if len(self._recent) >= RECENT_MAX:
            self._recent.clear()
        self._recent[key] = data, packet
        return packet

    def _read(self, data: bytes) -> Packet:
        if len(data) < _FIELDS:
            raise CodecError("truncated")
        magic, version, kind, ring_kind, key, flags, cluster, sender, incarnation, check = HEADER.unpack_from(
            data
        )
        if magic != MAGIC:
            raise CodecError("magic")
        if version != VERSION:
            raise CodecError("version")
        if cluster != self._cluster_id:
            raise CodecError("cluster")
        if ring_kind != self._ring_kind:
            raise CodecError("ring kind")
        start = _FIELDS
        if self._seal is not None:
            data, start = self._seal.open(key, data), 0
            _accept(check == 0)
            check = VOUCHED
        elif key != UNSEALED:
            raise CodecError("key")
        read = _READERS.get(kind)
        if read is None:
            raise CodecError("type")
        return read(data, start, (flags, sender, incarnation, check))


def _verify(
    data: bytes, start: int, fields_stop: int, stop: int, check: int, covers_contents: bool = True
) -> None:
    """Checks the packet's length, then its check, which covers all of it but itself."""
    if len(data) != stop or stop > PACKET_BYTES_MAX:
        raise CodecError("truncated" if len(data) < stop else "oversized")
    if check == VOUCHED:
        return
    contents = memoryview(data)[fields_stop:] if covers_contents and fields_stop < stop else b""
    if check_of(data[: HEAD.size], data[start:fields_stop], contents) != check:
        raise CodecError("checksum")


def _fixed(layout: struct.Struct, data: bytes, start: int) -> tuple[Any, ...]:
    """The fixed fields, with which a packet's own begin."""
    if len(data) < start + layout.size:
        raise CodecError("truncated")
    return layout.unpack_from(data, start)


def _limit(count: int, maximum: int) -> None:
    if count > maximum:
        raise CodecError("oversized")


def _accept(sound: bool) -> None:
    if not sound:
        raise CodecError("malformed")


def _demand(sound: bool, packet: Packet) -> None:
    if not sound:
        raise ConfigurationError(
            f"{type(packet).__name__}: a field is outside its domain; wire/soundness.py says what holds"
        )


def _write_message(message: RegularMessage) -> _Written:
    _demand(message_is_sound(message), message)
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


def _read_message(data: bytes, start: int, head: _Head) -> RegularMessage:
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
    unchecked = flags & _UNCHECKED
    _verify(data, start, contents_start, contents_start + length, check, not unchecked)
    _accept(flags <= _AFTER_TOKEN | _RECOVERED | _UNCHECKED)
    _accept(not unchecked or (length > 0 and check != VOUCHED))
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
    _accept(message_is_sound(message))
    return message


def _contents(data: bytes, start: int, flags: int) -> Payload:
    """Long ones stay where they are: copying them is a tenth of all that receiving costs."""
    if len(data) - start < VIEW_BYTES_LEAST or flags & _RECOVERED:
        return data[start:]
    return memoryview(data)[start:]


def _write_token(token: RegularToken) -> _Written:
    _demand(token_is_sound(token), token)
    ranges, requests = _pack_requests(token.rtr) if token.rtr else (0, b"")
    fixed = TOKEN.pack(
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
    return (_RETRANS if token.retrans_flg else 0) | (_BLOCK if token.block else 0), fixed + requests, b""


def _pack_requests(rtr: tuple[RetransmissionRequest, ...]) -> tuple[int, bytes]:
    """The number of ranges, and the requests by columns."""
    seqs, spans = zip(*rtr, strict=True)
    counts = tuple(map(len, spans))
    ends = tuple(chain.from_iterable(chain.from_iterable(spans)))
    layout = f">{len(seqs)}Q{len(seqs)}B{len(ends)}I"
    return len(ends) // 2, struct.pack(layout, *seqs, *counts, *ends)


def _read_token(data: bytes, start: int, head: _Head) -> RegularToken:
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
    _verify(data, start, stop, stop, check)
    _accept(flags <= _RETRANS | _BLOCK)
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
    _accept(token_is_sound(token))
    return token


def _unpack_requests(
    data: bytes, start: int, requests: int, ranges: int
) -> tuple[RetransmissionRequest, ...]:
    numbers = struct.unpack_from(f">{requests}Q{requests}B{2 * ranges}I", data, start)
    seqs, counts, ends = numbers[:requests], numbers[requests : 2 * requests], numbers[2 * requests :]
    _accept(sum(counts) == ranges)
    if not ranges:
        return tuple([_new(RetransmissionRequest, (seq, ())) for seq in seqs])
    spans: zip[ByteRange] = zip(ends[::2], ends[1::2], strict=True)
    return tuple(
        [
            _new(RetransmissionRequest, (seq, tuple(islice(spans, count))))
            for seq, count in zip(seqs, counts, strict=True)
        ]
    )


def _write_join(join: Join) -> _Written:
    _demand(join_is_sound(join), join)
    fixed = JOIN.pack(
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
    return 0, fixed + struct.pack(f">{len(names)}I", *names), b""


def _read_join(data: bytes, start: int, head: _Head) -> Join:
    flags, sender, incarnation, check = head
    counter, ring_seq, future_ring_seq, rotations, segment_bytes, *settings, procs, fails = _fixed(
        JOIN, data, start
    )
    _limit(max(procs, fails), PROCESSORS_MAX)
    names_start = start + JOIN.size
    stop = names_start + PROCESSOR_BYTES * (procs + fails)
    _verify(data, start, stop, stop, check)
    names = struct.unpack_from(f">{procs + fails}I", data, names_start)
    _accept(flags == 0 and _ascends(names[:procs]) and _ascends(names[procs:]))
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
    _accept(join_is_sound(join))
    return join


def _ascends(names: tuple[int, ...]) -> bool:
    """A set has one encoding: its members ascending, each once."""
    return list(names) == sorted(set(names))


def _write_commit(token: CommitToken) -> _Written:
    _demand(commit_is_sound(token), token)
    names = tuple(chain.from_iterable(entry.deliver_memb for entry in token.memb_list))
    fixed = COMMIT.pack(
        token.counter,
        *token.ring_id,
        token.token_seq,
        token.timestamp,
        token.memb_index,
        len(token.memb_list),
        len(names),
    )
    fields = (fixed, *map(_pack_entry, token.memb_list), struct.pack(f">{len(names)}I", *names))
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


def _read_commit(data: bytes, start: int, head: _Head) -> CommitToken:
    flags, sender, incarnation, check = head
    counter, ring_seq, representative, token_seq, timestamp, memb_index, entries, names = _fixed(
        COMMIT, data, start
    )
    _limit(entries, PROCESSORS_MAX)
    _limit(names, PROCESSORS_MAX * entries)
    entries_start = start + COMMIT.size
    stop = entries_start + ENTRY.size * entries + PROCESSOR_BYTES * names
    _verify(data, start, stop, stop, check)
    _accept(flags == 0)
    ring_id = RingId(ring_seq, representative)
    memb_list = _unpack_entries(data, entries_start, entries, names)
    token = CommitToken(sender, incarnation, counter, ring_id, token_seq, timestamp, memb_index, memb_list)
    _accept(commit_is_sound(token))
    return token


def _unpack_entries(data: bytes, start: int, entries: int, names: int) -> tuple[CommitEntry, ...]:
    stop = start + ENTRY.size * entries
    rows = list(ENTRY.iter_unpack(data[start:stop]))
    _accept(sum(count for *_, count, _ in rows) == names)
    promised = iter(struct.unpack_from(f">{names}I", data, stop))
    return tuple([_entry(row, tuple(islice(promised, row[5]))) for row in rows])


def _entry(row: tuple[Any, ...], deliver_memb: tuple[int, ...]) -> CommitEntry:
    processor, ring_seq, representative, aru, high, _, flags = row
    _accept(flags <= _GATEWAY | _FILLED)
    ring_id = RingId(ring_seq, representative)
    return CommitEntry(
        processor, ring_id, aru, high, deliver_memb, flags & _GATEWAY != 0, flags & _FILLED != 0
    )


def _write_null(null: NullMessage) -> _Written:
    _demand(notice_is_sound(null), null)
    return 0, NULL.pack(null.counter, *null.ring_id, null.members), b""


def _read_null(data: bytes, start: int, head: _Head) -> NullMessage:
    flags, sender, incarnation, check = head
    counter, ring_seq, representative, members = _fixed(NULL, data, start)
    stop = start + NULL.size
    _verify(data, start, stop, stop, check)
    null = NullMessage(sender, incarnation, counter, RingId(ring_seq, representative), members)
    _accept(flags == 0 and notice_is_sound(null))
    return null


def _write_notice(notice: Leave | Wake) -> _Written:
    _demand(notice_is_sound(notice), notice)
    return 0, NOTICE.pack(notice.counter, *notice.ring_id), b""


def _notice_reader(packet_class: type[Leave | Wake]) -> _Reader:
    def read(data: bytes, start: int, head: _Head) -> Packet:
        flags, sender, incarnation, check = head
        counter, ring_seq, representative = _fixed(NOTICE, data, start)
        stop = start + NOTICE.size
        _verify(data, start, stop, stop, check)
        notice = packet_class(sender, incarnation, counter, RingId(ring_seq, representative))
        _accept(flags == 0 and notice_is_sound(notice))
        return notice

    return read


# Any: each function takes the one packet class it stands beside.
_WRITERS: dict[type[Packet], tuple[int, Callable[[Any], _Written]]] = {
    RegularMessage: (int(PacketType.MESSAGE), _write_message),
    RegularToken: (int(PacketType.TOKEN), _write_token),
    Join: (int(PacketType.JOIN), _write_join),
    CommitToken: (int(PacketType.COMMIT), _write_commit),
    NullMessage: (int(PacketType.NULL), _write_null),
    Leave: (int(PacketType.LEAVE), _write_notice),
    Wake: (int(PacketType.WAKE), _write_notice),
}

_READERS: dict[int, _Reader] = {
    PacketType.MESSAGE: _read_message,
    PacketType.TOKEN: _read_token,
    PacketType.JOIN: _read_join,
    PacketType.COMMIT: _read_commit,
    PacketType.NULL: _read_null,
    PacketType.LEAVE: _notice_reader(Leave),
    PacketType.WAKE: _notice_reader(Wake),
}
