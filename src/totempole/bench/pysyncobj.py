"""PySyncObj (PyPI) as a peer to be measured beside: three nodes that replicate an object by Raft.

Its settings are its defaults but for larger socket buffers and `appendEntriesUseBatch`, which its
documentation offers for more operations a second (on, the default) or faster single ones (off): whichever is
better stands. So does the best of several numbers of operations under way. Operations are started at the
leader: that spares them a hop. An operation is done when a majority has it and the leader has applied it.
Without a journal a node keeps its log in memory; with one it also writes to a mapped file, which it never
syncs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from totempole.bench.compare import percentile
from totempole.bench.replicated import Load
from totempole.bench.workers import Worker, WorkerError, wait_until
from totempole.lab import Lab
from totempole.lab.loopback import LoopbackLab

MODULE = "totempole.bench.pysyncobj_worker"
PORT = 5700
WAY = "replicated operation"
WINDOWS = (100, 300, 1_000, 3_000)
WINDOW_BYTES_MAX = 10_000_000
"""Operations under way that are tried at full load. With more, leaders are deposed and operations lost."""
SETTLING_S, TRIAL_S = 0.5, 1.0
WARM_UP_S = 1.0
DRAIN_S_MAX = 30.0
PAUSE_S = 0.05
TURN_S_MAX = 1.0
"""For one operation at a time, a generous guess."""


def missing() -> str:
    """Why it cannot be run here, apart from what a lab needs; empty when it can."""
    if find_spec("pysyncobj") is None:
        return "install the package pysyncobj (pip install '.[bench]' in a clone)"
    return ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Operations that the slowest node has applied."""

    message_bytes: int
    batches: bool
    window: int
    operations_per_s: float


class Cluster:
    """A node on each host of the lab. With `journals`, each keeps one in the directory."""

    def __init__(
        self,
        lab: Lab | LoopbackLab,
        directory: Path,
        batches: bool,
        windows: Sequence[int] = WINDOWS,
        journals: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._hosts = lab.hosts
        self._directory = directory
        self._batches = batches
        self._journals = journals
        self._windows = windows
        self._open = ExitStack()
        self.nodes: list[Worker] = []

    def __enter__(self) -> Self:
        addresses = {number: f"{host.address}:{PORT}" for number, host in self._hosts.items()}
        with ExitStack() as opening:
            for number, host in self._hosts.items():
                others = ",".join(address for other, address in addresses.items() if other != number)
                words: list[object] = [addresses[number], others, int(self._batches)]
                if self._journals:
                    words.append(self._directory / f"journal-{number}")
                node = Worker(host, MODULE, words, self._directory / f"pysyncobj-{number}.log")
                opening.callback(node.close)
                self.nodes.append(node)
            wait_until(self._is_whole, self.nodes, "a leader")
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _is_whole(self) -> bool:
        states = [node.told.get("state", {}) for node in self.nodes]
        return all(state.get("ready") for state in states) and sum(state["leads"] for state in states) == 1

    @property
    def leader(self) -> Worker:
        return next(node for node in self.nodes if node.told["state"]["leads"])

    def throughput(self, message_bytes: int, seconds: float) -> Throughput:
        window = self._best_window(message_bytes)
        rate = _slowest(self._flood(message_bytes, window, WARM_UP_S, seconds))
        return Throughput(message_bytes, self._batches, window, rate)

    def load(self, way: str, record_bytes: int, seconds: float) -> Load:
        assert way == WAY, "there is one way to start operations"
        return self.load_with(self._best_window(record_bytes), record_bytes, WARM_UP_S, seconds)

    def load_with(self, window: int, record_bytes: int, settling_s: float, seconds: float) -> Load:
        """With so many operations under way."""
        reports = self._flood(record_bytes, window, settling_s, seconds)
        rate = _slowest(reports)
        latencies = [us for report in reports for us in report["latencies_us"]]
        if not latencies:
            raise self.leader.failure("finished no operation that was timed")
        cpu_s = sum(report["cpu_s"] / report["seconds"] for report in reports)
        return Load(rate, percentile(latencies, 50), percentile(latencies, 99), cpu_s * 1e6 / rate, window)

    def _best_window(self, message_bytes: int) -> int:
        """From small to large, until it is clear that larger ones are worse."""
        rates: dict[int, float] = {}
        windows = [window for window in self._windows if window * message_bytes <= WINDOW_BYTES_MAX]
        if len(windows) == 1:
            return windows[0]
        for window in windows:
            rates[window] = _slowest(self._flood(message_bytes, window, SETTLING_S, TRIAL_S))
            if rates[window] < max(rates.values()) / 2:
                break
        return max(rates, key=lambda window: rates[window])

    def _flood(
        self, message_bytes: int, window: int, settling_s: float, seconds: float
    ) -> list[dict[str, Any]]:
        """What each node has counted."""
        leader = self.leader
        leader.tell("flood", message_bytes, window)
        time.sleep(settling_s)
        for node in self.nodes:
            node.tell("mark")
        time.sleep(seconds)
        for node in self.nodes:
            node.tell("report")
        reports = [node.answer() for node in self.nodes]
        leader.tell("quiet")
        self._drain()
        _check(reports)
        return reports

    def _drain(self) -> None:
        give_up_s = time.monotonic() + DRAIN_S_MAX
        while time.monotonic() < give_up_s:
            reports = [node.report() for node in self.nodes]
            if not any(report["under_way"] for report in reports):
                return
            time.sleep(PAUSE_S)
        raise self.leader.failure("has operations under way that never end")

    def turns_us(self, message_bytes: int, count: int) -> list[float]:
        """Microseconds from the call to its result, the next operation being called then."""
        leader = self.leader
        leader.tell("mark")
        leader.tell("turns", message_bytes, count)
        report = leader.answer(count * TURN_S_MAX)
        _check([report])
        latencies: list[float] = report["latencies_us"]
        return latencies


def _slowest(reports: list[dict[str, Any]]) -> float:
    """Operations per second."""
    rates: list[float] = [report["applied"] / report["seconds"] for report in reports]
    return min(rates)


def _check(reports: list[dict[str, Any]]) -> None:
    failed = sum(report["failed"] for report in reports)
    if failed:
        raise WorkerError(f"{failed} operations of PySyncObj failed")
