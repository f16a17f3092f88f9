"""What a processor says of others is true: that they have received messages, and that they have not.

The oracle is `checkers.notices`. For each ring and member: since when it has all messages up to each place;
and for each place since when all members have. Only notices that are earlier are looked at member by member.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.notices import CLOCK_PART, NEVER_US
from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.silver import Silver


def safe_notices(silver: Silver) -> Iterable[DataFrame]:
    """Everything up to the place has been received by every member, in the life that is on the ring."""
    judged = silver.receives.select("run").distinct()
    row = F.struct("node", "step", "message")
    told = silver.events.where("kind = 'safe'").join(judged, "run", "left_semi")
    told = told.select("run", "node", "ring", "seq", "at_us", row.alias("row")).join(silver.terms, "run")
    limit = F.when(F.col("same_clock"), F.col("at_us")).otherwise(F.lit(NEVER_US - 1))
    told = told.withColumn("limit_us", limit)
    rings = silver.configurations.select("run", F.col("name").alias("ring"), "members")
    unknown = told.join(rings, ["run", "ring"], "left_anti")
    text = F.format_string("Node %s told what is safe on %s, which nobody installed.", "node", "ring")
    yield unknown.select("run", *finding(True, text, evidence("row")))
    yield _too_early(silver, told, _complete_since(silver, rings.join(judged, "run", "left_semi")))


def _complete_since(silver: Silver, rings: DataFrame) -> DataFrame:
    """run, ring, seq, member, since_us, receipt, missed: for each member and message of a ring, since when
    the member had it and all before it."""
    slots = silver.slots.select("run", "ring", "seq", F.col("row").alias("missed"))
    receipts = silver.receipts.select("run", "ring", "seq", F.col("node").alias("member"), "receipt")
    each = slots.join(rings.select("run", "ring", F.explode("members").alias("member")), ["run", "ring"])
    each = each.join(receipts, ["run", "ring", "seq", "member"], "left")
    along = Window.partitionBy("run", "ring", "member").orderBy("seq")
    since = F.max(F.coalesce("receipt.at_us", F.lit(NEVER_US))).over(along)
    return each.withColumn("since_us", since)


def _too_early(silver: Silver, told: DataFrame, since: DataFrame) -> DataFrame:
    """Beside each notice stands the last message that it speaks of: a union, not a join of all with all."""
    everyone = since.groupBy("run", "ring", "seq").agg(F.max("since_us").alias("all_us"))
    places = everyone.withColumn("last", F.struct(F.col("seq").alias("place"), "all_us")).drop("all_us")
    along = Window.partitionBy("run", "ring").orderBy("seq", F.col("node").isNotNull())
    last = F.last("last", ignorenulls=True).over(along)
    early = (
        told.unionByName(places, allowMissingColumns=True)
        .withColumn("last", last)
        .where("node is not null and last.all_us > limit_us")
        .select("*", "last.place")
    )
    lacking = since.select(
        "run", "ring", F.col("seq").alias("lacked"), "member", "since_us", "receipt", "missed"
    )
    first = (
        early.join(lacking, ["run", "ring"])
        .where("lacked <= place and since_us > limit_us")
        .groupBy("run", "ring", "member", "node", "seq", "at_us", "complete", "same_clock", "row")
        .agg(F.min_by(F.struct("lacked", "receipt", "missed"), "lacked").alias("first"))
        .select("*", "first.*")
        .drop("first")
    )
    return _judged(silver, first)


def _judged(silver: Silver, first: DataFrame) -> DataFrame:
    lives = silver.lives.select("run", "node", "life", "last_at", "ended", "end")
    there = silver.on_rings.join(lives, ["run", "node", "life"]).withColumnRenamed("node", "member")
    nodes = silver.nodes.select("run", F.col("node").alias("member"), F.lit(True).alias("known"))
    known = first.join(there, ["run", "ring", "member"], "left").join(nodes, ["run", "member"], "left")
    untraced = F.format_string("Node %s of ring %s left no trace.", "member", "ring")
    text = F.format_string(
        "Node %s said that all up to %s of %s is everywhere when member %s had not received %s at %s.",
        *("node", "seq", "ring", "member", "missed.message", "lacked"),
    )
    cut = F.expr("life is null or (ended and end is null)")
    goes_on = ~cut & F.expr("complete or (same_clock and last_at >= at_us)")
    due = F.col("receipt").isNotNull() | F.coalesce(goes_on, F.lit(False))
    nodes_told = F.array("node", "member")
    return failing(
        known,
        (F.col("known").isNull(), reason(untraced)),
        (F.col("known"), finding(due, text, evidence("row", "missed"), nodes_told)),
    )


def justified_expulsion(silver: Silver) -> Iterable[DataFrame]:
    """The one that is blamed lacked the message after the aru when the token last left the blamer; or it has
    left, and acknowledged nothing more."""
    lives = silver.lives.select("run", "node", "life", "last_at", "end")
    there = silver.on_rings.join(lives, ["run", "node", "life"]).select(
        "run", "ring", F.col("node").alias("origin"), "life", "last_at", "end"
    )
    nodes = silver.nodes.select("run", F.col("node").alias("origin"), F.lit(True).alias("known"))
    receipts = silver.receipts.select(
        "run", "ring", F.col("node").alias("origin"), (F.col("seq") - 1).alias("seq"), "receipt"
    )
    blames = (
        silver.skeleton.where("kind = 'blame'")
        .select("run", "node", "step", "message", "ring", "seq", "origin", "at_us", "count", "reason")
        .withColumn("row", F.struct("node", "step", "message"))
        .join(there, ["run", "ring", "origin"], "left")
        .join(nodes, ["run", "origin"], "left")
        .join(receipts, ["run", "ring", "origin", "seq"], "left")
        .join(silver.terms, "run")
    )
    no_member = F.format_string(
        "Node %s blamed node %s on ring %s, where it is no other member.", "node", "origin", "ring"
    )
    had_it = F.format_string(
        "Node %s blamed node %s (%s) for the message after %s of %s, which it had received before.",
        *("node", "origin", "reason", "seq", "ring"),
    )
    wrong = F.coalesce(F.expr("origin = node or (life is null and known and complete)"), F.lit(False))
    left_us = F.col("at_us") - F.col("count") - F.floor(F.col("count") / CLOCK_PART)
    has_left = F.coalesce(F.expr("end = 'leave' and last_at <= at_us"), F.lit(False))
    late = F.coalesce(F.col("same_clock") & (F.col("receipt.at_us") < left_us), F.lit(False)) & ~has_left
    yield failing(
        blames,
        (wrong, finding(True, no_member, evidence("row"), F.array("node", "origin"))),
        (~wrong & late, finding(True, had_it, evidence("row", "receipt"))),
    )
