"""Feeds of real nodes: from disk and from memory, before appends return, through the deaths of daemons."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from loopback import a_place
from members import node_config

import totempole
from certificates import Authority
from daemons import PATIENT, Cluster, Daemon, cluster, wait_until
from totempole import LogBatch, Notice, blocking
from totempole.client import feeding
from totempole.client.endpoint import Reconnect
from totempole.errors import LogTrimmedError, SessionError
from totempole.log.segments import segment_numbers
from totempole.runtime.log_config import LogSection
from totempole.runtime.replaying import replay
from totempole.runtime.status import StatusError, read_status

pytestmark = pytest.mark.nodes

LOG = "[log]\nenabled = true\nreplicas = {}\nsegment_bytes = 65536\n"
BRISK = "token_loss_us = 300000\ntoken_retransmission_us = 50000\nconsensus_us = 50000\n"
QUICK = Reconnect(first_s=0.05, most_s=0.2)
LIMIT_S = 60.0


@contextmanager
def nodes(count: int, directory: Path, ring: str = PATIENT, more: str = "") -> Iterator[Cluster]:
    numbers = list(range(1, count + 1))
    with cluster(count, directory, ring + LOG.format(numbers) + more) as them:
        wait_until(lambda: all(is_primary(them[number]) for number in numbers), them[1].log)
        yield them


def is_primary(daemon: Daemon) -> bool:
    try:
        return bool(read_status(daemon.directory)["log"]["standing"] == "primary")
    except (StatusError, KeyError):
        return False


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests that do it no harm."""
    with nodes(1, tmp_path_factory.mktemp("feed")) as them:
        yield them[1]


def within(limit_s: float, run: Callable[[], Awaitable[None]]) -> None:
    async def do() -> None:
        await asyncio.wait_for(run(), limit_s)

    asyncio.run(do())


async def become_live(feed: totempole.Feed) -> list[Any]:
    """What it gave on the way."""
    given: list[Any] = []
    while not feed.is_live:
        given += feed.take()
        await asyncio.sleep(0.005)
    return given + feed.take()


async def take_all(feed: totempole.Feed) -> None:
    async for _ in feed:
        pass


def payloads_of(items: list[Any]) -> list[bytes]:
    return [payload for item in items if isinstance(item, LogBatch) for payload in item.payloads]


def positions_of(items: list[Any]) -> list[int]:
    return [position for item in items if isinstance(item, LogBatch) for position in item.positions]


def test_a_feed_has_what_was_and_what_comes(node: Daemon) -> None:
    async def run() -> None:
        async with totempole.connect(node.socket) as session, session.log("was") as log:
            async with session.log("other") as other:
                await log.append_many([b"%d" % number for number in range(2_000)])
                await other.append(b"not mine")
            async with session.feed("was") as feed:
                given = await become_live(feed)
                assert isinstance(given[0], Notice)
                assert payloads_of(given) == [b"%d" % number for number in range(2_000)]
                position = await log.append(b"fresh", key="k")
                (batch,) = feed.take()
                assert isinstance(batch, LogBatch)
                assert (list(batch.positions), batch.keys, batch.log) == ([position], ("k",), "was")
                assert feed.position == position + 1
                place = feed.place
            async with session.feed("was", position, place=place - 1) as feed:
                item = await anext(feed)
                assert isinstance(item, LogBatch)
                assert list(item.payloads) == [b"fresh"]
            with pytest.raises(StopAsyncIteration):
                await anext(feed)

    within(LIMIT_S, run)


def test_a_run_is_given_before_its_append_returns_and_before_a_barrier_behind_it(node: Daemon) -> None:
    """To a program that waits for the feed, and to one that takes from it when the append has returned."""
    seen: list[int] = []

    async def run() -> None:
        async with (
            totempole.connect(node.socket) as session,
            session.log("order") as log,
            session.feed("order") as feed,
            session.feed("order") as taken,
        ):
            await become_live(feed)
            await become_live(taken)

            async def consume() -> None:
                async for item in feed:
                    seen.extend(positions_of([item]))

            consumer = asyncio.create_task(consume())

            async def append(number: int) -> None:
                for _ in range(40):
                    position = await log.append(b"%d" % number)
                    assert position in seen
                    mine.extend(positions_of(taken.take()))
                    assert position in mine
                    before = len(seen)
                    place = await session.barrier(timeout=LIMIT_S)
                    assert feed.place >= place
                    assert max(seen[:before]) >= position

            mine: list[int] = []
            await asyncio.gather(*(append(number) for number in range(6)))
            consumer.cancel()
            assert sorted(seen) == seen
            assert len(set(seen)) == 240

    within(LIMIT_S, run)


def test_barriers_show_what_others_have_appended(node: Daemon) -> None:
    """A program that has taken all before the place of a barrier reads nothing stale."""

    async def run() -> None:
        async with (
            totempole.connect(node.socket) as author,
            totempole.connect(node.socket) as reader,
            author.log("read") as log,
            reader.feed("read") as feed,
        ):
            given = await become_live(feed)
            for number in range(50):
                await log.append(b"%d" % number)
                given += await feed.reach(await reader.barrier(timeout=LIMIT_S))
                assert payloads_of(given)[-1] == b"%d" % number

    within(LIMIT_S, run)


def test_without_asyncio(node: Daemon) -> None:
    with blocking.connect(node.socket) as session, session.log("plain") as log:
        log.append_many([b"%d" % number for number in range(1_000)])
        with session.feed("plain") as feed:
            given: list[Any] = []
            while len(payloads_of(given)) < 1_000 or not feed.is_live:
                try:
                    given += [feed.next(timeout=0.02)]
                except TimeoutError:
                    continue
            for number in range(1_000, 1_050):
                position = log.append(b"%d" % number)
                items = feed.take()
                assert [list(item.positions) for item in items if isinstance(item, LogBatch)] == [[position]]
                given += items
                assert session.barrier(timeout=LIMIT_S) <= feed.place
            with blocking.connect(node.socket) as other:
                other.log("plain").append(b"1050")
                given += feed.reach(session.barrier(timeout=LIMIT_S), timeout=LIMIT_S)
                other.log("plain").append(b"1051")
                wait_until(lambda: given.extend(feed.take()) or payloads_of(given)[-1] == b"1051")
            assert payloads_of(given) == [b"%d" % number for number in range(1_052)]
            with pytest.raises(TimeoutError):
                feed.next(timeout=0)
        assert feed.next() is None


def test_a_feed_that_is_not_taken_from_holds_up_nothing(node: Daemon) -> None:
    """40 MB are appended beside it, by the same session. It is bounded, and later it gives all of them."""

    async def run() -> None:
        async with (
            totempole.connect(node.socket) as session,
            session.log("deaf") as log,
            session.feed("deaf") as feed,
        ):
            given = await become_live(feed)
            for _ in range(100):
                await log.append_many([bytes(1_000)] * 400, timeout=LIMIT_S)
            assert not feed.is_live
            assert feed._feeding._bytes < 2 * feeding.BYTES_MAX
            count = 0
            async for item in feed:
                count += len(item) if isinstance(item, LogBatch) else 0
                if count == 40_000:
                    break
            while not feed.is_live:
                await asyncio.sleep(0.01)
            assert given == [] or isinstance(given[0], Notice)
            await log.append(b"fresh")
            assert payloads_of(feed.take()) == [b"fresh"]

    within(LIMIT_S, run)


def test_a_run_of_a_mebibyte(node: Daemon) -> None:
    async def run() -> None:
        async with (
            totempole.connect(node.socket) as session,
            session.log("large") as log,
            session.feed("large") as feed,
        ):
            await become_live(feed)
            payload = bytes(range(256)) * 4_090
            await log.append(payload)
            assert payloads_of(feed.take()) == [payload]
            assert feed.is_live

    within(LIMIT_S, run)


def test_the_end_of_the_session_ends_the_feed(node: Daemon) -> None:
    async def run() -> None:
        async with totempole.connect(node.socket) as session:
            feed = session.feed("end")
            taking = asyncio.create_task(take_all(feed))
            while not feed.is_live:
                await asyncio.sleep(0.005)
        await taking
        with pytest.raises(SessionError):
            session.feed("end")
        with pytest.raises(SessionError):
            await session.barrier()

    within(LIMIT_S, run)


def test_an_embedded_node_feeds_its_program(tmp_path: Path) -> None:
    async def run() -> None:
        log_config = LogSection(enabled=True, replicas=(1,))
        config = node_config(place, 1, tmp_path, log=log_config)
        async with (
            totempole.Node(config) as session,
            session.log("mine") as log,
            session.feed("mine") as feed,
        ):
            await log.append(b"first", timeout=LIMIT_S)
            assert payloads_of(await become_live(feed)) == [b"first"]
            await log.append(b"second")
            assert payloads_of(feed.take()) == [b"second"]
            assert await session.barrier(timeout=LIMIT_S) == feed.place

    with a_place() as place:
        within(LIMIT_S, run)


def test_a_feed_goes_on_through_the_deaths_of_its_daemons(tmp_path: Path) -> None:
    """Two programs with several daemons to go to: each run once, in the same order."""
    given: dict[str, list[bytes]] = {"asyncio": [], "blocking": []}
    expected = [b"%d" % number for number in range(300)]

    def follow_blocking(them: Cluster) -> None:
        sockets = [them[number].socket for number in (2, 1, 3)]
        with blocking.connect(sockets, reconnect=QUICK) as session, session.feed("a") as feed:
            while given["blocking"][-1:] != expected[-1:]:
                given["blocking"] += payloads_of([feed.next(timeout=LIMIT_S)])

    async def append(them: Cluster) -> None:
        sockets = [them[number].socket for number in (3, 1, 2)]
        async with totempole.connect(sockets, reconnect=QUICK) as session, session.log("a") as log:
            for payload in expected:
                await log.append(payload, key=payload.decode(), timeout=LIMIT_S)
                await asyncio.sleep(0.01)

    async def follow(them: Cluster) -> None:
        sockets = [them[number].socket for number in (1, 2, 3)]
        async with totempole.connect(sockets, reconnect=QUICK) as session, session.feed("a") as feed:
            while given["asyncio"][-1:] != expected[-1:]:
                given["asyncio"] += payloads_of([await anext(feed)])

    async def disturb(them: Cluster) -> None:
        for number in (1, 2):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(them[number].end, signal.SIGKILL)
            await asyncio.sleep(0.3)
            them[number].start()
            await asyncio.to_thread(wait_until, lambda: all(map(is_primary, them.daemons.values())))

    with nodes(3, tmp_path, BRISK) as them:

        async def run() -> None:
            await asyncio.gather(
                follow(them), append(them), disturb(them), asyncio.to_thread(follow_blocking, them)
            )

        within(2 * LIMIT_S, run)
        assert given == {"asyncio": expected, "blocking": expected}


def test_a_trimmed_start_and_a_daemon_that_comes_back(tmp_path: Path) -> None:
    with nodes(1, tmp_path) as them:

        async def run() -> None:
            async with totempole.connect(them[1].socket, reconnect=QUICK) as session, session.log("a") as log:
                for _ in range(5):
                    end = (await log.append_many([bytes(1_000)] * 100))[-1] + 1
                await asyncio.to_thread(trim, end)
                feed = session.feed("a", 0)
                with pytest.raises(LogTrimmedError) as caught:
                    await anext(feed)
                with pytest.raises(LogTrimmedError):
                    await anext(feed)
                earliest = caught.value.earliest
                assert 0 < earliest <= end
                feed = session.feed("a", earliest)
                given = await become_live(feed)
                assert len(payloads_of(given)) == end - earliest
                await asyncio.to_thread(them[1].end, signal.SIGKILL)
                barrier = asyncio.create_task(session.barrier(timeout=LIMIT_S))
                them[1].start()
                given = await feed.reach(await barrier)
                await become_live(feed)
                assert payloads_of(given) == []
                await log.append(b"fresh", key="k", timeout=LIMIT_S)
                assert payloads_of(feed.take()) == [b"fresh"]

        def trim(position: int) -> None:
            wait_until(lambda: len(segment_numbers(them[1].directory / "log")) > 3)
            command = [sys.executable, "-m", "totempole", "log", "trim", str(position), "--yes"]
            subprocess.run([*command, "--config", str(them[1].file)], check=True, capture_output=True)

        within(LIMIT_S, run)


def test_programs_on_other_hosts_are_fed_and_their_node_can_be_replayed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node")
    host, reading = (f"127.0.0.1:{port}" for port in free_ports(2))
    tls = totempole.Tls(*authority.issue("program"), authority.path)
    files = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\ntls_authorities = "{authority.path}"\n'
    more = f'listen = "{reading}"\n[clients]\nlisten = "{host}"\n{files}[trace]\ninputs = true\n'

    async def run() -> None:
        async with totempole.connect(host=host, tls=tls) as session, session.log("a") as log:
            async with session.feed("a", replicas=reading) as feed:
                await become_live(feed)
                await log.append(b"c" * 100_000)
                assert payloads_of(feed.take()) == [b"c" * 100_000]
            with pytest.raises(SessionError, match="on another host"):
                await anext(session.feed("a"))

    with nodes(1, tmp_path, more=more) as them:
        with (
            blocking.connect(host=host, tls=tls) as session,
            session.feed("a", replicas=reading) as feed,
        ):
            session.log("a").append_many([b"a", b"b" * 100_000])
            given = feed.reach(session.barrier(timeout=LIMIT_S), timeout=LIMIT_S)
            assert payloads_of(given) == [b"a", b"b" * 100_000]
            while not feed.is_live:
                with suppress(TimeoutError):
                    feed.next(timeout=0.02)
            session.log("a").append(b"live" * 100_000)
            assert payloads_of(feed.take()) == [b"live" * 100_000]
        within(LIMIT_S, run)
        them[1].end(signal.SIGTERM)
        (recording,) = (them[1].directory / "trace").glob("inputs-*.totem")
        report = replay(recording)
        assert report.identical, report.difference
        assert report.inputs["TellGreen"] >= 1
        assert report.inputs["ReadBarrier"] == 1


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]
