"""log.reader: green runs in their order from any position on, beside a node that writes and trims."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log_writing import LOG, PROCESSOR, LoggingReplica

from totempole.corel.frames import Colour, Promoted
from totempole.corel.run import RunId, RunKind
from totempole.errors import LogDamagedError, LogTrimmedError, StorageError
from totempole.log import reader, segments
from totempole.log.blocks import Blocks
from totempole.log.reader import LogReader, records_in
from totempole.log.segments import Header, SegmentReader, read_header, segment_name, segment_numbers
from written_logs import WrittenLog


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three lives and many segments; each record says its position."""
    directory = tmp_path_factory.mktemp("log")
    for life in (1, 2, 3):
        replica = LoggingReplica(directory, life=life, sync=False)
        for records in (1, 10, 3, 40):
            replica.write(40, size=200, records=records)
        replica.close()
    return directory


END = 3 * 40 * 54


def test_all_of_it(directory: Path) -> None:
    reader = LogReader(directory)
    records = list(reader.records())
    assert [record.position for record in records] == list(range(END))
    assert all(int(record.payload[:8]) == record.position for record in records)
    runs = list(reader.runs())
    assert [ordered.place for ordered in runs] == list(range(len(runs)))
    assert runs[0].run.kind is RunKind.PRIMARY
    assert reader.first_position == 0
    with reader.at_end() as cursor:
        assert (cursor.zones.position, cursor.zones.log, cursor.place) == (END, LOG, len(runs))


def test_ranges(directory: Path) -> None:
    reader = LogReader(directory)
    random = Random(3)
    for _ in range(60):
        start = random.randrange(END)
        stop = random.choice((None, start, start + 1, random.randrange(start, END), END + 5))
        found = [record.position for record in reader.records(start, stop)]
        assert found == list(range(start, END if stop is None else min(stop, END)))
    assert list(reader.records(END)) == []
    assert list(reader.records(END + 100)) == []


def test_a_range_reads_only_the_segments_that_it_needs(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    start = SegmentReader.__init__

    def note(segment: SegmentReader, path: Path, *blocks: Blocks | None) -> None:
        opened.append(path.name)
        start(segment, path, *blocks)

    monkeypatch.setattr(SegmentReader, "__init__", note)
    reader = LogReader(directory)
    assert len(list(reader.records(END // 2, END // 2 + 3))) == 3
    assert len(opened) <= 2
    assert len(reader.headers()) > 20


def test_places(directory: Path) -> None:
    reader = LogReader(directory)
    places = [ordered.run.id for ordered in reader.runs()]
    for place in (0, 1, 77, 200, len(places) - 1):
        with reader.at_place(place) as cursor:
            assert next(cursor.runs()).run.id == places[place]
            assert cursor.place == place + 1
            # A reader that was left in the middle goes on there.
            assert [each.run.id for each in cursor.runs()] == places[place + 1 :]


def test_a_cursor_that_is_left_amid_a_frame(tmp_path: Path) -> None:
    """A frame may make many runs green."""
    replica = LoggingReplica(tmp_path, sync=False)
    for _ in range(10):
        replica.place([b"x"])
    replica.green()
    replica.close()
    with LogReader(tmp_path).at_place(0) as cursor:
        places = [next(cursor.runs()).place for _ in range(11)]
    assert places == list(range(11))


def test_locate(directory: Path) -> None:
    reader = LogReader(directory)
    runs = {ordered.run.id: ordered for ordered in reader.runs() if ordered.run.kind is RunKind.RECORDS}
    random = Random(1)
    for run in random.sample(sorted(runs), 40):
        found = reader.locate(run)
        assert found is not None
        assert (found.place, found.position) == (runs[run].place, runs[run].position)
    assert reader.locate(RunId(PROCESSOR, 3, 161)) is None
    assert reader.locate(RunId(PROCESSOR, 4, 1)) is None
    assert reader.locate(RunId(PROCESSOR + 1, 1, 1)) is None


def test_locate_a_run_that_was_red_for_long(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path, sync=False)
    red = replica.place([b"red"], colour=Colour.RED)
    never = replica.place([b"red too"], colour=Colour.RED)
    replica.write(200, size=1000)
    replica.sync()
    assert LogReader(tmp_path).locate(red.id) is None
    replica.step(Promoted((red.id,)))
    replica.green()
    place = replica.zones.green_runs - 1
    replica.write(200, size=1000)
    replica.sync()
    reader = LogReader(tmp_path)
    found = reader.locate(red.id)
    assert found is not None
    assert found.place == place
    assert reader.locate(never.id) is None
    replica.store.trim(10**9)
    replica.close()  # removes the files
    assert LogReader(tmp_path).locate(red.id) is None


def test_records_whose_key_was_there_take_no_position(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path, sync=False)
    replica.place([b"a", b"b", b"c"], ("k1", "", "k2"))
    replica.place([b"d", b"e", b"f"], ("k2", "k3", "k1"))
    replica.place([b"g"], ("k3",), log="other")
    replica.green()
    replica.close()
    found = [(each.position, each.log, each.key, each.payload) for each in LogReader(tmp_path).records()]
    assert found == [
        (0, "orders", "k1", b"a"),
        (1, "orders", "", b"b"),
        (2, "orders", "k2", b"c"),
        (3, "orders", "k3", b"e"),
        (4, "other", "k3", b"g"),
    ]
    assert [each.position for each in LogReader(tmp_path).records(log="other")] == [4]


def test_follow_a_live_writer_through_segments_and_restarts(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(1)
    replica.sync()
    expected = 3 * 600
    found: list[int] = []

    def read() -> None:
        reader = LogReader(tmp_path)
        deadline = time.monotonic() + 60
        for ordered in reader.follow(
            5, lambda: len(found) >= expected + 5 or time.monotonic() > deadline, lambda _: time.sleep(0.001)
        ):
            found.extend(
                record.position
                for record in records_in(ordered)
                if record.position >= 5 and int(record.payload[:8]) == record.position
            )

    thread = threading.Thread(target=read)
    thread.start()
    for life in (2, 3, 4):
        replica.close()
        replica = LoggingReplica(tmp_path, life=life)
        for _ in range(60):
            replica.write(1, size=400)
            if life == 3:
                replica.sync()
    thread.join()
    assert found == list(range(5, 5 + len(found)))
    assert len(found) == expected + 5
    replica.close()


def test_a_reader_beside_a_torn_tail_goes_on_after_the_restart(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(3)
    replica.close()
    path = tmp_path / segment_name(1)
    with open(path, "ab") as file:
        file.write(b"\xf5\x9aTP" + b"torn")
    reader = LogReader(tmp_path)
    with reader.at_position(0) as cursor:
        assert [each.position for each in cursor.runs()] == [0, 0, 10, 20]
        assert list(cursor.runs()) == []
        again = LoggingReplica(tmp_path, life=2)
        again.write(2)
        again.close()
        assert [each.position for each in cursor.runs()] == [30, 40]


def test_frames_that_are_half_there_are_read_later(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path / "a")
    replica.write(5)
    replica.close()
    whole = (tmp_path / "a" / segment_name(1)).read_bytes()
    (tmp_path / "b").mkdir()
    path = tmp_path / "b" / segment_name(1)
    path.write_bytes(whole[:200])
    found = []
    with LogReader(tmp_path / "b").at_position(0) as cursor:
        for size in range(200, len(whole) + 1, 37):
            path.write_bytes(whole[:size])
            found += [each.place for each in cursor.runs()]
        path.write_bytes(whole)
        found += [each.place for each in cursor.runs()]
    assert found == [0, 1, 2, 3, 4, 5]


def test_a_reader_keeps_what_it_has_open_while_the_log_is_trimmed(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(300, size=500)
    replica.sync()
    reader = LogReader(tmp_path)
    with reader.at_position(0) as cursor:
        runs = cursor.runs()
        assert next(runs).place == 0
        replica.store.trim(200)
        while replica.store._recaller._removed:
            time.sleep(0.001)
        with pytest.raises(
            LogTrimmedError, match=r"the log begins with position \d+ \(run \d+\); read from there"
        ):
            for _ in runs:
                pass
        assert 10 < cursor.place < 200
    assert reader.first_position > 0
    assert next(iter(reader.records(reader.first_position))).position == reader.first_position
    replica.close()


def test_the_last_segment_is_followed_by_others_and_trimmed_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended a log service that was about to start."""
    log = WrittenLog(tmp_path / "log")

    def then_trim(path: Path) -> Header:
        header = read_header(path)
        if header.number == 1:
            log.begin_segment()
            log.trim(2)
        return header

    monkeypatch.setattr(reader, "read_header", then_trim)
    with LogReader(log.directory).at_end() as cursor:
        assert cursor.number == 2


def test_a_reader_that_is_ahead_of_what_is_trimmed_does_not_notice(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(300, size=500)
    replica.sync()
    with LogReader(tmp_path).at_place(150) as cursor:
        runs = cursor.runs()
        next(runs)
        replica.store.trim(140)
        assert sum(1 for _ in runs) == 150
        replica.write(1)
        replica.sync()
        assert sum(1 for _ in cursor.runs()) == 1
    replica.close()


def test_damage_is_told(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(300, size=500)
    replica.close()
    path = tmp_path / segment_name(2)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDamagedError, match=r"green runs \d+ to \d+ cannot be read"):
        list(LogReader(tmp_path).runs())
    third = LogReader(tmp_path).headers()[2].position
    assert next(LogReader(tmp_path).records(third)).position == third


@pytest.mark.parametrize("blocks", [None, Blocks()], ids=["own", "blocks"])
def test_a_bad_sector_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: Blocks | None
) -> None:
    """What is before it is given."""
    replica = LoggingReplica(tmp_path)
    replica.write(300, size=500)
    replica.close()
    path = tmp_path / segment_name(2)
    inode, half = path.stat().st_ino, path.stat().st_size // 2

    def failing(read: Callable[..., Any]) -> Callable[..., Any]:
        def fail(file: int, size: Any, at: int) -> Any:
            if os.fstat(file).st_ino == inode and at > half:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return read(file, size, at)

        return fail

    monkeypatch.setattr(segments, "BLOCK_BYTES_MIN", 4096)
    monkeypatch.setattr(segments, "BLOCK_BYTES_MAX", 4096)
    for name in ("pread", "preadv"):
        monkeypatch.setattr(segments.os, name, failing(getattr(os, name)))
    found: list[int] = []
    with LogReader(tmp_path).at_position(0, blocks) as cursor, pytest.raises(LogDamagedError) as caught:
        found.extend(ordered.place for ordered in cursor.runs())
    assert f"{path}: the disk cannot read frame" in str(caught.value)
    assert found == list(range(len(found)))
    assert len(found) > read_header(path).green_runs


def test_a_header_that_cannot_be_read(tmp_path: Path) -> None:
    """What is behind it can; what is before it cannot be read on from."""
    replica = LoggingReplica(tmp_path)
    replica.write(300, size=500)
    replica.close()
    numbers = segment_numbers(tmp_path)
    third = LogReader(tmp_path).headers()[2].position
    for number in (numbers[1], numbers[-1]):
        path = tmp_path / segment_name(number)
        path.write_bytes(b"X" + path.read_bytes()[1:])
        if number == numbers[1]:
            with pytest.raises(LogDamagedError, match=f"read from position {third} on"):
                list(LogReader(tmp_path).runs(0))
            assert next(LogReader(tmp_path).records(third)).position == third
        else:
            with pytest.raises(LogDamagedError, match="does not begin like a segment"):
                list(LogReader(tmp_path).runs(third))
    for number in numbers:
        (tmp_path / segment_name(number)).write_bytes(b"")
    with pytest.raises(LogDamagedError):
        list(LogReader(tmp_path).runs())


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no log in it"):
        list(LogReader(tmp_path).runs())
    with pytest.raises(StorageError, match="name its directory"):
        list(LogReader(tmp_path / "nowhere").runs())


def test_numbers(directory: Path) -> None:
    assert segment_numbers(directory)[0] == 1
