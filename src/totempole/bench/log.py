"""The durable log beside etcd and PySyncObj, in one run: three replicas each, on this machine, in turn.

Records of several sizes, synced and not: how many a second, how long each takes under that load, what all
replicas spend on one, and how long one takes when nothing else is under way. Rounds are interleaved, so that
whatever else the machine does falls upon all systems; figures are medians over the rounds.

Then of the log alone: how soon records are green again after kill -9 of one replica (etcd's leader stands
beside it), how long a replica that has missed a million records takes to catch up under load and what the
others lose by it, and how fast the log is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench import etcd, log_nodes, pysyncobj
from totempole.bench.compare import percentile
from totempole.bench.log_nodes import CatchUp, Replicas
from totempole.bench.replicated import REPLICAS, Load, System, sync_us
from totempole.bench.workers import WorkerError
from totempole.lab.loopback import LoopbackLab

SIZES = (100, 1_000, 10_000)
LATENCY_BYTES = 100
OURS, ETCD, PYSYNCOBJ = "totempole", "etcd", "PySyncObj"
JUST_BACK = "totempole, just after a replica came back"

RATIO_AIMS = {100: 20.0, 1_000: 5.0, 10_000: 5.0}
"""Records per second, times etcd's, both synced."""
FAILOVER_MS_AIM = 300.0
CATCH_UP_S_AIM = 10.0
KEPT_AIM = 0.8
READ_PER_S_AIM = 2_000_000.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 4.0
    sizes: tuple[int, ...] = SIZES
    turns: int = 300
    kills: int = 6
    missed: int = 1_000_000
    """Records that a replica has to catch up with."""
    etcd_under_way: tuple[int, ...] = etcd.UNDER_WAY
    pysyncobj_under_way: tuple[int, ...] = pysyncobj.WINDOWS
    directory: Path | None = None
    """On the disk that is meant; none: that of temporary files."""

    @property
    def steps(self) -> int:
        """Clusters that are started, all told."""
        return self.rounds * len(CASES) + 3


QUICK = Plan(
    rounds=1,
    seconds=1.0,
    sizes=(100, 1_000),
    turns=50,
    kills=2,
    missed=100_000,
    etcd_under_way=(1_000,),
    pysyncobj_under_way=(1_000,),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A system with its settings."""

    system: str
    synced: bool
    name: str
    ways: tuple[str, ...]
    make: Callable[[LoopbackLab, Path, Plan], System]
    loads: bool = True
    turns: bool = True


def _pysyncobj(batches: bool, journals: bool) -> Callable[[LoopbackLab, Path, Plan], System]:
    def make(lab: LoopbackLab, directory: Path, plan: Plan) -> System:
        return pysyncobj.Cluster(lab, directory, batches, plan.pysyncobj_under_way, journals)

    return make


def _etcd(synced: bool) -> Callable[[LoopbackLab, Path, Plan], System]:
    return lambda lab, directory, plan: etcd.Cluster(lab, directory, synced, plan.etcd_under_way)


def _ours(synced: bool) -> Callable[[LoopbackLab, Path, Plan], System]:
    return lambda lab, directory, plan: Replicas(lab, directory, synced)


CASES = (
    Case(OURS, True, "totempole", log_nodes.WAYS, _ours(True)),
    Case(ETCD, True, "etcd", (etcd.WAY,), _etcd(True)),
    Case(OURS, False, "totempole, not synced", log_nodes.WAYS, _ours(False)),
    Case(ETCD, False, "etcd --unsafe-no-fsync", (etcd.WAY,), _etcd(False)),
    Case(PYSYNCOBJ, False, "PySyncObj, journal", (pysyncobj.WAY,), _pysyncobj(True, True), turns=False),
    Case(PYSYNCOBJ, False, "PySyncObj, memory", (pysyncobj.WAY,), _pysyncobj(True, False), turns=False),
    # Single operations wait for the next batch, a tenth of a second, unless batches are off.
    Case(PYSYNCOBJ, False, "PySyncObj, journal, single", (), _pysyncobj(False, True), loads=False),
)


def missing() -> str:
    """Why it cannot be run here; empty when it can."""
    arrow = "" if find_spec("pyarrow") else "install the package pyarrow (pip install '.[trace]' in a clone)"
    return " and ".join(filter(None, (etcd.missing(), pysyncobj.missing(), arrow)))


@dataclass(slots=True)
class Samples:
    """Everything measured, a list of rounds for each."""

    sync_us: list[float] = field(default_factory=list)
    """What the disk takes for one fdatasync, before each round."""
    loads: dict[tuple[str, str, int], list[Load]] = field(default_factory=lambda: defaultdict(list))
    """By case, way and size."""
    turns_us: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    """One at a time, by case."""
    failovers_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By system; `JUST_BACK` too."""
    failures: list[str] = field(default_factory=list)
    """Of peers, which did not get through a load: PySyncObj with a journal, often."""
    catch_up: CatchUp | None = None
    read_per_s: float = 0.0
    """Rows, on one core."""

    def load(self, case: str, way: str, size: int) -> Load | None:
        """Medians of each figure."""
        rounds = self.loads.get((case, way, size))
        if not rounds:
            return None
        return Load(
            median(one.records_per_s for one in rounds),
            median(one.p50_us for one in rounds),
            median(one.p99_us for one in rounds),
            median(one.cpu_us for one in rounds),
            round(median(one.under_way for one in rounds)),
        )

    def ratio(self, case: Case, way: str, size: int) -> float | None:
        """Times what etcd does in the same round: the median."""
        theirs = next(each for each in CASES if each.system == ETCD and each.synced == case.synced)
        pairs = zip(
            self.loads.get((case.name, way, size), ()),
            self.loads.get((theirs.name, etcd.WAY, size), ()),
            strict=False,
        )
        ratios = [mine.records_per_s / other.records_per_s for mine, other in pairs]
        return median(ratios) if ratios else None

    def turn_us(self, case: str, percent: float) -> float | None:
        rounds = self.turns_us.get(case)
        return median(percentile(each, percent) for each in rounds) if rounds else None


def measure(plan: Plan, tell: Tell) -> Samples:
    samples = Samples()
    lab = LoopbackLab(REPLICAS)
    with TemporaryDirectory(prefix="totem-bench-", dir=plan.directory) as directory:
        for number in range(plan.rounds):
            samples.sync_us.append(sync_us(Path(directory)))
            for place, case in enumerate(CASES):
                tell(case.name)
                with TemporaryDirectory(prefix=f"{number}-{place}-", dir=directory) as home:
                    _measure(case, case.make(lab, Path(home), plan), plan, samples)
        tell("kill -9, etcd")
        with TemporaryDirectory(prefix="etcd-", dir=directory) as home:
            _kill_theirs(etcd.Cluster(lab, Path(home)), plan, samples)
        tell("kill -9 of a replica")
        with TemporaryDirectory(prefix="kill-", dir=directory) as home:
            _kill_ours(Replicas(lab, Path(home)), plan, samples)
        tell("catching up")
        with TemporaryDirectory(prefix="behind-", dir=directory) as home:
            _fall_behind(Replicas(lab, Path(home)), plan, samples)
    return samples


def _measure(case: Case, system: System, plan: Plan, samples: Samples) -> None:
    with system:
        if case.turns:
            samples.turns_us[case.name].append(system.turns_us(LATENCY_BYTES, plan.turns))
        for size in plan.sizes if case.loads else ():
            for way in case.ways:
                try:
                    load = system.load(way, size, plan.seconds)
                except WorkerError as error:
                    if case.system == OURS:
                        raise
                    samples.failures.append(f"{case.name}, {size} bytes: {last_line(str(error))}")
                    return
                samples.loads[case.name, way, size].append(load)


def last_line(text: str) -> str:
    """Of a traceback: what it was."""
    return text.strip().splitlines()[-1]


def _kill_theirs(cluster: etcd.Cluster, plan: Plan, samples: Samples) -> None:
    with cluster:
        for _ in range(plan.kills):
            samples.failovers_ms[ETCD].append(cluster.failover_ms())


def _kill_ours(replicas: Replicas, plan: Plan, samples: Samples) -> None:
    with replicas:
        for number in range(plan.kills):
            victim = log_nodes.VICTIMS[number % 2]
            samples.failovers_ms[OURS].append(replicas.failover_ms(victim, log_nodes.SETTLED_S))
            samples.failovers_ms[JUST_BACK].append(replicas.failover_ms(victim, log_nodes.JUST_BACK_S))


def _fall_behind(replicas: Replicas, plan: Plan, samples: Samples) -> None:
    with replicas:
        samples.catch_up = replicas.catch_up(plan.missed, LATENCY_BYTES, plan.seconds)
        samples.read_per_s = replicas.read_per_s()
