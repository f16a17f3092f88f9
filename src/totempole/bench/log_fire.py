"""The durable log under fire: three real nodes are killed with -9, one, two or all at once, again and again,
while programs append at each of them.

What the programs were told is compared with what is on the disks in the end: no green record is lost, none is
there twice, all logs are equal. kill -9 says nothing of power cuts, for the kernel keeps what was written;
tests/log/test_log_power_cut.py takes unsynced writes back.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from totempole.bench.log_fire_program import LOG
from totempole.bench.replicated import REPLICAS
from totempole.bench.workers import Worker, wait_until
from totempole.lab.cluster import Setup
from totempole.lab.commands import LabError
from totempole.lab.daemons import Daemons
from totempole.lab.loopback import LoopbackLab
from totempole.log.check import check
from totempole.log.reader import LogReader

PROGRAM = "totempole.bench.log_fire_program"
SETTINGS = (
    "log.enabled=true",
    "log.replicas=[1, 2, 3]",
    "log.segment_bytes=4194304",
    "log.recent_bytes=65536",
)
"""A short memory, so that replicas have to fetch; and small segments, though larger than the marks that they
begin with, which hold up to 65,536 keys."""
READY_S_MAX = 120.0
QUIET_S_MAX = 240.0
PAUSE_S = 0.02
GREEN_LINE_S = 0.5
"""The green line is written a moment later (corel.layer)."""
LOAD_S, AWAY_S = (0.1, 0.6), (0.0, 1.0)
"""Before a kill, and before the killed are started again: at least and at most."""
VICTIMS = (1, 1, 1, 2, 3)
"""How many are killed at once: drawn from these."""
HASTE = 0.3
"""How often the next kill does not wait until all take part again."""


@dataclass(slots=True)
class Promises:
    """What programs were told."""

    green: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By payload: when it was begun and when it ended, in ns, and the position."""
    positions: dict[str, int] = field(default_factory=dict)
    """Of green records, and those that receipts told later."""
    red: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        kind, payload, *rest = json.loads(line)
        match kind:
            case "green":
                self._note(payload, rest[2])
                self.green[payload] = (rest[0], rest[1], rest[2])
            case "found":
                self._note(payload, rest[0])
            case "red":
                self.red.add(payload)
            case "unknown":
                self.unknown.add(payload)
            case "refused":
                self.refused[rest[0]] += 1

    def _note(self, payload: str, position: int) -> None:
        before = self.positions.setdefault(payload, position)
        if before != position:
            self.contradictions.append(f"{payload} was told to be at {before}, and then at {position}")


def judge(promises: Promises, logs: dict[int, list[tuple[int, str]]]) -> list[str]:
    """What is wrong, one line each. `logs`: of each replica (position, payload), in the order on its disk."""
    first, *others = sorted(logs)
    records = logs[first]
    wrong = list(promises.contradictions)
    wrong += [f"the logs of {first} and {each} differ" for each in others if logs[each] != records]
    positions = [position for position, _ in records]
    if positions != list(range(len(records))):
        wrong.append("positions have gaps, or do not ascend")
    counts = Counter(payload for _, payload in records)
    wrong += [f"{payload} is there {count} times" for payload, count in counts.items() if count > 1]
    places = {payload: position for position, payload in records}
    for payload, position in promises.positions.items():
        if places.get(payload) != position:
            wrong.append(f"{payload} was green at {position}, and is at {places.get(payload)}")
    wrong += [f"{payload} was red, and is lost" for payload in promises.red if payload not in places]
    return wrong + _out_of_time(promises)


def _out_of_time(promises: Promises) -> list[str]:
    """An append that began after another had returned has a higher position."""
    wrong = []
    ended = sorted((each[1], each[2], payload) for payload, each in promises.green.items())
    highest, who, at = -1, "", 0
    for begun_ns, _, position, payload in sorted(
        (each[0], each[1], each[2], payload) for payload, each in promises.green.items()
    ):
        while at < len(ended) and ended[at][0] < begun_ns:
            if ended[at][1] > highest:
                highest, who = ended[at][1], ended[at][2]
            at += 1
        if position <= highest:
            wrong.append(f"{payload} is at {position}; it began after {who} was known to be at {highest}")
    return wrong


@dataclass(frozen=True, slots=True)
class Outcome:
    rounds: int
    kills: int
    records: int
    """In the log."""
    green: int
    """Of these, whose position was told to their program."""
    red: int
    """Receipts that were told."""
    unknown: int
    wrong: list[str]


class Fire:
    """Three nodes, and a program at each. Enter it, burn, and look at the outcome."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._lab = LoopbackLab(REPLICAS)
        self._daemons = Daemons(self._lab, directory, Setup(transport="mesh"), settings=SETTINGS)
        self._rng = random.Random(seed)
        self._programs: list[Worker] = []
        self._kills = 0

    def burn(self, rounds: int, tell: Callable[[str], None]) -> Outcome:
        with ExitStack() as open_now, self._daemons:
            self._wait_for_all()
            for number in self._daemons.numbers:
                program = self._start_program(number)
                open_now.callback(program.close)
                self._programs.append(program)
            wait_until(self._are_connected, self._programs, "sessions")
            for _ in range(rounds):
                tell(f"{self._kills} kills")
                self._round()
            self._wait_for_all()
            self._quiet()
            return self._outcome(rounds)

    def _start_program(self, number: int) -> Worker:
        """Its own node's socket comes first."""
        numbers = sorted(self._daemons.numbers, key=lambda other: (other != number, other))
        sockets = [self._daemons.socket(other) for other in numbers]
        words = [f"p{number}", self._told(number), *sockets]
        return Worker(self._lab.hosts[number], PROGRAM, words, self._directory / f"program-{number}.log")

    def _are_connected(self) -> bool:
        return all("connected" in program.told for program in self._programs)

    def _told(self, number: int) -> Path:
        return self._directory / f"told-{number}"

    def _round(self) -> None:
        rng = self._rng
        time.sleep(rng.uniform(*LOAD_S))
        victims = rng.sample(self._daemons.numbers, rng.choice(VICTIMS))
        for number in victims:
            self._daemons.kill(number)
            self._kills += 1
        time.sleep(rng.uniform(*AWAY_S))
        for number in victims:
            self._daemons.start(number)
        if rng.random() >= HASTE:
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        give_up_s = time.monotonic() + READY_S_MAX
        while not self._all_take_part():
            for number, process in self._daemons.processes.items():
                if process.poll() is not None:
                    raise LabError(f"node {number} has ended: {self._daemons.said(number)}")
            if time.monotonic() > give_up_s:
                shown = {number: self._log_of(number) for number in self._daemons.numbers}
                raise LabError(f"after {READY_S_MAX:g} s not all replicas take part: {shown}")
            time.sleep(PAUSE_S)

    def _log_of(self, number: int) -> dict[str, object]:
        found: dict[str, object] = self._daemons.status(number).get("log") or {}
        return found

    def _all_take_part(self) -> bool:
        logs = [self._log_of(number) for number in self._daemons.numbers]
        return all(
            log.get("standing") == "primary" and log["members"] == self._daemons.numbers for log in logs
        )

    def _quiet(self) -> None:
        for program in self._programs:
            program.tell("quiet")
        for program in self._programs:
            program.answer(QUIET_S_MAX)

    def _outcome(self, rounds: int) -> Outcome:
        time.sleep(GREEN_LINE_S)
        for number in self._daemons.numbers:
            self._daemons.end(number)
        promises = Promises()
        for number in self._daemons.numbers:
            for line in self._told(number).read_text(encoding="utf-8").splitlines():
                promises.take(line)
        logs = {number: list(_records(self._log_directory(number))) for number in self._daemons.numbers}
        wrong = judge(promises, logs)
        for number in self._daemons.numbers:
            wrong += _checked(number, self._log_directory(number))
        records = len(next(iter(logs.values())))
        told = len(promises.green)
        return Outcome(rounds, self._kills, records, told, len(promises.red), len(promises.unknown), wrong)

    def _log_directory(self, number: int) -> Path:
        return self._daemons.home(number) / "log"


def _checked(number: int, directory: Path) -> list[str]:
    """Every frame and every mark, as `totem log check` does it."""
    return [f"the log of {number}: {text}" for text in check(directory).all_problems]


def _records(directory: Path) -> Iterable[tuple[int, str]]:
    for record in LogReader(directory).records(log=LOG):
        yield record.position, record.payload.decode()


def burn(rounds: int, seed: int, directory: Path | None, tell: Callable[[str], None]) -> Outcome:
    with TemporaryDirectory(prefix="totem-fire-", dir=directory) as place:
        return Fire(Path(place), seed).burn(rounds, tell)
