"""The examples, as a user runs them: several processes on several daemons, one of which is killed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemons import Cluster, Daemon, Program, cluster, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(3, tmp_path_factory.mktemp("ring")) as ring:
        yield ring


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Starter:
    """Starts an example, with a daemon."""

    def __init__(self, name: str, stack: ExitStack, directory: Path) -> None:
        self.name, self.stack, self.directory = name, stack, directory

    def __call__(self, daemon: Daemon, *arguments: str) -> Program:
        return self.with_options("--socket", str(daemon.socket), *arguments)

    def with_options(self, *arguments: str) -> Program:
        argv = [sys.executable, str(EXAMPLES / f"{self.name}.py"), *arguments]
        return self.stack.enter_context(Program(argv, self.directory))


def number_of(program: Program, what: str) -> int:
    """How many there were, by its latest word."""
    return int(re.findall(rf"^(\d+) {what}$", program.out, re.MULTILINE)[-1])


def values(program: Program) -> list[int]:
    """What a counter has shown, one after the other."""
    return [int(line) for line in re.findall(r"^-?\d+$", program.out, re.MULTILINE)]


@pytest.mark.nodes
def test_counters_show_the_same_values_everywhere(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    start = Starter("counter", stack, tmp_path)
    first, second, third = (start(ring[number]) for number in (1, 2, 3))
    for program in (first, second, third):
        program.wait_for("3 copies")
    for number, program in enumerate((first, second, third), 1):
        program.type(*[str(number * 10**place) for place in range(3)])
    for program in (first, second, third):
        program.wait_for("666")
    assert values(first)[-9:] == values(second)[-9:] == values(third)[-9:]
    second.kill()
    for program in (first, third):
        wait_until(lambda program=program: number_of(program, "copies") == 2)
    third.type("-66")
    first.wait_for("600")
    late = start(ring[2])
    late.wait_for("begins at 600")
    late.type("7", "seven")
    for program in (first, third, late):
        program.wait_for("607")
    late.wait_for("'seven' is no whole number")
    assert first.end() == third.end() == late.end() == 0
    assert {program.out.splitlines()[-1] for program in (first, third, late)} == {"left at 607"}
    hasty = start(ring[2])
    hasty.type("3", "-2")
    assert hasty.end() == 0
    assert hasty.out.splitlines()[-1] == "left at 1"


def said(program: Program) -> list[str]:
    return re.findall(r"^<.*$", program.out, re.MULTILINE)


@pytest.mark.nodes
def test_a_chat_reads_alike_for_all(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    start = Starter("chat", stack, tmp_path)
    people = {name: start(ring[number], name) for number, name in enumerate(("ann", "bob", "cyd"), 1)}
    for program in people.values():
        for name in people:
            program.wait_for(rf"\* {name} is here")
    for name, program in people.items():
        program.type(*[f"{name} {line}" for line in range(20)])
    for program in people.values():
        wait_until(lambda program=program: len(said(program)) == 60)
    assert said(people["ann"]) == said(people["bob"]) == said(people["cyd"])
    people["bob"].kill()
    people["ann"].wait_for(r"\* bob is gone")
    people["cyd"].wait_for(r"\* bob is gone")
    people["ann"].type("he is gone")
    people["cyd"].wait_for("<ann> he is gone")
    assert people["cyd"].end() == 0
    people["ann"].wait_for(r"\* cyd is gone")


def history(program: Program) -> list[str]:
    return re.findall(r"^(?:won|done|open again) .*$", program.out, re.MULTILINE)


@pytest.mark.nodes
def test_every_task_has_one_winner_also_when_a_worker_dies(
    ring: Cluster, stack: ExitStack, tmp_path: Path
) -> None:
    start = Starter("work_queue", stack, tmp_path)
    victim = start(ring[2], "--seconds", "1000")
    victim.wait_for("ready")
    others = [start(ring[number], "--seconds", "0.01") for number in (1, 3)]
    for worker in others:
        worker.wait_for("ready")
    tasks = [f"task {number}" for number in range(20)]
    assert start(ring[1], "--add", *tasks).end() == 0
    wait_until(lambda: others[0].out.count("done ") >= 19, lambda: others[0].out)
    wait_until(lambda: history(victim) == history(others[0]) == history(others[1]))
    before = history(victim)
    victim.kill()
    for worker in others:
        wait_until(lambda worker=worker: worker.out.count("done ") == 20, lambda worker=worker: worker.out)
    assert history(others[0]) == history(others[1])
    assert history(others[0])[: len(before)] == before
    check_winners([line.split() for line in history(others[0])], len(tasks))
    late = start(ring[2], "--seconds", "0.01")
    late.wait_for("ready")
    assert not history(late)


def check_winners(rows: list[list[str]], tasks: int) -> None:
    """Nobody wins what somebody has; who is done had won; a task that is open again is won again."""
    winners: dict[str, str] = {}
    done: set[str] = set()
    reopened = 0
    for verb, *words in rows:
        match verb:
            case "won":
                assert words[0] not in winners
                winners[words[0]] = words[1]
            case "done":
                assert winners[words[0]] == words[1]
                assert words[0] not in done
                done.add(words[0])
            case "open":
                assert winners.pop(words[1]) == words[2]
                reopened += 1
    assert (len(done), reopened) == (tasks, 1)


def board(program: Program) -> str:
    seen = program.out.count("\n")
    program.type("show")
    wait_until(lambda: program.out.count("\n") >= seen + 8)
    return "\n".join(program.out.splitlines()[seen : seen + 8])


@pytest.mark.nodes
def test_a_whiteboard_is_handed_to_whoever_joins(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    start = Starter("whiteboard", stack, tmp_path)
    first, second = start(ring[1]), start(ring[2])
    for program in (first, second):
        program.wait_for("2 draw")
    for column in range(24):
        first.type(f"put {column} 1 a", f"put {column} 3 x")
        second.type(f"put {column} 2 b", f"put {column} 3 y")
    joiner = start(ring[3])  # while they draw
    for program in (first, second):
        wait_until(lambda program=program: program.out.count("drawn at") == 96)
    joiner.wait_for(r"the board has \d+ spots")
    wait_until(lambda: board(joiner) == board(first), lambda: joiner.out + first.out)
    assert board(first) == board(second)
    assert "a" * 24 in board(joiner)
    first.kill()
    wait_until(lambda: number_of(second, "draw") == 2)
    joiner.type("put 0 0 #", "put x")
    for program in (second, joiner):
        program.wait_for("drawn at 0 0")
    joiner.wait_for("put COLUMN ROW CHARACTER, or show")
    late = start(ring[1])
    late.wait_for("the board has 73 spots")
    assert board(late) == board(second) == board(joiner)


def test_a_counter_with_a_node_of_its_own(stack: ExitStack, tmp_path: Path) -> None:
    """The same program, embedded: the two form a ring, and the one that counted by itself is heard."""
    with cluster(2, tmp_path) as ring:
        ring[2].end()
        start = Starter("counter", stack, tmp_path)
        daemons = start(ring[1])
        daemons.wait_for("begins at 0")
        daemons.type("5")
        daemons.wait_for("5")
        embedded = start.with_options("--embed", str(ring[2].file))
        embedded.wait_for("2 copies")
        embedded.wait_for("5|begins at 5")
        embedded.type("3")
        daemons.wait_for("8")
        embedded.wait_for("8")
        assert embedded.end() == daemons.end() == 0
