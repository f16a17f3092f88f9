"""A LAN of 100 Mbit/s, everyone sending messages of 1 KB: how much of the link carries payload.

The LAN is one shared medium, as the papers' Ethernet was: each host sends through a token bucket of 100
Mbit/s, its network card, and all that any host sends passes one more where it enters the switch. The buckets
count each frame with its Ethernet header. What they let through is measured in the same run by a raw UDP pump
of full frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench.pump import best
from totempole.bench.ring import RingBench
from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.srp.config import RingConfig
from totempole.types import RingKind

RATE = "100mbit"
LINK_BYTES_PER_S = 12_500_000
MESSAGE_BYTES = 1_000
SEGMENT_BYTES = 1_472


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 4.0
    nodes: tuple[int, ...] = (4, 6)


QUICK = Plan(rounds=1, seconds=2.0, nodes=(4,))


@dataclass(frozen=True, slots=True)
class Share:
    nodes: int
    ring_kind: str
    payload_bytes_per_s: float
    pump_bytes_per_s: float

    @property
    def of_link(self) -> float:
        return self.payload_bytes_per_s / LINK_BYTES_PER_S

    @property
    def of_pump(self) -> float:
        return self.payload_bytes_per_s / self.pump_bytes_per_s


def measure(plan: Plan, tell: Callable[[str], None]) -> list[Share]:
    return [share for nodes in plan.nodes for share in _measure(plan, nodes, tell)]


def _measure(plan: Plan, nodes: int, tell: Callable[[str], None]) -> list[Share]:
    ours: dict[RingKind, list[float]] = {kind: [] for kind in RingKind}
    raw = []
    with (
        Lab("lan100", hosts=nodes) as lab,
        TemporaryDirectory(prefix="totem-bench-") as directory,
        lab.shape(RATE, direction="from"),
        lab.shared_medium(RATE),
    ):
        for number in range(plan.rounds):
            tell(f"{nodes} nodes")
            raw.append(best(lab, MESSAGE_BYTES, plan.seconds / 2, SEGMENT_BYTES).bytes_per_s)
            for kind, rates in ours.items():
                setup = Setup(ring=RingConfig(ring_kind=kind))
                with RingBench(lab, Path(directory) / f"{number}-{kind.name}", setup) as ring:
                    senders = list(lab.hosts)
                    rate = ring.throughput(MESSAGE_BYTES, plan.seconds, senders=senders).messages_per_s
                    rates.append(rate * MESSAGE_BYTES)
    return [Share(nodes, kind.name.lower(), median(rates), median(raw)) for kind, rates in ours.items()]
