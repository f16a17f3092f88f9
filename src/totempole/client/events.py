"""What a program receives: messages, views, and the rarer news, in the total order.

A `place` sorts as the total order does, across all groups and at all processors: two programs that compare
places agree on what came first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from totempole.types import Place, ProcessId, Service


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one sender that are next in the order, in the views last received."""

    sender: ProcessId
    """Who sent them: a program, which need not be a member of the group."""
    payloads: Sequence[bytes]
    """The messages, in their order. Each is cut out of the batch only when it is asked for."""
    groups: tuple[str, ...]
    """All that they were sent to, also groups that this program has not joined."""
    service: Service
    place: Place
    number: int
    """Counts what the sender has sent: the number of the first of these messages."""


@dataclass(frozen=True, slots=True)
class View:
    """Who is in the group from here on."""

    kind: Literal["regular", "transitional"]
    """Transitional: members were lost, and the messages that follow are only known to have reached those who
    are named here. A regular view follows."""
    group: str
    members: tuple[ProcessId, ...]
    together: tuple[ProcessId, ...]
    """Those who came along from the view before: they have received the same messages in it."""
    place: Place
    changed: str
    """Why: join, leave, disconnect, or configuration (processors have come or gone)."""


@dataclass(frozen=True, slots=True)
class Safe:
    """These messages, received before, are now at every processor of the configuration.

    Comes for messages that were sent with `safe_notice=True`.
    """

    sender: ProcessId
    number: int
    """Of the first of them, as in `Messages`."""
    count: int
    groups: tuple[str, ...]
    place: Place
    """Where the messages were delivered: the `place` of their `Messages`."""


@dataclass(frozen=True, slots=True)
class State:
    """The group's state as of this place, for a program that joined with `want_state=True`.

    It comes once per join, after the view that brought the program in and before the first message. The
    state contains every message of the group up to `place`, and none after it.
    """

    group: str
    donor: ProcessId | None
    """The member that gave it."""
    data: bytes | None
    """None: no member had a state to give. Begin afresh, with the messages that follow."""
    place: Place


@dataclass(frozen=True, slots=True)
class Gap:
    """This program fell behind, and messages of the group were dropped here: it joined with policy="shed"."""

    group: str
    messages: int
    """How many were dropped,"""
    bytes: int
    """and how large they were together."""


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The daemon had gone away and is back. The program is a new process now, and in its groups again.

    What happened in a group between `seen[group]` and the view that follows was missed. A group that was
    joined with `want_state` brings its `State` again, after that view.
    """

    process: ProcessId
    """Who the program is from here on."""
    before: ProcessId
    """Who it was."""
    unacknowledged: int
    """So many messages were accepted from the program, but not known to have been taken by the ring: the
    last ones it multicast. They may have been delivered, or not, or the first of them only."""
    reason: str
    """Why the connection was lost."""
    seen: Mapping[str, Place | None] = field(default_factory=lambda: MappingProxyType({}))
    """For each group, the place of the last event that came before the loss. None: there was none."""


Event = Messages | View | Safe | State | Gap | Reconnected
"""What iterating over a group or a session gives."""
