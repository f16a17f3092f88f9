"""Snapshots with a real node: taken while commands go on, the log trimmed behind them, the object whole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import totempole
from daemons import LIMIT_S, PATIENT, Cluster, cluster, wait_until
from ledgers import Bank
from totempole import blocking
from totempole.client.endpoint import Reconnect
from totempole.client.log_endpoints import log_endpoints
from totempole.log.snapshots import heads_in, snapshots_of
from totempole.objects import records
from totempole.objects.commands import ObjectType
from totempole.objects.holds import ObjectTrimmedError, hold_name
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Calls
from totempole.objects.snapshotting import ObjectSnapshots
from totempole.runtime.status import StatusError, read_status

pytestmark = pytest.mark.nodes

LOG = "[log]\nenabled = true\nreplicas = [1]\nsegment_bytes = 65536\nretention_bytes = 65536\n"
PADDING = "x" * 1_000
CALLS = 10
"""At a time."""


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(1, tmp_path_factory.mktemp("ring"), PATIENT + LOG) as ring:
        wait_until(lambda: _standing(ring) == "primary", ring[1].log)
        yield ring


def _standing(ring: Cluster) -> str:
    try:
        return str(read_status(ring[1].directory).get("log", {}).get("standing", ""))
    except StatusError:
        return ""


class Host:
    """The smallest host that there is: one program, one call at a time, for tests of snapshots."""

    def __init__(self, session: Any, name: str, socket: Path, **options: Any) -> None:
        self.name = name
        self.client = f"{os.getpid()}-{time.monotonic_ns()}"
        self.number = 0
        self._type = ObjectType.of(Bank)
        self.log = session.log(f"objects/{name}")
        self.snapshots = ObjectSnapshots(
            self._type, name, log_endpoints(socket), reconnect=Reconnect(), least_bytes=60_000, **options
        )
        begun = self.snapshots.open_blocking()
        self.machine: ObjectMachine[Bank] = begun.machine
        self.start = begun.start
        for record in self.log.read(begun.start):
            self.apply(record.payload, record.position, record.time_us)
        opening = self.machine.opening()
        if opening is not None:
            self.append(opening)

    def append(self, *payloads: bytes) -> None:
        positions = self.log._append(payloads, (), "green", None)
        for record in self.log.read(positions[0], positions[-1] + 1):
            self.apply(record.payload, record.position, record.time_us)

    def apply(self, payload: bytes, position: int, time_us: int) -> None:
        self.machine.apply(payload, position, time_us)
        self.snapshots.applied(self.machine, len(payload))
        self.keep_holds()

    def keep_holds(self) -> None:
        hold = self.snapshots.next_hold()
        if hold is not None:
            self.log.hold(*hold, timeout=10)
            self.snapshots.hold_answered(True)

    def put(self, account: str, *amounts: int) -> None:
        calls = []
        for amount in amounts:
            self.number += 1
            call = self._type.encode_call("put", (account + PADDING, amount), number=self.number)
            calls.append(records.encode(Calls(self.client, 0, self.number - 1, 1, (call,))))
        self.append(*calls)

    def total(self) -> int:
        return sum(self.machine.state.accounts.values())

    def wait_for_snapshot(self, count: int) -> None:
        taker = self.snapshots.taker
        assert taker is not None
        end_s = time.monotonic() + LIMIT_S
        while taker.taken < count:
            assert time.monotonic() < end_s
            time.sleep(0.01)
            if taker.is_busy:
                self.snapshots.settle()
                self.keep_holds()
            else:
                self.put("a", 0)  # the next one begins with a command


def _first(ring: Cluster) -> int:
    return blocking.log_reader(path=ring[1].socket).status().first


def _holds(ring: Cluster) -> dict[str, int]:
    return blocking.log_reader(path=ring[1].socket).status().holds


def test_a_trimmed_log_and_its_snapshots_are_the_whole_object(ring: Cluster) -> None:
    with blocking.connect(ring[1].socket) as session:
        host = Host(session, "bank", ring[1].socket)
        assert host.start == 0
        for number in range(1, 301, 10):
            host.put(f"account-{number % 7}", *range(number, number + 10))
        host.wait_for_snapshot(2)
        total, digest = host.total(), host.machine.digest()
        host.snapshots.close()
        heads, problems = heads_in(snapshots_of(ring[1].directory / "log"))
        assert not problems
        assert len(heads) == 2
        wait_until(lambda: _holds(ring)[hold_name("bank", 1)] == heads[1].position)
        for _ in range(30):
            session.log("noise").append(bytes(10_000))  # segments end, and old ones are trimmed
        wait_until(lambda: _first(ring) > 0)
        assert _first(ring) <= heads[1].position, "never above the older snapshot"
        again = Host(session, "bank", ring[1].socket)
        assert again.start == heads[0].position
        assert again.total() == total == sum(range(1, 301))
        assert again.machine.digest() == digest
        again.snapshots.close()
        asyncio.run(_open_with_asyncio(ring, total))


async def _open_with_asyncio(ring: Cluster, total: int) -> None:
    async with totempole.connect(ring[1].socket) as session, session.log("objects/bank") as log:
        snapshots = ObjectSnapshots(ObjectType.of(Bank), "bank", log_endpoints(ring[1].socket))
        begun = await snapshots.open()
        async for record in log.read(begun.start):
            begun.machine.apply(record.payload, record.position, record.time_us)
        assert sum(begun.machine.state.accounts.values()) == total
        snapshots.close()


def test_a_trimmed_object_whose_snapshots_are_lost_is_an_error(ring: Cluster) -> None:
    with blocking.connect(ring[1].socket) as session:
        host = Host(session, "lost", ring[1].socket)
        for _ in range(20):
            host.put("a", *range(10))
        host.wait_for_snapshot(2)
        host.snapshots.close()
        for _ in range(30):
            session.log("noise").append(bytes(10_000))
        directory = snapshots_of(ring[1].directory / "log")
        for head in heads_in(directory, "lost")[0]:
            next(directory.glob(f"*-{head.position:020d}.snapshot")).unlink()
        with pytest.raises(ObjectTrimmedError, match="node 1"):
            Host(session, "lost", ring[1].socket)
        Host(session, "new", ring[1].socket).snapshots.close()


HOSTING = """
import sys
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from test_snapshots_of_nodes import CALLS, Host
from totempole import blocking
with blocking.connect(sys.argv[1]) as session:
    host = Host(session, sys.argv[2], Path(sys.argv[1]), small_bytes=0)
    print("open", host.total(), flush=True)
    while True:
        host.put("a", *[1] * CALLS)
        print("put", host.total(), flush=True)
"""


def test_programs_that_are_killed_at_any_moment_lose_nothing(ring: Cluster) -> None:
    """A new program takes over each time, from a snapshot and the log; each is killed with -9 after some
    calls, while it forks, encodes, puts or moves its hold."""
    told = 0
    for life in range(4):
        program = subprocess.Popen(
            [sys.executable, "-c", HOSTING, str(ring[1].socket), "killed", *sys.path],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        word, total = program.stdout.readline().split()
        assert word == "open"
        assert int(total) in range(told, told + CALLS + 1), "all that was told, and what was under way"
        for _ in range(7 + 2 * life):
            told = int(program.stdout.readline().split()[1])
        program.send_signal(signal.SIGKILL)
        rest = program.stdout.read()
        told = max([told, *(int(line.split()[1]) for line in rest.splitlines() if len(line.split()) == 2)])
        program.wait()
        program.stdout.close()
    heads, problems = heads_in(snapshots_of(ring[1].directory / "log"), "killed")
    assert not problems
    assert len(heads) == 2
