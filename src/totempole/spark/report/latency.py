"""From the application's submission of a message to its delivery, on the ring and in process groups; in the
durable log, from the append of a run of records to its place in the order (green).

`own` is the delivery at the originator, which one clock measures. `all` is the delivery at every processor:
true where they share a clock (the simulator, nodes of one host), else off by the clocks' difference.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.report.bins import binned
from totempole.trace.layers.corel import GREEN

PERCENTILES = (50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 97.0, 98.0, 99.0, 99.5, 99.9)
ACCURACY = 20_000
"""Of `percentile_approx`: the rank is right to a part in so many, so that the 99.9th is not a guess."""


def latencies(events: DataFrame) -> DataFrame:
    return ring_latencies(events).unionByName(group_latencies(events)).unionByName(log_latencies(events))


def ring_latencies(events: DataFrame) -> DataFrame:
    """A row for each delivery of a message whose submission is in the trace.

    A life that ended before its first write leaves its incarnation, and so its messages' names, to the next
    one: what is delivered is of the later submission.
    """
    submitted = (
        events.where(F.col("kind") == "submit").groupBy("run", "message").agg(F.max("at_us").alias("sent_us"))
    )
    delivered = events.where(F.col("kind") == "deliver")
    return delivered.join(submitted, ["run", "message"]).select(*_latency("ring"))


def group_latencies(events: DataFrame) -> DataFrame:
    """A row for each batch that a process received, of the send of its first message.

    What a process sends at once may be delivered in several batches, and what it sends one by one in a single
    batch: a delivery belongs to the last send that is not above its number. If that one ended below it, the
    send is among the last rows of a killed node, which are lost.
    """
    is_send = F.col("kind") == "group_send"
    both = (
        events.where(F.col("kind").isin("group_send", "group_deliver"))
        .withColumn("sender", F.substring_index("message", ":", 1))
        .withColumn("number", F.substring_index("message", ":", -1).cast("long"))
        .withColumn("is_deliver", (~is_send).cast("int"))
    )
    in_order = Window.partitionBy("run", "sender").orderBy("number", "is_deliver")
    send = F.when(is_send, F.struct(F.col("at_us"), (F.col("number") + F.col("count")).alias("until")))
    found = both.withColumn("send", F.last(send, ignorenulls=True).over(in_order)).where(~is_send)
    return (
        found.where(F.col("send.until") > F.col("number"))
        .withColumn("sent_us", F.col("send.at_us"))
        .select(*_latency("group"))
    )


def log_latencies(events: DataFrame) -> DataFrame:
    """A row for each run of records and replica at which it became green, if its acceptance is in the trace.
    A replica that has lost its green line in a crash says it again: its first word counts."""
    accepted = (
        events.where(F.col("kind") == "accept").groupBy("run", "message").agg(F.min("at_us").alias("sent_us"))
    )
    green = events.where((F.col("kind") == "colour") & (F.col("new_state") == GREEN))
    first = green.groupBy("run", "node", "message", "origin").agg(F.min("at_us").alias("at_us"))
    return (
        first.withColumn("service", F.lit(GREEN)).join(accepted, ["run", "message"]).select(*_latency("log"))
    )


def percentiles(of_deliveries: DataFrame) -> DataFrame:
    """A row for each percentile of each layer, scope and service of a run."""
    summed = (
        _scoped(of_deliveries)
        .groupBy("run", "layer", "scope", "service")
        .agg(
            F.count("*").alias("deliveries"),
            F.count(F.when(F.col("latency_us") < 0, 1)).alias("negative"),
            F.avg("latency_us").alias("mean_us"),
            F.max("latency_us").alias("max_us"),
            percentile_array("latency_us", PERCENTILES).alias("found"),
        )
    )
    return exploded(summed, "latency_us")


def over_time(of_deliveries: DataFrame, runs: DataFrame) -> DataFrame:
    """A row for each bin in which something was delivered, by the time of delivery."""
    grouped = binned(_scoped(of_deliveries), runs).groupBy(
        "run", "layer", "scope", "service", "bin", "from_us"
    )
    return grouped.agg(F.count("*").alias("deliveries"), *bin_percentiles("latency_us"))


# What other figures share


def percentile_array(column: str, wanted: tuple[float, ...]) -> Column:
    return F.percentile_approx(column, [percent / 100 for percent in wanted], ACCURACY)


def exploded(summed: DataFrame, value: str) -> DataFrame:
    """The array `found` of PERCENTILES as rows."""
    names = F.array(*(F.lit(percent) for percent in PERCENTILES))
    return (
        summed.withColumn(
            "pair", F.explode(F.arrays_zip(names.alias("percentile"), F.col("found").alias(value)))
        )
        .select("*", "pair.percentile", f"pair.{value}")
        .drop("pair", "found")
    )


def bin_percentiles(column: str) -> list[Column]:
    found = percentile_array(column, (50.0, 90.0, 99.0))
    names = ("p50_us", "p90_us", "p99_us")
    return [*(found[place].alias(name) for place, name in enumerate(names)), F.max(column).alias("max_us")]


def _latency(layer: str) -> list[Column]:
    return [
        F.col("run"),
        F.lit(layer).alias("layer"),
        F.col("node"),
        F.col("service"),
        F.col("at_us"),
        (F.col("at_us") - F.col("sent_us")).alias("latency_us"),
        (F.col("node") == F.col("origin")).alias("own"),
    ]


def _scoped(of_deliveries: DataFrame) -> DataFrame:
    """A delivery at the originator counts in both scopes."""
    both, others = F.array(F.lit("own"), F.lit("all")), F.array(F.lit("all"))
    return of_deliveries.withColumn("scope", F.explode(F.when(F.col("own"), both).otherwise(others)))
