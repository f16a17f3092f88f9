"""What a stack asks of the world: the effects of the one contract. None of them knows a layer.

A stack takes one input at a time and returns a list of effects. Order is meaning: a driver executes the list
from first to last.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from totempole.segment.burst import Burst
from totempole.types import ProcessorId


class Channel(IntEnum):
    """Tokens and data travel on separate sockets, so that a node can drain its data before the token."""

    DATA = 0
    TOKEN = 1


class Role(IntEnum):
    """What a transmission is for, as far as a driver has to know: for its meters, and whom to send it to."""

    MESSAGE = 0
    RETRANSMISSION = 1
    TOKEN = 2
    TOKEN_AGAIN = 3
    SEARCH = 4
    """For processors that are perhaps not there: also to addresses where nobody has been heard yet."""
    CONTROL = 5


class Send(NamedTuple):
    """Datagrams for one processor, or for every other one (`to` is None)."""

    networks: tuple[int, ...]
    to: ProcessorId | None
    channel: Channel
    bursts: tuple[Burst, ...]
    role: Role
    packet: Any
    """The packet in these bytes, for traces and for filters of tests. No driver looks into it."""

    @property
    def datagrams(self) -> tuple[bytes, ...]:
        if len(self.bursts) == 1:
            return self.bursts[0].datagrams
        return tuple([datagram for burst in self.bursts for datagram in burst.datagrams])


LayerName = tuple[str, int]
"""A layer, and which instance of it: a node may have several rings."""


class TimerName(NamedTuple):
    """A timer of one instance of a layer: two rings of one node never share one."""

    layer: str
    instance: int
    timer: int
    """As the layer numbers them."""


class SetTimer(NamedTuple):
    """Sets or moves the timer to an instant of the stack's own clock."""

    timer: TimerName
    at_us: int


class CancelTimer(NamedTuple):
    timer: TimerName


Records = Mapping[str, Any]
"""Stable records by name: whole numbers and bytes."""


class Write(NamedTuple):
    """Write these records to stable storage, all or none, then answer `Written(ticket)`."""

    ticket: int
    records: Records


class Append(NamedTuple):
    """Append these frames to the log, in their order, and make them durable; then answer `Appended(ticket)`.
    `is_segment`: the first is a mark, and a new segment begins with it."""

    ticket: int
    frames: tuple[bytes, ...]
    is_segment: bool


class Recall(NamedTuple):
    """Read ordered runs of the log from this one on, at most so many bytes of them but at least one, then
    answer `Recalled`."""

    ticket: int
    start: int
    bytes_max: int


class Trim(NamedTuple):
    """Segments of the log that hold only records before this position may go, if so many bytes stay."""

    position: int
    keep_bytes: int


class Tell(NamedTuple):
    """An event for whoever stands above the stack. The event is the layer's own."""

    layer: LayerName
    event: Any


class Reachable(NamedTuple):
    """The processor has spoken for itself: on this network it can be reached at this address."""

    processor: ProcessorId
    network: int
    source: Any
    just_now: bool
    """If not, it may be somebody's repetition: a hint where nothing better is known."""


class Alarm(NamedTuple):
    """Something that only the node, or the people who run it, can put right. What it is, the layer says."""

    alarm: Any
    source: Any
    """The address that the input at hand came from."""


class Stopped(NamedTuple):
    """The stack has left its rings and takes no further input."""


class Trace(NamedTuple):
    """A row for the trace: its kind and the columns that apply (totempole.trace.schema), or the event of the
    order that it shows."""

    kind: str
    columns: Any
    layer: str


Effect = (
    Send
    | SetTimer
    | CancelTimer
    | Write
    | Append
    | Recall
    | Trim
    | Tell
    | Reachable
    | Alarm
    | Stopped
    | Trace
)
