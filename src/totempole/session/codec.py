"""Frames to bytes and back, and frames out of a stream of bytes.

Every length that comes from the other side is checked; whatever is wrong raises CodecError and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any

from totempole.errors import CodecError
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.packing import pack_names, unpack_names
from totempole.session import (
    DAEMON_KINDS,
    FRAME_BYTES_MAX,
    HEAD,
    NAME_BYTES_MAX,
    TEXT_BYTES_MAX,
    AskGroups,
    AskNetworks,
    Bye,
    Credit,
    Done,
    EncodedTable,
    Ended,
    Frame,
    Gap,
    GroupTable,
    Hello,
    Join,
    Kind,
    Large,
    Leave,
    Limits,
    NetworkNews,
    NetworkStatus,
    NetworkTable,
    Part,
    Policy,
    Refused,
    Send,
    State,
    Welcome,
    kind_name,
)
from totempole.types import ConfigurationKind, OrderKey, Payload, Place, ProcessId, RingId, Service

# Where each field stands

SEND = Struct(">BBH")
JOIN = Struct(">IBB")
LARGE = Struct(">IBQ")
REQUEST = Struct(">I")
NETWORKS = Struct(">IB")
CREDIT = Struct(">Q")
GAP = Struct(">QQ")
PROCESS = Struct(">IQI")
PROCESS_PLACE = Struct(">IQI QIQQII")
CHUNK = Struct(">IQI QIQQII BB")
MESSAGES = Struct(">IQI QIB QIQQII H")
SAFE = Struct(">IQI QI QIQQII")
VIEW = Struct(">B QIQQII BBII")
NOTICE = 1
"""A flag of SEND."""
DONOR, WANTS_STATE = 1, 2
"""Flags of JOIN."""
NOBODY = ProcessId(0, 0, 0)
VIEW_KINDS = {1: ConfigurationKind.REGULAR, 2: ConfigurationKind.TRANSITIONAL}
VIEW_NUMBERS = {kind: number for number, kind in VIEW_KINDS.items()}

# Frames to bytes

_Body = tuple[Kind, list[Payload]]


def encode(frame: Frame) -> bytes:
    """One frame, whole. A body that is too long for one raises CodecError."""
    kind, parts = body_of(frame)
    size = sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise CodecError("frame too long", f"{kind.name} of {size} bytes: the most is {FRAME_BYTES_MAX}")
    return b"".join((HEAD.pack(size, kind), *parts))


def cut(frame: Frame, request: int = 0, largest: int = FRAME_BYTES_MAX) -> list[tuple[Payload, ...]]:
    """The frame as it travels, each frame as the buffers to write: itself when its body has at most
    `largest` bytes, else a LARGE and its PARTs, whose bytes are not copied."""
    kind, parts = body_of(frame)
    size = sum(map(len, parts))
    if size <= largest:
        return [(b"".join((HEAD.pack(size, kind), *parts)),)]
    pieces: list[tuple[Payload, ...]] = [(encode(Large(request, kind, size)),)]
    for part in parts:
        view = memoryview(part)
        for at in range(0, len(view), FRAME_BYTES_MAX):
            piece = view[at : at + FRAME_BYTES_MAX]
            pieces.append((HEAD.pack(len(piece), Kind.PART), piece))
    return pieces


def body_of(frame: Frame) -> _Body:
    """The frame's kind, and its body in parts: the small ones joined, contents as they are."""
    return _ENCODERS[type(frame)](frame)


def _flat(place: Place) -> tuple[int, ...]:
    (ring, seq, configuration), index = place
    return (*ring, seq, *configuration, index)


def _send(frame: Send) -> _Body:
    names = pack_names(frame.groups)
    head = SEND.pack(frame.service, frame.notice, len(names))
    return Kind.SEND, [head + names, frame.batch]


def _messages(event: GroupMessages) -> _Body:
    sender, number, count, groups, batch, service, place = event
    (ring, seq, configuration), index = place
    names = pack_names(groups)
    head = MESSAGES.pack(*sender, number, count, service, *ring, seq, *configuration, index, len(names))
    return Kind.MESSAGES, [head + names, batch]


def _view(view: GroupView) -> _Body:
    name, changed = view.group.encode(), view.changed.encode()
    members, together = view.members, view.together
    head = VIEW.pack(
        VIEW_NUMBERS[view.kind], *_flat(view.place), len(name), len(changed), len(members), len(together)
    )
    return Kind.VIEW, [b"".join((head, name, changed, *map(_pack_process, (*members, *together))))]


def _pack_process(process: ProcessId) -> bytes:
    return PROCESS.pack(*process)


def _safe(event: BecameSafe) -> _Body:
    head = SAFE.pack(*event.sender, event.number, event.count, *_flat(event.place))
    return Kind.SAFE, [head, pack_names(event.groups)]


def _state(frame: State) -> _Body:
    return Kind.STATE, _chunk(frame.joiner, frame.place, frame.last, frame.group, frame.content)


def _state_chunk(event: StateChunk) -> _Body:
    return Kind.STATE_CHUNK, _chunk(event.donor, event.place, event.last, event.group, event.content)


def _chunk(process: ProcessId, place: Place, last: bool, group: str, content: Payload) -> list[Payload]:
    name = group.encode()
    return [CHUNK.pack(*process, *_flat(place), last, len(name)) + name, content]


def _state_asked(event: StateAsked) -> _Body:
    head = PROCESS_PLACE.pack(*event.joiner, *_flat(event.place))
    return Kind.STATE_ASKED, [head, event.group.encode()]


def _state_begins(event: StateBegins) -> _Body:
    head = PROCESS_PLACE.pack(*(event.donor or NOBODY), *_flat(event.place))
    return Kind.STATE_BEGINS, [head, event.group.encode()]


def _hello(frame: Hello) -> _Body:
    return Kind.HELLO, [_json(frame._asdict())]


def _welcome(frame: Welcome) -> _Body:
    return Kind.WELCOME, [_json({**frame._asdict(), "limits": frame.limits._asdict()})]


def _table(frame: EncodedTable) -> _Body:
    return Kind.TABLE, [REQUEST.pack(frame.request), frame.groups]


def pack_table(groups: Mapping[str, tuple[ProcessId, ...]]) -> bytes:
    return _json(groups)


def _network_table(frame: NetworkTable) -> _Body:
    networks = [network._asdict() for network in frame.networks]
    return Kind.NETWORK_TABLE, [REQUEST.pack(frame.request), _json(networks)]


def _join(frame: Join) -> _Body:
    flags = DONOR * frame.donor | WANTS_STATE * frame.wants_state
    return Kind.JOIN, [JOIN.pack(frame.request, frame.policy, flags), frame.group.encode()]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _text(text: str) -> bytes:
    return text.encode(errors="replace")[:TEXT_BYTES_MAX]


_ENCODERS: dict[type, Callable[[Any], _Body]] = {
    Hello: _hello,
    Join: _join,
    Leave: lambda frame: (Kind.LEAVE, [REQUEST.pack(frame.request), frame.group.encode()]),
    Send: _send,
    State: _state,
    AskGroups: lambda frame: (Kind.GROUPS, [REQUEST.pack(frame.request)]),
    AskNetworks: lambda frame: (Kind.NETWORKS, [NETWORKS.pack(*frame)]),
    Bye: lambda frame: (Kind.BYE, []),
    Large: lambda frame: (Kind.LARGE, [LARGE.pack(*frame)]),
    Part: lambda frame: (Kind.PART, [frame.content]),
    Welcome: _welcome,
    Refused: lambda frame: (Kind.REFUSED, [REQUEST.pack(frame.request), _text(frame.text)]),
    Done: lambda frame: (Kind.DONE, [REQUEST.pack(frame.request)]),
    Credit: lambda frame: (Kind.CREDIT, [CREDIT.pack(frame.total)]),
    GroupMessages: _messages,
    GroupView: _view,
    BecameSafe: _safe,
    StateAsked: _state_asked,
    StateBegins: _state_begins,
    StateChunk: _state_chunk,
    Gap: lambda frame: (Kind.GAP, [GAP.pack(frame.messages, frame.bytes), frame.group.encode()]),
    GroupTable: lambda frame: _table(EncodedTable(frame.request, pack_table(frame.groups))),
    EncodedTable: _table,
    NetworkTable: _network_table,
    NetworkNews: lambda frame: (Kind.NETWORK, [_json(frame._asdict())]),
    Ended: lambda frame: (Kind.ENDED, [_text(frame.reason)]),
}


# Bytes to frames


def decode(kind: int, body: Payload) -> Any:
    """The `Frame`, whose contents are views of the body. A body that is not one raises CodecError."""
    try:
        return _DECODERS[kind](body)
    except (StructError, ValueError, TypeError, KeyError, RecursionError):
        raise CodecError("frame malformed", f"{kind_name(kind)} malformed") from None


def _read_send(body: Payload) -> Send:
    service, flags, size = SEND.unpack_from(body)
    at = SEND.size + size
    if at > len(body) or flags > NOTICE:
        raise ValueError
    return Send(_read_names(body[SEND.size : at]), memoryview(body)[at:], Service(service), flags == NOTICE)


def _read_messages(body: Payload) -> GroupMessages:
    values = MESSAGES.unpack_from(body)
    at = MESSAGES.size + values[12]
    if at > len(body):
        raise ValueError
    return GroupMessages(
        ProcessId(*values[0:3]),
        values[3],
        values[4],
        _read_names(body[MESSAGES.size : at]),
        memoryview(body)[at:],
        Service(values[5]),
        _place(values[6:12]),
    )


def _read_names(field: Payload) -> tuple[str, ...]:
    names = unpack_names(bytes(field))
    if not names or "" in names:
        raise ValueError
    return names


def _place(values: tuple[int, ...]) -> Place:
    ring_seq, representative, seq, configuration_seq, configuration_representative, index = values
    key = OrderKey(
        RingId(ring_seq, representative), seq, RingId(configuration_seq, configuration_representative)
    )
    return Place(key, index)


def _read_view(body: Payload) -> GroupView:
    number, *place, name_bytes, changed_bytes, members, together = VIEW.unpack_from(body)
    changed_at = VIEW.size + name_bytes
    members_at = changed_at + changed_bytes
    together_at = members_at + members * PROCESS.size
    if together_at + together * PROCESS.size != len(body):
        raise ValueError
    view = memoryview(body)
    return GroupView(
        _read_text(view[VIEW.size : changed_at]),
        VIEW_KINDS[number],
        _read_processes(view[members_at:together_at]),
        _read_processes(view[together_at:]),
        _place(tuple(place)),
        _read_text(view[changed_at:members_at]),
    )


def _read_processes(field: Payload) -> tuple[ProcessId, ...]:
    return tuple(map(ProcessId._make, PROCESS.iter_unpack(field)))


def _read_text(field: Payload) -> str:
    return str(field, "utf-8")


def _read_name(field: Payload) -> str:
    if not 1 <= len(field) <= NAME_BYTES_MAX:
        raise ValueError
    return _read_text(field)


def _read_flag(value: int) -> bool:
    if value > 1:
        raise ValueError
    return value == 1


def _read_safe(body: Payload) -> BecameSafe:
    values = SAFE.unpack_from(body)
    names = _read_names(body[SAFE.size :])
    return BecameSafe(ProcessId(*values[:3]), values[3], values[4], names, _place(values[5:]))


def _read_chunk(body: Payload) -> tuple[ProcessId, Place, bool, str, Payload]:
    *values, last, size = CHUNK.unpack_from(body)
    at = CHUNK.size + size
    name = _read_name(body[CHUNK.size : at])
    if at > len(body):
        raise ValueError
    return ProcessId(*values[:3]), _place(tuple(values[3:])), _read_flag(last), name, memoryview(body)[at:]


def _read_state(body: Payload) -> State:
    joiner, place, last, group, content = _read_chunk(body)
    return State(group, joiner, place, last, content)


def _read_state_chunk(body: Payload) -> StateChunk:
    donor, place, last, group, content = _read_chunk(body)
    return StateChunk(group, donor, content, last, place)


def _read_process_place(body: Payload) -> tuple[str, ProcessId, Place]:
    values = PROCESS_PLACE.unpack_from(body)
    return _read_name(body[PROCESS_PLACE.size :]), ProcessId(*values[:3]), _place(values[3:])


def _read_state_begins(body: Payload) -> StateBegins:
    group, donor, place = _read_process_place(body)
    return StateBegins(group, None if donor == NOBODY else donor, place)


def _read_join(body: Payload) -> Join:
    request, policy, flags = JOIN.unpack_from(body)
    if flags > DONOR | WANTS_STATE:
        raise ValueError
    name = _read_name(body[JOIN.size :])
    return Join(request, name, Policy(policy), bool(flags & DONOR), bool(flags & WANTS_STATE))


def _read_request_name(body: Payload) -> tuple[int, str]:
    return REQUEST.unpack_from(body)[0], _read_name(body[REQUEST.size :])


def _read_hello(body: Payload) -> Hello:
    read = json.loads(bytes(body))
    name, version = read["name"], _whole(read["version"])
    if not isinstance(name, str) or len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError
    return Hello(name, version)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _read_welcome(body: Payload) -> Welcome:
    read = json.loads(bytes(body))
    limits = Limits(**{name: _whole(read["limits"][name]) for name in Limits._fields})
    process = ProcessId(*map(_whole, read["process"]))
    return Welcome(
        process, _whole(read["cluster_id"]), _whole(read["credit"]), limits, _whole(read["version"])
    )


def _read_table(body: Payload) -> GroupTable:
    (request,) = REQUEST.unpack_from(body)
    read = json.loads(bytes(body[REQUEST.size :]))
    groups = {
        name: tuple(ProcessId(*map(_whole, process)) for process in members) for name, members in read.items()
    }
    return GroupTable(request, groups)


def _read_ask_networks(body: Payload) -> AskNetworks:
    request, watch = NETWORKS.unpack(body)
    return AskNetworks(request, _read_flag(watch))


def _read_network_table(body: Payload) -> NetworkTable:
    (request,) = REQUEST.unpack_from(body)
    read = json.loads(bytes(body[REQUEST.size :]))
    fields = NetworkStatus._fields
    networks = tuple(NetworkStatus(*(_string(each[name]) for name in fields)) for each in read)
    return NetworkTable(request, networks)


def _read_network(body: Payload) -> NetworkNews:
    read = json.loads(bytes(body))
    ring, seq, configuration = read["key"]
    key = OrderKey(RingId(*map(_whole, ring)), _whole(seq), RingId(*map(_whole, configuration)))
    name, before, state, why = (_string(read[field]) for field in ("name", "before", "state", "why"))
    return NetworkNews(name, before, state, why, key)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _read_refused(body: Payload) -> Refused:
    return Refused(REQUEST.unpack_from(body)[0], _lenient(body[REQUEST.size :]))


def _lenient(field: Payload) -> str:
    return str(field, "utf-8", "replace")


def _read_gap(body: Payload) -> Gap:
    messages, size = GAP.unpack_from(body)
    return Gap(_read_name(body[GAP.size :]), messages, size)


def _read_large(body: Payload) -> Large:
    request, kind, total = LARGE.unpack(body)
    return Large(request, Kind(kind), total)


def _read_bye(body: Payload) -> Bye:
    if body:
        raise ValueError
    return Bye()


_DECODERS: dict[int, Callable[[Payload], Frame]] = {
    Kind.HELLO: _read_hello,
    Kind.JOIN: _read_join,
    Kind.LEAVE: lambda body: Leave(*_read_request_name(body)),
    Kind.SEND: _read_send,
    Kind.STATE: _read_state,
    Kind.GROUPS: lambda body: AskGroups(*REQUEST.unpack(body)),
    Kind.NETWORKS: _read_ask_networks,
    Kind.BYE: _read_bye,
    Kind.LARGE: _read_large,
    Kind.PART: Part,
    Kind.WELCOME: _read_welcome,
    Kind.REFUSED: _read_refused,
    Kind.DONE: lambda body: Done(*REQUEST.unpack(body)),
    Kind.CREDIT: lambda body: Credit(*CREDIT.unpack(body)),
    Kind.MESSAGES: _read_messages,
    Kind.VIEW: _read_view,
    Kind.SAFE: _read_safe,
    Kind.STATE_ASKED: lambda body: StateAsked(*_read_process_place(body)),
    Kind.STATE_BEGINS: _read_state_begins,
    Kind.STATE_CHUNK: _read_state_chunk,
    Kind.GAP: _read_gap,
    Kind.TABLE: _read_table,
    Kind.NETWORK_TABLE: _read_network_table,
    Kind.NETWORK: _read_network,
    Kind.ENDED: lambda body: Ended(_lenient(body)),
}


# Frames out of a stream


class Assembly:
    """The body that a LARGE announced, filled by its PARTs."""

    __slots__ = ("_buffer", "_filled", "kind", "total")

    def __init__(self, kind: Kind, total: int) -> None:
        self.kind = kind
        self.total = total
        self._buffer = bytearray(total)
        self._filled = 0

    def add(self, content: Payload) -> bool:
        """Whether it is whole now. More than was announced, or nothing at all, raises CodecError."""
        stop = self._filled + len(content)
        if not content or stop > self.total:
            raise CodecError("frame malformed", "PART does not fit its LARGE")
        self._buffer[self._filled : stop] = content
        self._filled = stop
        return stop == self.total

    @property
    def body(self) -> memoryview:
        return memoryview(self._buffer).toreadonly()


class FrameReader:
    """Puts frames together from what a socket gives.

    `kinds` are those that the other side may send, and the longest body of each. With `large_bytes_max` the
    parts of a LARGE come out as the one frame that they are; without, as they come.
    """

    def __init__(self, kinds: Mapping[int, int] = DAEMON_KINDS, large_bytes_max: int = 0) -> None:
        self._kinds = kinds
        self._large_bytes_max = large_bytes_max
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._assembly: Assembly | None = None

    def __len__(self) -> int:
        """Bytes that were fed and are not taken yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        if self._at == len(self._buffer):
            self._buffer, self._at = data, 0
            return
        if isinstance(self._buffer, bytes):
            self._buffer = bytearray(memoryview(self._buffer)[self._at :])
        else:
            del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def take(self, most: int = 2**31) -> list[tuple[int, Payload]]:
        """The frames that are whole, kind and body, so many at most.

        What cannot be a frame raises CodecError, once the frames before it were taken.
        """
        found: list[tuple[int, Payload]] = []
        try:
            while len(found) < most and (frame := self._next()) is not None:
                found += self._assemble(*frame) if self._large_bytes_max else [frame]
        except CodecError:
            if not found:
                raise
        return found

    def _next(self) -> tuple[int, bytes] | None:
        start = self._at + HEAD.size
        if start > len(self._buffer):
            return None
        length, kind = HEAD.unpack_from(self._buffer, self._at)
        if length > self._kinds.get(kind, -1):
            raise _unfit(kind, length, kind in self._kinds)
        stop = start + length
        if stop > len(self._buffer):
            return None
        self._at = stop
        with memoryview(self._buffer) as view:
            return kind, view[start:stop].tobytes()

    def _assemble(self, kind: int, body: bytes) -> list[tuple[int, Payload]]:
        if kind == Kind.LARGE:
            large = _read_large_body(body)
            if not 0 < large.total <= self._large_bytes_max or self._assembly is not None:
                raise CodecError("frame malformed", f"LARGE of {large.total} bytes out of place")
            self._assembly = Assembly(large.kind, large.total)
            return []
        if kind != Kind.PART:
            return [(kind, body)]
        assembly = self._assembly
        if assembly is None:
            raise CodecError("frame malformed", "PART without a LARGE")
        if not assembly.add(body):
            return []
        self._assembly = None
        return [(assembly.kind, assembly.body)]


def _read_large_body(body: bytes) -> Large:
    large: Large = decode(Kind.LARGE, body)
    return large


def _unfit(kind: int, length: int, known: bool) -> CodecError:
    if not known:
        return CodecError("frame unknown", f"{kind_name(kind)} is not expected here")
    return CodecError("frame too long", f"{kind_name(kind)} of {length} bytes")
