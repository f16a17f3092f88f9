"""The program under fire: two queries over the log "in". Started again, they go on from their checkpoints.

    python fire_pipeline.py                 # FIRE_STAGE names the directory

One writes a row to the log "out" for each row that it reads. The other keeps what it reads as a table, in
Parquet files: a batch that comes again overwrites its own. A query whose processes were killed is started
again. When the file "end" appears, the program stops its queries, reads both logs as a table, and ends.
"""

from __future__ import annotations

import time

from fire_points import STAGE, FireDataSource, Start, note, stage, start
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, lit, sha2, spark_partition_id
from pyspark.sql.streaming import StreamingQuery

from totempole.spark.session import build_session

IN, OUT = "in", "out"
TIMEOUT = "120"
"""More than a paused process waits, so that it goes on."""
TRIGGER = "200 milliseconds"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopTimeout": "30000",
    # As in a job that never ends: an executor that dies often is no reason to give up.
    "spark.task.maxFailures": "4",
}


def read_in(spark: SparkSession, how: Start) -> DataFrame:
    return (
        spark.readStream.format(FireDataSource.name())
        .option("replicas", how.replicas)
        .option("subscribe", IN)
        .option("startingOffsets", "earliest")
        .option("minPartitions", how.parts)
        .option("maxOffsetsPerTrigger", how.rows_max)
        .option("timeout", TIMEOUT)
        .load()
    )


def answers(rows: DataFrame, how: Start) -> DataFrame:
    """What `fire_verdict` expects of each row. No key: that none is there twice is the sink's work alone."""
    fields = (
        spark_partition_id(),
        lit(how.number),
        col("position"),
        col("key"),
        sha2(col("payload"), 256),
        lit("x" * how.padding),
    )
    return rows.select(concat_ws("|", *[field.cast("string") for field in fields]).alias("payload"))


def start_out(spark: SparkSession, how: Start) -> StreamingQuery:
    return (
        answers(read_in(spark, how), how)
        .writeStream.format(FireDataSource.name())
        .queryName("out")
        .option("replicas", how.replicas)
        .option("log", OUT)
        .option("timeout", TIMEOUT)
        .option("checkpointLocation", str(stage() / "checkpoints" / "out"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def start_table(spark: SparkSession, how: Start) -> StreamingQuery:
    def keep(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(stage() / "table" / f"batch={batch}"))

    return (
        read_in(spark, how)
        .writeStream.foreachBatch(keep)
        .queryName("table")
        .option("checkpointLocation", str(stage() / "checkpoints" / "table"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


QUERIES = {"out": start_out, "table": start_table}


def run_queries(spark: SparkSession, how: Start) -> None:
    queries = {name: begin(name, spark, how) for name in QUERIES}
    note("started", start=how.number)
    while not (stage() / "end").exists():
        for name, query in queries.items():
            if query is None or not query.isActive:
                queries[name] = begin_again(name, query, spark, how)
        time.sleep(0.05)
    for query in queries.values():
        if query is not None:
            query.stop()


def begin(name: str, spark: SparkSession, how: Start) -> StreamingQuery | None:
    """None: it could not be started. Spark starts processes for that, too, and they may die, or be late.

    Returns when the query has its sources. These put settings into a map of the data source. Two that did so
    at once would spoil it for all tasks to come (Spark's `PythonStreamingSourceRunner.init`).
    """
    try:
        query = QUERIES[name](spark, how)
    except (PySparkException, Py4JJavaError) as error:
        tell_failed(name, how, error)
        return None
    while query.isActive and query.status["message"] == "Initializing sources":
        time.sleep(0.02)
    return query


def begin_again(
    name: str, ended: StreamingQuery | None, spark: SparkSession, how: Start
) -> StreamingQuery | None:
    if ended is not None:
        try:
            ended.awaitTermination()
        except StreamingQueryException as error:
            tell_failed(name, how, error)
    return begin(name, spark, how)


def tell_failed(name: str, how: Start, error: Exception) -> None:
    note("failed", query=name, start=how.number, text=str(error)[:20_000])


def save_both_logs(spark: SparkSession, how: Start) -> None:
    """A batch read, from the format itself."""
    logs = spark.read.format("totem").option("replicas", how.replicas).option("subscribe", f"{IN},{OUT}")
    logs.option("minPartitions", how.parts).load().write.mode("overwrite").parquet(str(stage() / "both"))


def main() -> None:
    how = start()
    spark = build_session("fire", how.master, SETTINGS | {f"spark.executorEnv.{STAGE}": str(stage())})
    spark.dataSource.register(FireDataSource)
    run_queries(spark, how)
    save_both_logs(spark, how)
    note("ended", start=how.number)
    spark.stop()


if __name__ == "__main__":
    main()
