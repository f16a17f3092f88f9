"""Totempole beside corosync, in one run: the same hosts, the same sizes, in turn, several rounds.

Four daemons each, one sender, a bridge at MTU 1500. Corosync runs with its defaults, with and without its
realtime priority ("-rt"), and stands with the best of its transports at each size; Totempole runs with its
own defaults, but that unencrypted it checks no contents (`check_contents = 0`), as corosync does not either:
in three ways.

`CALLBACK`: the bare ring without groups, as callbacks on the node's own thread, which no program uses
(`runtime.application.Application`). Its latencies, too, are taken with and without a realtime priority.
`NODE`: a program with an embedded `Node`, on a thread, in a group.
`DAEMON`: a program that is a client of `totem node` (`connect`), in a group, as corosync's clients are. A
daemon with a realtime priority would only keep its client waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench import corosync
from totempole.bench.daemons import DaemonBench, NodeBench, ProgramBench
from totempole.bench.realtime import realtime
from totempole.bench.ring import LEAN, RingBench
from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.runtime import keyring

HOSTS = 4
SIZES = (64, 320, 1600, 8000, 40000)
LATENCY_BYTES = 64
LATENCY_RATE = 200
PERCENTILES = (50, 99, 99.9)
SERVICES = ("agreed", "safe")
CALLBACK, NODE, DAEMON = "callback ", "node ", "daemon "
"""Begin the names of what was measured in each way."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 1.0
    sizes: tuple[int, ...] = SIZES
    latency_count: int = 600
    """0: no latencies."""
    encrypted: tuple[bool, ...] = (False, True)
    failovers: bool = True

    @property
    def steps(self) -> int:
        """Clusters that are started, all told."""
        return self.rounds * sum(len(variants(sealed)) + 3 for sealed in self.encrypted)


QUICK = Plan(rounds=1, seconds=1.0, sizes=(64, 1600), latency_count=200, encrypted=(False,))

LATENCIES = Plan(rounds=7, sizes=(), encrypted=(False,), failovers=False)
"""Tails need many short rounds: whatever else the machine does falls upon one system only."""


@dataclass(slots=True)
class Samples:
    """Everything measured, a list of rounds for each."""

    theirs: dict[tuple[bool, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Messages per second by encryption, transport, size."""
    ours: dict[tuple[bool, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """By encryption, way and service (of callbacks also "cut": agreed with gso_max_segs 1), size."""
    their_latencies_us: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    our_latencies_us: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    """By way; of callbacks, with and without a realtime priority."""
    their_failovers_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    our_failovers_ms: list[float] = field(default_factory=list)

    def best_of_theirs(self, sealed: bool, size: int) -> tuple[str, float]:
        """The transport with the highest median, and that median."""
        rates = {
            transport: median(rounds)
            for (encrypted, transport, bytes_), rounds in self.theirs.items()
            if encrypted == sealed and bytes_ == size
        }
        best = max(rates, key=rates.__getitem__)
        return best, rates[best]


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def measure(plan: Plan, tell: Tell) -> Samples:
    samples = Samples()
    with Lab("compare", hosts=HOSTS) as lab, TemporaryDirectory(prefix="totem-bench-") as directory:
        key_file = Path(directory) / "ring.key"
        keyring.create(key_file)
        for number in range(plan.rounds):
            for sealed in plan.encrypted:
                for transport, realtime in variants(sealed):
                    name = variant_name(transport, realtime)
                    tell(f"corosync {name}{' encrypted' if sealed else ''}")
                    with corosync.Cluster(lab, transport, sealed, realtime) as cluster:
                        _measure_theirs(cluster, plan, samples, name, sealed)
                tell(f"totempole, callbacks{' sealed' if sealed else ''}")
                setup = Setup(key_file=key_file) if sealed else LEAN
                place = Path(directory) / f"round-{number}-{'sealed' if sealed else 'plain'}"
                with RingBench(lab, place, setup) as ring:
                    _measure_ours(lab, ring, plan, samples, sealed)
                tell(f"totempole, Node{' sealed' if sealed else ''}")
                with NodeBench(lab, place / "nodes", setup) as nodes:
                    _measure_programs(nodes, NODE, plan, samples, sealed)
                tell(f"totempole, daemon and client{' sealed' if sealed else ''}")
                with DaemonBench(lab, place / "daemons", setup) as daemons:
                    _measure_programs(daemons, DAEMON, plan, samples, sealed)
    return samples


def variants(sealed: bool) -> list[tuple[corosync.Transport, bool]]:
    """Each transport with realtime priority, corosync's default, and without: whichever suits it better."""
    return [(transport, realtime) for transport in corosync.transports(sealed) for realtime in (True, False)]


def variant_name(transport: corosync.Transport, realtime: bool) -> str:
    return transport.value if realtime else f"{transport.value} -rt"


def _measure_theirs(cluster: corosync.Cluster, plan: Plan, samples: Samples, name: str, sealed: bool) -> None:
    for size in plan.sizes:
        rate = cluster.throughput(size, plan.seconds).messages_per_s
        samples.theirs[sealed, name, size].append(rate)
    if not sealed and plan.latency_count:
        latencies = cluster.latency(LATENCY_BYTES, LATENCY_RATE, plan.latency_count)
        samples.their_latencies_us[name].append(latencies)
    if not sealed and plan.failovers and not name.endswith("-rt"):
        samples.their_failovers_ms[name] += cluster.failover()  # nine seconds with "-rt" and without


def _measure_ours(lab: Lab, ring: RingBench, plan: Plan, samples: Samples, sealed: bool) -> None:
    for size in plan.sizes:
        for service in SERVICES:
            rate = ring.throughput(size, plan.seconds, service).messages_per_s
            samples.ours[sealed, CALLBACK + service, size].append(rate)
    if sealed:
        return
    lab.holes()
    for size in plan.sizes:
        rate = ring.throughput(size, plan.seconds).messages_per_s
        samples.ours[sealed, CALLBACK + "cut", size].append(rate)
    lab.holes(on=False)
    priorities = ((CALLBACK, nullcontext()), (CALLBACK + "realtime", realtime(ring.processes)))
    for way, at in priorities if plan.latency_count else ():
        with at:
            latencies = ring.latencies_us(LATENCY_BYTES, LATENCY_RATE, plan.latency_count)
            samples.our_latencies_us[way].append(latencies)
    if plan.failovers:
        samples.our_failovers_ms += ring.failover_ms(victim=HOSTS)


def _measure_programs(programs: ProgramBench, way: str, plan: Plan, samples: Samples, sealed: bool) -> None:
    for size in plan.sizes:
        for service in SERVICES:
            rate = programs.throughput(size, plan.seconds, service).messages_per_s
            samples.ours[sealed, way + service, size].append(rate)
    if not sealed and plan.latency_count:
        latencies = programs.latencies_us(LATENCY_BYTES, LATENCY_RATE, plan.latency_count)
        samples.our_latencies_us[way].append(latencies)
