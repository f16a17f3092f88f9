"""Whose trace is missing, and whose should tell more by now: what most properties of groups ask."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.spark.findings import reason
from totempole.spark.group_places import incarnation_of, processor_of
from totempole.spark.group_silver import GroupSilver


def without_trace(groups: GroupSilver, names: DataFrame, text: str) -> DataFrame:
    """A reason for each processor of these processes (run, name) that left no trace. `text` has %s for it."""
    nodes = names.select("run", processor_of("name").alias("node")).distinct()
    absent = nodes.join(groups.silver.nodes, ["run", "node"], "left_anti")
    return absent.select("run", *reason(F.format_string(text, "node")))


def with_telling(groups: GroupSilver, rows: DataFrame, name: str, since: str) -> DataFrame:
    """With processor, of the process `name`; known: it left a trace; and told: its trace has by now all that
    led to what happened at `since`.

    That of a killed life lacks its last rows. The simulator writes down everything up to a crash.
    """
    nodes = groups.silver.nodes.select(
        "run", F.col("node").alias("processor"), "last_at", F.lit(True).alias("known")
    )
    found = (
        rows.withColumns({"processor": processor_of(name), "incarnation": incarnation_of(name)})
        .join(nodes, ["run", "processor"], "left")
        .join(_latest_lives(groups), ["run", "processor", "incarnation"], "left")
        .join(F.broadcast(groups.silver.terms), "run")
    )
    since_at = F.col(since)
    reached = F.col("same_clock") & (F.coalesce("last_at", F.lit(-1)) >= since_at)
    told = (
        F.when(F.col("life.killed"), F.col("same_clock") & (F.col("life.last_at") >= since_at))
        .when(F.col("complete"), F.col("same_clock") | F.coalesce("life.current", F.lit(False)))
        .otherwise(reached)
    )
    return found.withColumns({"known": F.coalesce("known", F.lit(False)), "told": told}).drop("life")


def _latest_lives(groups: GroupSilver) -> DataFrame:
    """run, processor, incarnation, life: whether it was killed, or is not over; and when its trace ends."""
    killed = F.col("ended") & F.col("end").isNull()
    life = F.struct(killed.alias("killed"), "current", "last_at")
    lives = groups.silver.lives.groupBy("run", F.col("node").alias("processor"), "incarnation")
    return lives.agg(F.max_by(life, "life").alias("life"))
