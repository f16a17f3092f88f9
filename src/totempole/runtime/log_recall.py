"""The thread that reads green runs back for replicas that are behind, and removes files: a file system may
take long for that while others sync.

A replica that is behind asks for one piece after the other. So a reader that has given one is kept for the
next.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from totempole.core.inputs import Recalled
from totempole.corel.run import pack_run
from totempole.corel.zones import Ordered
from totempole.errors import LogDamagedError, LogTrimmedError, StorageError
from totempole.log.reader import Cursor, LogReader
from totempole.log.segments import SegmentReader, segment_name

CURSORS_MAX = 8
"""Readers that are kept: replicas that catch up at the same time."""


class _Asked(NamedTuple):
    ticket: int
    start: int
    bytes_max: int


class _Kept:
    """A reader and the run that it gave last, which did not fit any more."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.runs = cursor.runs()
        self.over: Ordered | None = None

    @property
    def place(self) -> int:
        return self.cursor.place if self.over is None else self.over.place


class Recaller:
    def __init__(
        self,
        directory: Path,
        kept_from: int,
        kept_mark: bytes | None,
        recalled: Callable[[Recalled], object],
        failed: Callable[[StorageError], object],
        damaged: Callable[[str], object],
    ) -> None:
        self.kept_from = kept_from
        self._kept_mark = kept_mark
        self._reader = LogReader(directory)
        self._recalled = recalled
        self._failed = failed
        self._damaged = damaged
        self._changed = threading.Condition()
        self._asked: deque[_Asked] = deque()
        self._removed: deque[Path] = deque()
        """Files that are to go, the oldest first: what is left has no gaps."""
        self._has_news = False
        self._is_closed = False
        self._readers: OrderedDict[int, _Kept] = OrderedDict()
        """By the place that each gives next."""
        self._thread: threading.Thread | None = None

    def recall(self, ticket: int, start: int, bytes_max: int) -> None:
        with self._changed:
            self._asked.append(_Asked(ticket, start, bytes_max))
            self._wake()

    def remove(self, paths: Iterable[Path]) -> None:
        with self._changed:
            self._removed.extend(paths)
            if self._removed:
                self._wake()

    def _wake(self) -> None:
        self._has_news = True
        self._changed.notify()
        if self._thread is None and not self._is_closed:  # most replicas are never asked
            self._thread = threading.Thread(target=self._run, name="totempole-log-recall", daemon=True)
            self._thread.start()

    def look_again(self) -> None:
        """Something has become durable: what was asked for may be there now."""
        if self._asked:
            with self._changed:
                self._has_news = True
                self._changed.notify()

    def keep_from(self, place: int, mark: bytes | None) -> None:
        """What is before this place has gone. `mark`: where no segment begins with it."""
        with self._changed:
            if place > self.kept_from:
                self.kept_from, self._kept_mark = place, mark

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_news or self._is_closed)
                self._has_news = False
                asked = [] if self._is_closed else list(self._asked)
            for each in asked:
                self._answer(each)
            while self._removed:
                self._unlink(self._removed.popleft())
            if self._is_closed:
                break
        for kept in self._readers.values():
            kept.cursor.close()

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            why = f"a segment cannot be removed ({error})"
            self._failed(StorageError(f"{path}: {why}: let this user write the directory"))

    def _answer(self, asked: _Asked) -> None:
        try:
            answer = self._read(asked)
        except Exception as error:
            with self._changed:
                self._asked.remove(asked)
            why = f"{type(error).__name__}: {error}"
            self._failed(StorageError(f"{self._reader.directory}: the log cannot be read ({why})"))
            return
        if answer is not None:
            with self._changed:
                self._asked.remove(asked)
            self._recalled(answer)

    def _read(self, asked: _Asked) -> Recalled | None:
        """None: it is not on disk yet."""
        if asked.start < self.kept_from:
            return Recalled(asked.ticket, (), self._mark())
        try:
            runs = self._runs(asked.start, asked.bytes_max)
        except LogTrimmedError:
            return Recalled(asked.ticket, (), self._mark())
        except LogDamagedError as error:
            self._pass_over_damage(asked.start, error)
            return Recalled(asked.ticket, (), self._mark())
        return Recalled(asked.ticket, runs, None) if runs else None

    def _runs(self, start: int, bytes_max: int) -> tuple[bytes, ...]:
        kept = self._readers.pop(start, None) or _Kept(self._reader.at_place(start))
        runs: list[bytes] = []
        size = 0
        try:
            while True:
                ordered = kept.over or next(kept.runs, None)
                kept.over = None
                if ordered is None:
                    kept.runs = kept.cursor.runs()
                    break
                size += ordered.run.size
                if runs and size > bytes_max:
                    kept.over = ordered
                    break
                runs.append(pack_run(ordered.run))
        except BaseException:
            kept.cursor.close()
            raise
        self._keep(kept)
        return tuple(runs)

    def _keep(self, kept: _Kept) -> None:
        before = self._readers.pop(kept.place, None)
        if before is not None:
            before.cursor.close()
        self._readers[kept.place] = kept
        if len(self._readers) > CURSORS_MAX:
            self._readers.popitem(last=False)[1].cursor.close()

    def _mark(self) -> bytes:
        """The one that the log begins with."""
        with self._changed:
            place, mark = self.kept_from, self._kept_mark
        for header in self._reader.headers():
            if header.green_runs >= place:
                path = self._reader.directory / segment_name(header.number)
                with SegmentReader(path) as segment:
                    return segment.mark()
        if mark is None:
            raise LogDamagedError(f"{self._reader.directory}: no mark is left to begin with")
        return mark

    def _pass_over_damage(self, start: int, error: LogDamagedError) -> None:
        """What was asked for cannot be read: the log begins behind it."""
        for header in self._reader.headers():
            if header.green_runs > start:
                self.keep_from(header.green_runs, None)
                self._damaged(
                    f"{error}. This replica goes on without them. To have them here again, stop the node, "
                    "move its log's directory away and start it: it gets all from the others"
                )
                return
        raise LogDamagedError(f"{self._reader.directory}: the last segment is damaged: open the log again")
