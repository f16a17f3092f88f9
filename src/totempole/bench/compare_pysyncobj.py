"""Totempole beside PySyncObj, in one run: the same hosts, the same sizes, in turn, several rounds.

Three nodes each, one that sends. PySyncObj stands with the better of its two modes. Totempole runs at its
defaults: by callbacks on the bare ring, and through daemon and client. Nothing is encrypted, and nobody
writes messages to disk: PySyncObj's operation is done when a majority has it in memory; our agreed message
when its place in the order is certain, our safe one when every node has it in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench import pysyncobj
from totempole.bench.compare import PERCENTILES, percentile
from totempole.bench.daemons import DaemonBench
from totempole.bench.ring import RingBench
from totempole.lab import Lab
from totempole.lab.cluster import Setup

HOSTS = 3
SIZES = (64, 320, 1600, 8000)
LATENCY_BYTES = 64
EMBEDDED_RATE = 200
MODES = {True: "PySyncObj, batches", False: "PySyncObj, single"}
EMBEDDED, DAEMON = "ring callbacks (Application)", "totem node and connect()"
SERVICES = ("agreed", "safe")


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 2.0
    sizes: tuple[int, ...] = SIZES
    turns: int = 300
    windows: tuple[int, ...] = pysyncobj.WINDOWS

    @property
    def steps(self) -> int:
        """Clusters that are started, all told."""
        return self.rounds * (len(MODES) + 2)


QUICK = Plan(rounds=1, seconds=1.0, sizes=(64, 1600), turns=50, windows=(1_000,))


@dataclass(slots=True)
class Samples:
    """Everything measured, a list of rounds for each."""

    theirs: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Operations per second by mode, size."""
    ours: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Messages per second by way, size."""
    latencies_us: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    """One operation at a time, by who."""

    def best_of_theirs(self, size: int) -> tuple[str, float]:
        """The mode with the higher median, and that median."""
        rates = {mode: median(rounds) for (mode, bytes_), rounds in self.theirs.items() if bytes_ == size}
        best = max(rates, key=rates.__getitem__)
        return best, rates[best]

    def percentiles_us(self) -> dict[str, list[float]]:
        return {
            who: [median(percentile(latencies, percent) for latencies in rounds) for percent in PERCENTILES]
            for who, rounds in self.latencies_us.items()
        }


def ways() -> list[str]:
    return [f"{way}, {service}" for way in (EMBEDDED, DAEMON) for service in SERVICES]


def measure(plan: Plan, tell: Callable[[str], None]) -> Samples:
    samples = Samples()
    with Lab("raft", hosts=HOSTS) as lab, TemporaryDirectory(prefix="totem-bench-") as directory:
        for number in range(plan.rounds):
            place = Path(directory) / str(number)
            for batches, mode in MODES.items():
                tell(mode)
                with pysyncobj.Cluster(lab, place / "pysyncobj", batches, plan.windows) as cluster:
                    _measure_theirs(cluster, plan, samples, mode)
            tell(EMBEDDED)
            with RingBench(lab, place / "ring", Setup()) as ring:
                _measure_embedded(ring, plan, samples)
            tell(DAEMON)
            with DaemonBench(lab, place / "daemons", Setup()) as daemons:
                _measure_daemons(daemons, plan, samples)
    return samples


def _measure_theirs(cluster: pysyncobj.Cluster, plan: Plan, samples: Samples, mode: str) -> None:
    for size in plan.sizes:
        samples.theirs[mode, size].append(cluster.throughput(size, plan.seconds).operations_per_s)
    if mode == MODES[False]:  # the other waits for the next batch, a tenth of a second
        samples.latencies_us[mode].append(cluster.turns_us(LATENCY_BYTES, plan.turns))


def _measure_embedded(ring: RingBench, plan: Plan, samples: Samples) -> None:
    for service in SERVICES:
        way = f"{EMBEDDED}, {service}"
        for size in plan.sizes:
            rate = ring.throughput(size, plan.seconds, service).messages_per_s
            samples.ours[way, size].append(rate)
        latencies = ring.latencies_us(LATENCY_BYTES, EMBEDDED_RATE, plan.turns, service)
        samples.latencies_us[way].append(latencies)


def _measure_daemons(daemons: DaemonBench, plan: Plan, samples: Samples) -> None:
    for service in SERVICES:
        way = f"{DAEMON}, {service}"
        for size in plan.sizes:
            rate = daemons.throughput(size, plan.seconds, service).messages_per_s
            samples.ours[way, size].append(rate)
        samples.latencies_us[way].append(daemons.turns_us(LATENCY_BYTES, plan.turns, service))
