"""A cluster of group layers over an order that the test conducts by hand.

Packets wait in each processor's queue until they are originated: then they have their place on the ring. What
a change of configuration finds originated but undelivered comes in the transitional configuration, as on a
ring; what it finds queued is carried over into the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from totempole.core.effects import Effect, Tell, Trace
from totempole.core.inputs import Command
from totempole.core.io import Io, Scope
from totempole.core.order import Deliver, InstallConfiguration, Order, OrderUser, SafeUpTo
from totempole.core.stack import BaseLayer, Stack
from totempole.groups import GroupConfig, GroupLayer, pack
from totempole.groups.commands import Connect, JoinGroup, Multicast
from totempole.groups.events import GroupEvent, GroupMessages, GroupView, Taken, ToProcesses
from totempole.groups.packing import Batch
from totempole.types import (
    NO_RING,
    Configuration,
    ConfigurationKind,
    MessageId,
    OrderKey,
    ProcessId,
    RingId,
    Service,
)

NOW = 0
RING_STEP = 4


class Submission(NamedTuple):
    origin: int
    incarnation: int
    number: int
    payload: bytes
    service: Service


class Comes(Command):
    """What the order brings up, in one input."""

    __slots__ = ("events",)

    def __init__(self, events: list[Any]) -> None:
        self.events = events


class ByHand(BaseLayer, Order):
    """One processor's end. The cluster feeds it what comes up."""

    name = ("by hand", 0)

    def __init__(
        self, me: int, incarnation: int, queue_max: int, packets_ahead: int, packet_bytes: int
    ) -> None:
        self.me = me
        self.incarnation = incarnation
        self.queue: deque[Submission] = deque()
        self.queue_max = queue_max
        self.above: OrderUser
        self._packets_ahead = packets_ahead
        self._packet_bytes = packet_bytes
        self.leaving = False
        self._number = 0

    @property
    def commands(self) -> Any:
        return {Comes: self._come}

    @property
    def queued(self) -> int:
        return len(self.queue)

    @property
    def packets_ahead(self) -> int:
        return self._packets_ahead

    @property
    def packet_bytes(self) -> int:
        return self._packet_bytes

    def submit(
        self, payload: bytes, service: Service, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        if self.leaving or len(self.queue) >= self.queue_max:
            return False
        self._number += 1
        self.queue.append(Submission(self.me, self.incarnation, self._number, payload, service))
        return True

    def send_unordered(self, payload: bytes) -> None:
        raise AssertionError("no layer stands above the groups")

    def leave(self, *, more_to_come: bool = False) -> None:
        self.leaving = not more_to_come

    def _come(self, comes: Comes) -> None:
        for event in comes.events:
            if isinstance(event, Deliver):
                self.above.deliver(event)
            elif isinstance(event, InstallConfiguration):
                self.above.install(event)
            else:
                self.above.safe(event)


class Ring:
    def __init__(self, id_: RingId, members: tuple[int, ...]) -> None:
        self.id = id_
        self.members = members
        self.log: list[Submission] = []
        self.delivered = dict.fromkeys(members, 0)


class Cluster:
    def __init__(
        self,
        processors: int,
        config: GroupConfig | None = None,
        *,
        packet_bytes_max: int = 2_000,
        packets_ahead: int = 3,
        queue_max: int = 1_000,
        trace_kinds: frozenset[str] = frozenset(),
        together: bool = True,
    ) -> None:
        self._config = config or GroupConfig()
        self._packet_bytes_max = packet_bytes_max
        self._packets_ahead = packets_ahead
        self._queue_max = queue_max
        self._trace_kinds = trace_kinds
        self._ring_seq = 0
        self.orders: dict[int, ByHand] = {}
        self.layers: dict[int, GroupLayer] = {}
        self.stacks: dict[int, Stack] = {}
        self.rings: dict[int, Ring] = {}
        """The ring of each processor that is up."""
        self.events: dict[ProcessId, list[GroupEvent]] = {}
        self.taken: list[tuple[int, Taken]] = []
        self.traces: list[tuple[int, Trace]] = []
        self.originated: list[Submission] = []
        for me in range(1, processors + 1):
            self.start(me, 1)
        if together:
            self.change([sorted(self.layers)])
            self.run()

    # Processors

    def start(self, me: int, incarnation: int) -> None:
        """Comes up alone."""
        order = self.orders[me] = ByHand(
            me, incarnation, self._queue_max, self._packets_ahead, self._packet_bytes_max
        )
        io = Io(self._trace_kinds)
        layer = self.layers[me] = order.above = GroupLayer(
            Scope(io, "groups"), order, me, incarnation, self._config, self._packet_bytes_max
        )
        self.stacks[me] = Stack(me, incarnation, io, (order, layer), {})
        ring = self.rings[me] = Ring(self._next_ring_id(me), (me,))
        self.feed(
            me, [_install(ConfigurationKind.REGULAR, ring.id, ring.members, OrderKey(ring.id, 0, NO_RING))]
        )

    def crash(self, me: int) -> None:
        """It is gone; the others notice at the next change."""
        del self.layers[me], self.stacks[me], self.orders[me], self.rings[me]

    def _next_ring_id(self, representative: int) -> RingId:
        self._ring_seq += RING_STEP
        return RingId(self._ring_seq, representative)

    # What processes do

    def ask(self, me: int, command: Command) -> list[Any]:
        """Gives what was told and traced."""
        return self._execute(me, self.stacks[me].feed(NOW, command))

    def connect(self, me: int, number: int = 1) -> ProcessId:
        process = ProcessId(me, self.orders[me].incarnation, number)
        self.events[process] = []
        self.ask(me, Connect(number))
        return process

    def join(self, process: ProcessId, group: str, donor: bool = False, wants_state: bool = False) -> None:
        self.ask(process.processor, JoinGroup(process.number, group, donor, wants_state))

    def member(self, me: int, group: str, number: int = 1, donor: bool = False) -> ProcessId:
        process = self.connect(me, number)
        self.join(process, group, donor)
        return process

    def multicast(
        self,
        process: ProcessId,
        groups: str | tuple[str, ...],
        *payloads: bytes,
        service: Service = Service.AGREED,
        notice: bool = False,
    ) -> None:
        names = (groups,) if isinstance(groups, str) else groups
        self.ask(process.processor, Multicast(process.number, names, pack(payloads), service, notice))

    # The order

    def feed(self, me: int, events: list[Any]) -> None:
        self._execute(me, self.stacks[me].feed(NOW, Comes(events)))

    def _execute(self, me: int, effects: list[Effect]) -> list[Any]:
        plain = [effect.event if isinstance(effect, Tell) else effect for effect in effects]
        for effect in plain:
            if isinstance(effect, ToProcesses):
                for number in effect.processes:
                    self.events[ProcessId(me, self.orders[me].incarnation, number)].append(effect.event)
            elif isinstance(effect, Taken):
                self.taken.append((me, effect))
            elif isinstance(effect, Trace):
                self.traces.append((me, effect))
        return plain

    def originate(self, me: int, packets: int = 1) -> None:
        """Gives queued packets their places on the ring. Nobody delivers them yet."""
        for _ in range(min(packets, len(self.orders[me].queue))):
            submission = self.orders[me].queue.popleft()
            self.originated.append(submission)
            self.rings[me].log.append(submission)

    def inject(self, me: int, payload: bytes, origin: int = 99) -> None:
        """A packet on the ring that no layer here has made."""
        self.rings[me].log.append(Submission(origin, 7, 1, payload, Service.AGREED))

    def deliver(self, me: int, packets: int = 1_000_000) -> None:
        ring = self.rings[me]
        for _ in range(min(packets, len(ring.log) - ring.delivered[me])):
            self._deliver_next(me, ring)

    def _deliver_next(self, me: int, ring: Ring) -> None:
        seq = ring.delivered[me] = ring.delivered[me] + 1
        self.feed(me, [_deliver(ring, seq)])

    def run(self) -> None:
        """Until nothing is queued or undelivered anywhere."""
        while any(order.queue for order in self.orders.values()):
            for me in sorted(self.orders):
                self.originate(me)
                for other in self.rings[me].members:
                    if other in self.layers and self.rings[other] is self.rings[me]:
                        self.deliver(other)
        for me in sorted(self.layers):
            self.deliver(me)

    def safe(self, me: int, up_to: int | None = None) -> None:
        ring = self.rings[me]
        self.feed(me, [SafeUpTo(OrderKey(ring.id, len(ring.log) if up_to is None else up_to, NO_RING))])

    def change(self, components: Iterable[Iterable[int]], cut_off: Iterable[int] = ()) -> None:
        """New rings. Those who are `cut_off` have not received what others had originated in the end."""
        missed = frozenset(cut_off)
        old = dict(self.rings)
        for component in components:
            members = tuple(sorted(component))
            ring = Ring(self._next_ring_id(members[0]), members)
            for me in members:
                companions = tuple(other for other in members if old[other] is old[me])
                self._move(me, old[me], companions, ring, me in missed)

    def _move(self, me: int, old: Ring, companions: tuple[int, ...], new: Ring, missed: bool) -> None:
        transitional = RingId(new.id.seq - RING_STEP // 2, companions[0])
        # Companions deliver the same in the old configuration.
        regular = max(old.delivered[other] for other in companions)
        effects: list[Any] = [_deliver(old, seq) for seq in range(old.delivered[me] + 1, regular + 1)]
        key = OrderKey(old.id, regular, transitional)
        effects.append(_install(ConfigurationKind.TRANSITIONAL, transitional, companions, key))
        effects += [
            _deliver(old, seq)
            for seq in range(regular + 1, len(old.log) + 1)
            if not missed or old.log[seq - 1].origin in companions
        ]
        key = OrderKey(new.id, 0, transitional)
        effects.append(_install(ConfigurationKind.REGULAR, new.id, new.members, key))
        self.rings[me] = new
        self.feed(me, effects)

    def merge(self) -> None:
        self.change([sorted(self.layers)])
        self.run()

    # What processes were told

    def told(self, process: ProcessId, kind: type) -> list[Any]:
        return [event for event in self.events[process] if isinstance(event, kind)]

    def messages(self, process: ProcessId, group: str | None = None) -> list[bytes]:
        return [
            payload
            for event in self.told(process, GroupMessages)
            if group is None or group in event.groups
            for payload in Batch(event.batch)
        ]

    def views(self, process: ProcessId, group: str) -> list[GroupView]:
        return [view for view in self.told(process, GroupView) if view.group == group]

    def forget_events(self) -> None:
        for events in self.events.values():
            events.clear()


def _deliver(ring: Ring, seq: int) -> Deliver:
    origin, incarnation, number, payload, service = ring.log[seq - 1]
    message = MessageId(origin, incarnation, number)
    key = OrderKey(ring.id, seq, NO_RING)
    return Deliver(message, origin, memoryview(payload), service, key, 0, ring.id)


def _install(
    kind: ConfigurationKind, id_: RingId, members: tuple[int, ...], key: OrderKey
) -> InstallConfiguration:
    return InstallConfiguration(Configuration(kind, id_, members, key.ring_id, key.seq, NO_RING), key)
