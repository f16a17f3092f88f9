"""The last resort: a log whose majority is lost for good goes on from one replica, as a new log.

What the other replicas had ordered, and this one has not got, is lost. The new log has a name of its own:
should an old member come back, it does not mix with it. The node must be stopped.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from totempole.corel.frames import Rescued, decode, encode
from totempole.corel.zones import Zones, replay
from totempole.errors import LogError, StorageError
from totempole.log.segments import Header, last_in_a_row, read_header, segment_name, segment_numbers
from totempole.log.snapshots import Rescue, snapshots_of
from totempole.log_service.snapshot_files import note_rescue
from totempole.runtime.log_store import LogStore

WRITTEN_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a replica has, and what it knows of the others."""

    directory: Path
    header: Header
    zones: Zones
    damage: str

    @property
    def others(self) -> list[int]:
        return [who for who in sorted(self.zones.replicas.voters) if who != self.header.processor]


@dataclass(frozen=True, slots=True)
class Outcome:
    log: int
    disk: int
    primary: int


def rescue(directory: Path, agrees: Callable[[Standing], bool]) -> Outcome | None:
    """Makes the replica the only one of a new log, if `agrees` says so to what there is. Raises StorageError
    if the node runs, or the directory has no log."""
    header = _last_header(directory)
    done = threading.Event()
    failures: list[StorageError] = []

    def failed(error: StorageError) -> None:
        failures.append(error)
        done.set()

    with _opened(directory, header, lambda _: done.set(), failed) as store:
        zones = replay(map(decode, store.opened.frames), recent_bytes=0)
        if not zones.log:
            raise LogError(f"{directory}: this log was never founded: there is nothing to rescue")
        if not agrees(Standing(directory, header, zones, store.opened.damage)):
            return None
        mark = zones.mark()
        zones.frames += 1
        frame = Rescued(header.processor, _draw(), _draw())
        note_rescue(snapshots_of(directory), Rescue(zones.log, frame.log, zones.position))
        zones.apply(frame)
        store.append(1, (encode(mark), encode(frame)), True)
        if not done.wait(WRITTEN_S_MAX):
            raise StorageError(f"{directory}: the disk does not answer")
        if failures:
            raise failures[0]
    return Outcome(zones.log, zones.disk, zones.committed.number)


def _last_header(directory: Path) -> Header:
    try:
        numbers = last_in_a_row(segment_numbers(directory))
    except OSError as error:
        raise StorageError(f"{directory} cannot be read as a log ({error}): name its directory") from None
    if not numbers:
        raise StorageError(f"{directory} has no log in it: name the directory of a node's log")
    return read_header(directory / segment_name(numbers[-1]))


@contextmanager
def _opened(
    directory: Path,
    header: Header,
    appended: Callable[[tuple[int, ...]], object],
    failed: Callable[[StorageError], object],
) -> Iterator[LogStore]:
    store = LogStore.open(
        directory, header.processor, header.cluster, appended=appended, recalled=lambda _: None, failed=failed
    )
    try:
        yield store
    finally:
        store.close()


def _draw() -> int:
    """A name: never 0."""
    return secrets.randbits(62) << 1 | 1
