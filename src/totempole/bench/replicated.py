"""What `totem bench log` asks of each system: three replicas on one machine, under load and one at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from totempole.bench.compare import percentile

REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Load:
    """Records that were ordered at full load."""

    records_per_s: float
    p50_us: float
    """From the call to its answer, with as many calls under way as are best for throughput."""
    p99_us: float
    cpu_us: float
    """Of all replicas together, for one record."""
    under_way: int
    """Records."""


class System(Protocol):
    """Three replicas that run while it is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def load(self, way: str, record_bytes: int, seconds: float) -> Load:
        """At full load. `way`: by which of its interfaces."""
        ...

    def turns_us(self, record_bytes: int, count: int) -> list[float]:
        """From each call to its answer, the next call being made then."""
        ...


class CpuMeter:
    """What some processes spend from here on."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._before = self._total()

    def _total(self) -> float:
        return sum(map(cpu_s, self._pids))

    def spent_s(self) -> float:
        return self._total() - self._before


def cpu_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


PROBE_BYTES = 4_096
PROBES = 200


def sync_us(directory: Path, count: int = PROBES) -> float:
    """Median of fdatasync after a write of 4 KiB into a file that was zeroed ahead: what this disk costs
    everyone."""
    file = directory / "probe"
    times = []
    fd = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        os.pwrite(fd, bytes(PROBE_BYTES * count), 0)
        os.fsync(fd)
        for number in range(count):
            start_ns = time.monotonic_ns()
            os.pwrite(fd, os.urandom(PROBE_BYTES), number * PROBE_BYTES)
            os.fdatasync(fd)
            times.append((time.monotonic_ns() - start_ns) / 1000)
    finally:
        os.close(fd)
        file.unlink()
    return percentile(times, 50)
