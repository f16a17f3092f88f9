"""The durable log as its users run it: `totem node` with a replica on each of three loopback addresses, and a
program that appends by the client's interface, `session.log(...)`.

All settings but addresses and replicas are the defaults. The program is a client of one node only; whoever it
appends at, a record is green when a quorum has it on its disks, and the program has been told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from totempole.bench.compare import percentile
from totempole.bench.log_worker import LOG
from totempole.bench.replicated import CpuMeter, Load
from totempole.bench.workers import Worker, wait_until
from totempole.lab.cluster import Setup
from totempole.lab.commands import LabError
from totempole.lab.daemons import Daemons
from totempole.lab.loopback import LoopbackLab
from totempole.log.reader import LogReader

PROGRAM = "totempole.bench.log_worker"
APPEND, APPEND_MANY = "append", "append_many"
WAYS = (APPEND_MANY, APPEND)
BATCH_BYTES = 50_000
"""Records of one call of `append_many` have about so many bytes."""
CALLS = {APPEND: (300, 1_000, 3_000), APPEND_MANY: (16, 48, 96)}
"""Under way at full load: the best of these stands."""
WARM_UP_S, SETTLING_S, TRIAL_S = 1.0, 0.3, 1.0
SERVING, BEHIND = 2, 3
"""The node that the program is a client of, and the one that misses records."""
VICTIMS = (1, 3)
"""Killed in turn: the ring's representative, and another one."""
JOINED = ("behind", "primary")
"""How the log of a replica that comes back stands: before it has caught up, and then."""
BEAT_BYTES = 100
CATCH_UP_CALLS = 16
"""Of `append_many`, under way."""
SETTLED_S, JUST_BACK_S = 3.0, 0.5
"""Before a kill. While a replica starts, tokens are slow on few cores, and timeouts are stretched for a while
(decision 0007)."""
AFTER_KILL_S = 3.0
READY_S_MAX, MISSING_S_MAX, CATCH_UP_S_MAX = 60.0, 600.0, 300.0
PAUSE_S = 0.02
ANSWERED_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A replica that was away comes back, while the program appends at the others as fast as it can."""

    missed: int
    """Records, when it came back."""
    behind: int
    """Records, when it took part again: those that came meanwhile too."""
    seconds: float
    """From the start of its process."""
    joining_s: float
    """Of these, until it was in the ring and knew what it lacks."""
    whole_per_s: float
    """Appended by the program before, with all replicas,"""
    without_per_s: float
    """while it was away,"""
    meanwhile_per_s: float
    """and while it caught up."""

    @property
    def kept(self) -> float:
        """Of what three replicas do: on few cores a third process costs the others, whatever it does."""
        return self.meanwhile_per_s / self.whole_per_s


def batch_of(record_bytes: int) -> int:
    return max(1, BATCH_BYTES // record_bytes)


def log_of(daemons: Daemons, number: int) -> dict[str, Any]:
    """What the node's status says of its log. Empty when there is no answer."""
    found: dict[str, Any] = daemons.status(number).get("log") or {}
    return found


def wait_for_primary(daemons: Daemons, numbers: Iterable[int], limit_s: float = READY_S_MAX) -> None:
    """Until these are a primary component."""
    members = sorted(numbers)

    def formed() -> bool:
        logs = [log_of(daemons, number) for number in members]
        return all(log.get("standing") == "primary" and log["members"] == members for log in logs)

    wait_for_nodes(daemons, formed, limit_s, f"the log's replicas {members} order records")


def wait_for_nodes(daemons: Daemons, holds: Callable[[], bool], limit_s: float, what: str) -> None:
    give_up_s = time.monotonic() + limit_s
    while not holds():
        for number, process in daemons.processes.items():
            if process.poll() is not None:
                raise LabError(f"node {number} has ended: {daemons.said(number)}")
        if time.monotonic() > give_up_s:
            shown = {number: log_of(daemons, number) for number in daemons.processes}
            raise LabError(f"after {limit_s:g} s it does not hold that {what}: {shown}")
        time.sleep(PAUSE_S)


class Replicas:
    """Three nodes and the program. `synced=False` leaves out what makes records survive a power cut."""

    def __init__(self, lab: LoopbackLab, directory: Path, synced: bool = True) -> None:
        numbers = sorted(lab.hosts)
        settings = ["log.enabled=true", f"log.replicas={numbers}"]
        if not synced:
            settings.append("log.sync=false")
        self.daemons = Daemons(lab, directory, Setup(transport="mesh"), settings=settings)
        self._lab = lab
        self._program: Worker | None = None

    def __enter__(self) -> Self:
        self.daemons.__enter__()
        try:
            self.wait_for_primary(*self.daemons.numbers)
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._program is not None:
            self._program.close()
        self.daemons.close()

    def _connect(self) -> None:
        log = self.daemons.directory / "program.log"
        self._program = Worker(self._lab.hosts[SERVING], PROGRAM, [self.daemons.socket(SERVING)], log)
        wait_until(lambda: "connected" in self.program.told, [self._program], "a session")

    @property
    def program(self) -> Worker:
        assert self._program is not None, "the cluster runs"
        return self._program

    def log_of(self, number: int) -> dict[str, Any]:
        return log_of(self.daemons, number)

    def wait_for_primary(self, *numbers: int) -> None:
        """Until these are a primary component."""
        wait_for_primary(self.daemons, numbers)

    def _wait(self, holds: Callable[[], bool], limit_s: float, what: str) -> None:
        wait_for_nodes(self.daemons, holds, limit_s, what)

    # At full load, and one at a time

    def load(self, way: str, record_bytes: int, seconds: float) -> Load:
        rates = {
            calls: self._load(way, record_bytes, calls, SETTLING_S, TRIAL_S).records_per_s
            for calls in CALLS[way]
            if len(CALLS[way]) > 1
        }
        calls = max(rates, key=rates.__getitem__) if rates else CALLS[way][0]
        return self._load(way, record_bytes, calls, WARM_UP_S, seconds)

    def _load(self, way: str, record_bytes: int, calls: int, settling_s: float, seconds: float) -> Load:
        self._flood(way, record_bytes, calls)
        time.sleep(settling_s)
        meter = CpuMeter(process.pid for process in self.daemons.processes.values())
        report = self._count(seconds)
        cpu_s = meter.spent_s()
        self._rest()
        latencies = report["latencies_us"]
        if not report["done"] or not latencies:
            raise self.program.failure(f"has no record ordered after {settling_s + seconds:g} s")
        return Load(
            report["done"] / report["seconds"],
            percentile(latencies, 50),
            percentile(latencies, 99),
            cpu_s * 1e6 / report["done"],
            calls * (batch_of(record_bytes) if way == APPEND_MANY else 1),
        )

    def _flood(self, way: str, record_bytes: int, calls: int) -> None:
        batch = [batch_of(record_bytes)] if way == APPEND_MANY else []
        self.program.tell(way, record_bytes, calls, *batch)

    def _count(self, seconds: float) -> dict[str, Any]:
        self.program.tell("mark")
        time.sleep(seconds)
        return self._report()

    def _report(self) -> dict[str, Any]:
        return self._checked(self.program.report())

    def _checked(self, report: dict[str, Any]) -> dict[str, Any]:
        if report["error"]:
            raise self.program.failure(f"was refused: {report['error']}")
        return report

    def _rest(self) -> None:
        """Until nothing is under way, or it would count for the next measurement."""
        self.program.tell("quiet")
        positions: list[int] = []

        def settled() -> bool:
            before, positions[:] = (
                positions[:],
                [self.log_of(number).get("position", -1) for number in self.daemons.processes],
            )
            return before == positions and len(set(positions)) == 1

        self._wait(settled, READY_S_MAX, "nothing is under way")

    def turns_us(self, record_bytes: int, count: int) -> list[float]:
        self.program.tell("mark")
        self.program.tell("turns", record_bytes, count)
        latencies: list[float] = self._checked(self.program.answer())["latencies_us"]
        return latencies

    # When a replica fails

    def failover_ms(self, victim: int, before_s: float) -> float:
        """From kill -9 until records are green again, at a program that appends one after the other for this
        long before. The replica is started again, and takes part at the end."""
        self.program.tell("mark")
        self.program.tell("beat", BEAT_BYTES)
        time.sleep(before_s)
        killed_ns = time.monotonic_ns()
        self.daemons.kill(victim)
        time.sleep(AFTER_KILL_S)
        self._wait(
            lambda: self._is_answered(killed_ns),
            READY_S_MAX,
            f"records are green after replica {victim} was killed",
        )
        answered_ns = self._report()["answered_ns"]
        self.program.tell("quiet")
        self.daemons.start(victim)
        self.wait_for_primary(*self.daemons.numbers)
        return green_again_ms(killed_ns, answered_ns)

    def _is_answered(self, since_ns: int) -> bool:
        """And still is."""
        answered_ns = self._report()["answered_ns"]
        return bool(answered_ns) and answered_ns[-1] > max(since_ns, time.monotonic_ns() - ANSWERED_NS)

    def catch_up(self, missed: int, record_bytes: int, seconds: float) -> CatchUp:
        """The replica is killed, and comes back when the others have ordered so many records without it."""
        whole = self._load(APPEND_MANY, record_bytes, CATCH_UP_CALLS, SETTLING_S, seconds).records_per_s
        self.daemons.kill(BEHIND)
        others = [number for number in self.daemons.numbers if number != BEHIND]
        self.wait_for_primary(*others)
        had = self._position()
        self._flood(APPEND_MANY, record_bytes, CATCH_UP_CALLS)
        self.program.tell("mark")
        enough = had + missed
        self._wait(lambda: self._position() >= enough, MISSING_S_MAX, f"{missed} records are missed")
        away = self._report()
        self.program.tell("mark")
        lacks = self._position() - had
        start_s = time.monotonic()
        self.daemons.start(BEHIND)
        self._wait(lambda: self._standing() in JOINED, CATCH_UP_S_MAX, "it knows what it lacks")
        joined_s = time.monotonic()
        self._wait(lambda: self._standing() == JOINED[-1], CATCH_UP_S_MAX, "it takes part again")
        seconds_taken = time.monotonic() - start_s
        meanwhile = self._report()
        self._rest()
        return CatchUp(
            lacks,
            self._position() - had,
            seconds_taken,
            joined_s - start_s,
            whole,
            away["done"] / away["seconds"],
            meanwhile["done"] / meanwhile["seconds"],
        )

    def read_per_s(self) -> float:
        """Rows per second of CPU: all that the node's log has, as Arrow batches. By this process, beside the
        node."""
        from totempole.log.arrow import to_batches  # pyarrow is not always there

        reader = LogReader(self.daemons.home(SERVING) / "log")
        start_s = time.process_time()
        rows: int = sum(batch.num_rows for batch in to_batches(reader.runs(), log=LOG))
        return rows / (time.process_time() - start_s)

    def _position(self) -> int:
        position: int = self.log_of(SERVING).get("position", 0)
        return position

    def _standing(self) -> str:
        standing: str = self.log_of(BEHIND).get("standing", "")
        return standing


def green_again_ms(killed_ns: int, answered_ns: list[int]) -> float:
    """From the kill to the end of the longest pause in the answers that it has caused."""
    pauses = [(after - before, after) for before, after in pairwise(answered_ns) if after >= killed_ns]
    if not pauses:
        raise LabError("no record was green after the kill")
    return (max(pauses)[1] - killed_ns) / 1e6
