"""Virtual synchrony of process groups, for Spark (Totem CACM "Virtual Synchrony…")."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, finding, reason
from totempole.spark.group_places import shown
from totempole.spark.group_silver import COMPANIES, GroupSilver
from totempole.spark.properties.group_traces import without_trace

SHOWN_MAX = 10
_RING = "struct<seq:bigint,representative:bigint>"
_PLACE = f"struct<ring:{_RING},seq:bigint,conf:{_RING},index:bigint>"
_TOLD = f"array<struct<node:bigint,step:bigint,at:int,message:string,place:{_PLACE}>>"


def virtual_synchrony(groups: GroupSilver) -> Iterable[DataFrame]:
    """Who goes together from one view to the next has delivered the same in it, in the same order."""
    of_move = Window.partitionBy("run", "id", "together").orderBy("birth", "row")
    view = F.struct("birth", "row", "before")
    along = F.col("before").isNotNull() & F.array_contains("together", F.col("process"))
    moves = groups.views.where(along).withColumns({"first": F.first(view).over(of_move), "this": view})
    later = moves.where(F.col("first.row") != F.col("row")).withColumn("who", _who())
    same = F.col("first.before.id") == F.col("before.id")
    apart = F.format_string(
        "%s, but came from different views, at %s and %s.",
        *("who", shown("first.before.place"), shown("before.place")),
    )
    yield later.where(~same).select("run", *finding(True, apart, evidence("first.before.row", "before.row")))
    yield compared(groups, later.where(same).select("run", "group", "who", _old("first"), _old("this")))
    first = moves.where(F.col("first.row") == F.col("row"))
    names = first.select("run", F.explode("together").alias("name"))
    yield without_trace(groups, names, "Node %s, whose processes came along to views, left no trace.")
    yield _may_follow(groups, first)
    yield _leavers(groups)


def _who() -> Column:
    return F.format_string(
        "Processes %s and %s went together to the view of %s at %s",
        *("first.row.process", "process", "group", shown("place")),
    )


def _old(view: str) -> Column:
    return F.struct(f"{view}.birth", f"{view}.before.row", f"{view}.before.place").alias(view)


def _leavers(groups: GroupSilver) -> DataFrame:
    """Who leaves a group is in it until the order says so. It is told of no view after that, and is compared
    with one that was, if their processors went on together."""
    gone = F.array_except("before.members", "members")
    leaves = groups.views.where("changed = 'leave'").withColumn("gone", gone).where(F.size("gone") == 1)
    view = F.struct("birth", "row", "place", "before")
    leaves = leaves.groupBy("run", "id", "group", F.col("gone")[0].alias("leaver")).agg(
        F.min(view).alias("end")
    )
    alive = groups.processes.where("latest and current and not disconnected")
    alive = alive.select("run", F.col("process").alias("leaver"), "birth")
    ended = groups.memberships.where(F.col("left").isNotNull() & F.col("last_view").isNotNull())
    ended = ended.select("run", "birth", "group", "last_view")
    runs = F.broadcast(groups.silver.terms.where("complete").select("run"))
    pairs = leaves.join(runs, "run", "left_semi").join(alive, ["run", "leaver"])
    pairs = pairs.join(ended, ["run", "birth", "group"])
    pairs = pairs.where(F.col("last_view.id") == F.col("end.before.id"))
    pairs = _going_on(groups, pairs)
    who = F.format_string(
        "Processes %s and %s were in %s until %s left at %s",
        *("end.row.process", "leaver", "group", "leaver", shown("end.place")),
    )
    first = F.struct("end.birth", "end.before.row", "end.before.place").alias("first")
    this = F.struct("birth", "last_view.row", "last_view.place").alias("this")
    pairs = pairs.select("run", "group", who.alias("who"), first, this, F.col("end.place").alias("until"))
    return compared(groups, pairs)


def _going_on(groups: GroupSilver, pairs: DataFrame) -> DataFrame:
    """Those whose leaver's processor (birth) came along at the next change of configuration (after end)."""
    lives = groups.processes.select("run", F.col("birth").alias("from"), "node", "life")
    known = pairs.withColumn("from", F.col("end.birth")).join(lives, ["run", "from"])
    known = known.join(groups.companies, ["run", "node"], "left")
    later = F.filter(
        "companies",
        lambda one: (one["step"] > F.col("end.row.step")) & (one["life"] == F.col("life")),
    )
    following = F.get(F.coalesce(later, F.array().cast(COMPANIES)), F.lit(0))
    return known.where(following.isNull() | F.array_contains(following["members"], F.col("birth.node")))


def compared(groups: GroupSilver, pairs: DataFrame) -> DataFrame:
    """Whether two processes have delivered the same in the same view.

    A pair is run, group, who: how the finding begins; first and this: the views (struct: birth, row, place);
    until, if there is such a column: what the second delivered from that place on is left out.
    """
    both = pairs
    for name in ("first", "this"):
        until = F.col("until") if name == "this" and "until" in pairs.columns else None
        told = _told(groups).select("run", "birth", "group", "row", F.col("told").alias(f"{name}_told"))
        keys = {"birth": F.col(f"{name}.birth"), "row": F.col(f"{name}.row")}
        both = both.withColumns(keys).join(told, ["run", "birth", "group", "row"], "left")
        told_so_far = F.coalesce(f"{name}_told", F.array().cast(_TOLD))
        both = both.withColumn(f"{name}_told", _shown(told_so_far, until))
    ours, theirs = (_messages(f"{name}_told") for name in ("first", "this"))
    odd = F.array_union(F.array_except(ours, theirs), F.array_except(theirs, ours))
    differing = both.withColumn("odd", odd).where(ours != theirs)
    is_odd = F.size("odd") > 0
    rows = F.when(is_odd, _odd_rows()).otherwise(_first_swapped())
    by_first = F.exists("first_told", lambda delivery: F.array_contains("odd", delivery["message"]))
    deliverer = F.when(by_first, F.col("first.row.process")).otherwise(F.col("this.row.process"))
    lost = F.format_string("only %s delivered %s", deliverer, F.get(_odd_rows(), F.lit(0))["message"])
    what = F.when(is_odd, lost).otherwise(F.lit("delivered in different orders"))
    text = F.format_string("%s, but %s in the one at %s.", "who", what, shown("first.place"))
    nodes = F.array("first.row.node", "this.row.node")
    return differing.select("run", *finding(True, text, rows, nodes))


def _told(groups: GroupSilver) -> DataFrame:
    """run, birth, group, row of a view, told: what was delivered in it, in order."""
    each = groups.receptions.where(F.col("seen").isNotNull())
    order = F.struct("row.node", "row.step", "at", "row.message", "place")
    told = F.array_sort(F.collect_list(order)).cast(_TOLD)
    return each.groupBy("run", "birth", "group", F.col("seen.row").alias("row")).agg(told.alias("told"))


def _shown(told: Column, until: Column | None) -> Column:
    """As evidence."""
    kept = told if until is None else F.filter(told, lambda delivery: delivery["place"] < until)
    return F.transform(kept, lambda d: F.struct(d["node"], d["step"], d["message"]))


def _messages(told: str) -> Column:
    return F.transform(told, lambda delivery: delivery["message"])


def _odd_rows() -> Column:
    both = F.concat("first_told", "this_told")
    return F.slice(F.filter(both, lambda d: F.array_contains("odd", d["message"])), 1, SHOWN_MAX)


def _first_swapped() -> Column:
    """The first two that stand at the same place and differ; or else, one has some message more often."""
    pairs = F.arrays_zip("first_told", "this_told")
    differ = F.filter(pairs, lambda d: d["first_told"]["message"] != d["this_told"]["message"])
    pair = F.get(differ, F.lit(0))
    return F.when(pair.isNull(), evidence("first.row", "this.row")).otherwise(
        F.array(pair["first_told"], pair["this_told"])
    )


def _may_follow(groups: GroupSilver, moves: DataFrame) -> DataFrame:
    """In a prefix of a run, someone named as company may be in the old view still."""
    prefixes = F.broadcast(groups.silver.terms.where("not complete").select("run"))
    alive = groups.processes.where("latest and not ended").select("run", "birth")
    there = groups.views.groupBy("run", "birth", "process", "group").agg(F.max_by("id", "row").alias("last"))
    there = there.join(alive, ["run", "birth"], "left_semi").withColumnRenamed("process", "name")
    text = F.format_string("may yet follow to the view of %s at %s.", "group", shown("place"))
    named = moves.join(prefixes, "run", "left_semi").withColumns({"text": text, "last": F.col("before.id")})
    awaited = named.select("run", "group", "text", "last", F.explode("together").alias("name"))
    awaited = awaited.join(there, ["run", "group", "name", "last"], "left_semi")
    return awaited.select("run", *reason(F.format_string("Process %s %s", "name", "text")))
