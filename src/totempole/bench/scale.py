"""How a ring behaves as it grows, all nodes on one machine: more nodes, more work for the same cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench.ring import RingBench, Throughput
from totempole.lab import Lab
from totempole.lab.cluster import Setup

NODES = (2, 3, 4, 5, 6, 7, 8)
MESSAGE_BYTES = 1600


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 2.0
    idle_s: float = 3.0
    nodes: tuple[int, ...] = NODES


QUICK = Plan(rounds=1, seconds=1.0, idle_s=1.0, nodes=(2, 4))


@dataclass(frozen=True, slots=True)
class Size:
    """A ring of so many nodes: medians over the rounds."""

    nodes: int
    messages_per_s: float
    rotation_us: float
    cpu_us_per_delivery: float
    idle_cpu_share: float
    """Of one core, for one node of an idle ring."""


def measure(plan: Plan, tell: Callable[[str], None]) -> list[Size]:
    sizes = []
    with (
        Lab("scale", hosts=max(plan.nodes)) as lab,
        TemporaryDirectory(prefix="totem-bench-") as directory,
    ):
        for nodes in plan.nodes:
            tell(f"{nodes} nodes")
            hosts = range(1, nodes + 1)
            with RingBench(lab, Path(directory) / str(nodes), Setup(), hosts) as ring:
                rounds = [ring.throughput(MESSAGE_BYTES, plan.seconds) for _ in range(plan.rounds)]
                sizes.append(_size(nodes, rounds, _idle_share(ring, plan.idle_s)))
    return sizes


def _size(nodes: int, rounds: list[Throughput], idle_share: float) -> Size:
    return Size(
        nodes,
        median(one.messages_per_s for one in rounds),
        median(one.rotation_us for one in rounds),
        median(one.cpu_us_per_delivery for one in rounds),
        idle_share,
    )


def _idle_share(ring: RingBench, seconds: float) -> float:
    time.sleep(1.0)
    ring.cluster.tell("mark")
    time.sleep(seconds)
    reports = list(ring.reports().values())
    shares: list[float] = [report["cpu_s"] / report["seconds"] for report in reports]
    return sum(shares) / len(shares)
