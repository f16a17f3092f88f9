"""Stretches of a scenario in which nothing fails but networks, and every two processors always share one.

Of each network it is known which processors do not hear which others on it. Whatever else is wrong with a
network counts as all of it. What is not about a single network ends a stretch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

from totempole.checkers.terms import Calm
from totempole.sim.conditions import Condition, Costs
from totempole.sim.script import (
    DropNext,
    Fault,
    Heal,
    OnInterface,
    OnLink,
    OnService,
    Partition,
    Scenario,
    SetCondition,
    Wire,
)
from totempole.sim.script_faults import Stray
from totempole.types import ProcessorId

SKEW_US = 1_000
"""Networks whose delays differ by so much cause no retransmission."""

SPEED_LEAST = 1_250_000
SPEEDS_APART = 10
"""Nor do networks of 10 Mbit/s or more, the fastest at most this many times as fast as the slowest. Where
messages do not go on all of them, their capacities must be set."""

Pair = tuple[ProcessorId, ProcessorId]


@dataclass(slots=True)
class NetworkFaults:
    """What is wrong with one network."""

    cut: set[Pair] = field(default_factory=set)
    severed: set[Pair] = field(default_factory=set)
    parted: set[Pair] = field(default_factory=set)
    rough: set[tuple[ProcessorId | None, ProcessorId | None]] = field(default_factory=set)
    dropping: bool = False
    drained: bool = False

    def joins(self, pair: Pair) -> bool:
        """Whether two processors hear each other."""
        bad = self.cut | self.severed | self.parted
        return not (self.dropping or self.drained or self.rough) and not {pair, pair[::-1]} & bad

    @property
    def is_whole(self) -> bool:
        return not (self.dropping or self.rough or self.cut or self.severed or self.parted)


class Networks:
    """All networks of a scenario, as its steps break and mend them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._everyone = [me for _, me in scenario.processors]
        self.by_name = {network.name: NetworkFaults() for network in scenario.networks}
        self.broken = False
        """Something else than a network has failed."""
        self.strange = False
        """Packets come where they were not sent, or again."""

    @property
    def share(self) -> bool:
        """Whether every two processors share a network."""
        pairs = [pair for pair in permutations(self._everyone, 2) if pair[0] < pair[1]]
        return not self.broken and all(
            any(faults.joins(pair) for faults in self.by_name.values()) for pair in pairs
        )

    @property
    def lossless(self) -> bool:
        return (
            not self.broken and not self.strange and all(faults.is_whole for faults in self.by_name.values())
        )

    def _chosen(self, network: str) -> list[NetworkFaults]:
        return [self.by_name[network]] if network else list(self.by_name.values())

    def take(self, action: Fault) -> None:
        match action:
            case OnLink(verb, source, target, network):
                for faults in self._chosen(network):
                    self._on_link(faults, verb, (source, target))
            case OnInterface(verb, processor, network):
                for faults in self._chosen(network):
                    self._on_interface(faults, verb, processor)
            case Partition(components, _, network):
                for faults in self._chosen(network):
                    faults.parted = self._parted(components)
            case Heal(network):
                for faults in self._chosen(network):
                    faults.cut, faults.parted, faults.dropping = set(), set(), False
            case SetCondition(condition, source_or_none, target_or_none, network):
                for faults in self._chosen(network):
                    self._set_condition(faults, condition, source_or_none, target_or_none)
            case DropNext(network=network):
                for faults in self._chosen(network):
                    faults.dropping = True
            case OnService(verb, network, _):
                # It may be refused; and restored, a network may have to wait.
                self.by_name[network].drained = True
            case Wire() | Stray(verb="replay"):
                self.strange = True
            case _:
                self.broken = True

    def _on_link(self, faults: NetworkFaults, verb: str, pair: Pair) -> None:
        if verb == "mend":
            faults.cut.discard(pair)
            faults.severed.discard(pair)
        else:
            (faults.severed if verb == "sever" else faults.cut).add(pair)

    def _on_interface(self, faults: NetworkFaults, verb: str, me: ProcessorId) -> None:
        mine = [(me, other) for other in self._everyone if other != me]
        if verb == "mute":
            faults.cut.update(mine)
        elif verb == "deafen":
            faults.cut.update((other, me) for me, other in mine)
        else:
            for pair in [*mine, *((other, me) for me, other in mine)]:
                faults.cut.discard(pair)
                faults.severed.discard(pair)

    def _parted(self, components: tuple[tuple[ProcessorId, ...], ...]) -> set[Pair]:
        place = {me: number for number, members in enumerate(components) for me in members}
        pairs = permutations(self._everyone, 2)
        return {(one, other) for one, other in pairs if place.get(one, -1) != place.get(other, -1)}

    def _set_condition(
        self,
        faults: NetworkFaults,
        condition: Condition,
        source: ProcessorId | None,
        target: ProcessorId | None,
    ) -> None:
        if source is None and target is None:
            faults.rough.clear()
        if is_rough(condition, self._scenario):
            faults.rough.add((source, target))
        else:
            faults.rough.discard((source, target))


def is_rough(condition: Condition, scenario: Scenario) -> bool:
    """Whether it loses, disturbs or delays more than a millisecond longer than at first."""
    harm = (condition.loss, condition.duplicate, condition.reorder, condition.late, condition.corrupt)
    slow = condition.delay_us[1] > scenario.condition.delay_us[1] + SKEW_US
    return any(harm) or bool(condition.token_loss) or slow


def shared_stretches(scenario: Scenario, settled_us: int) -> tuple[Calm, ...]:
    """Stretches that begin when all have come together, so long after the beginning.

    Not where each token goes on some networks only, as RRP has it: when one of two dies, every second token
    is lost, and a rotation in which several processors must pass it again may take longer than the token loss
    timeout."""
    if scenario.redundancy is not None and scenario.redundancy.tokens == "one":
        return ()
    return tuple(_stretches(scenario, settled_us, lossless=False))


def lossless_stretches(scenario: Scenario, settled_us: int) -> tuple[Calm, ...]:
    """Only where a message comes before the token that has gone by way of another processor, on the same
    network: RRP's networks keep their order (inequalities 6 and 7), those of footnote 2 do not. And only
    where their speeds differ no further than is promised."""
    delays = [(one.condition or scenario.condition).delay_us for one in scenario.networks]
    if any(most_us > 2 * least_us for least_us, most_us in delays) or not _keep_in_step(scenario):
        return ()
    return tuple(_stretches(scenario, settled_us, lossless=True))


def _keep_in_step(scenario: Scenario) -> bool:
    """Whether the ring is promised to be no faster than its slowest network, whatever the load. A network
    without a limit on its speed is not slow."""
    speeds = [one.lan.bandwidth_bytes_per_s for one in scenario.networks]
    if not any(speeds):
        return True
    if scenario.redundancy is None or scenario.redundancy.tokens == "one" or not all(speeds):
        return False
    if min(speeds) < SPEED_LEAST or max(speeds) > SPEEDS_APART * min(speeds):
        return False
    by_capacity = [one.lan.bandwidth_bytes_per_s // one.capacity for one in scenario.networks]
    return scenario.redundancy.style == "active" or max(by_capacity) == min(by_capacity)


def _stretches(scenario: Scenario, settled_us: int, lossless: bool) -> Iterator[Calm]:
    networks = Networks(scenario)
    ordinary = scenario.costs == Costs() and not scenario.absent and not scenario.discard_limit
    rough = any(one.condition and is_rough(one.condition, scenario) for one in scenario.networks)
    if not scenario.networks or not ordinary or rough or is_rough(scenario.condition, scenario):
        return
    since_us: int | None = 0
    for step in scenario.steps:
        if not isinstance(step.action, Fault):
            continue
        networks.take(step.action)
        holds = networks.lossless if lossless else networks.share
        if not holds and since_us is not None:
            yield from _calm(since_us, settled_us, step.at_us - 1)
            since_us = None
        elif holds and since_us is None and lossless:
            since_us = step.at_us
        if networks.broken:
            return
    if since_us is not None:
        yield from _calm(since_us, settled_us, scenario.end_us)


def _calm(from_us: int, settled_us: int, to_us: int) -> Iterator[Calm]:
    if from_us + settled_us < to_us:
        yield Calm(from_us, from_us + settled_us, to_us)
