"""Frames to bytes and back, and frames out of a stream of bytes.

Every length that comes from the other side is checked; whatever is wrong raises CodecError and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any

from totempole.errors import CodecError
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.packing import INFO_BYTES_MAX, pack_names, unpack_names
from totempole.session import (
    DAEMON_KINDS,
    FRAME_BYTES_MAX,
    HEAD,
    NAME_BYTES_MAX,
    TEXT_BYTES_MAX,
    Append,
    AskBarrier,
    AskGroups,
    AskNetworks,
    BarrierPassed,
    Bye,
    Credit,
    Done,
    EncodedTable,
    Ended,
    FindRun,
    FollowEnd,
    FollowEnded,
    Following,
    FollowLog,
    Frame,
    Freed,
    Gap,
    GroupTable,
    Hello,
    HoldLog,
    Join,
    Kind,
    Large,
    Leave,
    Limits,
    LogRuns,
    NetworkNews,
    NetworkStatus,
    NetworkTable,
    Part,
    Policy,
    Refused,
    RunAccepted,
    RunDurable,
    RunFenced,
    RunLost,
    RunName,
    RunPlaced,
    RunUnknown,
    Send,
    Shared,
    State,
    Unfollow,
    Welcome,
    kind_name,
)
from totempole.types import ConfigurationKind, Fence, OrderKey, Payload, Place, ProcessId, RingId, Service

# Where each field stands

SEND = Struct(">BBH")
JOIN = Struct(">IBBB")
INFO = Struct(">H")
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
APPEND = Struct(">IBBI")
FENCE = Struct(">QQQB")
HOLD = Struct(">Iq")
RUN = Struct(">I IQQ")
RUN_ACCEPTED = Struct(">I IQQ Q")
RUN_PLACED = Struct(">I IQQ QII")
RUN_FENCED = Struct(">I IQQ Qq")
RUN_UNKNOWN = Struct(">I IQQ B")
REPEAT = Struct(">IQ")
FOLLOWING = Struct(">IQQQ")
RUNS = Struct(">QQB")
FOLLOW_ENDED = Struct(">B")
PASSED = Struct(">IQ")
SHARED = Struct(">BIIQ")
NOTICE = 1
"""A flag of SEND."""
WANTS_DURABLE, HAS_FENCE = 1, 2
"""Flags of APPEND."""
DONOR, WANTS_STATE = 1, 2
"""Flags of JOIN."""
NOBODY = ProcessId(0, 0, 0)
VIEW_KINDS = {1: ConfigurationKind.REGULAR, 2: ConfigurationKind.TRANSITIONAL}
VIEW_NUMBERS = {kind: number for number, kind in VIEW_KINDS.items()}

# Frames to bytes

JOINED_BYTES_MAX = 16_384
"""A longer frame is written from where its contents are."""

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
    if size <= min(largest, JOINED_BYTES_MAX):
        return [(b"".join((HEAD.pack(size, kind), *parts)),)]
    if size <= largest:
        return [(HEAD.pack(size, kind) + parts[0], *parts[1:])]
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
    info = [INFO.pack(len(each)) + each for each in view.info]
    return Kind.VIEW, [b"".join((head, name, changed, *map(_pack_process, (*members, *together)), *info))]


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


def pack_table(
    groups: Mapping[str, tuple[ProcessId, ...]], info: Mapping[str, Mapping[ProcessId, bytes]]
) -> bytes:
    return _json({name: _with_info(members, info.get(name, {})) for name, members in groups.items()})


def _with_info(
    members: tuple[ProcessId, ...], info: Mapping[ProcessId, bytes]
) -> Sequence[Sequence[int | str]]:
    if not info:
        return members
    return [[*member, *([info[member].hex()] if member in info else [])] for member in members]


def _network_table(frame: NetworkTable) -> _Body:
    networks = [network._asdict() for network in frame.networks]
    return Kind.NETWORK_TABLE, [REQUEST.pack(frame.request), _json(networks)]


def _join(frame: Join) -> _Body:
    flags = DONOR * frame.donor | WANTS_STATE * frame.wants_state
    name = frame.group.encode()
    return Kind.JOIN, [JOIN.pack(frame.request, frame.policy, flags, len(name)), name, frame.info]


def _append(frame: Append) -> _Body:
    name = frame.log.encode()
    flags, fence = WANTS_DURABLE * frame.wants_durable, b""
    if frame.fence is not None:
        flags |= HAS_FENCE
        called = frame.fence.name.encode()
        fence = FENCE.pack(frame.fence.number, frame.fence.low, frame.fence.high, len(called)) + called
    head = APPEND.pack(frame.request, flags, len(name), len(frame.keys))
    return Kind.APPEND, [b"".join((head, name, fence, frame.keys)), frame.batch]


def _placed(frame: RunPlaced) -> _Body:
    request, run, position, count, repeats = frame
    head = RUN_PLACED.pack(request, *run, position, count, len(repeats))
    return Kind.PLACED, [b"".join([head, *(REPEAT.pack(*repeat) for repeat in repeats)])]


def _runs(frame: LogRuns) -> _Body:
    name = frame.log.encode()
    return Kind.RUNS, [RUNS.pack(frame.place, frame.position, len(name)) + name, frame.runs]


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
    Append: _append,
    FindRun: lambda frame: (Kind.FIND, [RUN.pack(frame.request, *frame.run)]),
    HoldLog: lambda frame: (Kind.HOLD, [HOLD.pack(frame.request, frame.position), frame.reader.encode()]),
    FollowLog: lambda frame: (Kind.FOLLOW, [REQUEST.pack(frame.request), frame.log.encode()]),
    Unfollow: lambda frame: (Kind.UNFOLLOW, [frame.log.encode()]),
    AskBarrier: lambda frame: (Kind.BARRIER, [REQUEST.pack(frame.request)]),
    Bye: lambda frame: (Kind.BYE, []),
    Large: lambda frame: (Kind.LARGE, [LARGE.pack(*frame)]),
    Part: lambda frame: (Kind.PART, [frame.content]),
    Freed: lambda frame: (Kind.FREED, [CREDIT.pack(frame.total)]),
    Shared: lambda frame: (Kind.SHARED, [SHARED.pack(*frame)]),
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
    GroupTable: lambda frame: _table(EncodedTable(frame.request, pack_table(frame.groups, frame.info))),
    EncodedTable: _table,
    NetworkTable: _network_table,
    NetworkNews: lambda frame: (Kind.NETWORK, [_json(frame._asdict())]),
    RunAccepted: lambda frame: (
        Kind.ACCEPTED,
        [RUN_ACCEPTED.pack(frame.request, *frame.run, frame.position)],
    ),
    RunDurable: lambda frame: (Kind.DURABLE, [RUN.pack(frame.request, *frame.run)]),
    RunPlaced: _placed,
    RunFenced: lambda frame: (
        Kind.FENCED,
        [RUN_FENCED.pack(frame.request, *frame.run, frame.mark, frame.position)],
    ),
    RunLost: lambda frame: (Kind.LOST, [RUN.pack(frame.request, *frame.run), _text(frame.why)]),
    RunUnknown: lambda frame: (Kind.UNKNOWN, [RUN_UNKNOWN.pack(frame.request, *frame.run, frame.is_held)]),
    Following: lambda frame: (Kind.FOLLOWING, [FOLLOWING.pack(*frame)]),
    LogRuns: _runs,
    FollowEnded: lambda frame: (Kind.FOLLOW_ENDED, [FOLLOW_ENDED.pack(frame.why)]),
    BarrierPassed: lambda frame: (Kind.PASSED, [PASSED.pack(*frame)]),
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
    info_at = together_at + together * PROCESS.size
    if info_at > len(body):
        raise ValueError
    view = memoryview(body)
    return GroupView(
        _read_text(view[VIEW.size : changed_at]),
        VIEW_KINDS[number],
        _read_processes(view[members_at:together_at]),
        _read_processes(view[together_at:info_at]),
        _place(tuple(place)),
        _read_text(view[changed_at:members_at]),
        _read_info(view[info_at:], members),
    )


def _read_info(field: Payload, members: int) -> tuple[bytes, ...]:
    found: list[bytes] = []
    at = 0
    while at < len(field):
        (length,) = INFO.unpack_from(field, at)
        at += INFO.size + length
        found.append(bytes(field[at - length : at]))
    if at != len(field) or len(found) not in (0, members):
        raise ValueError
    return tuple(found)


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
    request, policy, flags, size = JOIN.unpack_from(body)
    info = bytes(body[JOIN.size + size :])
    if flags > DONOR | WANTS_STATE or JOIN.size + size > len(body) or len(info) > INFO_BYTES_MAX:
        raise ValueError
    name = _read_name(body[JOIN.size : JOIN.size + size])
    return Join(request, name, Policy(policy), bool(flags & DONOR), bool(flags & WANTS_STATE), info)


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
        name: tuple(ProcessId(*map(_whole, process[:3])) for process in members)
        for name, members in read.items()
    }
    info = {
        name: {ProcessId(*each[:3]): bytes.fromhex(each[3]) for each in members if len(each) > 3}
        for name, members in read.items()
    }
    return GroupTable(request, groups, {name: told for name, told in info.items() if told})


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


def _read_append(body: Payload) -> Append:
    request, flags, name_bytes, keys_bytes = APPEND.unpack_from(body)
    fence_at = keys_at = APPEND.size + name_bytes
    view = memoryview(body)
    name = _read_name(view[APPEND.size : fence_at])
    fence = None
    if flags & HAS_FENCE:
        fence, keys_at = _read_fence(view, fence_at)
    batch_at = keys_at + keys_bytes
    if batch_at > len(body) or flags > WANTS_DURABLE | HAS_FENCE:
        raise ValueError
    wants_durable = bool(flags & WANTS_DURABLE)
    return Append(request, name, view[batch_at:], view[keys_at:batch_at], wants_durable, fence)


def _read_fence(body: memoryview, start: int) -> tuple[Fence, int]:
    """The fence that begins here, and where it ends."""
    number, low, high, name_bytes = FENCE.unpack_from(body, start)
    stop = start + FENCE.size + name_bytes
    if stop > len(body):
        raise ValueError
    return Fence(_read_name(body[start + FENCE.size : stop]), number, low, high), stop


def _read_hold(body: Payload) -> HoldLog:
    request, position = HOLD.unpack_from(body)
    return HoldLog(request, _read_name(body[HOLD.size :]), position)


def _read_run(body: Payload) -> tuple[int, RunName]:
    request, *run = RUN.unpack(body)
    return request, _run(run)


def _run(values: list[int]) -> RunName:
    origin, life, number = values
    return origin, life, number


def _read_accepted(body: Payload) -> RunAccepted:
    request, *run, position = RUN_ACCEPTED.unpack(body)
    return RunAccepted(request, _run(run), position)


def _read_placed(body: Payload) -> RunPlaced:
    request, origin, life, number, position, count, repeats = RUN_PLACED.unpack_from(body)
    found = tuple(REPEAT.iter_unpack(memoryview(body)[RUN_PLACED.size :]))
    if len(found) != repeats:
        raise ValueError
    return RunPlaced(request, (origin, life, number), position, count, found)


def _read_fenced(body: Payload) -> RunFenced:
    request, *run, mark, position = RUN_FENCED.unpack(body)
    return RunFenced(request, _run(run), mark, position)


def _read_lost(body: Payload) -> RunLost:
    return RunLost(*_read_run(body[: RUN.size]), _lenient(body[RUN.size :]))


def _read_unknown(body: Payload) -> RunUnknown:
    request, *run, held = RUN_UNKNOWN.unpack(body)
    return RunUnknown(request, _run(run), _read_flag(held))


def _read_runs(body: Payload) -> LogRuns:
    place, position, name_bytes = RUNS.unpack_from(body)
    at = RUNS.size + name_bytes
    if at > len(body):
        raise ValueError
    return LogRuns(_read_text(body[RUNS.size : at]), memoryview(body)[at:], place, position)


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
    Kind.APPEND: _read_append,
    Kind.FIND: lambda body: FindRun(*_read_run(body)),
    Kind.HOLD: _read_hold,
    Kind.FOLLOW: lambda body: FollowLog(*_read_request_name(body)),
    Kind.UNFOLLOW: lambda body: Unfollow(_read_name(body)),
    Kind.BARRIER: lambda body: AskBarrier(*REQUEST.unpack(body)),
    Kind.BYE: _read_bye,
    Kind.LARGE: _read_large,
    Kind.PART: Part,
    Kind.FREED: lambda body: Freed(*CREDIT.unpack(body)),
    Kind.SHARED: lambda body: Shared(*SHARED.unpack(body)),
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
    Kind.ACCEPTED: _read_accepted,
    Kind.DURABLE: lambda body: RunDurable(*_read_run(body)),
    Kind.PLACED: _read_placed,
    Kind.FENCED: _read_fenced,
    Kind.LOST: _read_lost,
    Kind.UNKNOWN: _read_unknown,
    Kind.FOLLOWING: lambda body: Following(*FOLLOWING.unpack(body)),
    Kind.RUNS: _read_runs,
    Kind.FOLLOW_ENDED: lambda body: FollowEnded(FollowEnd(*FOLLOW_ENDED.unpack(body))),
    Kind.PASSED: lambda body: BarrierPassed(*PASSED.unpack(body)),
    Kind.ENDED: lambda body: Ended(_lenient(body)),
}


# Frames out of a stream

ROOM_BYTES_LEAST = 16_384
ROOM_BYTES_MOST = 1024 * 1024
"""Of a reader's own buffer, unless one frame needs more."""


TOLD_PARTS = 4
"""A program says what is free of its shared memory when it is so large a part of it."""


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


class SharedReader:
    """Takes bodies out of the memory that a program shares with its daemon (`session.shared`)."""

    __slots__ = ("_memory", "_read", "_told")

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._read = self._told = 0

    def take(self, shared: Shared) -> bytes:
        """The body. One that is not within the memory raises CodecError."""
        stop = shared.start + shared.length
        if stop > len(self._memory) or shared.total < self._read + shared.length:
            raise CodecError("frame malformed", "SHARED beyond the memory")
        self._read = shared.total
        return self._memory[shared.start : stop].tobytes()

    def news(self) -> int | None:
        """What the daemon is to be told is free, if that is worth a frame."""
        if self._read - self._told < len(self._memory) // TOLD_PARTS:
            return None
        self._told = self._read
        return self._read


class FrameReader:
    """Puts frames together from what a socket gives.

    What was read is fed (`feed`), or is read into the reader's own buffer (`room`, `filled`), which spares a
    copy.

    `kinds` are those that the other side may send, and the longest body of each. With `large_bytes_max` the
    parts of a LARGE come out as the one frame that they are; without, as they come. Bodies that lie in the
    memory that is `shared` are copied out of it.
    """

    def __init__(
        self,
        kinds: Mapping[int, int] = DAEMON_KINDS,
        large_bytes_max: int = 0,
        shared: SharedReader | None = None,
    ) -> None:
        self._kinds = kinds
        self._shared = shared
        self._large_bytes_max = large_bytes_max
        self._buffer: bytes | bytearray = b""
        self._at = self._end = 0
        """What is between them in the buffer has not been taken."""
        self._wanted = ROOM_BYTES_LEAST
        """How large the buffer should be for the next read."""
        self._assembly: Assembly | None = None

    def __len__(self) -> int:
        """Bytes that came and are not taken yet."""
        return self._end - self._at

    def feed(self, data: bytes) -> None:
        if self._at == self._end:
            self._buffer = data
        elif isinstance(self._buffer, bytes):
            self._buffer = bytearray(memoryview(self._buffer)[self._at : self._end])
            self._buffer += data
        else:
            self._buffer[self._end :] = data
            del self._buffer[: self._at]
        self._at, self._end = 0, len(self._buffer)

    def room(self) -> memoryview:
        """Where to read into. It grows with what comes at once."""
        if self._at == self._end:
            self._at = self._end = 0
        if len(self._buffer) < self._wanted or isinstance(self._buffer, bytes):
            self._move_to(bytearray(max(self._wanted, 2 * len(self))))
        elif len(self._buffer) - self._end < len(self._buffer) // 4:
            spare = len(self._buffer) - len(self) >= len(self._buffer) // 2
            self._move_to(self._buffer if spare else bytearray(2 * len(self._buffer)))
        return memoryview(self._buffer)[self._end :]

    def _move_to(self, buffer: bytearray) -> None:
        """What has not been taken comes to its beginning."""
        count = len(self)
        with memoryview(buffer) as there, memoryview(self._buffer) as here:
            there[:count] = here[self._at : self._end]
        self._buffer, self._at, self._end = buffer, 0, count

    def filled(self, count: int) -> None:
        """So many bytes were read into `room`."""
        assert 0 <= count <= len(self._buffer) - self._end, "no more than there was room for"
        self._end += count
        if self._end == len(self._buffer):
            self._wanted = min(2 * len(self._buffer), ROOM_BYTES_MOST)

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
        if start > self._end:
            return None
        length, kind = HEAD.unpack_from(self._buffer, self._at)
        if length > self._kinds.get(kind, -1):
            raise _unfit(kind, length, kind in self._kinds)
        stop = start + length
        if stop > self._end:
            return None
        self._at = stop
        with memoryview(self._buffer) as view:
            body = view[start:stop].tobytes()
        return self._fetch(body) if kind == Kind.SHARED else (kind, body)

    def _fetch(self, body: bytes) -> tuple[int, bytes]:
        """The frame in whose place this one came."""
        shared: Shared = decode(Kind.SHARED, body)
        if shared.length > self._kinds.get(shared.kind, -1):
            raise _unfit(shared.kind, shared.length, shared.kind in self._kinds)
        if self._shared is None:
            raise CodecError("frame malformed", "SHARED without memory that is shared")
        return shared.kind, self._shared.take(shared)

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
