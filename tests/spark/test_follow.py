"""Following the traces of a running cluster: every row once, violations and latencies as they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from totempole.sim.script_parser import parse
from totempole.sim.script_runner import run
from totempole.spark.follow import Update, follow
from totempole.spark.trace_stream import TraceReader, rows_there
from totempole.trace.schema import Row
from totempole.trace.spool import Spool

SCENARIO = """\
processors p=1 q=2 r=3
seed 5
at 300ms send p 40 safe
at 600ms send q 40
end 1s
"""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """In the order of time, as nodes write them."""
    return [row._replace(run="live") for row in run(parse(SCENARIO), level="checked").rows if row.node]


@pytest.fixture
def spools(tmp_path: Path) -> Iterator[dict[int, Spool]]:
    opened = {node: Spool(tmp_path / "traces", "live", node, batch_rows=50) for node in (1, 2, 3)}
    yield opened
    for spool in opened.values():
        spool.close()


def write(spools: dict[int, Spool], rows: list[Row]) -> None:
    for row in rows:
        spools[row.node](row)
    for spool in spools.values():
        spool.drain()


def take(spark: SparkSession, place: Path) -> list[Update]:
    """All that is there by now and was not before."""
    updates: list[Update] = []
    query = follow(spark, place / "traces", place / "state", updates.append)
    query.awaitTermination()
    assert query.exception() is None
    return updates


def test_rows_are_told_once_while_spools_grow_and_become_parquet(
    spark: SparkSession, tmp_path: Path, spools: dict[int, Spool], rows: list[Row]
) -> None:
    half = len(rows) // 2
    write(spools, rows[:half])
    (first,) = take(spark, tmp_path)
    assert (first.events, first.runs) == (half, ("live",))
    assert first.outcomes["agreed-order"] == {"holds": 1}
    assert take(spark, tmp_path) == []
    write(spools, rows[half:])
    for spool in spools.values():
        spool.close()
    (second,) = take(spark, tmp_path)
    assert (second.events, second.total) == (len(rows) - half, len(rows))
    assert not first.violations
    assert not second.violations
    own = {row.message: row.at_us for row in rows if row.kind == "deliver" and row.node == row.origin}
    sent = {row.message: row.at_us for row in rows if row.kind == "submit"}
    latencies = sorted(own[message] - sent[message] for message in own)
    shown = [found for update in (first, second) for found in update.latencies_us.values()]
    assert shown
    assert all(latencies[0] <= p50 <= p99 <= latencies[-1] for p50, p99, _ in shown)


def test_a_violation_is_raised_once(
    spark: SparkSession, tmp_path: Path, spools: dict[int, Spool], rows: list[Row]
) -> None:
    wrong = next(row for row in rows if row.kind == "deliver" and row.node == 2)
    step = max(row.step for row in rows) + 1
    write(spools, [*rows, wrong._replace(step=step)])
    (found,) = take(spark, tmp_path)
    told = {violation["property"] for violation in found.violations}
    assert "single-delivery" in told
    assert all(wrong.message in violation["text"] for violation in found.violations)


def test_offsets_count_rows_whatever_the_file_is(
    tmp_path: Path, spools: dict[int, Spool], rows: list[Row]
) -> None:
    write(spools, rows)
    before = rows_there(tmp_path / "traces")
    reader = TraceReader(tmp_path / "traces")
    assert sum(before.values()) == len(rows)
    assert len(reader.partitions({}, before)) == 3
    assert reader.partitions(before, before) == []
    for spool in spools.values():
        spool.close()
    assert rows_there(tmp_path / "traces") == before
    (part,) = [part for part in before if "node=2" in part]
    (slice_,) = reader.partitions({**before, part: 7}, before)
    read = [step for batch in reader.read(slice_) for step in batch.column("step").to_pylist()]
    assert read == [row.step for row in rows if row.node == 2][7:]
