"""`spark.read.format("totem")`: the table is the log, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from replicated_logs import Replicas, Row, replicated, write_mixture


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicated(tmp_path_factory.mktemp("mixture"), 3) as replicas:
        write_mixture(replicas)
        yield replicas


def table(spark: SparkSession, options: dict[str, str], path: str | None = None) -> DataFrame:
    return spark.read.format("totem").options(**options).load(path)


def rows_of(frame: DataFrame) -> list[Row]:
    """In the order of partitions, which is that of positions."""
    return [
        Row(
            row.position,
            row.time_us,
            row.origin,
            row.log,
            row.message,
            row.colour,
            row.key,
            bytes(row.payload),
        )
        for row in frame.withColumn("time_us", F.unix_micros("time")).collect()
    ]


@pytest.mark.parametrize(("partitions", "replicas"), [(1, 1), (2, 2), (4, 3)])
def test_the_table_is_the_log(spark: SparkSession, mixture: Replicas, partitions: int, replicas: int) -> None:
    named = ",".join(str(mixture.socket(number)) for number in range(1, replicas + 1))
    options = mixture.options | {"replicas": named, "minPartitions": str(partitions)}
    frame = table(spark, options)
    assert frame.rdd.getNumPartitions() == partitions
    assert rows_of(frame) == mixture.rows()


def test_a_directory_is_the_same_table(spark: SparkSession, mixture: Replicas) -> None:
    frame = table(spark, {"minPartitions": "2"}, str(mixture.directory / "log2"))
    assert rows_of(frame) == mixture.rows()


def test_columns_have_the_types_that_are_told(spark: SparkSession, mixture: Replicas) -> None:
    assert [
        (field.name, field.dataType.simpleString()) for field in table(spark, mixture.options).schema
    ] == [
        ("position", "bigint"),
        ("time", "timestamp"),
        ("origin", "bigint"),
        ("log", "string"),
        ("message", "string"),
        ("colour", "string"),
        ("key", "string"),
        ("payload", "binary"),
    ]


def test_queries(spark: SparkSession, mixture: Replicas) -> None:
    """Filters and aggregates are Spark's own, on whatever columns are left."""
    rows = mixture.rows(logs=("orders", "payments"))
    frame = table(spark, mixture.options | {"subscribe": "orders,payments", "columns": "log,key,position"})
    assert frame.columns == ["log", "key", "position"]
    found = frame.groupBy("log").agg(F.count("*"), F.count("key"), F.max("position")).collect()
    for log, count, keys, last in found:
        mine = [row for row in rows if row.log == log]
        assert (count, keys) == (len(mine), len([row for row in mine if row.key]))
        assert last == mine[-1].position
    assert {log for log, *_ in found} == {"orders", "payments"}
    keyed = frame.where("key is not null and position >= 100").select("position").collect()
    assert [row.position for row in keyed] == [
        row.position for row in rows if row.key and row.position >= 100
    ]
    assert frame.where("position < 100").count() == len([row for row in rows if row.position < 100])


def test_a_range(spark: SparkSession, mixture: Replicas) -> None:
    options = mixture.options | {"startingOffsets": "300", "endingOffsets": "500"}
    assert rows_of(table(spark, options)) == mixture.rows(300, 500)
    none = table(spark, mixture.options | {"startingOffsets": str(mixture.position)})
    assert none.collect() == []


def test_one_load_is_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Of its first action."""
    with replicated(tmp_path, 2) as replicas:
        replicas.append([b"x"] * 10)
        frame = table(spark, replicas.options)
        assert frame.count() == 10
        replicas.append([b"x"] * 10)
        assert frame.count() == 10
        assert frame.where("position >= 5").count() == 5
        assert table(spark, replicas.options).count() == 20


def test_a_replica_that_is_killed_between_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks that were given to it ask the others."""
    with replicated(tmp_path, 3) as replicas:
        write_mixture(replicas)
        frame = table(spark, replicas.options | {"minPartitions": "6"})
        assert frame.rdd.getNumPartitions() == 6  # planned
        replicas.services[2].kill()
        assert rows_of(frame) == replicas.rows()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "5"}, "option startingoffset is not known: did you mean startingOffsets?"),
        ({"replicas": "10.0.0.1:5411"}, "other hosts are reached by TLS"),
    ],
)
def test_wrong_options_are_found_by_load(
    spark: SparkSession, mixture: Replicas, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException) as found:
        table(spark, mixture.options | options)
    assert words in str(found.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for streams"),
        ({"endingOffsets": "99999", "timeout": "1"}, "endingOffsets = 99999: the log ends before that"),
        ({"replicas": "/nowhere/node.sock", "timeout": "1"}, "no log service at /nowhere/node-log.sock"),
    ],
)
def test_others_before_any_task(
    spark: SparkSession, mixture: Replicas, options: dict[str, str], words: str
) -> None:
    frame = table(spark, mixture.options | options)
    with pytest.raises(PySparkException) as found:
        frame.count()
    assert words in str(found.value)


def test_trimmed_positions(spark: SparkSession, tmp_path: Path) -> None:
    with replicated(tmp_path) as replicas:
        for _ in range(3):
            replicas.append([b"x"] * 10)
            replicas.begin_segment()
        replicas.trim(3)
        assert table(spark, replicas.options).count() == 10
        frame = table(spark, replicas.options | {"startingOffsets": "5"})
        with pytest.raises(PySparkException, match="Some data may have been lost: positions 5 to 19"):
            frame.count()
        careless = replicas.options | {"startingOffsets": "5", "failOnDataLoss": "false"}
        assert rows_of(table(spark, careless)) == replicas.rows(20)
