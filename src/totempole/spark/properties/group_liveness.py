"""Once the faults stop, every group has one view and everything sent to it arrives; for Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.group_state import NOBODY
from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.group_places import listed, shown
from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group_fate import left_in_good_order, missed, with_company
from totempole.spark.properties.group_state import TRANSFER, transfers
from totempole.spark.properties.group_synchrony import compared

_GROUP = ("run", "component", "group")
_MEMBERSHIP = ("run", "birth", "group", "membership")


def group_liveness(groups: GroupSilver) -> Iterable[DataFrame]:
    runs = groups.processes.select("run").distinct()
    terms = groups.silver.terms.join(runs, "run", "left_semi")
    unknown = terms.where(~F.col("complete") | F.col("expectation").isNull())
    yield unknown.select("run", *reason(F.lit("A complete run and an expectation are needed to tell.")))
    yield from _components(groups, terms)


def _components(groups: GroupSilver, terms: DataFrame) -> Iterable[DataFrame]:
    """Those who can hear each other; judged only where all of them left a trace."""
    parts = terms.where("complete").select(
        "run", F.posexplode("expectation.groups").alias("component", "nodes")
    )
    nodes = parts.select("run", "component", F.explode("nodes").alias("node"))
    absent = nodes.join(groups.silver.nodes, ["run", "node"], "left_anti")
    yield absent.select("run", *reason(F.format_string("Node %s left no trace.", "node")))
    judged = nodes.join(absent.select("run", "component"), ["run", "component"], "left_anti")
    alive = groups.processes.where("current and not disconnected").join(judged, ["run", "node"])
    alive = alive.select("run", "component", "birth")
    wanted = groups.memberships.where(F.col("last") & F.col("left").isNull()).join(alive, ["run", "birth"])
    yield from _final_views(groups, wanted)
    yield _state(groups, wanted)
    yield _fate(groups, wanted, judged)


def _final_views(groups: GroupSilver, wanted: DataFrame) -> Iterable[DataFrame]:
    """All who are in a group end in one regular view of exactly them, and have delivered the same in it."""
    names = F.array_sort(F.collect_set("process").over(Window.partitionBy(*_GROUP)))
    hoped = F.col("last_view.regular") & (F.col("last_view.members") == F.col("names"))
    each = wanted.withColumn("names", names)
    yield failing(each, _never_joined(), _another_view(hoped))
    view = F.struct("birth", "last_view.row", "last_view.place", "last_view.id", "last_view.configuration")
    good = each.where(hoped).select(*_GROUP, "birth", view.alias("this"))
    first = F.first("this").over(Window.partitionBy(*_GROUP).orderBy("birth"))
    pairs = good.withColumn("first", first).where(F.col("first.birth") != F.col("birth"))
    same = F.col("first.id") == F.col("this.id")
    who = ("first.row.process", "this.row.process")
    text = F.format_string(
        "Processes %s and %s ended in different views of %s, at %s in %s and at %s in %s.",
        *(*who, "group", shown("first.place"), "first.configuration"),
        *(shown("this.place"), "this.configuration"),
    )
    yield pairs.where(~same).select("run", *finding(True, text, evidence("first.row", "this.row")))
    ended = F.format_string("Processes %s and %s ended in the same view of %s", *who, "group")
    yield compared(groups, pairs.where(same).withColumn("who", ended))


def _never_joined() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string("Process %s asked to join %s and never was.", "process", "group")
    rows = F.when(F.col("join").isNull(), evidence()).otherwise(evidence("join"))
    return F.col("last_view").isNull(), finding(True, text, rows, F.array("birth.node"))


def _another_view(hoped: Column) -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s ended in the %s view of %s at %s of %s, and not with exactly those who are in it, %s.",
        *("process", "last_view.configuration_kind", "group", shown("last_view.place")),
        *(listed(F.col("last_view.members")), listed(F.col("names"))),
    )
    return F.col("last_view").isNotNull() & ~hoped, finding(True, text, evidence("last_view.row"))


def _state(groups: GroupSilver, wanted: DataFrame) -> DataFrame:
    """A joiner that wants the state is told where it comes from, and gets it: if its donor fails, another
    member takes over (docs/groups.md "Joining with state")."""
    told = groups.states.groupBy(*_MEMBERSHIP).agg(
        F.max(F.when(F.col("stage") == "begins", F.struct("row", "place", "peer"))).alias("begun"),
        F.max(F.when(F.col("stage") == "last", F.col("row"))).alias("ended"),
    )
    joiners = wanted.where(F.col("wants_state") & F.col("first_view").isNotNull())
    joiners = joiners.join(told, list(_MEMBERSHIP), "left").withColumns(
        {
            "place": F.col("begun.place"),
            "donor": F.when(F.col("begun.peer") != NOBODY, F.col("begun.peer")),
            "joiner": F.col("begun.row.process"),
        }
    )
    for what in ("given", "asked"):
        rows = transfers(groups, what).select(*TRANSFER, F.col("row").alias(what))
        joiners = joiners.join(rows, list(TRANSFER), "left")
    waits = F.col("donor").isNotNull() & ~F.coalesce(F.col("ended") > F.col("begun.row"), F.lit(False))
    return failing(joiners, _untold(), _never_came(waits), _never_given(waits))


def _untold() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string("Process %s joined %s and was never told of its state.", "process", "group")
    return F.col("begun").isNull(), finding(True, text, evidence("first_view.row"))


def _never_came(waits: Column) -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string("Process %s never got the state of %s that %s gave.", "process", "group", "donor")
    return waits & F.col("given").isNotNull(), finding(True, text, evidence("begun.row", "given"))


def _never_given(waits: Column) -> tuple[Column, tuple[Column, ...]]:
    asked = F.col("asked").isNotNull()
    what = F.when(asked, F.lit("never gave")).otherwise(F.lit("was never asked for"))
    text = F.format_string(
        "Process %s waits for the state of %s, which %s %s.", "process", "group", "donor", what
    )
    rows = F.when(asked, evidence("begun.row", "asked")).otherwise(evidence("begun.row"))
    return waits & F.col("given").isNull(), finding(True, text, rows)


def _fate(groups: GroupSilver, wanted: DataFrame, judged: DataFrame) -> DataFrame:
    """What a processor has accepted reaches every member that was with it, be the sender a member or not, if
    the processor lives or has left in good order."""
    members = wanted.select(*_GROUP, "birth", "membership")
    lost = missed(groups).join(members, ["run", "group", "birth", "membership"])
    left = left_in_good_order(groups).withColumn("has_left", F.lit(True))
    senders = groups.processes.join(left, ["run", "node", "life"], "left")
    senders = senders.select("run", F.col("birth").alias("from"), "node", "current", "has_left")
    there = judged.select("run", "component", "node", F.lit(True).alias("judged"))
    each = lost.withColumn("from", F.col("sent.birth")).join(senders, ["run", "from"])
    each = each.join(there, ["run", "component", "node"], "left")
    how = F.when(F.col("has_left"), F.lit("left in good order")).when(
        F.col("current") & F.col("judged"), F.lit("lives")
    )
    owed = with_company(groups, each.withColumn("how", how).where(F.col("how").isNotNull()))
    text = F.format_string(
        "Process %s, in %s all the time, never delivered %s; node %s, which had accepted it, %s.",
        *("member", "group", "message", "sent.node", "how"),
    )
    nodes = F.array("sent.node", "birth.node")
    return owed.select("run", *finding(True, text, evidence("sent"), nodes))
