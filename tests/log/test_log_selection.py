"""log.selection: which logs are read, and how far a number of records or bytes reaches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.log.selection import ALL_LOGS, LogSelection, Meter


@pytest.mark.parametrize(
    ("selection", "log", "has"),
    [
        (ALL_LOGS, "orders", True),
        (LogSelection(("orders", "notes")), "notes", True),
        (LogSelection(("orders", "notes")), "order", False),
        (LogSelection(without="staged/"), "staged/orders", False),
        (LogSelection(without="staged/"), "orders", True),
        (LogSelection(("staged/orders",)), "staged/orders", True),
    ],
)
def test_a_selection_has_the_logs_that_it_names(selection: LogSelection, log: str, has: bool) -> None:
    assert selection.has(log) is has


RUNS = [("orders", 0, 10, 1000), ("notes", 10, 20, 1000), ("orders", 20, 21, 5000), ("orders", 21, 41, 200)]
"""Log, positions and bytes of each."""


@pytest.mark.parametrize(
    ("start", "stop", "logs", "bounds", "end", "rows"),
    [
        (0, 41, (), {"rows_max": 10}, 10, 10),
        (0, 41, (), {"rows_max": 15}, 15, 15),
        (0, 41, (), {"rows_max": 1000}, 41, 41),
        (0, 30, (), {"rows_max": 1000}, 30, 30),
        (7, 41, (), {"rows_max": 5}, 12, 5),
        (0, 41, ("orders",), {"rows_max": 10}, 20, 10),
        (0, 41, ("orders",), {"rows_max": 11}, 21, 11),
        (0, 41, ("notes",), {"rows_max": 1}, 11, 1),
        (20, 41, ("notes",), {"rows_max": 1}, 41, 0),
        (0, 41, (), {"bytes_max": 1000}, 10, 10),
        (0, 41, (), {"bytes_max": 1999}, 19, 19),
        (0, 41, (), {"bytes_max": 2500}, 20, 20),
        (20, 41, (), {"bytes_max": 10}, 21, 1),
        (21, 41, (), {"bytes_max": 55}, 26, 5),
        (0, 41, (), {"bytes_max": 1999, "rows_max": 4}, 4, 4),
        (0, 41, (), {"bytes_max": 300, "rows_max": 4}, 3, 3),
    ],
)
def test_a_meter_stops_at_its_bounds(
    start: int, stop: int, logs: tuple[str, ...], bounds: dict[str, int], end: int, rows: int
) -> None:
    meter = Meter(start, stop, LogSelection(logs), **bounds)
    for run in RUNS:
        if not meter.take(*run):
            break
    assert (meter.position, meter.rows) == (end, rows)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20), st.integers(64, 500)), max_size=20),
    st.integers(1, 60),
    st.integers(1, 2000),
)
def test_parts_by_meters_are_the_whole(runs: list[tuple[str, int, int]], rows: int, size: int) -> None:
    """Each part is within the bounds, has a record if there is one, and the next begins where it ends."""
    placed, end = [], 0
    for log, count, bytes_ in runs:
        placed.append((log, end, end + count, bytes_))
        end += count
    position, total = 0, 0
    while position < end:
        meter = Meter(position, end, LogSelection(("a",)), rows_max=rows, bytes_max=size)
        for run in placed:
            if run[2] > position and not meter.take(*run):
                break
        assert meter.position > position
        assert meter.rows <= rows
        assert meter.rows <= 1 or meter.bytes <= size + len(runs), "but for rounding"
        assert meter.rows or meter.position == end
        position, total = meter.position, total + meter.rows
    assert total == sum(count for log, count, _ in runs if log == "a")
