"""What the group layer tells a process: messages, views, news of safety, and state for a joiner.

Events for one process come in the total order. `place` sorts as that order does, across all groups.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.types import ConfigurationKind, Payload, Place, ProcessId, Service


class GroupMessages(NamedTuple):
    """Messages of one sender, packed (`groups.Batch` cuts them out), in the views last installed."""

    sender: ProcessId
    number: int
    """Counts what the sender has sent: the first of these messages."""
    count: int  # type: ignore[assignment]
    groups: tuple[str, ...]
    """All that they were sent to."""
    batch: Payload
    service: Service
    place: Place


class GroupView(NamedTuple):
    """Who is in the group from here on.

    `together` are those who came along from the view before: they have delivered the same messages in it.
    A transitional view has no others, but for who joins in the transitional configuration. `changed` says
    why: join, leave, disconnect, configuration.
    """

    group: str
    kind: ConfigurationKind
    members: tuple[ProcessId, ...]
    together: tuple[ProcessId, ...]
    place: Place
    changed: str
    info: tuple[bytes, ...] = ()
    """What each member said of itself when it joined, in their order. Nothing if none has said anything."""


class BecameSafe(NamedTuple):
    """These messages, delivered before as agreed ones, are now at every processor of the configuration."""

    sender: ProcessId
    number: int
    count: int  # type: ignore[assignment]
    groups: tuple[str, ...]
    place: Place
    """Where the messages were delivered."""


class StateAsked(NamedTuple):
    """To the donor: give the joiner the group's state as of this very place."""

    group: str
    joiner: ProcessId
    place: Place


class StateBegins(NamedTuple):
    """To the joiner: the state as of this place will come from that donor. What came before counts no more.

    No donor: there is no state to be had; begin afresh, with the messages since joining.
    """

    group: str
    donor: ProcessId | None
    place: Place


class StateChunk(NamedTuple):
    """To the joiner: the next piece of the state."""

    group: str
    donor: ProcessId
    content: Payload
    last: bool
    place: Place


class ToProcesses(NamedTuple):
    """An event for processes of this processor, by their numbers."""

    processes: tuple[int, ...]
    event: GroupEvent


class Taken(NamedTuple):
    """So much of what the process sent has been handed to the ring: it may send as much again."""

    process: int
    weight: int


GroupEvent = GroupMessages | GroupView | BecameSafe | StateAsked | StateBegins | StateChunk
