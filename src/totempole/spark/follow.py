"""Verdicts and latencies of a cluster that is running, a few seconds behind it.

Each batch of the stream is kept (a batch that is done again replaces itself), and the runs that it is of are
judged anew, whole, as prefixes: so a verdict is one of everything so far, and costs more as the run grows.
The checkers read the nodes' files for that, which may have more by now than the batch; what is too long for
them is judged by statements on the batches. A judge that is slow gets larger batches, and falls no further
behind.
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
from totempole.spark.oracle import judge_files
from totempole.spark.report.latency import ring_latencies
from totempole.spark.run_files import group_by_run
from totempole.spark.schema import EVENTS
from totempole.spark.terms import terms_of, terms_table
from totempole.spark.trace_stream import FORMAT, TraceStream
from totempole.spark.verify import CHECKED_MAX, by_checkers, outcomes, verify
from totempole.trace.reader import trace_files

_KEPT = StructType([*EVENTS.fields, StructField("batch", IntegerType())])

PERCENTILES = (0.5, 0.99, 0.999)

Told = tuple[str, str, str]
"""A violation: run, property, text."""


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
    told: set[Told] | None = None,
) -> StreamingQuery:
    """Takes all that is there now, and ends. `state` keeps batches and the place in the stream, where the
    next call goes on. `told`: violations that are known already; new ones are added."""
    spark.dataSource.register(TraceStream)
    known = set() if told is None else told

    def take(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(state / "events" / f"batch={number}"))
        update = _judge(batch.sparkSession, traces, state, number, otherwise, known)
        if update is not None:
            tell(update)

    stream = spark.readStream.format(FORMAT).option("path", str(traces)).load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(state / "place"))
    return writer.trigger(availableNow=True).start()


def _judge(
    spark: SparkSession,
    traces: Path,
    state: Path,
    number: int,
    otherwise: Terms,
    told: set[Told],
) -> Update | None:
    kept = spark.read.schema(_KEPT).parquet(str(state / "events"))
    new = kept.where(F.col("batch") == number)
    counted = new.groupBy("run").count().orderBy("run").collect()
    if not counted:
        return None
    runs = tuple(row["run"] for row in counted)
    events = kept.where(F.col("run").isin(*runs))
    groups = [group for group in group_by_run(trace_files(traces)) if group.runs & set(runs)]
    if max(group.rows for group in groups) <= CHECKED_MAX:
        judged = by_checkers(judge_files(spark, groups, {}, otherwise))
    else:
        judged = verify(events.drop("batch"), terms_of(events, terms_table(spark, {}), otherwise))
    rows = judged.findings.where("violated").collect()
    return Update(
        number,
        sum(row["count"] for row in counted),
        judged.events,
        runs,
        outcomes(judged.verdicts),
        [row.asDict(recursive=True) for row in rows if _is_new(row, told)],
        _latencies(events, number),
    )


def _is_new(row: Any, told: set[Told]) -> bool:
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
