"""runtime.log_store: opening, appending, recalling and trimming; and whatever can go wrong with a disk."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_writing import CLUSTER, DISK, PROCESSOR, Answers, LoggingReplica, open_store

from totempole.corel.frames import Begun, Identified, Mark, decode, encode
from totempole.corel.run import RunId, unpack_run
from totempole.corel.zones import Zones
from totempole.errors import LogTrimmedError, StorageError, StorageFullError
from totempole.log.check import check
from totempole.log.reader import LogReader
from totempole.log.segments import SegmentReader, read_header, segment_name, segment_numbers
from totempole.runtime import log_files, log_writer
from totempole.runtime.log_store import LogStore


def recall(replica: LoggingReplica, start: int, bytes_max: int = 20_000) -> Any:
    ticket = 1_000_000 + len(replica.answers.recalled)
    replica.store.recall(ticket, start, bytes_max)
    replica.answers.wait(lambda: ticket in replica.answers.recalled)
    return replica.answers.recalled[ticket]


def last_segment(directory: Path) -> Path:
    return directory / segment_name(segment_numbers(directory)[-1])


def frames_of(path: Path) -> list[tuple[int, int]]:
    with SegmentReader(path) as reader:
        return [(stored.at, stored.end) for stored in reader.frames()]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def cached_pages(path: Path) -> int:
    """How many pages of the file the kernel has in memory."""
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // page))()
        start = ctypes.addressof(view := ctypes.c_char.from_buffer(mapped))
        failed = libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), pages)
        del view
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(each & 1 for each in pages)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


# Opening


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(30)
    replica.close()
    mark = replica.zones.mark()

    again = LoggingReplica(tmp_path, life=2)
    opened = again.store.opened
    assert not opened.is_damaged
    assert opened.kept_from == 0
    assert isinstance(decode(opened.frames[0]), Mark)
    again.write(5)
    again.close()
    assert again.zones.position == mark.position + 50
    assert [record.position for record in LogReader(tmp_path).records()] == list(range(350))


def test_an_empty_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a" / "b", Answers())
    assert store.opened.frames == ()
    assert (store.opened.kept_from, store.opened.is_damaged) == (0, False)
    store.close()
    store.close()
    assert os.listdir(tmp_path / "a" / "b") == ["lock"]


def test_every_opening_begins_a_segment_and_gives_back_what_it_did_not_use(tmp_path: Path) -> None:
    for life in (1, 2, 3):
        replica = LoggingReplica(tmp_path, life=life, segment_bytes=1024 * 1024)
        replica.write(1)
        replica.close()
    assert segment_numbers(tmp_path) == [1, 2, 3]
    assert all((tmp_path / segment_name(number)).stat().st_size < 5000 for number in (1, 2, 3))
    header = read_header(tmp_path / segment_name(3))
    assert (header.processor, header.cluster, header.disk) == (PROCESSOR, CLUSTER, DISK)


def test_a_log_has_one_owner_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path, Answers())
    with pytest.raises(StorageError, match=f"in use by the process with pid {os.getpid()}: stop it"):
        open_store(tmp_path, Answers())
    store.close()
    open_store(tmp_path, Answers()).close()


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"cluster": 78}, "log of cluster_id = 77, and this node has cluster_id = 78: correct cluster_id"),
        ({"processor": 4}, "log of processor = 3, and this node has processor = 4: correct processor"),
    ],
)
def test_anothers_log_is_refused(tmp_path: Path, other: dict[str, int], text: str) -> None:
    """Another cluster's, and a copy of another processor's. It is left as it is."""
    LoggingReplica(tmp_path).close()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageError, match=text):
        open_store(tmp_path, Answers(), **other)
    assert sorted(tmp_path.iterdir()) == before
    LoggingReplica(tmp_path, life=2).close()


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.log.segments.VERSION", 2)
    LoggingReplica(tmp_path).close()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="has format 2 and this program knows format 1: use the version"):
        open_store(tmp_path, Answers())


def test_newer_frames_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.corel.zones.FORMAT", 2)
    LoggingReplica(tmp_path).close()
    with pytest.raises(StorageError, match=r"frames of format 2 .* use the version"):
        open_store(tmp_path, Answers())


def test_a_file_that_never_became_a_segment_is_removed(tmp_path: Path) -> None:
    LoggingReplica(tmp_path).close()
    left = tmp_path / (segment_name(2) + ".new")
    left.write_bytes(b"TOTEMLOG and more")
    LoggingReplica(tmp_path, life=2).close()
    assert not left.exists()
    assert check(tmp_path).is_good


# Damage


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    for _ in range(5):
        replica.write(1)
        replica.sync()
    replica.close()
    path = last_segment(tmp_path)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 3)  # of the last frame, a green line

    again = LoggingReplica(tmp_path, life=2)
    assert not again.store.opened.is_damaged
    assert again.frames_found == replica.zones.frames - 1
    again.green()
    again.close()
    report = check(tmp_path)
    assert report.is_good, report.all_problems
    assert report.position == 50
    assert "torn tail" in report.segments[0].notes[0]


def test_damage_amid_the_last_segment(tmp_path: Path) -> None:
    """The log is what is before it, and says so: the disk must not count as what it was."""
    replica = LoggingReplica(tmp_path)
    for _ in range(5):
        replica.write(1)
        replica.sync()
    replica.close()
    path = last_segment(tmp_path)
    offsets = frames_of(path)
    flip(path, offsets[-4][1] - 1)

    again = LoggingReplica(tmp_path, life=2)
    assert again.store.opened.is_damaged
    assert "cannot be read" in again.store.opened.damage
    assert again.frames_found == replica.zones.frames - 4
    again.step(Identified(DISK + 1))
    again.write(3)
    again.close()

    third = LoggingReplica(tmp_path, life=3)
    assert not third.store.opened.is_damaged, "it is another disk by now"
    third.close()
    report = check(tmp_path)
    assert report.is_good, report.all_problems
    assert "went on from there as a new disk" in report.segments[0].notes[0]
    assert len(list(LogReader(tmp_path).records())) == report.position


def test_a_mark_that_cannot_be_read(tmp_path: Path) -> None:
    """The segment before has a state too."""
    for life in (1, 2):
        replica = LoggingReplica(tmp_path, life=life)
        replica.write(3)
        replica.close()
        found = replica.frames_found
    path = last_segment(tmp_path)
    flip(path, frames_of(path)[0][0] + 30)
    again = LoggingReplica(tmp_path, life=3)
    assert again.store.opened.is_damaged
    assert again.frames_found == found
    assert path.with_name(path.name + ".damaged").exists()
    again.write(3)
    again.close()
    assert check(tmp_path).is_good


def test_a_log_of_which_nothing_can_be_read(tmp_path: Path) -> None:
    LoggingReplica(tmp_path).close()
    flip(last_segment(tmp_path), 20)
    with pytest.raises(StorageError, match="put back a copy of the directory; or move it away"):
        open_store(tmp_path, Answers())


def test_what_a_killed_process_had_not_synced_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LoggingReplica(tmp_path).close()
    path = last_segment(tmp_path)
    synced = []
    sync = os.fdatasync
    monkeypatch.setattr(
        os, "fdatasync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")) or sync(file)
    )
    store = open_store(tmp_path, Answers())
    assert str(path) in synced
    store.close()


# Appending


def test_all_that_waits_is_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    sync = log_files.SegmentFile.sync

    def slow(file: log_files.SegmentFile) -> None:
        gate.wait()
        sync(file)

    monkeypatch.setattr(log_files.SegmentFile, "sync", slow)
    replica = LoggingReplica(tmp_path, segment_bytes=1024 * 1024)
    replica.write(100)
    gate.set()
    replica.sync()
    assert replica.answers.tickets == sorted(replica.answers.tickets)
    assert len(replica.answers.tickets) == 101
    assert replica.store.stats.syncs <= 3
    replica.close()


def test_many_small_frames_at_once(tmp_path: Path) -> None:
    """More pieces than one call takes."""
    replica = LoggingReplica(tmp_path, segment_bytes=1024 * 1024)
    for _ in range(3000):
        replica.place([b"x" * 40])
    replica.green()
    replica.close()
    assert check(tmp_path).is_good
    assert replica.zones.position == 3000


def test_a_write_that_the_kernel_cuts_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwritev

    def short(file: int, buffers: Any, at: int) -> int:
        content = b"".join(buffers)
        return write(file, [content[: max(1, len(content) // 3)]], at)

    monkeypatch.setattr(log_files.os, "pwritev", short)
    monkeypatch.setattr(
        log_files.os,
        "pwrite",
        lambda file, content, at: write(file, [content[: max(1, len(content) // 2)]], at),
    )
    replica = LoggingReplica(tmp_path)
    replica.write(20, size=5000)
    replica.close()
    monkeypatch.undo()
    assert check(tmp_path).is_good
    assert len(list(LogReader(tmp_path).records())) == 200


def test_space_is_zeroed_ahead_of_what_is_written(tmp_path: Path) -> None:
    size = 8 * 1024 * 1024
    replica = LoggingReplica(tmp_path, segment_bytes=size)
    replica.write(5, size=1000)
    replica.sync()
    file = replica.store._writer._file
    assert file is not None
    wait_until(lambda: file._zeroed >= min(size, file.end + log_files.ZERO_AHEAD_BYTES))
    assert last_segment(tmp_path).stat().st_size == size
    replica.write(300, size=2000)
    replica.sync()
    following = replica.store._writer._files
    wait_until(lambda: following._next is not None)
    replica.close()
    assert check(tmp_path).is_good


def test_large_writes_are_not_zeroed_ahead_and_small_ones_are_again(tmp_path: Path) -> None:
    file = log_files.SegmentFile(tmp_path, 1, 16 * 1024 * 1024, sync=True)
    large = bytes(4 * log_files.ZEROED_WRITE_BYTES_MAX)
    for _ in range(8):
        file.write([large])
    assert not file.wants_zeros
    assert not file.zero_more()
    for _ in range(20):
        file.write([b"small"])
    assert file.wants_zeros
    assert file.zero_more()
    assert file._zeroed == file.end + log_files.ZERO_STEP_BYTES
    file.remove()


def test_old_segments_leave_the_page_cache(tmp_path: Path) -> None:
    size = 1024 * 1024
    replica = LoggingReplica(tmp_path, segment_bytes=size)
    while len(segment_numbers(tmp_path)) < log_files.CACHED_SEGMENTS + 3:
        replica.write(100, size=5000)
        replica.sync()
    paths = [tmp_path / segment_name(number) for number in segment_numbers(tmp_path)]
    old, new = paths[: -log_files.CACHED_SEGMENTS], paths[-log_files.CACHED_SEGMENTS :]
    # A page may be left of each: where the file was cut, which is not on disk yet.
    wait_until(lambda: all(cached_pages(path) <= 1 for path in old))
    assert all(cached_pages(path) > 10 for path in new)
    replica.close()
    assert check(tmp_path).is_good


def test_a_segment_that_was_trimmed_is_not_looked_for(tmp_path: Path) -> None:
    log_files.drop_cached(tmp_path / segment_name(1))


# Disks that fail


def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    replica = LoggingReplica(tmp_path)
    replica.sync()
    monkeypatch.setattr(log_files.SegmentFile, "sync", lambda file: gate.wait())
    replica.write(1)
    replica.store.close(wait_s=0.05)
    with pytest.raises(StorageError, match="in use"):
        open_store(tmp_path, Answers())
    gate.set()
    replica.store.close()
    open_store(tmp_path, Answers()).close()


def failing(number: int, times: int = 1, then: Callable[..., Any] = os.getpid) -> Any:
    left = [times]

    def fail(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return then(*arguments)

    return fail


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (
            errno.ENOSPC,
            StorageFullError,
            "the disk is full: free some space.*`totem log hold NAME --release`",
        ),
        (errno.EDQUOT, StorageFullError, "the disk is full: free some space"),
        (errno.EROFS, StorageError, "read-only: look at the kernel's messages"),
        (errno.EIO, StorageError, "could not write .* Check it, or replace it"),
    ],
)
@pytest.mark.parametrize("step", ["write", "sync"])
def test_a_failure_is_told_once_and_nothing_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, kind: type, text: str
) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(3)
    replica.sync()
    acknowledged = list(replica.answers.tickets)
    frames = replica.zones.frames
    monkeypatch.setattr(
        log_files.SegmentFile, step, failing(number, then=getattr(log_files.SegmentFile, step))
    )
    for _ in range(4):
        replica.write(1)
    replica.answers.wait(lambda: replica.answers.failures)
    replica.write(1)
    replica.store.close()
    (failure,) = replica.answers.failures
    assert type(failure) is kind
    with pytest.raises(kind, match=text):
        raise failure
    assert replica.answers.tickets == acknowledged

    again = LoggingReplica(tmp_path, life=2)
    assert again.frames_found >= frames
    again.write(2)
    again.close()
    assert check(tmp_path).is_good


def test_a_full_disk_is_told_when_the_log_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files.os, "posix_fallocate", failing(errno.ENOSPC, then=os.posix_fallocate))
    with pytest.raises(StorageFullError, match="free some space"):
        open_store(tmp_path, Answers())
    open_store(tmp_path, Answers()).close()


def test_a_disk_that_is_full_at_the_next_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(1)
    replica.sync()
    monkeypatch.setattr(log_files.os, "posix_fallocate", failing(errno.ENOSPC, 1000))
    while not replica.answers.failures:
        replica.write(5, size=1000)
        threading.Event().wait(0.001)
    replica.store.close()
    assert isinstance(replica.answers.failures[0], StorageFullError)
    assert replica.answers.failures[0].may_pass
    monkeypatch.undo()
    again = LoggingReplica(tmp_path, life=2)
    again.write(1)
    again.close()
    assert check(tmp_path).is_good


def test_a_mistake_in_the_writer_is_a_failure_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = LoggingReplica(tmp_path)
    replica.sync()
    monkeypatch.setattr(log_writer, "frame_head", failing(0))
    replica.write(1)
    replica.answers.wait(lambda: replica.answers.failures)
    replica.store.close()


# Recalling and trimming


def test_recall(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(200, size=500)
    replica.sync()
    start = 0
    ids: list[RunId] = []
    while start < 201:
        answer = recall(replica, start)
        assert answer.mark is None
        assert len(answer.runs) == 1 or sum(map(len, answer.runs)) <= 20_000
        ids += [unpack_run(run).id for run in answer.runs]
        start += len(answer.runs)
    assert ids == replica.places
    assert len(recall(replica, 17, 1).runs) == 1, "at least one"
    replica.close()


def test_recalls_in_turn(tmp_path: Path) -> None:
    """Several replicas that catch up: each goes on where it was."""
    replica = LoggingReplica(tmp_path)
    replica.write(120, size=500)
    replica.sync()
    places = [0, 30, 30, 60]
    while min(places) < 121:
        for index, start in enumerate(places):
            if start < 121:
                answer = recall(replica, start)
                got = [unpack_run(run).id for run in answer.runs]
                assert got == replica.places[start : start + len(got)]
                places[index] += len(got)
    replica.close()


def test_what_is_not_on_disk_yet_is_waited_for(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(3)
    replica.sync()
    replica.store.recall(1, 4, 1000)
    replica.store.recall(2, 0, 1000)
    replica.answers.wait(lambda: 2 in replica.answers.recalled)
    assert 1 not in replica.answers.recalled
    replica.write(1)
    replica.answers.wait(lambda: 1 in replica.answers.recalled)
    assert unpack_run(replica.answers.recalled[1].runs[0]).id == replica.places[4]
    replica.close()


def test_trim(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path)
    replica.write(400, size=500)
    replica.sync()
    size = replica.store.bytes_on_disk
    replica.store.trim(0)
    assert segment_numbers(tmp_path)[0] == 1
    replica.store.trim(200)
    wait_until(lambda: segment_numbers(tmp_path)[0] > 1)
    wait_until(lambda: not replica.store._recaller._removed)
    first = read_header(tmp_path / segment_name(segment_numbers(tmp_path)[0]))
    following = read_header(tmp_path / segment_name(segment_numbers(tmp_path)[1]))
    assert first.green_runs <= 200 < following.green_runs
    assert replica.store.kept_from == first.green_runs
    assert replica.store.bytes_on_disk < size
    answer = recall(replica, 0)
    assert answer.runs == ()
    mark = decode(answer.mark)
    assert isinstance(mark, Mark)
    assert mark.green_runs == first.green_runs
    assert unpack_run(recall(replica, first.green_runs).runs[0]).id == replica.places[first.green_runs]
    replica.store.trim(10**9)
    wait_until(lambda: len(segment_numbers(tmp_path)) == 1)  # the last stays
    replica.close()

    again = LoggingReplica(tmp_path, life=2)
    assert again.store.opened.kept_from > 200
    again.close()
    assert check(tmp_path).is_good
    with pytest.raises(LogTrimmedError, match="the log begins with position"):
        list(LogReader(tmp_path).runs(0))


def test_what_a_hold_keeps(tmp_path: Path) -> None:
    """So much goes when it is released."""
    replica = LoggingReplica(tmp_path)
    replica.write(400, size=500)
    replica.sync()
    store, end, size = replica.store, replica.zones.position, replica.store.bytes_on_disk
    for hold, keep_bytes in ((0, 0), (0, 100_000), (end // 2, 0), (end // 2, 100_000)):
        with_hold = size_after_trim(tmp_path, store, hold, keep_bytes)
        without = size_after_trim(tmp_path, store, end, keep_bytes)
        assert store.held_bytes(hold, end, keep_bytes) == with_hold - without
    assert store.held_bytes(0, end, 100_000) > size // 3
    assert store.held_bytes(end, end, 0) == store.held_bytes(0, end, 2 * size) == 0
    replica.close()


def size_after_trim(directory: Path, store: LogStore, position: int, keep_bytes: int) -> int:
    """Of a copy."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    trimmed = open_store(copy, Answers())
    trimmed._headers = list(store._headers)
    trimmed.trim_to(position, keep_bytes)
    size = sum((copy / segment_name(header.number)).stat().st_size for header in trimmed._headers)
    trimmed.close()
    shutil.rmtree(copy)
    return size


def begin_at(replica: LoggingReplica, runs: int) -> None:
    """The replica gets another's mark, that many runs ahead."""
    zones = Zones()
    zones.apply(replica.zones.mark())
    ahead = zones.mark()
    fields = {name: getattr(ahead, name) for name in ahead.__struct_fields__}
    fields |= {
        "green_runs": ahead.green_runs + runs,
        "position": ahead.position + 10 * runs,
        "yellow": (),
        "red": (),
    }
    replica.step(Begun(Mark(**fields)))


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("later_segments", [0, 3])
def test_a_replica_that_began_with_anothers_mark(
    tmp_path: Path, is_reopened: bool, later_segments: int
) -> None:
    """Nobody can read over the gap, so what is before it goes; the mark is what others can begin with."""
    replica = LoggingReplica(tmp_path)
    replica.write(200, size=500)
    before = replica.zones.green_runs
    begin_at(replica, 1000)
    replica.flush()
    place = replica.zones.green_runs
    position = replica.zones.position
    assert place == before + 1000
    replica.sync()
    wait_until(lambda: len(segment_numbers(tmp_path)) == 1)
    while len(segment_numbers(tmp_path)) < 1 + later_segments:
        replica.write(10, size=500)
        replica.sync()
    replica.write(10, size=500)
    replica.sync()
    if is_reopened:
        replica.close()
        replica = LoggingReplica(tmp_path, life=2)
        assert replica.store.opened.kept_from == place
    assert replica.store.kept_from == place
    for start in (0, before, place - 1):
        mark = decode(recall(replica, start).mark)
        assert isinstance(mark, Mark)
        assert mark.green_runs >= place
    assert unpack_run(recall(replica, place).runs[0]).id.number == 201
    replica.close()
    assert check(tmp_path).is_good
    reader = LogReader(tmp_path)
    with pytest.raises(LogTrimmedError):
        list(reader.runs(position - 1))
    assert [record.position for record in reader.records(position)][:3] == [position + i for i in range(3)]
    assert reader.locate(RunId(PROCESSOR, 1, 205)) is not None


def test_damage_in_an_older_segment_is_passed_over(tmp_path: Path) -> None:
    """Who asks for it gets the mark behind it."""
    replica = LoggingReplica(tmp_path)
    replica.write(400, size=500)
    replica.close()
    path = tmp_path / segment_name(2)
    flip(path, frames_of(path)[3][0] + 40)
    replica = LoggingReplica(tmp_path, life=2)
    start = read_header(path).green_runs
    answer = recall(replica, start, 10**9)
    assert answer.mark is not None
    mark = decode(answer.mark)
    assert isinstance(mark, Mark)
    assert mark.green_runs == read_header(tmp_path / segment_name(3)).green_runs
    assert recall(replica, mark.green_runs).runs
    assert not replica.answers.failures
    (text,) = replica.answers.damage
    assert f"{path} is damaged: green runs" in text
    assert "move its log's directory away and start it" in text
    replica.close()


def test_a_copy_of_the_directory_can_be_opened_and_checked(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path / "a")
    replica.write(100, size=500)
    replica.sync()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert check(tmp_path / "b").is_good
    LoggingReplica(tmp_path / "b", life=2).close()
    replica.close()


def test_without_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, 1000))
    replica = LoggingReplica(tmp_path, sync=False)
    replica.write(100, size=500)
    replica.close()
    assert check(tmp_path).is_good


def test_begun_frames_are_known_by_their_first_bytes() -> None:
    mark = Zones().mark()
    encoded = encode(Begun(mark))
    assert encoded.startswith(log_writer.BEGUN)
    assert encoded[len(log_writer.BEGUN) :] == encode(mark)
