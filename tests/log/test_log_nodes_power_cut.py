"""Three real nodes whose power fails at the same instant, again and again, while programs append.

Everything that no sync has covered is taken back from each node's log (powercut.py). Every record that a
program was told to be green is on two of three disks then. None is lost, none is there twice, and all logs
are equal. Of nodes that do not sync the records are named that are lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from powercut import PowerCut, build, compiler

import totempole
from daemons import Cluster, Daemon, cluster, wait_until
from totempole.client.endpoint import Reconnect
from totempole.corel.run import RunKind, head_of
from totempole.errors import StorageError
from totempole.log.reader import LogReader, records_in
from totempole.runtime.status import StatusError, read_status

LOG = "[log]\nenabled = true\nreplicas = [1, 2, 3]\nsegment_bytes = 65536\n"
BRISK = "token_loss_us = 300000\ntoken_retransmission_us = 50000\nconsensus_us = 50000\n"
QUICK = Reconnect(first_s=0.05, most_s=0.2)
LIMIT_S = 60.0
PROGRAMS = 6

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(compiler() is None, reason="no C compiler: scripts/system-packages test"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("powercut"))


class PoweredNodes:
    """Nodes whose logs forget what was not synced when the power fails."""

    def __init__(self, them: Cluster, library: Path, seed: int) -> None:
        self.them = them
        self.taken_back = 0
        self.random = Random(seed)
        self._cuts = {
            number: PowerCut(
                daemon.directory / "log",
                daemon.directory.parent / f"journal{number}",
                Random(seed * 10 + number),
            )
            for number, daemon in them.daemons.items()
        }
        self._library = library

    def prepare(self) -> None:
        for number, daemon in self.them.daemons.items():
            cut = self._cuts[number]
            cut.root.mkdir(parents=True, exist_ok=True)
            daemon.environment = {**os.environ, "LD_PRELOAD": str(self._library), **cut.environment(0)}

    def fail(self) -> None:
        for daemon in self.them.daemons.values():
            assert daemon.process is not None, "it runs"
            daemon.process.send_signal(signal.SIGKILL)
        for number, daemon in self.them.daemons.items():
            daemon.end(signal.SIGKILL)
            self.taken_back += self._cuts[number].take_back()

    def start(self) -> None:
        self.prepare()
        for daemon in self.them.daemons.values():
            daemon.start()


@contextmanager
def powered(directory: Path, library: Path, seed: int, log: str = LOG) -> Iterator[PoweredNodes]:
    with cluster(3, directory, BRISK + log, start=False) as them:
        nodes = PoweredNodes(them, library, seed)
        nodes.start()
        wait_until(
            lambda: all(is_primary(daemon) for daemon in them.daemons.values()),
            lambda: "\n".join(daemon.log() for daemon in them.daemons.values()),
        )
        yield nodes


def is_primary(daemon: Daemon) -> bool:
    try:
        return bool(read_status(daemon.directory).get("log", {}).get("standing") == "primary")
    except StatusError:
        return False


class Programs:
    """Each appends one record after the other, with keys, through whatever happens to its daemon."""

    def __init__(self, nodes: PoweredNodes, limit_s: float) -> None:
        self.green: dict[str, int] = {}
        self.lost: list[str] = []
        """Records that were green, and that a majority's disks did not have after a power cut."""
        self.nodes = nodes
        self._limit_s = limit_s
        self._is_over = False

    async def append(self, number: int, name: str) -> None:
        socket = self.nodes.them[number].socket
        async with totempole.connect(socket, reconnect=QUICK) as session, session.log("a") as log:
            count = 0
            while not self._is_over:
                count += 1
                key = f"{name}-{count}"
                self.green[key] = await log.append(key.encode() * 20, key=key, timeout=self._limit_s)

    async def run(self, cuts: int) -> None:
        async with asyncio.TaskGroup() as group:
            for each in range(PROGRAMS):
                group.create_task(self.append(1 + each % 3, f"program{each}"))
            for _ in range(cuts):
                await self.cut()
                self.nodes.start()
            await self._more_green(20)
            self._is_over = True

    async def run_until_lost(self, cuts: int) -> None:
        """The nodes are not started after a loss: they need not find together again."""
        appending = asyncio.gather(
            *[self.append(1 + each % 3, f"program{each}") for each in range(PROGRAMS)], return_exceptions=True
        )
        for _ in range(cuts):
            await self.cut()
            if self.lost:
                break
            self.nodes.start()
        appending.cancel()
        with suppress(asyncio.CancelledError):
            await appending

    async def cut(self) -> None:
        await self._more_green(20)
        await asyncio.sleep(self.nodes.random.uniform(0, 0.05))
        told = dict(self.green)
        await asyncio.to_thread(self.nodes.fail)
        self.lost += lost_records(told, [keys_on_disk(daemon) for daemon in self.nodes.them.daemons.values()])

    async def _more_green(self, count: int) -> None:
        wanted = len(self.green) + count
        while len(self.green) < wanted:
            await asyncio.sleep(0.01)


def records_of(daemon: Daemon) -> list[tuple[int, str]]:
    return [(record.position, record.key) for record in LogReader(daemon.directory / "log").records()]


def keys_on_disk(daemon: Daemon) -> dict[str, int | None]:
    """Of all records in a log, without its node, with the positions of those that are green there."""
    found: dict[str, int | None] = {}
    try:
        with LogReader(daemon.directory / "log").at_position(0) as cursor:
            for ordered in cursor.runs():
                found.update((record.key, record.position) for record in records_in(ordered))
            for run in (*cursor.zones.yellow, *cursor.zones.red):
                if run.kind is RunKind.RECORDS:
                    found.update((key, None) for key in head_of(run).keys if key not in found)
    except StorageError:
        pass  # nothing behind this place can be read
    return found


def lost_records(told: dict[str, int], disks: list[dict[str, int | None]]) -> list[str]:
    """The line that says what is green may be missing, so a record without a position counts as well."""
    lost = []
    for key, position in told.items():
        there = sum(key in disk and disk[key] in (None, position) for disk in disks)
        if 2 * there <= len(disks):
            lost.append(f"{key} was told at {position}, and is on {there} of {len(disks)} disks")
    return lost


def run_cuts(nodes: PoweredNodes, cuts: int, limit_s: float = LIMIT_S) -> list[str]:
    """What is wrong after so many power cuts."""
    programs = Programs(nodes, limit_s)
    asyncio.run(asyncio.wait_for(programs.run(cuts), limit_s * (cuts + 1)))
    found: list[list[tuple[int, str]]] = []

    def same() -> bool:
        found[:] = [records_of(daemon) for daemon in nodes.them.daemons.values()]
        # The green line is written some milliseconds after programs are told.
        return found.count(found[0]) == len(found) and len(found[0]) >= len(programs.green)

    wait_until(
        same,
        lambda: f"{len(programs.green)} records are green; logs have {[len(records) for records in found]}",
    )
    records = found[0]
    wrong = list(programs.lost)
    positions = {key: position for position, key in records}
    wrong += [
        f"{key} was told at {told}" for key, told in programs.green.items() if positions.get(key) != told
    ]
    if len(positions) < len(records):
        wrong.append("a key is there twice")
    if [position for position, _ in records] != list(range(len(records))):
        wrong.append("positions have gaps")
    return wrong


def test_no_green_record_is_lost_when_the_power_of_all_nodes_fails(library: Path, tmp_path: Path) -> None:
    with powered(tmp_path, library, seed=1) as nodes:
        assert not run_cuts(nodes, cuts=3)
        assert nodes.taken_back


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_hundred_power_cuts_of_all_nodes(library: Path, tmp_path: Path, seed: int) -> None:
    with powered(tmp_path, library, seed) as nodes:
        assert not run_cuts(nodes, cuts=25)


@pytest.mark.long
def test_of_nodes_that_do_not_sync_the_lost_records_are_named(library: Path, tmp_path: Path) -> None:
    with powered(tmp_path, library, seed=7, log=LOG + "sync = false\n") as nodes:
        programs = Programs(nodes, LIMIT_S)
        asyncio.run(asyncio.wait_for(programs.run_until_lost(cuts=5), LIMIT_S * 6))
        assert programs.lost
        assert all(" was told at " in words for words in programs.lost)
