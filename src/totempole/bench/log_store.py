"""The log's store measured beside SQLite, on one disk and in turns: other programs' writes hit both alike.

SQLite is given the best of what suits a log: WAL with `synchronous=FULL`, a run a row, and a thread that
commits all that waits at once, as the store's writer does. Both get runs that are encoded already, and both
may have several under way. A run counts when it is on disk.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from totempole.corel.frames import Colour, Frame, Greened, Placed, encode
from totempole.corel.run import Run, RunId, RunKind, Stamp, pack_records
from totempole.corel.zones import Zones
from totempole.errors import StorageError
from totempole.log.reader import LogReader
from totempole.runtime.log_store import SEGMENT_BYTES, LogStore

WARM_UP_S = 0.3
ROUND_S = 1.0
ROUNDS = 5
WINDOWS = (1, 4)
"""Runs under way."""
READ_ROWS, READ_BYTES, READ_RUN = 2_000_000, 100, 1000
UNDER_WAY_MAX = 64


class Load(NamedTuple):
    record_bytes: int
    records: int
    """Of a run."""

    @property
    def name(self) -> str:
        return f"{self.record_bytes} B x {self.records}"


LOADS = (Load(100, 1000), Load(1_000, 300), Load(10_000, 60))


@dataclass(frozen=True, slots=True)
class StoreResult:
    """Medians over rounds, but for `p99_ms`: of all runs of all rounds."""

    store: str
    load: Load
    window: int
    records_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Of a record."""

    @property
    def bytes_per_s(self) -> float:
        return self.records_per_s * self.load.record_bytes


@dataclass(frozen=True, slots=True)
class ReadResult:
    rows_per_s: float
    rows_per_cpu_s: float


class _Store(Protocol):
    def append(self, ticket: int, content: bytes) -> None: ...

    def close(self) -> None: ...


Done = Callable[[tuple[int, ...]], object]


def _raise(error: StorageError) -> None:
    raise error


class Segments:
    """The log's own store. Its marks are what a replica without keys and with nothing under way has."""

    name = "segments"

    def __init__(self, directory: Path, done: Done) -> None:
        self._store = LogStore.open(directory, 1, 1, appended=done, recalled=lambda _: None, failed=_raise)
        self._mark = Zones().mark()
        self._frames = 0
        self._bytes = SEGMENT_BYTES

    def append(self, ticket: int, content: bytes) -> None:
        is_segment = self._bytes >= SEGMENT_BYTES
        frames: tuple[bytes, ...] = (content,)
        if is_segment:
            self._bytes = 0
            frames = (encode(msgspec.structs.replace(self._mark, frames=self._frames + 1)), content)
        self._frames += len(frames)
        self._bytes += len(content)
        self._store.append(ticket, frames, is_segment)

    def close(self) -> None:
        self._store.close()


class Sqlite:
    name = "SQLite"

    def __init__(self, directory: Path, done: Done) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(
            directory / "log.sqlite", isolation_level=None, check_same_thread=False
        )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE log (sequence INTEGER PRIMARY KEY, content BLOB)")
        self._done = done
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def append(self, ticket: int, content: bytes) -> None:
        with self._changed:
            self._queue.append((ticket, content))
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        database = self._database
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closed)
                rows = list(self._queue)
                self._queue.clear()
            if not rows:
                return
            database.execute("BEGIN")
            database.executemany("INSERT INTO log (content) VALUES (?)", [(content,) for _, content in rows])
            database.execute("COMMIT")
            self._done(tuple([ticket for ticket, _ in rows]))


@dataclass(slots=True)
class _Round:
    runs_per_s: float
    latencies_s: list[float]
    cpu_s: float
    """Of a run."""


class _Meter:
    """Keeps a number of runs under way, and notes how long each took."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self._changed = threading.Condition()
        self._started: dict[int, float] = {}
        self._tickets = 0

    def done(self, tickets: tuple[int, ...]) -> None:
        now = time.perf_counter()
        with self._changed:
            self.latencies_s += [now - self._started.pop(ticket) for ticket in tickets]
            self._changed.notify()

    def run(self, store: _Store, contents: Sequence[bytes], window: int, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            with self._changed:
                self._changed.wait_for(lambda: len(self._started) < window)
                self._tickets += 1
                ticket = self._tickets
                self._started[ticket] = time.perf_counter()
            store.append(ticket, contents[ticket % len(contents)])
        with self._changed:
            self._changed.wait_for(lambda: not self._started)


def contents_of(load: Load, count: int = 8) -> list[bytes]:
    """Frames with runs of this size."""
    return [
        encode(Placed(_run(load, number, bytes([64 + number]) * load.record_bytes), Colour.YELLOW))
        for number in range(1, count + 1)
    ]


def _run(load: Load, number: int, payload: bytes) -> Run:
    body = pack_records("bench", [payload] * load.records)
    return Run(RunId(1, 1, number), Stamp(1, 1, number, 0), number, RunKind.RECORDS, load.records, body)


def _measure(
    make: Callable[[Path, Done], _Store], directory: Path, load: Load, window: int, seconds: float
) -> _Round:
    shutil.rmtree(directory, ignore_errors=True)
    contents = contents_of(load)
    meter = _Meter()
    store = make(directory, meter.done)
    try:
        meter.run(store, contents, window, WARM_UP_S)
        meter.latencies_s.clear()
        started, cpu = time.perf_counter(), time.process_time()
        meter.run(store, contents, window, seconds)
        elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu
    finally:
        store.close()
        shutil.rmtree(directory, ignore_errors=True)
    runs = len(meter.latencies_s)
    return _Round(runs / elapsed, meter.latencies_s, cpu / runs)


def compare_stores(
    directory: Path, loads: Sequence[Load] = LOADS, rounds: int = ROUNDS, seconds: float = ROUND_S
) -> list[StoreResult]:
    """In every round, each store once for every load and window."""
    makers: dict[str, Callable[[Path, Done], _Store]] = {Segments.name: Segments, Sqlite.name: Sqlite}
    found: dict[tuple[Load, int, str], list[_Round]] = {}
    for _ in range(rounds):
        for load in loads:
            for window in WINDOWS:
                for name, make in makers.items():
                    measured = _measure(make, directory / "store", load, window, seconds)
                    found.setdefault((load, window, name), []).append(measured)
    return [_result(*key, each) for key, each in found.items()]


def _result(load: Load, window: int, name: str, rounds: list[_Round]) -> StoreResult:
    latencies_s = sorted(latency for each in rounds for latency in each.latencies_s)
    return StoreResult(
        store=name,
        load=load,
        window=window,
        records_per_s=load.records * statistics.median(each.runs_per_s for each in rounds),
        p50_ms=1000 * statistics.median(latencies_s),
        p99_ms=1000 * latencies_s[int(0.99 * (len(latencies_s) - 1))],
        cpu_us=1e6 * statistics.median(each.cpu_s for each in rounds) / load.records,
    )


# Reading


def missing_for_reading() -> str:
    """Why reading cannot be measured here; empty when it can."""
    return "" if find_spec("pyarrow") else "install the package pyarrow (pip install '.[trace]' in a clone)"


def write_rows(directory: Path, rows: int = READ_ROWS) -> None:
    """A log of green runs, written as a replica does it."""
    load = Load(READ_BYTES, READ_RUN)
    under_way = threading.Semaphore(UNDER_WAY_MAX)
    store = LogStore.open(
        directory,
        1,
        1,
        appended=lambda tickets: under_way.release(len(tickets)),
        recalled=lambda _: None,
        failed=_raise,
        sync=False,
    )
    zones = Zones(recent_bytes=0)
    size = SEGMENT_BYTES
    for number in range(1, rows // READ_RUN + 1):
        frames: list[Frame] = []
        is_segment = size >= SEGMENT_BYTES
        if is_segment:
            frames.append(zones.mark())
            zones.frames += 1
            size = 0
        for frame in (Placed(_run(load, number, b"x" * READ_BYTES), Colour.YELLOW), Greened(number)):
            zones.apply(frame)
            frames.append(frame)
        encoded = tuple(map(encode, frames))
        size += sum(map(len, encoded))
        under_way.acquire()
        store.append(number, encoded, is_segment)
    store.close()


def measure_reading(directory: Path, rows: int = READ_ROWS, rounds: int = 4) -> ReadResult:
    """Green runs into record batches, checksums verified, from the page cache; the best of some rounds."""
    from totempole.log.arrow import to_batches

    shutil.rmtree(directory, ignore_errors=True)
    write_rows(directory, rows)
    best = ReadResult(0, 0)
    try:
        for _ in range(rounds):
            started, cpu = time.perf_counter(), time.process_time()
            count = sum(batch.num_rows for batch in to_batches(LogReader(directory).runs()))
            elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu
            assert count == rows, f"{count} rows were read"
            best = ReadResult(max(best.rows_per_s, rows / elapsed), max(best.rows_per_cpu_s, rows / cpu))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return best


def main() -> None:
    """Prints both tables, of stores in this directory."""
    directory = Path(sys.argv[1])
    print("           load window     store  records/s   MB/s  p50 ms  p99 ms  CPU us")
    for each in compare_stores(directory):
        print(
            f"{each.load.name:>15} {each.window:>6} {each.store:>9} {each.records_per_s:>10,.0f} "
            f"{each.bytes_per_s / 1e6:>6.0f} {each.p50_ms:>7.2f} {each.p99_ms:>7.2f} {each.cpu_us:>7.2f}"
        )
    if why := missing_for_reading():
        print(f"reading: {why}")
        return
    read = measure_reading(directory / "rows")
    print(
        f"reading: {read.rows_per_s / 1e6:.1f} M rows/s, {read.rows_per_cpu_s / 1e6:.1f} M per second of CPU"
    )


if __name__ == "__main__":
    main()
