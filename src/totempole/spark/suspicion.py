"""Which runs may break which property of messages: a cheap test that clears almost all of them.

The statements in `properties` name nodes and messages, and look at every row several times. Here every row is
looked at twice, in one sum for each message and one for each node and configuration; numbers only, no sorting
but by the node's own order. What follows is small. A pair of run and property that is not suspected provably
holds; one that is suspected is judged in full. So this may suspect too much, but never too little, and tests
hold it against the checkers on runs of every mutant.

Why the sums are enough: if along every node the places grow, if every message has one place and every place
one message, and if in each configuration a node's deliveries are as many as the ring has messages up to its
last, then they are the same messages, in the same order, without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.settling import settle
from totempole.spark.silver import Silver, ring_id

NODES_MAX = 62
"""Sets of nodes are bits of one number. A run with a greater node is always judged in full."""

_MESSAGE_KINDS = ("submit", "originate", "receive", "deliver")
_STAY_KINDS = ("configuration", "originate", "deliver")

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


@dataclass(frozen=True)
class Suspicion:
    """The sums, and the suspects that follow from them."""

    silver: Silver

    def settled(self) -> Suspicion:
        """With what is asked for again and again worked out."""
        settle(self.silver, ("skeleton", "lives", "stays", "nodes", "configurations"))
        settle(self, ("messages", "sums", "visits", "slots", "rings", "transitions"))
        return self

    # The two passes over all rows

    @cached_property
    def messages(self) -> DataFrame:
        """One row for each message of a run. `…_nodes` are sets of nodes, as bits."""
        rows = self.silver.bronze.where(F.col("kind").isin(*_MESSAGE_KINDS) & (F.col("message") != ""))
        kinds = {kind: F.col("kind") == kind for kind in _MESSAGE_KINDS}
        placed, made, told = ~kinds["submit"], kinds["originate"], kinds["deliver"]
        bit = _bit(F.col("node"))
        ring = _number("ring")
        service = F.xxhash64("service")
        return rows.groupBy("run", "message").agg(
            *_range("ring", placed, ring),
            *_range("seq", placed, F.col("seq")),
            F.count_if(made).alias("originations"),
            F.count_if(told).alias("deliveries"),
            F.bit_or(F.when(told, bit)).alias("told_nodes"),
            F.bit_or(F.when(made | kinds["receive"], bit)).alias("held_nodes"),
            F.bit_or(F.when(kinds["submit"], bit)).alias("asked_nodes"),
            *(
                F.max(F.when(made, F.col(name))).alias(f"made_{name}")
                for name in ("node", "step", "at_us", "bytes", "timestamp")
            ),
            F.max(F.when(made, service)).alias("made_service"),
            *_range("told_origin", told, F.col("origin")),
            *_range("told_service", told, service),
            *_range("told_bytes", told, F.col("bytes")),
            *_range("told_timestamp", told, F.col("timestamp")),
            F.min(F.when(told, F.col("at_us"))).alias("told_at_us"),
            F.min(F.when(told & (F.col("node") == F.col("origin")), F.col("step"))).alias("own_step"),
            F.max(F.when(kinds["receive"], F.col("at_us"))).alias("held_at_us"),
            *_range("told_configuration", told, _number("configuration")),
            F.max("node").alias("node_max"),
            F.bool_or(told & (F.col("service") == "safe")).alias("safe"),
        )

    @cached_property
    def sums(self) -> DataFrame:
        """One row for each node, incarnation, configuration and originator: what was delivered and made.

        `unordered` counts deliveries and changes that do not sort after the one before; `unsorted`,
        originations that do not sort after all before; `late`, those whose timestamp does not."""
        rows = self.silver.bronze.where(F.col("kind").isin(*_STAY_KINDS)).select(
            *("run", "node", "incarnation", "step", "kind", "message", "origin", "seq", "timestamp"),
            *("configuration", "configuration_kind"),
            _number("ring").alias("ring"),
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
        return rows.groupBy("run", "node", "incarnation", "configuration", "origin").agg(
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

    # What follows from them

    @cached_property
    def visits(self) -> DataFrame:
        """The stays, each with the sums of what happened in it. `number` stands for the name."""
        sums = self.sums.groupBy("run", "node", "incarnation", F.col("configuration").alias("name")).agg(
            F.sum("deliveries").alias("deliveries"),
            *(F.min(name).alias(name) for name in ("step_min", "ring_min", "made_ring_min")),
            *(F.max(name).alias(name) for name in ("step_max", "ring_max", "made_ring_max", "seq_max")),
            F.bit_xor("digest").alias("digest"),
            *(F.sum(name).alias(name) for name in ("unordered", "unsorted", "late")),
        )
        stays = self.silver.stays.withColumn("number", _number("name"))
        found = sums.join(stays, ["run", "node", "incarnation", "name"], "full")
        return found.fillna(0, ["deliveries", "digest", "unordered", "unsorted", "late"])

    @cached_property
    def slots(self) -> DataFrame:
        """run, ring, seq, node, timestamp, rank, and time_before: the timestamp of the slot before."""
        along = Window.partitionBy("run", "ring").orderBy("seq")
        places = self.messages.where("originations + deliveries > 0").select(
            *("run", F.col("ring_min").alias("ring"), F.col("seq_min").alias("seq")),
            *(F.col("made_node").alias("node"), F.col("made_timestamp").alias("timestamp")),
        )
        return places.withColumns(
            {"rank": F.row_number().over(along), "time_before": F.lag("timestamp").over(along)}
        )

    @cached_property
    def rings(self) -> DataFrame:
        """run, number, slots: how many messages each ring carried."""
        return self.slots.groupBy("run", F.col("ring").alias("number")).agg(F.count("*").alias("slots"))

    @cached_property
    def transitions(self) -> DataFrame:
        """Transitional stays, and those that begin a life wrongly: with the sums of the regular one before.

        `rank` is that of the last delivery among the messages of the ring."""
        before = self.visits.where("regular").select(
            *("run", "node", "life", (F.col("stay") + 1).alias("stay")),
            *(F.col("number").alias("ring"), F.col("deliveries").alias("start")),
        )
        found = self.visits.where("not regular").join(before, ["run", "node", "life", "stay"], "left")
        return self._ranked(found, "ring")

    def _ranked(self, visits: DataFrame, ring: str) -> DataFrame:
        ranks = self.slots.select("run", F.col("ring").alias(ring), F.col("seq").alias("seq_max"), "rank")
        return visits.join(ranks, ["run", ring, "seq_max"], "left")

    def suspects(self) -> DataFrame:
        """run, property: what is to be judged in full."""
        found = [_named(property, runs) for property, runs in self._found()]
        everything = F.explode(F.array(*map(F.lit, PROPERTIES))).alias("property")
        odd = self.odd.select("run", everything)
        return reduce(DataFrame.union, found, odd).distinct()

    def _found(self) -> list[tuple[str, DataFrame]]:
        unfinished = self._unfinished()
        return [
            ("self-delivery", self._not_delivered_at_home()),
            ("all-messages-absent-change", unfinished),
            ("transitional-delivery", self._lost_in_transition()),
            ("same-messages-in-consecutive-configurations", self._different_moves()),
            ("agreed-order", self._agreed()),
            ("causal-order", self._causal()),
            ("safe-delivery", self._unsafe()),
            ("service-kept", self.messages.where(_CHANGED).select("run")),
            ("timestamps", self._untimely()),
            ("liveness", unfinished.union(self._not_settled()).union(self._never_came())),
        ]

    # Runs of which the sums prove nothing

    @cached_property
    def odd(self) -> DataFrame:
        """Runs in which the sums do not mean what they should: everything of them is judged in full."""
        broken = self.messages.where(_BROKEN).select("run")
        known = F.broadcast(self.silver.terms.where("same_clock").select("run"))
        early = self.messages.where("told_at_us < made_at_us").select("run").join(known, "run", "left_semi")
        shared = (
            self.messages.where("ring_min is not null")
            .groupBy("run", "ring_min", "seq_min")
            .count()
            .where("count > 1")
            .select("run")
        )
        twice = self.visits.groupBy("run", "node", "incarnation", "name").count().where("count > 1")
        wrong = self.visits.where(_MISPLACED).select("run")
        found = (broken, early, shared, twice.select("run"), wrong, self._strange_rings(), self._absent())
        return reduce(DataFrame.union, found).distinct()

    def _strange_rings(self) -> DataFrame:
        """A transitional stay's deliveries are of the ring before it."""
        ring = (F.col("ring_min") == F.col("ring")) & (F.col("ring_max") == F.col("ring"))
        return self.transitions.where((F.col("deliveries") > 0) & ~F.coalesce(ring, F.lit(False))).select(
            "run"
        )

    def _absent(self) -> DataFrame:
        """A member of a configuration left no trace."""
        members = self.silver.stays.select("run", F.explode("members").alias("node")).distinct()
        return members.join(self.silver.nodes, ["run", "node"], "left_anti").select("run")

    # One by one

    def _not_delivered_at_home(self) -> DataFrame:
        """The originator did not deliver it, and its life did not end on that ring."""
        lost = self.messages.where("originations > 0").where(~_has("told_nodes", F.col("made_node")))
        homes = self.visits.where("regular").select(
            *("run", F.col("node").alias("made_node"), F.col("number").alias("ring_min"), "ended", "later")
        )
        found = lost.join(homes, ["run", "made_node", "ring_min"], "left")
        over = F.coalesce(F.col("ended") & F.col("later").isNull(), F.lit(False))
        return found.where(~over).select("run")

    def _unfinished(self) -> DataFrame:
        """Someone is still in a regular configuration and has not delivered all of its ring."""
        found = self.visits.where("open and regular").join(self.rings, ["run", "number"], "left")
        return found.where("deliveries != coalesce(slots, 0)").select("run")

    def _lost_in_transition(self) -> DataFrame:
        """Less came in a regular configuration and the transitional one after than their members made."""
        ended = F.col("ended") & F.col("after").isNull()
        rings = self.rings.withColumnRenamed("number", "ring")
        some = self.transitions.where(~ended).join(rings, ["run", "ring"])
        some = some.where("deliveries + coalesce(start, 0) < slots")
        due = some.select(
            *(
                "run",
                "node",
                "life",
                "stay",
                "ring",
                "incarnation",
                "name",
                F.col("before.name").alias("old"),
            ),
            F.explode("members").alias("origin"),
        )
        made = self.slots.groupBy("run", "ring", F.col("node").alias("origin")).agg(
            F.count("*").alias("made")
        )
        due = due.join(made, ["run", "ring", "origin"])
        came = self.sums.select("run", "node", "incarnation", "configuration", "origin", "deliveries")
        for name, column in (("name", "here"), ("old", "there")):
            here = came.withColumnsRenamed({"configuration": name, "deliveries": column})
            due = due.join(here, ["run", "node", "incarnation", name, "origin"], "left")
        return due.where("coalesce(here, 0) + coalesce(there, 0) != made").select("run")

    def _different_moves(self) -> DataFrame:
        """Who went from one configuration to the same next one delivered other messages in it."""
        moves = (
            self.visits.where("after is not null")
            .groupBy("run", "name", "after.name")
            .agg(
                *(F.min(name).alias(f"{name}_min") for name in ("deliveries", "digest")),
                *(F.max(name).alias(f"{name}_max") for name in ("deliveries", "digest")),
            )
        )
        different = moves.where("deliveries_min != deliveries_max or digest_min != digest_max").select("run")
        prefixes = F.broadcast(self.silver.terms.where("not complete").select("run"))
        left = self.visits.where("after is not null").select("run", "name").distinct()
        staying = self.visits.where("open").join(left, ["run", "name"], "left_semi")
        return different.union(staying.join(prefixes, "run", "left_semi").select("run"))

    @cached_property
    def _gaps(self) -> DataFrame:
        """Regular stays that do not have all of their ring up to the last that they have."""
        some = self._ranked(self.visits.where("regular and deliveries > 0"), "number")
        return some.where("rank is null or rank != deliveries").select("run")

    @cached_property
    def _leaps(self) -> DataFrame:
        """Transitional stays that do not: legal for what only those left behind had (000 §4.3)."""
        return self.transitions.where("deliveries > 0 and (rank is null or rank != deliveries + start)")

    @cached_property
    def _prefixes(self) -> DataFrame:
        """Who was in the same transitional configuration delivered neither the same in it nor, from the same
        start on and without a gap, more or less of the same."""
        whole = F.coalesce(F.col("rank") == F.col("deliveries") + F.col("start"), F.lit(False))
        together = (
            self.transitions.where("deliveries > 0")
            .groupBy("run", "name")
            .agg(
                F.bool_and(whole).alias("whole"),
                *(F.min(name).alias(f"{name}_min") for name in ("start", "deliveries", "digest")),
                *(F.max(name).alias(f"{name}_max") for name in ("start", "deliveries", "digest")),
            )
        )
        same = "deliveries_min = deliveries_max and digest_min = digest_max"
        return together.where(f"not (whole and start_min = start_max) and not ({same})").select("run")

    def _agreed(self) -> DataFrame:
        """What the members of a transitional configuration made has come by its end: `transitional-delivery`
        says so. Then a gap in it is of others, unless the life ended before."""
        early = self._leaps.where("ended and after is null").select("run")
        return self._gaps.union(early).union(self._prefixes).union(self._lost_in_transition())

    def _causal(self) -> DataFrame:
        """Behind a legal gap, what a member delivered before it made a message was delivered by all who moved
        on with it. That says nothing of a member that never came so far, nor of messages of others."""
        installers = self.visits.groupBy("run", "name").agg(F.count("*").alias("installers"))
        alone = self._leaps.join(installers, ["run", "name"]).where("installers < size(members)")
        came = self.sums.where("deliveries > 0").select(
            *("run", "node", "incarnation", F.col("configuration").alias("name"), "origin")
        )
        past = self._leaps.join(came, ["run", "node", "incarnation", "name"])
        strangers = past.where("not array_contains(members, origin)")
        unsorted = self.visits.where("unsorted > 0").select("run")
        doubts = unsorted.union(alone.select("run")).union(strangers.select("run"))
        return doubts.union(self._agreed()).union(self._different_moves())

    def _unsafe(self) -> DataFrame:
        """A member had not received or never delivered a safe message, and did not end on that ring."""
        bits = F.aggregate(F.transform("members", _bit), F.lit(0).cast("bigint"), lambda a, b: a.bitwiseOR(b))
        sets = self.silver.configurations.select("run", _number("name").alias("number"), bits.alias("bits"))
        where = F.col("told_configuration_min")
        number = F.when(where == F.col("told_configuration_max"), where).otherwise(F.col("ring_min"))
        safe = self.messages.where("safe").withColumn("number", number)
        safe = safe.join(sets, ["run", "number"], "left").join(F.broadcast(self.silver.terms), "run")
        held = (F.col("bits").bitwiseAND(F.col("held_nodes")) == F.col("bits")) & (
            F.coalesce("held_at_us", "made_at_us") <= F.col("told_at_us")
        )
        unknown = F.col("bits").isNull() | (F.col("same_clock") & ~F.coalesce(held, F.lit(False)))
        missing = F.col("bits").bitwiseAND(F.bitwise_not("told_nodes"))
        lost = safe.withColumn("missing", missing).where("missing != 0")
        lost = lost.select(
            "run", F.col("ring_min").alias("number"), F.explode(_nodes_of("missing")).alias("node")
        )
        ends = self.visits.where("regular and ended and later is null").select("run", "node", "number")
        alive = lost.join(ends, ["run", "node", "number"], "left_anti")
        return safe.where(unknown).select("run").union(alive.select("run"))

    def _untimely(self) -> DataFrame:
        along = self.slots.where("time_before >= timestamp").select("run")
        made = self.visits.where("late > 0").select("run")
        differing = "told_timestamp_min != made_timestamp or told_timestamp_max != made_timestamp"
        return along.union(made).union(self.messages.where(differing).select("run"))

    def _not_settled(self) -> DataFrame:
        """Some who can hear each other did not end together, or it is not known who could."""
        terms = self.silver.terms
        unknown = terms.where("not complete or expectation is null").select("run")
        groups = terms.where("complete").select(
            "run",
            F.col("expectation.at_us").alias("from_us"),
            F.col("expectation.bound_us").alias("bound_us"),
            F.posexplode("expectation.groups").alias("number", "group"),
        )
        each = groups.select("*", F.explode("group").alias("node"))
        alive = self.silver.lives.where("current").select("run", "node", "life", "stays")
        last = self.visits.select(
            *("run", "node", "life", F.col("stay").alias("stays"), "name", "regular", "members"),
            F.col("change.at_us").alias("at_us"),
        )
        final = each.join(alive, ["run", "node"]).join(last, ["run", "node", "life", "stays"], "left")
        together = final.groupBy("run", "number").agg(
            F.array_sort(F.collect_set("node")).alias("alive"),
            F.min("members").alias("least"),
            F.max("members").alias("most"),
            F.count_distinct("name").alias("names"),
            F.bool_and(F.coalesce("regular", F.lit(False))).alias("regular"),
            F.max(F.col("at_us") - F.col("from_us") - F.col("bound_us")).alias("late"),
        )
        settled = "regular and names = 1 and least = alive and most = alive and late <= 0"
        return unknown.union(together.where(f"not coalesce({settled}, false)").select("run"))

    def _never_came(self) -> DataFrame:
        """What was submitted to a life that goes on, and it did not deliver."""
        lost = self.messages.withColumn(
            "lost", F.col("asked_nodes").bitwiseAND(F.bitwise_not(F.coalesce("told_nodes", F.lit(0))))
        ).where("lost != 0")
        lost = lost.select(
            "run",
            F.explode(_nodes_of("lost")).alias("node"),
            F.split("message", r"\.")[1].cast("bigint").alias("incarnation"),
        )
        alive = self.silver.lives.where("current").select("run", "node", "incarnation")
        return lost.join(alive, ["run", "node", "incarnation"], "left_semi").select("run")


_BROKEN = f"""
    node_max > {NODES_MAX} or ring_min != ring_max or seq_min != seq_max or originations > 1
    or deliveries != bit_count(told_nodes)
    or (deliveries > 0 and (originations = 0 or told_origin_min != made_node or told_origin_max != made_node))
    or own_step < made_step
"""
"""Not one message in one place, made once, delivered once by each, and after that."""

_MISPLACED = """
    life is null or step_min is null or step_min != change.step or step_max >= after.step or unordered > 0
    or (made_ring_min is not null
        and not (regular and made_ring_min = number and made_ring_max = number
                 and array_contains(members, node)))
    or (regular and deliveries > 0 and not (ring_min = number and ring_max = number))
"""
"""Rows that do not lie between a change and the next, or are not of the ring that they should be of."""

_CHANGED = """
    deliveries > 0 and (
        told_service_min != made_service or told_service_max != made_service
        or told_bytes_min != made_bytes or told_bytes_max != made_bytes)
"""


def _named(property: str, runs: DataFrame) -> DataFrame:
    return runs.select("run", F.lit(property).alias("property"))


def _range(name: str, condition: Column, value: Column) -> tuple[Column, Column]:
    chosen = F.when(condition, value)
    return F.min(chosen).alias(f"{name}_min"), F.max(chosen).alias(f"{name}_max")


def _number(name: str) -> Column:
    """A ring or configuration as one number, which sorts as they do."""
    return _as_number(ring_id(name))


def _as_number(ring: Column) -> Column:
    return F.shiftleft(ring["seq"], 32) + ring["representative"]


def _place() -> Column:
    """Where a delivery, an origination or a change sorts (000 theorem 4.17)."""
    regular = F.col("configuration_kind") == "regular"
    ends = F.when(regular, _number("detail")).otherwise(_number("configuration"))
    return F.struct(
        _number("ring").alias("ring"),
        F.col("seq"),
        F.when(F.col("kind") == "configuration", ends).otherwise(F.lit(0)).alias("change"),
    )


def _bit(node: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("bigint"), node.cast("int"))


def _has(nodes: str, node: Column) -> Column:
    return F.coalesce(F.col(nodes), F.lit(0)).bitwiseAND(_bit(node)) != 0


def _nodes_of(nodes: str) -> Column:
    """The nodes of a set, as an array."""
    every = F.sequence(F.lit(0).cast("bigint"), F.lit(NODES_MAX).cast("bigint"))
    return F.filter(every, lambda node: _has(nodes, node))
