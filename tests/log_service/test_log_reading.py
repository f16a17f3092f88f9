"""What programs read from a log service: ranges, single logs, what comes, and what is not there."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from serving import QUICK, Reader, Service, serving
from sweeps import first_of
from totempole.client.log_records import LogBatch, Notice, Reading
from totempole.corel.run import Hold, Primary, RunId
from totempole.errors import LogError, LogTrimmedError
from totempole.log.segments import SegmentReader, segment_name
from totempole.log_service.settings import decode_report
from totempole.session.log_frames import Measure
from written_logs import LIFE, LOG, WrittenLog


@pytest.fixture(params=first_of(["blocking", "asyncio"]))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Thirty records of orders and one of notes, in two segments; two repeat a key."""
    log = WrittenLog(tmp_path / "log")
    for number in range(5):
        log.append([f"{number}-{index}".encode() for index in range(3)])
    log.append([b"remark"], log="notes", origin=2)
    log.begin_segment()
    for number in range(5, 9):
        log.append([f"{number}-{index}".encode() for index in range(3)])
    log.append([b"x", b"y"], ("a", "b"))
    log.append([b"again", b"z", b"again"], ("a", "c", "b"))
    return log


@pytest.fixture
def service(log: WrittenLog, tmp_path: Path) -> Iterator[Service]:
    with serving(log.directory, tmp_path / "clients-log.sock") as service:
        yield service


@pytest.fixture
def reader(service: Service, tmp_path: Path, kind: str) -> Reader:
    return Reader.at(kind, tmp_path / "clients.sock")


END = 31


def test_all_records_come_in_their_order(reader: Reader) -> None:
    found = reader.records()
    assert [record.position for record in found] == list(range(END))
    assert found[0].payload == b"0-0"
    assert found[15][2:] == (2, RunId(2, LIFE, 1), "notes", "", b"remark")
    assert [(record.key, record.payload) for record in found[-3:]] == [("a", b"x"), ("b", b"y"), ("c", b"z")]
    assert all(before.time_us <= after.time_us for before, after in pairwise(found))


def test_a_range_is_cut_at_positions(reader: Reader) -> None:
    for start, stop in ((0, 1), (4, 5), (7, 20), (14, 16), (29, 31), (30, 99), (31, 40)):
        found = [record.position for record in reader.records(start, stop)]
        assert found == list(range(start, min(stop, END)))


def test_one_log_has_gaps_in_its_positions(service: Service, tmp_path: Path, kind: str) -> None:
    orders = Reader.at(kind, tmp_path / "clients.sock", log="orders").records()
    assert [record.position for record in orders] == [*range(15), *range(16, END)]
    notes = Reader.at(kind, tmp_path / "clients.sock", log="notes")
    assert [record.position for record in notes.records()] == [15]
    assert notes.records(16) == []
    assert Reader.at(kind, tmp_path / "clients.sock", log="nothing").records() == []


def test_columns_that_are_not_wanted_are_not_sent(reader: Reader) -> None:
    batches = reader.items(Reading(start=26, columns=("position", "key")))
    records = [record for batch in batches if isinstance(batch, LogBatch) for record in batch]
    assert [(record.position, record.key, record.payload) for record in records] == [
        (26, "", b""),
        (27, "", b""),
        (28, "a", b""),
        (29, "b", b""),
        (30, "c", b""),
    ]
    with pytest.raises(LogError, match="column 'colour'"):
        Reading(columns=("colour",))


def test_a_bound_on_bytes_ends_a_reading_behind_whole_runs(reader: Reader) -> None:
    reading = Reading(start=3, bytes_max=1)
    (batch,) = reader.items(reading)
    assert isinstance(batch, LogBatch)
    assert batch.positions == range(3, 6)
    assert reading.position == 6


def test_the_logs_own_runs_come_if_they_are_wanted(reader: Reader, log: WrittenLog) -> None:
    log.hold("spark", 4)
    log.append([b"last"])
    found = reader.items(Reading(start=29, notices=True, follow=True, stop=END + 1))
    assert [type(item) for item in found] == [LogBatch, LogBatch, Notice, LogBatch]
    assert found[2].content == Hold("spark", 4)  # type: ignore[union-attr]
    (first, *_) = reader.items(Reading(notices=True))
    assert isinstance(first, Notice)
    assert isinstance(first.content, Primary)
    assert first.content.number == 1


def test_a_reading_follows_what_is_ordered_across_segments(reader: Reader, log: WrittenLog) -> None:
    def write() -> None:
        for number in range(6):
            time.sleep(0.03)
            if number % 2:
                log.begin_segment()
            log.append([f"new {number}".encode()] * 2)

    writer = threading.Thread(target=write)
    writer.start()
    found = reader.records(END - 1, follow=True, most=13)
    writer.join()
    assert [record.position for record in found] == list(range(END - 1, END + 12))
    assert found[-1].payload == b"new 5"


def test_latest_gives_only_what_comes(reader: Reader, log: WrittenLog) -> None:
    timer = threading.Timer(1.0, lambda: log.append([b"news"]))
    timer.start()
    (found,) = reader.records("latest", follow=True, most=1)
    timer.join()
    assert (found.position, found.payload) == (END, b"news")


def test_what_is_not_green_is_not_read(reader: Reader, log: WrittenLog) -> None:
    log.place([b"yellow"])
    assert len(reader.records()) == END
    log.green()
    assert reader.records()[-1].payload == b"yellow"


def test_a_program_reads_what_it_knows_to_be_green(reader: Reader, log: WrittenLog) -> None:
    """The green line is written a little later: the reading waits for it."""
    log.place([b"mine"])
    timer = threading.Timer(0.3, log.green)
    timer.start()
    found = reader.records(END, known=END + 1)
    timer.join()
    assert [record.payload for record in found] == [b"mine"]


def test_a_trimmed_position_is_refused_and_the_earliest_named(reader: Reader, log: WrittenLog) -> None:
    log.trim(2)
    with pytest.raises(LogTrimmedError, match="position 16") as caught:
        reader.records(0)
    assert caught.value.earliest == 16
    assert [record.position for record in reader.records()] == list(range(16, END))
    assert reader.ask("status").first == 16


def damage(directory: Path) -> None:
    """Flips a bit of the second run of records, which is in the first of two segments."""
    path = directory / segment_name(1)
    with SegmentReader(path) as segment:
        stored = next(each for each in segment.frames() if b"1-1" in bytes(each.content))
    content = bytearray(path.read_bytes())
    content[stored.end - 2] ^= 1
    path.write_bytes(content)


def test_damage_amid_the_log_is_an_error_at_once(reader: Reader, log: WrittenLog) -> None:
    """Not only after `give_up_s`: nobody mends it meanwhile."""
    damage(log.directory)
    started_s = time.monotonic()
    assert [record.position for record in reader.records(0, most=3)] == [0, 1, 2]
    with pytest.raises(LogError, match=r"no log service can read on.*green runs 2 to 6 cannot be read"):
        reader.records(0)
    with pytest.raises(LogError, match="totem log check"):
        reader.ask("measure", Measure(0, END))
    assert time.monotonic() - started_s < QUICK.give_up_s / 2
    assert [record.position for record in reader.records(16)] == list(range(16, END))


def test_damage_at_one_replica_is_read_at_another(
    reader: Reader, log: WrittenLog, tmp_path: Path, kind: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(log.directory, other)
    damage(log.directory)
    both = (tmp_path / "clients.sock", tmp_path / "other.sock")
    with serving(other, tmp_path / "other-log.sock", 2):
        found = Reader.at(kind, *both).records(0)
        assert [record.position for record in found] == list(range(END))
        damage(other)
        with pytest.raises(LogError, match=r"clients-log\.sock: .*/other-log\.sock: "):
            Reader.at(kind, *both).records(0)


def test_a_reading_waits_for_a_replica_that_may_have_what_is_damaged_at_another(
    reader: Reader, log: WrittenLog, tmp_path: Path, kind: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(log.directory, other)
    damage(log.directory)
    with ExitStack() as later:
        timer = threading.Timer(
            1.0, lambda: later.enter_context(serving(other, tmp_path / "other-log.sock", 2))
        )
        timer.start()
        found = Reader.at(kind, tmp_path / "clients.sock", tmp_path / "other.sock").records(0)
        timer.join()
    assert [record.position for record in found] == list(range(END))


def test_damage_is_reported_to_the_node(log: WrittenLog, tmp_path: Path) -> None:
    damage(log.directory)
    with serving(log.directory, tmp_path / "clients-log.sock") as service:
        with pytest.raises(LogError):
            Reader.at("blocking", tmp_path / "clients.sock").records(0)
        assert service.process is not None
        assert service.process.stdout is not None
        report = decode_report(service.process.stdout.readline())
        assert "green runs 2 to 6 cannot be read" in report


def test_a_replica_that_began_anew_serves_what_it_has(tmp_path: Path, kind: str) -> None:
    """It was behind, and the others have trimmed what it lacks."""
    donor = WrittenLog(tmp_path / "donor")
    for number in range(10):
        donor.append([str(number).encode()])
    late = WrittenLog(tmp_path / "late", processor=2)
    late.begin_anew(donor)
    late.append([b"ten", b"eleven"], origin=1)
    with serving(late.directory, tmp_path / "late-log.sock", 2):
        reader = Reader.at(kind, tmp_path / "late.sock")
        assert [record.position for record in reader.records()] == [10, 11]
        with pytest.raises(LogTrimmedError, match="position 10"):
            reader.records(3)


def test_a_replica_that_began_anew_at_the_end_of_a_segment_is_not_damaged(tmp_path: Path, kind: str) -> None:
    donor = WrittenLog(tmp_path / "donor")
    for number in range(10):
        donor.append([str(number).encode()])
    late = WrittenLog(tmp_path / "late", processor=2)
    late.begin_anew(donor)
    late.begin_segment()
    late.append([b"ten", b"eleven"], origin=1)
    with serving(late.directory, tmp_path / "late-log.sock", 2):
        reader = Reader.at(kind, tmp_path / "late.sock")
        with pytest.raises(LogTrimmedError, match="position 10") as caught:
            reader.records(3)
        assert caught.value.earliest == 10
        assert [record.position for record in reader.records(10)] == [10, 11]


def test_runs_are_located(reader: Reader, log: WrittenLog) -> None:
    found = reader.ask("locate", RunId(1, LIFE, 2))
    assert (found.place, found.position, found.run.count) == (2, 3, 3)
    again = reader.ask("locate", RunId(1, LIFE, 11))
    assert again.repeats == ((0, 28), (2, 29))
    assert reader.ask("locate", RunId(1, LIFE, 99)) is None
    pending = log.place([b"yellow"])
    assert reader.ask("locate", pending.id) is None
    log.trim(2)
    with pytest.raises(LogError, match="may be trimmed"):
        reader.ask("locate", RunId(1, LIFE, 2))


def test_status_tells_what_the_replica_has(reader: Reader, log: WrittenLog) -> None:
    log.hold("spark", 7)
    log.place([b"yellow"])
    status = reader.ask("status")
    assert (status.log, status.processor, status.first, status.position) == (LOG, 1, 0, END)
    assert (status.yellow_runs, status.red_runs, status.holds) == (1, 0, {"spark": 7})
    assert sorted(status.replicas) == [1, 2, 3]
    assert (status.segments, status.primary) == (2, 1)


def test_an_empty_directory_is_served_once_there_is_a_log(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path / "log", tmp_path / "clients-log.sock"):
        timer = threading.Timer(0.3, lambda: WrittenLog(tmp_path / "log").append([b"first"]))
        timer.start()
        found = Reader.at(kind, tmp_path / "clients.sock").records(0, 1, follow=True)
        timer.join()
    assert [record.payload for record in found] == [b"first"]


def test_large_runs_and_many_small_ones(tmp_path: Path, kind: str) -> None:
    log = WrittenLog(tmp_path / "log")
    log.append([bytes(3_000_000), b"small"])
    for number in range(2_000):
        log.place([str(number).encode()])
    log.green()
    with serving(log.directory, tmp_path / "clients-log.sock"):
        found = Reader.at(kind, tmp_path / "clients.sock").records()
    assert [len(record.payload) for record in found[:2]] == [3_000_000, 5]
    assert [record.payload for record in found[2:]] == [str(number).encode() for number in range(2_000)]
