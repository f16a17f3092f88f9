"""The marks of fences: which run of several is let into the order, decided alike by every replica.

A mark moves only when a run with its fence becomes green, so the table is a function of the order, as
positions are. It is bounded: the mark that was moved longest ago is forgotten first, and counts as 0 then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from totempole.types import Fence

FENCES_MAX = 4_096
"""So many names are remembered."""


class FenceMark(NamedTuple):
    number: int
    position: int
    """Of the first record of the run that has set it; -1: none has."""


NO_MARK = FenceMark(0, -1)

FenceRow = tuple[str, int, int]
"""Name, number and position, as `Mark` has them."""


class Fences:
    def __init__(self, rows: Iterable[FenceRow] = ()) -> None:
        self._marks = {name: FenceMark(number, position) for name, number, position in rows}
        """The one that was moved longest ago is the first."""

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def rows(self) -> tuple[FenceRow, ...]:
        """What another table is made of, in the order in which marks will be forgotten."""
        return tuple([(name, *mark) for name, mark in self._marks.items()])

    def latest(self, count: int) -> list[FenceRow]:
        """Those that were moved last, the last one first. May be asked on any thread."""
        marks = list(self._marks.items())
        return [(name, *mark) for name, mark in reversed(marks[-count:])]

    def mark(self, name: str) -> FenceMark:
        return self._marks.get(name, NO_MARK)

    def keeps_out(self, fence: Fence) -> FenceMark | None:
        """The mark, if a run with this fence is passed over."""
        mark = self.mark(fence.name)
        return None if fence.low <= mark.number <= fence.high else mark

    def move(self, fence: Fence, position: int) -> None:
        """A run with this fence has taken positions, its first record this one."""
        self._marks.pop(fence.name, None)
        self._marks[fence.name] = FenceMark(fence.number, position)
        while len(self._marks) > FENCES_MAX:
            del self._marks[next(iter(self._marks))]
