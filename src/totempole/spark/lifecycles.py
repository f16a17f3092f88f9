"""Silver tables for people and tools: what became of each message, configuration and visit of the token."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.silver import Silver


def messages(silver: Silver) -> DataFrame:
    """One row for each message: where it was submitted, originated, received and delivered.

    run, message, origin, service, ring, seq, timestamp, bytes; submitted and originated (node, step, at_us,
    configuration); broadcasts: how often it was sent, retransmissions included; received and delivered:
    arrays of the same, by node, each node's first receipt and all of its deliveries.
    """
    kinds = ("submit", "originate", "receive", "deliver")
    rows = silver.bronze.where(F.col("kind").isin(*kinds) & (F.col("message") != ""))
    what = F.struct("node", "step", "at_us", "configuration")
    grouped = rows.groupBy("run", "message").agg(
        *(
            _of(kinds[1:], F.col(name)).alias(name)
            for name in ("service", "ring", "seq", "timestamp", "bytes")
        ),
        F.coalesce(_of(("originate",), F.col("node")), _of(("deliver", "receive"), F.col("origin"))).alias(
            "origin"
        ),
        _of(("submit",), what).alias("submitted"),
        _of(("originate",), what).alias("originated"),
        F.array_sort(F.collect_list(F.when(F.col("kind") == "receive", what))).alias("received"),
        F.array_sort(F.collect_list(F.when(F.col("kind") == "deliver", what))).alias("delivered"),
    )
    again = (
        silver.bronze.where("kind = 'retransmit'")
        .groupBy("run", "ring", "seq")
        .agg(F.count("*").alias("again"))
    )
    together = grouped.join(again, ["run", "ring", "seq"], "left")
    sent = F.col("originated").isNotNull().cast("bigint") + F.coalesce("again", F.lit(0))
    return together.withColumn("broadcasts", sent).select(
        *(
            "run",
            "message",
            "origin",
            "service",
            "ring",
            "seq",
            "timestamp",
            "bytes",
            "submitted",
            "originated",
        ),
        *("broadcasts", "received", "delivered"),
    )


def _of(kinds: tuple[str, ...], value: Column) -> Column:
    """The value in the first row of one of these kinds."""
    chosen = F.col("kind").isin(*kinds)
    return F.min_by(F.when(chosen, value), F.when(chosen, F.struct("node", "step")))


def configurations(silver: Silver) -> DataFrame:
    """One row for each configuration that a node installed, in which life, from when to when."""
    ends = F.lead("change.at_us").over(Window.partitionBy("run", "node", "life").orderBy("stay"))
    return silver.stays.select(
        *(
            "run",
            "node",
            "incarnation",
            "life",
            "stay",
            F.col("name").alias("configuration"),
            "regular",
            "members",
        ),
        *(F.col("change.step").alias("step"), F.col("change.at_us").alias("from_us"), ends.alias("to_us")),
        *(F.col("before.name").alias("came_from"), F.col("after.name").alias("went_to"), "ended"),
    )


def token_visits(silver: Silver) -> DataFrame:
    """One row for each visit of the token, with the time since the visit before on the same ring."""
    along = Window.partitionBy("run", "node", "ring").orderBy("step")
    visits = silver.bronze.where("kind = 'token'")
    return visits.select(
        *(
            "run",
            "node",
            "incarnation",
            "step",
            "at_us",
            "ring",
            "seq",
            F.col("count").alias("token_seq"),
            F.col("srp_aru").alias("aru"),
            F.col("srp_rtr").alias("rtr"),
        ),
        (F.col("at_us") - F.lag("at_us").over(along)).alias("rotation_us"),
    )
