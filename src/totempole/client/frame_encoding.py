"""Frames to bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
    PROCESS,
    PROCESS_PLACE,
    REQUEST,
    SAFE,
    SEND,
    VIEW,
    VIEW_NUMBERS,
    WANTS_STATE,
)
from totempole.client.frame_types import (
    FRAME_BYTES_MAX,
    HEAD,
    TEXT_BYTES_MAX,
    AskGroups,
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
    Part,
    Refused,
    Send,
    State,
    Welcome,
)
from totempole.errors import CodecError
from totempole.groups.body import pack_names
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.types import Payload, Place, ProcessId

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
    Ended: lambda frame: (Kind.ENDED, [_text(frame.reason)]),
}
