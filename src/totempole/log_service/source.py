"""The log that a service serves: its directory, its tail, and what can be asked of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from time import monotonic

from totempole.corel.run import RunId
from totempole.corel.zones import Ordered, Zones
from totempole.log.blocks import Blocks
from totempole.log.reader import POSITION_MAX, Cursor, LogReader
from totempole.log.segments import segment_name, segment_numbers
from totempole.log_service.tail import Tail, Walk

POLL_S = 0.005
"""The tail looks for more so often while somebody follows, and the log grows."""
CALM_POLL_S = 0.02
"""While it has not grown for CALM_S. The green line, too, is written within 20 ms."""
CALM_S = 0.5
IDLE_POLL_S = 0.1
"""And so often while nobody does. While nobody is connected it only goes along from segment to segment: to
replay what nobody reads would cost the node's host as much as a reader does."""
EMPTY_POLL_S = 0.05
"""How often an empty directory is looked at."""

LOCATING_MAX = 2
"""Searches of old segments at the same time."""


class Source:
    """All runs on one thread, in short steps."""

    def __init__(
        self, directory: Path, now: Callable[[], float] = monotonic, threads: Executor | None = None
    ) -> None:
        """`threads`: for what takes long; not given, those of the loop."""
        self.directory = directory
        self.threads = threads
        self._now = now
        self.tail: Tail | None = None
        """None: there is no log yet."""
        self.followers = 0
        self.readers = 0
        """Programs that are connected."""
        self.locating = asyncio.Semaphore(LOCATING_MAX)
        self._reader = LogReader(directory)
        self._grown = asyncio.Event()
        self._grown_s = now()
        self._is_read = asyncio.Event()
        """The tail has met the end of the log once."""

    # The tail

    async def keep_up(self) -> None:
        """Replays what the node writes, for as long as the service runs. Raises if the log is damaged."""
        while (tail := self._open_tail()) is None:
            await asyncio.sleep(EMPTY_POLL_S)
        self.tail = tail
        try:
            await self._read_to_end(tail)
            self._is_read.set()
            while True:
                await asyncio.sleep(self._pause_s())
                if self.readers:
                    await self._read_to_end(self.tail)
                else:
                    self._go_along()
        finally:
            self.tail.close()

    def _go_along(self) -> None:
        """Begins with the last segment, if that is another by now. What is before it is on disk."""
        assert self.tail is not None, "there is a log"
        headers = self._reader.headers()
        if headers and headers[-1].number > self.tail.number and (tail := self._open_tail()) is not None:
            before, self.tail = self.tail, tail
            before.close()

    def _pause_s(self) -> float:
        if not self.followers:
            return IDLE_POLL_S
        return POLL_S if self._now() - self._grown_s < CALM_S else CALM_POLL_S

    async def _read_to_end(self, tail: Tail) -> None:
        before = tail.place
        while tail is self.tail and tail.advance():
            await asyncio.sleep(0)
        if tail.place != before:
            grown, self._grown = self._grown, asyncio.Event()
            grown.set()
            self._grown_s = self._now()

    def _open_tail(self) -> Tail | None:
        """None: there is no log yet. Raises if there is one that cannot be read."""
        if not self.directory.is_dir() or not segment_numbers(self.directory):
            return None
        return Tail(self._reader.at_last_segment(), now=self._now)

    async def refresh(self) -> None:
        """All that is on disk now is in the tail, and nothing that was trimmed. The first time that has to
        replay the last segment."""
        await self._is_read.wait()
        assert self.tail is not None, "it has been read"
        if self.readers <= 1:
            self._go_along()
        await self._read_to_end(self.tail)
        headers = self._reader.headers()
        if headers:
            self.tail.forget(headers[0].green_runs)

    async def wait_for_more(self, timeout_s: float) -> bool:
        """Whether there is more."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._grown.wait()
        except TimeoutError:
            return False
        return True

    # Questions

    @property
    def zones(self) -> Zones:
        return self.tail.zones if self.tail is not None else Zones(recent_bytes=0)

    @property
    def position(self) -> int:
        """Of the next record to become green."""
        return self.tail.position if self.tail is not None else 0

    def earliest(self) -> int:
        """The first position that is kept, or a little behind it if the replica began anew behind a gap."""
        return self._reader.earliest(self.position) if self.tail is not None else 0

    def walk_from_earliest(self) -> Walk:
        first = self._reader.headers()[0]
        cursor = Cursor(self.directory, first.number, first.green_runs, POSITION_MAX, blocks=Blocks())
        return Walk(cursor, self._now)

    def walk_to_position(self, position: int) -> Walk:
        """Begins with the segment that holds the position, or before. Raises LogTrimmedError."""
        return Walk(self._reader.at_position(position, Blocks()), self._now)

    def walk_to_place(self, place: int) -> Walk:
        """Likewise."""
        return Walk(self._reader.at_place(place, Blocks()), self._now)

    def locate(self, run: RunId) -> Ordered | None:
        """May take long: for another thread."""
        return LogReader(self.directory).locate(run)

    def is_pending(self, run: RunId) -> bool:
        """The replica has the run, and it is not green."""
        return self.zones.is_pending(run)

    def has(self, run: RunId) -> bool:
        return self.zones.has(run)

    def sizes(self) -> tuple[int, int]:
        """Segments, and their bytes."""
        headers = self._reader.headers() if self.tail is not None else []
        size = 0
        for header in headers:
            with suppress(FileNotFoundError):
                size += (self.directory / segment_name(header.number)).stat().st_size
        return len(headers), size

    def segments(self) -> list[tuple[int, int]]:
        """Of each: its first position, and its bytes. A file is longer than what is written to it yet: of the
        last one those that were read count."""
        return self._reader.sizes(self.tail.cursor) if self.tail is not None else []
