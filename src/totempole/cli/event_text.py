"""Events of groups as text: for eyes, on one line each and safe to show; for programs, as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from totempole.client.events import Event, Gap, Messages, Reconnected, Safe, State, View
from totempole.types import ProcessId

Members = dict[str, tuple[ProcessId, ...]]


def shown(payload: bytes) -> str:
    """A message on one line: what is no text, or would move the cursor, as Python writes it."""
    return on_one_line(bytes(payload).decode("utf-8", "backslashreplace"))


def on_one_line(text: str) -> str:
    """A message or a group's name: both may have any characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _names(groups: Iterable[str]) -> str:
    return ",".join(map(on_one_line, groups))


# Messages


def as_text(event: Messages, payloads: Sequence[bytes], long: bool) -> bytes:
    head = f"{_names(event.groups)} {event.sender} " if long else ""
    return "".join(f"{head}{shown(payload)}\n" for payload in payloads).encode()


def as_raw(payloads: Iterable[bytes]) -> bytes:
    return b"".join(payloads)


def as_json(event: Event, payloads: Sequence[bytes] = ()) -> bytes:
    """An object per line: one for each message, one for any other event."""
    if isinstance(event, Messages):
        documents = [_message(event, index, payload) for index, payload in enumerate(payloads)]
    else:
        documents = [_document(event)]
    return "".join(f"{json.dumps(document, ensure_ascii=False)}\n" for document in documents).encode()


def _message(event: Messages, index: int, payload: bytes) -> dict[str, Any]:
    return {
        "event": "message",
        "groups": event.groups,
        "sender": str(event.sender),
        "number": event.number + index,
        "service": event.service.name.lower(),
        "place": str(event.place),
    } | content(payload)


def content(payload: bytes) -> dict[str, str]:
    try:
        return {"text": bytes(payload).decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode("ascii")}


# Other events


def _document(event: Event) -> dict[str, Any]:
    match event:
        case View(kind, group, members, together, place, changed, info):
            return {
                "event": "view",
                "group": group,
                "kind": kind,
                "members": [*map(str, members)],
                "together": [*map(str, together)],
                "changed": changed,
                "place": str(place),
                "info": {str(member): content(each) for member, each in info.items()},
            }
        case Safe(sender, number, count, groups, place):
            return {
                "event": "safe",
                "groups": groups,
                "sender": str(sender),
                "number": number,
                "count": count,
                "place": str(place),
            }
        case Gap(group, messages, size):
            return {"event": "gap", "group": group, "messages": messages, "bytes": size}
        case Reconnected():
            seen = {group: place and str(place) for group, place in event.seen.items()}
            return {
                "event": "reconnected",
                "process": str(event.process),
                "before": str(event.before),
                "reason": event.reason,
                "seen": seen,
            }
        case _:
            return {"event": type(event).__name__.lower()}


def as_remark(event: Event, members: Members) -> str:
    """For eyes. `members` is who was in each group before, and is kept up to date."""
    match event:
        case View():
            return _view(event, members)
        case Safe(sender, number, count, groups):
            last = f" to {number + count - 1:,}" if count > 1 else ""
            return f"{_names(groups)}: {number:,}{last} of {sender}: safe"
        case Gap(group, messages, size):
            lost = f"{messages:,} messages ({size:,} bytes)"
            return f"{on_one_line(group)}: {lost} dropped: they were not read in time"
        case Reconnected():
            return _reconnected(event, members)
        case State(group):
            return f"{on_one_line(group)}: state"
        case _:
            return type(event).__name__


def _view(view: View, members: Members) -> str:
    before = members.get(view.group, ())
    members[view.group] = view.members
    news = [f"+{process}" for process in view.members if process not in before] if before else []
    news += [f"-{process}" for process in before if process not in view.members]
    kind = "" if view.kind == "regular" else "transitional, "
    why = {"join": "joined", "leave": "left", "disconnect": "gone", "configuration": "hosts came or went"}
    reason = f" ({why.get(view.changed, view.changed)}: {' '.join(news)})" if news else ""
    count = f"{len(view.members)} member{'s' if len(view.members) != 1 else ''}"
    return f"{on_one_line(view.group)}: {kind}{count}: {' '.join(map(str, view.members))}{reason}"


def _reconnected(event: Reconnected, members: Members) -> str:
    members.clear()
    missed = ", ".join(
        f"in {on_one_line(group)} {f'after {place}' if place else 'from the beginning'}"
        for group, place in sorted(event.seen.items())
    )
    return f"the daemon is back, and this is {event.process} now; missed: all that was sent {missed}"
