"""The files that the log's writer fills, each allocated at once and zeroed ahead of what is written.

A sync of what lies in zeroed space changes no metadata, so it is several times shorter than that of a file
that grows. Zeros are written by a thread of their own, through a descriptor of their own: a descriptor is
told of a failed write once, and the writer must not miss it. What is not zeroed yet can be written all the
same. That is what happens to large writes: the metadata costs them little, and zeros would cost as much as
they do.

That thread also takes old segments out of the kernel's page cache. A log that writes 100 MB/s would soon fill
the memory of its host with what hardly anybody reads again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from totempole.log.segments import segment_name
from totempole.runtime.storage import sync_directory

UNFINISHED = ".new"
"""The suffix of a file that is no segment yet."""

MIB = 1024 * 1024
ZERO_STEP_BYTES = MIB
ZERO_AHEAD_BYTES = 4 * MIB
"""Little, for zeros compete with the log for the disk: 1 to 64 MiB were tried, in steps of 1/4 to 8 MiB."""
ZEROED_WRITE_BYTES_MAX = 128 * 1024
"""Where writes are larger than this, on average, nothing is zeroed: the disk writes half as much. Three
programs that wrote 430 KB and synced, again and again, got 936 MB/s instead of 430; with 64 KB it made no
difference. Under whole nodes a gain has not been shown yet (docs/performance.md)."""
CACHED_SEGMENTS = 8
"""The newest: programs that follow the log, and replicas that come back soon, read these from memory. With 2,
a replica that had missed a million records cost the others a third of their throughput, with 8 a fifth."""
BUFFERS_MAX = 1024
"""Of one call (IOV_MAX)."""
JOIN_BYTES_MAX = 64 * 1024
"""So much is copied together rather than written as many pieces."""

_ZEROS = bytes(ZERO_STEP_BYTES)


class SegmentFile:
    """Written by one thread, zeroed by another."""

    def __init__(self, directory: Path, number: int, size: int, *, sync: bool) -> None:
        self.number = number
        self.end = 0
        """So many bytes are written."""
        self._directory = directory
        self._size = size
        self._path = directory / (segment_name(number) + UNFINISHED)
        self._sync = sync
        self._changed = threading.Condition()
        self._zeroed = 0
        self._write_bytes = 0
        """Of one write, on average; the last ones count most."""
        self._zeroing_from: int | None = None
        self._is_closed = False
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._zero_file = -1
        try:
            os.posix_fallocate(self._file, 0, size)
            if sync:
                self._zero_file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:
            self.remove()
            raise

    def write(self, buffers: Sequence[bytes]) -> None:
        """Appends. Not durable before `sync`."""
        size = sum(map(len, buffers))
        with self._changed:
            self._changed.wait_for(
                lambda: self._zeroing_from is None or self.end + size <= self._zeroing_from
            )
            at = self.end
            self.end += size
            self._write_bytes += (size - self._write_bytes) // 4
        if size <= JOIN_BYTES_MAX:
            buffers = (b"".join(buffers),)
        for first in range(0, len(buffers), BUFFERS_MAX):
            at = _write_all(self._file, buffers[first : first + BUFFERS_MAX], at)

    def sync(self) -> None:
        if self._sync:
            os.fdatasync(self._file)

    def publish(self) -> None:
        """Gives it its name. What is written and synced by now is in the log from here on."""
        os.rename(self._path, self._directory / segment_name(self.number))
        if self._sync:
            sync_directory(self._directory)

    @property
    def wants_zeros(self) -> bool:
        """Whether `zero_more` would do something."""
        return (
            self._zeroed - self.end < ZERO_AHEAD_BYTES
            and self._zeroed < self._size
            and self._write_bytes <= ZEROED_WRITE_BYTES_MAX
        )

    def zero_more(self) -> bool:
        """Zeros one step ahead of what is written. Returns whether it did."""
        with self._changed:
            start = max(self._zeroed, self.end)
            stop = min(start + ZERO_STEP_BYTES, self._size)
            if (
                self._is_closed
                or self._zero_file < 0
                or start - self.end >= ZERO_AHEAD_BYTES
                or stop <= start
                or self._write_bytes > ZEROED_WRITE_BYTES_MAX
            ):
                return False
            self._zeroing_from = start
        try:
            _write_all(self._zero_file, (_ZEROS[: stop - start],), start)
            os.fdatasync(self._zero_file)
        finally:
            with self._changed:
                self._zeroing_from = None
                self._zeroed = stop
                self._changed.notify_all()
        return True

    def close(self) -> None:
        """Gives back what was not used of it."""
        self._stop_zeroing()
        if self._file >= 0:
            os.ftruncate(self._file, self.end)
            self._close_files()

    def abandon(self) -> None:
        """Leaves the file as it is, after a failure."""
        self._stop_zeroing()
        self._close_files()

    def remove(self) -> None:
        """It is no segment yet, and never will be."""
        self.abandon()
        self._path.unlink(missing_ok=True)

    def _stop_zeroing(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._zeroing_from is None)

    def _close_files(self) -> None:
        for file in (self._file, self._zero_file):
            if file >= 0:
                os.close(file)
        self._file = self._zero_file = -1


def drop_cached(path: Path) -> None:
    """Takes a file out of the page cache. What is not on disk yet stays there, and so does what is in use."""
    with suppress(FileNotFoundError):  # trimmed meanwhile
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def _write_all(file: int, buffers: Sequence[bytes], at: int) -> int:
    """Returns where it ends."""
    rest = b""
    size = sum(map(len, buffers))
    written = os.pwritev(file, buffers, at)
    while written < size:
        rest = b"".join(buffers)[written:] if not rest else rest[written:]
        at += written
        size -= written
        written = os.pwrite(file, rest, at)
    return at + written


class SegmentFiles:
    """The file in use and the next one, and the thread that zeros both and drops old ones from the cache.

    Without `sync` there is no such thread: what is not on disk yet could not be dropped.
    """

    def __init__(self, directory: Path, number: int, size: int, *, sync: bool) -> None:
        """`number` is that of the first. Creating it shows at once whether the disk has room."""
        self._directory = directory
        self._size = size
        self._sync = sync
        self._lock = threading.Lock()
        """Held while files are created or change places."""
        self._current: SegmentFile | None = None
        self._next: SegmentFile | None = SegmentFile(directory, number, size, sync=sync)
        self._first_cached = number
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if sync:
            self._thread = threading.Thread(target=self._work, name="totempole-log-files", daemon=True)
            self._thread.start()

    def take(self) -> SegmentFile:
        """The next file. The one before is done with."""
        with self._lock:
            before, file = self._current, self._next
            if file is None:
                assert before is not None, "the first file is made at once"
                file = SegmentFile(self._directory, before.number + 1, self._size, sync=self._sync)
            self._current, self._next = file, None
        if before is not None:
            before.close()
        self._wake.set()
        return file

    def written(self) -> None:
        """The file in use has grown: there may be something to zero."""
        current = self._current
        is_half_full = current is not None and self._next is None and 2 * current.end >= self._size
        if current is None or current.wants_zeros or is_half_full:
            self._wake.set()

    def close(self, *, failed: bool) -> None:
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._current is not None:
            if failed:
                self._current.abandon()
            else:
                self._current.close()
        if self._next is not None:
            self._next.remove()

    def _work(self) -> None:
        while not self._is_closed:
            try:
                is_busy = self._step()
            except OSError:
                # The writer finds out by itself: it must create the file, or its own sync fails.
                is_busy = False
            if not is_busy:
                self._wake.wait()
            self._wake.clear()

    def _drop_one(self, written: int) -> bool:
        """The oldest segment that may be cached, if it is old enough."""
        if self._first_cached > written - CACHED_SEGMENTS:
            return False
        oldest = self._directory / segment_name(self._first_cached)
        self._first_cached += 1  # an error would be the next one's, too
        drop_cached(oldest)
        return True

    def _step(self) -> bool:
        """The file in use comes first. The next is made when half of that is full."""
        with self._lock:
            current, following = self._current, self._next
            if following is None and current is not None and 2 * current.end >= self._size:
                following = SegmentFile(self._directory, current.number + 1, self._size, sync=self._sync)
                self._next = following
        if current is not None and (current.zero_more() or self._drop_one(current.number)):
            return True
        return following is not None and following.zero_more()
