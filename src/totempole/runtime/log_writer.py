"""The thread that writes a node's log: all that waits is one write and one sync.

After a failed write or sync nothing is written any more: what the disk holds of it is not known, and the
kernel does not try again. The failure is reported once. The log can be opened again, from what the disk
holds.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from totempole.errors import StorageError, StorageFullError
from totempole.log.segments import Header, frame_head, mark_head, seed_of
from totempole.runtime.log_files import SegmentFile, SegmentFiles

BEGUN = b"\x92\x09"
"""A frame `corel.frames.Begun` starts with these bytes; its mark is all that follows."""

SINCE_SYNC_MAX = 2**32 - 1


class _Waiting(NamedTuple):
    ticket: int
    frames: tuple[bytes, ...]
    is_segment: bool


class Progress(NamedTuple):
    """What has become durable."""

    tickets: tuple[int, ...]
    segment: Header | None
    """It begins a segment."""
    begun: bytes | None
    """The replica's green prefix begins with this mark."""


@dataclass(slots=True)
class WriterStats:
    """Only grow."""

    frames: int = 0
    bytes: int = 0
    segments: int = 0
    syncs: int = 0
    sync_us: int = 0
    """Of writing and syncing, in all."""
    sync_us_max: int = 0


class LogWriter:
    """`done` is called on this thread, once for every sync; `failed` once."""

    def __init__(
        self,
        directory: Path,
        base: Header,
        segment_bytes: int,
        done: Callable[[Progress], object],
        failed: Callable[[StorageError], object],
        *,
        sync: bool,
    ) -> None:
        """`base`: of the next segment; what its mark decides is filled in when it comes."""
        self.stats = WriterStats()
        self._directory = directory
        self._header = base
        self._sequence = base.sequence
        self._kept_from = base.kept_from
        self._done = done
        self._failed = failed
        self._sync = sync
        self._files = SegmentFiles(directory, base.number, segment_bytes, sync=sync)
        self._file: SegmentFile | None = None
        self._seed = 0
        self._since_sync = 0
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._is_closing = False
        self._failure: StorageError | None = None
        # A daemon: a node that dies without `close` must not live on for writes that nobody waits for.
        self._thread = threading.Thread(target=self._run, name="totempole-log", daemon=True)
        self._thread.start()

    def append(self, ticket: int, frames: tuple[bytes, ...], is_segment: bool) -> None:
        """Never waits. After a failure nothing is written or answered."""
        with self._changed:
            if self._failure is None and not self._is_closing:
                self._queue.append(_Waiting(ticket, frames, is_segment))
                self._changed.notify()

    def close(self, wait_s: float) -> bool:
        """Writes and answers what waits, then ends the thread. Returns whether it has ended by then. Not to
        be called by a callback."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                for part in _parts(batch):
                    self._write(part)
            self._files.close(failed=False)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        failure = _explained(self._directory, error)
        with self._changed:
            self._failure = failure
            self._queue.clear()
        self._failed(failure)
        self._files.close(failed=True)

    def _next_batch(self) -> list[_Waiting]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closing)
            batch = list(self._queue)
            self._queue.clear()
            return batch

    def _write(self, part: list[_Waiting]) -> None:
        """The first of them may begin a segment, the others do not."""
        started = time.monotonic_ns()
        buffers: list[bytes] = []
        segment: Header | None = None
        file = self._file
        if part[0].is_segment:
            segment = self._next_header(part[0].frames[0])
            self._file = file = self._files.take()
            self._seed = seed_of(segment.number)
            buffers.append(segment.pack())
        assert file is not None, "a log that is opened begins a segment"
        begun = self._encode(part, buffers)
        file.write(buffers)
        file.sync()
        if segment is not None:
            file.publish()
        if self._sync:
            self._since_sync = 0
        self._count(buffers, segment, (time.monotonic_ns() - started) // 1000)
        self._done(Progress(tuple([each.ticket for each in part]), segment, begun))
        self._files.written()  # last, for it may wake another thread

    def _next_header(self, content: bytes) -> Header:
        mark = mark_head(content)
        assert mark.frames == self._sequence, "frames are counted as the replica counts them"
        header = self._header
        number = header.number if self._file is None else header.number + 1
        self._header = header._replace(
            log=mark.log,
            disk=mark.disk,
            number=number,
            sequence=self._sequence,
            green_runs=mark.green_runs,
            position=mark.position,
            time_us=mark.time_us,
            kept_from=self._kept_from,
        )
        return self._header

    def _encode(self, part: list[_Waiting], buffers: list[bytes]) -> bytes | None:
        """Puts heads and contents into `buffers`."""
        begun: bytes | None = None
        seed, sequence, since_sync = self._seed, self._sequence, self._since_sync
        for waiting in part:
            for content in waiting.frames:
                buffers.append(frame_head(seed, sequence, min(since_sync, SINCE_SYNC_MAX), content))
                buffers.append(content)
                sequence += 1
                since_sync += 1
                if content.startswith(BEGUN):
                    begun = content[len(BEGUN) :]
                    self._kept_from = mark_head(begun).green_runs
        self.stats.frames += sequence - self._sequence
        self._sequence, self._since_sync = sequence, since_sync
        return begun

    def _count(self, buffers: list[bytes], segment: Header | None, sync_us: int) -> None:
        stats = self.stats
        stats.bytes += sum(map(len, buffers))
        stats.segments += segment is not None
        stats.syncs += 1
        stats.sync_us += sync_us
        stats.sync_us_max = max(stats.sync_us_max, sync_us)


def _parts(batch: list[_Waiting]) -> list[list[_Waiting]]:
    """Cut where segments begin."""
    parts: list[list[_Waiting]] = []
    for waiting in batch:
        if waiting.is_segment or not parts:
            parts.append([])
        parts[-1].append(waiting)
    return parts


# What went wrong, in words


def _explained(directory: Path, error: Exception) -> StorageError:
    if isinstance(error, OSError):
        return explain_system(directory, error)
    if isinstance(error, StorageError):
        return error
    return StorageError(f"{directory}: the log's writer stopped: {type(error).__name__}: {error}")


def explain_system(directory: Path, error: OSError) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError(
            f"{directory}: the disk is full: free some space, at least for one more segment (segment_bytes). "
            "Then let the log keep less (retention_bytes), and release holds that nobody needs: `totem log "
            "holds` shows them, `totem log hold NAME --release` gives one up. What was acknowledged is safe, "
            "and the log is opened again by itself"
        )
    if error.errno == errno.EROFS:
        return StorageError(
            f"{directory} is on a file system that is read-only: look at the kernel's messages, repair the "
            "disk and mount it for writing; what was acknowledged is safe"
        )
    if error.errno == errno.EIO:
        return StorageError(
            f"{directory}: the disk could not write ({error}): it may be failing; what was acknowledged is "
            "on it or on other replicas. Check it, or replace it and start with an empty directory"
        )
    return StorageError(
        f"{directory} cannot be used for the log ({error}): let this user write it, or name another directory"
    )
