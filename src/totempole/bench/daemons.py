"""Totempole as its users run it: programs on each host of a lab, with a daemon there or a node within them.

The daemons are `totem node`, the programs `client_worker`, each a process of its own; they talk by the
daemon's Unix socket (`connect`), or have an embedded `Node` on a thread. All settings are the defaults.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from totempole.bench.workers import Worker, WorkerError, wait_until
from totempole.lab import Lab, daemons
from totempole.lab.cluster import Cluster, Setup

CLIENT = "totempole.bench.client_worker"
WARM_UP_S = 1.0
DRAIN_S_MAX = 20.0
QUIET_S = 0.1


class Daemons(daemons.Daemons):
    """With programs to measure by."""

    def client(self, number: int, sessions: int = 1) -> Worker:
        """A process with so many sessions."""
        log = self.directory / f"clients-{number}.log"
        return Worker(self.lab.hosts[number], CLIENT, [self.socket(number), sessions], log)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the slowest client was delivered."""

    message_bytes: int
    messages_per_s: float
    changes: int
    """Views that came while measuring: none is expected."""

    @property
    def megabytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes / 1e6


class ProgramBench:
    """A program on each host, all in one group; that of the first host also sends."""

    def __init__(self) -> None:
        self.clients: list[Worker] = []
        self._open = ExitStack()

    def _start(self, opening: ExitStack, client: Worker) -> None:
        opening.callback(client.close)
        self.clients.append(client)

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def throughput(self, message_bytes: int, seconds: float, service: str = "agreed") -> Throughput:
        self.clients[0].tell("flood", message_bytes, service)
        time.sleep(WARM_UP_S)
        for client in self.clients:
            client.tell("mark")
        time.sleep(seconds)
        for client in self.clients:
            client.tell("report")
        reports = [client.answer() for client in self.clients]
        self.clients[0].tell("quiet")
        drain(self.clients)
        check_sessions(reports)
        return Throughput(
            message_bytes,
            min(report["sessions"][0]["received"] / report["seconds"] for report in reports),
            sum(report["sessions"][0]["changes"] for report in reports),
        )

    def latencies_us(
        self, message_bytes: int, rate: float, count: int, service: str = "agreed"
    ) -> list[float]:
        """From `multicast` to the message at the program that sent it, at light load."""
        sender = self.clients[0]
        sender.tell("mark")
        sender.tell("pace", message_bytes, service, rate)
        time.sleep(count / rate)
        report = sender.report()
        sender.tell("quiet")
        drain([sender])
        check_sessions([report])
        latencies: list[float] = report["latencies_us"]
        return latencies

    def turns_us(self, message_bytes: int, count: int, service: str = "agreed") -> list[float]:
        """The same, one message after the other: the next is sent when the last has come back."""
        sender = self.clients[0]
        sender.tell("mark")
        sender.tell("turns", message_bytes, service, count)
        report = sender.answer()
        check_sessions([report])
        latencies: list[float] = report["latencies_us"]
        return latencies


class NodeBench(ProgramBench):
    """Each program has a node of its own: `Node`, on a thread."""

    def __init__(self, lab: Lab, directory: Path, setup: Setup, hosts: Collection[int] | None = None) -> None:
        super().__init__()
        directory.mkdir(parents=True, exist_ok=True)
        Cluster(lab, directory, setup, hosts)  # only writes the configurations
        self._lab = lab
        self._directory = directory
        self._numbers = sorted(hosts or lab.hosts)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            for number in self._numbers:
                file = self._directory / f"node-{number}.toml"
                log = self._directory / f"program-{number}.log"
                self._start(opening, Worker(self._lab.hosts[number], CLIENT, [file], log))
            wait_for_members(self.clients, len(self.clients))
            self._open = opening.pop_all()
        return self


class DaemonBench(ProgramBench):
    """Daemons, and one client on each host. As on corosync's side."""

    def __init__(
        self,
        lab: Lab,
        directory: Path,
        setup: Setup,
        hosts: Collection[int] | None = None,
        settings: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.daemons = Daemons(lab, directory, setup, hosts, settings)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self.daemons)
            for number in self.daemons.numbers:
                self._start(opening, self.daemons.client(number))
            wait_for_members(self.clients, len(self.clients))
            self._open = opening.pop_all()
        return self


def wait_for_members(workers: Collection[Worker], members: int) -> None:
    def complete() -> bool:
        return all(worker.told.get("members", {}).get("count") == members for worker in workers)

    wait_until(complete, workers, f"a group of {members}")


def check_sessions(reports: Collection[dict[str, Any]]) -> None:
    """A session that was ended measures nothing."""
    ends = [session["end"] for report in reports for session in report["sessions"] if session["end"]]
    if ends:
        raise WorkerError(f"{len(ends)} sessions were ended: {ends[0]}")


def drain(workers: Collection[Worker]) -> None:
    """Until nothing is under way, or it would count for the next measurement."""
    give_up_s = time.monotonic() + DRAIN_S_MAX
    before: list[int] = []
    while time.monotonic() < give_up_s:
        reports = [worker.report() for worker in workers]
        now = [session["received"] for report in reports for session in report["sessions"]]
        if now == before:
            return
        before = now
        time.sleep(QUIET_S)
