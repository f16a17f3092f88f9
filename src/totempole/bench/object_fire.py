"""Exactly once under fire: three real nodes are killed with -9, one, two or all at once, and so are the
programs that call a replicated object at them; other programs leave in the middle of their calls, and come
back.

Each call counts a name of its own, and returns the number that it was. What programs were told is compared
with the object in the end: a call that returned was done once, and no two have one number; a call that was
said not to be made was not; a submitted one was. Only of calls that were under way when their program was
killed nobody knows: they were done once or not at all.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from totempole.bench.log_fire import AWAY_S, HASTE, LOAD_S, SETTINGS, VICTIMS
from totempole.bench.log_nodes import log_of, wait_for_nodes, wait_for_primary
from totempole.bench.object_classes import Tally
from totempole.bench.object_fire_program import OBJECT
from totempole.bench.replicated import REPLICAS
from totempole.bench.workers import Worker, wait_until
from totempole.client.blocking import connect
from totempole.lab.cluster import Setup
from totempole.lab.daemons import Daemons
from totempole.lab.loopback import LoopbackLab
from totempole.log.check import check

PROGRAM = "totempole.bench.object_fire_program"
READY_S_MAX, QUIET_S_MAX, READ_S_MAX = 120.0, 240.0, 60.0
STEADY_S = 0.5
ROUNDS_MIN, ROUND_CALLS = 4, 250
"""About so many calls return in a round."""
WHO = ("nodes", "nodes", "nodes", "kill a program", "restart a program")
"""Whom a round hits: drawn from these."""


@dataclass(slots=True)
class Promises:
    """What programs were told."""

    begun: dict[str, int] = field(default_factory=dict)
    """By name: when, in ns."""
    ended: dict[str, int] = field(default_factory=dict)
    """When a call returned."""
    values: dict[str, int] = field(default_factory=dict)
    """Results, by a call that returned or by a receipt."""
    by_receipt: set[str] = field(default_factory=set)
    receipts: set[str] = field(default_factory=set)
    submitted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    contradictions: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        match json.loads(line):
            case ["begun", name, at_ns]:
                self.begun[name] = at_ns
            case ["done", name, at_ns, value]:
                self.ended[name] = at_ns
                self._note(name, value)
            case ["told", name, value]:
                self.by_receipt.add(name)
                self._note(name, value)
            case ["receipt", name, _]:
                self.receipts.add(name)
            case ["submitted", name, _]:
                self.submitted.add(name)
            case ["refused", name, _]:
                self.refused.add(name)

    def _note(self, name: str, value: int) -> None:
        before = self.values.setdefault(name, value)
        if before != value:
            self.contradictions.append(f"{name} was told to be number {before}, and then {value}")

    @property
    def doubtful(self) -> set[str]:
        return self.begun.keys() - self.values.keys() - self.refused


Counted = tuple[int, dict[str, int]]
"""The object's value, and how often it has counted each name."""


def judge(promises: Promises, objects: dict[int, Counted]) -> list[str]:
    """What is wrong, one line each. `objects`: as each node's replica has it."""
    first, *others = sorted(objects)
    value, times = objects[first]
    wrong = list(promises.contradictions)
    wrong += [
        f"the objects of {first} and {each} differ" for each in others if objects[each] != objects[first]
    ]
    wrong += [f"{name} was done {count} times" for name, count in times.items() if count != 1]
    wrong += [f"{name} was done, and nobody called it" for name in times if name not in promises.begun]
    wrong += [f"{name} returned, and is lost" for name in promises.values if name not in times]
    wrong += [f"{name} was not called, and was done" for name in promises.refused if name in times]
    wrong += [f"{name} was submitted, and is lost" for name in promises.submitted if name not in times]
    wrong += [
        f"{name} was done, and its receipt does not tell"
        for name in promises.receipts | promises.submitted
        if name in times and name not in promises.values
    ]
    found = len(promises.values) + sum(name in times for name in promises.doubtful)
    if value != found:
        wrong.append(f"the object has counted {value}, and {found} calls were done")
    return wrong + _not_once(promises, value) + _out_of_time(promises)


def _not_once(promises: Promises, value: int) -> list[str]:
    """Each number belongs to one call."""
    wrong, owners = [], dict[int, str]()
    for name, number in promises.values.items():
        other = owners.setdefault(number, name)
        if other != name:
            wrong.append(f"{name} and {other} are both number {number}")
        if not 0 < number <= value:
            wrong.append(f"{name} is number {number}, of {value}")
    return wrong


def _out_of_time(promises: Promises) -> list[str]:
    """A call that began after another had returned has a higher number."""
    wrong = []
    ended = sorted((at_ns, promises.values[name], name) for name, at_ns in promises.ended.items())
    highest, who, place = 0, "", 0
    for begun_ns, name in sorted((promises.begun.get(name, 0), name) for name in promises.values):
        while place < len(ended) and ended[place][0] < begun_ns:
            if ended[place][1] > highest:
                highest, who = ended[place][1], ended[place][2]
            place += 1
        if promises.values[name] <= highest:
            wrong.append(
                f"{name} is number {promises.values[name]}; it began after {who} had returned {highest}"
            )
    return wrong


@dataclass(frozen=True, slots=True)
class Outcome:
    rounds: int
    kills: int
    """Of nodes."""
    program_kills: int
    restarts: int
    """Of programs, in the middle of their calls."""
    value: int
    """What the object has counted."""
    done: int
    """Calls whose result was told,"""
    receipts: int
    """of these by a receipt."""
    refused: int
    doubtful: int
    doubtful_done: int
    wrong: list[str]


class Fire:
    """Three nodes, and a program at each."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._lab = LoopbackLab(REPLICAS)
        self._daemons = Daemons(self._lab, directory, Setup(transport="mesh"), settings=SETTINGS)
        self._rng = random.Random(seed)
        self._programs: dict[int, Worker] = {}
        self._kills = self._program_kills = self._restarts = 0

    def burn(self, calls: int, rounds: int, tell: Callable[[str], None]) -> Outcome:
        """At least so many rounds, and until so many calls have returned."""
        with ExitStack() as open_now, self._daemons:
            open_now.callback(self._close)
            self._wait_for_all()
            for number in self._daemons.numbers:
                self._start_program(number)
            wait_until(self._are_ready, self._programs.values(), "the object")
            done = burnt = 0
            while burnt < rounds or done < calls:
                if burnt < rounds:
                    tell(f"{done} calls")
                self._round()
                burnt += 1
                done = len(self._promises().values)
            self._wait_for_all()
            self._quiet()
            return self._outcome(burnt)

    def _close(self) -> None:
        for program in self._programs.values():
            program.close()

    def _start_program(self, number: int) -> None:
        """Its own node's socket comes first."""
        numbers = sorted(self._daemons.numbers, key=lambda other: (other != number, other))
        sockets = [self._daemons.socket(other) for other in numbers]
        words = [f"p{number}", self._told(number), *sockets]
        log = self._directory / f"program-{number}.log"
        self._programs[number] = Worker(self._lab.hosts[number], PROGRAM, words, log)

    def _are_ready(self) -> bool:
        return all("ready" in program.told for program in self._programs.values())

    def _told(self, number: int) -> Path:
        return self._directory / f"told-{number}"

    # Rounds

    def _round(self) -> None:
        rng = self._rng
        time.sleep(rng.uniform(*LOAD_S))
        match rng.choice(WHO):
            case "nodes":
                self._hit_nodes()
            case "kill a program":
                self._hit_program(is_killed=True)
            case "restart a program":
                self._hit_program(is_killed=False)
        if rng.random() >= HASTE:
            self._wait_for_all()

    def _hit_nodes(self) -> None:
        victims = self._rng.sample(self._daemons.numbers, self._rng.choice(VICTIMS))
        for number in victims:
            self._daemons.kill(number)
            self._kills += 1
        time.sleep(self._rng.uniform(*AWAY_S))
        for number in victims:
            self._daemons.start(number)

    def _hit_program(self, is_killed: bool) -> None:
        number = self._rng.choice(self._daemons.numbers)
        program = self._programs[number]
        wait_until(lambda: "ready" in program.told, [program], "the object", READY_S_MAX)
        if is_killed:
            self._program_kills += 1
        else:
            self._restarts += 1
            program.tell("leave")
            program.answer(QUIET_S_MAX)
        program.close()
        self._start_program(number)

    def _wait_for_all(self) -> None:
        wait_for_primary(self._daemons, self._daemons.numbers, READY_S_MAX)

    def _quiet(self) -> None:
        wait_until(self._are_ready, self._programs.values(), "the object", READY_S_MAX)
        for program in self._programs.values():
            program.tell("quiet")
        for program in self._programs.values():
            program.answer(QUIET_S_MAX)

    # The end

    def _promises(self) -> Promises:
        promises = Promises()
        for number in self._daemons.numbers:
            file = self._told(number)
            for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else ():
                if line.endswith("\n"):  # or it is being written
                    promises.take(line)
        return promises

    def _outcome(self, rounds: int) -> Outcome:
        self._wait_until_steady()
        objects = {number: self._object_of(number) for number in self._daemons.numbers}
        for number in self._daemons.numbers:
            self._daemons.end(number)
        promises = self._promises()
        value, times = next(iter(objects.values()))
        wrong = judge(promises, objects)
        for number in self._daemons.numbers:
            problems = check(self._daemons.home(number) / "log").all_problems
            wrong += [f"the log of {number}: {text}" for text in problems]
        return Outcome(
            rounds,
            self._kills,
            self._program_kills,
            self._restarts,
            value,
            len(promises.values),
            len(promises.by_receipt),
            len(promises.refused),
            len(promises.doubtful),
            sum(name in times for name in promises.doubtful),
            wrong,
        )

    def _wait_until_steady(self) -> None:
        """What a killed program had sent may still come."""
        positions: list[int] = []

        def steady() -> bool:
            before, positions[:] = (
                positions[:],
                [log_of(self._daemons, number).get("position", -1) for number in self._daemons.numbers],
            )
            time.sleep(STEADY_S)
            return before == positions and len(set(positions)) == 1

        wait_for_nodes(self._daemons, steady, READY_S_MAX, "nothing is under way")

    def _object_of(self, number: int) -> Counted:
        with (
            connect(self._daemons.socket(number), name="judge") as session,
            session.replica(Tally, OBJECT) as replica,
        ):
            return replica.within(READ_S_MAX).read(Tally.all)


def burn(calls: int, rounds: int, seed: int, directory: Path | None, tell: Callable[[str], None]) -> Outcome:
    with TemporaryDirectory(prefix="totem-fire-", dir=directory) as place:
        return Fire(Path(place), seed).burn(calls, rounds, tell)
