"""What a log service tells of sizes, and reading some logs of many: for those who read in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import Reader, Service, serving
from totempole.client.log_endpoints import check_measures
from totempole.client.log_records import LogBatch, Reading
from totempole.errors import LogError, LogTrimmedError, SessionError
from totempole.session.log_frames import AskSegments, AskStatus, Measure, Measured, Welcome
from written_logs import WrittenLog


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three segments: 300 records of 1000 bytes, 100 of 10 in another log, 50 of 1000 with keys."""
    log = WrittenLog(tmp_path / "log")
    for _ in range(3):
        log.append([bytes(1000)] * 100)
    log.begin_segment()
    log.append([bytes(10)] * 100, log="notes", origin=2)
    log.begin_segment()
    log.append([bytes(1000)] * 50, tuple(f"k{number}" for number in range(50)), log="staged/orders")
    log.append([b"again"] * 2, ("k0", "k1"), log="staged/orders")
    return log


@pytest.fixture
def service(log: WrittenLog, tmp_path: Path) -> Iterator[Service]:
    with serving(log.directory, tmp_path / "clients-log.sock") as service:
        yield service


@pytest.fixture
def reader(service: Service, tmp_path: Path, kind: str) -> Reader:
    return Reader.at(kind, tmp_path / "clients.sock")


END = 450


def test_segments_have_a_first_position_and_bytes(reader: Reader, log: WrittenLog) -> None:
    found = reader.ask("segments")
    assert (found.first, found.position) == (0, END)
    assert [position for position, _ in found.sizes] == [0, 300, 400]
    sizes = [size for _, size in found.sizes]
    assert sizes == [path.stat().st_size for path in sorted(log.directory.glob("*.segment"))]
    log.append([b"x"] * 7)
    assert reader.ask("segments").position == END + 7


def test_room_that_is_not_written_yet_does_not_count(reader: Reader, log: WrittenLog) -> None:
    """A replica allocates a segment's file at once."""
    before = reader.ask("segments").sizes
    last = max(log.directory.glob("*.segment"))
    with last.open("r+b") as file:
        file.truncate(10_000_000)
    assert reader.ask("segments").sizes == before


def test_a_trimmed_log_begins_later(reader: Reader, log: WrittenLog) -> None:
    log.trim(2)
    found = reader.ask("segments")
    assert (found.first, found.position) == (300, END)
    assert [position for position, _ in found.sizes] == [300, 400]
    with pytest.raises(LogTrimmedError, match="position 300"):
        reader.ask("measure", Measure(0, END, rows_max=5))


BOUNDS = (
    (Measure(0, END), END, END),
    (Measure(0, END, rows_max=120), 120, 120),
    (Measure(250, END, rows_max=120), 370, 120),
    (Measure(0, END, rows_max=310, logs=("orders",)), END, 300),
    (Measure(10, END, rows_max=1, logs=("notes",)), 301, 1),
    (Measure(410, END, logs=("notes",)), END, 0),
    (Measure(0, END, without="staged/"), END, 400),
    (Measure(0, END, bytes_max=50_000), 49, 49),
    (Measure(0, END, bytes_max=150_000, logs=("notes", "orders")), 149, 149),
    (Measure(300, END, bytes_max=1_000_000), END, 150),
    (Measure(END, END, rows_max=5), END, 0),
)
"""A request, and the position and the rows of its answer."""


def test_bounds_are_kept(reader: Reader) -> None:
    for request_frame, position, rows in BOUNDS:
        found = reader.ask("measure", request_frame)
        assert isinstance(found, Measured)
        assert (found.position, found.rows) == (position, rows), request_frame
        if request_frame.bytes_max:
            assert found.bytes <= request_frame.bytes_max, request_frame


def test_the_end_is_what_is_green(reader: Reader, log: WrittenLog) -> None:
    log.place([b"yellow"])
    assert reader.ask("measure", Measure(0, 10_000)).position == END


def test_bounds_that_cannot_be_are_refused(reader: Reader) -> None:
    with pytest.raises(LogError, match="cannot be"):
        reader.ask("measure", Measure(-1, END))


CHOICES: tuple[tuple[dict[str, Any], dict[str, int]], ...] = (
    ({"logs": ("orders", "notes")}, {"orders": 300, "notes": 100}),
    ({"logs": ("notes",)}, {"notes": 100}),
    ({"without": "staged/"}, {"orders": 300, "notes": 100}),
    ({"logs": ("staged/orders", "notes"), "without": "no"}, {"staged/orders": 50}),
    ({"logs": ("nothing",)}, {}),
)
"""What is asked for, and the records of each log that come."""


def test_some_logs_of_many_are_read(reader: Reader) -> None:
    for options, logs in CHOICES:
        found: dict[str, int] = {}
        for item in reader.items(Reading(start=0, **options)):
            assert isinstance(item, LogBatch)
            found[item.log] = found.get(item.log, 0) + len(item)
        assert found == logs, options


def test_a_service_of_an_older_version_is_not_asked() -> None:
    """It would hang up, and nobody would know why."""
    old, new = Welcome(1, 7, 2, 5, 0, 9, True), Welcome(1, 7, 2, 5, 0, 9, True, True)
    for request in (AskSegments(), Measure(0, 1)):
        with pytest.raises(SessionError, match="processor 2 is of an older version"):
            check_measures(request, old)
        check_measures(request, new)
    check_measures(AskStatus(), old)
