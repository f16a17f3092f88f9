"""The durable log in real nodes: three processes on loopback, their disks, and programs that append."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import totempole
from daemons import PATIENT, Cluster, Daemon, cluster, wait_until
from totempole.client.endpoint import Reconnect
from totempole.errors import SessionError
from totempole.log.reader import LogReader
from totempole.runtime.replaying import replay
from totempole.runtime.status import StatusError, read_status

pytestmark = pytest.mark.nodes

LOG = "[log]\nenabled = true\nreplicas = [1, 2, 3]\nsegment_bytes = 65536\n"
BRISK = "token_loss_us = 300000\ntoken_retransmission_us = 50000\nconsensus_us = 50000\n"
"""For nodes that are killed: the others notice soon."""
QUICK = Reconnect(first_s=0.05, most_s=0.2)
LIMIT_S = 60.0
FENCE = totempole.Fence("import", number=1, low=0, high=0)

needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")


def log_of(daemon: Daemon) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_status(daemon.directory).get("log", {})
        return found
    except StatusError:
        return {}


def wait_for_primary(them: Cluster, *numbers: int) -> None:
    wait_until(
        lambda: all(
            log_of(them[number]).get("standing") == "primary"
            and log_of(them[number])["members"] == [*numbers]
            for number in numbers
        ),
        lambda: "\n".join(them[number].log() for number in numbers),
    )


@contextmanager
def three(directory: Path, ring: str = PATIENT, log: str = LOG) -> Iterator[Cluster]:
    with cluster(3, directory, ring + log) as them:
        wait_for_primary(them, 1, 2, 3)
        yield them


def append_with(daemon: Daemon, use: Callable[[totempole.Log], Awaitable[None]]) -> None:
    async def run() -> None:
        async with totempole.connect(daemon.socket, reconnect=QUICK) as session, session.log("a") as log:
            await use(log)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def records_of(daemon: Daemon) -> list[tuple[int, str, bytes]]:
    reader = LogReader(daemon.directory / "log")
    return [(record.position, record.key, bytes(record.payload)) for record in reader.records()]


def all_records(them: Cluster, count: int = 0) -> list[tuple[int, str, bytes]]:
    """Of all logs, once they have the same, and `count` at least: the green line is written some milliseconds
    after programs are told."""
    found: list[list[tuple[int, str, bytes]]] = []

    def same() -> bool:
        found[:] = [records_of(daemon) for daemon in them.daemons.values()]
        return found.count(found[0]) == len(found) and len(found[0]) >= count

    wait_until(same, lambda: f"{count} records are green; logs have {[len(records) for records in found]}")
    return found[0]


def test_records_keys_fences_and_receipts_outlive_a_restart_of_all(tmp_path: Path) -> None:
    receipts: list[str] = []
    kept_out: list[str] = []

    async def before(log: totempole.Log) -> None:
        assert await log.append(b"buy 10", key="order-4711") == 0
        assert await log.append(b"buy 10", key="order-4711") == 0
        receipts.append(str(await log.append(b"sell 5", until="red")))
        assert await log.append_many([b"x"] * 2_000) == list(range(2, 2_002))
        assert await log.append(b"step 1", fence=FENCE) == 2_002
        with pytest.raises(totempole.FencedError):
            await log.append(b"step 1 again", fence=FENCE)

    async def after(log: totempole.Log) -> None:
        for ask in (log.append(b"late", fence=FENCE), log.receipt(kept_out[0]).position(timeout=10)):
            with pytest.raises(totempole.FencedError) as caught:
                await ask
            assert (caught.value.mark, caught.value.position) == (1, 2_002)
        assert await log.append(b"buy 10", key="order-4711") == 0
        assert await log.receipt(receipts[0]).position(timeout=10) == 1
        assert await log.append(b"next", fence=totempole.Fence("import", 2, 1, 1)) == 2_003

    with three(tmp_path) as them:
        append_with(them[1], before)
        for daemon in them.daemons.values():
            daemon.end(signal.SIGTERM)
        runs = LogReader(them[1].directory / "log").runs()
        kept_out = [f"{ordered.run.id}.0@0" for ordered in runs if ordered.fenced is not None]
        for daemon in them.daemons.values():
            daemon.start()
        wait_for_primary(them, 1, 2, 3)
        append_with(them[2], after)
        assert [payload for _, _, payload in all_records(them)][:2] == [b"buy 10", b"sell 5"]
        (page,) = {tuple(log_of(daemon)["missing"]) for daemon in them.daemons.values()}
        assert page == ()


class Load:
    """Programs that append records with keys, one after the other, whatever happens to their daemons."""

    def __init__(self, them: Cluster) -> None:
        self.green: dict[str, int] = {}
        self._them = them
        self._is_over = False

    async def append(self, number: int, name: str) -> None:
        socket = self._them[number].socket
        async with totempole.connect(socket, reconnect=QUICK) as session, session.log("a") as log:
            count = 0
            while not self._is_over:
                count += 1
                key = f"{name}-{count}"
                self.green[key] = await log.append(key.encode(), key=key, timeout=LIMIT_S)

    async def run(self, disturb: Callable[[], Awaitable[None]]) -> None:
        tasks = [
            asyncio.create_task(self.append(number, f"{number}{letter}"))
            for number in self._them.daemons
            for letter in "abc"
        ]
        await disturb()
        count = len(self.green)
        while len(self.green) < count + 50:  # it goes on after the last disturbance
            await asyncio.sleep(0.05)
        self._is_over = True
        await asyncio.gather(*tasks)


def test_no_green_record_is_lost_or_doubled_when_nodes_are_killed(tmp_path: Path) -> None:
    rng = random.Random(7)

    async def kill(*daemons: Daemon) -> None:
        await asyncio.sleep(rng.uniform(0.2, 0.7))
        for daemon in daemons:
            await asyncio.to_thread(daemon.end, signal.SIGKILL)
        await asyncio.sleep(rng.uniform(0, 0.5))
        for daemon in daemons:
            daemon.start()

    with three(tmp_path, BRISK) as them:
        load = Load(them)

        async def disturb() -> None:
            for number in (1, 3, 2):
                await kill(them[number])
            await kill(*them.daemons.values())

        asyncio.run(asyncio.wait_for(load.run(disturb), 2 * LIMIT_S))
        records = all_records(them, len(load.green))
        assert [position for position, _, _ in records] == list(range(len(records)))
        assert {key: position for position, key, _ in records} == load.green
        assert len({key for _, key, _ in records}) == len(records)
        assert not [
            line for daemon in them.daemons.values() for line in daemon.log().splitlines() if "alarm" in line
        ]


def test_a_minority_takes_records_until_red_and_orders_them_later(tmp_path: Path) -> None:
    receipts: list[str] = []

    async def alone(log: totempole.Log) -> None:
        receipts.append(str(await log.append(b"red", until="red")))
        with pytest.raises(totempole.Unknown) as caught:
            await log.append(b"green", timeout=0.3)
        assert caught.value.receipt is not None
        receipts.append(str(caught.value.receipt))
        with pytest.raises(SessionError, match=r"no majority .* red_bytes_max"):
            await log.append_many([bytes(1_000)] * 100, until="red")

    async def together(log: totempole.Log) -> None:
        first, second = [await log.receipt(text).position(timeout=LIMIT_S) for text in receipts]
        assert 0 <= first < second

    with three(tmp_path, BRISK, LOG + "red_bytes_max = 65536\n") as them:
        for number in (2, 3):
            them[number].end(signal.SIGKILL)
        wait_until(lambda: log_of(them[1]).get("standing") == "minority", them[1].log)
        assert log_of(them[1])["missing"] == [2, 3]
        append_with(them[1], alone)
        them[3].start()
        wait_for_primary(them, 1, 3)
        append_with(them[1], together)


def test_a_log_that_cannot_be_opened_does_not_stop_its_node(tmp_path: Path) -> None:
    (tmp_path / "node3").mkdir()
    (tmp_path / "node3" / "log").write_text("in the way")
    with cluster(3, tmp_path, PATIENT + LOG) as them:
        wait_until(lambda: log_of(them[3]).get("failure"), them[3].log)
        assert log_of(them[3])["standing"] == "closed"
        assert "the log cannot be opened" in them[3].log()

        async def refused(log: totempole.Log) -> None:
            with pytest.raises(SessionError, match="no log open"):
                await log.append(b"a", timeout=5)

        append_with(them[3], refused)
        (tmp_path / "node3" / "log").unlink()
        wait_for_primary(them, 1, 2, 3)  # all must be there for the log to be founded
        assert "the log is open again" in them[3].log()


@contextmanager
def tmpfs(directory: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small file system; gives a function that mounts it with other options."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", directory], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


@needs_mount
def test_a_full_disk_and_a_read_only_one(tmp_path: Path) -> None:
    """The replica steps aside, its node and the others go on, and it comes back when the cause is gone."""

    async def fill(log: totempole.Log) -> None:
        for _ in range(40):
            await log.append_many([bytes(1_000)] * 50, timeout=LIMIT_S)

    async def one(log: totempole.Log) -> None:
        await log.append(b"one", timeout=LIMIT_S)

    with tmpfs(tmp_path / "node3" / "log", "1m") as remount, three(tmp_path) as them:
        append_with(them[1], fill)
        wait_until(lambda: "the disk is full" in log_of(them[3]).get("failure", ""), them[3].log)
        wait_for_primary(them, 1, 2)
        assert them[3].members() == [1, 2, 3]
        assert log_of(them[1])["missing"] == [3]
        remount("size=64m")
        wait_for_primary(them, 1, 2, 3)
        all_records(them)
        them[3].end(signal.SIGTERM)
        remount("ro")
        them[3].start()
        wait_until(lambda: log_of(them[3]).get("failure"), them[3].log)
        wait_until(lambda: them[3].members() == [1, 2, 3], them[3].log)
        append_with(them[1], one)
        remount("rw")
        wait_for_primary(them, 1, 2, 3)
        all_records(them)


class Rival:
    """Appends one run for each number, with the same fences as its rivals, whatever happens to its daemon."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.won: dict[int, list[int]] = {}
        self.kept_out: set[int] = set()
        """Numbers whose records it was told are not in the log."""
        self.marks: list[tuple[int, int, int]] = []
        """What kept it out: (its number, the mark, the position)."""
        self.is_over = False

    def records(self, number: int) -> list[bytes]:
        return [f"{number} {self.name} {index}".encode() for index in range(3)]

    async def run(self, daemon: Daemon) -> None:
        async with totempole.connect(daemon.socket, reconnect=QUICK) as session, session.log("a") as log:
            number = 1
            while not self.is_over:
                fence = totempole.Fence("race", number, 0, number - 1)
                try:
                    self.won[number] = await log.append_many(
                        self.records(number), fence=fence, timeout=LIMIT_S
                    )
                except totempole.FencedError as error:
                    self.marks.append((number, error.mark, error.position))
                    if not error.resent:
                        self.kept_out.add(number)
                    number = error.mark
                number += 1


def test_of_programs_that_race_with_one_fence_one_wins_though_daemons_are_killed(tmp_path: Path) -> None:
    rivals = [Rival(name) for name in "xyz"]

    async def run(them: Cluster) -> None:
        tasks = [
            asyncio.create_task(rival.run(them[number]))
            for number, rival in zip((1, 1, 2), rivals, strict=True)
        ]
        for number in (1, 2, 1):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(them[number].end, signal.SIGKILL)
            them[number].start()
        won = [len(rival.won) for rival in rivals]
        while not all(len(rival.won) > count for rival, count in zip(rivals, won, strict=True)):
            await asyncio.sleep(0.05)  # all are connected again
        for rival in rivals:
            rival.is_over = True
        await asyncio.gather(*tasks)

    with three(tmp_path, BRISK) as them:
        asyncio.run(asyncio.wait_for(run(them), 2 * LIMIT_S))
        told = [position for rival in rivals for positions in rival.won.values() for position in positions]
        records = all_records(them, max(told) + 1)
    found: dict[int, dict[int, bytes]] = {}
    for position, _, payload in records:
        found.setdefault(int(payload.split()[0]), {})[position] = payload
    assert list(found) == sorted(found), "numbers ascend"
    for number, run_ in found.items():
        (winner,) = [rival for rival in rivals if [*run_.values()] == rival.records(number)]
        assert [*run_] == list(range(min(run_), min(run_) + 3))
        assert number not in winner.kept_out
        assert winner.won.get(number, [*run_]) == [*run_]
        assert not [rival.name for rival in rivals if rival is not winner and number in rival.won]
    assert {number for rival in rivals for number in rival.won} <= set(found)
    assert all(rival.kept_out for rival in rivals), "they did race"
    for number, mark, position in [mark for rival in rivals for mark in rival.marks]:
        assert mark >= number
        assert position == min(found[mark])


def test_a_program_goes_to_another_replica_when_its_daemon_is_gone(tmp_path: Path) -> None:
    with three(tmp_path, BRISK) as them:
        sockets = [them[number].socket for number in (1, 2, 3)]

        async def run() -> None:
            async with totempole.connect(sockets, reconnect=QUICK) as session, session.log("a") as log:
                assert await log.append(b"a", key="k") == 0
                append = asyncio.create_task(log.append(b"b", key="l"))
                await asyncio.to_thread(them[1].end, signal.SIGKILL)
                assert await append == 1
                assert await log.append(b"a", key="k") == 0

        asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_a_node_with_a_log_can_be_replayed(tmp_path: Path) -> None:
    settings = "[trace]\ninputs = true\n"

    async def use(log: totempole.Log) -> None:
        await log.append_many([b"a", b"b"], ["k", "k"])
        await (await log.append(b"c", until="red")).position()
        await log.hold("reader", 1)
        fence = totempole.Fence("q", 1, 0, 0)
        assert await log.append(b"d", fence=fence) == 2
        with pytest.raises(totempole.FencedError):
            await log.append(b"d", fence=fence)

    with three(tmp_path, PATIENT, LOG + settings) as them:
        append_with(them[1], use)
        started = time.monotonic()
        for daemon in them.daemons.values():
            daemon.end(signal.SIGTERM)
        assert time.monotonic() - started < LIMIT_S / 2
        for number in (1, 2):
            (recording,) = (tmp_path / f"node{number}" / "trace").glob("inputs-*.totem")
            report = replay(recording)
            assert report.identical, report.difference
            assert report.inputs["OpenLog"] == 1
            assert report.inputs["Appended"] > 3
