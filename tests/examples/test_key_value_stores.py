"""The two key-value stores as a user runs them: real processes, kill -9, restart, partition. What clients are
told is linearisable, and all copies are equal in the end."""

from __future__ import annotations

import http.client
import logging
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemons import Program, wait_until
from daemons import cluster as cluster_of_files
from totempole import Messages, blocking
from totempole.lab.local_cluster import LocalCluster
from totempole.testing import ClassModel, History, assert_linearizable

pytestmark = pytest.mark.nodes

EXAMPLES = Path(__file__).parents[2] / "examples"
NAIVE = Path(__file__).parent / "naive_store.py"
WITH_EXAMPLES = os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH"))))
KEYS = ("a", "b")
LIMIT_S = 30.0
STORES = ("key_value", "key_value_in_memory")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("stores")) as cluster:
        yield cluster


def ask(port: int, method: str, key: str, content: bytes = b"") -> tuple[int, str]:
    connection = http.client.HTTPConnection("localhost", port, timeout=LIMIT_S)
    try:
        connection.request(method, f"/{key}", content)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class Dictionary:
    """What a store should be."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def put(self, key: str, value: str) -> None:
        self.values[key] = value


class Copies:
    """One program on each node, by number."""

    def __init__(self, file: Path, cluster: LocalCluster, stack: ExitStack, directory: Path) -> None:
        self.file, self.cluster, self.stack, self.directory = file, cluster, stack, directory
        self.programs: dict[int, Program] = {}
        self.ports: dict[int, int] = {}
        for number in cluster.numbers:
            self.start(number)
        self.wait()

    def start(self, number: int) -> None:
        argv = [sys.executable, str(self.file), "--port", "0"]
        argv += ["--socket", str(self.cluster.socket(number))]
        program = Program(argv, self.directory, PYTHONPATH=WITH_EXAMPLES)
        self.programs[number] = self.stack.enter_context(program)
        said = self.programs[number].wait_for(r"serving on port \d+")
        self.ports[number] = int(re.findall(r"\d+", said)[0])

    def ask(self, number: int, method: str, key: str, content: bytes = b"") -> tuple[int, str]:
        return ask(self.ports[number], method, key, content)

    def wait(self) -> None:
        """Until each answers."""
        for number in self.ports:
            wait_until(lambda number=number: self.ask(number, "GET", KEYS[0])[0] in (200, 404))

    def contents(self) -> list[dict[str, tuple[int, str]]]:
        return [{key: self.ask(number, "GET", key) for key in KEYS} for number in self.ports]


class Client(threading.Thread):
    def __init__(self, number: int, copies: Copies, history: History) -> None:
        super().__init__()
        self.number, self.copies, self.history = number, copies, history
        self.random = random.Random(number)
        self.over = False
        self.answered = 0

    def run(self) -> None:
        turn = 0
        while not self.over:
            turn += 1
            number, key = self.random.choice((1, 2, 3)), self.random.choice(KEYS)
            value = (f"{self.number}-{turn}",) if self.random.random() < 0.5 else ()
            self.call(number, "put" if value else "get", key, *value)
            time.sleep(self.random.uniform(0, 0.1))

    def call(self, number: int, kind: str, key: str, *value: str) -> None:
        call = self.history.begin(f"client {self.number}", kind, key, *value)
        try:
            status, text = self.copies.ask(number, kind.upper(), key, "".join(value).encode())
        except (OSError, http.client.HTTPException):
            status, text = 504, "the copy is gone"
        if status in (200, 404):
            self.answered += 1
            call.returned(text if kind == "get" and status == 200 else None)
        elif status == 503 or kind == "get":
            call.without_effect()


@pytest.mark.parametrize("name", STORES)
def test_a_store_is_right_through_kill_restart_and_partition(
    name: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    history = History()
    with ExitStack() as stack:
        copies = Copies(EXAMPLES / f"{name}.py", cluster, stack, tmp_path)
        clients = [Client(number, copies, history) for number in range(2)]
        for client in clients:
            client.start()
            stack.callback(setattr, client, "over", True)
        cluster.part([1], [2, 3])
        cluster.wait()
        refused = copies.ask(1, "PUT", "c", b"minority")[0]
        assert refused == (503 if name == "key_value_in_memory" else 504)
        wait_until(lambda: copies.ask(2, "PUT", "c", b"majority")[0] == 200)
        cluster.heal()
        cluster.wait()
        copies.wait()
        (found,) = {copies.ask(number, "GET", "c") for number in cluster.numbers}
        assert found in [(200, "majority"), (200, "minority")][: 1 + (refused == 504)]
        copies.programs[2].kill()
        copies.start(2)
        copies.wait()
        cluster.kill(3)
        cluster.start(3)
        cluster.wait()
        copies.wait()
        for client in clients:
            client.over = True
            client.join()
        first, *others = copies.contents()
        assert others == [first, first]
    assert all(client.answered > 5 for client in clients)
    for key, (status, text) in first.items():
        history.begin("last", "get", key).returned(text if status == 200 else None)
    assert_linearizable(history.calls(), ClassModel(Dictionary, key=lambda call: call.arguments[0]))


def test_a_naive_store_on_embedded_nodes_has_its_values_again_after_kill_9(tmp_path: Path) -> None:
    """The newcomer's first program: it answered 404 for everything that it had known."""
    with cluster_of_files(3, tmp_path, start=False) as files, ExitStack() as stack:

        def start(number: int) -> tuple[Program, int]:
            argv = [sys.executable, str(NAIVE), "--port", "0", "--embed", str(files[number].file)]
            program = stack.enter_context(Program(argv, tmp_path, PYTHONPATH=WITH_EXAMPLES))
            said = program.wait_for(r"serving on port \d+")
            return program, int(re.findall(r"\d+", said)[0])

        started = {number: start(number) for number in (1, 2, 3)}
        ports = {number: port for number, (_, port) in started.items()}
        assert ask(ports[1], "PUT", "a", b"old")[0] == 200
        wait_until(lambda: all(ask(port, "GET", "a") == (200, "old") for port in ports.values()))
        started[3][0].kill()
        wait_until(lambda: ask(ports[2], "PUT", "b", b"meanwhile")[0] == 200)
        _, again = start(3)
        wait_until(lambda: ask(again, "GET", "b") == (200, "meanwhile"))
        assert ask(again, "GET", "a") == (200, "old")


MERGED = r"group 'store': sides of a partition have come together"


def test_a_naive_store_that_has_diverged_in_a_partition_says_so(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The newcomer's first program: both sides answered 200, the copies differed, and nothing told of it."""
    with ExitStack() as stack:
        copies = Copies(NAIVE, cluster, stack, tmp_path)
        cluster.part([1], [2, 3])
        cluster.wait()
        for number, value in ((1, b"minority"), (2, b"majority")):
            wait_until(lambda number=number, value=value: copies.ask(number, "PUT", "a", value)[0] == 200)
        cluster.heal()
        cluster.wait()
        for program in copies.programs.values():
            program.wait_for_remark(MERGED)
            for way_out in ("session.replica", "totempole.Primary", "View.strangers"):
                assert way_out in program.err
        found = [copies.ask(number, "GET", "a") for number in copies.ports]
        assert found == [(200, "minority"), (200, "majority"), (200, "majority")]


def test_a_program_without_asyncio_is_warned_in_its_log(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "totempole.client"),
        blocking.connect(cluster.socket(1)) as one,
        blocking.connect(cluster.socket(2)) as two,
        one.join("store", state=lambda: b"", want_state=True) as mine,
        two.join("store", state=lambda: b"", want_state=True) as others,
    ):
        wait_until(lambda: mine.next(LIMIT_S) and len(mine.members) == 2)
        cluster.part([1], [2, 3])
        cluster.wait()
        cluster.heal()
        cluster.wait()
        two.multicast("store", b"together again")
        for group in (mine, others):
            while not isinstance(group.next(LIMIT_S), Messages):
                pass
    assert [bool(re.match(MERGED, text)) for text in caplog.messages] == [True, True]
