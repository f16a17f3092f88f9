"""One ring on several networks, everyone sending: what each style moves, beside one network in the same run.

Each network is a shared medium as in lan100: a token bucket where each host sends, and one more for all of
them where they enter the switch. RRP measured two networks of 100 Mbit/s with four and with six processors;
its ratios stand beside ours. Three networks, unequal ones, and networks as fast as the machine are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench.ring import RingBench, Throughput
from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.rrp.config import RedundancyConfig
from totempole.sim.paper.redundant import KILOBYTES_PER_S

FAST, SLOW = "100mbit", "10mbit"
NETWORKS = 3
"""Of the lab; no case uses more."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    rates: tuple[str, ...]
    """Of each network in tc's notation; empty: as fast as the machine."""
    beside: str = ""
    """The case that its ratio is to."""
    aim: float = 0.0
    """The least ratio that is good."""
    style: str = "none"
    copies: int = 0
    capacities: tuple[int, ...] = ()

    def setup(self) -> Setup:
        redundancy = RedundancyConfig(style=self.style, copies=self.copies)
        return Setup(networks=len(self.rates), redundancy=redundancy, capacities=self.capacities)


UNREPLICATED, UNSHAPED = "one network", "one network, unshaped"
UNEQUAL_SUM = 1.1
"""100 and 10 Mbit/s, as a multiple of 100."""

CASES = (
    Case(UNREPLICATED, (FAST,)),
    Case("active", (FAST, FAST), UNREPLICATED, 0.95, "active"),
    Case("passive", (FAST, FAST), UNREPLICATED, 1.9, "passive"),
    Case("active-passive, 2 of 3", (FAST, FAST, FAST), UNREPLICATED, 1.4, "active-passive", 2),
    Case(
        "passive, 100 and 10 Mbit/s",
        (FAST, SLOW),
        UNREPLICATED,
        0.85 * UNEQUAL_SUM,
        "passive",
        capacities=(10, 1),
    ),
    Case(UNSHAPED, ("",)),
    Case("active, unshaped", ("", ""), UNSHAPED, 0.6, "active"),
    Case("passive, unshaped", ("", ""), UNSHAPED, 0.95, "passive"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 2.0
    nodes: tuple[int, ...] = (4, 6)
    sizes: tuple[int, ...] = (100, 700, 1_000, 1_400, 10_000)
    cases: tuple[Case, ...] = CASES

    @property
    def steps(self) -> int:
        """Clusters that are started, all told."""
        return self.rounds * len(self.nodes) * len(self.cases)


QUICK = Plan(rounds=1, seconds=1.5, nodes=(4,), sizes=(1_000, 10_000))


@dataclass(slots=True)
class Rates:
    """Bytes of payload a second, a list of rounds for each number of nodes, size and case."""

    found: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)
    changes: int = 0
    """Configuration changes while measuring: none is expected."""

    def add(self, nodes: int, case: Case, throughput: Throughput) -> None:
        place = nodes, throughput.message_bytes, case.name
        rate = throughput.messages_per_s * throughput.message_bytes
        self.found.setdefault(place, []).append(rate)
        self.changes += throughput.changes

    def rate(self, nodes: int, size: int, case: Case) -> float:
        return median(self.found[nodes, size, case.name])

    def ratio(self, nodes: int, size: int, case: Case) -> float | None:
        """To the case it stands beside, of the same round: the median over the rounds."""
        if not case.beside or (nodes, size, case.beside) not in self.found:
            return None
        pairs = zip(self.found[nodes, size, case.name], self.found[nodes, size, case.beside], strict=True)
        return median(ours / one for ours, one in pairs)


def published_ratio(nodes: int, size: int, case: Case) -> float | None:
    """RRP's, where it measured the same."""
    point = KILOBYTES_PER_S.get(nodes, {}).get(size)
    if point is None or case.rates != (FAST, FAST):
        return None
    return point.ratio(case.style)


def measure(plan: Plan, tell: Callable[[str], None]) -> Rates:
    rates = Rates()
    for nodes in plan.nodes:
        with (
            Lab("rrp", hosts=nodes, networks=NETWORKS) as lab,
            TemporaryDirectory(prefix="totem-bench-") as directory,
        ):
            for number in range(plan.rounds):
                for place, case in enumerate(plan.cases):
                    tell(f"{nodes} nodes, {case.name}")
                    home = Path(directory) / f"{number}-{place}"
                    for throughput in _measure(lab, home, case, plan.sizes, plan.seconds):
                        rates.add(nodes, case, throughput)
    return rates


def _measure(
    lab: Lab, directory: Path, case: Case, sizes: Sequence[int], seconds: float
) -> Iterator[Throughput]:
    with ExitStack() as stack:
        for network, rate in enumerate(case.rates):
            if rate:
                stack.enter_context(lab.shape(rate, direction="from", network=network))
                stack.enter_context(lab.shared_medium(rate, network=network))
        ring = stack.enter_context(RingBench(lab, directory, case.setup()))
        for size in sizes:
            yield ring.throughput(size, seconds, senders=list(lab.hosts))
