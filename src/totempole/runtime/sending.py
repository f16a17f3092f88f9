"""Submits the messages that the program above a node sends past all groups, and leaves when none is left.

They wait in the outbox while the ring has as many packets queued as the next visits of the token can take, so
that many messages share a packet. A node that leaves empties the outbox first, as far as leave_us lasts; the
group layer has its own rule (`GroupLayer.leave`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from totempole.core.inputs import Input
from totempole.core.order import Leave, Submit
from totempole.groups import GroupLayer, Outbox
from totempole.srp.config import RingConfig
from totempole.srp.engine import SingleRing
from totempole.types import Service

OUTBOX_BYTES_MAX = 4_000_000
"""Messages that wait for a place in a packet, before senders have to."""


class Host(Protocol):
    """What sending needs of the driver."""

    running: bool
    timers: dict[Any, int]
    ring: SingleRing
    layer: GroupLayer

    def at(self, due_us: int, function: Callable[[], None]) -> None: ...

    def now_us(self) -> int: ...


class Sender:
    """All methods are for the loop's thread."""

    def __init__(
        self, ring: RingConfig, host: Host, feed: Callable[[Input], None], ready: Callable[[], None]
    ) -> None:
        """`ready` is called when a send that was refused may be tried again."""
        self.outbox = Outbox(ring.packet_bytes_max, OUTBOX_BYTES_MAX)
        self.is_leaving = False
        self._leave_us = ring.leave_us
        self._host = host
        self._feed = feed
        self._ready = ready
        self._has_refused = False

    def send(self, payloads: Sequence[bytes], service: Service = Service.AGREED) -> bool:
        """Takes messages to be sent; false, and none taken, while too much waits already: `ready` follows."""
        if not self.outbox.accepts:
            self._has_refused = True
            return False
        self.outbox.add(payloads, service)
        return True

    def empty(self) -> None:
        """Submits as many packets as the next visits of the token can take. The rest waits."""
        host = self._host
        ring = host.ring
        while self.outbox and ring.queued < ring.packets_ahead and host.running:
            if host.layer.leaving:
                return  # leave_us is over, and what waits is lost
            self.outbox.packet_bytes = ring.packet_bytes
            body, service = self.outbox.take()
            self._feed(Submit(body, service))
        if self._has_refused and self.outbox.accepts:
            self._has_refused = False
            self._ready()
        self.leave_if_empty()

    def leave(self) -> None:
        """Leaves the ring when all is submitted, or when leave_us is over."""
        self.is_leaving = True
        self._host.at(self._host.now_us() + self._leave_us, self._leave_now)
        self.leave_if_empty()

    def leave_if_empty(self) -> None:
        waits = self.outbox or self._has_refused
        if self.is_leaving and not waits and not self._host.layer.leaving:
            self._leave_now()

    def _leave_now(self) -> None:
        self._host.timers.pop(self._leave_now, None)
        self._feed(Leave())
