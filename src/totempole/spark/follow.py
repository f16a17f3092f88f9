"""Verdicts and latencies of a cluster that is running, a few seconds behind it.

Each batch of the stream is kept (a batch that is done again replaces itself), and the runs that it is of are
judged anew, whole, as prefixes: so a verdict is one of everything so far, and costs more as the run grows.
A judge that is slow gets larger batches, and falls no further behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, StructField, StructType

from totempole.checkers.terms import Terms
from totempole.spark.report.latency import ring_latencies
from totempole.spark.schema import EVENTS
from totempole.spark.terms import terms_of, terms_table
from totempole.spark.trace_stream import FORMAT, TraceStream
from totempole.spark.verify import outcomes, verify

_KEPT = StructType([*EVENTS.fields, StructField("batch", IntegerType())])

PERCENTILES = (0.5, 0.99, 0.999)


@dataclass(frozen=True)
class Update:
    """What one batch brought."""

    batch: int
    events: int
    """New ones."""
    total: int
    runs: tuple[str, ...]
    outcomes: Mapping[str, Mapping[str, int]]
    violations: list[dict[str, Any]]
    """Those that no update before had."""
    latencies_us: Mapping[str, tuple[int, ...]]
    """By service, the PERCENTILES of the time to own delivery, of what this batch delivers."""


def follow(
    spark: SparkSession,
    traces: Path,
    state: Path,
    tell: Callable[[Update], None],
    *,
    otherwise: Terms = Terms(same_clock=False),  # noqa: B008, a frozen value
    every: str | None = None,
) -> StreamingQuery:
    """Starts it. `state` keeps batches and the place in the stream, so that it can be stopped and gone on
    with; `every`: as "5 seconds"; None: all that is there now, and no more."""
    spark.dataSource.register(TraceStream)
    told: set[tuple[str, str, str]] = set()

    def take(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(state / "events" / f"batch={number}"))
        update = _judge(batch.sparkSession, state, number, otherwise, told)
        if update is not None:
            tell(update)

    stream = spark.readStream.format(FORMAT).option("path", str(traces)).load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(state / "place"))
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return writer.start()


def _judge(
    spark: SparkSession, state: Path, number: int, otherwise: Terms, told: set[tuple[str, str, str]]
) -> Update | None:
    kept = spark.read.schema(_KEPT).parquet(str(state / "events"))
    new = kept.where(F.col("batch") == number)
    runs = tuple(row["run"] for row in new.select("run").distinct().orderBy("run").collect())
    if not runs:
        return None
    events = kept.where(F.col("run").isin(*runs)).persist()
    try:
        terms = terms_of(events, terms_table(spark, {}), otherwise).persist()
        judged = verify(events.drop("batch"), terms)
        rows = judged.findings.where("violated").collect()
        violations = [row.asDict(recursive=True) for row in rows if _is_new(row, told)]
        counts = outcomes(judged.verdicts)
        latencies = _latencies(events, number)
        return Update(number, new.count(), judged.events, runs, counts, violations, latencies)
    finally:
        events.unpersist()


def _is_new(row: Any, told: set[tuple[str, str, str]]) -> bool:
    key = (row["run"], row["property"], row["text"])
    fresh = key not in told
    told.add(key)
    return fresh


def _latencies(events: DataFrame, number: int) -> dict[str, tuple[int, ...]]:
    """A message delivered in this batch may have been submitted in one before."""
    wanted = (F.col("kind") == "submit") | ((F.col("batch") == number) & (F.col("kind") == "deliver"))
    own = ring_latencies(events.where(wanted)).where("own")
    found = own.groupBy("service").agg(
        F.percentile_approx("latency_us", list(PERCENTILES)).alias("percentiles")
    )
    return {row["service"]: tuple(row["percentiles"]) for row in found.orderBy("service").collect()}
