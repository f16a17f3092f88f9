"""The tasks of a job, as they are counted for the bar."""

from __future__ import annotations

from totempole.spark.progress import count


def test_tasks_are_counted_of_all_that_are_known() -> None:
    assert count({}, ()) == (0, 0)
    assert count({1: (2, 8)}, {1}) == (2, 8)
    assert count({1: (2, 8), 2: (0, 4)}, {1, 2}) == (2, 12)


def test_a_stage_that_is_over_is_done_whatever_was_seen_last() -> None:
    assert count({1: (2, 8), 2: (1, 4)}, {2}) == (9, 12)
