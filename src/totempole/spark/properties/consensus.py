"""Agreement on the membership: Totem §3.3 and theorem 4.2. The oracle is `checkers.consensus`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import Check, evidence, failing, finding, reason
from totempole.spark.properties.membership import listing
from totempole.spark.silver import Silver, moved, ring_id
from totempole.trace.layers.srp import FORMING


def membership_agreement(silver: Silver) -> Iterable[DataFrame]:
    """Every member of an installed configuration went from Commit to Recover for it, with these members."""
    agreed = silver.committed.select(
        *("run", F.col("ring").alias("name"), F.col("node").alias("member")),
        F.struct("node", "step", F.lit("").alias("message"), "at_us", "members").alias("word"),
    )
    members = (
        _first_installations(silver)
        .withColumn("member", F.explode("members"))
        .join(agreed, ["run", "name", "member"], "left")
        .join(_traces(silver), ["run", "member"], "left")
        .join(silver.terms, "run")
    )
    yield failing(members, _untraced("configuration"), _never_agreed(), _other_members(), _too_early())
    yield from _without_consensus(silver)


def _first_installations(silver: Silver) -> DataFrame:
    """run, name, members, change: of each regular configuration but those that a life begins with, alone."""
    mine = Window.partitionBy("run", "name", "node").orderBy("change.step")
    order = Window.partitionBy("run", "name").orderBy("change.at_us", "node")
    firsts = silver.stays.where("regular").withColumn("again", F.row_number().over(mine)).where("again = 1")
    first = firsts.withColumn("turn", F.row_number().over(order)).where("turn = 1")
    alone = (F.col("stay") == 1) & (F.col("members") == F.array("node"))
    return first.where(~alone).select("run", "name", "members", "change")


def _traces(silver: Silver) -> DataFrame:
    """run, member, known, last_at, killed: the trace of some life may end too early."""
    killed = F.bool_or(F.col("ended") & F.col("end").isNull())
    lives = silver.lives.groupBy("run", "node").agg(killed.alias("killed"))
    nodes = silver.nodes.join(lives, ["run", "node"], "left")
    return nodes.select("run", F.col("node").alias("member"), F.lit(True).alias("known"), "last_at", "killed")


def _told(at_us: str) -> Column:
    reached = F.coalesce(F.col("last_at") >= F.col(at_us), F.lit(False))
    whole = F.col("complete") | (F.col("same_clock") & reached)
    return ~_was_killed() & whole


def _was_killed() -> Column:
    return F.coalesce(F.col("killed"), F.lit(False))


def _untraced(what: str) -> Check:
    text = F.format_string(f"Node %s of {what} %s left no trace.", "member", "name")
    return F.col("known").isNull(), reason(text)


def _never_agreed() -> Check:
    text = F.format_string(
        "Node %s installed %s, to which its member %s never agreed.", "change.node", "name", "member"
    )
    nodes = F.array("change.node", "member")
    never = F.col("known") & F.col("word").isNull()
    return never, finding(_told("change.at_us"), text, evidence("change"), nodes)


def _other_members() -> Check:
    text = F.format_string(
        "Node %s installed %s with members %s, and its member %s had agreed to %s.",
        *(F.col("change.node"), F.col("name"), listing("members"), F.col("member")),
        listing("word.members"),
    )
    return F.col("word.members") != F.col("members"), finding(True, text, evidence("word", "change"))


def _too_early() -> Check:
    text = F.format_string(
        "Node %s installed %s before its member %s agreed to it.", "change.node", "name", "member"
    )
    early = F.col("same_clock") & (F.col("word.at_us") > F.col("change.at_us"))
    return early, finding(True, text, evidence("word", "change"))


def _without_consensus(silver: Silver) -> Iterable[DataFrame]:
    """The representative makes a Commit token when all members propose what it does (figure 4.7)."""
    forming = silver.states.where(moved(FORMING)).withColumns(
        {
            "row": F.struct("node", "step", "message"),
            "both": F.array_sort(F.array_intersect("members", "srp_failed")),
            "wanted": F.array_sort(F.array_distinct(F.concat("members", "srp_failed"))),
            "name": F.col("ring"),
        }
    )
    text = F.format_string(
        "Node %s agreed to %s with %s, which it regards as failed.",
        *(F.col("node"), F.col("ring"), listing("both")),
    )
    yield failing(forming, (F.size("both") > 0, finding(True, text, evidence("row"))))
    joins = silver.skeleton.where("kind = 'join'")
    first = F.min_by(F.struct("node", "step", "message", "at_us"), "step").alias("join")
    proposals = joins.groupBy(
        "run", F.col("node").alias("member"), F.col("members").alias("wanted"), "srp_failed"
    ).agg(first)
    asked = (
        forming.join(joins.select("run").distinct(), "run", "left_semi")
        .where(ring_id("ring")["representative"] == F.col("node"))
        .withColumn("member", F.explode("members"))
        .where("member != node")
        .join(proposals, ["run", "member", "wanted", "srp_failed"], "left")
        .join(silver.terms, "run")
        .where("join is null or (same_clock and join.at_us > at_us)")
        .join(_traces(silver), ["run", "member"], "left")
    )
    yield failing(asked, _untraced("ring"), _not_proposed())


def _not_proposed() -> Check:
    without = F.when(F.size("srp_failed") > 0, listing("srp_failed")).otherwise(F.lit("exception"))
    text = F.format_string(
        "Node %s formed %s before its member %s had proposed %s without %s.",
        *(F.col("node"), F.col("ring"), F.col("member"), listing("wanted"), without),
    )
    # A later Join shows nothing where a life was killed.
    due = (F.col("join").isNotNull() & ~_was_killed()) | _told("at_us")
    rows = F.concat(
        evidence("row"), F.when(F.col("join").isNotNull(), evidence("join")).otherwise(evidence())
    )
    return F.col("known"), finding(due, text, rows, F.array("node", "member"))
