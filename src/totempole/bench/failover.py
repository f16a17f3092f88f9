"""Failover of an idle ring beside that of a busy one, in one run.

Timeouts follow the slowest rotations of late (docs/decisions/0007-timeouts-follow-the-ring.md), and the token
of an idle ring rests. A crash after a quiet hour must be noticed as soon as one under load. To make it hard,
a node is paused before the ring goes quiet, as on a crowded machine: that stretches the timeouts.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from totempole.bench.ring import RingBench
from totempole.lab import Lab
from totempole.lab.cluster import Setup

HOSTS = 4
MESSAGE_BYTES = 1600
FLOOD_S = 0.3
PAUSE_S = 0.06
"""Under full load, so that it makes a rotation slow. Less than a token loss timeout: nothing breaks."""
RATE = 200
"""Messages a second of each node of a busy ring: it keeps the token moving, and leaves the cores room."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    idle_s: float = 20.0
    busy_s: float = 5.0


QUICK = Plan(rounds=1, idle_s=5.0, busy_s=2.0)


@dataclass(frozen=True, slots=True)
class Failovers:
    """Milliseconds from kill -9 to the next configuration, at each other node in each round."""

    busy_ms: list[float]
    idle_ms: list[float]
    stretched_ms: list[float]
    """The longest token loss timeout of any node as the ring went quiet, in each round."""

    @property
    def ratio(self) -> float:
        return median(self.idle_ms) / median(self.busy_ms)


def measure(plan: Plan, tell: Callable[[str], None]) -> Failovers:
    found = Failovers([], [], [])
    with (
        Lab("failover", hosts=HOSTS) as lab,
        TemporaryDirectory(prefix="totem-bench-") as directory,
        RingBench(lab, Path(directory), Setup()) as ring,
    ):
        for _ in range(plan.rounds):
            tell("busy")
            _keep_busy(ring, plan.busy_s)
            found.busy_ms.extend(ring.failover_ms(victim=HOSTS))
            tell(f"idle for {plan.idle_s:g} s")
            _keep_busy(ring, plan.busy_s)
            found.stretched_ms.append(_go_quiet(ring, plan.idle_s))
            found.idle_ms.extend(ring.failover_ms(victim=HOSTS))
    return found


def _keep_busy(ring: RingBench, seconds: float) -> None:
    ring.cluster.tell("pace", MESSAGE_BYTES, "agreed", RATE)
    time.sleep(seconds)


def _go_quiet(ring: RingBench, seconds: float) -> float:
    """After a pause of one node; gives the token loss timeout that it left behind, in milliseconds."""
    cluster = ring.cluster
    cluster.tell("flood", MESSAGE_BYTES, "agreed", numbers=[1])
    time.sleep(FLOOD_S)
    cluster.players[2].signal(signal.SIGSTOP)
    time.sleep(PAUSE_S)
    cluster.players[2].signal(signal.SIGCONT)
    cluster.tell("quiet")
    longest_us: int = max(report["status"]["timeouts_us"]["token_loss"] for report in ring.reports().values())
    time.sleep(seconds)
    return longest_us / 1000
