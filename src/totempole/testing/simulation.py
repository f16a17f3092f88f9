"""A user's own class under faults, in a simulated cluster: seconds of trouble in a second, the same for each
seed.

    def transfers(random: Random, caller: str) -> Generator[Operation, Any, None]:
        while True:
            yield (Bank.transfer, "ann", "bob", random.randint(1, 10))
            total = yield (Bank.total,)
            assert total == 200

    def test_the_bank_under_faults() -> None:
        simulate(Bank, transfers, seed=range(20))

Programs on several hosts open the object, call and read, crash and open it again, while networks part,
processors crash, pause and restart, packets and disks are lost. They run the true host, machine, log and
ring; only the network, the disks and the clocks are simulated. Then it is judged: the history by the class
itself, called by one caller after another (is it linearisable?), the states of all hosts by each other, and
every call by how often it was applied.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from totempole.checkers.linearizability import Call
from totempole.corel.config import LogConfig
from totempole.corel.quorum import MAJORITY
from totempole.sim.contract import SimulationError
from totempole.sim.fuzz.object_plan import ObjectPlanner
from totempole.sim.fuzz.profiles import ALL, PROFILES, Profile
from totempole.sim.objects.subject import Operation, Subject, Unknown, Workload
from totempole.sim.script import Scenario
from totempole.sim.script_runner import run
from totempole.types import ProcessorId

__all__ = ["Operation", "SimulationFailed", "SimulationReport", "Unknown", "simulate"]

HOSTS_MAX = 9


class SimulationFailed(AssertionError):
    """With the first seed that failed, and what was wrong, as its text."""

    def __init__(self, seed: int, told: str, report: SimulationReport) -> None:
        super().__init__(f"seed {seed}: {told}")
        self.seed = seed
        self.report = report


@dataclass(slots=True)
class SimulationReport:
    seeds: int = 0
    calls: int = 0
    answered: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    """What programs did."""
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to them."""
    undecided: list[int] = field(default_factory=list)
    """Seeds whose histories were too hard to judge: give `key`, or a workload with fewer callers."""

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.most_common(8))
        hard = f"; undecided: seeds {self.undecided}" if self.undecided else ""
        return f"{self.seeds} seeds, {self.calls} calls, {self.answered} answered; {faults}{hard}"


def simulate(
    cls: type[Any],
    workload: Workload | Callable[[Random], Operation],
    *,
    seed: int | Iterable[int] = 0,
    hosts: int = 3,
    faults: str = ALL.name,
    key: Callable[[Call], Hashable] | None = None,
    is_read: Callable[[Call], bool] = lambda _call: False,
) -> SimulationReport:
    """Runs one seed, or several. Raises SimulationFailed at the first that goes wrong.

    `workload` says what a caller does: a generator function of (random, caller's name) that yields operations
    and is sent their results; or a function of (random) that gives the next operation. An operation is
    (method, argument, …); a method without @command is a linearisable read. `faults`: what goes wrong, a
    profile of `totem fuzz`. `key`, `is_read`: as for `ClassModel`, to make the judge's work easier.
    """
    if not 1 <= hosts <= HOSTS_MAX:
        raise ValueError(f"{hosts} hosts: from 1 to {HOSTS_MAX} can be simulated")
    if faults not in PROFILES:
        raise ValueError(f"faults={faults!r}: give one of {', '.join(PROFILES)}")
    subject = Subject(cls.__name__, cls, _as_workload(workload), key, is_read)
    report = SimulationReport()
    for each in (seed,) if isinstance(seed, int) else seed:
        _simulate(subject, each, hosts, PROFILES[faults], report)
    return report


def _as_workload(workload: Any) -> Workload:
    if inspect.isgeneratorfunction(workload):
        return workload  # type: ignore[no-any-return]

    def endless(random: Random, _caller: str) -> Generator[Operation, Any, None]:
        while True:
            yield workload(random)

    return endless


def _simulate(subject: Subject, seed: int, hosts: int, profile: Profile, report: SimulationReport) -> None:
    scenario = UserPlanner(seed, hosts, subject.name, profile).scenario()
    try:
        outcome = run(scenario, level="checked", subject=subject)
    except SimulationError as error:
        raise SimulationFailed(seed, str(error), report) from error
    programs = outcome.objects
    assert programs is not None, "a scenario with objects"
    report.seeds += 1
    report.calls += programs.history.began
    report.answered += programs.history.ended
    report.acts.update(programs.acts)
    report.faults.update(outcome.world.faults)
    if outcome.failures:
        raise SimulationFailed(seed, "\n".join(outcome.failures), report)
    if programs.acts["history too hard"]:
        report.undecided.append(seed)


class UserPlanner(ObjectPlanner):
    """All hosts are replicas, and each has a program."""

    PURPOSE = "simulate"
    NAME = "simulate"

    def __init__(self, seed: int, hosts: int, name: str, profile: Profile) -> None:
        self.PROCESSORS_MIN = self.PROCESSORS_MAX = hosts
        super().__init__(seed, profile)
        self._object = name
        self._replicas: tuple[ProcessorId, ...] = self.everyone
        self._weights: tuple[int, ...] = ()
        self._rule = MAJORITY
        self._programs = [(me, "a") for me in self.everyone]

    def _log_config(self) -> LogConfig:
        return replace(super()._log_config(), floor=1)

    def scenario(self) -> Scenario:
        return replace(super().scenario(), objects=self._object)
