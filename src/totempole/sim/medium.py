"""The communication medium: it carries datagrams between hosts, and loses, delays, repeats and cuts them.

Totem appendix A calls this part of its simulator the communication medium model. Everything happens to single
datagrams (segments). The survivors of a burst that travel together arrive as one event, as one GRO read; a
datagram that is repeated, reordered or late arrives by itself. A link keeps its order unless told to reorder.
Packets can be led astray (packet_filter), and links severed, which no `heal` mends.

Stations have addresses, and a transmission goes to an address. Faults name processors: two stations of one
number are parted from the same others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Protocol

from totempole.core.effects import Channel, Send
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import Condition, Lan, Range
from totempole.sim.packet_filter import STRAY_FATES, DropRule, StrayRule
from totempole.types import ProcessorId


class Station(Protocol):
    """Whatever is attached to the medium."""

    def arrive(
        self, channel: Channel, datagrams: Sequence[bytes], size: int, source: int, network: int = 0
    ) -> None: ...


class Route:
    """One directed link of one network."""

    __slots__ = (
        "arrive",
        "clean",
        "condition",
        "cut",
        "delay_choices",
        "delay_us",
        "last_us",
        "source",
        "target",
    )

    def __init__(
        self, source: int, target: ProcessorId, arrive: Callable[..., None], condition: Condition
    ) -> None:
        self.source = source
        """An address."""
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

    __slots__ = (
        "all_routes",
        "component",
        "condition",
        "cuts",
        "free_ns",
        "index",
        "lan",
        "number",
        "routes",
        "severed",
    )

    def __init__(self, index: int, lan: Lan, number: dict[int, ProcessorId], condition: Condition) -> None:
        self.index = index
        self.lan = lan
        self.condition = condition
        """Of links that are yet to be."""
        self.number = number
        """Whose each address is."""
        self.routes: dict[int, dict[int, Route]] = {}
        """By addresses."""
        self.all_routes: dict[int, tuple[Route, ...]] = {}
        self.component: dict[ProcessorId, int] = {}
        self.cuts: set[tuple[ProcessorId, ProcessorId]] = set()
        self.severed: set[tuple[ProcessorId, ProcessorId]] = set()
        """Cuts that last until they are mended one by one."""
        self.free_ns: dict[int, int] = {}

    def refresh(self) -> None:
        """Work out which routes are cut, so that sending need not."""
        for address, routes in self.routes.items():
            source = self.number[address]
            here = self.component.get(source)
            for route in routes.values():
                parted = self.component.get(route.target) != here
                link = (source, route.target)
                route.cut = parted or link in self.cuts or link in self.severed
            self.all_routes[address] = tuple(routes.values())

    def way_to(self, station: Station) -> Callable[..., None]:
        """An object of its own for each route, so that what is under way on it can be called off."""
        # A node on one network only is not told which: that costs a twentieth of a simulation.
        return partial(station.arrive, network=self.index) if self.index else partial(station.arrive)

    def add(self, address: int, target: ProcessorId, station: Station, condition: Condition) -> None:
        """Routes to the station from all who are there."""
        for other, routes in self.routes.items():
            if other != address:
                routes[address] = Route(other, target, self.way_to(station), condition)

    def move(self, old: int, new: int) -> list[Route]:
        """Gives the station at one address another; these routes led to it."""
        self.routes[new] = self.routes.pop(old)
        del self.all_routes[old]
        for route in self.routes[new].values():
            route.source = new
        for other, routes in self.routes.items():
            if other != new:
                routes[new] = routes.pop(old)
        return [routes[new] for other, routes in self.routes.items() if other != new]


SHARED = 0
"""The key of a shared LAN's one transmitter in `free_ns`."""

NOWHERE = 0
"""An address that nobody has: whoever sends recorded packets sends them from there."""


class Medium:
    """Every method that takes `network` means all networks when it is None."""

    __slots__ = (
        "_addresses",
        "_draw",
        "_networks",
        "_number",
        "_random",
        "_replay",
        "_report",
        "_rules",
        "_scheduler",
        "_stations",
        "_wired",
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
        conditions: Sequence[Condition | None] = (),
        report: Callable[[ProcessorId, DropRule | StrayRule], None] | None = None,
    ) -> None:
        """`conditions`: of those networks that have another than `condition`."""
        self.condition = condition or Condition()
        self.counters: Counter[str] = Counter()
        self._scheduler = scheduler
        self._random = random
        self._draw = random.random
        self._number: dict[int, ProcessorId] = {}
        self._addresses: dict[ProcessorId, int] = {}
        """Of each processor, the address of its first station."""
        own = [*conditions, *(None for _ in lans)]
        self._networks = [
            Network(index, lan, self._number, own[index] or self.condition) for index, lan in enumerate(lans)
        ]
        self._wired: set[tuple[int, int]] = set()
        """Networks whose packets come on the other too."""
        self._stations: dict[int, Station] = {}
        self._rules: list[DropRule | StrayRule] = []
        self._replay = partial(self._come_astray)
        """An object of its own, by which what is still to be sent again can be called off."""
        self._report = report

    @property
    def networks(self) -> int:
        """How many there are."""
        return len(self._networks)

    # Set-up and faults

    def attach(self, processor: ProcessorId, station: Station, address: int | None = None) -> None:
        """At its number, unless another address is given."""
        address = processor if address is None else address
        assert address != NOWHERE, "nobody has this address"
        assert address not in self._stations, f"address {address} is taken"
        self._number[address] = processor
        self._addresses.setdefault(processor, address)
        for network in self._networks:
            network.routes[address] = {
                other: Route(address, self._number[other], network.way_to(there), network.condition)
                for other, there in sorted(self._stations.items())
            }
            network.add(address, processor, station, network.condition)
            network.refresh()
        self._stations[address] = station

    def move(self, old: int, new: int) -> None:
        """The station at one address has another from now on. What is under way to the old one is lost."""
        processor = self._number[new] = self._number[old]
        self._stations[new] = self._stations.pop(old)
        if self._addresses[processor] == old:
            self._addresses[processor] = new
        for network in self._networks:
            routes = network.move(old, new)
            lost = self._scheduler.cancel_calls([route.arrive for route in routes])
            self.counters["sent to an old address"] += sum(len(datagrams) for _, datagrams, *_ in lost)
            network.refresh()
        del self._number[old]

    def set_condition(
        self,
        condition: Condition,
        source: ProcessorId | None = None,
        target: ProcessorId | None = None,
        network: int | None = None,
    ) -> None:
        """For all links, all from `source`, all to `target`, or the one from `source` to `target`."""
        if source is None and target is None and network is None:
            self.condition = condition
        for lan in self._chosen(network):
            if source is None and target is None:
                lan.condition = condition
            for origin in lan.routes:
                number = self._number[origin]
                for route in lan.all_routes[origin]:
                    if source in (None, number) and target in (None, route.target):
                        route.set_condition(condition)

    def condition_of(self, source: ProcessorId, target: ProcessorId, network: int = 0) -> Condition:
        addresses = self._addresses
        return self._networks[network].routes[addresses[source]][addresses[target]].condition

    def set_lan(self, lan: Lan, network: int | None = None) -> None:
        for each in self._chosen(network):
            each.lan = lan

    def partition(
        self, components: Iterable[Iterable[ProcessorId]], network: int | None = None, sharp: bool = False
    ) -> None:
        """Part the components from each other. Processors not named form one more component together.

        `sharp`: what is under way between two components is lost too.
        """
        placed = {member: index for index, members in enumerate(components) for member in members}
        for lan in self._chosen(network):
            lan.component = dict(placed)
            lan.refresh()
            if sharp:
                self._lose_under_way(lan)

    def _lose_under_way(self, lan: Network) -> None:
        cut = [route.arrive for routes in lan.all_routes.values() for route in routes if route.cut]
        lost = self._scheduler.cancel_calls(cut)
        self.counters["cut under way"] += sum(len(datagrams) for _, datagrams, *_ in lost)

    def cut(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        """One way: `target` hears `source` no more."""
        for lan in self._chosen(network):
            lan.cuts.add((source, target))
            lan.refresh()

    def sever(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        """As `cut`, but `heal` does not end it."""
        for lan in self._chosen(network):
            lan.severed.add((source, target))
            lan.refresh()

    @property
    def severed(self) -> set[tuple[ProcessorId, ProcessorId]]:
        """Links that are severed on every network."""
        return set.intersection(*(lan.severed for lan in self._networks))

    def mend(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        for lan in self._chosen(network):
            lan.cuts.discard((source, target))
            lan.severed.discard((source, target))
            lan.refresh()

    def heal(self, network: int | None = None) -> None:
        """End all partitions and cuts, and forget what was still to be dropped or led astray. Conditions and
        severed links stay. Of one network: its own, and what is meant for it alone."""
        if network is None:
            self._rules.clear()
            self._wired.clear()
            self._scheduler.cancel_calls((self._replay,))
        else:
            self._rules = [rule for rule in self._rules if rule.network != network]
            self._wired = {pair for pair in self._wired if network not in pair}
        for lan in self._chosen(network):
            lan.component.clear()
            lan.cuts.clear()
            lan.refresh()

    def wire(self, one: int, other: int) -> None:
        """Join two networks by mistake: what is sent on one comes on both. `heal` ends it."""
        self._wired |= {(one, other), (other, one)}

    def drop_next(self, rule: DropRule) -> None:
        self._rules.append(rule)

    def lead_astray(self, rule: StrayRule) -> None:
        self._rules.append(rule)

    def _chosen(self, network: int | None) -> list[Network]:
        return self._networks if network is None else [self._networks[network]]

    # Carrying

    def send(self, source: int, transmit: Send, depart_us: int, network: int = 0) -> None:
        """Carry a transmission that leaves its sender at `depart_us`, which may lie in the near future.

        `source` and `transmit.to` are addresses here.
        """
        lan = self._networks[network]
        if lan.lan.shared and depart_us > self._scheduler.now_us:
            # Who comes first to a shared wire is known only when the time has come.
            self._scheduler.at(depart_us, self._transmit, source, transmit, depart_us, lan)
        else:
            self._transmit(source, transmit, depart_us, lan)

    def _transmit(self, source: int, transmit: Send, depart_us: int, lan: Network) -> None:
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
            routes = self._nobody(datagrams) if route is None else (route,)
        if self._rules:
            routes = self._filtered(self._number[source], transmit, routes, depart_us, lan.index)
        for route in routes:
            self._carry(route, channel, datagrams, size, depart_us)
        if self._wired:
            self._carry_across(source, transmit, size, depart_us, lan)

    def _carry_across(self, source: int, transmit: Send, size: int, depart_us: int, lan: Network) -> None:
        for other in self._networks:
            if (lan.index, other.index) in self._wired:
                routes = other.routes[source]
                chosen = routes.values() if transmit.to is None else filter(None, [routes.get(transmit.to)])
                for route in chosen:
                    self.counters["crossed"] += len(transmit.datagrams)
                    self._carry(route, transmit.channel, transmit.datagrams, size, depart_us)

    def _nobody(self, datagrams: tuple[bytes, ...]) -> tuple[Route, ...]:
        self.counters["sent to an old address"] += len(datagrams)
        return ()

    def _serialise(self, source: int, count: int, size: int, depart_us: int, lan: Network) -> int:
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
            self._scheduler.at(arrive_us, route.arrive, channel, datagrams, size, route.source)
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
            size = sum(map(len, datagrams))
            self._scheduler.at(arrive_us, route.arrive, channel, datagrams, size, route.source)

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
        self._scheduler.at(at_us, route.arrive, channel, (datagram,), len(datagram), route.source)

    def _filtered(
        self, source: ProcessorId, transmit: Send, routes: tuple[Route, ...], depart_us: int, network: int
    ) -> tuple[Route, ...]:
        for rule in self._rules:
            if routes and rule.hits(source, transmit, routes, network):
                if isinstance(rule, StrayRule):
                    self._lead(rule, source, transmit, routes, depart_us)
                    routes = () if rule.fate == "misdirect" else routes
                    continue
                routes = tuple(route for route in routes if rule.to not in (None, route.target))
                self.counters["filtered"] += 1
                if self._report:
                    self._report(source, rule)
        several = len(self._networks) > 1
        # A packet is dropped on all networks, one after the other.
        self._rules = [rule for rule in self._rules if rule.count > 0 or (several and rule.last is transmit)]
        return routes

    def _lead(
        self,
        rule: StrayRule,
        source: ProcessorId,
        transmit: Send,
        routes: tuple[Route, ...],
        depart_us: int,
    ) -> None:
        at_us = depart_us + rule.after_us + self.condition.delay_us[0]
        come = self._replay if rule.fate == "replay" else self._come_astray
        for target in rule.targets(source, routes):
            self._scheduler.at(at_us, come, rule, source, target, transmit)

    def _come_astray(self, rule: StrayRule, source: ProcessorId, target: ProcessorId, transmit: Send) -> None:
        datagrams = transmit.datagrams
        self.counters[STRAY_FATES[rule.fate]] += len(datagrams)
        if self._report:
            self._report(source, replace(rule, to=target))
        origin = NOWHERE if rule.fate == "replay" else self._addresses[source]
        station = self._stations[self._addresses[target]]
        network = transmit.networks[0] if rule.network is None else rule.network
        station.arrive(transmit.channel, datagrams, sum(map(len, datagrams)), origin, network)
