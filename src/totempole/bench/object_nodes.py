"""Replicated objects as their users run them: `totem node` with a replica of the log on each of three
loopback addresses, and programs that have the object open by `session.replica(...)`.

All settings but addresses and replicas are the defaults. One program calls; with `hosts=3` there is one at
each node, and each applies every call, as each member of etcd does. A call counts when its result has come
back: it is ordered, on the disks of two, and applied. CPU is that of the nodes and of the programs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from totempole.bench.compare import percentile
from totempole.bench.log_nodes import wait_for_primary
from totempole.bench.replicated import CpuMeter, Load
from totempole.bench.workers import Worker, WorkerError, wait_until
from totempole.lab.cluster import Setup
from totempole.lab.daemons import Daemons
from totempole.lab.loopback import LoopbackLab

PROGRAM = "totempole.bench.object_worker"
BLOCKING_PROGRAM = "totempole.bench.object_blocking_worker"
CALL, CALL_MANY = "Replica.call", "Replica.call_many"
BLOCKING_CALL, BLOCKING_CALL_MANY = "blocking Replica.call", "blocking Replica.call_many"
READ, PEEK = "Replica.read", "Replica.peek"
BATCH = 100
"""Calls of one `call_many`."""
SERVING = 2
"""The node of the program that calls."""
SETTLING_S = 0.5
PAUSE_S = 0.05
FILL_S_MAX, SNAPSHOT_S_MAX = 600.0, 600.0
FILL_BYTES = 1_000
"""Of each value of the large object."""
SNAPSHOT_CALL_BYTES, SNAPSHOT_CALLERS = 100, 256
AFTERWARDS_S = 3.0
MEMORY_PAUSE_S = 0.2
"""Looking at a large process holds it up."""
EDGE_NS = 300_000_000
"""At either side of a snapshot's beginning and end, which are not counted."""


class Sample(NamedTuple):
    """At a moment, in the program: calls that had returned, and whether a snapshot was being taken."""

    at_ns: int
    done: int
    is_busy: bool


@dataclass(frozen=True, slots=True)
class SnapshotCost:
    """A snapshot of a large object while a program calls."""

    state_bytes: int
    seconds: float
    """From its beginning until it was durable."""
    quiet_per_s: float
    """Calls before and after it,"""
    meanwhile_per_s: float
    """and meanwhile."""
    longest_pause_ms: float
    """Without a call that returned, meanwhile."""
    resident_bytes: int
    """Of the program before it: the memory of the state, and all else."""
    peak_bytes: int
    """The most that the program and the child that encodes had together: pages that both have, once."""

    @property
    def kept(self) -> float:
        return self.meanwhile_per_s / self.quiet_per_s


class ObjectNodes:
    def __init__(self, lab: LoopbackLab, directory: Path, hosts: int = 1) -> None:
        numbers = sorted(lab.hosts)
        settings = ["log.enabled=true", f"log.replicas={numbers}"]
        self.daemons = Daemons(lab, directory, Setup(transport="mesh"), settings=settings)
        self._lab = lab
        self._others = [number for number in numbers if number != SERVING][: hosts - 1]
        self._programs: list[Worker] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self.daemons)
            wait_for_primary(self.daemons, self.daemons.numbers)
            self._programs = [self._start(opening, PROGRAM, number) for number in (SERVING, *self._others)]
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, opening: ExitStack, module: str, number: int) -> Worker:
        log = self.daemons.directory / f"{module.rpartition('.')[2]}-{number}.log"
        program = Worker(self._lab.hosts[number], module, [self.daemons.socket(number)], log)
        opening.callback(program.close)
        wait_until(lambda: "ready" in program.told, [program], "the object")
        return program

    @property
    def program(self) -> Worker:
        return self._programs[0]

    def _meter(self, *programs: Worker) -> CpuMeter:
        workers = [program.process.pid for program in (*self._programs, *programs)]
        return CpuMeter([*(process.pid for process in self.daemons.processes.values()), *workers])

    # Calls and reads

    def calls(self, way: str, size: int, callers: int, seconds: float) -> Load:
        if way in (BLOCKING_CALL, BLOCKING_CALL_MANY):
            assert callers == 1, "a program that blocks has one caller"
            return self._blocking(way, size, seconds)
        if way == CALL_MANY:
            return self._load(["call_many", size, callers, BATCH], callers * BATCH, seconds)
        return self._load(["call", size, callers], callers, seconds)

    def reads(self, way: str, size: int, callers: int, seconds: float) -> Load:
        words = ["peek", size] if way == PEEK else ["read", size, callers]
        return self._load(words, callers, seconds)

    def _load(self, words: Sequence[object], under_way: int, seconds: float) -> Load:
        self.program.tell(*words)
        time.sleep(SETTLING_S)
        meter = self._meter()
        self.program.tell("mark")
        time.sleep(seconds)
        report = _checked(self.program, self.program.report())
        cpu_s = meter.spent_s()
        self._quiet()
        return _load_of(self.program, report, cpu_s, under_way)

    def _quiet(self) -> None:
        """Until nothing is under way, or it would count for the next measurement."""
        self.program.tell("quiet")
        before = -1
        while before != (now := self._position()):
            before = now
            time.sleep(PAUSE_S)

    def _position(self) -> int:
        position: int = (self.daemons.status(SERVING).get("log") or {}).get("position", 0)
        return position

    def _blocking(self, way: str, size: int, seconds: float) -> Load:
        """By another program, which applies what this one does, too."""
        with ExitStack() as opening:
            program = self._start(opening, BLOCKING_PROGRAM, SERVING)
            verb = (
                ["call", size, SETTLING_S] if way == BLOCKING_CALL else ["call_many", size, SETTLING_S, BATCH]
            )
            program.tell(*verb)
            program.answer()
            meter = self._meter(program)
            verb[2] = seconds
            program.tell(*verb)
            report = program.answer()
            return _load_of(program, report, meter.spent_s(), 1 if way == BLOCKING_CALL else BATCH)

    # A snapshot of a large object

    def snapshot(self, state_bytes: int) -> SnapshotCost:
        """The object is filled, and called until its first snapshot is durable. That comes by itself: after
        a few megabytes of calls."""
        program = self.program
        program.tell("fill", state_bytes, FILL_BYTES)
        _checked(program, program.answer(FILL_S_MAX))
        pid = program.process.pid
        resident = proportional_bytes(pid)
        program.tell("call", SNAPSHOT_CALL_BYTES, SNAPSHOT_CALLERS)
        time.sleep(SETTLING_S)
        program.tell("mark")
        program.tell("watch")
        peak = self._wait_for_snapshot(pid, resident)
        report = _checked(program, program.report())
        self._quiet()
        samples = [Sample(*each) for each in report["samples"]]
        return cost_of(state_bytes, samples, resident, peak)

    def _wait_for_snapshot(self, pid: int, peak: int) -> int:
        """The most memory that was seen meanwhile."""
        give_up_s = time.monotonic() + SNAPSHOT_S_MAX
        directory = self.daemons.home(SERVING) / "log" / "snapshots"
        while not any(directory.rglob("*.snapshot")):
            if time.monotonic() > give_up_s:
                raise self.program.failure(f"has no snapshot after {SNAPSHOT_S_MAX:g} s")
            peak = max(peak, family_bytes(pid))
            time.sleep(MEMORY_PAUSE_S)
        time.sleep(AFTERWARDS_S)
        return peak


def _checked(program: Worker, report: dict[str, Any]) -> dict[str, Any]:
    if report["error"]:
        raise program.failure(f"was refused: {report['error']}")
    return report


def _load_of(program: Worker, report: dict[str, Any], cpu_s: float, under_way: int) -> Load:
    latencies = report["latencies_us"]
    if not report["done"] or not latencies:
        raise program.failure("has no call that returned")
    return Load(
        report["done"] / report["seconds"],
        percentile(latencies, 50),
        percentile(latencies, 99),
        cpu_s * 1e6 / report["done"],
        under_way,
    )


def cost_of(state_bytes: int, samples: Sequence[Sample], resident: int, peak: int) -> SnapshotCost:
    """Of the longest snapshot that was begun and ended while the samples were taken."""
    spans = busy_spans(samples)
    if not spans:
        raise WorkerError("no snapshot was begun and ended while it was watched")
    first, last = max(spans, key=lambda span: span[1].at_ns - span[0].at_ns)
    pauses, before = [0], first
    for sample in samples:
        if first.at_ns < sample.at_ns <= last.at_ns and sample.done > before.done:
            pauses.append(sample.at_ns - before.at_ns)
            before = sample
    quiet = [
        rate
        for rate in (
            _rate([each for each in samples if each.at_ns < first.at_ns - EDGE_NS]),
            _rate([each for each in samples if each.at_ns > last.at_ns + EDGE_NS]),
        )
        if rate
    ]
    if not quiet:
        raise WorkerError("no call returned before or after the snapshot")
    return SnapshotCost(
        state_bytes,
        (last.at_ns - first.at_ns) / 1e9,
        median(quiet),
        _rate([first, last]),
        max(pauses) / 1e6,
        resident,
        peak,
    )


def busy_spans(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """The first sample of each snapshot, and the first behind it."""
    spans, begun = [], None
    for before, sample in pairwise(samples):
        if sample.is_busy and not before.is_busy:
            begun = sample
        elif before.is_busy and not sample.is_busy and begun is not None:
            spans.append((begun, sample))
            begun = None
    return spans


def _rate(samples: Sequence[Sample]) -> float:
    """Calls per second."""
    if len(samples) < 2:
        return 0.0
    first, last = samples[0], samples[-1]
    return (last.done - first.done) * 1e9 / (last.at_ns - first.at_ns)


def family_bytes(pid: int) -> int:
    """Of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return sum(proportional_bytes(each) for each in (pid, *map(int, children)))


def proportional_bytes(pid: int) -> int:
    """Memory of a process; what it shares with others counts in part. 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(text.partition("\nPss:")[2].split()[0]) * 1024 if "\nPss:" in text else 0
