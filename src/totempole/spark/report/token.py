"""Token rotation: the time between two visits of one ring's token to a node (traces of level protocol).

A message waits for the token for up to one rotation, and a safe one for those after it, which show that
everyone has it (Totem §4.1). An idle ring rests its token on purpose, which shows as long rotations.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.report.bins import binned
from totempole.spark.report.latency import PERCENTILES, bin_percentiles, exploded, percentile_array

EVERY_NODE = 0
"""In the column `node`: all nodes together."""


def rotations(events: DataFrame) -> DataFrame:
    """A row for each visit but the first of a token, in a life, on a ring."""
    visits = events.where(F.col("kind") == "token")
    in_order = Window.partitionBy("run", "node", "incarnation", "ring").orderBy("step")
    return (
        visits.withColumn("rotation_us", F.col("at_us") - F.lag("at_us").over(in_order))
        .where(F.col("rotation_us").isNotNull())
        .select("run", "node", "at_us", "rotation_us")
    )


def percentiles(of_rotations: DataFrame) -> DataFrame:
    """A row for each percentile of each node, and of all together."""
    nodes = F.explode(F.array(F.col("node"), F.lit(EVERY_NODE).cast("long")))
    summed = (
        of_rotations.withColumn("node", nodes)
        .groupBy("run", "node")
        .agg(
            F.count("*").alias("visits"),
            F.avg("rotation_us").alias("mean_us"),
            F.max("rotation_us").alias("max_us"),
            percentile_array("rotation_us", PERCENTILES).alias("found"),
        )
    )
    return exploded(summed, "rotation_us")


def over_time(of_rotations: DataFrame, runs: DataFrame) -> DataFrame:
    grouped = binned(of_rotations, runs).groupBy("run", "bin", "from_us")
    return grouped.agg(F.count("*").alias("visits"), *bin_percentiles("rotation_us"))
