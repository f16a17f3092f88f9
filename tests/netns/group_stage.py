"""Daemons on real hosts and programs that use them, for one test, and the end that every such test has: heal,
rest, judge. Judged is what the daemons wrote down, by all checkers; what the programs saw, by comparing them
with each other; and both together: a program saw what its daemon says that it was told.

Progress is counted in messages, never in seconds: a busy machine makes a test slow, not wrong.
"""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from netns_stage import DRAIN_S, POLL_S, WAIT_S, with_crashes

from totempole.bench.workers import Worker
from totempole.checkers import Liveness, check
from totempole.cli import main
from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.lab.daemons import Daemons
from totempole.srp.config import RingConfig
from totempole.trace.schema import Row

PROGRAM = "totempole.lab.program"
STEADY = RingConfig(token_loss_us=3_000_000, laggard_us=60_000_000, fail_to_receive_rounds=100_000)
"""For tests in which no configuration may change: a busy machine keeps a daemon waiting for longer than a
ring would."""


class GroupStage:
    """Daemons on a lab, and programs by name. `rows` and `seen` are there once it has been judged."""

    def __init__(self, lab: Lab, daemons: Daemons, directory: Path) -> None:
        self.lab = lab
        self.daemons = daemons
        self.directory = directory
        self.host_of: dict[str, int] = {}
        """Of each program that is there."""
        self.rows: list[Row] = []
        self.seen: dict[str, Record] = {}
        self.killed: set[int] = set()
        """Whose last rows are missing."""
        self.down: set[int] = set()
        """Killed, and not started again."""
        self._workers: dict[str, Worker] = {}
        self._programs: dict[str, Worker] = {}

    # Programs

    def program(self, name: str, host: int, *groups: str, apart: bool = False, options: str = "") -> None:
        """A session with the daemon of that host, in these groups. `apart`: it is a process of its own."""
        label = name if apart else f"host-{host}"
        if label not in self._workers:
            words = [self.daemons.socket(host), self.directory]
            log = self.directory / f"programs-{label}.log"
            self._workers[label] = Worker(self.lab.hosts[host], PROGRAM, words, log)
        self._programs[name] = self._workers[label]
        self.host_of[name] = host
        self.tell(name, "open", name, *options.split())
        for group in groups:
            self.join(name, group)

    def join(self, name: str, group: str, policy: str = "disconnect", *options: str) -> None:
        self.tell(name, "join", name, group, policy, *options)

    def send(self, name: str, groups: str, size: int, count: int = 1, how: str = "agreed") -> None:
        """`how`: agreed or safe; `agreed notice`."""
        self.tell(name, "send", name, groups, size, count, *how.split())

    def pace(self, name: str, groups: str, rate: float, size: int = 300, how: str = "agreed") -> None:
        self.tell(name, "pace", name, groups, size, rate, *how.split())

    def tell(self, name: str, *words: object) -> dict[str, Any]:
        """Waits until it is done."""
        worker = self._programs[name]
        worker.tell(*words)
        answer = worker.answer(WAIT_S)
        assert "error" not in answer, answer["error"]
        return answer

    def forget(self, name: str) -> None:
        """Nothing more is expected of it: it was killed, or was ended by its daemon."""
        del self._programs[name]
        del self.host_of[name]

    def close(self, name: str) -> None:
        self.tell(name, "close", name)
        self.forget(name)

    def kill_program(self, name: str) -> None:
        worker = self._workers.pop(name)
        self.forget(name)
        worker.close()

    def signal_program(self, name: str, what: signal.Signals) -> None:
        self._programs[name].process.send_signal(what)

    def reports(self, names: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        wanted = set(self._programs if names is None else names)
        for worker in {
            id(worker): worker for name, worker in self._programs.items() if name in wanted
        }.values():
            worker.tell("report")
            found |= worker.answer(WAIT_S)["programs"]
        return {name: report for name, report in found.items() if name in wanted}

    def quiet(self) -> None:
        for name in self._programs:
            self.tell(name, "quiet")

    def deliver(self, messages: int = 100, names: Collection[str] | None = None) -> None:
        """Until each of them has received so many more messages, all that are in a group if none is named."""
        before = self.reports(names)
        waiting = list(names or (name for name, report in before.items() if report["members"]))

        def received() -> bool:
            now = self.reports(waiting)
            return all(_received(now[name]) >= _received(before[name]) + messages for name in waiting)

        self.wait(received, f"{messages} more messages at {waiting}")

    def wait_members(self, group: str, *names: str) -> None:
        """Until the view that each of these has of the group has exactly them in it."""

        def complete() -> bool:
            reports = self.reports(names)
            members = sorted(reports[name]["process"] for name in names)
            return all(sorted(reports[name]["members"].get(group, [])) == members for name in names)

        self.wait(complete, f"{names} to be the members of {group}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < give_up_s, f"waited {WAIT_S} s in vain for {what}\n{self.logs()}"
            time.sleep(POLL_S)

    def logs(self) -> str:
        return "\n".join(f"--- {number}\n{self.daemons.said(number)}" for number in self.daemons.numbers)

    # Faults

    @property
    def running(self) -> list[int]:
        return sorted(self.daemons.processes)

    def kill(self, number: int) -> None:
        self.daemons.kill(number)
        self.killed.add(number)
        self.down.add(number)

    def restart(self, number: int) -> None:
        self.daemons.start(number)
        self.down.discard(number)

    @contextmanager
    def loss(self, percent: float) -> Iterator[None]:
        """Every host loses its share; that something was lost is seen to."""
        before = self.lab.counters().lost
        with ExitStack() as faults:
            for number in self.lab.hosts:
                faults.enter_context(self.lab.loss(number, percent))
            yield
        assert self.lab.counters().lost > before, "nothing was lost"

    def partition(self, *groups: Sequence[int]) -> None:
        """Returns when each group is a ring of its own."""
        self.lab.partition(groups)
        self.wait_for(*groups)

    def heal(self) -> None:
        self.lab.heal()
        self.wait_for(self.running)

    def wait_for(self, *groups: Collection[int]) -> None:
        self.daemons.wait_for(*groups, timeout_s=WAIT_S)

    def configuration_changes(self) -> dict[int, int]:
        return {number: self.status(number)["configuration_changes"] for number in self.running}

    def are_rings(self, parts: Sequence[Sequence[int]]) -> bool:
        """Whether each part is a ring, and no change is under way: it may have come and gone unnoticed."""
        return all(self.status(number).get("members") == list(part) for part in parts for number in part)

    def status(self, number: int) -> dict[str, Any]:
        """Waits for an answer, if the machine is so busy."""
        found: dict[str, Any] = {}

        def answered() -> bool:
            nonlocal found
            found = self.daemons.status(number)
            return bool(found)

        self.wait(answered, f"the status of {number}")
        return found

    # The end

    def finish(self) -> None:
        """Rests, is judged; then all leave, and the whole of it is judged."""
        self.lab.heal()
        healed_us = time.time_ns() // 1000
        self.quiet()
        up = tuple(self.running)
        rows = self._resting_rows()
        last = self.reports()
        self.judge(rows, Liveness(healed_us, (up,), round(2 * WAIT_S * 1_000_000)))
        for name in list(self._programs):
            self.close(name)
        for number in up:
            self.daemons.end(number)
        self.judge(self.daemons.trace())
        self.judge_programs(last)

    def _resting_rows(self) -> list[Row]:
        """The traces while all are together and nothing happens: here all that is due may be asked for."""
        before: Any = None
        found: list[Row] = []

        def is_at_rest() -> bool:
            nonlocal before, found
            doing = self._doing()
            if doing is None or doing != before:
                before = doing
                time.sleep(DRAIN_S)
                return False
            found = self.daemons.trace()
            last = {row.node: row.configuration for row in found if row.kind == "configuration"}
            ring = doing[0][0]
            return all(last[number] == ring for number in self.running) and self._doing() == doing

        self.wait(is_at_rest, "daemons and programs to be at rest")
        return found

    def _doing(self) -> Any:
        """What changes while anything happens; None while it cannot be at rest."""
        statuses = [self.daemons.status(number) for number in self.running]
        if not all(statuses):
            return None
        whole = all(status["members"] == self.running for status in statuses)
        waiting = any(
            status["queue"]["send"] + status["queue"]["application"] + status["clients"]["queued_bytes"]
            for status in statuses
        )
        rings = {status["ring"] for status in statuses}
        ready = all(status["groups"]["ready"] for status in statuses)
        reports = self.reports()
        sending = any(report["sending"] for report in reports.values())
        if not whole or waiting or len(rings) > 1 or not ready or sending:
            return None
        delivered = [status["totals"]["messages_delivered"] for status in statuses]
        return [rings.pop()], delivered, {name: report["seen"] for name, report in reports.items()}

    def judge(self, rows: list[Row], expectation: Liveness | None = None) -> None:
        """Every property. The hosts share one clock; a killed daemon is judged up to its last row."""
        self.rows = with_crashes(rows, self.down)
        report = check(self.rows, complete=True, expectation=expectation)
        violated = list(report.violated)
        assert not violated, "\n".join([*map(str, violated), f"trace: {self.daemons.directory}"])
        if expectation is not None:
            for name in ("liveness", "group-liveness"):
                assert not report[name].reasons, report[name]

    def judge_programs(self, last: Mapping[str, Mapping[str, Any]]) -> None:
        self.last = last
        records = sorted(self.directory.glob("*.seen"))
        self.seen = {file.stem: Record.read(file) for file in records}
        for name, record in self.seen.items():
            assert not record.of("wrong"), (name, record.of("wrong"))
        compare(self.seen)
        with_trace(self.seen, self.rows)

    # What a test may ask for when all is over

    def assert_nothing_lost(self, groups_of: Mapping[str, Collection[str]]) -> None:
        """Each of these programs was in these groups before anything was sent, and no view was lost since:
        they have received all that anyone sent there."""
        for name, groups in groups_of.items():
            expected = {
                f"{sender}:{target}": count
                for sender, report in self.last.items()
                for target, count in report["sent"].items()
                if set(target.split(",")) & set(groups)
            }
            received = self.last[name]["received"]
            assert received == expected, f"{name} received {received}, not {expected}"

    def of_kind(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row.kind == kind]

    def assert_replays(self, *options: str) -> None:
        """What every daemon was fed has the same effects again."""
        recordings = self.daemons.recordings
        assert len(recordings) >= len(self.daemons.numbers)
        for file in recordings:
            assert main(["replay", str(file), *options]) == 0

    def close_programs(self) -> None:
        for worker in self._workers.values():
            worker.close()


def _received(report: Mapping[str, Any]) -> int:
    return sum(report["received"].values())


# What programs saw


@dataclass(slots=True)
class Record:
    """What one program saw, in order: lists as totempole.lab.program writes them."""

    lives: list[tuple[str, list[list[Any]]]] = field(default_factory=list)
    """For each process that it was, the events."""

    @classmethod
    def read(cls, file: Path) -> Record:
        record = cls()
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # it was killed in the middle of a word
            event = json.loads(line)
            if event[0] in ("opened", "reconnected"):
                record.lives.append((event[1], []))
            record.lives[-1][1].append(event)
        return record

    def of(self, kind: str) -> list[list[Any]]:
        return [event for _, events in self.lives for event in events if event[0] == kind]


def compare(seen: Mapping[str, Record]) -> None:
    """One order: every process sees places grow, and at the same place all see the same."""
    messages: dict[str, list[Any]] = {}
    views: dict[tuple[str, str, str], list[Any]] = {}
    stays: dict[tuple[str, str, str], list[tuple[str, list[str]]]] = defaultdict(list)
    for record in seen.values():
        for process, events in record.lives:
            placed = [event[1] for event in events if event[0] in ("messages", "view")]
            # One packet may change the views of several groups; each has an index of its own.
            assert all(first < second for first, second in pairwise(placed)), process
            for event in events:
                if event[0] == "messages":
                    assert messages.setdefault(str(event[1]), event[2:]) == event[2:]
                elif event[0] == "view":
                    told = [sorted(event[4]), event[6]]
                    assert views.setdefault((str(event[1]), event[2], event[3]), told) == told
            for id_, company, content in _stays(process, events):
                stays[id_].append((company, content))
    for told in stays.values():
        assert all(content == told[0][1] for company, content in told if company == told[0][0])


def _stays(process: str, events: list[list[Any]]) -> Iterator[tuple[tuple[str, str, str], str, list[str]]]:
    """Each view that was followed by another: group and both places, who went along, and what was delivered
    in it. A state may contain messages that are not seen then."""
    view: dict[str, list[Any]] = {}
    known = {event[2]: event[1] for event in events if event[0] == "state"}
    content: dict[str, list[str]] = defaultdict(list)
    gaps = {event[1] for event in events if event[0] == "gap"}
    for event in events:
        if event[0] == "messages":
            for group in event[5].split(","):
                content[group].append(str(event[1:]))
        elif event[0] == "view":
            group = event[3]
            before = view.get(group)
            whole = group not in gaps and (before is None or known.get(group, []) <= before[1])
            if before is not None and whole and process in event[5]:
                yield (group, str(before[1:3]), str(event[1:3])), str(sorted(event[5])), content[group]
            view[group] = event
            content[group] = []


def with_trace(seen: Mapping[str, Record], rows: Collection[Row]) -> None:
    """What a program saw is what its daemon was told to pass on: all of it, or the first of it if one of the
    two was killed; without what was dropped, if it fell behind, and without what its state contained."""
    told: dict[str, list[Told]] = defaultdict(list)
    for row in rows:
        if row.kind == "group_deliver":
            ring = row.ring.split("@")
            place = ((int(ring[0]), int(ring[1])), row.seq, row.groups.index)
            told[row.process].append(Told(place, ",".join(row.groups.to), row.message, row.count))
    for name, record in seen.items():
        for process, events in record.lives:
            states = {event[2]: _place(event[1]) for event in events if event[0] == "state"}
            saw = [_told(event) for event in events if event[0] == "messages"]
            known = [message for message in told[process] if states.get(message.groups, ()) < message.place]
            if any(event[0] == "gap" for event in events):
                left = iter(known)
                assert all(message in left for message in saw), f"{name} saw what {process} was not told"
            else:  # the shorter one is a killed one's: a program's, or a daemon's that lacks its last rows
                both = min(len(saw), len(known))
                assert known[:both] == saw[:both], f"{name} did not see what {process} was told"


class Told(NamedTuple):
    place: tuple[Any, ...]
    groups: str
    message: str
    count: int


def _told(event: list[Any]) -> Told:
    _, place, sender, number, count, groups, *_ = event
    return Told(_place(place), groups, f"{sender}:{number}", count)


def _place(place: list[Any]) -> tuple[Any, ...]:
    (ring, seq, _), index = place
    return tuple(ring), seq, index


# The stage of a test


class GroupStageMaker(Protocol):
    def __call__(
        self,
        hosts: int,
        *,
        setup: Setup | None = ...,
        settings: Sequence[str] = ...,
        prepare: Callable[[Lab], object] | None = ...,
    ) -> AbstractContextManager[GroupStage]: ...


@contextmanager
def group_staged(
    directory: Path,
    hosts: int,
    *,
    setup: Setup | None = None,
    settings: Sequence[str] = (),
    prepare: Callable[[Lab], object] | None = None,
) -> Iterator[GroupStage]:
    """`settings` are those of `totem node --set`. `prepare` is done to the network before anything starts."""
    with Lab("groups", hosts=hosts) as lab:
        if prepare is not None:
            prepare(lab)
        chosen = replace(setup or Setup(), trace="checked")
        with Daemons(lab, directory, chosen, settings=settings) as daemons:
            stage = GroupStage(lab, daemons, directory)
            try:
                yield stage
                stage.finish()
            finally:
                stage.close_programs()
