"""Reliable delivery: Totem §3.5, theorems 4.5 to 4.7. The oracle is `checkers.reliable`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import Check, evidence, failing, finding, reason
from totempole.spark.properties.sources import first_deliveries, row, sources
from totempole.spark.silver import Silver


def unique_messages(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.5. One place, one message; one message, one place; originated once."""
    kinds = F.array(F.lit("originate"), F.lit("receive"), F.lit("deliver"))
    seen = silver.events.select("run", "message", "ring", "seq", row().alias("row"))
    seen = seen.withColumn("turn", F.array_position(kinds, F.col("row.kind")))
    order = ("turn", "row.node", "row.step")
    in_place = Window.partitionBy("run", "ring", "seq").orderBy(*order)
    of_message = Window.partitionBy("run", "message").orderBy(*order)
    named = seen.where("turn > 0 and message != ''")
    yield _two_in_one_place(named.withColumn("there", F.first("row").over(in_place)))
    yield _in_two_places(named.withColumn("here", F.first("row").over(of_message)))
    originated = seen.where("turn = 1").withColumn("earlier", F.first("row").over(of_message))
    text = F.format_string("Message %s was originated twice.", "message")
    again = F.struct("earlier.node", "earlier.step") != F.struct("row.node", "row.step")
    yield failing(originated, (again, finding(True, text, evidence("earlier", "row"))))


def _two_in_one_place(seen: DataFrame) -> DataFrame:
    text = F.format_string(
        "Place %s of ring %s holds two messages: node %s saw %s there and node %s saw %s.",
        *("seq", "ring", "there.node", "there.message", "row.node", "message"),
    )
    other = F.col("there.message") != F.col("message")
    return failing(seen, (other, finding(True, text, evidence("there", "row"))))


def _in_two_places(seen: DataFrame) -> DataFrame:
    text = F.format_string(
        "Message %s has two places: node %s saw it at %s of %s and node %s at %s of %s.",
        *("message", "here.node", "here.seq", "here.ring", "row.node", "seq", "ring"),
    )
    elsewhere = (F.col("here.seq") != F.col("seq")) | (F.col("here.ring") != F.col("ring"))
    return failing(seen, (elsewhere, finding(True, text, evidence("here", "row"))))


def single_delivery(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.6, over all of a node's lives."""
    again = silver.deliveries.where("not first").select("run", "message", "node", row().alias("again"))
    twice = again.join(first_deliveries(silver), ["run", "message", "node"])
    text = F.format_string("Node %s delivered message %s twice.", "node", "message")
    yield twice.select("run", *finding(True, text, evidence("row", "again")))


def no_spurious_delivery(silver: Silver) -> Iterable[DataFrame]:
    """What is delivered was originated, by whom it says, on a ring that it was a member of, and before.

    What is wrong with a message as a whole is said at its first deliverer.
    """
    nodes = silver.nodes.select("run", F.col("node").alias("origin"), "last_at", F.lit(True).alias("known"))
    rings = silver.configurations.select("run", F.col("name").alias("ring"), "members")
    of_message = Window.partitionBy("run", "message")
    everyone = F.sort_array(F.collect_list(F.struct("node", "row.step", "message")).over(of_message))
    delivered = (
        first_deliveries(silver)
        .withColumn("everyone", everyone)
        .withColumn("foremost", F.col("everyone")[0]["node"] == F.col("node"))
        .join(sources(silver), ["run", "message"], "left")
        .withColumns({"origin": F.col("row.origin"), "ring": F.col("source.ring"), **_maker()})
        .join(nodes, ["run", "origin"], "left")
        .join(rings, ["run", "ring"], "left")
        .join(_makers(silver), ["run", "maker", "maker_incarnation"], "left")
        .join(silver.terms, "run")
    )
    yield failing(
        delivered,
        _source_without_trace(),
        _never_originated(),
        _ring_of_others(),
        _as_from_another(),
        _early(),
    )


def _maker() -> dict[str, Column]:
    """Who gave the message its identity, origin.incarnation.number."""
    parts = F.split("message", r"\.")
    return {
        "maker": F.try_element_at(parts, F.lit(1)).try_cast("bigint"),
        "maker_incarnation": F.try_element_at(parts, F.lit(2)).try_cast("bigint"),
    }


def _makers(silver: Silver) -> DataFrame:
    """run, maker, maker_incarnation, cut_short, cut_at: lives; cut_short: killed, rows are missing."""
    life = F.struct(F.expr("ended and end is null").alias("cut_short"), F.col("last_at").alias("cut_at"))
    first = silver.lives.groupBy("run", "node", "incarnation").agg(F.min_by(life, "life").alias("first"))
    return first.select(
        "run", F.col("node").alias("maker"), F.col("incarnation").alias("maker_incarnation"), "first.*"
    )


def _source_without_trace() -> Check:
    text = F.format_string("Node %s, the originator of %s, left no trace.", "origin", "message")
    unknown = F.col("source").isNull() & F.col("known").isNull()
    return F.col("foremost") & unknown, reason(text)


def _never_originated() -> Check:
    """A violation if the originator's trace goes on beyond the delivery, and yet has no origination."""
    text = F.format_string(
        "Node %s delivered %s, which node %s never originated.", "node", "message", "origin"
    )
    passed = F.coalesce(F.col("last_at") >= F.col("row.at_us"), F.lit(False))
    cut_passed = F.coalesce(F.col("cut_at") >= F.col("row.at_us"), F.lit(False))
    told = F.when(F.col("cut_short"), F.col("same_clock") & cut_passed).otherwise(
        F.col("complete") | (F.col("same_clock") & passed)
    )
    never = F.col("source").isNull() & F.col("known")
    return F.col("foremost") & never, finding(told, text, evidence("row"))


def _ring_of_others() -> Check:
    text = F.format_string(
        "Node %s originated %s on ring %s, of which it is no member.", "source.node", "message", "ring"
    )
    outside = ~F.array_contains("members", F.col("source.node"))
    return F.col("foremost") & outside, finding(True, text, F.concat(evidence("source"), "everyone"))


def _as_from_another() -> Check:
    text = F.format_string(
        "Node %s delivered %s as from node %s, but node %s originated it.",
        *("node", "message", "origin", "source.node"),
    )
    return F.col("origin") != F.col("source.node"), finding(True, text, evidence("source", "row"))


def _early() -> Check:
    text = F.format_string(
        "Node %s delivered %s before node %s originated it.", "node", "message", "source.node"
    )
    sooner = F.col("same_clock") & (F.col("row.at_us") < F.col("source.at_us"))
    own = F.col("node") == F.col("source.node")
    early = F.when(own, F.col("row.step") < F.col("source.step")).otherwise(sooner)
    return early, finding(True, text, evidence("source", "row"))


def self_delivery(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.7. Due at the latest when the originator installs its next regular configuration."""
    originated = silver.originations.where("stay > 0").select(
        "run", "node", "life", "stay", "message", "ring", row().alias("row")
    )
    stays = silver.stays.select("run", "node", "life", "stay", "ended", "later")
    missing = (
        originated.join(first_deliveries(silver), ["run", "message", "node"], "left_anti")
        .join(stays, ["run", "node", "life", "stay"])
        .join(silver.terms, "run")
        .withColumn("change", F.struct("node", "later.step", F.lit("").alias("message")))
    )
    moved_on = F.format_string(
        "Node %s installed %s without having delivered its own message %s of %s.",
        *("node", "later.name", "message", "ring"),
    )
    never = F.format_string("Node %s never delivered its own message %s.", "node", "message")
    left = F.col("later").isNotNull()
    yield failing(
        missing,
        (left, finding(True, moved_on, evidence("row", "change"))),
        (~left & ~F.col("ended"), finding(F.col("complete"), never, evidence("row"))),
    )
