"""Exactly the packet that a story needs: the next token of p is dropped, or comes to the wrong place.

A packet goes astray as over a network that nobody guards: it is shown to one more processor, it comes to a
wrong address instead of the right one, it comes back to its sender, or somebody has recorded it and sends it
again much later. Its bytes are true, so that a seal does not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from totempole.core.effects import Send
from totempole.rrp.hello import Hello
from totempole.srp import packets
from totempole.types import ProcessorId

PACKET_KINDS: dict[str, type] = {
    "token": packets.RegularToken,
    "commit-token": packets.CommitToken,
    "join": packets.Join,
    "message": packets.RegularMessage,
    "null": packets.NullMessage,
    "leave": packets.Leave,
    "wake": packets.Wake,
    "unordered": packets.Unordered,
    "hello": Hello,
}


class Target(Protocol):
    target: ProcessorId


@dataclass(slots=True)
class DropRule:
    """Drops the next `count` packets of a kind that `source` sends, or their copies to `to`; on all networks,
    or on one."""

    kind: str
    source: ProcessorId | None = None
    to: ProcessorId | None = None
    count: int = 1
    network: int | None = None
    last: Send | None = None
    """What it has dropped last: its copies on other networks are the same packet."""

    def hits(self, source: ProcessorId, transmit: Send, routes: Sequence[Target], network: int = 0) -> bool:
        """Whether the packet is one of those; each hit uses the rule up a little."""
        if self.network not in (None, network):
            return False
        if transmit is self.last:
            return True
        kind = type(transmit.packet)
        if self.count < 1 or self.source not in (None, source) or kind is not PACKET_KINDS[self.kind]:
            return False
        if self.to is not None and all(route.target != self.to for route in routes):
            return False
        self.count -= 1
        self.last = transmit
        return True


@dataclass(slots=True)
class StrayRule:
    """Leads the next `count` packets of a kind that `source` sends astray."""

    fate: str
    """One of `STRAY_FATES`."""
    kind: str
    source: ProcessorId | None = None
    to: ProcessorId | None = None
    """Where `show` and `misdirect` take it; for `replay` nobody means all whom it was meant for."""
    count: int = 1
    after_us: int = 0
    network: int | None = None
    """Where it comes then; None: where it went first."""
    last: Send | None = None

    def hits(self, source: ProcessorId, transmit: Send, routes: Sequence[Target], _network: int = 0) -> bool:
        kind = type(transmit.packet)
        if self.count < 1 or self.source not in (None, source) or kind is not PACKET_KINDS[self.kind]:
            return False
        meant = any(route.target == self.to for route in routes)
        if self.fate in ("show", "misdirect") and (meant or self.to == source):
            return False
        self.count -= 1
        return True

    def targets(self, source: ProcessorId, routes: Sequence[Target]) -> tuple[ProcessorId, ...]:
        """Who gets the copy."""
        if self.fate == "reflect":
            return (source,)
        return tuple(route.target for route in routes) if self.to is None else (self.to,)


STRAY_FATES = {"show": "shown", "misdirect": "misdirected", "reflect": "reflected", "replay": "replayed"}
"""What a scenario asks for, and what the medium then counts."""
