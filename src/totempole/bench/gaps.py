"""The longest gap between two deliveries when one of two networks fails: ours beside corosync's with two knet
links, in one run.

Four nodes, each sending at a steady pace. The first network is cut for everyone, mended, and then loses a
share of all frames while the second is whole. Ours run embedded in the program that sends; corosync runs with
its defaults, but without realtime priority: where daemons outnumber cores, they would keep their clients from
running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Protocol

from totempole.bench import corosync
from totempole.bench.ring import RingBench
from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.rrp.config import RedundancyConfig

HOSTS = 4
NETWORKS = 2
MESSAGE_BYTES = 200
RATE = 200
"""Messages a second of each node."""
LOSS_PERCENT = 30.0
WHOLE, CUT, LOSS = "both whole", "one cut", f"one loses {LOSS_PERCENT:g} %"
STEPS = (WHOLE, CUT, LOSS)
SETTLE_S_MAX = 30.0
KNET_SETTLE_S = 8.0
"""knet takes a mended link back after some seconds."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 8.0
    """Of each step."""
    styles: tuple[str, ...] = ("passive", "active")
    modes: tuple[str, ...] = ("passive", "rr", "active")

    @property
    def steps(self) -> int:
        return self.rounds * (len(self.styles) + len(self.modes))


QUICK = Plan(rounds=1, seconds=5.0, styles=("passive",), modes=("passive",))


@dataclass(slots=True)
class Gaps:
    """By system and step: the longest gap at any node, in milliseconds, of each round."""

    gaps_ms: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    """Changes of the configuration at all nodes, in all rounds."""

    def add(self, system: str, step: str, gap_ms: float, changes: int) -> None:
        self.gaps_ms.setdefault((system, step), []).append(gap_ms)
        self.changes[system] = self.changes.get(system, 0) + changes

    @property
    def systems(self) -> list[str]:
        return list(self.changes)

    def typical_ms(self, system: str, step: str) -> float:
        return median(self.gaps_ms[system, step])


class Paced(Protocol):
    """A system under a steady load."""

    def mark(self) -> None: ...

    def read(self) -> tuple[float, int]:
        """Since the mark: the longest gap in milliseconds, and changes of the configuration."""
        ...

    def settle(self) -> None:
        """Until the mended network is used again."""
        ...


def ours_name(style: str) -> str:
    return f"totempole, {style}"


def theirs_name(mode: str) -> str:
    return f"corosync, knet {mode}"


def measure(plan: Plan, tell: Tell) -> Gaps:
    gaps = Gaps()
    with Lab("gaps", hosts=HOSTS, networks=NETWORKS) as lab, TemporaryDirectory() as directory:
        for number in range(plan.rounds):
            for style in plan.styles:
                tell(ours_name(style))
                with _ours(lab, Path(directory) / f"{number}-{style}", style) as system:
                    _measure(lab, system, plan.seconds, ours_name(style), gaps)
            for mode in plan.modes:
                tell(theirs_name(mode))
                with _theirs(lab, mode) as system:
                    _measure(lab, system, plan.seconds, theirs_name(mode), gaps)
    return gaps


def _measure(lab: Lab, system: Paced, seconds: float, name: str, gaps: Gaps) -> None:
    for step in STEPS:
        system.settle()
        system.mark()
        with ExitStack() as faults:
            if step == CUT:
                faults.enter_context(lab.sever(network=0))
            if step == LOSS:
                for host in lab.hosts:
                    faults.enter_context(lab.loss(host, LOSS_PERCENT, network=0))
            time.sleep(seconds)
            gap_ms, changes = system.read()
        gaps.add(name, step, gap_ms, changes)


# Ours


@dataclass(slots=True)
class _Ours:
    ring: RingBench

    def mark(self) -> None:
        self.ring.cluster.tell("mark")

    def read(self) -> tuple[float, int]:
        reports = self.ring.reports().values()
        return max(report["gap_ms"] for report in reports), sum(report["changes"] for report in reports)

    def settle(self) -> None:
        give_up_s = time.monotonic() + SETTLE_S_MAX
        while time.monotonic() < give_up_s:
            networks = [each for report in self.ring.reports().values() for each in report["networks"]]
            if all(network["state"] == "in_service" for network in networks):
                return
            time.sleep(0.1)


@contextmanager
def _ours(lab: Lab, directory: Path, style: str) -> Iterator[Paced]:
    setup = Setup(networks=NETWORKS, redundancy=RedundancyConfig(style=style))
    with RingBench(lab, directory, setup) as ring:
        ring.cluster.tell("pace", MESSAGE_BYTES, "agreed", RATE)
        time.sleep(1)
        yield _Ours(ring)


# Corosync


@dataclass(slots=True)
class _Theirs:
    clients: list[corosync.Client]
    _before: list[corosync.Reading] = field(default_factory=list)

    def mark(self) -> None:
        self._before = [client.reading() for client in self.clients]

    def read(self) -> tuple[float, int]:
        after = [client.reading() for client in self.clients]
        pairs = zip(self._before, after, strict=True)
        changes = sum(later.changes - earlier.changes for earlier, later in pairs)
        return max(reading.gap_ns for reading in after) / 1e6, changes

    def settle(self) -> None:
        time.sleep(KNET_SETTLE_S)


@contextmanager
def _theirs(lab: Lab, mode: str) -> Iterator[Paced]:
    transport = corosync.Transport.KNET
    with (
        corosync.Cluster(lab, transport, realtime=False, links=NETWORKS, link_mode=mode) as cluster,
        cluster.paced(MESSAGE_BYTES, RATE) as clients,
    ):
        yield _Theirs(clients)
