"""What the processes of an embedded Spark spend: Java, and the Python workers that it starts.

Both are below this process: Java is its child, the workers are Java's descendants.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from totempole.bench.replicated import cpu_s

SAMPLE_S = 0.2
JAVA = "java"

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = resource.getpagesize()


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    cpu_s: float
    """Its own."""
    ended_cpu_s: float
    """Of its children that have ended."""
    resident_bytes: int


def processes() -> dict[int, Process]:
    """All that there are, by number."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):  # it has ended
                process = _process(int(entry))
                found[process.pid] = process
    return found


def _process(pid: int) -> Process:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    name = text.partition("(")[2].rpartition(")")[0]
    fields = text.rpartition(")")[2].split()
    own, ended = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
    return Process(pid, int(fields[1]), name, own, ended, int(fields[21]) * _PAGE_BYTES)


def descendants(root: int, among: dict[int, Process]) -> Iterator[Process]:
    for process in among.values():
        above = process.parent
        while above in among and above != root:
            above = among[above].parent
        if above == root:
            yield process


class SparkProcesses(NamedTuple):
    java: list[Process]
    workers: list[Process]
    """Python's: those that plan, those that read and write, and who starts them."""

    @classmethod
    def now(cls) -> SparkProcesses:
        there = processes()
        java = [each for each in descendants(os.getpid(), there) if each.name == JAVA]
        return cls(java, [below for each in java for below in descendants(each.pid, there)])

    @property
    def java_cpu_s(self) -> float:
        return sum(each.cpu_s for each in self.java)

    @property
    def worker_cpu_s(self) -> float:
        ended_s = sum(each.ended_cpu_s for each in (*self.java, *self.workers))
        return ended_s + sum(each.cpu_s for each in self.workers)


class CpuSpent(NamedTuple):
    java_s: float
    workers_s: float
    others_s: float
    """Of the processes that were named: log services, or nodes."""

    @property
    def total_s(self) -> float:
        return sum(self)


class CpuMeter:
    """From here on."""

    def __init__(self, others: Iterable[int] = ()) -> None:
        self._others = list(others)
        self._before = self._now()

    def _now(self) -> CpuSpent:
        spark = SparkProcesses.now()
        return CpuSpent(spark.java_cpu_s, spark.worker_cpu_s, sum(map(cpu_s, self._others)))

    def spent(self) -> CpuSpent:
        now = self._now()
        return CpuSpent(*(after - before for after, before in zip(now, self._before, strict=True)))


class Memory(NamedTuple):
    """Resident bytes of the largest Python worker, and of Java, while something was read."""

    workers: list[int]
    java: list[int]

    @property
    def peak_bytes(self) -> int:
        return max(self.workers, default=0)

    @property
    def java_peak_bytes(self) -> int:
        return max(self.java, default=0)

    @property
    def growth(self) -> float:
        """The median of the last third over that of the third before: 1 is flat. In the first third buffers
        still find their size."""
        third = len(self.workers) // 3
        if not third:
            return 1.0
        return median(self.workers[-third:]) / median(self.workers[-2 * third : -third])


@contextmanager
def sampled_memory(pause_s: float = SAMPLE_S) -> Iterator[Memory]:
    """Complete when it ends."""
    memory = Memory([], [])
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(pause_s):
            spark = SparkProcesses.now()
            if spark.workers:
                memory.workers.append(max(each.resident_bytes for each in spark.workers))
                memory.java.append(max(each.resident_bytes for each in spark.java))

    thread = threading.Thread(target=sample, name="memory", daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        is_over.set()
        thread.join()
