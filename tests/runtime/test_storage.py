"""What was acknowledged is there after any crash; what is wrong with the disk is said and never hidden."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import totempole
from totempole.errors import StorageError, StorageFullError, TotemError
from totempole.runtime import storage as storage_module
from totempole.runtime.storage import DATABASE, LOCK, WRITES_MAX, Storage, StorageWriter
from totempole.srp.stable import EPOCH_S, first_numbers

NOW_S = EPOCH_S + 200_000_000
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def opened(directory: Path, processor: int = 7, cluster_id: int = 1) -> Storage:
    return Storage.open(directory, processor, cluster_id, wall_clock=lambda: NOW_S)


def stored(directory: Path) -> dict[str, int]:
    with opened(directory) as storage:
        return storage.values


def refused(directory: Path, match: str, processor: int = 7, cluster_id: int = 1) -> str:
    with pytest.raises(StorageError, match=match) as caught:
        opened(directory, processor, cluster_id)
    assert isinstance(caught.value, TotemError)
    assert str(directory) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A storage with values that fill some pages."""
    place = tmp_path / "node"
    with opened(place) as storage:
        storage.write({"ring_seq": 40, **{f"filler {number}": number for number in range(1_000)}})
    return place


# The ordinary


FIRST = first_numbers(200_000_000)


def test_the_first_start_takes_its_numbers_from_the_wall_clock(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    assert stored(place) == FIRST
    with Storage.open(place, 7, 1, wall_clock=lambda: NOW_S + 5) as storage:
        assert storage.values == FIRST
        assert not storage.lost


def test_first_numbers_are_above_what_a_former_life_can_have_used() -> None:
    """A second later each has gone up by more than a cluster uses in that second."""
    later = first_numbers(200_000_001)
    gained = {name: later[name] - FIRST[name] for name in FIRST}
    assert gained == {"incarnation": 1, "ring_seq": 4 * 64, "timestamp": 2**20}
    assert FIRST["ring_seq"] % 4 == 0
    assert "future_ring_seq" not in FIRST


LIFE = {"incarnation": 9, "ring_seq": 40, "future_ring_seq": 44, "timestamp": 500}


def test_a_database_that_is_gone_is_begun_anew_by_the_clock(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.write(LIFE)
    (tmp_path / DATABASE).unlink()
    with opened(tmp_path) as storage:
        assert storage.values == FIRST
        assert storage.lost
    with opened(tmp_path) as storage:
        assert not storage.lost


@pytest.mark.parametrize("name", sorted(set(LIFE) - {"future_ring_seq"}))
def test_a_life_with_a_number_missing_is_refused(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as storage:
        storage.write(LIFE)
        forget(storage, name)
    refused(tmp_path, rf"is damaged \({name} is missing\) and was left as it is")


@pytest.mark.parametrize("name", sorted(FIRST))
def test_a_number_missing_before_the_first_life_is_taken_from_the_clock(tmp_path: Path, name: str) -> None:
    """A directory that an earlier version has made, and never used, holds an incarnation only."""
    with opened(tmp_path) as storage:
        forget(storage, name)
    with Storage.open(tmp_path, 7, 1, wall_clock=lambda: NOW_S + 5) as storage:
        assert storage.values == FIRST | {name: first_numbers(200_000_005)[name]}
    assert stored(tmp_path) == storage.values


@pytest.mark.parametrize(
    ("name", "value"), [("ring_seq", 2**62), ("timestamp", -1), ("incarnation", 2**32), ("timestamp", 2**64)]
)
def test_a_number_beyond_its_range_is_refused(tmp_path: Path, name: str, value: int) -> None:
    with opened(tmp_path) as storage:
        storage.write(LIFE | {name: value})
    refused(tmp_path, f"{name} = {value} is beyond its range")


def forget(storage: Storage, name: str) -> None:
    """Takes a number away, and makes the checksum fit."""
    database = storage._database
    database.execute("DELETE FROM kv WHERE name = ?", (name,))
    del storage.values[name]
    database.execute("UPDATE identity SET checksum = ?", (storage_module._checksum(storage.values),))


@pytest.mark.parametrize("now_s", [0, EPOCH_S, 2**40])
def test_a_first_start_by_a_wrong_clock_is_refused_and_leaves_nothing(tmp_path: Path, now_s: int) -> None:
    with pytest.raises(StorageError, match=r"the wall clock says .*: set the clock"):
        Storage.open(tmp_path, 7, 1, wall_clock=lambda: now_s)
    assert not (tmp_path / DATABASE).exists()
    assert stored(tmp_path) == FIRST


def test_what_is_written_is_there_after_reopening(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.write({"ring_seq": 4, "incarnation": 9})
        storage.write({"ring_seq": 8})
        assert storage.values == FIRST | {"ring_seq": 8, "incarnation": 9}
    assert stored(tmp_path) == FIRST | {"ring_seq": 8, "incarnation": 9}


@given(values=st.dictionaries(st.text(), st.integers(-(2**70), 2**70), max_size=8))
def test_any_names_and_numbers(tmp_path_factory: pytest.TempPathFactory, values: dict[str, int]) -> None:
    place = tmp_path_factory.mktemp("storage")
    with opened(place) as storage:
        before = storage.values
        storage.write(values)
    assert stored(place) == {**before, **values}


def test_it_is_write_ahead_logged_and_fully_synchronous(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        pragmas = [
            storage._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "locking_mode")
        ]
    assert pragmas == ["wal", 2, "exclusive"]


def test_closing_twice_and_writing_after(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.close()
    storage.close()
    with pytest.raises(StorageError, match="the storage is closed"):
        storage.write({"ring_seq": 1})


# Whose it is


def test_another_processor_is_refused(directory: Path) -> None:
    refused(directory, "belongs to processor = 7, and this node has processor = 8", processor=8)
    assert stored(directory)["ring_seq"] == 40


def test_another_cluster_is_refused(directory: Path) -> None:
    refused(directory, "belongs to cluster_id = 1, and this node has cluster_id = 2", cluster_id=2)


def test_another_format_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "FORMAT_VERSION", 2)
    refused(directory, "has format 1 and this program knows format 2")


def test_a_second_opener_in_this_process(directory: Path) -> None:
    with opened(directory):
        refused(directory, f"in use by the process with pid {os.getpid()}: stop it")
    assert stored(directory)["ring_seq"] == 40


HOLDER = """
import sys
from pathlib import Path
from totempole.runtime.storage import Storage
storage = Storage.open(Path(sys.argv[1]), 7, 1)
print("open", flush=True)
sys.stdin.read()
"""


def python(program: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(totempole.__file__).parents[1])}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", program, *map(str, arguments)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_a_second_opener_in_another_process(directory: Path) -> None:
    with python(HOLDER, directory) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        refused(directory, f"in use by the process with pid {holder.pid}:")
        holder.kill()
    assert stored(directory)["ring_seq"] == 40  # the lock went with its holder


def test_another_program_that_has_the_database_open(directory: Path) -> None:
    intruder = sqlite3.connect(directory / DATABASE, isolation_level=None)
    intruder.execute("BEGIN EXCLUSIVE")
    refused(directory, "another program has the database open")
    intruder.close()
    assert stored(directory)["ring_seq"] == 40


# Damage


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.name != LOCK}


def damage(directory: Path, offset: int, data: bytes) -> None:
    with open(directory / DATABASE, "r+b") as file:
        file.seek(offset)
        file.write(data)


def refused_as_damaged(directory: Path) -> None:
    before = contents(directory)
    for _ in range(2):  # the first look repairs nothing
        refused(directory, "is damaged .* and was left as it is: put back a copy")
    assert contents(directory) == before


def test_a_damaged_header(directory: Path) -> None:
    damage(directory, 0, b"no database at all")
    refused_as_damaged(directory)


def test_a_damaged_page(directory: Path) -> None:
    pages = (directory / DATABASE).stat().st_size // 4096
    assert pages > 3
    damage(directory, 3 * 4096, os.urandom(64) * 64)
    refused_as_damaged(directory)


def test_a_changed_digit(directory: Path) -> None:
    """The structure is sound, the value is not."""
    data = (directory / DATABASE).read_bytes()
    at = data.index(b"ring_seq40")
    damage(directory, at, b"ring_seq39")
    refused_as_damaged(directory)


def test_a_value_that_is_gone(directory: Path) -> None:
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("DELETE FROM kv WHERE name = 'ring_seq'")
    database.close()
    refused(directory, "the values do not fit their checksum")


def test_a_value_that_is_no_number(directory: Path) -> None:
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("UPDATE kv SET value = 'many' WHERE name = 'ring_seq'")
    database.close()
    refused(directory, "is damaged")


def test_an_owner_that_is_gone(directory: Path) -> None:
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("DELETE FROM identity")
    database.close()
    refused(directory, "it names 0 owners, not one")


def test_another_program_s_database(directory: Path) -> None:
    (directory / DATABASE).unlink()
    with sqlite3.connect(directory / DATABASE) as database:
        database.execute("CREATE TABLE addresses (name TEXT)")
    database.close()
    refused(directory, "is damaged .*no such table")


def test_a_truncated_file_never_gives_partial_values(directory: Path) -> None:
    whole = (directory / DATABASE).read_bytes()
    lengths = [0, 1, 50, 99, 100, 512, *range(4095, len(whole), 4096), *range(4096, len(whole), 4096)]
    for length in lengths:
        (directory / DATABASE).write_bytes(whole[:length])
        refused_as_damaged(directory)
    (directory / DATABASE).write_bytes(whole)
    assert stored(directory)["ring_seq"] == 40


def test_a_log_without_its_database(directory: Path) -> None:
    (directory / f"{DATABASE}-wal").write_bytes(b"something")
    (directory / DATABASE).unlink()
    refused(directory, "is missing, but its write-ahead log storage.sqlite-wal is there")
    assert not (directory / DATABASE).exists()


def test_a_first_start_that_was_cut_off_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / f"{DATABASE}.new").write_bytes(b"half of a datab")
    assert stored(tmp_path) == FIRST
    assert not (tmp_path / f"{DATABASE}.new").exists()


# A disk that is full or cannot be written


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for 192 KiB."""
    if not ROOT:
        pytest.skip("mounting a small file system takes root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", place], check=False)
    if mounted.returncode:
        pytest.skip("this machine lets root mount nothing")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    return ballast


def write_for_ever(storage: Storage) -> None:
    for number in count(1):
        storage.write({"written": number, "twice": 2 * number, "text " + "x" * number: 1})


def test_a_full_disk_fails_the_write_and_all_after_it(small_disk: Path) -> None:
    storage = opened(small_disk)
    ballast = fill(small_disk)
    full = "the disk is full and the write did not take place: free some space"
    with pytest.raises(StorageFullError, match=full):
        write_for_ever(storage)
    written = storage.values.get("written", 0)
    with pytest.raises(StorageError, match="an earlier write failed"):
        storage.write({"written": 1})
    storage.close()
    ballast.unlink()
    values = stored(small_disk)
    assert (values.get("written", 0), values.get("twice", 0)) == (written, 2 * written)


def test_a_full_disk_at_the_first_start(small_disk: Path) -> None:
    ballast = fill(small_disk)
    refused(small_disk, "the disk is full")
    ballast.unlink()
    assert stored(small_disk) == FIRST


def write_thrice(place: Path) -> int:
    """The last write acknowledged; a full disk is the only trouble allowed."""
    acknowledged = 0
    with suppress_full_disk(), opened(place) as storage:
        for number in range(1, 4):
            storage.write({"written": number})
            acknowledged = number
    return acknowledged


@contextmanager
def suppress_full_disk() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        if "the disk is full" not in str(error):
            raise


def test_wherever_the_room_runs_out_nothing_acknowledged_is_lost(small_disk: Path) -> None:
    """At every write of a first start and of the three writes after it."""
    found = set()
    room_bytes = 192 * 1024
    for free_bytes in range(0, room_bytes, 4096):
        place = small_disk / f"with {free_bytes}"
        place.mkdir()
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * (room_bytes - free_bytes)) if free_bytes else fill(small_disk)
        acknowledged = write_thrice(place)
        found.add(acknowledged)
        ballast.unlink()
        assert stored(place).get("written", 0) == acknowledged
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
    assert {0, 3} <= found


def test_a_read_only_file_system(small_disk: Path) -> None:
    opened(small_disk).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    refused(small_disk, "cannot be used for stable storage .*Read-only file system.*name another directory")
    refused(small_disk / "deeper", "cannot be used for stable storage")


def test_a_directory_that_may_not_be_written(directory: Path, tmp_path: Path) -> None:
    if ROOT:
        pytest.skip("root may write everywhere; the read-only file system tests the same")
    directory.chmod(0o500)
    (directory / LOCK).chmod(0o400)
    refused(directory, "cannot be used for stable storage")
    directory.chmod(0o700)


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("here already")
    refused(place, "cannot be used for stable storage")


# A process that is killed

WRITER = """
import os, sys
from pathlib import Path
from totempole.runtime.storage import Storage, StorageWriter
storage = Storage.open(Path(sys.argv[1]), 7, 1)
first = storage.values.get("written", 0) + 1
def values(number):
    return {"written": number, "minus": -number, "square": number * number}
def tell(number):
    os.write(1, b"%d\\n" % number)
if sys.argv[2] == "direct":
    for number in range(first, first + 1_000_000):
        storage.write(values(number))
        tell(number)
else:
    import threading
    room = threading.Semaphore(20)
    def done(number):
        tell(number)
        room.release()
    writer = StorageWriter(storage, done, lambda error: os._exit(1))
    for number in range(first, first + 1_000_000):
        room.acquire()
        writer.submit(number, values(number))
"""


@pytest.mark.nodes
@pytest.mark.parametrize("how", ["direct", "by the writer"])
def test_a_killed_writer_has_what_it_acknowledged_and_a_whole_number_of_writes(
    tmp_path: Path, how: str
) -> None:
    acknowledged = 0
    for lines in (1, 40, 300):
        with python(WRITER, tmp_path, how) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                acknowledged = int(line)
        assert writer.returncode == -signal.SIGKILL
        values = stored(tmp_path)
        number = values["written"]
        assert number >= acknowledged
        assert (values["minus"], values["square"]) == (-number, number * number)


# The writer's thread


class Told:
    """Keeps what a writer's callbacks say, and lets a test wait for it."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.errors: list[StorageError] = []
        self.failed = threading.Event()

    def on_failed(self, error: StorageError) -> None:
        self.errors.append(error)
        self.failed.set()


class SlowStorage(Storage):
    """Writes wait for `go`; each batch is noted."""

    go: threading.Event
    begun: threading.Event
    batches: list[dict[str, int]]

    def write(self, values: dict[str, int]) -> None:  # type: ignore[override]
        self.begun.set()
        assert self.go.wait(60)
        self.batches.append(values)
        super().write(values)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowStorage]:
    storage = SlowStorage.open(tmp_path / "slow", 7, 1)
    storage.go, storage.begun, storage.batches = threading.Event(), threading.Event(), []
    yield storage
    storage.close()


def test_what_queued_up_is_one_transaction(slow: SlowStorage) -> None:
    told = Told()
    writer = StorageWriter(slow, told.tickets.append, told.on_failed)
    writer.submit(1, {"written": 1})
    assert slow.begun.wait(60)
    for ticket in range(2, 10):
        writer.submit(ticket, {"written": ticket, f"of {ticket}": 0})
    assert told.tickets == []
    slow.go.set()
    writer.close()
    assert told.tickets == list(range(1, 10))
    assert len(slow.batches) == 2
    assert slow.values["written"] == 9
    assert told.errors == []


def test_it_holds_so_many_writes_and_no_more(slow: SlowStorage) -> None:
    told = Told()
    writer = StorageWriter(slow, told.tickets.append, told.on_failed)
    for ticket in range(WRITES_MAX):
        writer.submit(ticket, {"written": ticket})
    with pytest.raises(StorageError, match=f"{WRITES_MAX} writes wait for the disk"):
        writer.submit(WRITES_MAX, {"written": WRITES_MAX})
    slow.go.set()
    writer.close()
    assert told.tickets == list(range(WRITES_MAX))
    assert slow.values["written"] == WRITES_MAX - 1


def test_closing_drains_and_then_refuses(tmp_path: Path) -> None:
    told = Told()
    with opened(tmp_path) as storage:
        writer = StorageWriter(storage, told.tickets.append, told.on_failed)
        for ticket in range(30):
            writer.submit(ticket, {"written": ticket})
        writer.close()
        writer.close()
        assert told.tickets == list(range(30))
        with pytest.raises(StorageError, match="the writer is closed"):
            writer.submit(30, {})
    assert stored(tmp_path)["written"] == 29


def test_a_failure_is_told_once_and_nothing_is_acknowledged_after_it(slow: SlowStorage) -> None:
    told = Told()
    writer = StorageWriter(slow, told.tickets.append, told.on_failed)
    slow._database.execute("PRAGMA max_page_count=1")  # SQLite's own full disk
    writer.submit(1, {"text " + "x" * 9_000: 1})
    assert slow.begun.wait(60)
    writer.submit(2, {"written": 2})
    slow.go.set()
    assert told.failed.wait(60)
    with pytest.raises(StorageError, match=r"an earlier write failed .*the disk is full"):
        writer.submit(3, {"written": 3})
    writer.close()
    assert (told.tickets, len(told.errors)) == ([], 1)
    assert "written" not in slow.values


def test_a_callback_that_raises_stops_the_writer_aloud(tmp_path: Path) -> None:
    told = Told()

    def broken(_ticket: int) -> None:
        raise ZeroDivisionError("in the callback")

    with opened(tmp_path) as storage:
        writer = StorageWriter(storage, broken, told.on_failed)
        writer.submit(1, {"written": 1})
        assert told.failed.wait(60)
        writer.close()
    assert "the writer stopped: ZeroDivisionError: in the callback" in str(told.errors[0])
