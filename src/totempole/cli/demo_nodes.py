"""The demo's chapter on real processes: nodes on loopback, one killed under load and started again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from totempole.checkers import Report, check
from totempole.lab.cluster import Cluster, Setup
from totempole.lab.loopback import LoopbackLab
from totempole.runtime import keyring
from totempole.trace.schema import Row
from totempole.types import ProcessorId

NODES = 4
VICTIM = 3
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


def play(load_s: float) -> Played:
    """Sealed, by multicast on loopback, traced: everything as in a cluster of several hosts."""
    with TemporaryDirectory(prefix="totem-demo-") as name:
        directory = Path(name)
        keyring.create(directory / "ring.key")
        setup = Setup(key_file=directory / "ring.key", trace="checked")
        with Cluster(LoopbackLab(NODES), directory, setup) as cluster:
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
            cluster.tell("quiet")
            time.sleep(load_s / 2)
            cluster.end()
            rows = cluster.trace()
    report = check(rows, complete=False, same_clock=False)
    began_us = min(row.at_us for row in rows)
    return Played([row._replace(at_us=row.at_us - began_us) for row in rows], report, failover_ms, pids)


def _kill(cluster: Cluster) -> float:
    others = [number for number in cluster.players if number != VICTIM]
    killed_us = time.monotonic_ns() // 1000
    cluster.players[VICTIM].kill()
    cluster.wait_for([others])
    return max(cluster.players[number].views[-1][0] - killed_us for number in others) / 1000
