"""Cuts a range of positions into parts of about one size, by what the segments of a replica tell. No I/O.

A segment begins with a mark, from which a reader replays it. A part that begins within a segment makes its
replica read what is before it, too. So cuts go to a segment's beginning where one is near.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil

PART_BYTES = 64 * 1024 * 1024
"""A part is about so large: a segment of a replica, and half a second of an executor's time."""
SMALL_BYTES = 4 * 1024 * 1024
"""Less than this is not worth a second task."""
NEAR = 0.25
"""A cut moves to a segment's beginning that is nearer than this share of a part."""

Span = tuple[int, int]
"""Positions from the first to before the second."""


class Sizes:
    """How many bytes lie before a position, as segments tell: within one they are spread evenly."""

    def __init__(self, segments: Sequence[tuple[int, int]], end: int) -> None:
        """`segments`: the first position and the bytes of each. `end`: the position behind the last."""
        self._positions: list[int] = []
        self._bytes: list[float] = []
        total = 0.0
        bounds = [position for position, _ in segments] + [end]
        for number, (first, size) in enumerate(segments):
            if bounds[number + 1] > first:  # a segment may have no record
                self._positions.append(first)
                self._bytes.append(total)
                total += size
        self._positions.append(end)
        self._bytes.append(total)

    @property
    def boundaries(self) -> list[int]:
        return self._positions

    def before(self, position: int) -> float:
        """What lies before the first segment, or behind the end, has the density of what is beside it."""
        positions, sizes = self._positions, self._bytes
        if len(positions) < 2:
            return float(position)  # nothing is known: a position is as large as another
        at = min(max(bisect_right(positions, position) - 1, 0), len(positions) - 2)
        width = positions[at + 1] - positions[at]
        density = (sizes[at + 1] - sizes[at]) / width
        return sizes[at] + (position - positions[at]) * density

    def at(self, size: float) -> int:
        """The position with so many bytes before it."""
        positions, sizes = self._positions, self._bytes
        if len(positions) < 2:
            return round(size)
        at = min(max(bisect_right(sizes, size) - 1, 0), len(positions) - 2)
        share = (size - sizes[at]) / max(sizes[at + 1] - sizes[at], 1.0)
        return positions[at] + round(share * (positions[at + 1] - positions[at]))


def parts_wanted(size: float, least: int) -> int:
    """How many, if a program asks for so many at least; 0: it does not say."""
    by_size = ceil(size / PART_BYTES)
    if not least and size >= SMALL_BYTES:
        by_size = max(by_size, 2)
    return max(by_size, least, 1)


def cut(start: int, stop: int, sizes: Sizes, least: int = 0) -> list[Span]:
    """Spans from `start` to `stop` that follow each other; none if there is nothing to read."""
    if start >= stop:
        return []
    first, last = sizes.before(start), sizes.before(stop)
    count = min(parts_wanted(last - first, least), stop - start)
    part = (last - first) / count
    cuts = [start]
    for number in range(1, count):
        wanted = first + number * part
        position = _near_boundary(sizes, wanted, part)
        # Each part has a position at least, whatever the sizes say.
        position = min(max(position, cuts[-1] + 1), stop - (count - number))
        cuts.append(position)
    return list(zip(cuts, [*cuts[1:], stop], strict=True))


def _near_boundary(sizes: Sizes, wanted: float, part: float) -> int:
    position = sizes.at(wanted)
    boundaries = sizes.boundaries
    after = bisect_right(boundaries, position)
    near = min(boundaries[max(after - 1, 0) : after + 1], key=lambda each: abs(sizes.before(each) - wanted))
    return near if abs(sizes.before(near) - wanted) <= NEAR * part else position
