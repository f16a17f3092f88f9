"""One daemon and many programs: 1, 10 and 100 clients, all sending and all receiving as fast as they can.

They are clients of one daemon of a ring of three hosts, in one group, so that each message goes out to all of
them. They join with policy "block": a program that does not keep up with receiving sends less. 100 clients
are sessions of ten processes. With a window, each has no more of its own messages under way than that: what
a program does that wants all to keep up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from totempole.bench.daemons import Daemons, drain, wait_for_members
from totempole.bench.workers import Worker
from totempole.lab import Lab
from totempole.lab.cluster import Setup

HOSTS = 3
SERVING = 1
"""The host whose daemon has the clients."""
CLIENTS = (1, 10, 100)
MESSAGE_BYTES = 1600
PROCESSES_MAX = 10
WARM_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    seconds: float = 5.0
    clients: tuple[int, ...] = CLIENTS
    message_bytes: int = MESSAGE_BYTES
    window_bytes: int = 0
    """Of each client's own messages that have not come back, at most; 0: no bound but the daemon's."""


QUICK = Plan(rounds=1, seconds=1.0, clients=(1, 10))


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many clients: medians over the rounds."""

    clients: int
    message_bytes: int
    ordered_per_s: float
    """Messages of all clients together, as the slowest of them received them."""
    delivered_per_s: float
    """Received by all clients together."""
    fairness: float
    """Of what was ordered, the smallest client's share over the largest one's."""
    idle_bytes: int
    """The daemon's resident memory before the load,"""
    resident_bytes: int
    """and at the end of it, the largest of all rounds."""
    ended: int
    """Clients that were disconnected: none is expected."""


@dataclass(frozen=True, slots=True)
class Round:
    ordered_per_s: float
    delivered_per_s: float
    fairness: float
    resident_bytes: int
    ended: int


def measure(plan: Plan, tell: Callable[[str], None]) -> list[Crowd]:
    crowds = []
    with Lab("clients", hosts=HOSTS) as lab, TemporaryDirectory(prefix="totem-bench-") as directory:
        for count in plan.clients:
            tell(f"{count} clients")
            with Daemons(lab, Path(directory) / str(count), Setup()) as daemons:
                crowds.append(_measure(daemons, plan, count))
    return crowds


def _measure(daemons: Daemons, plan: Plan, count: int) -> Crowd:
    with ExitStack() as open_now:
        workers = []
        for sessions in spread(count):
            worker = daemons.client(SERVING, sessions)
            open_now.callback(worker.close)
            workers.append(worker)
        wait_for_members(workers, count)
        idle_bytes = daemons.resident_bytes(SERVING)
        rounds = [_round(daemons, workers, plan) for _ in range(plan.rounds)]
    return Crowd(
        count,
        plan.message_bytes,
        median(one.ordered_per_s for one in rounds),
        median(one.delivered_per_s for one in rounds),
        median(one.fairness for one in rounds),
        idle_bytes,
        max(one.resident_bytes for one in rounds),
        max(one.ended for one in rounds),
    )


def spread(clients: int) -> list[int]:
    """How many sessions each process has."""
    processes = min(clients, PROCESSES_MAX)
    return [clients // processes + (number < clients % processes) for number in range(processes)]


def _round(daemons: Daemons, workers: list[Worker], plan: Plan) -> Round:
    _tell(workers, "flood", plan.message_bytes, "agreed", plan.window_bytes)
    time.sleep(WARM_UP_S)
    _tell(workers, "mark")
    time.sleep(plan.seconds)
    _tell(workers, "report")
    reports = [worker.answer() for worker in workers]
    resident_bytes = daemons.resident_bytes(SERVING)
    _tell(workers, "quiet")
    drain(workers)
    return summary(reports, resident_bytes)


def _tell(workers: Iterable[Worker], *words: object) -> None:
    for worker in workers:
        worker.tell(*words)


def summary(reports: list[dict[str, Any]], resident_bytes: int) -> Round:
    sessions = [session for report in reports for session in report["sessions"]]
    rates = [
        session["received"] / report["seconds"]
        for report in reports
        for session in report["sessions"]
        if not session["end"]
    ]
    shares = [session["own"] for session in sessions]
    return Round(
        min(rates, default=0.0),
        sum(rates),
        min(shares) / max(1, *shares),
        resident_bytes,
        sum(bool(session["end"]) for session in sessions),
    )
