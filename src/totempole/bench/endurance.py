"""What only shows with time: no false alarm on a busy machine, and no memory that grows.

`calm` keeps every core busy with other work beside a ring at full load and counts configuration changes:
there must be none. `soak` watches the resident size of each node at full load.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench.ring import RingBench
from totempole.lab import Lab
from totempole.lab.cluster import Setup

HOSTS = 4
MESSAGE_BYTES = 1600
RESIDENT_BYTES_MAX = 256 * 1024 * 1024
"""The stated bound of a node that embeds no program and writes no trace."""
GROWTH_MAX = 1.05
"""Flat: the last third's median over the first third's, once the node is warm."""
WARM_SHARE = 0.1
SPINNER = "while True: pass"


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at all nodes."""

    at_s: float
    messages_per_s: float
    resident_bytes: int
    """Of the largest node."""
    changes: int
    lag_ms_max: float
    retransmissions: int


@dataclass(frozen=True, slots=True)
class Endurance:
    readings: list[Reading]

    @property
    def changes(self) -> int:
        return sum(reading.changes for reading in self.readings)

    @property
    def messages_per_s(self) -> float:
        return median(reading.messages_per_s for reading in self.readings)

    @property
    def growth(self) -> float:
        warm = self.readings[int(len(self.readings) * WARM_SHARE) :]
        third = max(1, len(warm) // 3)
        sizes = [reading.resident_bytes for reading in warm]
        return median(sizes[-third:]) / median(sizes[:third])

    @property
    def resident_bytes_max(self) -> int:
        return max(reading.resident_bytes for reading in self.readings)

    @property
    def flat(self) -> bool:
        return self.growth <= GROWTH_MAX and self.resident_bytes_max <= RESIDENT_BYTES_MAX


def endure(seconds: float, busy: bool, tell: Callable[[float], None], every_s: float = 5.0) -> Endurance:
    """A ring at full load for so long, with every core kept busy by something else or not."""
    readings: list[Reading] = []
    with (
        Lab("endure", hosts=HOSTS) as lab,
        TemporaryDirectory(prefix="totem-bench-") as directory,
        RingBench(lab, Path(directory), Setup()) as ring,
        _spinners(os.cpu_count() or 1 if busy else 0),
    ):
        cluster = ring.cluster
        cluster.tell("flood", MESSAGE_BYTES, "agreed", numbers=[1])
        time.sleep(1.0)
        started_s = time.monotonic()
        while time.monotonic() - started_s < seconds:
            cluster.tell("mark")
            time.sleep(min(every_s, seconds))
            readings.append(_read(ring, time.monotonic() - started_s))
            tell(readings[-1].at_s)
    return Endurance(readings)


def _read(ring: RingBench, at_s: float) -> Reading:
    reports = list(ring.reports().values())
    return Reading(
        at_s,
        min(report["messages"] / report["seconds"] for report in reports),
        max(report["rss_bytes"] for report in reports),
        sum(report["changes"] for report in reports),
        max(report["status"]["lag"]["max_ms"] for report in reports),
        sum(report["status"]["totals"]["retransmissions"] for report in reports),
    )


@contextmanager
def _spinners(count: int) -> Iterator[None]:
    spinners = [subprocess.Popen([sys.executable, "-c", SPINNER]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
