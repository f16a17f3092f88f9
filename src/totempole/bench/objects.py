"""Replicated objects beside etcd's transactions and PySyncObj, in one run: three nodes each, on this machine,
in turn.

Calls per second, and how long each takes, with 1, 16 and 256 callers: tasks of one program here, streams of
`h2load` at etcd, operations under way at PySyncObj. Then linearisable and local reads. Rounds are
interleaved, so that whatever else the machine does falls upon all systems; figures are medians over the
rounds, ratios are taken in each round. Everybody syncs, but for PySyncObj, whose journal is never synced.

Last, of the objects alone: a snapshot of a large object while a program calls.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol, Self

from totempole.bench import etcd, etcd_objects, object_nodes, pysyncobj
from totempole.bench.etcd_objects import EtcdObjects
from totempole.bench.log import last_line
from totempole.bench.object_nodes import ObjectNodes, SnapshotCost
from totempole.bench.replicated import REPLICAS, Load, sync_us
from totempole.bench.workers import WorkerError
from totempole.lab.loopback import LoopbackLab

SIZES = (100, 1_000)
CALLERS = (1, 16, 256)
READ_BYTES = 100
OURS, ETCD, PYSYNCOBJ = "totempole", "etcd", "PySyncObj"
RATIO_AIM = 10.0
"""Calls per second, times etcd's, and times PySyncObj's with a journal."""
KEPT_AIM = 0.8
"""Of calls per second, while a snapshot is taken."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 3.0
    sizes: tuple[int, ...] = SIZES
    callers: tuple[int, ...] = CALLERS
    snapshot_bytes: int = 1_000_000_000
    directory: Path | None = None
    """On the disk that is meant; none: that of temporary files."""

    @property
    def steps(self) -> int:
        """Clusters that are started, all told."""
        return self.rounds * len(CASES) + 1


QUICK = Plan(rounds=1, seconds=1.0, snapshot_bytes=100_000_000)


class System(Protocol):
    """Three replicas that run while it is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def calls(self, way: str, size: int, callers: int, seconds: float) -> Load: ...

    def reads(self, way: str, size: int, callers: int, seconds: float) -> Load: ...


class PySyncObjCalls:
    """PySyncObj with a journal. It has no read but that of the state beside the program."""

    def __init__(self, lab: LoopbackLab, directory: Path, batches: bool) -> None:
        self._cluster = pysyncobj.Cluster(lab, directory, batches, journals=True)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.__exit__()

    def calls(self, way: str, size: int, callers: int, seconds: float) -> Load:
        assert way == pysyncobj.WAY, "there is one way to start operations"
        return self._cluster.load_with(callers, size, object_nodes.SETTLING_S, seconds)

    def reads(self, way: str, size: int, callers: int, seconds: float) -> Load:
        raise AssertionError("none are asked for")


class Way(NamedTuple):
    """An interface, by its name, and with how many callers it is measured."""

    name: str
    is_single: bool = False
    """With one caller only."""

    def callers(self, plan: Plan) -> tuple[int, ...]:
        return plan.callers[:1] if self.is_single else plan.callers


@dataclass(frozen=True, slots=True)
class Case:
    """A system with its settings."""

    system: str
    name: str
    make: Callable[[LoopbackLab, Path], System]
    calls: tuple[Way, ...]
    reads: tuple[Way, ...] = ()


CASES = (
    Case(
        OURS,
        "totempole",
        lambda lab, directory: ObjectNodes(lab, directory),
        (
            Way(object_nodes.CALL),
            Way(object_nodes.CALL_MANY),
            Way(object_nodes.BLOCKING_CALL, is_single=True),
            Way(object_nodes.BLOCKING_CALL_MANY, is_single=True),
        ),
        (Way(object_nodes.READ), Way(object_nodes.PEEK, is_single=True)),
    ),
    Case(
        ETCD,
        "etcd",
        EtcdObjects,
        (Way(etcd_objects.CALL),),
        (Way(etcd_objects.READ), Way(etcd_objects.LOCAL_READ)),
    ),
    Case(
        OURS,
        "totempole, a host at each node",
        lambda lab, directory: ObjectNodes(lab, directory, hosts=REPLICAS),
        (Way(object_nodes.CALL), Way(object_nodes.CALL_MANY)),
    ),
    Case(
        PYSYNCOBJ,
        "PySyncObj, journal",
        lambda lab, directory: PySyncObjCalls(lab, directory, batches=True),
        (Way(pysyncobj.WAY),),
    ),
    # Single operations wait for the next batch, a tenth of a second, unless batches are off.
    Case(
        PYSYNCOBJ,
        "PySyncObj, journal, single",
        lambda lab, directory: PySyncObjCalls(lab, directory, batches=False),
        (Way(pysyncobj.WAY),),
    ),
)


def missing() -> str:
    """Why it cannot be run here; empty when it can."""
    return " and ".join(filter(None, (etcd.missing(), pysyncobj.missing())))


class Cell(NamedTuple):
    """What is measured together in every round."""

    case: str
    way: str
    size: int
    callers: int


@dataclass(slots=True)
class Samples:
    """Everything measured, a list of rounds for each."""

    sync_us: list[float] = field(default_factory=list)
    """What the disk takes for one fdatasync, before each round."""
    load_average: list[float] = field(default_factory=list)
    """Of the machine, over the minute before each round."""
    calls: dict[Cell, list[Load]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[Cell, list[Load]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)
    """Of peers that did not get through a load: PySyncObj with a journal, sometimes."""
    snapshot: SnapshotCost | None = None

    def ratio(self, cell: Cell, system: str) -> float | None:
        """Times what the peer does in the same round with as many callers and bytes: the median. Of a peer
        with several modes, the faster one of that round counts."""
        peers = [case.name for case in CASES if case.system == system]
        theirs = [
            rounds
            for other, rounds in self.calls.items()
            if other.case in peers and (other.size, other.callers) == (cell.size, cell.callers) and rounds
        ]
        mine = self.calls.get(cell, [])
        best = [
            max(rounds[number].records_per_s for rounds in theirs if number < len(rounds))
            for number in range(max(map(len, theirs), default=0))
        ]
        ratios = [one.records_per_s / other for one, other in zip(mine, best, strict=False)]
        return median(ratios) if ratios else None


def median_load(rounds: list[Load]) -> Load:
    return Load(
        median(one.records_per_s for one in rounds),
        median(one.p50_us for one in rounds),
        median(one.p99_us for one in rounds),
        median(one.cpu_us for one in rounds),
        rounds[0].under_way,
    )


def call_cells(plan: Plan) -> Iterator[tuple[Case, Cell]]:
    """In the order of the table."""
    for size in plan.sizes:
        for callers in plan.callers:
            for case in CASES:
                for way in case.calls:
                    if callers in way.callers(plan):
                        yield case, Cell(case.name, way.name, size, callers)


def read_cells(plan: Plan) -> Iterator[tuple[Case, Cell]]:
    for callers in plan.callers:
        for case in CASES:
            for way in case.reads:
                if callers in way.callers(plan):
                    yield case, Cell(case.name, way.name, READ_BYTES, callers)


def measure(plan: Plan, tell: Tell) -> Samples:
    samples = Samples()
    lab = LoopbackLab(REPLICAS)
    with TemporaryDirectory(prefix="totem-bench-", dir=plan.directory) as directory:
        for number in range(plan.rounds):
            samples.load_average.append(os.getloadavg()[0])
            samples.sync_us.append(sync_us(Path(directory)))
            for place, case in enumerate(CASES):
                tell(case.name)
                with TemporaryDirectory(prefix=f"{number}-{place}-", dir=directory) as home:
                    _measure(case, case.make(lab, Path(home)), plan, samples)
        tell("a snapshot")
        with (
            TemporaryDirectory(prefix="large-", dir=directory) as home,
            ObjectNodes(lab, Path(home)) as nodes,
        ):
            samples.snapshot = nodes.snapshot(plan.snapshot_bytes)
    return samples


def _measure(case: Case, system: System, plan: Plan, samples: Samples) -> None:
    with system:
        for measured, cells, kept in (
            (system.calls, call_cells(plan), samples.calls),
            (system.reads, read_cells(plan), samples.reads),
        ):
            for owner, cell in cells:
                if owner is not case:
                    continue
                try:
                    load = measured(cell.way, cell.size, cell.callers, plan.seconds)
                except WorkerError as error:
                    if case.system == OURS:
                        raise
                    samples.failures.append(
                        f"{case.name}, {cell.size} bytes, {cell.callers} callers: {last_line(str(error))}"
                    )
                    return
                kept[cell].append(load)
