"""Our share of what the machine can do: the same bytes, by a raw UDP pump between the same hosts, in turn.

Neither checks contents (`check_contents = 0`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench.compare import HOSTS, SIZES
from totempole.bench.pump import best
from totempole.bench.ring import LEAN, RingBench
from totempole.lab import Lab

SEGMENT_BYTES = 1_472
"""As our node chooses for the same network."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 2.0
    sizes: tuple[int, ...] = SIZES


QUICK = Plan(rounds=1, seconds=1.0, sizes=(8000,))


@dataclass(frozen=True, slots=True)
class Share:
    message_bytes: int
    ours_bytes_per_s: float
    pump_bytes_per_s: float

    @property
    def share(self) -> float:
        return self.ours_bytes_per_s / self.pump_bytes_per_s


def measure(plan: Plan, tell: Callable[[str], None]) -> list[Share]:
    ours: dict[int, list[float]] = {size: [] for size in plan.sizes}
    raw: dict[int, list[float]] = {size: [] for size in plan.sizes}
    with Lab("limit", hosts=HOSTS) as lab, TemporaryDirectory(prefix="totem-bench-") as directory:
        for number in range(plan.rounds):
            tell("pump")
            for size in plan.sizes:
                raw[size].append(best(lab, size, plan.seconds / 2, SEGMENT_BYTES).bytes_per_s)
            tell("totempole")
            with RingBench(lab, Path(directory) / str(number), LEAN) as ring:
                for size in plan.sizes:
                    ours[size].append(ring.throughput(size, plan.seconds).messages_per_s * size)
    return [Share(size, median(ours[size]), median(raw[size])) for size in plan.sizes]
