"""A node's log: a directory of segments that one node owns, opened, appended to, read back and trimmed.

The directory belongs to one processor of one cluster, and one process at a time has it open. An opening reads
the last segment: its mark and what follows are the replica's state. What was written and never synced, by a
process that was killed or by a sync that failed, is written again and synced, before it counts as durable.

Callbacks are called on threads of the store. They should hand over to the node's own thread and return.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from totempole.core.inputs import Recalled
from totempole.corel.frames import FORMAT
from totempole.errors import CodecError, LogDamagedError, StorageError
from totempole.log.segments import (
    Header,
    SegmentReader,
    Stored,
    last_in_a_row,
    mark_head,
    read_header,
    segment_name,
    segment_numbers,
)
from totempole.runtime.log_files import MIB, UNFINISHED
from totempole.runtime.log_recall import Recaller
from totempole.runtime.log_writer import BEGUN, LogWriter, Progress, WriterStats, explain_system
from totempole.runtime.storage import make_directory, sync_directory, take_lock

SEGMENT_BYTES = 64 * MIB
CLOSE_S_MAX = 30.0
DAMAGED = ".damaged"
"""The suffix of a segment that cannot be read, and is left for people to look at."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What the replica needs to know (`corel.commands.OpenLog`)."""

    frames: tuple[bytes, ...]
    """Since the last mark, that one included; none in an empty directory."""
    kept_from: int
    """The first green run that is there."""
    is_damaged: bool
    """Frames are lost that had been durable: this disk must not count as what it was."""
    damage: str
    """For people; empty if there is none."""


class LogStore:
    """Use `LogStore.open`. Its methods never wait for the disk, but for `open` and `close`."""

    def __init__(
        self,
        directory: Path,
        lock: int,
        found: _Found,
        appended: Callable[[tuple[int, ...]], object],
        recalled: Callable[[Recalled], object],
        failed: Callable[[StorageError], object],
        damaged: Callable[[str], object],
    ) -> None:
        self.directory = directory
        self.opened = found.opened
        """The frames are there until the first new one is durable."""
        self._lock_file = lock
        self._appended = appended
        self._failed = failed
        self._writer: LogWriter
        self._recaller = Recaller(
            directory, found.opened.kept_from, found.kept_mark, recalled, self._fail, damaged
        )
        self._lock = threading.Lock()
        self._headers = list(found.headers)
        self._has_failed = False
        self._is_closed = False

    @classmethod
    def open(
        cls,
        directory: Path,
        processor: int,
        cluster: int,
        *,
        appended: Callable[[tuple[int, ...]], object],
        recalled: Callable[[Recalled], object],
        failed: Callable[[StorageError], object],
        damaged: Callable[[str], object] = lambda _: None,
        segment_bytes: int = SEGMENT_BYTES,
        sync: bool = True,
    ) -> Self:
        """Takes the directory's lock. Raises StorageError, whose text names the way out.

        `appended` gets the tickets of what is durable, once for every sync. `failed` is called once: nothing
        more is written then; close it, and open it again later. `damaged` gets a text for people when old
        records turn out to be unreadable. Without `sync` a power cut may take back what
        was acknowledged, and the replica must not count on its disk.
        """
        try:
            make_directory(directory)
            lock = take_lock(directory)
        except OSError as error:
            raise explain_system(directory, error) from error
        try:
            found = _find(directory, processor, cluster, sync=sync)
            store = cls(directory, lock, found, appended, recalled, failed, damaged)
            store._writer = LogWriter(
                directory, found.next, segment_bytes, store._take_progress, store._fail, sync=sync
            )
        except OSError as error:
            os.close(lock)
            raise explain_system(directory, error) from error
        except BaseException:
            os.close(lock)
            raise
        return store

    @property
    def stats(self) -> WriterStats:
        return self._writer.stats

    @property
    def kept_from(self) -> int:
        """The first green run that is there."""
        return self._recaller.kept_from

    @property
    def bytes_on_disk(self) -> int:
        """Of all its segments."""
        with self._lock:
            numbers = [header.number for header in self._headers]
        size = 0
        for number in numbers:
            with suppress(FileNotFoundError):
                size += (self.directory / segment_name(number)).stat().st_size
        return size

    def append(self, ticket: int, frames: tuple[bytes, ...], is_segment: bool) -> None:
        """`core.effects.Append`. After a failure nothing is written or answered."""
        self._writer.append(ticket, frames, is_segment)

    def recall(self, ticket: int, start: int, bytes_max: int) -> None:
        """`core.effects.Recall`: green runs from this one on, or the mark that the log begins with."""
        self._recaller.recall(ticket, start, bytes_max)

    def trim(self, start: int) -> None:
        """`core.effects.Trim`: removes segments that hold only green runs before this one. The last stays."""
        with self._lock:
            keep = next(
                (i for i in range(len(self._headers) - 1, 0, -1) if self._headers[i].green_runs <= start), 0
            )
            self._drop(keep)

    def trim_to(self, position: int, keep_bytes: int = 0) -> int:
        """`core.effects.Trim`: removes segments that hold only records before this position, as long as so
        many bytes stay. The last segment stays. Returns how many are gone."""
        with self._lock:
            count = _removable(self._headers, self._sizes(self._headers), position, keep_bytes)
            if count:
                self._drop(count)
        return count

    def held_bytes(self, position: int, end: int, keep_bytes: int) -> int:
        """What a hold on this position keeps: bytes of segments that `trim_to` would remove if all records
        before `end` could go. Looks at every file: not for a thread that must not wait."""
        with self._lock:
            headers = tuple(self._headers)
        sizes = self._sizes(headers)
        held = _removable(headers, sizes, position, keep_bytes)
        return sum(sizes[held : _removable(headers, sizes, end, keep_bytes)])

    def _sizes(self, headers: Sequence[Header]) -> list[int]:
        return [_size_of(self.directory / segment_name(header.number)) for header in headers]

    def _drop(self, count: int) -> None:
        """The oldest so many segments. Their files go soon after."""
        self._recaller.remove([self.directory / segment_name(each.number) for each in self._headers[:count]])
        del self._headers[:count]
        if count:
            self._recaller.keep_from(self._headers[0].green_runs, None)

    def _take_progress(self, progress: Progress) -> None:
        """On the writer's thread."""
        with self._lock:
            if progress.segment is not None:
                self._headers.append(progress.segment)
                self.opened = replace(self.opened, frames=())  # replayed by now, and large
            if progress.begun is not None:
                # What is older ends before the mark: nobody can read on from there.
                self._drop(len(self._headers) - 1)
                self._recaller.keep_from(mark_head(progress.begun).green_runs, progress.begun)
        self._recaller.look_again()
        if not self._has_failed:
            self._appended(progress.tickets)

    def _fail(self, error: StorageError) -> None:
        with self._lock:
            is_first, self._has_failed = not self._has_failed, True
        if is_first:
            self._failed(error)

    def close(self, wait_s: float = CLOSE_S_MAX) -> None:
        """Writes what waits and gives back the lock. May be called again, and not by a callback. A disk that
        does not answer is not waited for longer than this: the lock is kept then."""
        if not self._is_closed and self._writer.close(wait_s):
            self._is_closed = True
            self._recaller.close()
            os.close(self._lock_file)


def _removable(headers: Sequence[Header], sizes: Sequence[int], position: int, keep_bytes: int) -> int:
    """How many of the oldest segments hold only records before this position, while so many bytes stay."""
    left = 0
    for count in range(len(headers) - 1, 0, -1):
        left += sizes[count]
        if headers[count].position <= position and left >= keep_bytes:
            return count
    return 0


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# What an opening finds


@dataclass(frozen=True, slots=True)
class _Found:
    opened: Opened
    headers: tuple[Header, ...]
    next: Header
    """Of the segment to begin: its number, sequence, and whose it is."""
    kept_mark: bytes | None
    """The mark that the green prefix begins with, where no segment begins with it."""


def _find(directory: Path, processor: int, cluster: int, *, sync: bool) -> _Found:
    for name in os.listdir(directory):
        if name.endswith(UNFINISHED):
            (directory / name).unlink()  # a segment that was never begun
    numbers = last_in_a_row(segment_numbers(directory))
    empty = Header(processor, cluster, 0, 0, 1, 1, 0, 0, 0, 0)
    if not numbers:
        return _Found(Opened((), 0, False, ""), (), empty, None)
    headers, damage = _headers(directory, numbers)
    for header in headers:
        check_owner(directory, header, processor, cluster)
    while headers:
        with SegmentReader(directory / segment_name(headers[-1].number)) as segment:
            stored = list(segment.frames())
            if stored and _is_mark(segment.path, stored[0]):
                return _found(directory, headers, segment, stored, damage, sync=sync)
        damage = f"the mark of {segment.path.name} cannot be read"
        _set_aside(segment.path)
        headers.pop()
    raise StorageError(
        f"{directory}: no segment of this log can be read ({damage}): put back a copy of the directory; or "
        "move it away, and this replica fetches everything from the others as a new disk"
    )


def _headers(directory: Path, numbers: list[int]) -> tuple[list[Header], str]:
    """Of the segments that can be read up to the last, and what is wrong."""
    headers: list[Header] = []
    damage = ""
    for number in reversed(numbers):
        path = directory / segment_name(number)
        try:
            headers.insert(0, read_header(path))
        except LogDamagedError as error:
            damage = str(error)
            if headers:
                break  # nobody can read on from what is before it
            _set_aside(path)
    return headers, damage if not headers or headers[-1].number != numbers[-1] else ""


def _set_aside(path: Path) -> None:
    os.rename(path, path.with_name(path.name + DAMAGED))


def check_owner(directory: Path, header: Header, processor: int, cluster: int) -> None:
    """Raises StorageError if the directory has another node's log."""
    for name, theirs, ours in (
        ("cluster_id", header.cluster, cluster),
        ("processor", header.processor, processor),
    ):
        if theirs != ours:
            raise StorageError(
                f"{directory} holds the log of {name} = {theirs}, and this node has {name} = {ours}: correct "
                f"{name}, or give this node a directory of its own; an empty one is filled by other replicas"
            )


def _is_mark(path: Path, stored: Stored) -> bool:
    try:
        mark = mark_head(stored.content)
    except CodecError:
        return False
    if mark.format > FORMAT:
        raise StorageError(
            f"{path} has frames of format {mark.format} and this program knows format {FORMAT}: use the "
            "version of totempole that wrote it"
        )
    return True


def _found(
    directory: Path,
    headers: list[Header],
    segment: SegmentReader,
    stored: list[Stored],
    damage: str,
    *,
    sync: bool,
) -> _Found:
    lost = segment.lost_frame()
    if lost is not None:
        damage = f"{segment.path.name}: frames {segment.sequence} to {lost.sequence - 1} cannot be read"
    if sync:
        _make_durable(segment.path, stored)
        sync_directory(directory)
    last = headers[-1]
    kept_from = max(last.kept_from, headers[0].green_runs)
    kept_mark: bytes | None = None
    for each in stored:
        if each.content[: len(BEGUN)] == BEGUN:
            kept_mark = bytes(each.content[len(BEGUN) :])
            kept_from = max(kept_from, mark_head(kept_mark).green_runs)
    frames = tuple([bytes(each.content) for each in stored])
    following = last._replace(number=last.number + 1, sequence=segment.sequence, kept_from=kept_from)
    opened = Opened(frames, kept_from, bool(damage), damage)
    return _Found(opened, tuple(headers), following, kept_mark)


def _make_durable(path: Path, stored: list[Stored]) -> None:
    """Writes again what was written since the last sync that is known to have succeeded."""
    last = stored[-1]
    first = stored[max(len(stored) - 1 - last.since_sync, 0)]
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = first.at
        while at < last.end:
            at += os.pwrite(file, os.pread(file, min(last.end - at, MIB), at), at)
        os.fdatasync(file)
    finally:
        os.close(file)
