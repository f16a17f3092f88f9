"""The verdict on a run under fire finds every row that is lost, doubled, changed or out of order.

The program under fire outlives a query that cannot be started at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import fire_pipeline
import pytest
from fire_plan import DIES
from fire_points import EVENTS, STAGE, Start
from fire_verdict import Row, differences, judge_answers, judge_appended, judge_replicas
from pyspark.errors import PySparkException

STARTS = [Start(0, "", 1, 100), Start(1, "", 2, 100, padding=3)]
ROWS = [Row(2 * number, 7, 1, "in", f"1.1.{number}.0", f"k{number}", b"p%d" % number) for number in range(6)]


def answer(row: Row, partition: int = 0, start: int = 0) -> Row:
    digest = hashlib.sha256(row.payload).hexdigest()
    fields = (partition, start, row.position, row.key, digest, "x" * STARTS[start].padding)
    return Row(100 + row.position, 8, 2, "out", "", "", "|".join(map(str, fields)).encode())


ANSWERS = [answer(row) for row in ROWS]
Spoil = Callable[[list[Row]], list[Row]]


def test_what_is_right() -> None:
    of_two_partitions = [answer(ROWS[number], number // 3, 1) for number in (3, 0, 1, 4, 5, 2)]
    assert not judge_answers(ROWS, ANSWERS, STARTS)
    assert not judge_answers(ROWS, of_two_partitions, STARTS)
    assert not differences("the table", ROWS, ROWS)
    assert not judge_replicas({1: ROWS, 2: ROWS, 3: list(ROWS)})
    assert not judge_appended(
        ROWS, {row.key: row.payload for row in ROWS}, {row.key: row.position for row in ROWS}
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[:3] + rows[2:], "answered twice: 1: 4"),
        (lambda rows: rows[:3] + rows[4:], "not answered: 1: 6"),
        (lambda rows: [*rows[:2], rows[3], rows[2], *rows[4:]], "not in the order of their partition"),
        (lambda rows: [*rows[:5], answer(ROWS[5]._replace(payload=b"?"))], "answers are wrong"),
        (lambda rows: [*rows[:5], answer(ROWS[5]._replace(key="k4"))], "answers are wrong"),
        (lambda rows: [*rows, answer(ROWS[5]._replace(position=11))], "answers are wrong"),
        (lambda rows: [*rows[:5], rows[5]._replace(payload=rows[5].payload + b"x")], "answers are wrong"),
    ],
)
def test_answers_that_are_not(spoil: Spoil, said: str) -> None:
    assert any(said in each for each in judge_answers(ROWS, spoil(ANSWERS), STARTS))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[:-1], "lacks 1"),
        (lambda rows: [*rows, rows[-1]], "has besides, or twice, 1"),
        (lambda rows: [*rows[:-1], rows[-1]._replace(time_us=9)], "lacks 1"),
        (lambda rows: rows[::-1], "in another order"),
    ],
)
def test_tables_and_replicas_that_differ(spoil: Spoil, said: str) -> None:
    assert any(said in each for each in differences("the table", spoil(ROWS), ROWS))
    assert any(said in each for each in judge_replicas({1: ROWS, 2: ROWS, 3: spoil(ROWS)}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[1:], "lacks keys: 1: k0"),
        (lambda rows: [*rows, rows[0]._replace(position=50)], "keys twice: 1: k0"),
        (lambda rows: [rows[0]._replace(payload=b""), *rows[1:]], "nobody appended"),
        (lambda rows: [rows[0]._replace(position=1), *rows[1:]], "not where their programs were told"),
    ],
)
def test_appends_that_are_not_kept(spoil: Spoil, said: str) -> None:
    payloads = {row.key: row.payload for row in ROWS}
    told = {row.key: row.position for row in ROWS}
    assert any(said in each for each in judge_appended(spoil(ROWS), payloads, told))


class Running:
    """A query."""

    isActive = True
    status: ClassVar = {"message": "Waiting for data to arrive"}

    def stop(self) -> None:
        pass


def test_a_query_that_cannot_be_started_is_told_of_and_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark starts Python for `load` and `start`, and on a busy machine it may not wait long enough."""
    begun: list[Start] = []

    def start_late(_: object, how: Start) -> Running:
        begun.append(how)
        if len(begun) == 1:
            raise PySparkException("Python worker failed to connect back.")
        (tmp_path / "end").touch()
        return Running()

    monkeypatch.setenv(STAGE, str(tmp_path))
    monkeypatch.setattr(fire_pipeline, "QUERIES", {"out": start_late})
    fire_pipeline.run_queries(None, STARTS[0])  # type: ignore[arg-type]
    events = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert [event["event"] for event in events] == ["failed", "started"]
    assert DIES.search(events[0]["text"]), "which is no failure of the run"
    assert len(begun) == 2
