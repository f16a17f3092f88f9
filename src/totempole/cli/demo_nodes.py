"""The demo's chapter on real processes: one is killed under load, then their network parts and heals.

Each has a network namespace of its own, all on one bridge. Where that cannot be had they share the loopback
interface, and drop each other's packets themselves when they are to be parted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from totempole.checkers import Report, check
from totempole.lab.cluster import Cluster, Setup
from totempole.lab.lab import Lab, missing
from totempole.lab.loopback import LoopbackLab
from totempole.runtime import keyring
from totempole.trace.schema import Row
from totempole.types import ProcessorId

KEY = "ring.key"
NODES = 4
VICTIM = 3
SIDES = ((1, 2), (3, 4))
NAMES: dict[ProcessorId, str] = {1: "p", 2: "q", 3: "r", 4: "s"}
RATE = 300
MESSAGE_BYTES = 200


@dataclass(frozen=True, slots=True)
class Played:
    """What the nodes wrote down, and the milliseconds from the kill to the next configuration."""

    rows: list[Row]
    report: Report
    failover_ms: float
    pids: dict[ProcessorId, int]
    traces: Path
    no_namespaces: str
    """Why they were on loopback; empty if they were not."""


def play(load_s: float, directory: Path) -> Played:
    """Sealed, by multicast, traced: everything as in a cluster of several hosts."""
    directory = directory.resolve()  # the nodes' files name others relative to themselves
    keyring.create(directory / KEY)
    setup = Setup(key_file=directory / KEY, trace="checked")
    with _lab() as lab, Cluster(lab, directory, setup) as cluster:
        cluster.wait_whole()
        pids = {number: player.process.pid for number, player in cluster.players.items()}
        cluster.tell("pace", MESSAGE_BYTES, "safe", RATE)
        time.sleep(load_s)
        failover_ms = _kill(cluster)
        time.sleep(load_s)
        cluster.start(VICTIM)
        cluster.wait_whole()
        cluster.tell("pace", MESSAGE_BYTES, "agreed", RATE, numbers=[VICTIM])
        time.sleep(load_s)
        with _parted(lab, cluster):
            cluster.wait_for(SIDES)
            time.sleep(load_s)
        cluster.wait_whole()
        time.sleep(load_s)
        cluster.tell("quiet")
        time.sleep(load_s / 2)
        cluster.end()
        rows = cluster.trace()
    report = check(rows, complete=False, same_clock=False)
    began_us = min(row.at_us for row in rows)
    moved = [row._replace(at_us=row.at_us - began_us) for row in rows]
    return Played(moved, report, failover_ms, pids, cluster.trace_directory, missing())


@contextmanager
def _lab() -> Iterator[Lab | LoopbackLab]:
    if missing():
        yield LoopbackLab(NODES)
    else:
        with Lab("demo", NODES) as lab:
            yield lab


@contextmanager
def _parted(lab: Lab | LoopbackLab, cluster: Cluster) -> Iterator[None]:
    if isinstance(lab, Lab):
        with lab.partition(SIDES):
            yield
    else:
        cluster.part(SIDES)
        yield
        cluster.part([list(cluster.players)])


def _kill(cluster: Cluster) -> float:
    others = [number for number in cluster.players if number != VICTIM]
    killed_us = time.monotonic_ns() // 1000
    cluster.players[VICTIM].kill()
    cluster.wait_for([others])
    return max(cluster.players[number].views[-1][0] - killed_us for number in others) / 1000
