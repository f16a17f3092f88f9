"""The membership services: Totem §3.4, theorems 4.1, 4.3 and 4.4. The oracle is `checkers.membership`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import Check, evidence, failing, finding, reason
from totempole.spark.properties.absent import absent
from totempole.spark.silver import Silver, moved, ring_id
from totempole.trace.layers.srp import FORMING


def unique_configurations(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.1. An identifier is never used again, not even after a crash: it is kept on disk. It rests on
    ring numbers that only grow, also those of rings that are agreed to and never installed (Totem §4.2)."""
    of_name = Window.partitionBy("run", "name").orderBy("node", "told.step")
    of_node = Window.partitionBy("run", "node", "name").orderBy("told.step")
    stays = _told(silver).withColumns(
        {
            "first": F.first("told").over(of_name),
            "earlier": F.first("told").over(of_node),
            "highest": _highest_before(),
        }
    )
    yield failing(stays, _not_alone(), _two_meanings(), _not_in_it(), _reused(), _lower())
    yield _old_commit_tokens(silver)


def _highest_before() -> Column:
    """The highest ring that the node installed before, in any life: id, …, told. The first of equals."""
    along = Window.partitionBy("run", "node").orderBy("told.step")
    before = along.rowsBetween(Window.unboundedPreceding, -1)
    ranked = F.struct("id", -F.col("told.step"), "told")
    return F.max(F.when(F.col("regular"), ranked)).over(before)


def _old_commit_tokens(silver: Silver) -> DataFrame:
    """Totem §4.2: a Commit token is accepted only if its ring number is above the last one accepted."""
    accepted = silver.states.where(moved(FORMING)).select(
        *("run", "node", "life", "step"),
        ring_id("ring")["seq"].alias("number"),
        F.struct("node", "step", "message", "ring").alias("row"),
    )
    along = Window.partitionBy("run", "node", "life").orderBy("step")
    before = along.rowsBetween(Window.unboundedPreceding, -1)
    # The first of equals.
    ranked = F.struct("number", -F.col("step"), "row")
    compared = accepted.withColumn("highest", F.max(ranked).over(before))
    text = F.format_string(
        "Node %s accepted a Commit token of ring %s after one of ring %s.",
        *("node", "row.ring", "highest.row.ring"),
    )
    old = F.col("number") <= F.col("highest.number")
    return failing(compared, (old, finding(True, text, evidence("highest.row", "row"))))


def _not_alone() -> Check:
    alone = F.col("regular") & (F.col("members") == F.array("node"))
    text = F.format_string(
        "Node %s began life %s in %s and not alone.", F.col("node"), F.col("incarnation"), _named("told")
    )
    return (F.col("stay") == 1) & ~alone, finding(True, text, evidence("told"))


def _two_meanings() -> Check:
    text = F.format_string(
        "Nodes %s and %s mean different configurations by %s: %s and %s.",
        *(F.col("first.node"), F.col("node"), F.col("name"), _named("first"), _named("told")),
    )
    differ = _differ("first", "told", "kind", "members")
    return differ, finding(True, text, evidence("first", "told"))


def _not_in_it() -> Check:
    text = F.format_string("Node %s installed %s and is not in it.", F.col("node"), _named("told"))
    return ~F.array_contains("members", F.col("node")), finding(True, text, evidence("told"))


def _reused() -> Check:
    text = F.format_string("Node %s installed configuration %s twice.", F.col("node"), F.col("name"))
    again = F.col("earlier.step") != F.col("told.step")
    return again, finding(True, text, evidence("earlier", "told"))


def _lower() -> Check:
    text = F.format_string(
        "Node %s installed ring %s after the higher ring %s.", "node", "name", "highest.told.name"
    )
    lower = F.col("regular") & (F.col("id") < F.col("highest.id"))
    return lower, finding(True, text, evidence("highest.told", "told"))


def termination(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.3. Nobody stays behind in a configuration that another member has left."""
    everyone = F.collect_list(F.struct("node", "name")).over(Window.partitionBy("run"))
    nodes = silver.nodes.select("run", F.col("node").alias("member"))
    members = (
        _told(silver)
        .where("open")
        .withColumn("places", F.map_from_entries(everyone))
        .withColumn("member", F.explode_outer(F.when(F.col("regular"), F.col("members"))))
        .withColumn("place", F.try_element_at("places", F.col("member")))
        .join(nodes.withColumn("known", F.lit(True)), ["run", "member"], "left")
        .join(silver.terms, "run")
    )
    yield failing(members, _stuck(), _without_trace(), _left_behind())


def _stuck() -> Check:
    text = F.format_string("Node %s is still in the transitional configuration %s.", "node", "name")
    return ~F.col("regular"), finding(F.col("complete"), text, evidence("told"))


def _without_trace() -> Check:
    missing = F.col("member").isNotNull() & F.col("known").isNull()
    return missing, reason(_no_trace())


def _left_behind() -> Check:
    text = F.format_string(
        "Node %s is still in configuration %s, while its member %s %s.",
        *(F.col("node"), F.col("name"), F.col("member")),
        F.coalesce(F.concat(F.lit("is in "), "place"), F.lit("is down")),
    )
    elsewhere = F.col("known") & ~F.col("place").eqNullSafe(F.col("name"))
    nodes = F.array("node", "member")
    return elsewhere, finding(F.col("complete"), text, evidence("told"), nodes)


def configuration_change_consistency(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.4. Who moves from C1 to C2 is told so in the same words as all others who do."""
    of_name = Window.partitionBy("run", "name").orderBy("node", "told.step")
    of_change = Window.partitionBy("run", "left.name", "name").orderBy("node", "told.step")
    of_origin = Window.partitionBy("run", "name", "parting").orderBy("node", "told.step")
    parting = F.col("left.regular") & ~F.col("regular")
    stays = _told(silver).withColumn("parting", F.coalesce(parting, F.lit(False)))
    compared = stays.withColumns(
        {
            "first": F.first("told").over(of_name),
            "mover": F.first("told").over(of_change),
            "parted": F.first(F.struct("told", "left")).over(of_origin),
        }
    )
    yield failing(
        compared,
        (_differ("first", "told", "members"), _disagree("the members of", "first")),
        _wrong_end(),
        _wrong_ring(),
        _change_told_differently(),
        _no_transition(),
        _no_part(),
        _two_origins(),
    )
    yield absent(silver, silver.configurations).select("run", *reason(_no_trace()))


def _wrong_end() -> Check:
    was_in = F.coalesce("left.name", F.lit("0@0"))
    text = F.format_string(
        "Node %s was told that %s terminates %s, but was in %s.",
        *(F.col("node"), F.col("name"), F.col("change.previous"), was_in),
    )
    return F.col("change.previous") != was_in, finding(True, text, evidence("told"))


def _wrong_ring() -> Check:
    old_ring = F.when(F.col("regular"), F.col("name")).otherwise(F.coalesce("left.name", "name"))
    text = F.format_string(
        "Node %s was told of %s on ring %s and not on %s.",
        *(F.col("node"), F.col("name"), F.col("told.ring"), old_ring),
    )
    return F.col("told.ring") != old_ring, finding(True, text, evidence("told"))


def _change_told_differently() -> Check:
    differ = F.col("left").isNotNull() & _differ("mover", "told", "kind", "ring", "seq")
    what = F.format_string("the change from %s to", "left.name")
    return differ, _disagree(what, "mover")


def _no_transition() -> Check:
    text = F.format_string(
        "Node %s moved from %s straight to %s.", F.col("node"), _named("left"), _named("told")
    )
    return F.col("left.regular") == F.col("regular"), finding(True, text, evidence("left", "told"))


def _no_part() -> Check:
    """A transitional configuration stands between two regular ones and is a part of both (Totem §4.2)."""
    part = F.when(F.col("regular"), F.col("left")).otherwise(F.col("told"))
    whole = F.when(F.col("regular"), F.col("told")).otherwise(F.col("left"))
    text = F.format_string(
        "Node %s installed %s, which is no part of %s.", F.col("node"), _named(part), _named(whole)
    )
    outside = F.size(F.array_except(part["members"], whole["members"])) > 0
    wider = (F.col("left.regular") != F.col("regular")) & outside
    return wider, finding(True, text, evidence("left", "told"))


def _two_origins() -> Check:
    text = F.format_string(
        "Nodes %s and %s came to the transitional configuration %s from different rings, %s and %s.",
        *("parted.told.node", "node", "name", "parted.left.name", "left.name"),
    )
    differ = F.col("parting") & (F.col("parted.left.name") != F.col("left.name"))
    return differ, finding(True, text, evidence("parted.told", "told"))


def outsiders_break_no_ring(silver: Silver) -> Iterable[DataFrame]:
    """Totem §4.2: a Join from outside cannot make a processor give up on a member of its own ring."""
    rings = silver.configurations.select(
        "run", F.col("name").alias("configuration"), F.col("members").alias("ring_members")
    )
    given_up = F.array_sort(F.array_intersect("members", "ring_members"))
    suspicions = (
        silver.suspicions.join(rings, ["run", "configuration"])
        .withColumn("row", F.struct("node", "step", "message"))
        .withColumn("given_up", given_up)
    )
    text = F.format_string(
        "Node %s gave up on %s of its own configuration %s because node %s, which is not in it, said so.",
        *(F.col("node"), listing("given_up"), F.col("configuration"), F.col("origin")),
    )
    from_outside = ~F.array_contains("ring_members", F.col("origin")) & (F.size("given_up") > 0)
    yield failing(suspicions, (from_outside, finding(True, text, evidence("row"))))


def _told(silver: Silver) -> DataFrame:
    """The stays, and: told, what the node was told; left, what it was told of the one before, or null."""
    told = F.struct(
        *("change.node", "change.step", "change.message", "change.ring", "change.seq"),
        F.col("change.configuration_kind").alias("kind"),
        *("name", "regular", "members"),
    )
    life = Window.partitionBy("run", "node", "life").orderBy("stay")
    return silver.stays.withColumn("told", told).withColumn("left", F.lag("told").over(life))


def _differ(one: str, other: str, *fields: str) -> Column:
    return F.struct(*(f"{one}.{field}" for field in fields)) != F.struct(
        *(f"{other}.{field}" for field in fields)
    )


def _disagree(what: Column | str, first: str) -> tuple[Column, ...]:
    text = F.format_string(
        "Nodes %s and %s were told differently of %s %s: %s on %s at %s, %s on %s at %s.",
        *(F.col(f"{first}.node"), F.col("node"), F.lit(what), F.col("name")),
        *(_named(first), F.col(f"{first}.ring"), F.col(f"{first}.seq")),
        *(_named("told"), F.col("told.ring"), F.col("told.seq")),
    )
    return finding(True, text, evidence(first, "told"))


def _no_trace() -> Column:
    return F.format_string("Node %s of configuration %s left no trace.", "member", "name")


def _named(told: str | Column) -> Column:
    change = F.col(told) if isinstance(told, str) else told
    return F.format_string("%s %s {%s}", change["kind"], change["name"], listing(change["members"]))


def listing(values: str | Column) -> Column:
    return F.array_join((F.col(values) if isinstance(values, str) else values).cast("array<string>"), ", ")
