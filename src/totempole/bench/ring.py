"""Totempole on the hosts of a lab, measured: ordered messages a second, latency, failover, CPU, memory."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from totempole.lab import Lab
from totempole.lab.cluster import Cluster, Setup
from totempole.srp.config import RingConfig

LEAN = Setup(ring=RingConfig(check_contents=0))
"""Without a check of contents, as corosync and a raw pump are when nothing is encrypted."""
WARM_UP_S = 1.0
DRAIN_S_MAX = 20.0
SETTLED_S = 0.5


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the slowest node was delivered, and what it cost all of them."""

    message_bytes: int
    messages_per_s: float
    cpu_us_per_delivery: float
    """CPU time of all nodes over messages delivered at all nodes."""
    rotation_us: int
    changes: int
    """Configuration changes while measuring: none is expected."""

    @property
    def megabytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes / 1e6


class RingBench:
    """A running cluster that can be measured again and again."""

    def __init__(self, lab: Lab, directory: Path, setup: Setup, hosts: Collection[int] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(lab, directory, setup, hosts)

    def __enter__(self) -> RingBench:
        self.cluster.__enter__()
        self.cluster.wait_whole()
        time.sleep(SETTLED_S)
        return self

    def __exit__(self, *details: object) -> None:
        self.cluster.__exit__(*details)

    @property
    def processes(self) -> list[int]:
        return [player.process.pid for player in self.cluster.players.values()]

    def throughput(
        self,
        message_bytes: int,
        seconds: float,
        service: str = "agreed",
        senders: Collection[int] | None = None,
    ) -> Throughput:
        """With the given senders flooding; the first host alone if none are named."""
        cluster = self.cluster
        cluster.tell("flood", message_bytes, service, numbers=senders or [min(cluster.players)])
        time.sleep(WARM_UP_S)
        cluster.tell("mark")
        time.sleep(seconds)
        reports = list(cluster.reports().values())
        cluster.tell("quiet")
        self._drain()
        delivered = sum(report["messages"] for report in reports)
        return Throughput(
            message_bytes,
            min(report["messages"] / report["seconds"] for report in reports),
            sum(report["cpu_s"] for report in reports) * 1e6 / max(1, delivered),
            max(report["status"]["rotation_us"]["p50"] for report in reports),
            sum(report["changes"] for report in reports),
        )

    def _drain(self) -> None:
        """Until what waits at the senders has been sent."""
        deadline_s = time.monotonic() + DRAIN_S_MAX
        while time.monotonic() < deadline_s:
            queues = [report["status"]["queue"] for report in self.cluster.reports().values()]
            if not any(waiting["send"] or waiting["application"] for waiting in queues):
                return
            time.sleep(0.05)

    def latencies_us(
        self, message_bytes: int, rate: float, count: int, service: str = "agreed"
    ) -> list[float]:
        """From handing a message over to its delivery at its sender, at light load."""
        sender = min(self.cluster.players)
        player = self.cluster.players[sender]
        player.tell("mark")
        player.tell("pace", message_bytes, service, rate)
        time.sleep(count / rate)
        latencies: list[float] = player.report()["latencies_us"]
        player.tell("quiet")
        return latencies

    def failover_ms(self, victim: int) -> list[float]:
        """From kill -9 of one node to the next configuration at each of the others. It is started again."""
        cluster = self.cluster
        others = [number for number in cluster.players if number != victim]
        killed_us = time.monotonic_ns() // 1000
        cluster.players[victim].kill()
        cluster.wait_for([others])
        times = [(cluster.players[number].views[-1][0] - killed_us) / 1000 for number in others]
        cluster.start(victim)
        cluster.wait_whole()
        return times

    def reports(self) -> dict[int, dict[str, Any]]:
        return self.cluster.reports()
