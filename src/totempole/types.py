"""The small types that every part of the pole shares."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

ProcessorId = int
"""A processor's identifier: 1 to PROCESSOR_MAX, unique in the cluster, unchanged by restarts (000 §3.2)."""

PROCESSOR_MAX = 2**32 - 1

NO_PROCESSOR: ProcessorId = 0
"""The invalid identifier, which 000 §4.1 writes as minus one."""


class RingId(NamedTuple):
    """Names a ring, and so a configuration: sorts by sequence number, then by representative (000 §4.1)."""

    seq: int
    representative: ProcessorId

    def __str__(self) -> str:
        return f"{self.seq}@{self.representative}"


NO_RING = RingId(0, NO_PROCESSOR)


class RingKind(IntEnum):
    """How a ring passes its token. Processors of different kinds never share a ring."""

    CLASSIC = 1
    ACCELERATED = 2


class Service(IntEnum):
    """The delivery that a message's originator asks for (000 §3.5)."""

    AGREED = 1
    SAFE = 2


class ConfigurationKind(StrEnum):
    REGULAR = "regular"
    TRANSITIONAL = "transitional"


class Configuration(NamedTuple):
    """A membership, and what 000 §4.2 calls the Configuration Change message that initiates it.

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
    """Sorts deliveries and configuration changes as the global delivery order does (000 theorem 4.17).

    The identifier (ring_id, seq, conf_id); a regular message has conf_id NO_RING.
    """

    ring_id: RingId
    seq: int
    conf_id: RingId


class ProcessId(NamedTuple):
    """Names a process: its processor, that one's life, and a number that the life gives only once."""

    processor: ProcessorId
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"{self.processor}.{self.incarnation}.{self.number}"


class Place(NamedTuple):
    """A place in the total order of group messages and views: that of the packet, and within it."""

    key: OrderKey
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.key.ring_id}:{self.key.seq}:{self.index}"


Payload = bytes | memoryview
"""Bytes that nobody changes: on their own, or within the packet that they came in."""

ByteRange = tuple[int, int]
"""Start and stop of a range of bytes within a packet."""
