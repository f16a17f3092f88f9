"""The order interface: what stands between an engine that orders messages and the layers above it.

`srp` gives it over one ring, `mrp` over many, `rmp` by another protocol. Submissions go down; deliveries,
configuration changes and news of safety come up, each with a key that sorts as the total order does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from totempole.core.inputs import Command
from totempole.core.io import Scope
from totempole.core.stack import BaseLayer, Commands
from totempole.types import Configuration, MessageId, OrderKey, Payload, ProcessorId, RingId, Service


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
    """Every member of the configuration has received all messages up to this place."""

    key: OrderKey


class PushBack(NamedTuple):
    """The submission was refused: the send queue is full, and `Ready` follows; or the processor leaves."""


class Ready(NamedTuple):
    """Submissions are welcome again."""


class Order(Protocol):
    """One processor's access to the total order, for the layer above."""

    @property
    def queued(self) -> int:
        """Submissions that wait for their place in the order."""
        ...

    @property
    def packets_ahead(self) -> int:
        """How many may wait, at present: more of them would only grow old."""
        ...

    @property
    def packet_bytes(self) -> int:
        """How large a packet should be at present, where it can be as large as one likes."""
        ...

    def submit(
        self, payload: bytes, service: Service, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        """False, and nothing taken, while the queue is full; `ready` follows when there is room. The layer
        above must not submit while it is being told something, but when the input is done (`settle`).

        `at_rest`: nobody waits to hear that it is safe. It may be sent without the token's going round at
        once; whoever misses it then hears of it a little later.
        """
        ...

    def send_unordered(self, payload: bytes) -> None:
        """A few bytes for the other members, at once and past the order: they wait for no token, and may be
        lost. Whoever gets them is on the same ring, and may have been delivered more or less than the sender
        had. Whoever needs certainty submits, too."""
        ...

    def leave(self, *, more_to_come: bool = False) -> None:
        """Leaves once every submission is delivered everywhere, or when leave_us has passed: then `stopped`.

        With `more_to_come` submissions are still taken, and it waits for a second call without.
        """
        ...


class OrderUser(Protocol):
    """The layer above an order, which is told in the total order."""

    def deliver(self, packet: Deliver) -> None: ...

    def deliver_unordered(self, origin: ProcessorId, payload: bytes) -> None:
        """At any time, and perhaps never."""
        ...

    def install(self, installed: InstallConfiguration) -> None:
        """Transitional configurations too, where the engine has them."""
        ...

    def safe(self, up_to: SafeUpTo) -> None: ...

    def ready(self) -> None: ...

    def stopped(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Submit(Command):
    """A message for every processor, past all groups. `PushBack` is told if it is not taken."""

    payload: bytes
    service: Service
    groups: tuple[int, ...] = ()
    order: int = 0
    """Of several orders, which."""


@dataclass(frozen=True, slots=True)
class Leave(Command):
    """Leave when all that was submitted is delivered, or when leave_us has passed."""


class Between(BaseLayer):
    """A layer between an order and its user, which passes everything on. Override what is to be different."""

    def __init__(self, scope: Scope, below: Order) -> None:
        self.name = scope.name
        self.scope = scope
        self.below = below
        self.above: OrderUser

    @property
    def queued(self) -> int:
        return self.below.queued

    @property
    def packets_ahead(self) -> int:
        return self.below.packets_ahead

    @property
    def packet_bytes(self) -> int:
        return self.below.packet_bytes

    def submit(
        self, payload: bytes, service: Service, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        return self.below.submit(payload, service, groups, at_rest)

    def send_unordered(self, payload: bytes) -> None:
        self.below.send_unordered(payload)

    def leave(self, *, more_to_come: bool = False) -> None:
        self.below.leave(more_to_come=more_to_come)

    def deliver(self, packet: Deliver) -> None:
        self.above.deliver(packet)

    def deliver_unordered(self, origin: ProcessorId, payload: bytes) -> None:
        self.above.deliver_unordered(origin, payload)

    def install(self, installed: InstallConfiguration) -> None:
        self.above.install(installed)

    def safe(self, up_to: SafeUpTo) -> None:
        self.above.safe(up_to)

    def ready(self) -> None:
        self.above.ready()

    def stopped(self) -> None:
        self.above.stopped()


class Port(BaseLayer):
    """Stands on an order where no layer does: tells its messages to whoever stands above the stack. Of
    configurations the engine tells by itself."""

    def __init__(self, scope: Scope, below: Order) -> None:
        self.name = scope.name
        self._scope = scope
        self._tell = scope.tell
        self._below = below

    @property
    def commands(self) -> Commands:
        return {Submit: self._submit, Leave: self._leave}

    def _submit(self, command: Submit) -> None:
        if command.order == self.name[1] and not self._below.submit(
            command.payload, command.service, command.groups
        ):
            self._scope.tell(PushBack())

    def _leave(self, _command: Leave) -> None:
        self._below.leave()

    def deliver(self, packet: Deliver) -> None:
        self._tell(packet)

    def deliver_unordered(self, origin: ProcessorId, payload: bytes) -> None: ...

    def install(self, installed: InstallConfiguration) -> None: ...

    def safe(self, up_to: SafeUpTo) -> None: ...

    def ready(self) -> None:
        self._scope.tell(Ready())

    def stopped(self) -> None: ...
