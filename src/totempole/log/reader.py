"""Reads a log's directory: green runs in their order, from any position on, beside a node that writes.

A segment begins with a mark, the whole state. So a reader begins with the last segment whose mark is not
behind the position that it wants, and replays frames with `corel.zones`, as the replica itself does. It takes
no lock, and frames that are not whole yet are read later.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from totempole.corel.frames import Frame, Mark, decode, decode_viewed
from totempole.corel.run import RunId, RunKind, records_of
from totempole.corel.zones import Ordered, Zones
from totempole.errors import CodecError, LogDamagedError, LogTrimmedError, StorageError
from totempole.log.blocks import Blocks
from totempole.log.segments import (
    Header,
    SegmentReader,
    last_in_a_row,
    read_header,
    segment_name,
    segment_numbers,
)

POSITION_MAX = 2**63 - 1

POLL_S = 0.02
"""A reader that follows looks for more so often. The green line is written as often (corel.layer)."""


class Record(NamedTuple):
    """A record of a green run."""

    position: int
    time_us: int
    log: str
    run: RunId
    index: int  # type: ignore[assignment]
    """In the run."""
    key: str
    payload: bytes


def records_in(ordered: Ordered) -> Iterator[Record]:
    """Those that have taken a position."""
    run = ordered.run
    if run.kind is not RunKind.RECORDS or ordered.fenced is not None:
        return
    records = records_of(run)
    keys = records.keys or ("",) * run.count
    repeated = {index for index, _ in ordered.repeats}
    position = ordered.position
    for index, (key, payload) in enumerate(zip(keys, records.payloads, strict=True)):
        if index not in repeated:
            yield Record(position, ordered.time_us, records.log, run.id, index, key, payload)
            position += 1


def apply_frame(zones: Zones, frame: Frame, path: Path) -> list[Ordered]:
    """A frame that fits its checksum, and is no step from this state, was not written by a replica."""
    try:
        return zones.apply(frame)
    except (AssertionError, LookupError, CodecError, ValueError) as error:
        raise LogDamagedError(
            f"{path}: frame {zones.frames} does not follow from what is before it ({error})"
        ) from error


class Cursor:
    """A place in a log. `runs` goes on from there, as far as there is something."""

    def __init__(
        self, directory: Path, number: int, place: int, position: int = 0, *, blocks: Blocks | None = None
    ) -> None:
        """Begins with the mark of this segment, and gives green runs from this place on. Runs that only have
        records before this position may be missing. `blocks`: it reads into these, and bodies of runs are
        views of them, for those who do not keep runs."""
        self.zones = Zones(recent_bytes=0)
        self.place = place
        """Of the next green run that it gives."""
        self._position = position
        self._decode: Callable[[memoryview], Frame] = decode_viewed if blocks is not None else decode
        self._found: deque[Ordered] = deque()
        """Green, and not given yet."""
        self._directory = directory
        self._blocks = blocks
        self._segment = SegmentReader(directory / segment_name(number), blocks)

    def close(self) -> None:
        self._segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def number(self) -> int:
        """Of the segment that it reads."""
        return self._segment.header.number

    @property
    def read_bytes(self) -> int:
        """Of the segment that it reads, so many were read."""
        return self._segment.at

    def has_more(self) -> bool:
        """Whether it is worth asking for runs: cheap, for those who ask often."""
        if self._found or self._segment.has_more():
            return True
        return (self._directory / segment_name(self.number + 1)).exists()

    def runs(self) -> Iterator[Ordered]:
        """Those that are there by now. Raises LogTrimmedError where runs are not there any more."""
        yield from self._take_found()
        while True:
            yield from self._runs_of_segment()
            number = self._segment.header.number + 1
            following = self._directory / segment_name(number)
            if not following.exists():
                if self._segment.is_removed:
                    self._check_not_trimmed(number)
                return
            # The next segment begins when this one is complete: what has come in between belongs before it.
            yield from self._runs_of_segment()
            self._enter(following)

    def _runs_of_segment(self) -> Iterator[Ordered]:
        path = self._segment.path
        try:
            for stored in self._segment.frames():
                self._found.extend(apply_frame(self.zones, self._decode(stored.content), path))
                yield from self._take_found()
        except OSError as error:
            raise LogDamagedError(
                f"{path}: the disk cannot read frame {self._segment.sequence} ({error}); other replicas may "
                "have what comes from there on"
            ) from error

    def _take_found(self) -> Iterator[Ordered]:
        while self._found:
            ordered = self._found.popleft()
            if ordered.place > self.place:
                self._pass_over_gap(ordered.place, ordered.position)
            if ordered.place == self.place:
                self.place += 1
                yield ordered

    def _pass_over_gap(self, place: int, position: int) -> None:
        """The replica began anew at another's mark."""
        if position > self._position:
            raise LogTrimmedError(
                f"{self._segment.path}: this replica has no records before position {position}: it was "
                f"behind when others trimmed theirs. Read from {position} on, or read another replica",
                position,
            )
        self.place = place

    def _enter(self, path: Path) -> None:
        try:
            following = SegmentReader(path, self._blocks)
        except FileNotFoundError:
            self._check_not_trimmed(self._segment.header.number + 1)
            raise
        try:
            self._check_complete(following.header)
        except StorageError:
            following.close()
            raise
        self._segment.close()
        self._segment = following

    def _check_complete(self, following: Header) -> None:
        """Whether all that is green before the next segment was read."""
        if following.green_runs <= self.place:
            return
        if self.zones.green_runs >= following.green_runs:
            self._pass_over_gap(following.green_runs, following.position)
            return
        raise LogDamagedError(
            f"{self._segment.path} is damaged: green runs {self.place} to {following.green_runs - 1} cannot "
            "be read. `totem log check` shows where; other replicas may have them"
        )

    def _check_not_trimmed(self, number: int) -> None:
        numbers = segment_numbers(self._directory)
        if numbers and numbers[0] > number:
            first = read_header(self._directory / segment_name(numbers[0]))
            raise _trimmed(self._directory, first)


class LogReader:
    """A log's directory. For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._headers: dict[int, Header] = {}
        self._damage = ""
        """Why segments before these cannot be read."""

    def headers(self) -> list[Header]:
        """Of the segments that can be read one after the other up to the last."""
        known: dict[int, Header] = {}
        try:
            numbers = last_in_a_row(segment_numbers(self.directory))
        except OSError as error:
            raise StorageError(
                f"{self.directory} cannot be read as a log ({error}): name its directory"
            ) from None
        self._damage = ""
        for number in reversed(numbers):
            header = self._headers.get(number)
            try:
                known[number] = header or read_header(self.directory / segment_name(number))
            except FileNotFoundError:
                break  # it has just been trimmed
            except LogDamagedError as error:
                self._damage = self._damage or str(error)
                if known:
                    break  # what is before it cannot be read on from
        self._headers = known
        return list(reversed(known.values()))

    def _some_headers(self) -> list[Header]:
        headers = self.headers()
        if not headers and self._damage:
            raise LogDamagedError(self._damage)
        if not headers:
            raise StorageError(f"{self.directory} has no log in it: name the directory of a node's log")
        return headers

    def earliest(self, position: int) -> int:
        """The first position that is kept, or a little behind it if the replica began anew behind a gap;
        `position` if none is."""
        headers = self.headers()
        kept_from = headers[-1].kept_from if headers else 0
        for header in headers:
            if header.green_runs >= kept_from:
                return header.position
        return position

    def sizes(self, end: Cursor) -> list[tuple[int, int]]:
        """Of each segment up to the one that a cursor reads: its first position, and its bytes. The file of
        the last one is longer than what is written to it: what the cursor has read counts."""
        found = []
        for header in self.headers():
            if header.number == end.number:
                found.append((header.position, end.read_bytes))
            elif header.number < end.number:
                with suppress(FileNotFoundError):  # it has just been trimmed
                    size = (self.directory / segment_name(header.number)).stat().st_size
                    found.append((header.position, size))
        return found

    @property
    def first_position(self) -> int:
        """The first that can be read, unless the replica has begun with a mark of another's behind it."""
        return self._some_headers()[0].position

    def at_place(self, place: int, blocks: Blocks | None = None) -> Cursor:
        """A cursor for green runs from this one on."""
        return self._cursor(lambda header: header.green_runs, place, place, blocks)

    def at_position(self, position: int, blocks: Blocks | None = None) -> Cursor:
        """A cursor that gives the run with this position, and no record before that run's."""
        return self._cursor(lambda header: header.position, position, None, blocks)

    def at_end(self) -> Cursor:
        """A cursor that has read all that is there."""
        cursor = self.at_last_segment()
        for _ in cursor.runs():
            pass
        return cursor

    def at_last_segment(self) -> Cursor:
        """A cursor at the mark that the last segment begins with."""
        while True:
            last = self._some_headers()[-1]
            try:
                return Cursor(self.directory, last.number, last.green_runs, POSITION_MAX)
            except FileNotFoundError:
                continue  # others have followed it meanwhile, and it has just been trimmed

    def _cursor(
        self, key: Callable[[Header], int], wanted: int, place: int | None, blocks: Blocks | None
    ) -> Cursor:
        while True:
            headers = self._some_headers()
            found = bisect_right(headers, wanted, key=key) - 1
            if found < 0 and self._damage:
                raise LogDamagedError(f"{self._damage}: read from position {headers[0].position} on")
            if found < 0:
                raise _trimmed(self.directory, headers[0])
            header = headers[found]
            try:
                if place is None:
                    start = header.green_runs
                    return Cursor(self.directory, header.number, start, wanted, blocks=blocks)
                return Cursor(self.directory, header.number, place, blocks=blocks)
            except FileNotFoundError:
                continue  # it has just been trimmed

    def runs(self, start: int = 0, stop: int | None = None) -> Iterator[Ordered]:
        """Green runs that have records at these positions, in their order; runs that take no position too.
        Of the first and last run records may be outside."""
        with self.at_position(start) as cursor:
            yield from _within(cursor.runs(), start, stop)

    def follow(
        self,
        start: int = 0,
        is_stopped: Callable[[], bool] = lambda: False,
        pause: Callable[[float], object] = time.sleep,
    ) -> Iterator[Ordered]:
        """As `runs`, and goes on as the log grows, until it is stopped."""
        with self.at_position(start) as cursor:
            while not is_stopped():
                yield from _within(cursor.runs(), start, None)
                pause(POLL_S)

    def records(self, start: int = 0, stop: int | None = None, log: str | None = None) -> Iterator[Record]:
        for ordered in self.runs(start, stop):
            for record in records_in(ordered):
                if (
                    record.position >= start
                    and (stop is None or record.position < stop)
                    and (log is None or record.log == log)
                ):
                    yield record

    def locate(self, run: RunId) -> Ordered | None:
        """The run's place in the order; None if it is not green here, or was trimmed."""
        headers = self._some_headers()
        first = self._first_that_has(run, headers)
        if first == 0 and not self._is_pending(run, headers[0]):
            return None  # it was green before the log begins
        start = max(first - 1, 0)
        for index in range(first, len(headers)):
            if not self._is_pending(run, headers[index]):
                break
            start = index
        header = headers[start]
        with Cursor(self.directory, header.number, header.green_runs, POSITION_MAX) as cursor:
            for ordered in cursor.runs():
                if ordered.run.id == run:
                    return ordered
                if cursor.number > headers[min(start + 1, len(headers) - 1)].number:
                    return None
        return None

    def _first_that_has(self, run: RunId, headers: list[Header]) -> int:
        """The first segment whose mark knows the run; how many there are, if none does."""

        def has(header: Header) -> bool:
            vector = self.mark(header.number).vector
            return any(
                (had.origin, had.life) == (run.origin, run.life) and had.number >= run.number
                for had in vector
            )

        return bisect_right(headers, 0, key=lambda header: int(has(header)))

    def _is_pending(self, run: RunId, header: Header) -> bool:
        mark = self.mark(header.number)
        return any(each.id == run for each in (*mark.yellow, *mark.red))

    def mark(self, number: int) -> Mark:
        """That the segment begins with."""
        with SegmentReader(self.directory / segment_name(number)) as segment:
            mark = decode(segment.mark())
        if not isinstance(mark, Mark):
            raise LogDamagedError(f"{segment.path}: it does not begin with a mark")
        return mark


def _within(runs: Iterator[Ordered], start: int, stop: int | None) -> Iterator[Ordered]:
    for ordered in runs:
        if stop is not None and ordered.position >= stop:
            return
        if ordered.position + ordered.positions > start or (
            not ordered.positions and ordered.position >= start
        ):
            yield ordered


def _trimmed(directory: Path, first: Header) -> LogTrimmedError:
    return LogTrimmedError(
        f"{directory}: older records are trimmed: the log begins with position {first.position} (run "
        f"{first.green_runs}); read from there on",
        first.position,
    )
