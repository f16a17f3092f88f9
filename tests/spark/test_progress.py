"""The tasks of a job, as they are counted for the bar, and that the bars of commands move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from totempole.cli import main
from totempole.cli.output import Advance, Screen
from totempole.sim.scenario import parse, run
from totempole.spark.progress import count
from totempole.trace.ndjson import write_ndjson

SCENARIO = """\
processors p=1 q=2 r=3
at 200ms load p rate=100 size=50 until=400ms
end 500ms
"""
STEPS_LEAST = 3
"""A bar that shows fewer stands still."""


def test_tasks_are_counted_of_all_that_are_known() -> None:
    assert count({}, ()) == (0, 0)
    assert count({1: (2, 8)}, {1}) == (2, 8)
    assert count({1: (2, 8), 2: (0, 4)}, {1, 2}) == (2, 12)


def test_a_stage_that_is_over_is_done_whatever_was_seen_last() -> None:
    assert count({1: (2, 8), 2: (1, 4)}, {2}) == (9, 12)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """What a bar was told: how much is done, and of how much."""
    found: list[tuple[int, int | None]] = []

    @contextmanager
    def progress(_screen: Screen, _what: str, total: int | None) -> Iterator[Advance]:
        yield Advance(lambda done, _note, of: found.append((done, of or total)))

    monkeypatch.setattr(Screen, "progress", progress)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--out", "out"],
        # The checkers are done with so small a trace before a bar is drawn.
        pytest.param(["verify", "--judge", "statements"], marks=pytest.mark.long),
    ],
)
def test_the_bar_moves_while_the_work_goes_on(
    spark: SparkSession,
    shown: list[tuple[int, int | None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
) -> None:
    """It stood at 0, of an unknown number, until the end."""
    monkeypatch.chdir(tmp_path)
    write_ndjson(tmp_path / "trace.ndjson", run(parse(SCENARIO, "small")).rows)
    assert main([words[0], "trace.ndjson", *words[1:]]) == 0
    done = [count for count, _ in shown]
    assert len({*done}) >= STEPS_LEAST, shown
    assert done == sorted(done), "it never goes back"
    assert done[-1] > 0
    assert all(total for count, total in shown if count), "of a number that is known"
