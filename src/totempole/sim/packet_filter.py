"""Dropping exactly the packet that a story needs dropped: the next token of p, the next Join of q to r."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from totempole.types import ProcessorId
from totempole.wire import packets

PACKET_KINDS: dict[str, type] = {
    "token": packets.RegularToken,
    "commit-token": packets.CommitToken,
    "join": packets.Join,
    "message": packets.RegularMessage,
    "null": packets.NullMessage,
    "leave": packets.Leave,
    "wake": packets.Wake,
}


class Target(Protocol):
    target: ProcessorId


@dataclass(slots=True)
class DropRule:
    """Drops the next `count` packets of a kind that `source` sends, or their copies to `to`."""

    kind: str
    source: ProcessorId | None = None
    to: ProcessorId | None = None
    count: int = 1

    def hits(self, source: ProcessorId, packet: object, routes: Sequence[Target]) -> bool:
        """Whether the packet is one of those; each hit uses the rule up a little."""
        if self.count < 1 or self.source not in (None, source) or type(packet) is not PACKET_KINDS[self.kind]:
            return False
        if self.to is not None and all(route.target != self.to for route in routes):
            return False
        self.count -= 1
        return True
