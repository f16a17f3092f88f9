"""A simulated replica's log as files, written as a node writes them: whoever reads a node's log reads it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from totempole.corel.frames import Mark, decode
from totempole.log.segments import Header, frame_head, seed_of, segment_name
from totempole.types import ProcessorId

CLUSTER = 1
"""That the logs of simulated replicas are of."""

Written = tuple[bytes, bool]
"""A frame, and whether a segment begins with it."""


class LogFiles:
    def __init__(self, directory: Path, me: ProcessorId) -> None:
        self._directory = directory
        self._me = me
        self._file: BinaryIO | None = None
        self._number = self._first = 1
        """Of the next segment, and of the first that is kept."""
        self._sequence = 0
        self._kept_from: int | None = None

    def append(self, frames: Iterable[Written]) -> None:
        for content, is_segment in frames:
            if is_segment:
                self._begin(content)
            assert self._file is not None, "a log begins with a segment"
            seed = seed_of(self._number - 1)
            self._file.write(frame_head(seed, self._sequence, 0, content) + content)
            self._sequence += 1
        if self._file is not None:
            self._file.flush()

    def _begin(self, content: bytes) -> None:
        self.close()
        mark = decode(content)
        assert isinstance(mark, Mark), "a segment begins with a mark"
        self._kept_from = mark.green_runs if self._kept_from is None else self._kept_from
        self._sequence = mark.frames
        state = (mark.frames, mark.green_runs, mark.position, mark.time_us, self._kept_from)
        self._file = self._path(self._number).open("wb")
        self._file.write(Header(self._me, CLUSTER, mark.log, mark.disk, self._number, *state).pack())
        self._number += 1

    def rewrite(self, frames: Iterable[Written]) -> None:
        """The disk has other frames than those that were written."""
        self.close()
        for number in range(self._first, self._number):
            self._path(number).unlink()
        self._number, self._kept_from = self._first, None
        self.append(frames)

    def trim(self, segments: int) -> None:
        """The first so many are not kept any more."""
        for number in range(self._first, self._first + segments):
            self._path(number).unlink()
        self._first += segments

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, number: int) -> Path:
        return self._directory / segment_name(number)
