"""Checks a log's directory, or a copy of one: every frame, the order, colours and positions.

Frames are replayed through all segments. Every segment begins with a mark, the replica's whole state: it must
be exactly what the frames before it give. So a frame that is missing, changed or out of place shows, and so
does a state that the replica got wrong. Snapshots of objects beside the log are read and compared with their
checksums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from totempole.corel.frames import Mark, decode
from totempole.corel.run import RunKind, records_of
from totempole.corel.zones import Ordered, Zones
from totempole.errors import CodecError, LogDamagedError, StorageError
from totempole.groups.packing import layout_of
from totempole.log.reader import apply_frame
from totempole.log.segments import Header, SegmentReader, segment_name, segment_numbers
from totempole.log.snapshots import SnapshotFile, snapshot_files, snapshot_name, snapshots_of


@dataclass(slots=True)
class SegmentReport:
    path: Path
    bytes: int = 0
    frames: int = 0
    runs: int = 0
    """That became green in it."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is as it may be: a torn tail."""


@dataclass(slots=True)
class SnapshotReport:
    """Of an object, in `snapshots/`."""

    path: Path
    object: str = ""
    position: int = 0
    bytes: int = 0
    problem: str = ""


@dataclass(slots=True)
class LogReport:
    directory: Path
    processor: int = 0
    cluster: int = 0
    log: int = 0
    disk: int = 0
    segments: list[SegmentReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Of the directory as a whole. `all_problems` has those of segments too."""
    first_position: int = 0
    position: int = 0
    """Of the next record."""
    green_runs: int = 0
    yellow_runs: int = 0
    red_runs: int = 0
    snapshots: list[SnapshotReport] = field(default_factory=list)

    @property
    def all_problems(self) -> list[str]:
        of_segments = [
            f"{segment.path.name}: {text}" for segment in self.segments for text in segment.problems
        ]
        of_snapshots = [snapshot.problem for snapshot in self.snapshots if snapshot.problem]
        return self.problems + of_segments + of_snapshots

    @property
    def is_good(self) -> bool:
        return not self.all_problems


def check(directory: Path) -> LogReport:
    """Raises StorageError if it is no log's directory, or a newer version has written it."""
    try:
        numbers = segment_numbers(directory)
    except OSError as error:
        raise StorageError(f"{directory} cannot be read as a log ({error}): name its directory") from None
    if not numbers:
        raise StorageError(
            f"{directory} has no log in it: name the directory of a node's log, or a copy of it"
        )
    report = _Check(directory).run(numbers)
    report.snapshots = [_check_snapshot(path) for path in snapshot_files(snapshots_of(directory))]
    return report


def _check_snapshot(path: Path) -> SnapshotReport:
    report = SnapshotReport(path)
    try:
        with SnapshotFile(path) as file:
            head = file.head
            report.object, report.position, report.bytes = head.object, head.position, head.size
            if path.name != snapshot_name(head.object, head.position):
                report.problem = f"{path.name} is of object {head.object!r} at position {head.position}"
            file.check()
    except (StorageError, OSError) as error:
        report.problem = str(error)
    return report


class _Check:
    def __init__(self, directory: Path) -> None:
        self.report = LogReport(directory)
        self._zones: Zones | None = None
        """As of the frames before; None where these could not be read."""
        self._owner: Header | None = None

    def run(self, numbers: list[int]) -> LogReport:
        report = self.report
        for index, number in enumerate(numbers):
            if index and numbers[index - 1] != number - 1:
                report.problems.append(
                    f"{segment_name(numbers[index - 1] + 1)} to {segment_name(number - 1)} are missing"
                )
                self._zones = None
            segment = SegmentReport(report.directory / segment_name(number))
            report.segments.append(segment)
            following = numbers[index + 1] if numbers[index + 1 : index + 2] == [number + 1] else 0
            try:
                with SegmentReader(segment.path) as reader:
                    self._check_segment(reader, segment, following)
            except (LogDamagedError, OSError) as error:
                segment.problems.append(str(error).removeprefix(f"{segment.path}: "))
                self._zones = None
        self._tell_state()
        return report

    def _tell_state(self) -> None:
        report, zones = self.report, self._zones
        if zones is not None:
            report.log, report.disk = zones.log, zones.disk
            report.position, report.green_runs = zones.position, zones.green_runs
            report.yellow_runs, report.red_runs = len(zones.yellow), len(zones.red)

    def _check_segment(self, reader: SegmentReader, segment: SegmentReport, following: int) -> None:
        segment.bytes = reader.size
        self._check_owner(reader.header, segment)
        for stored in reader.frames():
            segment.frames += 1
            try:
                frame = decode(stored.content)
            except CodecError as error:
                raise LogDamagedError(f"frame {stored.sequence}: {error}") from None
            if segment.frames == 1:
                self._begin(reader.header, frame, segment)
            zones = self._zones
            assert zones is not None, "a segment begins with a mark"
            for ordered in apply_frame(zones, frame, segment.path):
                segment.runs += 1
                _check_run(ordered, stored.sequence)
        if not segment.frames:
            raise LogDamagedError("its mark cannot be read")
        self._check_end(reader, segment, following)

    def _check_owner(self, header: Header, segment: SegmentReport) -> None:
        if self._owner is None:
            self._owner = header
            self.report.processor, self.report.cluster = header.processor, header.cluster
            self.report.first_position = header.position
        owner = self._owner
        if segment.path.name != segment_name(header.number):
            segment.problems.append(f"it is segment {header.number} under another's name")
        if (header.cluster, header.processor) != (owner.cluster, owner.processor):
            segment.problems.append(
                f"it belongs to processor {header.processor} of cluster {header.cluster}, the others to "
                f"{owner.processor} of {owner.cluster}"
            )
        log = owner.log if self._zones is None else self._zones.log  # it changes when a log is rescued
        if log and header.log != log:
            segment.problems.append(f"it belongs to log {header.log}, those before it to {log}")
        self._owner = header

    def _begin(self, header: Header, mark: object, segment: SegmentReport) -> None:
        """Compares the state in the mark with what the frames before it give."""
        if not isinstance(mark, Mark):
            raise LogDamagedError("it does not begin with a mark")
        before, self._zones = self._zones, Zones(recent_bytes=0)
        shown = (header.log, header.disk, header.sequence, header.green_runs, header.position, header.time_us)
        if shown != (mark.log, mark.disk, mark.frames, mark.green_runs, mark.position, mark.time_us):
            segment.problems.append("its header and its mark differ")
        if before is None:
            return
        if mark.frames <= before.frames:
            segment.problems.append(f"it begins with frame {mark.frames}, which another has already")
        elif mark.frames == before.frames + 1:
            expected = before.mark()
            names = [
                name
                for name in msgspec.structs.asdict(mark)
                if getattr(mark, name) != getattr(expected, name)
            ]
            if names:
                segment.problems.append(
                    f"its mark is not the state that the frames before it give: {', '.join(names)}"
                )

    def _check_end(self, reader: SegmentReader, segment: SegmentReport, following: int) -> None:
        lost = reader.lost_frame()
        if following:
            with SegmentReader(self.report.directory / segment_name(following)) as after:
                sequence = after.header.sequence
            if sequence > reader.sequence:
                segment.problems.append(
                    f"frames {reader.sequence} to {sequence - 1} cannot be read (at byte {reader.at})"
                )
                self._zones = None
            elif lost is not None:
                segment.notes.append(
                    f"damaged from frame {reader.sequence} on; the replica went on from there as a new disk"
                )
        elif lost is not None:
            segment.problems.append(
                f"frames {reader.sequence} to {lost.sequence - 1} cannot be read (at byte {reader.at}); "
                "whole ones follow"
            )
        if lost is None and reader.has_tail():
            segment.notes.append(f"torn tail behind frame {reader.sequence - 1}: it was never synced")


def _check_run(ordered: Ordered, sequence: int) -> None:
    run = ordered.run
    if run.kind is not RunKind.RECORDS:
        return
    try:
        records = records_of(run)
        count = layout_of(records.batch).count
    except (CodecError, msgspec.MsgspecError) as error:
        raise LogDamagedError(f"frame {sequence}: run {run.id}: {error}") from None
    if count != run.count or (records.keys and len(records.keys) != count):
        raise LogDamagedError(f"frame {sequence}: run {run.id} does not have {run.count} records")
