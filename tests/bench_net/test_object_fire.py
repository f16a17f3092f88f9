"""Exactly once under fire: what its judge finds, and a fire in a short form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from totempole.bench.object_fire import Counted, Promises, burn, judge
from totempole.bench.object_fire_program import open_receipts
from totempole.cli import main

Line = Sequence[object]

GOOD: list[Line] = [
    ("life",),
    ("begun", "a", 1),
    ("done", "a", 2, 1),
    ("begun", "b", 3),
    ("receipt", "b", "r"),
    ("told", "b", 2),
    ("begun", "c", 4),
    ("submitted", "c", "r"),
    ("told", "c", 3),
    ("begun", "d", 5),
    ("refused", "d", "closed"),
    ("begun", "e", 6),
    ("begun", "f", 7),
]
"""It was killed while e and f were under way."""
OBJECT: Counted = (4, {"a": 1, "b": 1, "c": 1, "e": 1})


def promises_of(*lines: Line) -> Promises:
    promises = Promises()
    for line in lines:
        promises.take(json.dumps(line))
    return promises


def test_calls_that_were_done_once() -> None:
    promises = promises_of(*GOOD)
    assert judge(promises, {1: OBJECT, 2: OBJECT}) == []
    assert promises.doubtful == {"e", "f"}


@pytest.mark.parametrize(
    ("counted", "wrong"),
    [
        (
            (5, {**OBJECT[1], "a": 2}),
            ["a was done 2 times", "the object has counted 5, and 4 calls were done"],
        ),
        ((3, {"b": 1, "c": 1, "e": 1}), ["a returned, and is lost"]),
        ((3, {"a": 1, "b": 1, "e": 1}), ["c was submitted, and is lost"]),
        ((5, {**OBJECT[1], "d": 1}), ["d was not called, and was done"]),
        ((5, {**OBJECT[1], "g": 1}), ["g was done, and nobody called it"]),
        ((3, OBJECT[1]), ["the object has counted 3, and 4 calls were done"]),
    ],
)
def test_what_is_wrong_in_the_object_is_found(counted: Counted, wrong: list[str]) -> None:
    found = judge(promises_of(*GOOD), {1: counted})
    assert set(wrong) <= set(found)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([("told", "a", 9)], "a was told to be number 1, and then 9"),
        ([("told", "e", 2)], "e and b are both number 2"),
        ([("told", "e", 9)], "e is number 9, of 4"),
        ([("receipt", "e", "r")], "e was done, and its receipt does not tell"),
        ([("submitted", "f", "r")], "f was submitted, and is lost"),
    ],
)
def test_what_programs_were_told_wrongly_is_found(lines: list[Line], wrong: str) -> None:
    assert wrong in judge(promises_of(*GOOD, *lines), {1: OBJECT})


def test_replicas_that_differ_are_found() -> None:
    other = (4, {**OBJECT[1], "f": 1})
    assert judge(promises_of(*GOOD), {1: OBJECT, 3: other}) == ["the objects of 1 and 3 differ"]


def test_a_call_that_began_later_has_a_higher_number() -> None:
    lines: list[Line] = [("begun", "a", 1), ("done", "a", 5, 2), ("begun", "b", 6), ("done", "b", 7, 1)]
    counted = (2, {"a": 1, "b": 1})
    assert judge(promises_of(*lines), {1: counted}) == [
        "b is number 1; it began after a had returned 2",
    ]
    lines[2] = ("begun", "b", 4)
    assert judge(promises_of(*lines), {1: counted}) == []


def test_a_program_that_starts_again_asks_the_receipts_that_are_open() -> None:
    told: list[list[object]] = [
        ["receipt", "a", "ra"],
        ["submitted", "b", "rb"],
        ["told", "a", 1],
        ["receipt", "c", "rc"],
    ]
    assert open_receipts(told) == {"b": "rb", "c": "rc"}


@pytest.mark.nodes
def test_bench_objects_fire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fire.json"
    words = ["bench", "objects", "--fire", "--calls", "150", "--rounds", "3", "--seed", "43"]
    with TemporaryDirectory() as directory:  # the paths of sockets must be short
        assert main([*words, "--directory", directory, "--json", str(file)]) == 0
        assert not list(Path(directory).iterdir()), "nothing is left behind"
    found = json.loads(file.read_text())
    assert found["wrong"] == []
    assert found["kills"] >= 2
    assert found["program_kills"] >= 1
    assert found["restarts"] >= 1
    assert found["value"] == found["done"] + found["doubtful_done"] >= 150
    assert "No call lost, none done twice" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.nodes
@pytest.mark.parametrize("seed", range(2))
def test_ten_thousand_calls_are_done_once(seed: int) -> None:
    with TemporaryDirectory() as directory:
        outcome = burn(10_000, 40, seed, Path(directory), lambda note: None)
    assert outcome.wrong == []
    assert outcome.done >= 10_000
    assert outcome.kills >= 20
    assert outcome.program_kills
    assert outcome.restarts
