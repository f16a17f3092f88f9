"""Daemons and programs with replicated objects on real hosts, for one test, and the end that every such test
has: heal, rest, settle, compare, judge. Faults come while programs call.

Progress is counted in calls, never in seconds: a busy machine makes a test slow, not wrong.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from netns_stage import POLL_S, WAIT_S
from object_histories import MODELS, check_counts, check_tokens, read_histories, with_places
from powercut import PowerCut

from totempole.bench.workers import Worker
from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.lab.daemons import Daemons
from totempole.lab.object_program import SETTLE_S
from totempole.srp.config import RingConfig
from totempole.testing import Call, Judgement, assert_linearizable

PROGRAM = "totempole.lab.object_program"
BRISK = RingConfig(token_loss_us=300_000, token_retransmission_us=50_000, consensus_us=50_000)
STATE_S = 60.0
READS_S = 0.05
"""Until reads are on their way to the daemon."""
STEPS_MAX = 100_000
"""A hundred times what these histories take."""


class ObjectStage:
    """A daemon and a program on each host, by number."""

    def __init__(self, lab: Lab, daemons: Daemons, directory: Path) -> None:
        self.lab = lab
        self.daemons = daemons
        self.directory = directory
        self.programs: dict[int, Worker] = {}
        self.histories: dict[str, list[Call]] = {}
        self.judgements: dict[str, Judgement] = {}
        self._is_peeking = False

    # Programs

    def start_program(self, host: int, pause_ms: int = 20) -> None:
        words = [self.daemons.socket(host), self.directory, f"program{host}"]
        worker = Worker(self.lab.hosts[host], PROGRAM, words, self._log(host))
        self.programs[host] = worker
        if self._is_peeking:
            worker.tell("peek")
        worker.tell("work", pause_ms)

    def start_programs(self, hosts: Collection[int] | None = None, pause_ms: int = 20) -> None:
        chosen = list(hosts or self.daemons.numbers)
        for host in chosen:
            self.start_program(host, pause_ms)
        self.wait(
            lambda: all("open" in self.programs[host].told for host in chosen), "programs to open objects"
        )

    def peek(self) -> None:
        """Programs that are started from here on make a mistake."""
        self._is_peeking = True

    def kill_program(self, host: int) -> None:
        self.programs.pop(host).close()

    def more(self, calls: int, hosts: Collection[int] | None = None) -> None:
        """Until so many more calls have ended at each of these hosts."""
        chosen = list(hosts or self.programs)
        before = {host: self._ended(host) for host in chosen}
        self.wait(
            lambda: all(self._ended(host) >= before[host] + calls for host in chosen),
            f"{calls} more calls at {chosen}",
        )

    def _ended(self, host: int) -> int:
        path = self.directory / f"program{host}.calls"
        content = path.read_bytes() if path.exists() else b""
        return content.count(b'\n["end"') + content.count(b'\n["raised"')

    def _log(self, host: int) -> Path:
        return self.directory / f"program{host}.log"

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while not condition():
            for worker in self.programs.values():
                if worker.process.poll() is not None:
                    raise worker.failure("has ended")
            assert time.monotonic() < give_up_s, f"waited {WAIT_S} s in vain for {what}\n{self.logs()}"
            time.sleep(POLL_S)

    def logs(self) -> str:
        daemons = [f"--- daemon {number}\n{self.daemons.said(number)}" for number in self.daemons.numbers]
        programs = [
            f"--- program {host}\n{self._log(host).read_text()[-2000:]}"
            for host in self.daemons.numbers
            if self._log(host).exists()
        ]
        return "\n".join(daemons + programs)

    # Daemons

    def is_primary(self, hosts: Collection[int]) -> bool:
        """Whether all of these are in one primary component, of these alone."""
        found = [self.daemons.status(host) for host in hosts]
        return all(
            status.get("log", {}).get("standing") == "primary" and status.get("members") == sorted(hosts)
            for status in found
        )

    def wait_primary(self, hosts: Collection[int] | None = None) -> None:
        chosen = list(hosts or self.daemons.numbers)
        self.wait(lambda: self.is_primary(chosen), f"a primary of {chosen}")

    def partition(self, *groups: Collection[int]) -> None:
        """Returns when the largest is a primary."""
        self.lab.partition([list(group) for group in groups])
        self.wait_primary(max(groups, key=len))

    def heal(self) -> None:
        self.lab.heal()
        self.wait_primary()

    @contextmanager
    def paused(self, host: int) -> Iterator[list[int]]:
        """The daemon of this host stands still, perhaps with the token in hand. Gives the others, which are
        a primary by then."""
        self.daemons.signal(host, signal.SIGSTOP)
        try:
            others = [other for other in self.daemons.numbers if other != host]
            self.wait_primary(others)
            yield others
        finally:
            self.daemons.signal(host, signal.SIGCONT)

    def read_in_old_primary(self, host: int, calls: int = 5) -> None:
        """All programs rest, so that each daemon keeps the token for a moment. One of them stands still, with
        the token in hand if it is lucky. The network parts, the others go on without it, and only then its
        program reads. When the daemon goes on, it takes the reads, and then sends what the token allows: it
        has not heard of another primary component."""
        others = [other for other in self.daemons.numbers if other != host]
        self._tell_all("rest", STATE_S)
        self.daemons.signal(host, signal.SIGSTOP)
        try:
            self.partition([host], others)
            for other in others:
                self.tell(other, "work")
            self.more(calls, others)
            self.tell(host, "read")
            time.sleep(READS_S)
        finally:
            self.daemons.signal(host, signal.SIGCONT)
        self.tell(host, "rest")
        self.tell(host, "work")
        self.heal()

    # The end

    def finish(self) -> None:
        """All are together: programs rest, ask for what is open, and hold the same. Then they are judged."""
        self.lab.heal()
        self.wait_primary()
        self._tell_all("rest", STATE_S)
        self._tell_all("settle", SETTLE_S + STATE_S)
        states = self.agree()
        log = self.daemons.home(self.daemons.numbers[0]) / "log"
        self.histories = with_places(read_histories(self.directory), log)
        self.judge(states)

    def tell(self, host: int, *words: object) -> None:
        """Waits until it is done."""
        self.programs[host].tell(*words)
        while self.programs[host].answer(STATE_S)["done"] != words[0]:
            pass

    def _tell_all(self, verb: str, limit_s: float) -> list[dict[str, Any]]:
        for worker in self.programs.values():
            worker.tell(verb)
        answers = []
        for worker in self.programs.values():
            answer = worker.answer(limit_s)
            while answer["done"] != verb:
                answer = worker.answer(limit_s)
            answers.append(answer)
        return answers

    def agree(self) -> dict[str, Any]:
        """Until all programs hold the same."""
        states: list[dict[str, Any]] = []

        def same() -> bool:
            states[:] = self._tell_all("state", STATE_S)
            return all(state == states[0] for state in states)

        give_up_s = time.monotonic() + STATE_S
        while not same():
            assert time.monotonic() < give_up_s, f"objects differ: {states}"
        return states[0]

    def judge(self, state: dict[str, Any]) -> None:
        for name, model in MODELS.items():
            self.judgements[name] = assert_linearizable(self.histories[name], model, steps_max=STEPS_MAX)
        counter = self.histories["counter"][-1]
        assert counter.operation == "get", "the last call is a read"
        check_counts(self.histories, counter.result, state["queue"])
        check_tokens(self.histories)
        for host in self.daemons.numbers:
            log = self._log(host)
            assert not log.exists() or "ERROR" not in log.read_text(), log.read_text()

    def close(self) -> None:
        for worker in self.programs.values():
            worker.close()


class Power:
    """Of all daemons. When it fails, their logs forget what was not synced."""

    def __init__(self, library: Path, random: Random) -> None:
        self.taken_back = 0
        self._library = library
        self._random = random
        self._cuts: dict[int, PowerCut] = {}

    def prepare(self, daemons: Daemons) -> None:
        for number in daemons.numbers:
            root = daemons.home(number) / "log"
            root.mkdir(parents=True, exist_ok=True)
            journal = daemons.directory / f"journal{number}"
            cut = self._cuts[number] = PowerCut(root, journal, Random(self._random.random()))
            daemons.environments[number] = {"LD_PRELOAD": str(self._library), **cut.environment(0)}

    def fail(self, stage: ObjectStage) -> None:
        """And comes back."""
        daemons = stage.daemons
        for number in daemons.numbers:
            daemons.signal(number, signal.SIGKILL)
        for number in daemons.numbers:
            daemons.kill(number)
            self.taken_back += self._cuts[number].take_back()
        self.prepare(daemons)
        for number in daemons.numbers:
            daemons.start(number)


def fire(stage: ObjectStage, random: Random, calls: int = 10) -> str:
    """One fault while programs call, and its end. Says what it was."""
    hosts = stage.daemons.numbers
    victim = random.choice(hosts)
    others = [host for host in hosts if host != victim]
    match random.choice(FAULTS):
        case "partition":
            stage.partition([victim], others)
            stage.more(calls, others)
            stage.heal()
            return f"partition of {victim}"
        case "one way":
            with random.choice((stage.lab.mute, stage.lab.deafen))(victim) as fault:
                stage.more(calls, others)
            stage.wait_primary()
            return fault.name
        case "pause":
            with stage.paused(victim) as going:
                stage.more(calls, going)
            stage.more(calls)
            return f"pause of {victim}"
        case "old primary":
            stage.read_in_old_primary(victim, calls)
            return f"reads in an old primary of {victim}"
        case "short pause":
            stage.daemons.signal(victim, signal.SIGSTOP)
            time.sleep(random.uniform(0.0, 0.4))
            stage.daemons.signal(victim, signal.SIGCONT)
            return f"short pause of {victim}"
        case "daemon":
            stage.daemons.kill(victim)
            if random.random() < 0.5:
                stage.more(calls, others)
            stage.daemons.start(victim)
            stage.wait_primary()
            return f"kill -9 of daemon {victim}"
        case "all daemons":
            for host in hosts:
                stage.daemons.kill(host)
            for host in hosts:
                stage.daemons.start(host)
            stage.wait_primary()
            return "kill -9 of all daemons"
        case "program":
            stage.kill_program(victim)
            stage.start_program(victim)
            return f"kill -9 of program {victim}"
        case _:
            stage.programs[victim].process.send_signal(signal.SIGSTOP)
            stage.more(calls, others)
            stage.programs[victim].process.send_signal(signal.SIGCONT)
            return f"pause of program {victim}"


FAULTS = (
    "partition",
    "one way",
    "pause",
    "old primary",
    "short pause",
    "daemon",
    "all daemons",
    "program",
    "pause of a program",
)


@contextmanager
def object_staged(
    directory: Path,
    hosts: int,
    *,
    settings: Collection[str] = (),
    prepare: Callable[[Daemons], None] | None = None,
    finish: bool = True,
) -> Iterator[ObjectStage]:
    """`prepare` is done before a daemon starts."""
    replicas = ", ".join(map(str, range(1, hosts + 1)))
    chosen = ["log.enabled=true", f"log.replicas=[{replicas}]", *settings]
    with Lab("objects", hosts=hosts) as lab:
        daemons = Daemons(lab, directory, Setup(ring=BRISK, transport="mesh"), settings=chosen)
        if prepare is not None:
            prepare(daemons)
        with daemons:
            stage = ObjectStage(lab, daemons, directory)
            try:
                stage.wait_primary()
                yield stage
                if finish:
                    stage.finish()
            finally:
                stage.close()
