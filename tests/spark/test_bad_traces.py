"""Bad input to `totem verify`: a clear error that names the file, and never a false "all properties hold"."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from totempole.checkers.terms import Terms
from totempole.errors import TraceError
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import run
from totempole.spark.bronze import find_files
from totempole.spark.verdicts import Judged, judge_files
from totempole.spark.verify import Judge
from totempole.trace.arrow import SCHEMA, VERSION_KEY
from totempole.trace.ndjson import write_ndjson
from totempole.trace.parquet import write_parquet
from totempole.trace.schema import Row
from totempole.trace.spool import Spool, node_directory

SCENARIO = """\
processors p=1 q=2 r=3
seed 5
at 300ms send p 5 safe
end 1s
"""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row._replace(run="one") for row in run(parse(SCENARIO), level="checked").rows]


@pytest.fixture
def traces(tmp_path: Path, rows: list[Row]) -> Path:
    """As three nodes leave them."""
    for node in (1, 2, 3):
        place = node_directory(tmp_path, "one", node)
        write_parquet(place / "part-00000.parquet", [[row for row in rows if row.node == node]])
    return tmp_path


def part(traces: Path, node: int) -> Path:
    return node_directory(traces, "one", node) / "part-00000.parquet"


def judged(spark: SparkSession, traces: Path, by: Judge | None = None) -> Judged:
    return judge_files(spark, [traces], Terms(same_clock=False), by=by)


def refused(spark: SparkSession, traces: Path, *words: str) -> None:
    for judge in Judge:
        with pytest.raises(TraceError) as caught:
            judged(spark, traces, judge)
        for word in words:
            assert word in str(caught.value)


def test_good_traces_hold_or_are_undecided(spark: SparkSession, traces: Path, rows: list[Row]) -> None:
    found = judged(spark, traces)
    assert found.holds
    assert found.events == sum(row.node != 0 for row in rows)
    assert found.outcomes["agreed-order"] == {"holds": 1}
    assert found.outcomes["liveness"] == {"undecided": 1}


def test_an_empty_directory(spark: SparkSession, tmp_path: Path) -> None:
    refused(spark, tmp_path, str(tmp_path), "no trace here")


def test_no_such_directory(spark: SparkSession, tmp_path: Path) -> None:
    refused(spark, tmp_path / "nowhere", "nowhere", "no such file or directory")


def test_files_without_events(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "part-00000.parquet", [])
    refused(spark, tmp_path, "part-00000.parquet", "no events")


def test_a_missing_column(spark: SparkSession, traces: Path) -> None:
    table = pq.read_table(part(traces, 2), partitioning=None)
    pq.write_table(table.drop_columns(["seq"]), part(traces, 2))
    refused(spark, traces, str(part(traces, 2)), "'seq' is missing")


def test_another_schema_version(spark: SparkSession, traces: Path) -> None:
    table = pq.read_table(part(traces, 2), partitioning=None)
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: b"99"}), part(traces, 2))
    refused(spark, traces, str(part(traces, 2)), "schema 99")


def test_truncated_parquet(spark: SparkSession, traces: Path) -> None:
    file = part(traces, 3)
    file.write_bytes(file.read_bytes()[:-100])
    refused(spark, traces, str(file), "not a whole Parquet file")


def test_parquet_that_is_damaged_inside(spark: SparkSession, traces: Path) -> None:
    """The footer is whole: only reading the rows shows it."""
    file = part(traces, 3)
    content = bytearray(file.read_bytes())
    first = pq.ParquetFile(file).metadata.row_group(0).column(3)
    start = first.dictionary_page_offset or first.data_page_offset
    content[start : start + first.total_compressed_size] = bytes(first.total_compressed_size)
    file.write_bytes(content)
    refused(spark, traces, str(file), "damaged")


@pytest.mark.parametrize("judge", [Judge.CHECKERS, pytest.param(Judge.STATEMENTS, marks=pytest.mark.long)])
def test_the_traces_of_a_node_are_missing(spark: SparkSession, traces: Path, judge: Judge) -> None:
    shutil.rmtree(part(traces, 2).parent)
    found = judged(spark, traces, judge)
    assert not found.holds
    assert found.absent == [("one", 2)]
    assert found.outcomes["configuration-change-consistency"] == {"undecided": 1}


def test_two_runs_with_one_name_in_two_directories(spark: SparkSession, traces: Path) -> None:
    again = traces / "again" / "run=one"
    shutil.copytree(traces / "run=one", again)
    refused(spark, traces, str(again), "two runs are named 'one'")


def test_two_runs_with_one_name_in_one_directory(spark: SparkSession, traces: Path) -> None:
    shutil.copy(part(traces, 1), part(traces, 1).with_name("part-00001.parquet"))
    refused(spark, traces, "part-00000.parquet", "part-00001.parquet", "two runs with one name")


def test_events_of_one_run_in_the_directory_of_another(
    spark: SparkSession, traces: Path, rows: list[Row]
) -> None:
    """The checkers' tasks trust the directory; the statements read the column."""
    write_parquet(part(traces, 2), [[row._replace(run="two") for row in rows if row.node == 2]])
    with pytest.raises(TraceError, match="events of run 'two' in the directory of another") as caught:
        judged(spark, traces)
    assert str(part(traces, 2)) in str(caught.value)


def test_what_a_killed_node_left_is_read(spark: SparkSession, traces: Path, rows: list[Row]) -> None:
    """An Arrow spool, and text beside it: the same rows, the same verdicts."""
    shutil.rmtree(part(traces, 1).parent)
    shutil.rmtree(part(traces, 2).parent)
    spool = Spool(traces, "one", 1)
    for row in rows:
        if row.node == 1:
            spool(row)
    spool.drain()
    write_ndjson(traces / "two.ndjson", [row for row in rows if row.node == 2])
    found = judged(spark, traces)
    assert found.holds
    assert found.events == sum(row.node != 0 for row in rows)
    spool.close()


def test_every_file_is_looked_at(traces: Path) -> None:
    assert [file.parent.name for file in find_files([traces])] == ["node=1", "node=2", "node=3"]
    assert SCHEMA.metadata
