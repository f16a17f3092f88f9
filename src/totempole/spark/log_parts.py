"""What traces tell of the durable order, dealt out to executors by ranges of places (`log_ranges`).

What the checks and the table ask of the whole trace is little, and is collected once: `Told`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from totempole.checkers.stored_logs import Telling
from totempole.spark.log_ranges import END
from totempole.trace.layers.corel import GREEN


@dataclass(frozen=True)
class Told:
    """What a trace says of the log as a whole."""

    tellings: tuple[Telling, ...]
    replicas: frozenset[int]
    """The replica set at the end."""

    @property
    def stop(self) -> int:
        """The place behind the last that is told of."""
        return max((telling.stop for telling in self.tellings), default=0)


def greens_in(events: DataFrame) -> DataFrame:
    """Rows that make a run green."""
    return events.where((F.col("kind") == "colour") & (F.col("new_state") == GREEN))


def told_in(events: DataFrame) -> Told:
    """Of one run."""
    is_mark = (F.col("kind") == "log_open") | ((F.col("kind") == "fetched") & (F.col("reason") == "mark"))
    starts: dict[int, list[tuple[int, int]]] = {}
    for row in events.where(is_mark).select("node", "step", "corel_green_runs").collect():
        starts.setdefault(row["node"], []).append((row["step"], row["corel_green_runs"]))
    last = events.where("kind = 'replica_set'").agg(F.max_by("members", "corel_place")).collect()[0][0]
    return Told(tuple(_tellings(events, starts)), frozenset(last or ()))


def _tellings(events: DataFrame, starts: dict[int, list[tuple[int, int]]]) -> Iterator[Telling]:
    """From each opening on: the places up to the last that became green before the next."""
    rows = []
    for node, found in starts.items():
        found.sort()
        ends = [step for step, _ in found[1:]] + [END]
        rows += [(node, place, step, end) for (step, place), end in zip(found, ends, strict=True)]
    if not rows:
        return
    openings = events.sparkSession.createDataFrame(rows, "node long, start long, first long, next long")
    inside = "step >= first and step < next"
    greens = greens_in(events).select("node", "step", "corel_place").join(F.broadcast(openings), "node")
    each = greens.where(inside).groupBy("node", "first", "start").agg(F.max("corel_place").alias("last"))
    for row in each.orderBy("node", "first").collect():
        yield Telling(row["node"], row["start"], row["last"] + 1)


def deal(rows: DataFrame, starts: Sequence[int]) -> DataFrame:
    """Adds the column `part`: the number of the range of `corel_place`."""
    if len(starts) == 1:
        return rows.withColumn("part", F.lit(0).cast("long"))
    schema = StructType([*rows.schema, StructField("part", LongType())])
    return rows.mapInArrow(_dealer(tuple(starts)), schema)


def _dealer(starts: tuple[int, ...]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def dealt(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            places = batch.column("corel_place").to_numpy(zero_copy_only=False)
            parts = np.maximum(np.searchsorted(starts, places, side="right") - 1, 0)
            yield batch.append_column("part", pa.array(parts, pa.int64()))

    return dealt


def parts_of(spark: SparkSession, runs: Sequence[str], starts: Sequence[int]) -> DataFrame:
    """run, part: every range of these runs, also those that no row is about."""
    parts = F.sequence(F.lit(0).cast("long"), F.lit(len(starts) - 1).cast("long"))
    names = spark.createDataFrame([(run,) for run in runs], "run string")
    return names.select("run", F.explode(parts).alias("part"))
