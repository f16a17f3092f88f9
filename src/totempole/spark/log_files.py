"""Logs on disk, as the checks and the table of records want them.

The driver looks at each log once (`find_logs`): headers of segments, and its last segment. Executors read
ranges of places (`read_items`, `read_runs`), each from the last mark before it. Both need to see the log's
directory. A node may go on writing meanwhile: what was green when the driver looked is judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from isal.isal_zlib import crc32

from totempole.checkers.stored_logs import (
    LogState,
    StoredDamage,
    StoredItem,
    StoredMark,
    StoredRun,
)
from totempole.corel.frames import Begun, Mark, decode
from totempole.corel.run import RunKind, head_of
from totempole.corel.tracing import CRC_START
from totempole.corel.zones import Ordered, Zones
from totempole.errors import CodecError, ConfigurationError, LogDamagedError
from totempole.log.reader import LogReader, apply_frame
from totempole.log.segments import (
    Header,
    SegmentReader,
    last_in_a_row,
    segment_name,
    segment_numbers,
)

KINDS = {kind: kind.name.lower() for kind in RunKind}
"""Kinds of runs, as the trace has them."""


class Segment(NamedTuple):
    place: int
    """Of its first green run, and so on."""
    position: int
    bytes: int


@dataclass(frozen=True)
class LogFiles:
    """The log of one replica, as the driver found it."""

    node: int
    directory: str
    cluster: int
    log: int
    """The log's own name."""
    segments: tuple[Segment, ...]
    place: int
    """Behind the last green run."""
    position: int
    pending: tuple[str, ...]
    """Runs that are yellow on this disk, in their order."""
    damage: str
    """Why segments before these cannot be read; empty if they can, or were trimmed."""

    @property
    def first_place(self) -> int:
        return self.segments[0].place

    @property
    def first_position(self) -> int:
        return self.segments[0].position


def find_logs(directories: Sequence[Path]) -> list[LogFiles]:
    """By node. Raises StorageError if one is no log's directory, and ConfigurationError if they are not the
    replicas of one log."""
    found = sorted((_find(directory.resolve()) for directory in directories), key=lambda log: log.node)
    for one, other in pairwise(found):
        both = f"--log {one.directory} and --log {other.directory}"
        if one.node == other.node:
            raise ConfigurationError(f"{both} are both of node {one.node}: name one of them")
        if one.cluster != other.cluster:
            raise ConfigurationError(
                f"{both} are of two clusters ({one.cluster:x} and {other.cluster:x}): judge one at a time"
            )
        if one.log != other.log and one.log and other.log:
            raise ConfigurationError(
                f"{both} are two logs ({one.log:x} and {other.log:x}): one was rescued, or founded anew. "
                "Judge one at a time"
            )
    return found


def _find(directory: Path) -> LogFiles:
    reader = LogReader(directory)
    _ = reader.first_position  # raises if there is no log
    headers = reader.headers()
    last = headers[-1]
    zones = _state_after(directory / segment_name(last.number))
    # A mark that cannot be read leaves nothing but the header.
    place, position = max((zones.green_runs, zones.position), (last.green_runs, last.position))
    segments = [Segment(header.green_runs, header.position, _size(directory, header)) for header in headers]
    return LogFiles(
        last.processor,
        str(directory),
        last.cluster,
        zones.log or last.log,
        tuple(segments),
        place,
        position,
        tuple([str(run.id) for run in zones.yellow]),
        _missing(directory, headers[0]),
    )


def _state_after(path: Path) -> Zones:
    """As far as it can be read: executors tell of damage."""
    zones = Zones(recent_bytes=0)
    with suppress(LogDamagedError, CodecError), SegmentReader(path) as segment:
        for stored in segment.frames():
            apply_frame(zones, decode(stored.content), path)
    return zones


def _size(directory: Path, header: Header) -> int:
    try:
        return (directory / segment_name(header.number)).stat().st_size
    except FileNotFoundError:
        return 0  # it has just been trimmed


def _missing(directory: Path, first: Header) -> str:
    """Trimming takes segments from the first on: what is missing behind another one is lost."""
    numbers = [number for number in segment_numbers(directory) if number < first.number]
    if not numbers:
        return ""
    if last_in_a_row([*numbers, first.number]) == [first.number]:
        return (
            f"{segment_name(numbers[-1] + 1)} to {segment_name(first.number - 1)} are missing, so what is "
            "before them cannot be read on from"
        )
    return f"the header of {segment_name(first.number - 1)} cannot be read, nor what is before it"


# On the executors


def read_items(log: LogFiles, start: int, stop: int) -> Iterator[StoredItem]:
    """What `checkers.stored_logs` looks at: runs at these places, and the marks before, amid and right behind
    them. First a mark: the state at `start`, or where the log begins."""
    if log.damage and start <= log.first_place:
        yield StoredDamage(log.damage)
    state: LogState | None = None
    """While runs before the range are passed over."""
    is_begun = False
    where = ""
    for item in _items(log, start, stop):
        if isinstance(item, StoredDamage):
            yield item
            state, is_begun = None, False
            continue
        if not is_begun:
            if isinstance(item, StoredMark):
                state, where = LogState.of(item), item.where
            if item.place < start:
                if isinstance(item, StoredRun) and state is not None:
                    state.take(item)
                continue
            is_begun = True
            if state is not None:
                yield state.as_mark(where)
            if isinstance(item, StoredMark):
                continue
        yield item


def read_runs(log: LogFiles, start: int, stop: int) -> Iterator[Ordered]:
    """Green runs at these places that can be read."""
    for item in _ordered(log, start, stop):
        if isinstance(item, Ordered) and item.place >= start:
            yield item


def _items(log: LogFiles, start: int, stop: int) -> Iterator[StoredItem]:
    for item in _ordered(log, start, stop):
        yield _stored(item) if isinstance(item, Ordered) else item


def _ordered(log: LogFiles, start: int, stop: int) -> Iterator[Ordered | StoredMark | StoredDamage]:
    """From the last mark that is not behind `start` on, up to the first run that is not before `stop`."""
    if start > log.place:
        return
    directory = Path(log.directory)
    stop = min(stop, log.place)
    headers = LogReader(directory).headers()
    first = max(bisect_right(headers, start, key=lambda header: header.green_runs) - 1, 0)
    is_first = True
    for header, following in zip(headers[first:], [*headers[first + 1 :], None], strict=True):
        if header.green_runs > stop:
            return
        try:
            with SegmentReader(directory / segment_name(header.number)) as segment:
                for item in _of_segment(segment, is_first, following):
                    if isinstance(item, Ordered) and item.place >= stop:
                        return
                    is_first = isinstance(item, StoredDamage)
                    yield item
        except FileNotFoundError:  # it has just been trimmed
            is_first = True
        except LogDamagedError as error:
            yield StoredDamage(str(error))
            is_first = True


def _of_segment(
    segment: SegmentReader, is_first: bool, following: Header | None
) -> Iterator[Ordered | StoredMark | StoredDamage]:
    zones = Zones(recent_bytes=0)
    for stored in segment.frames():
        try:
            frame = decode(stored.content)
        except CodecError as error:
            raise LogDamagedError(f"{segment.path}: frame {stored.sequence}: {error}") from None
        ordered = apply_frame(zones, frame, segment.path)
        if isinstance(frame, Mark):
            yield _mark(frame, segment.path.name, is_first)
        elif isinstance(frame, Begun):  # others have trimmed what leads up to it
            yield _mark(frame.mark, segment.path.name, True)
        yield from ordered
    yield from _end(segment, following)


def _end(segment: SegmentReader, following: Header | None) -> Iterator[StoredDamage]:
    """Asked where the last whole frame ends."""
    if following is None:
        lost = segment.lost_frame()
        until = 0 if lost is None else lost.sequence
    else:
        until = following.sequence
    if until > segment.sequence:
        yield StoredDamage(
            f"{segment.path}: frames {segment.sequence} to {until - 1} cannot be read (at byte {segment.at})"
        )


def _mark(mark: Mark, where: str, is_given: bool) -> StoredMark:
    keys = {(log, key): position for log, key, position in mark.keys}
    fences = {name: (number, position) for name, number, position in mark.fences}
    return StoredMark(where, mark.green_runs, mark.position, mark.time_us, keys, fences, is_given)


def _stored(ordered: Ordered) -> StoredRun:
    run = ordered.run
    head = head_of(run) if run.kind is RunKind.RECORDS else None
    return StoredRun(
        place=ordered.place,
        position=ordered.position,
        positions=ordered.positions,
        message=str(run.id),
        kind=KINDS[run.kind],
        records=run.count,
        bytes=len(run.body),
        digest=crc32(run.body, CRC_START),
        stamp=str(run.stamp),
        time_us=ordered.time_us,
        log="" if head is None else head.log,
        keys=() if head is None else head.keys,
        repeats=ordered.repeats,
        fence=None if head is None else head.fence,
        kept_out=() if ordered.fenced is None else tuple(ordered.fenced),
    )
