"""Programs append to the durable log of a daemon: a ring of one, the real layers and service, a disk that is
a promise (tests/daemon/daemon_loop.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from daemon_loop import Daemon, daemon

import totempole
from totempole.client.appending import RUNS_UNDER_WAY_MAX
from totempole.corel.commands import CloseLog
from totempole.corel.config import LogConfig
from totempole.errors import SessionError

ALONE = LogConfig(replicas=(1,))
MINORITY = LogConfig(replicas=(1, 2, 3), red_bytes_max=65_536)
LIMIT_S = 30.0
MIB = 1 << 20

Test = Callable[[Daemon, totempole.Log], Awaitable[None]]


def with_log(tmp_path: Path, test: Test, config: LogConfig = ALONE) -> None:
    async def run() -> None:
        async with totempole.connect(it.path) as session, session.log("orders") as log:
            await test(it, log)

    with daemon(tmp_path, log=config) as it:
        asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def set_disk(it: Daemon, works: bool) -> None:
    def do() -> None:
        it.loop.disk_works = works

    it.loop.ask(do)


def runs_of(it: Daemon) -> int:
    assert it.loop.replica is not None
    runs: int = it.loop.replica.zones.green_runs
    return runs


def test_records_get_positions_one_after_the_other(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        assert [await log.append(b"a"), await log.append(b"b"), await log.append(b"")] == [0, 1, 2]
        assert await log.append_many([b"c", b"dd", b"e"]) == [3, 4, 5]
        assert await log.append_many([]) == []

    with_log(tmp_path, test)


def test_a_repeated_key_gives_the_position_of_the_first(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        assert await log.append(b"a", key="k") == 0
        assert await log.append(b"again", key="k") == 0
        assert await log.append_many([b"x", b"y", b"z"], ["n", "k", "m"]) == [1, 0, 2]
        assert await log.append_many([b"x", b"y"], ["m", "m"]) == [2, 2]
        assert await log.append(b"b") == 3

    with_log(tmp_path, test)


def test_keys_are_of_their_log(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        async with log._session.log("other") as other:
            assert await log.append(b"a", key="k") == 0
            assert await other.append(b"a", key="k") == 1

    with_log(tmp_path, test)


def test_what_is_appended_at_the_same_time_shares_runs(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        before = it.loop.ask(lambda: runs_of(it))
        positions = await asyncio.gather(*(log.append(b"%d" % number) for number in range(500)))
        assert positions == list(range(500))
        assert it.loop.ask(lambda: runs_of(it)) - before <= RUNS_UNDER_WAY_MAX

    with_log(tmp_path, test)


def test_a_batch_larger_than_a_run_is_cut(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        before = it.loop.ask(lambda: runs_of(it))
        assert await log.append_many([bytes(1000)] * 6_000) == list(range(6_000))
        assert it.loop.ask(lambda: runs_of(it)) - before > RUNS_UNDER_WAY_MAX

    with_log(tmp_path, test)


def test_places_of_green_runs_are_remembered_without_their_records(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        await log.append_many([bytes(1000)] * 2_000)
        replica = it.loop.replica
        assert replica is not None
        places = it.loop.ask(lambda: list(replica.requests._places.items()))
        assert len(places) >= 2
        assert len(msgspec.msgpack.encode(places)) < 100 * len(places)

    with_log(tmp_path, test)


def test_a_receipt_comes_from_the_disk_and_tells_the_position(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        first, second = await log.append_many([b"a", b"b"], until="red")
        assert await second.position() == 1
        kept = log.receipt(str(first))
        assert kept == first
        assert await kept.position() == 0

    with_log(tmp_path, test)


def test_a_deadline_hands_back_the_receipt(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        set_disk(it, False)
        with pytest.raises(totempole.Unknown, match=r"no answer within 0\.2 s") as caught:
            await log.append(b"a", timeout=0.2)
        receipt = caught.value.receipt
        assert receipt is not None
        with pytest.raises(totempole.Unknown) as again:
            await receipt.position(timeout=0.1)
        assert again.value.receipt == receipt
        with pytest.raises(totempole.Unknown):
            await log.append(b"b", until="red", timeout=0.1)
        set_disk(it, True)
        assert await receipt.position() == 0

    with_log(tmp_path, test)


def test_what_was_not_sent_at_its_deadline_is_not_appended(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        set_disk(it, False)
        under_way = []
        for number in range(RUNS_UNDER_WAY_MAX):
            under_way.append(asyncio.create_task(log.append(b"%d" % number)))
            await asyncio.sleep(0.01)
        with pytest.raises(SessionError, match="nothing was appended") as caught:
            await log.append(b"never", timeout=0.1)
        assert not isinstance(caught.value, totempole.Unknown)
        set_disk(it, True)
        assert await asyncio.gather(*under_way) == list(range(RUNS_UNDER_WAY_MAX))
        assert await log.append(b"next") == RUNS_UNDER_WAY_MAX

    with_log(tmp_path, test)


def test_two_who_wait_for_the_same_record_are_both_told(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        set_disk(it, False)
        with pytest.raises(totempole.Unknown) as caught:
            await log.append(b"a", timeout=0.1)
        receipt = caught.value.receipt
        assert receipt is not None
        waiting = [asyncio.create_task(receipt.position()) for _ in range(3)]
        await asyncio.sleep(0.05)
        set_disk(it, True)
        assert await asyncio.gather(*waiting) == [0, 0, 0]

    with_log(tmp_path, test)


def test_in_a_minority_red_works_and_green_waits(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        receipt = await log.append(b"a", until="red")
        with pytest.raises(totempole.Unknown):
            await receipt.position(timeout=0.1)
        with pytest.raises(totempole.Unknown):
            await log.append(b"b", timeout=0.1)
        green = [asyncio.create_task(log.append(b"c")) for _ in range(20)]
        await log.append(b"d", until="red")  # is not held up by what waits for a majority
        for task in green:
            task.cancel()

    with_log(tmp_path, test, MINORITY)


def test_in_a_minority_reds_are_bounded(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        for number in range(6):
            await log.append(bytes(10_000) + bytes(number), until="red")
        with pytest.raises(SessionError, match=r"no majority .* red_bytes_max") as caught:
            await log.append(bytes(10_000), until="red")
        assert not isinstance(caught.value, totempole.Unknown), "it is certain that nothing was appended"

    with_log(tmp_path, test, MINORITY)


def test_a_hold_is_in_the_order(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        await log.append_many([b"a", b"b"])
        await log.hold("spark", 1)
        assert it.loop.replica is not None
        assert it.loop.replica.zones.holds == {"spark": 1}
        await log.hold("spark", -1)
        assert it.loop.replica.zones.holds == {}

    with_log(tmp_path, test)


def test_an_unknown_record(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        with pytest.raises(totempole.Unknown, match="does not know the record"):
            await log.receipt("1.5.77.0@0").position()

    with_log(tmp_path, test)


@pytest.mark.parametrize("text", ["", "1.2.3.4", "1.2.3@4", "1.2.3.x@4", "1.2.3.4@-1", "1.2.3.4.5@6", "é"])
def test_what_is_no_receipt(tmp_path: Path, text: str) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        with pytest.raises(SessionError, match="is no receipt"):
            log.receipt(text)

    with_log(tmp_path, test)


def test_misuse_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        with pytest.raises(SessionError, match=r"a record of .* bytes: this node takes at most"):
            await log.append(bytes(2_000_000))
        with pytest.raises(SessionError, match="1 keys for 2 records"):
            await log.append_many([b"a", b"b"], ["k"])
        with pytest.raises(SessionError, match=r"key 'kkk.* is too long"):
            await log.append(b"a", key="k" * 300)
        with pytest.raises(SessionError, match="until = 'blue'"):
            await log.append(b"a", until="blue")  # type: ignore[call-overload]
        with pytest.raises(SessionError, match="log name ''"):
            log._session.log("")
        with pytest.raises(TypeError, match="is bytes"):
            await log.append("text")  # type: ignore[call-overload]
        assert await log.append(b"a") == 0

    with_log(tmp_path, test)


def test_a_node_without_a_log(tmp_path: Path) -> None:
    async def run(path: Path) -> None:
        async with totempole.connect(path) as session, session.log("orders") as log:
            with pytest.raises(SessionError, match=r"keeps no log.*\[log\] enabled = true"):
                await log.append(b"a")
            with pytest.raises(SessionError, match="keeps no log"):
                await log.hold("r", 1)

    with daemon(tmp_path) as it:
        asyncio.run(asyncio.wait_for(run(it.path), LIMIT_S))


def test_the_session_ends_while_a_record_is_under_way(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        set_disk(it, False)
        task = asyncio.create_task(log.append(b"a"))
        await asyncio.sleep(0.05)
        await log._session.close()
        with pytest.raises(totempole.Unknown) as caught:
            await task
        assert caught.value.receipt is not None

    with_log(tmp_path, test)


QUICK = totempole.Reconnect(first_s=0.01, most_s=0.05, give_up_s=LIMIT_S)


@contextmanager
def two(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    """Each with a log of its own, which real replicas would not have: so it shows where a record went."""
    places = tmp_path / "1", tmp_path / "2"
    for place in places:
        place.mkdir()
    with daemon(places[0], log=ALONE) as first, daemon(places[1], log=ALONE) as second:
        yield first, second


def test_who_appends_before_it_takes_its_events_comes_back_first(tmp_path: Path) -> None:
    """It stays away while it has many events to take, unless it waits for the daemon."""

    async def run() -> None:
        async with (
            totempole.connect(it.path, reconnect=QUICK) as slow,
            slow.join("g"),
            slow.log("a") as log,
        ):
            before = slow.process
            async with totempole.connect(it.path) as other:
                await other.multicast_many("g", [b"x" * 50_000] * 400)
                await asyncio.to_thread(it.wait_for, lambda status: "too slow" in it.reasons())
            assert await log.append(b"a", key="a") == 0
            assert slow.process != before
            async with asyncio.timeout(LIMIT_S):
                assert await log.append_many([b"b", b"c"], ["b", "c"]) == [1, 2]

    with daemon(tmp_path, log=ALONE, client_receive_bytes_max=MIB, memory_bytes_max=256 * MIB) as it:
        asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_of_several_daemons_the_first_that_answers_is_used(tmp_path: Path) -> None:
    async def run(paths: list[Path]) -> None:
        async with totempole.connect(paths) as session, session.log("a") as log:
            assert await log.append(b"a") == 0

    with daemon(tmp_path, log=ALONE) as it:
        asyncio.run(asyncio.wait_for(run([tmp_path / "nobody.sock", it.path]), LIMIT_S))
        with totempole.blocking.connect([tmp_path / "nobody.sock", it.path]) as session:
            assert session.log("a").append(b"b") == 1
        with pytest.raises(SessionError, match=r"no daemon at .*nobody"):
            asyncio.run(run([tmp_path / "nobody.sock"]))
        with pytest.raises(SessionError, match="an empty list of daemons"):
            totempole.connect([])


def test_a_session_goes_to_another_daemon_when_the_log_of_its_own_is_closed(tmp_path: Path) -> None:
    async def run(first: Daemon, second: Daemon) -> None:
        sockets = [first.path, second.path]
        async with totempole.connect(sockets, reconnect=QUICK) as session, session.log("a") as log:
            assert await log.append_many([b"a"] * 3) == [0, 1, 2]
            set_disk(first, False)
            repeated = asyncio.create_task(log.append(b"b", key="b"))
            in_doubt = asyncio.create_task(log.append(b"c"))
            await asyncio.sleep(0.1)
            first.loop.ask(lambda: first.loop.feed(CloseLog("the disk is full")))
            assert await repeated == 0, "it is the first in the other log"
            with pytest.raises(totempole.Unknown):
                await in_doubt
            assert await log.append(b"d") == 1

    with two(tmp_path) as (first, second):
        asyncio.run(asyncio.wait_for(run(first, second), LIMIT_S))


def test_without_asyncio_a_session_goes_to_another_daemon_too(tmp_path: Path) -> None:
    with two(tmp_path) as (first, second):
        sockets = [first.path, second.path]
        with totempole.blocking.connect(sockets, reconnect=QUICK) as session, session.log("a") as log:
            assert log.append_many([b"a"] * 3) == [0, 1, 2]
            first.loop.ask(lambda: first.loop.feed(CloseLog("the disk is full")))
            assert log.append(b"b", timeout=LIMIT_S) == 0


def test_without_asyncio(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, log=ALONE) as it,
        totempole.blocking.connect(it.path) as session,
        session.log("orders") as log,
    ):
        assert [log.append(b"a", key="k"), log.append(b"b"), log.append(b"c", key="k")] == [0, 1, 0]
        assert log.append_many([b"d", b"e"]) == [2, 3]
        receipt = log.append(b"f", until="red")
        assert receipt.position() == 4
        assert log.receipt(str(receipt)).position(timeout=LIMIT_S) == 4
        log.hold("spark", 2)
        set_disk(it, False)
        with pytest.raises(totempole.Unknown) as caught:
            log.append(b"g", timeout=0.2)
        set_disk(it, True)
        late = caught.value.receipt
        assert late is not None
        assert late.position() == 5
