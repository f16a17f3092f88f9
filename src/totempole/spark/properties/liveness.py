"""Once the faults stop, the connected come together and all is delivered (Totem theorems 4.3, 4.7, 4.8).

The expectation names groups of nodes that can hear one another. Of each group whose nodes all left a trace,
those still up must end together, in a configuration of exactly them. The oracle is `checkers.liveness`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import Check, evidence, failing, finding, reason
from totempole.spark.properties.membership import listing
from totempole.spark.properties.sources import first_deliveries
from totempole.spark.properties.undelivered import undelivered
from totempole.spark.silver import Silver


def liveness(silver: Silver) -> Iterable[DataFrame]:
    told = F.col("complete") & F.col("expectation").isNotNull()
    untold = F.lit("A complete run and an expectation are needed to tell.")
    yield silver.terms.where(~told).select("run", *reason(untold))
    ends = _ends(silver, _expected(silver.terms.where(told)))
    yield failing(ends, _without_trace(), _never_installed(), _not_with_them(), _late(), _apart())
    owed = _forgotten(silver).unionByName(_missing(silver))
    up = ends.where("up").select("run", "node", "life", "settled")
    yield failing(owed.join(up, ["run", "node", "life"]), _not_delivered_own(), _not_delivered())


def _expected(terms: DataFrame) -> DataFrame:
    """run, group, at_us, bound_us, node."""
    groups = F.posexplode("expectation.groups").alias("group", "nodes")
    each = terms.select("run", "expectation.at_us", "expectation.bound_us", groups)
    return each.withColumn("node", F.explode("nodes")).drop("nodes")


def _ends(silver: Silver, nodes: DataFrame) -> DataFrame:
    """The nodes, and the stays that they ended in.

    known: it left a trace; up: all of its group did, and it has not gone down; together: who of the group is
    up; settled: in a configuration of exactly those; names and changes: of the settled.
    """
    group = Window.partitionBy("run", "group")
    known = silver.nodes.select("run", "node").withColumn("known", F.lit(True))
    lives = silver.lives.where("current").select("run", "node", "life")
    whole = F.count("known").over(group) == F.count("node").over(group)
    up = F.col("life").isNotNull() & whole
    together = F.sort_array(F.collect_list(F.when(F.col("up"), F.col("node"))).over(group))
    alone_with_them = F.col("up") & F.col("regular") & (F.col("members") == F.col("together"))
    change = F.struct("change.node", "change.step", "change.message")
    names = F.collect_set(F.when(F.col("settled"), F.col("name")))
    changes = F.collect_list(F.when(F.col("settled"), change))
    return (
        nodes.join(known, ["run", "node"], "left")
        .join(lives, ["run", "node"], "left")
        .join(silver.stays.where("open"), ["run", "node", "life"], "left")
        .withColumn("up", up)
        .withColumn("together", together)
        .withColumn("settled", F.coalesce(alone_with_them, F.lit(False)))
        .withColumns({"names": F.sort_array(names.over(group)), "changes": F.sort_array(changes.over(group))})
    )


def _without_trace() -> Check:
    return F.col("known").isNull(), reason(F.format_string("Node %s left no trace.", "node"))


def _never_installed() -> Check:
    text = F.format_string("Node %s never installed a configuration.", "node")
    return F.col("up") & F.col("name").isNull(), finding(True, text, evidence(), F.array("node"))


def _not_with_them() -> Check:
    text = F.format_string(
        "Node %s ended in the %s configuration %s of %s and not with exactly the connected nodes %s.",
        *(F.col("node"), F.col("change.configuration_kind"), F.col("name")),
        *(listing("members"), listing("together")),
    )
    elsewhere = F.col("up") & F.col("name").isNotNull() & ~F.col("settled")
    return elsewhere, finding(True, text, evidence("change"))


def _late() -> Check:
    late_us = F.col("change.at_us") - F.col("at_us") - F.col("bound_us")
    text = F.format_string(
        "Node %s installed its final configuration %s %s us later than the bound of %s us after the faults "
        "stopped.",
        *(F.col("node"), F.col("name"), late_us, F.col("bound_us")),
    )
    return F.col("settled") & (late_us > 0), finding(True, text, evidence("change"))


def _apart() -> Check:
    """Said once for each group, at the first of those who are up."""
    text = F.format_string(
        "The connected nodes %s ended in different configurations, %s.", listing("together"), listing("names")
    )
    foremost = F.col("node") == F.array_min("together")
    differ = foremost & (F.size("names") > 1)
    return differ, finding(True, text, F.col("changes"), F.col("together"))


def _forgotten(silver: Silver) -> DataFrame:
    """run, node, life, row; ring is null: what was submitted to a node and never delivered by it."""
    submitted = silver.submissions.where("message != ''").select(
        *("run", "node", "life", "message"),
        F.struct("node", "step", "message").alias("row"),
        F.lit(None).cast("string").alias("ring"),
    )
    return submitted.join(first_deliveries(silver), ["run", "message", "node"], "left_anti").drop("message")


def _missing(silver: Silver) -> DataFrame:
    """run, node, life, row, ring: what is on the ring that a node ended in and was not delivered by it."""
    stays = silver.stays.where("open and regular").select("run", "node", "life", "stay", "name")
    return undelivered(silver, stays).select(
        *("run", "node", "life"),
        F.struct("row.node", "row.step", "row.message").alias("row"),
        F.col("name").alias("ring"),
    )


def _not_delivered_own() -> Check:
    text = F.format_string("Node %s never delivered %s, which was submitted to it.", "node", "row.message")
    return F.col("ring").isNull(), finding(True, text, evidence("row"))


def _not_delivered() -> Check:
    text = F.format_string(
        "Node %s never delivered %s of its final configuration %s.", "node", "row.message", "ring"
    )
    owed = F.col("settled") & F.col("ring").isNotNull()
    return owed, finding(True, text, evidence("row"), F.array("node"))
