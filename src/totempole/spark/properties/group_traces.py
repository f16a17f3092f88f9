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

    One of a killed node lacks its last rows. Only the simulator, whose clock is the same for all, writes down
    everything up to the crash.
    """
    current = groups.silver.lives.where("current").select("run", "node", "incarnation")
    nodes = groups.silver.nodes.join(current, ["run", "node"], "left").select(
        "run", F.col("node").alias("processor"), "last_at", "incarnation", F.lit(True).alias("known")
    )
    same_life = F.coalesce(F.col("incarnation") == incarnation_of(name), F.lit(False))
    reached = F.coalesce("last_at", F.lit(-1)) >= F.col(since)
    told = F.when(F.col("complete"), F.col("same_clock") | same_life).otherwise(F.col("same_clock") & reached)
    found = (
        rows.withColumn("processor", processor_of(name))
        .join(nodes, ["run", "processor"], "left")
        .join(F.broadcast(groups.silver.terms), "run")
    )
    return found.withColumns({"known": F.coalesce("known", F.lit(False)), "told": told})
