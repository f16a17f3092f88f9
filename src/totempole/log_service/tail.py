"""The end of the log, replayed once for all who follow it; and a walk through older segments, for one reader.

The tail has the state at the green line, and the last green runs, each encoded when it is first sent. A
reader that is further behind walks through the segments by itself until it meets the tail. Both take short
steps: they share a thread with all other readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

import msgspec

from totempole.corel.run import log_name_of
from totempole.corel.zones import Ordered
from totempole.errors import LogDamagedError
from totempole.log.reader import Cursor
from totempole.session.log_frames import OrderedRun, encode_run

TAIL_BYTES = 32 * 1024 * 1024
STEP_S = 0.005
"""How long a step may take."""


class Shipped:
    """A green run, ready to be sent."""

    __slots__ = ("_is_shared", "_raw", "log", "ordered", "size")

    def __init__(self, ordered: Ordered, is_shared: bool) -> None:
        self.ordered = OrderedRun.of(ordered)
        self.log = log_name_of(ordered.run)
        self.size = ordered.run.size
        self._is_shared = is_shared
        self._raw: msgspec.Raw | None = None

    @property
    def item(self) -> OrderedRun | msgspec.Raw:
        """For `EncodedRuns`. What many readers get is encoded here, once; what one gets, with its frame."""
        if not self._is_shared:
            return self.ordered
        if self._raw is None:
            self._raw = encode_run(self.ordered)
        return self._raw


class Walk:
    """Green runs from a place on, a step at a time."""

    def __init__(self, cursor: Cursor, now: Callable[[], float] = monotonic, is_shared: bool = False) -> None:
        """`is_shared`: for many readers."""
        self.cursor = cursor
        self._now = now
        self._is_shared = is_shared
        self.is_at_end = False
        """Nothing more is on disk, for the moment."""
        self._runs: Iterator[Ordered] | None = None
        self._damage: LogDamagedError | None = None

    def step(self, bytes_max: int) -> list[Shipped]:
        """The next runs: about so many bytes, and no longer than STEP_S. It may be none before the end, too.
        LogTrimmedError: they are not there any more. LogDamagedError: they cannot be read. It comes
        when all before them were given."""
        if self._damage is not None:
            raise self._damage
        taken: list[Shipped] = []
        size = 0
        end_s = self._now() + STEP_S
        runs = self._runs = self._runs or self.cursor.runs()
        try:
            for ordered in runs:
                shipped = Shipped(ordered, self._is_shared)
                taken.append(shipped)
                size += shipped.size
                if size >= bytes_max or self._now() >= end_s:
                    self.is_at_end = False
                    return taken
        except LogDamagedError as error:
            self._damage = error
            if not taken:
                raise
            self.is_at_end = False
            return taken
        self._runs = None
        self.is_at_end = True
        return taken

    def close(self) -> None:
        self._runs = None
        self.cursor.close()


class Tail:
    """Begins with the mark of the last segment."""

    def __init__(
        self, cursor: Cursor, bytes_max: int = TAIL_BYTES, now: Callable[[], float] = monotonic
    ) -> None:
        self.zones = cursor.zones
        self.place = cursor.place
        """Behind the last run that it has."""
        self.position = 0
        """Likewise."""
        self.runs: deque[Shipped] = deque()
        self._walk = Walk(cursor, now, is_shared=True)
        self._bytes = 0
        self._bytes_max = bytes_max

    @property
    def cursor(self) -> Cursor:
        return self._walk.cursor

    @property
    def number(self) -> int:
        """Of the segment that it reads."""
        return self.cursor.number

    @property
    def first_place(self) -> int:
        """The first run that it has, or will have."""
        return self.place - len(self.runs)

    def advance(self) -> bool:
        """Takes a step. Whether there is more to read at once."""
        if self._walk.is_at_end and not self._walk.cursor.has_more():
            return False
        for shipped in self._walk.step(self._bytes_max):
            if shipped.ordered.place != self.place:
                # A gap: the replica was behind, and began anew where the others had not trimmed.
                self.runs.clear()
                self._bytes = 0
            self.runs.append(shipped)
            self._bytes += shipped.size
            self.place = shipped.ordered.place + 1
            self.position = shipped.ordered.stop
        while self._bytes > self._bytes_max:
            self._bytes -= self.runs.popleft().size
        if self._walk.is_at_end and self.zones.green_runs >= self.place:
            self.position = self.zones.position
        return not self._walk.is_at_end

    def forget(self, place: int) -> None:
        """Runs before this place are trimmed."""
        while self.runs and self.first_place < place:
            self._bytes -= self.runs.popleft().size

    def after(self, place: int, bytes_max: int) -> list[Shipped]:
        """Runs from this place on, about so many bytes."""
        at = place - self.first_place
        assert at >= 0, "the tail has it"
        taken: list[Shipped] = []
        size = 0
        while at < len(self.runs) and size < bytes_max:
            taken.append(self.runs[at])
            size += self.runs[at].size
            at += 1
        return taken

    def close(self) -> None:
        self._walk.close()
