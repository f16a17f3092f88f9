"""Whoever reads a log gets no record of a run that its fence has kept out, and goes on behind it as ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import Reader, serving
from totempole.cli.log_show import items_of
from totempole.cli.log_source import DirectorySource
from totempole.client.log_records import Reading, Record
from totempole.corel.fences import FenceMark
from totempole.corel.run import RunId
from totempole.log import arrow
from totempole.log.reader import LogReader
from totempole.types import Fence
from written_logs import LIFE, WrittenLog

FENCE = Fence("q", 5, 0, 0)
RECORDS = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"h")]
END = 7
"""Runs in the order: the record of the primary, four that are let in, two that are passed over."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """Both runs of processor 2 are passed over, the second by a mark from the segment before."""
    log = WrittenLog(tmp_path / "log")
    log.append([b"a"])
    log.append([b"b", b"c"], fence=FENCE)
    log.append([b"passed", b"over"], ("k", "l"), fence=FENCE, origin=2)
    log.begin_segment()
    log.append([b"d"], ("k",))
    log.append([b"passed"] * 5, fence=Fence("q", 9, 7, 8), origin=2)
    log.append([b"h"], log="other")
    yield log
    log.close()


def test_a_directory_gives_none_of_its_records(log: WrittenLog) -> None:
    reader = LogReader(log.directory)
    assert [(record.position, bytes(record.payload)) for record in reader.records()] == RECORDS
    assert [record.position for record in reader.records(3)] == [3, 4]
    assert [ordered.place for ordered in reader.runs()] == list(range(END)), "every run has its place"
    assert log.zones.position == len(RECORDS)


def test_arrow_batches_have_none_of_its_records(log: WrittenLog) -> None:
    rows = [row for batch in arrow.to_batches(LogReader(log.directory).runs()) for row in batch.to_pylist()]
    assert [(row["position"], row["payload"]) for row in rows] == RECORDS
    assert [row["key"] for row in rows] == [None, None, None, "k", None]


def test_totem_log_shows_none_of_its_records(log: WrittenLog) -> None:
    shown = [
        item
        for ordered in DirectorySource(log.directory).runs(0, None, "", follow=False)
        for item in items_of(ordered, 0, None, "", events=False)
    ]
    assert [(item.position, bytes(item.payload)) for item in shown if isinstance(item, Record)] == RECORDS


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_log_service_sends_none_of_its_records(log: WrittenLog, tmp_path: Path, kind: str) -> None:
    with serving(log.directory, tmp_path / "clients-log.sock"):
        reader = Reader.at(kind, tmp_path / "clients.sock")
        assert [(record.position, record.payload) for record in reader.records()] == RECORDS
        for start in range(len(RECORDS)):
            assert [record.position for record in reader.records(start, start + 1)] == [start]
        for place in range(END):
            reading = Reading(start=0, place=place)
            runs = [ordered.place for ordered in LogReader(log.directory).runs() if ordered.positions]
            assert len(reader.items(reading)) == sum(each >= place for each in runs), "from any place on"
            assert reading.place >= runs[-1] + 1
        passed, other = (reader.ask("locate", RunId(2, LIFE, number)) for number in (1, 2))
        assert (passed.fenced, passed.stop - passed.position) == (FenceMark(5, 1), 0)
        assert other.fenced == FenceMark(5, 1)
        assert reader.ask("locate", RunId(1, LIFE, 2)).fenced is None
