"""The service's view of its log: read to the end for those who are connected, and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from totempole.log_service import source as source_module
from totempole.log_service.source import Source
from written_logs import WrittenLog


def served(log: WrittenLog, program: Callable[[Source], Awaitable[None]]) -> None:
    async def run() -> None:
        source = Source(log.directory)
        keeping_up = asyncio.ensure_future(source.keep_up())
        try:
            await source.refresh()
            await program(source)
        finally:
            keeping_up.cancel()
            with suppress(asyncio.CancelledError):
                await keeping_up

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "IDLE_POLL_S", 0.01)


def test_what_nobody_reads_is_not_replayed(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    log.append([b"before"])

    async def program(source: Source) -> None:
        assert source.position == 1
        for number in range(3):
            log.begin_segment()
            log.append([b"%d" % number] * 10)
        tail = source.tail
        await until(lambda: source.tail is not tail)
        assert source.tail is not None
        await until(lambda: source.tail is not None and source.tail.number == 4)
        assert not source.tail.runs
        source.readers = 1
        await source.refresh()
        assert source.position == log.zones.position == 31
        assert [shipped.ordered.position for shipped in source.tail.runs] == [21]

    served(log, program)


def test_what_a_program_is_connected_for_is_replayed(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")

    async def program(source: Source) -> None:
        source.readers = 1
        log.append([b"first"])
        log.begin_segment()
        log.append([b"second"])
        await until(lambda: source.position == 2)
        assert source.tail is not None
        assert len(source.tail.runs) >= 2, "it has gone on from the segment before"

    served(log, program)


def test_one_that_comes_does_not_take_the_tail_from_another(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")

    async def program(source: Source) -> None:
        source.readers = 2
        tail = source.tail
        log.append([b"first"])
        log.begin_segment()
        await source.refresh()
        assert source.tail is tail
        assert source.position == 1

    served(log, program)
