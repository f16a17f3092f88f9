"""What each life of a processor did in all, and each run: the overview that the other tables stand on."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.spark.report.bins import bin_us
from totempole.spark.report.timeline import told
from totempole.trace.schema import CHECKED_KINDS, DELIVERY_KINDS, PROTOCOL_KINDS

LEVELS = ("delivery", "checked", "protocol")
"""As `trace.schema.LEVELS` has them, from the least to the most that is written down."""


def lives(events: DataFrame) -> DataFrame:
    """A row for each incarnation of each node. Node 0 is nobody: a simulation's faults of the network.

    `last_us` is when the life itself wrote its last row: a fault is done to a node, even to one that is down.
    """
    return events.groupBy("run", "node", "incarnation").agg(
        F.min("at_us").alias("first_us"),
        F.max(F.when(F.col("kind") != "fault", F.col("at_us"))).alias("last_us"),
        F.max("at_us").alias("end_us"),
        F.count("*").alias("rows"),
        _total("submit").alias("submitted"),
        _total("originate").alias("originated"),
        _total("deliver").alias("delivered"),
        F.sum(F.when(F.col("kind") == "deliver", F.col("bytes")).otherwise(0)).alias("delivered_bytes"),
        _total("configuration").alias("installed"),
        F.collect_set(
            F.when(
                (F.col("kind") == "configuration") & (F.col("configuration_kind") == "regular"),
                F.col("configuration"),
            )
        ).alias("rings"),
        _total("crash").alias("crashes"),
        _total("leave").alias("leaves"),
        _total("fault").alias("faults"),
        _total("group_deliver").alias("group_delivered"),
        F.max(_level()).alias("level"),
        F.max(F.when(F.col("kind") == "restart", told())).alias("name"),
    )


def runs(of_lives: DataFrame) -> DataFrame:
    """A row for each run, with the width of its time bins."""
    a_processor = F.col("node") > 0
    summed = of_lives.groupBy("run").agg(
        F.min("first_us").alias("start_us"),
        F.max("end_us").alias("end_us"),
        F.sum("rows").alias("rows"),
        F.count_distinct(F.when(a_processor, F.col("node"))).alias("processors"),
        F.count(F.when(a_processor & F.col("last_us").isNotNull(), 1)).alias("lives"),
        *(F.sum(name).alias(name) for name in _SUMS),
        F.size(F.array_distinct(F.flatten(F.collect_list("rings")))).alias("rings"),
        F.max("level").alias("level"),
    )
    length_us = F.col("end_us") - F.col("start_us")
    names = F.array(*(F.lit(name) for name in LEVELS))
    return summed.withColumn("bin_us", bin_us(length_us)).withColumn(
        "level", F.element_at(names, F.col("level") + 1)
    )


_SUMS = (
    "submitted",
    "originated",
    "delivered",
    "delivered_bytes",
    "installed",
    "crashes",
    "leaves",
    "faults",
    "group_delivered",
)


def _total(kind: str) -> Column:
    """How many; a row that stands for several says so."""
    return F.sum(F.when(F.col("kind") == kind, F.greatest(F.col("count"), F.lit(1))).otherwise(0))


def _level() -> Column:
    """What a row tells of the level that it was written at: its place in LEVELS, at least."""
    everything = sorted(PROTOCOL_KINDS - CHECKED_KINDS)
    checked = sorted(CHECKED_KINDS - DELIVERY_KINDS)
    kind = F.col("kind")
    return F.when(kind.isin(everything), 2).when(kind.isin(checked), 1).otherwise(0)
