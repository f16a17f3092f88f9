"""The small types that every part of the pole shares."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

ProcessorId = int
"""A processor's identifier: 1 to PROCESSOR_MAX, unique in the cluster, unchanged by restarts (Totem §3.2)."""

PROCESSOR_MAX = 2**32 - 1

NO_PROCESSOR: ProcessorId = 0
"""The invalid identifier, which Totem §4.1 writes as minus one."""


class RingId(NamedTuple):
    """Names a ring, and so a configuration: sorts by sequence number, then by representative (Totem §4.1)."""

    seq: int
    representative: ProcessorId

    def __str__(self) -> str:
        return f"{self.seq}@{self.representative}"


NO_RING = RingId(0, NO_PROCESSOR)


class RingKind(IntEnum):
    """How a ring passes its token. Processors of different kinds never share a ring."""

    CLASSIC = 1
    """A processor sends its messages, then passes the token on."""
    ACCELERATED = 2
    """A processor passes the token on while it is still sending."""


class Service(IntEnum):
    """The delivery that a message's originator asks for (Totem §3.5)."""

    AGREED = 1
    """Delivered when everything before it is."""
    SAFE = 2
    """Delivered when every host of the ring has received it."""


class ConfigurationKind(StrEnum):
    REGULAR = "regular"
    TRANSITIONAL = "transitional"


class Configuration(NamedTuple):
    """A membership, and what Totem §4.2 calls the Configuration Change message that initiates it.

    `ring_id` and `seq` place the change in the total order: for a regular configuration its own ring and 0;
    for a transitional one the preceding regular ring and the last sequence number delivered in it.
    `previous` is the configuration that this one terminates (NO_RING at start-up).
    """

    kind: ConfigurationKind
    id: RingId
    members: tuple[ProcessorId, ...]
    ring_id: RingId
    seq: int
    previous: RingId


class MessageId(NamedTuple):
    """Names a message for as long as anyone may remember it: its originator, that one's life, a counter."""

    origin: ProcessorId
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"{self.origin}.{self.incarnation}.{self.number}"


class OrderKey(NamedTuple):
    """Sorts deliveries and configuration changes as the global delivery order does (Totem theorem 4.17).

    The identifier (ring_id, seq, conf_id); a regular message has conf_id NO_RING.
    """

    ring_id: RingId
    seq: int
    conf_id: RingId


class ProcessId(NamedTuple):
    """Names a process: its processor, that one's life, and a number that the life gives only once."""

    processor: ProcessorId
    """The number of its node."""
    incarnation: int
    """Of the node's life: each start has its own."""
    number: int
    """Within that life."""

    def __str__(self) -> str:
        return f"{self.processor}.{self.incarnation}.{self.number}"


class Place(NamedTuple):
    """A place in the total order of group messages and views: that of the packet, and within it."""

    key: OrderKey
    """Of the ring's packet."""
    index: int  # type: ignore[assignment]
    """Within the packet."""

    def __str__(self) -> str:
        return f"{self.key.ring_id}:{self.key.seq}:{self.index}"


class Fence(NamedTuple):
    """Lets records into the durable log only if its mark is where their writer expects it.

    The log keeps a mark for each name, 0 if it knows none. Records with a fence take positions only if the
    mark of `name` is within `low` to `high`, both included; then the mark becomes `number`, which is above
    `high`. So of several appends with the same fence at most one takes positions.
    """

    name: str
    """Whose mark it is."""
    number: int
    """What the mark becomes."""
    low: int
    """The least that the mark may be,"""
    high: int
    """and the greatest."""

    @property
    def problem(self) -> str:
        """Why there cannot be such a fence; empty if there can."""
        if not isinstance(self.name, str) or not all(isinstance(each, int) for each in self[1:]):
            return f"fence {tuple(self)}: give a name, and whole numbers"
        try:
            size = len(self.name.encode())
        except UnicodeEncodeError:
            return f"fence {self.name[:40]!r}: its name cannot be written as UTF-8"
        if not 1 <= size <= FENCE_NAME_BYTES_MAX:
            return f"fence {self.name[:40]!r}: give a name of 1 to {FENCE_NAME_BYTES_MAX} bytes"
        if not 0 <= self.low <= self.high < self.number <= FENCE_NUMBER_MAX:
            return (
                f"fence {self.name[:40]!r}: low {self.low}, high {self.high}, number {self.number}: give "
                "0 <= low <= high < number < 2**63"
            )
        return ""


FENCE_NAME_BYTES_MAX = 255
FENCE_NUMBER_MAX = 2**63 - 1


Payload = bytes | memoryview
"""Bytes that nobody changes: on their own, or within the packet that they came in."""

ByteRange = tuple[int, int]
"""Start and stop of a range of bytes within a packet."""
