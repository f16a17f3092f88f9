"""The disk of a replica's log: frames in segments, durable some time after they are appended.

It fails apart from the disk with the processor's numbers. A crash keeps a prefix of the frames that were not
durable. `damage` arranges for what the next opening finds: nothing, an old copy, or frames amid the log that
cannot be read. A full disk fails the next append; the log is closed then, until the disk is mended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple

from totempole.core.inputs import Recalled
from totempole.corel.commands import OpenLog
from totempole.corel.frames import Begun, Mark, decode, encode
from totempole.corel.run import pack_run
from totempole.corel.zones import Ordered, Zones
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import DiskSpeed, Range
from totempole.sim.log_files import LogFiles


class Fate(StrEnum):
    """What the next opening of the log finds."""

    EMPTY = "empty"
    ROLLED_BACK = "rollback"
    DAMAGED = "damage"


class _Frame(NamedTuple):
    content: bytes
    is_segment: bool


@dataclass(slots=True)
class _Append:
    frames: list[_Frame]
    done: Callable[[int, int], object]
    life: int
    ticket: int
    event: int | None = None


class LogDisk:
    def __init__(self, scheduler: Scheduler, random: Random, speed: DiskSpeed) -> None:
        self.speed = self.healthy_speed = speed
        self.is_full = False
        self.failed: Callable[[str], None] = lambda _why: None
        """Told when an append fails."""
        self.report: Callable[[Fate], None] = lambda _fate: None
        """Told when an opening finds a damage."""
        self.files: LogFiles | None = None
        """Where the frames are, too, for those who read a log."""
        self._scheduler = scheduler
        self._random = random
        self._frames: list[_Frame] = []
        self._under_way: deque[_Append] = deque()
        self._free_us = 0
        self._stuck = False
        self._damage: list[tuple[Fate, int]] = []

    def append(
        self,
        frames: tuple[bytes, ...],
        is_segment: bool,
        done: Callable[[int, int], object],
        life: int,
        ticket: int,
    ) -> None:
        if self.is_full:
            self._lose_under_way()
            self.failed("no space left on the disk")
            return
        items = [_Frame(frame, is_segment and not place) for place, frame in enumerate(frames)]
        append = _Append(items, done, life, ticket)
        if self.files is not None:
            self.files.append(items)
        self._under_way.append(append)
        if not self._stuck:
            self._begin(append)

    def _begin(self, append: _Append) -> None:
        start_us = max(self._free_us, self._scheduler.now_us)
        self._free_us = start_us + self._random.randint(*self.speed.latency_us)
        append.event = self._scheduler.at(self._free_us, self._complete)

    def _complete(self) -> None:
        append = self._under_way.popleft()
        self._frames += append.frames
        append.done(append.life, append.ticket)

    def ordered(self) -> list[Ordered]:
        """The green runs that can be read, in their order."""
        zones = Zones()
        return [ordered for frame in self.written() for ordered in zones.apply(decode(frame.content))]

    def segments(self) -> list[list[bytes]]:
        """The frames that are written, durable or not, segment by segment. Each begins with a mark."""
        found: list[list[bytes]] = []
        for frame in self.written():
            if frame.is_segment:
                found.append([])
            found[-1].append(frame.content)
        return found

    def written(self) -> list[_Frame]:
        """Durable or not."""
        return [*self._frames, *(frame for each in self._under_way for frame in each.frames)]

    def recall(self, ticket: int, start: int, bytes_max: int) -> Recalled:
        written = self.written()
        runs: list[bytes] = []
        size = 0
        by_place = {ordered.place: ordered.run for ordered in self.ordered()}
        while start + len(runs) in by_place and (size < bytes_max or not runs):
            runs.append(pack_run(by_place[start + len(runs)]))
            size += len(runs[-1])
        if runs:
            return Recalled(ticket, tuple(runs), None)
        # Trimmed; or the replica itself began behind this place.
        frames = (decode(frame.content) for frame in written)
        marks = (frame.mark if isinstance(frame, Begun) else frame for frame in frames)
        mark = next((mark for mark in marks if isinstance(mark, Mark) and mark.green_runs > start), None)
        return Recalled(ticket, (), None if mark is None else encode(mark))

    def trim(self, position: int, keep_bytes: int) -> None:
        """Whole segments, from the oldest on."""
        starts = [place for place, frame in enumerate(self._frames) if frame.is_segment]
        for start in reversed(starts[1:]):
            mark = decode(self._frames[start].content)
            assert isinstance(mark, Mark), "a segment begins with a mark"
            kept = sum(len(frame.content) for frame in self._frames[start:])
            if mark.position <= position and kept >= keep_bytes:
                if self.files is not None:
                    self.files.trim(sum(frame.is_segment for frame in self._frames[:start]))
                del self._frames[:start]
                return

    # Opening and trouble

    def open(self) -> OpenLog:
        if not self._stuck:  # of a process that has ended in good order
            self._frames += [frame for append in self._under_way for frame in append.frames]
        self._lose_under_way()
        self._stuck = False
        is_damaged = False
        for fate, count in self._damage:
            is_damaged |= self._suffer(fate, count)
            self.report(fate)
        self._damage.clear()
        self._rewrite()
        frames = self._frames
        last = max((place for place, frame in enumerate(frames) if frame.is_segment), default=0)
        first = decode(frames[0].content) if frames else None
        kept_from = first.green_runs if isinstance(first, Mark) else 0
        contents = tuple([frame.content for frame in frames[last:]])
        return OpenLog(contents, kept_from, is_damaged, entropy=self._random.getrandbits(62))

    def _suffer(self, fate: Fate, count: int) -> bool:
        """Whether the store can tell by itself."""
        frames = self._frames
        if fate is Fate.EMPTY:
            frames.clear()
            return False
        if fate is Fate.ROLLED_BACK:
            del frames[max(0, len(frames) - count) :]
            return False
        last = max((place for place, frame in enumerate(frames) if frame.is_segment), default=0)
        if last + 1 >= len(frames):
            return False
        del frames[self._random.randrange(last + 1, len(frames)) :]
        return True

    def damage(self, fate: Fate, count: int = 0) -> None:
        """The next opening finds it. `count`: of frames that an old copy lacks."""
        self._damage.append((fate, count))

    def fill(self) -> None:
        self.is_full = True

    def slow(self, latency_us: Range) -> None:
        self.speed = DiskSpeed(latency_us=latency_us, torn=self.speed.torn)

    def stick(self) -> None:
        self._stuck = True
        for append in self._under_way:
            self._cancel(append)

    def mend(self) -> None:
        self.speed = self.healthy_speed
        self.is_full = False
        if self._stuck:
            self._stuck = False
            self._free_us = 0
            for append in self._under_way:
                self._begin(append)

    def crash(self) -> None:
        """A prefix of what was not durable survives."""
        pending = [frame for append in self._under_way for frame in append.frames]
        self._lose_under_way()
        if not self._stuck:
            self._frames += pending[: self._random.randint(0, len(pending))]
        self._rewrite()

    def _rewrite(self) -> None:
        if self.files is not None:
            self.files.rewrite(self._frames)

    def _lose_under_way(self) -> None:
        for append in self._under_way:
            self._cancel(append)
        self._under_way.clear()
        self._free_us = 0

    def _cancel(self, append: _Append) -> None:
        if append.event is not None:
            self._scheduler.cancel(append.event)
            append.event = None
