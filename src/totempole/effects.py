"""What a protocol object asks of the world: the outputs of the one contract (docs/architecture.md).

A protocol takes one input at a time and returns a list of effects. Order is meaning: a driver executes the
list from first to last.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from totempole.segment.burst import Burst
from totempole.types import Configuration, MessageId, OrderKey, Payload, ProcessorId, RingId, Service

if TYPE_CHECKING:
    from totempole.groups.events import GroupEvent


class Channel(IntEnum):
    """Tokens and data travel on separate sockets, so that a node can drain its data before the token."""

    DATA = 0
    TOKEN = 1


class Transmit(NamedTuple):
    """Datagrams for one processor, or for every other one (`to` is None). `packet` is for traces only."""

    to: ProcessorId | None
    channel: Channel
    bursts: tuple[Burst, ...]
    packet: Any

    @property
    def datagrams(self) -> tuple[bytes, ...]:
        if len(self.bursts) == 1:
            return self.bursts[0].datagrams
        return tuple([datagram for burst in self.bursts for datagram in burst.datagrams])


class SetTimer(NamedTuple):
    """Sets or moves the named timer to an instant of the protocol's own clock."""

    timer: IntEnum
    at_us: int


class CancelTimer(NamedTuple):
    timer: IntEnum


class Persist(NamedTuple):
    """Write these values to stable storage, then answer `persisted(ticket)`."""

    ticket: int
    values: Mapping[str, int]


class Deliver(NamedTuple):
    """A message, in its place in the order, within the configuration last installed."""

    message: MessageId
    origin: ProcessorId
    payload: Payload
    service: Service
    key: OrderKey
    timestamp: int
    configuration: RingId


class InstallConfiguration(NamedTuple):
    configuration: Configuration
    key: OrderKey


class SafeUpTo(NamedTuple):
    """Every member of the ring has received all messages up to `seq`."""

    ring_id: RingId
    seq: int


class Heard(NamedTuple):
    """The processor has spoken for itself: where the datagrams at hand came from, it can be reached."""

    processor: ProcessorId
    just_now: bool
    """If not, it may be somebody's repetition: a hint where nothing better is known."""


class Impostor(NamedTuple):
    """Another processor, in that life of its own, uses this one's identifier."""

    incarnation: int


class SettingsDiffer(NamedTuple):
    """Another processor has a setting that the members of a ring should have in common, and another value."""

    processor: ProcessorId
    name: str
    theirs: int
    mine: int


class FormerLife(NamedTuple):
    """A processor sends Joins in an incarnation below one that it has had: its storage was rolled back,
    or somebody repeats what it once said."""

    processor: ProcessorId
    incarnation: int
    latest: int


class PushBack(NamedTuple):
    """The submission was refused: the send queue is full, and `Ready` follows; or the processor leaves."""


class Ready(NamedTuple):
    """Submissions are welcome again."""


class Stopped(NamedTuple):
    """The protocol has left the ring and takes no further input."""


class ToProcesses(NamedTuple):
    """An event of the group layer for processes of this processor, by their numbers."""

    processes: tuple[int, ...]
    event: GroupEvent


class Taken(NamedTuple):
    """So much of what the process sent has been handed to the ring: it may send as much again."""

    process: int
    weight: int


class Trace(NamedTuple):
    """A row for the trace: its kind and the columns that apply (totempole.trace.schema)."""

    kind: str
    columns: Mapping[str, Any]


Effect = (
    Transmit
    | SetTimer
    | CancelTimer
    | Persist
    | Deliver
    | InstallConfiguration
    | SafeUpTo
    | Heard
    | Impostor
    | SettingsDiffer
    | FormerLife
    | PushBack
    | Ready
    | Stopped
    | ToProcesses
    | Taken
    | Trace
)
