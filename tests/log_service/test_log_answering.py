"""One reading of a log service, frame by frame: who follows one log hears at once where the order ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from totempole.log_service.answering import Answering
from totempole.log_service.source import Source
from totempole.session.log_frames import Answer, EncodedRuns, Reached, Read
from written_logs import WrittenLog


class AtEnd(Exception):
    """The reading has come to the end, and waits for more."""


def frames_before_the_end(directory: Path, request: Read) -> tuple[list[Answer | EncodedRuns], int]:
    """What is sent before it waits, and the place of the end."""
    sent: list[Answer | EncodedRuns] = []

    class Impatient(Source):
        async def wait_for_more(self, timeout_s: float) -> bool:
            raise AtEnd

    async def send(frame: Answer | EncodedRuns) -> None:
        sent.append(frame)

    async def run() -> int:
        source = Impatient(directory)
        keeping_up = asyncio.create_task(source.keep_up())
        is_read = asyncio.create_task(source._is_read.wait())
        await asyncio.wait([is_read, keeping_up], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(AtEnd):
            await Answering(source, request, send).run()
        keeping_up.cancel()
        assert source.tail is not None
        return source.tail.place

    return sent, asyncio.run(run())


def test_runs_of_other_logs_behind_the_last_one_are_told_of(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    log.append([b"mine"])
    for number in range(3):
        log.append([b"%d" % number], log="notes")
    sent, end = frames_before_the_end(log.directory, Read("orders", follow=True))
    assert isinstance(sent[0], EncodedRuns)
    assert sent[1:] == [Reached(4, end, 4)]


def test_who_knows_the_place_is_not_told_again(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    log.append([b"mine"])
    sent, end = frames_before_the_end(log.directory, Read("orders", follow=True))
    assert [type(frame) for frame in sent] == [EncodedRuns]
    sent, _ = frames_before_the_end(log.directory, Read("orders", start=1, place=end, follow=True))
    assert sent == [Reached(1, end, 1)], "the greeting alone"
