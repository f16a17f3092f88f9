"""How fast the simulator is, on one core: rings that are kept full, and runs of the fuzzer with their checks.

The collector is frozen and off during a run, as in a search (sim.fuzz.search): all rows of a trace stay alive
until the run is judged, and looking at them again and again would find nothing.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

from totempole.bench.layers import Breakdown, profile
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.load import Saturation
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.types import RingKind

NODES = 5
MESSAGE_BYTES = 1_000
FORMED_US = 200_000
"""By when the ring is whole."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one round did."""

    packet_events: int
    deliveries: int
    simulated_us: int
    runs: int
    holds: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One workload: the work of a round, and how long each round took."""

    name: str
    work: Work
    rounds_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.rounds_s)

    @property
    def packet_events_per_s(self) -> float:
        return self.work.packet_events / self.median_s

    @property
    def deliveries_per_s(self) -> float:
        return self.work.deliveries / self.median_s

    @property
    def runs_per_s(self) -> float:
        return self.work.runs / self.median_s

    @property
    def simulated_per_s(self) -> float:
        """Simulated seconds in a second."""
        return self.work.simulated_us / 1_000_000 / self.median_s

    @property
    def spread(self) -> float:
        """How far the rounds are apart, as a share of their median."""
        return (max(self.rounds_s) - min(self.rounds_s)) / self.median_s


Workload = Callable[[], Callable[[], Work]]
"""Sets up, unmeasured, and returns the work to be measured."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int = 5
    ring_us: int = 100_000
    seeds: tuple[int, ...] = tuple(range(8))

    @property
    def workloads(self) -> dict[str, Workload]:
        return {
            "classic ring": partial(saturated_ring, RingKind.CLASSIC, self.ring_us),
            "accelerated ring": partial(saturated_ring, RingKind.ACCELERATED, self.ring_us),
            f"fuzz, {len(self.seeds)} seeds": lambda: partial(fuzz_runs, self.seeds),
        }


QUICK = Plan(rounds=3, ring_us=30_000, seeds=(1, 3, 7))


def saturated_ring(kind: RingKind, simulated_us: int) -> Callable[[], Work]:
    """Five nodes whose send queues are always full."""
    world = World(1, NODES, RingConfig(ring_kind=kind))
    world.start()
    world.run_until(FORMED_US)
    return partial(_fill_ring, world, simulated_us)


def _fill_ring(world: World, simulated_us: int) -> Work:
    before = world.packet_events
    for me in world.hosts:
        Saturation(world, me, size=MESSAGE_BYTES).start()
    world.run_for(simulated_us)
    members = [host.regular_configuration for host in world.hosts.values()]
    whole = all(configuration and len(configuration.members) == NODES for configuration in members)
    return Work(
        packet_events=world.packet_events - before,
        deliveries=_delivered(world),
        simulated_us=simulated_us,
        runs=1,
        holds=whole and all(host.delivered for host in world.hosts.values()),
    )


def _delivered(world: World) -> int:
    return sum(host.delivered for host in world.hosts.values())


def fuzz_runs(seeds: tuple[int, ...]) -> Work:
    """Planning, running and judging, as a search does for each seed."""
    packet_events = deliveries = simulated_us = 0
    holds = True
    for seed in seeds:
        scenario = plan(seed)
        verdict, _ = try_scenario(scenario)
        packet_events += verdict.packet_events
        deliveries += verdict.deliveries
        simulated_us += scenario.end_us
        holds = holds and not verdict.violated
    return Work(packet_events, deliveries, simulated_us, len(seeds), holds)


def measure(name: str, workload: Workload, rounds: int, tell: Callable[[], None]) -> Sample:
    """Rounds of the same work; one unmeasured before them, so that imports and caches are warm."""
    work = workload()()
    times = []
    for _ in range(rounds):
        run = workload()
        with collector_at_rest():
            started_s = time.perf_counter()
            work = run()
            times.append(time.perf_counter() - started_s)
        tell()
    return Sample(name, work, tuple(times))


def break_down(workload: Workload) -> Breakdown:
    run = workload()
    with collector_at_rest():
        return profile(run)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
