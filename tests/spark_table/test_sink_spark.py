"""`df.write.format("totem")` and `writeStream`: what Spark makes of it, with one real node."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, lit, rpad, spark_partition_id, when
from pyspark.sql.streaming import StreamingQuery
from sink_nodes import Records, log_nodes

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    with log_nodes(tmp_path_factory.mktemp("node")) as them:
        yield Records(them[1].socket)


@pytest.fixture
def log(node: Records) -> Records:
    node.skip()
    return node


def numbered(spark: SparkSession, count: int, partitions: int, size: int = 100) -> DataFrame:
    """Rows that say their partition and their number."""
    words = concat_ws("/", spark_partition_id().cast("string"), col("id").cast("string"), lit(""))
    return spark.range(0, count, 1, partitions).select(rpad(words, size, ".").cast("binary").alias("payload"))


def write(rows: DataFrame, log: Records, name: str = "orders", mode: str = "append", **options: str) -> None:
    given = {"daemons": str(log.socket), "log": name} | options
    rows.write.format("totem").mode(mode).options(**given).save()


def check(found: list[bytes], count: int) -> None:
    """Each row once, and those of a partition in their order."""
    rows = [tuple(map(int, row.split(b"/")[:2])) for row in found]
    assert sorted(number for _, number in rows) == list(range(count))
    for partition in {partition for partition, _ in rows}:
        mine = [number for where, number in rows if where == partition]
        assert mine == sorted(mine)


@pytest.mark.parametrize(("count", "is_staged"), [(300, False), (30_000, True)])
def test_rows_are_written_once_and_read_back(
    spark: SparkSession, log: Records, count: int, is_staged: bool
) -> None:
    rows = numbered(spark, count, 3)
    write(rows, log)
    check(log.of("orders"), count)
    assert bool(log.staged()) == is_staged
    log.wait_for_no_holds()
    reader = spark.read.format("totem").option("replicas", str(log.socket)).option("subscribe", "orders")
    back = reader.option("startingOffsets", str(log.start)).load().orderBy("position").collect()
    assert [bytes(row.payload) for row in back] == log.of("orders")


def test_columns_route_rows_and_name_them(spark: SparkSession, log: Records) -> None:
    rows = spark.range(0, 60, 1, 2).select(
        (col("id") % 3).cast("string").alias("payload"),
        when(col("id") % 2 == 0, "even").alias("log"),
        concat_ws("-", lit("k"), (col("id") % 30).cast("string")).alias("key"),
    )
    write(rows, log, "odd")
    assert sorted(log.keyed("even")) == sorted((f"k-{n}", b"%d" % (n % 3)) for n in range(0, 30, 2))
    assert sorted(log.keyed("odd")) == sorted((f"k-{n}", b"%d" % (n % 3)) for n in range(1, 30, 2))


def test_a_write_with_a_key_is_done_once(spark: SparkSession, log: Records) -> None:
    for count in (40_000, 5, 0):
        write(numbered(spark, count, 2), log, idempotencyKey="once")
    check(log.of("orders"), 40_000)


def test_a_write_without_rows_writes_nothing(spark: SparkSession, log: Records) -> None:
    write(numbered(spark, 0, 2), log)
    write(spark.createDataFrame([], "payload binary"), log)
    assert log.of("orders") == []
    assert log.staged() == 0


# Streams


class Files:
    """A stream that reads files, and writes to the log."""

    def __init__(self, spark: SparkSession, log: Records, directory: Path) -> None:
        self._spark = spark
        self._log = log
        self._source = directory / "in"
        self.checkpoint = directory / "checkpoint"
        self.count = 0

    def add(self, count: int) -> None:
        numbers = self._spark.range(self.count, self.count + count, 1, 1)
        rows = numbers.selectExpr("cast(id as string) as payload")
        rows.write.mode("append").parquet(str(self._source))
        self.count += count

    def run(self) -> None:
        """All that there is, a batch for each file."""
        rows = self._spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1)
        query = self.start(rows.parquet(str(self._source)))
        query.awaitTermination()

    def start(self, rows: DataFrame, **options: str) -> StreamingQuery:
        writer = rows.writeStream.format("totem").option("checkpointLocation", str(self.checkpoint))
        writer = writer.option("daemons", str(self._log.socket)).option("log", "answers").options(**options)
        return writer.trigger(availableNow=True).start()

    def forget(self, *batches: int) -> None:
        """As if the driver had died before it noted that these batches are done."""
        for batch in batches:
            for file in (self.checkpoint / "commits").glob(f"*{batch}*"):
                file.unlink()


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, log: Records, tmp_path: Path) -> None:
    files = Files(spark, log, tmp_path)
    files.add(10)
    files.add(30_000)
    files.run()
    files.add(20)
    files.run()
    files.forget(2)
    files.run()
    files.add(5)
    files.run()
    wanted = [b"%d" % number for number in range(files.count)]
    assert log.of("answers")[:10] == wanted[:10]
    assert sorted(log.of("answers")) == sorted(wanted)
    log.wait_for_no_holds()


def test_an_older_copy_of_the_checkpoint_is_an_error(
    spark: SparkSession, log: Records, tmp_path: Path
) -> None:
    """The batch that comes next has the number of one that is in the log, and other rows."""
    files = Files(spark, log, tmp_path)
    files.add(1)
    files.run()
    shutil.copytree(files.checkpoint, tmp_path / "copy")
    for _ in range(2):
        files.add(1)
        files.run()
    shutil.rmtree(files.checkpoint)
    (tmp_path / "copy").rename(files.checkpoint)
    files.add(1)
    with pytest.raises(StreamingQueryException, match=r"batch 1 comes behind batch 2.*older copy"):
        files.run()
    assert log.of("answers") == [b"0", b"1", b"2"]


# What is refused, before any work starts


def refusal(write: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        write()
    return str(caught.value)


def test_what_cannot_be_written(spark: SparkSession, log: Records) -> None:
    """As Spark shows it; test_sink_options.py has all of it."""
    rows = numbered(spark, 1, 1)
    assert "column other: a log takes" in refusal(lambda: write(rows.withColumn("other", lit(1)), log))
    assert "no daemon at /nowhere" in refusal(lambda: write(rows, log, daemons="/nowhere"))
    assert 'mode("append")' in refusal(lambda: write(rows, log, mode="overwrite"))
    for mode in ("error", "ignore"):
        with pytest.raises(AnalysisException, match='use either the "Append" or "Overwrite" mode'):
            write(rows, log, mode=mode)
    assert log.of("orders") == []


def test_streams_that_cannot_be_written(spark: SparkSession, log: Records, tmp_path: Path) -> None:
    files = Files(spark, log, tmp_path)
    files.add(1)
    source = spark.readStream.schema("payload string").parquet(str(tmp_path / "in"))

    def run(rows: DataFrame, **options: str) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            files.start(rows, **options).awaitTermination()
        return str(caught.value)

    assert "is for batch writes" in run(source, idempotencyKey="x")
    assert "no daemon at /nowhere" in run(source, daemons="/nowhere", timeout="0.5")
