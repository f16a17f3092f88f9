"""Reliable delivery by configuration: Totem §3.5, theorems 4.8 to 4.10. The oracle is `checkers.reliable`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.properties.absent import absent
from totempole.spark.properties.sources import sources
from totempole.spark.properties.undelivered import undelivered
from totempole.spark.silver import Silver

_STAY = ("run", "node", "life", "stay")
SHOWN_MAX = 10
"""Rows that show one difference between two nodes, as the check has it."""


def all_messages_absent_change(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.8. Whoever stays in a configuration delivers all that is originated in it."""
    staying = silver.stays.where("open and regular").select(*_STAY, "name", "members")
    yield _left_no_trace(silver, staying)
    missing = undelivered(silver, staying.drop("members")).join(silver.terms, "run")
    origin = F.when(F.col("row.origin") != 0, F.col("row.origin")).otherwise(F.col("row.node"))
    text = F.format_string(
        "Node %d stayed in %s and never delivered %s of node %d.", "node", "name", "row.message", origin
    )
    yield missing.select("run", *finding(F.col("complete"), text, evidence("row"), F.array("node")))


def delivery_in_origin_configuration(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.9. In the configuration of its ring, or in the transitional one right after it."""
    delivered = silver.events.where("kind = 'deliver'").withColumns(
        {"home": F.coalesce("stay_ring", F.lit("")), "row": F.struct("node", "step", "message")}
    )
    nowhere = F.format_string("Node %d delivered %s in no configuration at all.", "node", "message")
    yield delivered.where("stay = 0").select("run", *finding(True, nowhere, evidence("row")))
    elsewhere = F.format_string(
        "Node %d delivered %s of ring %s in %s, when it was in %s of ring %s.",
        *("node", "message", "ring", "configuration", "stay_name", "home"),
    )
    wrong = delivered.where("stay > 0 and (ring != home or configuration != stay_name)")
    yield wrong.select("run", *finding(True, elsewhere, evidence("row")))


def transitional_delivery(silver: Silver) -> Iterable[DataFrame]:
    """Totem §4.3, figure 4.15: what is delivered by the end of a transitional configuration.

    That is all messages up to the first that none of its members has received, whoever sent them, and beyond
    it all that its members originated.
    """
    passing = silver.stays.where("not regular and before.regular")
    yield _left_no_trace(silver, passing.select("run", "name", "members"))
    left = passing.where("after is not null or not ended").select(
        *("run", "node", "life", F.col("before.stay").alias("stay"), F.col("before.name").alias("name")),
        *("members", "change", F.col("name").alias("following")),
        F.col("after").isNotNull().alias("moved_on"),
        F.col("after.name").alias("new_ring"),
    )
    along = Window.partitionBy("run", "node", "life", "stay").orderBy("seq")
    missing = (
        _with_holders(silver, undelivered(silver, left))
        .withColumn("up_to_gap", F.bool_and(F.col("holder").isNotNull()).over(along))
        .withColumn("message", F.col("row.message"))
        .join(sources(silver), ["run", "message"], "left")
        .withColumn("own", F.coalesce(F.expr("array_contains(members, source.node)"), F.lit(False)))
        .join(silver.terms, "run")
    )
    text = F.format_string(
        "Node %d ended the transitional configuration %s without having delivered %s of its member %d.",
        *("node", "following", "message", "source.node"),
    )
    skipped = F.format_string(
        "Node %d ended the transitional configuration %s without having delivered %s, which its member %d "
        "had received, as all before it.",
        *("node", "following", "message", "holder.node"),
    )
    due = F.col("moved_on") | F.col("complete")
    yield failing(
        missing,
        (F.col("own"), finding(due, text, evidence("source", "change"), F.array("node"))),
        (
            ~F.col("own") & F.col("up_to_gap"),
            finding(due, skipped, evidence("holder", "change"), F.array("node")),
        ),
    )


def _with_holders(silver: Silver, missing: DataFrame) -> DataFrame:
    """With `holder`: the receipt of the message by the first member of the transitional configuration that
    had it when it shifted to Recover for the new ring; null if none had, or if it may follow a gap.
    """
    agreed = silver.committed.select(
        *("run", F.col("ring").alias("new_ring"), F.col("node").alias("member")),
        *(F.col("life").alias("member_life"), F.col("step").alias("until")),
    )
    held = silver.events.where("kind in ('originate', 'receive')").groupBy(
        "run",
        F.col("ring").alias("name"),
        "seq",
        F.col("node").alias("member"),
        F.col("life").alias("member_life"),
    )
    receipts = held.agg(F.min_by(F.struct("node", "step", "message"), "step").alias("receipt"))
    key = ("run", "node", "life", "stay", "seq")
    each = missing.select(*key, "name", "new_ring", F.posexplode("members").alias("place", "member"))
    holders = (
        each.join(agreed, ["run", "new_ring", "member"])
        .join(receipts, ["run", "name", "seq", "member", "member_life"])
        .where("receipt.step < until")
        .groupBy(*key)
        .agg(F.min_by("receipt", "place").alias("holder"))
    )
    known = missing.join(holders, list(key), "left")
    follows = _may_follow_a_gap(silver, missing.select(*key, "name"))
    return known.join(follows, list(key)).withColumn("holder", F.expr("if(gap, null, holder)")).drop("gap")


def _may_follow_a_gap(silver: Silver, places: DataFrame) -> DataFrame:
    """The places with `gap`: whether one is empty between it and the last that was delivered in the stay.

    There may have been a message whose rows are missing. Where nothing was delivered, the first place that is
    known is the ring's first, if no rows of its members are missing.
    """
    delivered = silver.events.where("kind = 'deliver'").groupBy("run", "node", "life", "stay")
    ranks = silver.slots.select("run", F.col("ring").alias("name"), "seq", "rank")
    firsts = ranks.where("rank = 1").select("run", "name", F.col("seq").alias("first"))
    starts = ranks.select("run", "name", F.col("seq").alias("start"), F.col("rank").alias("start_rank"))
    compared = (
        places.join(delivered.agg(F.max("seq").alias("delivered")), ["run", "node", "life", "stay"], "left")
        .join(firsts, ["run", "name"])
        .join(_rings_with_all_rows(silver), ["run", "name"], "left")
        .withColumn("start", F.expr("coalesce(delivered, if(whole, first, null))"))
        .join(ranks, ["run", "name", "seq"])
        .join(starts, ["run", "name", "start"], "left")
    )
    gap = F.coalesce(F.expr("rank - start_rank != seq - start"), F.lit(True))
    return compared.select("run", "node", "life", "stay", "seq", gap.alias("gap"))


def _rings_with_all_rows(silver: Silver) -> DataFrame:
    """run, name, whole: whether all members of the configuration left a trace, and none was killed."""
    killed = silver.lives.where("ended and end is null").select("run", "node").distinct()
    whole = silver.nodes.join(killed, ["run", "node"], "left_anti").select(
        "run", "node", F.lit(True).alias("told")
    )
    members = silver.configurations.select("run", "name", F.explode("members").alias("node"))
    each = members.join(whole, ["run", "node"], "left").withColumn("told", F.coalesce("told", F.lit(False)))
    return each.groupBy("run", "name").agg(F.bool_and("told").alias("whole"))


def same_messages_in_consecutive_configurations(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.10, virtual synchrony: who moves from C1 to C2 together delivered the same set in C1.

    Each is compared with the first who moved so.
    """
    yield _told_apart(_differences(silver))
    yield _open_moves(silver)


def _differences(silver: Silver) -> DataFrame:
    """run, name, next, first, other, rows: deliveries that only one of the two has, the first's before."""
    who = F.struct("node", "life", "stay")
    together = Window.partitionBy("run", "name", "next")
    moves = (
        silver.stays.where("after is not null")
        .select("run", "name", F.col("after.name").alias("next"), who.alias("who"))
        .withColumn("movers", F.array_sort(F.collect_list("who").over(together)))
    )
    row = F.struct("node", "step", "message")
    rows = silver.events.where("kind = 'deliver'").select(
        "run", "message", who.alias("who"), row.alias("row")
    )
    messages = (
        rows.join(moves, ["run", "who"])
        .groupBy("run", "name", "next", "message")
        .agg(F.first("movers").alias("movers"), F.collect_list(F.struct("who", "row")).alias("told"))
    )
    odd = messages.select(
        "run", "name", "next", F.col("movers")[0].alias("first"), F.explode(_odd()).alias("odd")
    )
    listed = F.array_sort(F.collect_list(F.struct("odd.turn", "odd.row.step", "odd.row")))
    return odd.groupBy("run", "name", "next", "first", F.col("odd.other").alias("other")).agg(
        F.transform(F.slice(listed, 1, SHOWN_MAX), lambda one: one["row"]).alias("rows")
    )


def _odd() -> Column:
    """Of one message: who differs from the first, and the rows that show it, as (other, turn, row).

    Either the first delivered it, and others did not; or the first did not, and others did.
    """
    first = F.col("movers")[0]
    mine = F.filter("told", lambda one: one["who"] == first)
    deliverers = F.transform("told", lambda one: one["who"])
    lacking = F.array_except("movers", deliverers)

    def shown(other: Column, turn: int, row: Column) -> Column:
        return F.struct(other.alias("other"), F.lit(turn).alias("turn"), row.alias("row"))

    missed = F.transform(lacking, lambda other: F.transform(mine, lambda one: shown(other, 1, one["row"])))
    extra = F.transform("told", lambda one: shown(one["who"], 2, one["row"]))
    return F.when(F.array_contains(deliverers, first), F.flatten(missed)).otherwise(extra)


def _told_apart(found: DataFrame) -> DataFrame:
    one = F.col("rows")[0]
    text = F.format_string(
        "Nodes %d and %d moved from %s to %s together, but only node %d delivered %s in %s.",
        *("first.node", "other.node", "name", "next", one["node"], one["message"], "name"),
    )
    return found.select("run", *finding(True, text, F.col("rows"), F.array("first.node", "other.node")))


def _open_moves(silver: Silver) -> DataFrame:
    """Members of the next configuration that left no trace, or may yet follow."""
    first_told = Window.partitionBy("run", "name").orderBy("node", "change.step")
    moves = (
        silver.stays.withColumn("company", F.first("members").over(first_told))
        .where("before is not null")
        .select("run", F.col("before.name").alias("name"), F.col("name").alias("next"), "company")
        .distinct()
    )
    each = moves.withColumn("member", F.explode("company")).drop("company")
    nodes = (
        silver.nodes.select("run", F.col("node").alias("member")).distinct().withColumn("traced", F.lit(True))
    )
    waiting = silver.stays.where("open").select(
        "run", F.col("node").alias("member"), F.col("name").alias("stays_in")
    )
    doubtful = (
        each.join(nodes, ["run", "member"], "left")
        .join(waiting, ["run", "member"], "left")
        .join(silver.terms, "run")
        .where("traced is null or (not complete and stays_in = name)")
    )
    text = F.when(F.col("traced").isNull(), F.format_string(_NO_TRACE, "member", "next")).otherwise(
        F.format_string("Node %d may yet follow from %s to %s.", "member", "name", "next")
    )
    return doubtful.select("run", *reason(text)).distinct()


_NO_TRACE = "Node %d of configuration %s left no trace."


def _left_no_trace(silver: Silver, companies: DataFrame) -> DataFrame:
    text = F.format_string(_NO_TRACE, "member", "name")
    missing = absent(silver, companies.select("run", "name", "members").distinct())
    return missing.select("run", *reason(text)).distinct()
