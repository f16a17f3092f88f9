"""What a program that embeds a node receives: messages and views, in the total order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from totempole.types import OrderKey, ProcessorId, RingId, Service


@dataclass(frozen=True, slots=True)
class RingMessages:
    """Messages of one sender that are next in the order, in the view last received."""

    sender: ProcessorId
    payloads: Sequence[bytes]
    service: Service
    key: OrderKey
    """Sorts as the total order does."""


@dataclass(frozen=True, slots=True)
class RingView:
    """Who is in the configuration from here on. A transitional one names who came along from the last."""

    kind: Literal["regular", "transitional"]
    members: tuple[ProcessorId, ...]
    id: RingId
    key: OrderKey


Event = RingMessages | RingView
