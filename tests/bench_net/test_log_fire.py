"""Nodes killed with -9 under load: what judges them, a short fire, and a long one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from totempole.bench.log_fire import Promises, burn, judge
from totempole.cli import main

LOG = [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def promises_of(*lines: tuple[object, ...]) -> Promises:
    promises = Promises()
    for line in lines:
        promises.take(json.dumps(line))
    return promises


GOOD = (
    ("green", "a", 10, 20, 0),
    ("green", "b", 15, 30, 1),
    ("red", "c", "1.2.3#0"),
    ("found", "c", 2),
    ("unknown", "x", None),
    ("refused", "y", "no majority"),
)


def test_what_was_promised_and_kept_is_right() -> None:
    promises = promises_of(*GOOD)
    assert judge(promises, {1: LOG, 2: LOG, 3: LOG}) == []
    assert promises.refused == {"no majority": 1}
    assert promises.unknown == {"x"}


@pytest.mark.parametrize(
    ("lines", "logs", "wrong"),
    [
        ([], {1: LOG, 2: LOG[:3]}, "the logs of 1 and 2 differ"),
        ([], {1: [*LOG, (4, "a")]}, "a is there 2 times"),
        ([], {1: [(0, "a"), (2, "b")]}, "positions have gaps, or do not ascend"),
        ([("green", "z", 1, 2, 4)], {1: LOG}, "z was green at 4, and is at None"),
        ([("green", "b", 1, 2, 2)], {1: LOG}, "b was green at 2, and is at 1"),
        ([("red", "z", "1.2.3#0")], {1: LOG}, "z was red, and is lost"),
        ([("found", "b", 2)], {1: LOG}, "b was green at 2, and is at 1"),
        (
            [("green", "b", 1, 2, 1), ("found", "b", 2)],
            {1: LOG},
            "b was told to be at 1, and then at 2",
        ),
        (
            [("green", "c", 1, 2, 2), ("green", "b", 3, 4, 1)],
            {1: LOG},
            "b is at 1; it began after c was known to be at 2",
        ),
    ],
)
def test_what_is_broken_is_found(
    lines: list[tuple[object, ...]], logs: dict[int, list[tuple[int, str]]], wrong: str
) -> None:
    assert judge(promises_of(*lines), logs) == [wrong]


def test_appends_at_the_same_time_may_come_in_any_order() -> None:
    promises = promises_of(("green", "c", 1, 5, 2), ("green", "b", 5, 9, 1), ("green", "d", 6, 7, 3))
    assert judge(promises, {1: LOG}) == []


def test_bench_log_fire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fire.json"
    words = ["bench", "log", "--fire", "--quick", "--seed", "3"]
    assert main([*words, "--directory", str(tmp_path), "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["wrong"] == []
    assert found["kills"] >= found["rounds"] == 3
    assert 0 < found["green"] <= found["records"]
    assert "none twice" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_green_record_is_lost_or_doubled_in_a_long_fire(tmp_path: Path, seed: int) -> None:
    outcome = burn(100, seed, tmp_path, lambda note: None)
    assert outcome.wrong == []
    assert outcome.kills >= 100
