"""Delivery in agreed order: Totem §3.5, theorems 4.13 and 4.14. The oracle is `checkers.agreed`.

Along a life's deliveries on a ring, the highest seq so far tells all: what is not above it is out of order,
and what the ring has between it and the next delivery was skipped. How many of the ring's messages have been
passed is known from their ranks, so that only what was skipped is looked up.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, finding, reason
from totempole.spark.properties.absent import absent
from totempole.spark.properties.on_ring import HOME, on_ring
from totempole.spark.silver import Silver

MISSED_MAX = 10
"""Messages that one finding names as skipped, as the check has it."""


def agreed_order(silver: Silver) -> Iterable[DataFrame]:
    """By increasing seq, without a gap but for what only those left behind had (Totem §4.3)."""
    yield _misplaced(_named(silver, _followed(silver)))
    yield _missing_in_common_prefix(silver)
    yield _doubtful(silver)


def _followed(silver: Silver) -> DataFrame:
    """The deliveries on rings, with `below`: how many messages the ring has below this one.

    Of what the same life delivered before on the ring: `last`, the highest seq, and `passed`, how many
    messages the ring has up to that. A place that is delivered need not be one of the ring's own: a message
    delivered at two places has only the first.
    """
    own = silver.slots.select("run", "ring", "seq", F.lit(1).alias("own"))
    places = on_ring(silver).withColumn("own", F.lit(0)).unionByName(own, allowMissingColumns=True)
    up_to = F.sum("own").over(Window.partitionBy("run", "ring").orderBy("seq"))
    here = F.max("own").over(Window.partitionBy("run", "ring", "seq"))
    counted = places.withColumns({"up_to": up_to, "below": up_to - here}).where("own = 0")
    before = Window.partitionBy(*HOME).orderBy("step").rowsBetween(Window.unboundedPreceding, -1)
    return counted.withColumns(
        {
            "last": F.coalesce(F.max("seq").over(before), F.lit(-1)),
            "passed": F.coalesce(F.max("up_to").over(before), F.lit(0)),
        }
    )


def _named(silver: Silver, deliveries: DataFrame) -> DataFrame:
    """The deliveries that are `behind`, or skip something, each with the slots it should not have passed.

    In a transitional configuration only what its members originated may not be skipped.
    """
    behind = F.col("seq") <= F.col("last")
    ranks = F.when(behind, F.array("passed")).otherwise(F.sequence(F.col("passed") + 1, F.col("below")))
    wrong = deliveries.where(behind | (F.col("below") > F.col("passed"))).select(
        *("run", "ring", "row", "seq", "last", "members", behind.alias("behind")),
        F.explode(ranks).alias("rank"),
    )
    slots = silver.slots.select("run", "ring", "rank", F.col("seq").alias("at"), F.col("row").alias("slot"))
    origin = F.when(F.col("slot.kind") == "originate", F.col("slot.node")).otherwise(F.col("slot.origin"))
    owed = F.col("members").isNull() | F.array_contains("members", origin)
    meant = F.when(F.col("behind"), F.col("at") == F.col("last")).otherwise(owed)
    slot = F.when(meant, F.struct("at", "slot.node", "slot.step", "slot.message"))
    return (
        wrong.join(slots, ["run", "ring", "rank"], "left")
        .groupBy("run", "ring", "row", "seq", "last", "behind")
        .agg(F.slice(F.array_sort(F.collect_list(slot)), 1, MISSED_MAX).alias("slots"))
        .where("behind or size(slots) > 0")
    )


def _misplaced(found: DataFrame) -> DataFrame:
    other = F.get("slots", F.lit(0))
    text = F.format_string(
        "Node %d delivered %s at %d of %s %s %s at %d.",
        *("row.node", "row.message", "seq", "ring"),
        F.when(F.col("behind"), "after").otherwise("without having delivered"),
        F.coalesce(other["message"], "row.message"),
        F.coalesce(other["at"], "last"),
    )
    slots = F.transform("slots", lambda slot: F.struct(slot["node"], slot["step"], slot["message"]))
    rows = F.concat(evidence("row"), slots)
    return found.select("run", *finding(True, text, rows, F.array("row.node")))


def _missing_in_common_prefix(silver: Silver) -> DataFrame:
    """Theorem 4.14 within a transitional configuration: no one skips what another delivers in it.

    Numbers of different rings do not compare. Mostly there is but one ring.
    """
    stay = F.struct("node", "life", "stay")
    last = F.max_by("row", "step").over(Window.partitionBy("run", "node", "life", "stay", "ring"))
    everyone = F.collect_set(F.struct("who", "last")).over(Window.partitionBy("run", "stay_name", "ring"))
    delivered = (
        silver.events.where("kind = 'deliver' and not stay_regular")
        .select("*", stay.alias("who"), F.struct("node", "step", "message", "seq").alias("row"))
        .withColumn("last", last)
        .withColumn("everyone", everyone)
    )
    places = delivered.groupBy("run", "stay_name", "ring", "seq").agg(
        F.min_by("row", F.struct("node", "step")).alias("other"),
        F.collect_set("who").alias("deliverers"),
        F.first("everyone").alias("everyone"),
    )
    skipping = F.filter(
        "everyone",
        lambda one: (F.col("seq") < one["last"]["seq"]) & ~F.array_contains("deliverers", one["who"]),
    )
    missing = places.select("run", "stay_name", "other", F.explode(skipping).alias("one"))
    text = F.format_string(
        "Node %d delivered %s in %s without %s, which node %d delivered there.",
        *("one.last.node", "one.last.message", "stay_name", "other.message", "other.node"),
    )
    return missing.select("run", *finding(True, text, evidence("one.last", "other")))


def _doubtful(silver: Silver) -> DataFrame:
    rings = silver.slots.select("run", F.col("ring").alias("name"))
    stays = silver.stays.where("regular").select("run", "name", "members").distinct()
    doubtful = (
        absent(silver, stays).select("run", "name").distinct().join(rings, ["run", "name"], "left_semi")
    )
    text = F.format_string(
        "A member of ring %s left no trace, and messages of it may have been skipped.", "name"
    )
    return doubtful.select("run", *reason(text))
