"""Ranges of places, in which logs are read and judged by executors.

A range begins where a segment of some log does, if it can: executors read a log from the last mark before
their range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from totempole.spark.log_files import LogFiles

RANGE_RUNS = 50_000
RANGE_RECORDS = 1_000_000
RANGE_BYTES = 128 * 1024 * 1024
"""A range has about so many of each log at most: what an executor keeps in memory, and reads in seconds. A
segment of 64 MiB with records of 100 bytes is one range."""

END = 2**62
"""The last range has no end."""


def ranges_of(
    logs: Sequence[LogFiles], stop: int, runs_max: int = RANGE_RUNS, records_max: int = RANGE_RECORDS
) -> list[int]:
    """Where ranges begin; the first with 0, and the last has no end. `stop`: the place behind the last one
    that the traces tell of."""
    pieces = sorted(piece for log in logs for piece in _pieces(log, runs_max, records_max))
    found = [0]
    runs = records = size = 0
    for place, *weight in pieces:
        is_full = runs >= runs_max or records >= records_max or size >= RANGE_BYTES
        if is_full and place > found[-1]:
            found.append(place)
            runs = records = size = 0
        share = len(logs)
        runs, records, size = (
            have + ceil(more / share) for have, more in zip((runs, records, size), weight, strict=True)
        )
    known = max([log.place for log in logs], default=0)
    found += range(max(known, found[-1] + runs_max), stop, runs_max)
    return found


def _pieces(log: LogFiles, runs_max: int, records_max: int) -> Iterator[tuple[int, int, int, int]]:
    """Of each segment, or of parts of one that has very many runs: place, runs, records, bytes."""
    ends = [(each.place, each.position) for each in log.segments[1:]] + [(log.place, log.position)]
    for segment, (place, position) in zip(log.segments, ends, strict=True):
        runs, records = max(0, place - segment.place), max(0, position - segment.position)
        parts = max(1, min(runs, ceil(max(runs / runs_max, records / records_max))))
        for part in range(parts):
            yield (
                segment.place + runs * part // parts,
                ceil(runs / parts),
                ceil(records / parts),
                segment.bytes // parts,
            )


def range_of(starts: Sequence[int], part: int) -> tuple[int, int]:
    """The places of a range."""
    return starts[part], starts[part + 1] if part + 1 < len(starts) else END
