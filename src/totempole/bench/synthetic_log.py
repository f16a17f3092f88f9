"""A log of any length, written as a replica writes its own, but without a node: to measure readers with.

Runs come from three origins in turn, and are green at once. A record is its position, eight bytes, and random
bytes behind it: no two records are the same, and nothing of them can be compressed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from totempole.corel.frames import (
    Agreed,
    Attempted,
    Colour,
    Committed,
    Frame,
    Greened,
    Identified,
    Placed,
    encode,
)
from totempole.corel.quorum import NO_FORMATION, Formation, ReplicaSet, Voter
from totempole.corel.run import Records, Run, RunId, RunKind, Stamp, pack_body, primary_run
from totempole.corel.zones import Zones
from totempole.errors import TotemError
from totempole.groups.packing import pack_joined
from totempole.log.segments import Header, frame_head, seed_of, segment_name
from totempole.runtime.log_store import SEGMENT_BYTES

LOG = "bench"
"""The name that all records have."""
RUN_RECORDS, RUN_BYTES = 1_000, 400_000
"""A run has so many records, or fewer, if these are large: a client packs no more into one."""
TOLD_RUNS = 1_000
REPLICAS = (1, 2, 3)
CLUSTER_ID = 7
NUMBER_BYTES = 8

_LOG_ID, _DISK, _LIFE = 0xBE7C4, 0xD15C, 1
_TIME_US, _RUN_US = 1_700_000_000_000_000, 1_000
"""Of the first run, and from one to the next."""
_POOL_BYTES = 16 * 1024 * 1024
"""Random bytes that runs take theirs from."""
_STEP_BYTES = 7_919 * 64
_FRAME_BYTES = 256
"""What a run costs on disk beside its payloads, at most."""


def log_bytes(rows: int, record_bytes: int) -> int:
    """About what such a log takes on disk."""
    return rows * record_bytes + rows // run_records(record_bytes) * _FRAME_BYTES


def run_records(record_bytes: int) -> int:
    return max(1, min(RUN_RECORDS, RUN_BYTES // record_bytes))


def check_room(directory: Path, wanted: int) -> None:
    """TotemError: the disk has not got so much left."""
    free = shutil.disk_usage(directory).free
    if free < wanted:
        raise TotemError(
            f"{directory} has {free / 1e9:,.1f} GB free, and {wanted / 1e9:,.1f} GB are needed: name another "
            "disk with --directory, or a smaller log with --rows"
        )


def write_log(
    directory: Path, rows: int, record_bytes: int, tell: Callable[[int], None] = lambda rows: None
) -> None:
    """`tell` hears now and then how many rows are written."""
    assert record_bytes >= NUMBER_BYTES, "a record has its number"
    writer = _Writer(directory)
    payloads = _Payloads(record_bytes)
    most = run_records(record_bytes)
    try:
        writer.found()
        for number, first in enumerate(range(0, rows, most), start=1):
            count = min(most, rows - first)
            batch = pack_joined(count, record_bytes, None, [payloads.take(first, count)])
            writer.append(number, count, batch)
            if number % TOLD_RUNS == 0:
                tell(first + count)
    finally:
        writer.close()


class _Payloads:
    def __init__(self, record_bytes: int) -> None:
        self._size = record_bytes
        most = run_records(record_bytes)
        self._pool = np.frombuffer(os.urandom(_POOL_BYTES + most * record_bytes), np.uint8)
        self._rows = np.empty((most, record_bytes), np.uint8)
        self._at = 0

    def take(self, first: int, count: int) -> memoryview:
        """Of records from this position on. Valid until the next are taken."""
        rows = self._rows[:count]
        self._at = (self._at + _STEP_BYTES) % _POOL_BYTES
        rows[:] = self._pool[self._at : self._at + count * self._size].reshape(count, self._size)
        numbers = np.arange(first, first + count, dtype=">u8")
        rows[:, :NUMBER_BYTES] = numbers.view(np.uint8).reshape(count, NUMBER_BYTES)
        return rows.data.cast("B")


class _Writer:
    """Segments of a replica's usual size, each synced when it is full."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._zones = Zones(recent_bytes=0)
        self._number = 0
        self._file = -1
        self._bytes = SEGMENT_BYTES

    def found(self) -> None:
        """As three replicas do it."""
        formation = Formation(1, REPLICAS)
        disks = {who: _DISK + who for who in REPLICAS}
        founding = ReplicaSet({who: Voter(disk) for who, disk in disks.items()})
        self._write(
            Identified(disks[REPLICAS[0]]),
            Agreed(0, (), 0, NO_FORMATION, _LOG_ID),
            Attempted(formation),
            Committed(formation, primary_run(formation, disks, founding), ()),
            Greened(1),
        )

    def append(self, number: int, count: int, batch: bytes) -> None:
        zones = self._zones
        origin = REPLICAS[number % len(REPLICAS)]
        run = Run(
            RunId(origin, _LIFE, zones.vector.get((origin, _LIFE), 0) + 1),
            Stamp(4, 1, number, 0),
            _TIME_US + number * _RUN_US,
            RunKind.RECORDS,
            count,
            pack_body(Records(LOG, batch)),
        )
        self._write(Placed(run, Colour.YELLOW), Greened(zones.green_runs + 1))

    def close(self) -> None:
        if self._file >= 0:
            os.fdatasync(self._file)
            os.close(self._file)
            self._file = -1

    def _write(self, *frames: Frame) -> None:
        if self._bytes >= SEGMENT_BYTES:
            self._begin_segment()
        seed = seed_of(self._number)
        out = []
        for frame in frames:
            self._zones.apply(frame)
            content = encode(frame)
            out += [frame_head(seed, self._zones.frames, 0, content), content]
        self._bytes += os.writev(self._file, out)

    def _begin_segment(self) -> None:
        self.close()
        self._number += 1
        mark = self._zones.mark()
        self._zones.frames = mark.frames
        header = Header(
            REPLICAS[0],
            CLUSTER_ID,
            mark.log,
            mark.disk,
            self._number,
            mark.frames,
            mark.green_runs,
            mark.position,
            mark.time_us,
            0,
        )
        content = encode(mark)
        path = self._directory / segment_name(self._number)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        head = frame_head(seed_of(self._number), mark.frames, 0, content)
        self._bytes = os.writev(self._file, [header.pack(), head, content])
