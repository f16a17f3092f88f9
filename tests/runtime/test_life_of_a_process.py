"""Nodes as processes: they form a ring, leave it, come back from their disks, and refuse what they must."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from loopback import LIMIT_S, Place, a_place, wait_until

from totempole.runtime import keyring
from totempole.runtime.status import StatusError, read_status
from totempole.runtime.storage import Storage

RING = "[ring]\ntoken_loss_us = 2000000\ntoken_retransmission_us = 200000\nconsensus_us = 100000\n"


class Process:
    """`totem node` with a configuration file of its own."""

    def __init__(
        self, place: Place, number: int, folder: Path, processor: int = 0, address: str = ""
    ) -> None:
        self.address, self.port = address or place.address(number), place.port
        self.directory = folder / f"state{number}"
        self.file = folder / f"node{number}.toml"
        self.log = folder / f"log{number}"
        self.file.write_text(
            f'processor = {processor or number}\ndirectory = "{self.directory}"\n'
            f'[network]\naddress = "{self.address}"\nport = {self.port}\n'
            f'[security]\nkey_file = "{folder / "ring.key"}"\n[logging]\nformat = "json"\n{RING}'
        )
        with self.log.open("a") as stream:
            command = [sys.executable, "-m", "totempole", "node", "--config", str(self.file)]
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream)

    def status(self) -> dict[str, Any]:
        try:
            return read_status(self.directory)
        except StatusError:
            return {}

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(LIMIT_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    keyring.create(tmp_path / "ring.key")
    with ExitStack() as stack:
        place = stack.enter_context(a_place())

        def begin(number: int, **settings: Any) -> Process:
            process = Process(place, number, tmp_path, **settings)
            stack.callback(process.stop)
            return process

        yield begin


def wait_for_ring(*processes: Process) -> None:
    def formed() -> bool:
        for process in processes:
            assert process.process.poll() is None, process.log.read_text()
        documents = [process.status() for process in processes]
        wanted = sorted(document.get("processor", 0) for document in documents)
        return all(
            document.get("members") == wanted and document["state"] == "operational" for document in documents
        )

    wait_until(formed, "no ring of processes")


def incarnation(process: Process) -> int:
    with Storage.open(process.directory, int(process.directory.name.removeprefix("state")), 1) as storage:
        return storage.values["incarnation"]


def test_a_ring_of_processes_and_one_that_leaves_and_returns(start: Start) -> None:
    processes = [start(number) for number in (1, 2, 3)]
    wait_for_ring(*processes)
    processes[2].signal(signal.SIGTERM)
    assert processes[2].end() == 0
    assert processes[2].lines("left the ring")
    wait_for_ring(*processes[:2])
    first = incarnation(processes[2])
    again = start(3)
    wait_for_ring(*processes[:2], again)
    again.signal(signal.SIGINT)
    assert again.end() == 0
    assert incarnation(again) == first + 1


@pytest.mark.nodes
def test_one_that_was_killed_comes_back_from_its_disk(start: Start) -> None:
    one, two = start(1), start(2)
    wait_for_ring(one, two)
    two.signal(signal.SIGKILL)
    assert two.end() == -signal.SIGKILL
    wait_for_ring(one)
    first = incarnation(two)
    wait_for_ring(one, again := start(2))
    again.signal(signal.SIGTERM)
    assert again.end() == 0
    assert incarnation(again) == first + 1


def wait_for_rotations(*processes: Process) -> None:
    """The token that each of them sends from now on comes back to it."""
    for process in processes:
        tokens = process.status()["totals"]["tokens"]
        wait_until(lambda process=process, tokens=tokens: process.status()["totals"]["tokens"] > tokens + 1)


@pytest.mark.nodes
def test_keys_change_by_sighup_while_the_ring_goes_on(start: Start, tmp_path: Path) -> None:
    one, two = start(1), start(2)
    wait_for_ring(one, two)
    ring, file = one.status()["ring"], tmp_path / "ring.key"
    for step, ids in ((keyring.add, [1, 2]), (keyring.activate, [2, 1]), (keyring.retire, [2])):
        step(file)
        for process in (one, two):
            process.signal(signal.SIGHUP)
            wait_until(lambda process=process, ids=ids: process.status().get("key_ids") == ids)
        wait_for_rotations(one, two)  # what was sealed before must have reached everyone (docs/security.md)
    for process in (one, two):
        assert process.status()["ring"] == ring
        assert process.status()["dropped"] == {}


@pytest.mark.nodes
def test_a_key_file_that_became_unfit_changes_nothing(start: Start, tmp_path: Path) -> None:
    one = start(1)
    wait_for_ring(one)
    (tmp_path / "ring.key").chmod(0o644)
    one.signal(signal.SIGHUP)
    wait_until(lambda: one.lines("key file not reloaded"))
    assert "ring.key" in one.lines("key file not reloaded")[0]["reason"]
    assert one.status()["key_ids"] == [1]


@pytest.mark.nodes
def test_a_port_in_use(start: Start) -> None:
    one = start(1)
    wait_for_ring(one)
    two = start(2, address=one.address)
    assert two.end() == 2
    text = two.log.read_text()
    assert f"UDP port {one.port}: Address already in use" in text
    assert "ss -lunp" in text
    assert "Traceback" not in text


@pytest.mark.nodes
def test_an_address_that_is_not_there_yet(start: Start) -> None:
    """An interface may come late, and the node is started again until it is there."""
    one = start(1, address="198.51.100.7")
    assert one.end() == 3
    assert "198.51.100.7': no interface of this host has it" in one.log.read_text()
    assert "Traceback" not in one.log.read_text()


@pytest.mark.nodes
def test_damaged_stable_storage(start: Start) -> None:
    one = start(1)
    wait_for_ring(one)
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    (database,) = one.directory.glob("*.sqlite*")
    database.write_bytes(b"not a database" * 1_000)
    again = start(1)
    assert again.end() == 2
    assert f"{database} is damaged" in again.log.read_text()
    assert "Traceback" not in again.log.read_text()


@pytest.mark.nodes
def test_a_key_file_that_others_can_read(start: Start, tmp_path: Path) -> None:
    (tmp_path / "ring.key").chmod(0o604)
    one = start(1)
    assert one.end() == 2
    assert "ring.key" in one.log.read_text()
    assert "Traceback" not in one.log.read_text()


@pytest.mark.nodes
def test_a_second_one_on_the_same_directory(start: Start, tmp_path: Path) -> None:
    one = start(1)
    wait_for_ring(one)
    command = [sys.executable, "-m", "totempole", "node", "--config", str(one.file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert str(one.directory) in done.stderr
    assert "Traceback" not in done.stderr
    wait_for_ring(one)


@pytest.mark.nodes
def test_the_directory_of_another_processor(start: Start) -> None:
    one = start(1)
    wait_for_ring(one)
    one.signal(signal.SIGTERM)
    assert one.end() == 0
    other = start(1, processor=7)
    assert other.end() == 2
    assert "belongs to processor = 1, and this node has processor = 7" in other.log.read_text()


@pytest.mark.nodes
def test_the_number_of_another(start: Start) -> None:
    """It stops, but not for good: what it heard may have been a recording."""
    one, two = start(1), start(2)
    wait_for_ring(one, two)
    double = start(3, processor=1)
    assert double.end() == 3
    assert "give each node a number of its own" in double.lines("stopped")[0]["reason"]
    assert "Traceback" not in double.log.read_text()


@pytest.mark.nodes
def test_a_disk_that_is_full(start: Start) -> None:
    """A limit on the size of files stands in for a full disk: the log of writes can grow no more."""
    one = start(1)
    wait_for_ring(one)
    size = (one.directory / "storage.sqlite-wal").stat().st_size
    assert size > 3 * one.log.stat().st_size, "the node's own log is to have room"
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (size, size))
    two = start(2)
    assert one.end() == 3
    assert str(one.directory) in one.lines("stopped")[0]["reason"]
    wait_for_ring(two)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from totempole import NetworkConfig, Node, NodeConfig, SecurityConfig

async def main():
    config = NodeConfig(
        processor=1, directory=Path(sys.argv[1]), security=SecurityConfig(unsealed=True),
        network=NetworkConfig(address=sys.argv[2], port=int(sys.argv[3])),
    )
    node = Node(config, placement="process")
    async with node:
        print(node._embedding.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.nodes
def test_a_nodes_process_leaves_when_its_program_is_killed(tmp_path: Path) -> None:
    with a_place() as place:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "n"), place.address(1), str(place.port)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as program:
            assert program.stdout is not None
            pid = int(program.stdout.readline())
            program.kill()
        wait_until(lambda: not alive(pid), "the node runs on without its program")
        Storage.open(tmp_path / "n", 1, 1).close()


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
