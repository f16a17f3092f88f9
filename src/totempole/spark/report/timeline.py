"""Configurations per processor over time, as in figure 4.15 of 000, and what happened to the processors."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.trace.layers.node import DROPPED
from totempole.trace.layers.srp import LEFT

BOUNDS = ("configuration", "restart", "crash", "leave")
"""What ends a stay in a configuration."""


def stays(events: DataFrame, of_lives: DataFrame) -> DataFrame:
    """A row for each configuration that a node installed: from when to when, and what it delivered in it.

    `ended` is the kind of row that ended it. Two of them tell no time, and then the stay is known to have
    lasted until the last row of its life: `restart`, the node was killed and nobody wrote that down, and
    `open`, the trace ends.
    """
    in_node = Window.partitionBy("run", "node").orderBy("step")
    following = (
        events.where(F.col("kind").isin(*BOUNDS))
        .withColumn("next_kind", F.lead("kind").over(in_node))
        .withColumn("next_us", F.lead("at_us").over(in_node))
        .where(F.col("kind") == "configuration")
    )
    told = F.col("next_kind").isin("configuration", "crash", "leave")
    life = ["run", "node", "incarnation"]
    return (
        following.join(of_lives.select(*life, "last_us"), life)
        .join(_delivered(events), [*life, "configuration"], "left")
        .select(
            *life,
            "configuration",
            "configuration_kind",
            "ring",
            "members",
            "previous",
            F.col("at_us").alias("from_us"),
            F.when(told, F.col("next_us")).otherwise(F.col("last_us")).alias("until_us"),
            F.coalesce("next_kind", F.lit("open")).alias("ended"),
            F.coalesce("delivered", F.lit(0).cast("long")).alias("delivered"),
        )
    )


def outages(events: DataFrame) -> DataFrame:
    """A row for each time that a node left the Operational state, and when it was back if it ever was.

    So long it takes to re-form a ring (000 §4.4). The reason is the one for which the node left the old ring.
    """
    moved = events.where((F.col("kind") == "state") & (F.col("layer") == "srp")).where(
        (F.col("old_state") == "operational") | (F.col("new_state") == "operational")
    )
    in_life = Window.partitionBy("run", "node", "incarnation").orderBy("step")
    return (
        moved.withColumn("until_us", F.lead("at_us").over(in_life))
        .where((F.col("old_state") == "operational") & (F.col("new_state") != LEFT))
        .select(
            "run",
            "node",
            "incarnation",
            F.col("at_us").alias("from_us"),
            "until_us",
            "reason",
        )
    )


def marks(events: DataFrame) -> DataFrame:
    """Crashes, leaves, restarts but the first start of a node, and the faults that a simulation injected.

    Not the single packets that a simulated network was told to drop: what those lead to is seen elsewhere.
    """
    kinds = ("crash", "leave", "restart", "fault")
    number = F.row_number().over(Window.partitionBy("run", "node", "kind").orderBy("step"))
    a_packet = (F.col("kind") == "fault") & (F.col("reason") == DROPPED)
    return (
        events.where(F.col("kind").isin(*kinds) & ~a_packet)
        .withColumn("number", number)
        .where((F.col("kind") != "restart") | (F.col("number") > 1))
        .select("run", "node", "incarnation", "step", "at_us", "kind", _told().alias("told"))
    )


def _told() -> Column:
    """As `trace.told` has it."""
    return F.trim(F.concat_ws(" ", "reason", "detail"))


def _delivered(events: DataFrame) -> DataFrame:
    return (
        events.where(F.col("kind") == "deliver")
        .groupBy("run", "node", "incarnation", "configuration")
        .agg(F.sum(F.greatest(F.col("count"), F.lit(1))).alias("delivered"))
    )
