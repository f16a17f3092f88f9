"""Delivery in causal order: Totem §3.5, theorems 4.11 and 4.12. The oracle is `checkers.causal`.

Only direct predecessors count; the transitive closure follows by induction. A message's direct predecessors
on its ring are what its originator had delivered or originated there before; `high` is the highest of them.
Whoever delivers the message must have delivered those first. A message that a life delivered before it came
to any whose `high` reaches as far is missing nowhere: only the few others are looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, finding, reason
from totempole.spark.properties.on_ring import HOME, on_ring
from totempole.spark.silver import Silver, ring_id

_STAY = ("run", "node", "life", "stay")


def causal_order(silver: Silver) -> Iterable[DataFrame]:
    yield _originated_below(silver)
    delivered = on_ring(silver).drop("stay", "members").join(_sources(silver), ["run", "ring", "seq"], "left")
    yield _without_predecessor(silver, delivered)
    yield _unknown(silver, delivered.where("source is null"))


def _events(silver: Silver) -> DataFrame:
    return silver.events.where("kind in ('originate', 'deliver') and stay > 0")


def _originated_below(silver: Silver) -> DataFrame:
    """Theorem 4.11: what a node originates sorts after all it ever delivered or originated, in any life."""
    place = F.struct(ring_id("ring").alias("id"), "seq")
    row = F.struct("node", "step", "message", "ring", "seq")
    events = _events(silver).select("run", "node", "step", "kind", place.alias("place"), row.alias("row"))
    before = Window.partitionBy("run", "node").orderBy("step").rowsBetween(Window.unboundedPreceding, -1)
    first_there = F.struct("place", -F.col("step"), "row")
    wrong = events.withColumn("top", F.max(first_there).over(before)).where(
        "kind = 'originate' and place <= top.place"
    )
    text = F.format_string(
        "Node %d originated %s at %d of %s after %s, which has the higher place %d of %s.",
        *("row.node", "row.message", "row.seq", "row.ring", "top.row.message", "top.row.seq", "top.row.ring"),
    )
    return wrong.select("run", *finding(True, text, evidence("top.row", "row")))


def _past(silver: Silver) -> DataFrame:
    """What was delivered or originated on a ring in its regular configuration."""
    return _events(silver).where("stay_regular and ring = stay_name")


def _sources(silver: Silver) -> DataFrame:
    """run, ring, seq, source (struct: node, life, stay, step, message), high: the first origination there."""
    before = Window.partitionBy(*_STAY).orderBy("step").rowsBetween(Window.unboundedPreceding, -1)
    originated = _past(silver).withColumn("high", F.max("seq").over(before)).where("kind = 'originate'")
    source, first = F.struct("node", "life", "stay", "step", "message"), F.struct("node", "step")
    return originated.groupBy("run", "ring", "seq").agg(
        F.min_by(source, first).alias("source"), F.min_by("high", first).alias("high")
    )


def _without_predecessor(silver: Silver, delivered: DataFrame) -> DataFrame:
    past = _past(silver).groupBy(*_STAY, "seq").agg(F.min("step").alias("known_step"))
    known = past.select("run", F.struct("node", "life", "stay").alias("where"), "seq", "known_step")
    missing = (
        delivered.withColumn("where", F.struct("source.node", "source.life", "source.stay"))
        .drop("seq", "ring")
        .join(_late(silver, delivered), [*HOME])
        .where("seq <= high and (first_step is null or first_step >= step)")
        .join(known, ["run", "where", "seq"])
        .where("known_step < source.step")
    )
    text = F.format_string(
        "Node %d delivered %s without having delivered %s, which node %d had delivered or originated before "
        "it originated %s.",
        *("row.node", "row.message", "before.message", "source.node", "row.message"),
    )
    rows = evidence("row", "before", "source")
    return missing.select("run", *finding(True, text, rows, F.array("row.node")))


def _late(silver: Silver, delivered: DataFrame) -> DataFrame:
    """HOME, seq, before (the slot's row), first_step: what a life may have delivered too late, or never.

    `soonest` is the first delivery whose originator had gone as far as this message, or further.
    """
    homes = silver.stays.where("regular").select(
        "run", "node", "life", F.col("stay").alias("home"), F.col("name").alias("ring")
    )
    slots = silver.slots.select(
        "run", "ring", "seq", F.col("seq").alias("reach"), F.col("row").alias("before")
    )
    told = delivered.select(
        *(*HOME, "seq", "step", F.col("high").alias("reach")),
        F.when(F.col("high") > 0, F.col("step")).alias("asked"),
    )
    as_far = Window.partitionBy(*HOME).orderBy(F.desc_nulls_last("reach"))
    return (
        homes.join(slots, ["run", "ring"])
        .unionByName(told, allowMissingColumns=True)
        .withColumn("first_step", F.min("step").over(Window.partitionBy(*HOME, "seq")))
        .withColumn("soonest", F.min("asked").over(as_far))
        .where("before is not null and soonest <= coalesce(first_step, soonest)")
        .select(*HOME, "seq", "before", "first_step")
    )


def _unknown(silver: Silver, sourceless: DataFrame) -> DataFrame:
    """Deliveries of what nobody is known to have originated: a reason, unless the originator left a trace."""
    nodes = silver.nodes.select("run", F.col("node").alias("origin"))
    rings = silver.slots.select("run", "ring")
    absent = sourceless.join(nodes, ["run", "origin"], "left_anti").join(rings, ["run", "ring"], "left_semi")
    text = F.format_string("Node %d, the originator of %s, left no trace.", "origin", "row.message")
    return absent.select("run", *reason(text)).distinct()
