"""Which runs may break which property of messages: a cheap test that clears almost all of them.

The statements in `properties` name nodes and messages, and look at every row several times. Here a run is
judged by its `Sums`. A pair of run and property that is not suspected provably holds; one that is suspected
is judged in full. So this may suspect too much, but never too little, and tests hold it against the checkers
on runs of every mutant.

Why the sums are enough: if along every node the places grow, if every message has one place and every place
one message, and if in each configuration a node's deliveries are as many as the ring has messages up to its
last, then they are the same messages, in the same order, without a gap.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.spark.sums import Sums, has, nodes_of

PROPERTIES = (
    "unique-messages",
    "single-delivery",
    "no-spurious-delivery",
    "self-delivery",
    "all-messages-absent-change",
    "delivery-in-origin-configuration",
    "same-messages-in-consecutive-configurations",
    "transitional-delivery",
    "causal-order",
    "agreed-order",
    "safe-delivery",
    "service-kept",
    "global-order",
    "timestamps",
    "liveness",
)
"""What is tested here. All others look at few rows anyway, and are judged in full."""

Charge = tuple[str, Column | str]
"""A property, and when a row makes its run a suspect."""


def suspects(sums: Sums) -> DataFrame:
    """run, property: what is to be judged in full."""
    found = (
        _accused(_messages(sums), *_message_charges()),
        _accused(_visits(sums), *_visit_charges()),
        _absent(sums).select("run", _everything()),
        _strange_receipts(sums).select("run", _everything()),
        _unsettled(sums).union(_never_came(sums)).select("run", F.lit("liveness").alias("property")),
    )
    return reduce(DataFrame.union, found).distinct()


def _accused(rows: DataFrame, *charges: Charge) -> DataFrame:
    """The charge "*" is of every property: such a run's sums do not mean what they should."""
    conditions = [F.expr(when) if isinstance(when, str) else when for _, when in charges]
    every = F.array(*map(F.lit, PROPERTIES))
    named = [every if name == "*" else F.array(F.lit(name)) for name, _ in charges]
    found = F.array(*(F.when(when, names) for when, names in zip(conditions, named, strict=True)))
    some = rows.where(reduce(or_, conditions))
    return some.select("run", F.explode(F.flatten(F.array_compact(found))).alias("property")).distinct()


def _everything() -> Column:
    return F.explode(F.array(*map(F.lit, PROPERTIES))).alias("property")


# Message by message


def _messages(sums: Sums) -> DataFrame:
    return sums.slots.join(sums.companies, ["run", "ring"], "left").join(
        F.broadcast(sums.silver.terms), "run"
    )


def _message_charges() -> tuple[Charge, ...]:
    return (
        ("*", "broken or taken or (early and same_clock)"),
        ("self-delivery", ~has("told_nodes", F.col("node")) & ~has("gone", F.col("node"))),
        ("service-kept", "changed"),
        ("timestamps", "untimely or mistimed"),
        ("safe-delivery", _unsafe()),
        ("transitional-delivery", _skipped()),
    )


def _skipped() -> Column:
    """Some of a transitional configuration had the message, and some who moved on did not deliver it."""
    none = F.lit(0).cast("bigint")
    held, told, gone = (F.coalesce(name, none) for name in ("held_nodes", "told_nodes", "gone"))

    def skipped(part: Column) -> Column:
        members = part["value"]
        owing = members.bitwiseAND(F.bitwise_not(told)).bitwiseAND(F.bitwise_not(gone))
        return (part["key"] != F.col("ring")) & (members.bitwiseAND(held) != 0) & (owing != 0)

    return F.coalesce(F.exists(F.map_entries("parts"), skipped), F.lit(False))


def _unsafe() -> Column:
    """A member had not received or never delivered a safe message, and its life did not end on that ring."""
    members = F.try_element_at("parts", F.col("told_in"))
    had = (members.bitwiseAND(F.col("held_nodes")) == members) & F.col("held")
    missing = members.bitwiseAND(F.bitwise_not("told_nodes"))
    alive = missing.bitwiseAND(F.bitwise_not(F.coalesce("failed_nodes", F.lit(0).cast("bigint")))) != 0
    unheard = F.col("same_clock") & ~F.coalesce(had, F.lit(False))
    return F.col("safe") & (members.isNull() | unheard | alive)


def _never_came(sums: Sums) -> DataFrame:
    """Runs in which something was submitted to a life that goes on, and it did not deliver it."""
    lost = F.col("asked_nodes").bitwiseAND(F.bitwise_not(F.coalesce("told_nodes", F.lit(0).cast("bigint"))))
    each = sums.slots.withColumn("lost", lost).where("lost != 0")
    each = each.select(
        "run",
        F.explode(nodes_of("lost")).alias("node"),
        F.split("message", r"\.")[1].cast("bigint").alias("incarnation"),
    )
    alive = sums.silver.lives.where("current").select("run", "node", "incarnation")
    return each.join(alive, ["run", "node", "incarnation"], "left_semi").select("run")


# Visit by visit


def _visits(sums: Sums) -> DataFrame:
    leap = "not regular and deliveries > 0 and (rank is null or rank != deliveries + start)"
    return sums.visits.join(F.broadcast(sums.silver.terms), "run").withColumns(
        {
            "unfinished": F.expr("open and regular and deliveries != coalesce(slots, 0)"),
            "lost": _lost_in_transition(),
            # Regular stays that do not have all of their ring up to the last that they have.
            "gap": F.expr("regular and deliveries > 0 and (rank is null or rank != deliveries)"),
            # Transitional stays that do not: legal for what only those left behind had (Totem §4.3).
            "leap": F.expr(leap),
            "strangers": F.size(F.array_except(F.map_keys("came"), "members")) > 0,
            "strayed": F.expr("unlike or (open and deserted and not complete)"),
        }
    )


def _lost_in_transition() -> Column:
    """Less came in a regular configuration and the transitional one after than their members made."""

    def less(member: Column) -> Column:
        made, here, before = (
            F.coalesce(F.try_element_at(name, member), F.lit(0)) for name in ("made", "came", "start_came")
        )
        return here + before != made

    went_on = ~(F.col("ended") & F.col("after").isNull())
    return ~F.col("regular") & went_on & F.exists("members", less)


_MISPLACED = """
    life is null or step_min is null or step_min != change.step or step_max >= after.step or unordered > 0
    or (made_ring_min is not null
        and not (regular and made_ring_min = number and made_ring_max = number
                 and array_contains(members, node)))
    or (deliveries > 0 and not coalesce(ring_min = ring and ring_max = ring, false))
"""
"""Rows that do not lie between a change and the next, or are not of the ring that they should be of."""

_DISORDER = "gap or uneven or lost or (leap and ended and after is null)"
"""What the members of a transitional configuration made has come by its end, or it is `lost`: then a gap
in it is of others, unless the life ended before."""

_ACAUSAL = "unsorted > 0 or strayed or (leap and (strangers or installers < size(members)))"
"""Behind a legal gap, what a member delivered before it made a message was delivered by all who moved on with
it. That says nothing of a member that never came so far, nor of messages of others."""


def _visit_charges() -> tuple[Charge, ...]:
    return (
        ("*", f"repeated or {_MISPLACED}"),
        ("all-messages-absent-change", "unfinished"),
        ("liveness", "unfinished"),
        ("transitional-delivery", "lost"),
        ("same-messages-in-consecutive-configurations", "strayed"),
        ("agreed-order", _DISORDER),
        ("causal-order", f"{_DISORDER} or {_ACAUSAL}"),
        ("timestamps", "late > 0"),
    )


# Run by run


def _absent(sums: Sums) -> DataFrame:
    """Runs in which a member of a configuration left no trace."""
    members = sums.silver.stays.select("run", F.explode("members").alias("node")).distinct()
    return members.join(sums.silver.nodes, ["run", "node"], "left_anti").select("run").distinct()


def _strange_receipts(sums: Sums) -> DataFrame:
    """Runs in which a life that was not on a ring received a message of it: it counts for nobody."""
    rows = (
        sums.silver.bronze.where("kind = 'receive'").select("run", "node", "incarnation", "ring").distinct()
    )
    lives = sums.silver.lives.select("run", "node", "life", "incarnation")
    there = sums.silver.on_rings.join(lives, ["run", "node", "life"])
    return rows.join(there, ["run", "node", "incarnation", "ring"], "left_anti").select("run").distinct()


def _unsettled(sums: Sums) -> DataFrame:
    """Runs in which some who can hear each other did not end together, or it is not known who could."""
    terms = sums.silver.terms
    unknown = terms.where("not complete or expectation is null").select("run")
    groups = terms.where("complete").select(
        "run",
        F.col("expectation.at_us").alias("from_us"),
        F.col("expectation.bound_us").alias("bound_us"),
        F.posexplode("expectation.groups").alias("number", "group"),
    )
    each = groups.select("*", F.explode("group").alias("node"))
    alive = sums.silver.lives.where("current").select("run", "node", "life")
    last = sums.silver.stays.where("open").select(
        "run", "node", "life", "name", "regular", "members", F.col("change.at_us").alias("at_us")
    )
    final = each.join(alive, ["run", "node"]).join(last, ["run", "node", "life"], "left")
    together = final.groupBy("run", "number").agg(
        F.array_sort(F.collect_set("node")).alias("alive"),
        F.min("members").alias("least"),
        F.max("members").alias("most"),
        F.count_distinct("name").alias("names"),
        F.bool_and(F.coalesce("regular", F.lit(False))).alias("regular"),
        F.max(F.col("at_us") - F.col("from_us") - F.col("bound_us")).alias("late"),
    )
    ended_well = "regular and names = 1 and least = alive and most = alive and late <= 0"
    return unknown.union(together.where(f"not coalesce({ended_well}, false)").select("run"))
