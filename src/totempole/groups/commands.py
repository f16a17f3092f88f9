"""What processes ask of the group layer. Misuse raises SessionError and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from totempole.core.inputs import Command
from totempole.types import Payload, Place, ProcessId, Service


@dataclass(frozen=True, slots=True)
class Connect(Command):
    """A new process, with a number above all that processes of this life have had."""

    process: int


@dataclass(frozen=True, slots=True)
class Disconnect(Command):
    """The process is gone: it leaves its groups once what it has sent before is sent."""

    process: int


@dataclass(frozen=True, slots=True)
class JoinGroup(Command):
    process: int
    group: str
    donor: bool = False
    wants_state: bool = False
    info: bytes = b""
    """What the other members are told of this one, with each view."""


@dataclass(frozen=True, slots=True)
class LeaveGroup(Command):
    process: int
    group: str


@dataclass(frozen=True, slots=True)
class Multicast(Command):
    """Messages for the members of all these groups, packed as `groups.pack` does. The sender need not be a
    member. `notice`: tell the receivers when they have become safe."""

    process: int
    groups: tuple[str, ...]
    batch: Payload
    service: Service
    notice: bool = False


@dataclass(frozen=True, slots=True)
class GiveState(Command):
    """A piece of the state that `StateAsked` asked for. Dropped if someone else gives it by now. A group name
    that no packet can carry raises ConfigurationError."""

    process: int
    group: str
    joiner: ProcessId
    place: Place
    content: Payload
    last: bool
