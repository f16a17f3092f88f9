"""Bytes to frames. Every length is checked; whatever is wrong raises CodecError and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from struct import error as StructError
from typing import Any

from totempole.client.frame_layout import (
    CHUNK,
    CREDIT,
    DONOR,
    GAP,
    JOIN,
    LARGE,
    MESSAGES,
    NOBODY,
    NOTICE,
    PROCESS,
    PROCESS_PLACE,
    REQUEST,
    SAFE,
    SEND,
    VIEW,
    VIEW_KINDS,
    WANTS_STATE,
)
from totempole.client.frame_types import (
    NAME_BYTES_MAX,
    AskGroups,
    Bye,
    Credit,
    Done,
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
    Part,
    Policy,
    Refused,
    Send,
    State,
    Welcome,
    kind_name,
)
from totempole.errors import CodecError
from totempole.groups.body import unpack_names
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.types import OrderKey, Payload, Place, ProcessId, RingId, Service


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
    Kind.ENDED: lambda body: Ended(_lenient(body)),
}
