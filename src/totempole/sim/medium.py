"""The communication medium: it carries datagrams between hosts, and loses, delays, repeats and cuts them.

000 appendix A calls this part of its simulator the communication medium model. Everything happens to single
datagrams (segments). The survivors of a burst that travel together arrive as one event, as one GRO read; a
datagram that is repeated, reordered or late arrives by itself. A link keeps its order unless told to reorder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol

from totempole.effects import Channel, Transmit
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import Condition, Lan, Range
from totempole.sim.packet_filter import DropRule
from totempole.types import ProcessorId


class Station(Protocol):
    """Whatever is attached to the medium."""

    def arrive(self, channel: Channel, datagrams: Sequence[bytes], size: int) -> None: ...


class Route:
    """One directed link of one network."""

    __slots__ = ("arrive", "clean", "condition", "cut", "delay_choices", "delay_us", "last_us", "target")

    def __init__(self, target: ProcessorId, arrive: Callable[..., None], condition: Condition) -> None:
        self.target = target
        self.arrive = arrive
        self.cut = False
        self.last_us = 0
        self.set_condition(condition)

    def set_condition(self, condition: Condition) -> None:
        self.condition = condition
        self.delay_us = condition.delay_us[0]
        self.delay_choices = condition.delay_us[1] - condition.delay_us[0] + 1
        noisy = condition.duplicate or condition.reorder or condition.late or condition.corrupt
        # Indexed by channel: nothing but delay can befall a datagram there.
        self.clean = tuple(not noisy and not condition.loss_on(token) for token in (False, True))


class Network:
    """One LAN: its routes, its capacity, who is parted from whom."""

    __slots__ = ("all_routes", "component", "cuts", "free_ns", "lan", "routes")

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.routes: dict[ProcessorId, dict[ProcessorId, Route]] = {}
        self.all_routes: dict[ProcessorId, tuple[Route, ...]] = {}
        self.component: dict[ProcessorId, int] = {}
        self.cuts: set[tuple[ProcessorId, ProcessorId]] = set()
        self.free_ns: dict[ProcessorId, int] = {}

    def refresh(self) -> None:
        """Work out which routes are cut, so that sending need not."""
        for source, routes in self.routes.items():
            here = self.component.get(source)
            for target, route in routes.items():
                parted = self.component.get(target) != here
                route.cut = parted or (source, target) in self.cuts
            self.all_routes[source] = tuple(routes.values())


SHARED = 0
"""The key of a shared LAN's one transmitter in `free_ns`."""


class Medium:
    """Every method that takes `network` means all networks when it is None."""

    __slots__ = (
        "_draw",
        "_networks",
        "_random",
        "_report",
        "_rules",
        "_scheduler",
        "_stations",
        "condition",
        "counters",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        *,
        condition: Condition | None = None,
        lans: Sequence[Lan] = (Lan(),),
        report: Callable[[ProcessorId, DropRule], None] | None = None,
    ) -> None:
        self.condition = condition or Condition()
        self.counters: Counter[str] = Counter()
        self._scheduler = scheduler
        self._random = random
        self._draw = random.random
        self._networks = [Network(lan) for lan in lans]
        self._stations: dict[ProcessorId, Station] = {}
        self._rules: list[DropRule] = []
        self._report = report

    # Set-up and faults

    def attach(self, processor: ProcessorId, station: Station) -> None:
        for network in self._networks:
            network.routes[processor] = {
                other: Route(other, self._stations[other].arrive, self.condition)
                for other in sorted(self._stations)
            }
            for other in self._stations:
                network.routes[other][processor] = Route(processor, station.arrive, self.condition)
            network.refresh()
        self._stations[processor] = station

    def set_condition(
        self,
        condition: Condition,
        source: ProcessorId | None = None,
        target: ProcessorId | None = None,
        network: int | None = None,
    ) -> None:
        """For all links, all from `source`, all to `target`, or the one from `source` to `target`."""
        if source is None and target is None:
            self.condition = condition
        for lan in self._chosen(network):
            for origin in lan.routes:
                for route in lan.all_routes[origin]:
                    if source in (None, origin) and target in (None, route.target):
                        route.set_condition(condition)

    def condition_of(self, source: ProcessorId, target: ProcessorId, network: int = 0) -> Condition:
        return self._networks[network].routes[source][target].condition

    def set_lan(self, lan: Lan, network: int | None = None) -> None:
        for each in self._chosen(network):
            each.lan = lan

    def partition(self, components: Iterable[Iterable[ProcessorId]], network: int | None = None) -> None:
        """Part the components from each other. Processors not named form one more component together."""
        placed = {member: index for index, members in enumerate(components) for member in members}
        for lan in self._chosen(network):
            lan.component = dict(placed)
            lan.refresh()

    def cut(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        """One way: `target` hears `source` no more."""
        for lan in self._chosen(network):
            lan.cuts.add((source, target))
            lan.refresh()

    def mend(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        for lan in self._chosen(network):
            lan.cuts.discard((source, target))
            lan.refresh()

    def heal(self, network: int | None = None) -> None:
        """End all partitions and cuts, and forget what was still to be dropped. Conditions stay."""
        self._rules.clear()
        for lan in self._chosen(network):
            lan.component.clear()
            lan.cuts.clear()
            lan.refresh()

    def drop_next(self, rule: DropRule) -> None:
        self._rules.append(rule)

    def _chosen(self, network: int | None) -> list[Network]:
        return self._networks if network is None else [self._networks[network]]

    # Carrying

    def send(self, source: ProcessorId, transmit: Transmit, depart_us: int, network: int = 0) -> None:
        """Carry a transmission that leaves its sender at `depart_us`, which may lie in the near future."""
        lan = self._networks[network]
        if lan.lan.shared and depart_us > self._scheduler.now_us:
            # Who comes first to a shared wire is known only when the time has come.
            self._scheduler.at(depart_us, self._transmit, source, transmit, depart_us, lan)
        else:
            self._transmit(source, transmit, depart_us, lan)

    def _transmit(self, source: ProcessorId, transmit: Transmit, depart_us: int, lan: Network) -> None:
        to, channel = transmit.to, transmit.channel
        datagrams = transmit.datagrams
        size = len(datagrams[0]) if len(datagrams) == 1 else sum(map(len, datagrams))
        self.counters["sent"] += len(datagrams)
        if lan.lan.bandwidth_bytes_per_s:
            depart_us = self._serialise(source, len(datagrams), size, depart_us, lan)
        if to is None:
            routes = lan.all_routes[source]
        else:
            route = lan.routes[source].get(to)
            routes = () if route is None else (route,)
        if self._rules:
            routes = self._filtered(source, transmit, routes)
        for route in routes:
            self._carry(route, channel, datagrams, size, depart_us)

    def _serialise(self, source: ProcessorId, count: int, size: int, depart_us: int, lan: Network) -> int:
        """When the last bit of a burst has left the wire, which it waits for and then holds."""
        settings = lan.lan
        wire = SHARED if settings.shared else source
        start_ns = max(depart_us * 1000, lan.free_ns.get(wire, 0))
        length = size + count * settings.overhead_bytes
        end_ns = start_ns + length * 1_000_000_000 // settings.bandwidth_bytes_per_s
        lan.free_ns[wire] = end_ns
        return (end_ns + 999) // 1000

    def _carry(
        self, route: Route, channel: Channel, datagrams: tuple[bytes, ...], size: int, depart_us: int
    ) -> None:
        if route.cut:
            self.counters["cut"] += len(datagrams)
            return
        arrive_us = depart_us + route.delay_us
        if route.delay_choices > 1:
            arrive_us += int(self._draw() * route.delay_choices)
        if arrive_us < route.last_us:
            arrive_us = route.last_us
        route.last_us = arrive_us
        if route.clean[channel]:
            self._scheduler.at(arrive_us, route.arrive, channel, datagrams, size)
        else:
            self._carry_through_noise(route, channel, datagrams, arrive_us)

    def _carry_through_noise(
        self, route: Route, channel: Channel, datagrams: tuple[bytes, ...], arrive_us: int
    ) -> None:
        condition = route.condition
        loss = condition.loss_on(channel is Channel.TOKEN)
        if loss:
            datagrams = self._thin(datagrams, loss)
        if condition.corrupt:
            datagrams = tuple([self._corrupt(datagram, condition.corrupt) for datagram in datagrams])
        if condition.duplicate or condition.reorder or condition.late:
            datagrams = self._stray(route, channel, datagrams, arrive_us)
        if datagrams:
            self._scheduler.at(arrive_us, route.arrive, channel, datagrams, sum(map(len, datagrams)))

    def _thin(self, datagrams: tuple[bytes, ...], loss: float) -> tuple[bytes, ...]:
        random = self._random.random
        left = tuple([datagram for datagram in datagrams if random() >= loss])
        self.counters["lost"] += len(datagrams) - len(left)
        return left

    def _corrupt(self, datagram: bytes, probability: float) -> bytes:
        if self._random.random() >= probability or not datagram:
            return datagram
        self.counters["corrupted"] += 1
        place = self._random.randrange(len(datagram) * 8)
        spoiled = bytearray(datagram)
        spoiled[place >> 3] ^= 1 << (place & 7)
        return bytes(spoiled)

    def _stray(
        self, route: Route, channel: Channel, datagrams: tuple[bytes, ...], arrive_us: int
    ) -> tuple[bytes, ...]:
        """Send repeated, reordered and late datagrams on their own ways; the others stay together."""
        condition = route.condition
        random = self._random.random
        together = []
        for datagram in datagrams:
            if condition.duplicate and random() < condition.duplicate:
                self._alone(route, channel, datagram, arrive_us, condition.reorder_us, "duplicated")
            if condition.late and random() < condition.late:
                self._alone(route, channel, datagram, arrive_us, condition.late_us, "delayed")
            elif condition.reorder and random() < condition.reorder:
                self._alone(route, channel, datagram, arrive_us, condition.reorder_us, "reordered")
            else:
                together.append(datagram)
        return tuple(together)

    def _alone(
        self, route: Route, channel: Channel, datagram: bytes, arrive_us: int, extra_us: Range, fate: str
    ) -> None:
        self.counters[fate] += 1
        at_us = arrive_us + self._random.randint(*extra_us)
        self._scheduler.at(at_us, route.arrive, channel, (datagram,), len(datagram))

    def _filtered(
        self, source: ProcessorId, transmit: Transmit, routes: tuple[Route, ...]
    ) -> tuple[Route, ...]:
        for rule in self._rules:
            if routes and rule.hits(source, transmit.packet, routes):
                routes = tuple(route for route in routes if rule.to not in (None, route.target))
                self.counters["filtered"] += 1
                if self._report:
                    self._report(source, rule)
        self._rules = [rule for rule in self._rules if rule.count > 0]
        return routes
