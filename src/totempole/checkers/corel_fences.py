"""A run with a fence takes positions exactly if its fence lets it in, and every replica says so."""

from __future__ import annotations

from typing import NamedTuple

from totempole.checkers.corel_history import LogHistory, is_green
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row

FENCES_MAX = 4_096
"""So many names are remembered, the one that was moved longest ago is forgotten first: what is promised."""


class _Mark(NamedTuple):
    number: int
    position: int
    """Of the first record of the run that has set it."""
    row: Row | None
    """Of that run; None: nobody has."""


_NO_MARK = _Mark(0, -1, None)


class _Marks:
    """What the order so far has made of the marks."""

    def __init__(self) -> None:
        self._is_whole = True
        """Whether all of the order so far is known, with its fences."""
        self._moved: dict[str, _Mark] = {}
        """The one that was moved longest ago is the first."""

    def lose(self) -> None:
        """A run that nobody knows may have moved any of them."""
        self._is_whole = False
        self._moved.clear()

    def of(self, name: str) -> _Mark | None:
        """None: it is not known."""
        is_known = self._is_whole or len(self._moved) >= FENCES_MAX
        return self._moved.get(name, _NO_MARK if is_known else None)

    def move(self, name: str, mark: _Mark) -> None:
        self._moved.pop(name, None)
        self._moved[name] = mark
        if len(self._moved) > FENCES_MAX:
            del self._moved[next(iter(self._moved))]


def fences(log: LogHistory, terms: Terms, found: Findings) -> None:
    """Along the order, the mark of each fence says which runs are let in, and those move it. A run whose
    acceptance is not in the trace has a fence that nobody knows."""
    order: dict[int, Row] = {}
    for row in log.of_kind("colour"):
        if is_green(row):
            order.setdefault(row.corel.place, row)
    marks = _Marks()
    for expected, (place, row) in enumerate(sorted(order.items())):
        accept = log.accepts.get(row.message)
        if place != expected or (row.corel.run_kind == "records" and accept is None):
            marks.lose()
        if accept is None:
            continue
        name = accept.corel.fence
        if not name:
            if row.corel.kept_out:
                found.violated(f"Run {row.message} is said to be kept out, and has no fence.", accept, row)
            continue
        _judge(row, accept, marks.of(name), found)
        if not row.corel.kept_out:
            marks.move(name, _Mark(accept.corel.fence_bounds[2], _first_position(row), row))


def _judge(row: Row, accept: Row, mark: _Mark | None, found: Findings) -> None:
    if mark is None:
        return
    low, high, _ = accept.corel.fence_bounds
    is_let_in = low <= mark.number <= high
    kept_out = row.corel.kept_out
    if kept_out == (() if is_let_in else (mark.number, mark.position)):
        return
    told = f"kept out by mark {kept_out[0]}, set at {kept_out[1]}" if kept_out else "let in"
    found.violated(
        f"Run {row.message} was {told}. Its fence {accept.corel.fence!r} lets in {low} to {high}; the mark "
        f"is {mark.number}, set at {mark.position}.",
        *([] if mark.row is None else [mark.row]),
        row,
    )


def _first_position(row: Row) -> int:
    """Of the first record of a run that was let in."""
    if not row.count:
        return -1
    return dict(zip(row.corel.repeats, row.corel.firsts, strict=True)).get(0, row.corel.position)
