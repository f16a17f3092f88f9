"""What the rows of a run add up to: one sum for each message, one for each stay in a configuration.

`prefilter` clears runs by these. Every row is looked at twice, numbers only, and nothing is sorted but by the
node's own order; what follows is small. Sets of nodes are bits of one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.checkpoint import checkpoint_all
from totempole.spark.silver import Silver, ring_id

NODES_MAX = 62
"""The greatest node that has a bit."""

_MESSAGE_KINDS = ("submit", "originate", "receive", "deliver")
_STAY_KINDS = ("configuration", "originate", "deliver")


@dataclass(frozen=True)
class Sums:
    silver: Silver

    def checkpointed(self) -> Sums:
        """With what is asked for again and again worked out."""
        checkpoint_all(self.silver, ("spans", "skeleton", "lives", "stays", "nodes"))
        checkpoint_all(self, ("slots", "visits"))
        return self

    @cached_property
    def messages(self) -> DataFrame:
        """One row for each message of a run, with what is wrong with it by itself.

        run, message; ring, seq: its place, or null; node, timestamp: of the origination; carried: it was
        made or delivered; safe; told_nodes, held_nodes, asked_nodes: who delivered, had and submitted it;
        told_in: the configuration in which all delivered it, or else its ring; held: none had it later than
        the first delivered it. broken: it is not one message in one place, made once, delivered once by each
        and by its maker after that; early: delivered before it was made; changed; mistimed."""
        rows = self.silver.bronze.where(F.col("kind").isin(*_MESSAGE_KINDS) & (F.col("message") != ""))
        kinds = {kind: F.col("kind") == kind for kind in _MESSAGE_KINDS}
        placed, made, told = ~kinds["submit"], kinds["originate"], kinds["deliver"]
        node_bit = bit(F.col("node"))
        service = F.xxhash64("service")
        sums = rows.groupBy("run", "message").agg(
            *_range("ring", placed, number("ring")),
            *_range("seq", placed, F.col("seq")),
            F.count_if(made).alias("originations"),
            F.count_if(told).alias("deliveries"),
            F.bit_or(F.when(told, node_bit)).alias("told_nodes"),
            F.bit_or(F.when(made | kinds["receive"], node_bit)).alias("held_nodes"),
            F.bit_or(F.when(kinds["submit"], node_bit)).alias("asked_nodes"),
            *(
                F.max(F.when(made, F.col(name))).alias(name)
                for name in ("node", "step", "at_us", "bytes", "timestamp")
            ),
            F.max(F.when(made, service)).alias("service"),
            F.max(F.when(made, F.col("digest"))).alias("digest"),
            *_range("seen_digest", ~made & (F.col("digest") != 0), F.col("digest")),
            *_range("told_origin", told, F.col("origin")),
            *_range("told_service", told, service),
            *_range("told_bytes", told, F.col("bytes")),
            *_range("told_timestamp", told, F.col("timestamp")),
            F.min(F.when(told, F.col("at_us"))).alias("told_at_us"),
            F.min(F.when(told & (F.col("node") == F.col("origin")), F.col("step"))).alias("own_step"),
            F.max(F.when(kinds["receive"], F.col("at_us"))).alias("held_at_us"),
            *_range("at", told, number("configuration")),
            F.max("node").alias("node_max"),
            F.bool_or(told & (F.col("service") == "safe")).alias("safe"),
        )
        return sums.selectExpr(
            *("run", "message", "ring_min as ring", "seq_min as seq", "node", "timestamp", "safe"),
            *("told_nodes", "held_nodes", "asked_nodes", "originations + deliveries > 0 as carried"),
            "if(at_min = at_max, at_min, ring_min) as told_in",
            "coalesce(held_at_us, at_us) <= told_at_us as held",
            "told_at_us < at_us as early",
            *(f"coalesce({wrong}, false) as {name}" for name, wrong in _WRONG.items()),
        )

    @cached_property
    def slots(self) -> DataFrame:
        """The messages along their ring. rank: how many the ring carried up to here; taken: the place is
        another's too; untimely: one before it has no smaller timestamp."""
        along = Window.partitionBy("run", "ring").orderBy("seq")
        before = along.rowsBetween(Window.unboundedPreceding, -1)
        return self.messages.withColumns(
            {
                "rank": F.count_if("carried").over(along),
                "taken": F.lag("seq").over(along) == F.col("seq"),
                "untimely": F.max("timestamp").over(before) >= F.col("timestamp"),
            }
        )

    @cached_property
    def rings(self) -> DataFrame:
        """run, ring, slots: how many messages it carried; made: of whom how many, a map."""
        each = self.slots.where("carried").groupBy("run", "ring", "node").agg(F.count("*").alias("made"))
        made = F.map_from_entries(F.collect_list(F.when(F.col("node").isNotNull(), F.struct("node", "made"))))
        return each.groupBy("run", "ring").agg(F.sum("made").alias("slots"), made.alias("made"))

    @cached_property
    def visits(self) -> DataFrame:
        """The stays with what happened in them, and beside what happened to others there.

        Beside the columns of stays: number, which stands for the name; the columns of `_doings`; ring: the
        configuration itself, or the regular one before it; start, start_came: deliveries and came of that
        one; slots, made: of the ring; rank: of the last delivery on it; repeated: the same name comes twice;
        installers: how many were in it; deserted: someone has left it; unlike: some who moved on together
        delivered different messages in it; uneven: some who delivered anything in this transitional
        configuration delivered neither the same nor, from one start and without a gap, more of the same."""
        stays = self.silver.stays.withColumn("number", number("name"))
        found = self._doings.join(stays, ["run", "node", "incarnation", "name"], "full")
        found = found.fillna(0, ["deliveries", "digest", "unordered", "unsorted", "late"])
        before = F.lag(F.struct("regular", "number", "deliveries", "came")).over(
            Window.partitionBy("run", "node", "life").orderBy("stay")
        )
        found = found.withColumn("previous", F.when(~F.col("regular"), before)).withColumn(
            "previous", F.when(F.col("previous.regular"), F.col("previous"))
        )
        found = found.withColumns(
            {
                "ring": F.when(F.col("regular"), F.col("number")).otherwise(F.col("previous.number")),
                "start": F.col("previous.deliveries"),
                "start_came": F.col("previous.came"),
            }
        ).drop("previous")
        ranks = self.slots.select("run", "ring", F.col("seq").alias("seq_max"), "rank")
        found = found.join(self.rings, ["run", "ring"], "left").join(
            ranks, ["run", "ring", "seq_max"], "left"
        )
        return found.withColumns(_beside())

    @cached_property
    def _doings(self) -> DataFrame:
        """run, node, incarnation, name: of a configuration; deliveries: how many; came: from whom how many, a
        map; step_min, step_max, ring_min, ring_max, made_ring_min, made_ring_max, seq_max; digest: of the
        messages. unordered: deliveries and changes that do not sort after the one before; unsorted:
        originations that do not sort after all before; late: those whose timestamp does not."""
        rows = self.silver.bronze.where(F.col("kind").isin(*_STAY_KINDS)).select(
            *("run", "node", "incarnation", "step", "kind", "message", "origin", "seq", "timestamp"),
            F.col("configuration").alias("name"),
            "configuration_kind",
            number("ring").alias("ring"),
            _place().alias("place"),
        )
        along = Window.partitionBy("run", "node").orderBy("step")
        before = along.rowsBetween(Window.unboundedPreceding, -1)
        told, made = F.col("kind") != "originate", F.col("kind") == "originate"
        rows = rows.withColumns(
            {
                "told_before": F.last(F.when(told, F.col("place")), ignorenulls=True).over(before),
                "made_before": F.last(F.when(made, F.col("place")), ignorenulls=True).over(before),
                "time_before": F.last(F.when(made, F.col("timestamp")), ignorenulls=True).over(before),
            }
        )
        is_delivery = F.col("kind") == "deliver"
        behind = F.col("told_before") >= F.col("place")
        key = ("run", "node", "incarnation", "name")
        by_origin = rows.groupBy(*key, "origin").agg(
            F.count_if(is_delivery).alias("deliveries"),
            F.min("step").alias("step_min"),
            F.max("step").alias("step_max"),
            *_range("ring", is_delivery, F.col("ring")),
            *_range("made_ring", made, F.col("ring")),
            F.max(F.when(is_delivery, F.col("seq"))).alias("seq_max"),
            F.bit_xor(F.when(is_delivery, F.xxhash64("message"))).alias("digest"),
            F.count_if(told & behind).alias("unordered"),
            F.count_if(made & (behind | (F.col("made_before") >= F.col("place")))).alias("unsorted"),
            F.count_if(made & (F.col("time_before") >= F.col("timestamp"))).alias("late"),
        )
        came = F.collect_list(F.when(F.col("deliveries") > 0, F.struct("origin", "deliveries")))
        return by_origin.groupBy(*key).agg(
            F.map_from_entries(came).alias("came"),
            *(F.sum(name).alias(name) for name in ("deliveries", "unordered", "unsorted", "late")),
            *(F.min(name).alias(name) for name in ("step_min", "ring_min", "made_ring_min")),
            *(F.max(name).alias(name) for name in ("step_max", "ring_max", "made_ring_max", "seq_max")),
            F.bit_xor("digest").alias("digest"),
        )

    @cached_property
    def companies(self) -> DataFrame:
        """run, ring; parts: the members of it and of its transitional configurations, a map from numbers;
        gone: whose life ended on it; failed_nodes: those of them that did not leave of their own will."""
        members = F.aggregate(
            F.transform("members", bit), F.lit(0).cast("bigint"), lambda a, b: a.bitwiseOR(b)
        )
        over = F.expr("regular and ended and later is null")
        failed = over & (F.coalesce("end", F.lit("")) != "leave")
        ends = self.silver.lives.select("run", "node", "life", "end")
        visits = self.visits.where("number is not null").join(ends, ["run", "node", "life"], "left")
        parts = visits.groupBy("run", "ring", "number").agg(
            F.bit_or(members).alias("members"),
            F.bit_or(F.when(over, bit(F.col("node")))).alias("gone"),
            F.bit_or(F.when(failed, bit(F.col("node")))).alias("failed_nodes"),
        )
        return parts.groupBy("run", "ring").agg(
            F.map_from_entries(F.collect_list(F.struct("number", "members"))).alias("parts"),
            F.bit_or("gone").alias("gone"),
            F.bit_or("failed_nodes").alias("failed_nodes"),
        )


_WRONG = {
    "broken": f"""
        node_max > {NODES_MAX} or ring_min != ring_max or seq_min != seq_max or originations > 1
        or deliveries != bit_count(told_nodes)
        or (deliveries > 0 and (originations = 0 or told_origin_min != node or told_origin_max != node))
        or own_step < step""",
    "changed": """
        deliveries > 0 and (
            told_service_min != service or told_service_max != service
            or told_bytes_min != bytes or told_bytes_max != bytes)
        or (digest != 0 and (seen_digest_min != digest or seen_digest_max != digest))""",
    "mistimed": "told_timestamp_min != timestamp or told_timestamp_max != timestamp",
}


def _beside() -> dict[str, Column]:
    there = Window.partitionBy("run", "name")
    moved = Window.partitionBy("run", "name", "after.name")
    some = ~F.col("regular") & (F.col("deliveries") > 0)
    whole = F.coalesce(F.col("rank") == F.col("deliveries") + F.col("start"), F.lit(False))
    same_start = F.bool_and(F.when(some, whole)).over(there) & _equal("start", some, there)
    same = _equal("deliveries", some, there) & _equal("digest", some, there)
    left = F.col("after").isNotNull()
    alike = _equal("deliveries", left, moved) & _equal("digest", left, moved)
    return {
        "repeated": F.count("*").over(Window.partitionBy("run", "node", "incarnation", "name")) > 1,
        "installers": F.count("*").over(there),
        "deserted": F.bool_or(left).over(there),
        "unlike": left & ~alike,
        "uneven": some & ~F.coalesce(same_start, F.lit(False)) & ~F.coalesce(same, F.lit(False)),
    }


def _equal(name: str, condition: Column, window: object) -> Column:
    """Whether all rows of the window that meet the condition have the same value."""
    chosen = F.when(condition, F.col(name))
    return F.min(chosen).over(window) == F.max(chosen).over(window)  # type: ignore[arg-type]


def _range(name: str, condition: Column, value: Column) -> tuple[Column, Column]:
    chosen = F.when(condition, value)
    return F.min(chosen).alias(f"{name}_min"), F.max(chosen).alias(f"{name}_max")


def number(name: str) -> Column:
    """A ring or configuration as one number, which sorts as they do."""
    ring = ring_id(name)
    return F.shiftleft(ring["seq"], 32) + ring["representative"]


def _place() -> Column:
    """Where a delivery, an origination or a change sorts (Totem theorem 4.17)."""
    regular = F.col("configuration_kind") == "regular"
    ends = F.when(regular, number("previous")).otherwise(number("configuration"))
    return F.struct(
        number("ring").alias("ring"),
        F.col("seq"),
        F.when(F.col("kind") == "configuration", ends).otherwise(F.lit(0)).alias("change"),
    )


def bit(node: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("bigint"), node.cast("int"))


def has(nodes: str, node: Column) -> Column:
    """Whether a set has a node; null is the empty set."""
    return F.coalesce(F.col(nodes), F.lit(0)).bitwiseAND(bit(node)) != 0


def nodes_of(nodes: str) -> Column:
    """The nodes of a set, as an array."""
    every = F.sequence(F.lit(0).cast("bigint"), F.lit(NODES_MAX).cast("bigint"))
    return F.filter(every, lambda node: has(nodes, node))
