"""Programs append with fences to the log of a daemon: a ring of one, the real layers and service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from daemon_loop import Daemon, daemon

import totempole
from totempole.client.appending import RUN_BYTES, RUN_RECORDS_MAX
from totempole.corel.config import LogConfig
from totempole.corel.run import RunKind, records_of
from totempole.errors import SessionError
from totempole.groups.packing import Batch, pack

ALONE = LogConfig(replicas=(1,))
LIMIT_S = 30.0


def step(number: int) -> totempole.Fence:
    return totempole.Fence("q", number, number - 1, number - 1)


def set_disk(it: Daemon, works: bool) -> None:
    def do() -> None:
        it.loop.disk_works = works

    it.loop.ask(do)


def with_log(tmp_path: Path, test: Callable[[Daemon, totempole.Log], Awaitable[None]]) -> None:
    async def run() -> None:
        async with totempole.connect(it.path) as session, session.log("orders") as log:
            await test(it, log)

    with daemon(tmp_path, log=ALONE) as it:
        asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_a_fence_lets_records_in_once(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        assert await log.append(b"a") == 0
        assert await log.append_many([b"b", b"c"], ["k", "l"], fence=step(1)) == [1, 2]
        with pytest.raises(totempole.FencedError, match="the mark is 1") as caught:
            await log.append_many([b"b", b"c"], ["k", "l"], fence=step(1))
        assert (caught.value.mark, caught.value.position, caught.value.resent) == (1, 1, False)
        with pytest.raises(totempole.FencedError) as caught:
            await log.append(b"early", fence=totempole.Fence("another", 5, 4, 4))
        assert (caught.value.mark, caught.value.position) == (0, -1)
        assert await log.append(b"d", fence=step(2)) == 3
        assert await log.append_many([b"again", b"e"], ["k", "m"], fence=step(3)) == [1, 4]

    with_log(tmp_path, test)


def test_many_under_way_at_once_are_let_in_one_after_the_other(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        appends = [log.append_many([b"%d" % number] * 3, fence=step(number)) for number in range(1, 41)]
        positions = await asyncio.gather(*appends)
        assert [position for run in positions for position in run] == list(range(120))

    with_log(tmp_path, test)


def test_the_largest_run(tmp_path: Path) -> None:
    async def test(_: Daemon, log: totempole.Log) -> None:
        assert await log.append_many([b""] * RUN_RECORDS_MAX, fence=step(1)) == list(range(RUN_RECORDS_MAX))
        assert await log.append(bytes(RUN_BYTES + 1), fence=step(2)) == RUN_RECORDS_MAX
        with pytest.raises(SessionError, match="in one run"):
            await log.append_many([bytes(RUN_BYTES - 15), b""], fence=step(3))
        with pytest.raises(SessionError, match="in one run"):
            await log.append(bytes(1 << 20), fence=step(3))
        with pytest.raises(SessionError, match="0 records"):
            await log.append_many([], fence=step(3))
        with pytest.raises(SessionError, match="give green"):
            await log.append(b"x", fence=step(3), until="red")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"totempole\.Fence"):
            await log.append(b"x", fence=("q", 3, 2, 2))  # type: ignore[arg-type]

    with_log(tmp_path, test)


@pytest.mark.parametrize("payloads", [[b"abc"] * 5, [b"a", b"", b"ccc"]], ids=["uniform", "varied"])
def test_a_packed_batch_is_sent_as_it_is(tmp_path: Path, payloads: list[bytes]) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        batch = Batch(pack(payloads))
        count = len(payloads)
        keys = [str(number) for number in range(count)]
        assert await log.append_many(batch, keys, fence=step(1)) == list(range(count))
        with pytest.raises(SessionError, match="give one for each"):
            await log.append_many(batch, ["k"], fence=step(2))
        assert await log.append_many(batch) == list(range(count, 2 * count))
        assert it.loop.replica is not None
        runs = [run for run in it.loop.replica.zones.recent if run.kind is RunKind.RECORDS]
        assert [bytes(payload) for run in runs for payload in records_of(run).payloads] == payloads * 2
        assert [records_of(run).keys for run in runs] == [tuple(keys), ()]

    with_log(tmp_path, test)


def test_a_receipt_of_a_record_that_was_kept_out(tmp_path: Path) -> None:
    async def test(it: Daemon, log: totempole.Log) -> None:
        assert await log.append(b"a", fence=step(1)) == 0
        set_disk(it, False)
        with pytest.raises(totempole.Unknown) as caught:
            await log.append_many([b"b", b"c"], fence=step(1), timeout=0.3)
        set_disk(it, True)
        assert len(caught.value.receipts) == 2
        for receipt in caught.value.receipts:
            with pytest.raises(totempole.FencedError, match="passed over") as kept_out:
                await log.receipt(str(receipt)).position(timeout=LIMIT_S)
            assert (kept_out.value.mark, kept_out.value.position) == (1, 0)

    with_log(tmp_path, test)


def test_without_asyncio(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, log=ALONE) as it,
        totempole.blocking.connect(it.path) as session,
        session.log("orders") as log,
    ):
        assert log.append_many([b"a", b"b"], fence=step(1)) == [0, 1]
        with pytest.raises(totempole.FencedError) as caught:
            log.append(b"c", fence=step(1), timeout=LIMIT_S)
        assert (caught.value.mark, caught.value.position) == (1, 0)
        assert log.append(b"c", fence=step(2)) == 2
        with pytest.raises(SessionError, match="0 records"):
            log.append_many([], fence=step(3))
