"""Messages and bytes delivered over time, by processor and by group; what was sent again or dropped."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.spark.report.bins import binned

US_PER_S = 1_000_000


def throughput(events: DataFrame, runs: DataFrame) -> DataFrame:
    """A row for each bin in which a node delivered something."""
    delivered = binned(events.where(F.col("kind") == "deliver"), runs)
    return _rates(delivered, "node")


def group_traffic(events: DataFrame, runs: DataFrame) -> DataFrame:
    """A row for each bin in which processes received something of a group, all processes together.

    A message to several groups counts for each of them.
    """
    received = binned(events.where(F.col("kind") == "group_deliver"), runs)
    return _rates(received.withColumn("group", F.explode("groups_to")), "group")


def losses(events: DataFrame, runs: DataFrame) -> DataFrame:
    """A row for each bin in which a node retransmitted or dropped packets; `reason` is for the drops."""
    lost = events.where(F.col("kind").isin("retransmit", "drop"))
    reason = F.when(F.col("kind") == "drop", F.col("reason")).otherwise("").alias("reason")
    return (
        binned(lost, runs)
        .groupBy("run", "node", "kind", reason, "bin", "from_us")
        .agg(_messages().alias("packets"), F.sum("bytes").alias("bytes"))
    )


def _rates(rows: DataFrame, by: str) -> DataFrame:
    """Over the whole width of a bin, of which the last one of a run may be a part only."""
    found = rows.groupBy("run", by, "bin", "from_us", "bin_us").agg(
        _messages().alias("messages"), F.sum("bytes").alias("bytes")
    )
    return found.select(
        "run",
        by,
        "bin",
        "from_us",
        "messages",
        "bytes",
        (F.col("messages") * US_PER_S / F.col("bin_us")).alias("messages_per_s"),
        (F.col("bytes") * US_PER_S / F.col("bin_us")).alias("bytes_per_s"),
    )


def _messages() -> Column:
    return F.sum(F.greatest(F.col("count"), F.lit(1)))
