"""Once the faults stop, every group has one view and everything sent to it arrives; for Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.group_state import NOBODY
from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.group_places import listed, shown
from totempole.spark.group_silver import GroupSilver
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
    alive = alive.select("run", "component", "birth", "final")
    wanted = groups.memberships.where(F.col("last") & F.col("left").isNull()).join(alive, ["run", "birth"])
    yield from _final_views(groups, wanted)
    yield _state(groups, wanted)
    yield _own(groups, wanted)
    yield _arrival(groups, wanted, alive)


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
    """A joiner that wants the state is told where it comes from, and gets what was given."""
    told = groups.states.groupBy(*_MEMBERSHIP).agg(
        F.max(F.when(F.col("what") == "begins", F.struct("row", "place", "other"))).alias("begun"),
        F.bool_or(F.col("what") == "last").alias("ended"),
    )
    joiners = wanted.where(F.array_contains("flags", "wants_state") & F.col("first_view").isNotNull())
    joiners = joiners.join(told, list(_MEMBERSHIP), "left").withColumns(
        {
            "place": F.col("begun.place"),
            "donor": F.when(F.col("begun.other") != NOBODY, F.col("begun.other")),
            "joiner": F.col("begun.row.process"),
        }
    )
    given = transfers(groups, "given").select(*TRANSFER, F.col("row").alias("given"))
    untold = F.format_string("Process %s joined %s and was never told of its state.", "process", "group")
    never = F.format_string("Process %s never got the state of %s that %s gave.", "process", "group", "donor")
    lost = F.col("given").isNotNull() & ~F.col("ended")
    return failing(
        joiners.join(given, list(TRANSFER), "left"),
        (F.col("begun").isNull(), finding(True, untold, evidence("first_view.row"))),
        (lost, finding(True, never, evidence("begun.row", "given"))),
    )


def _own(groups: GroupSilver, wanted: DataFrame) -> DataFrame:
    """What a process sends to a group that it is in, it gets itself."""
    delivered = groups.deliveries.select("run", "birth", "message")
    sent = groups.messages.where(F.col("sent").isNotNull()).withColumn("birth", F.col("sent.birth"))
    lost = sent.join(delivered, ["run", "birth", "message"], "left_anti")
    each = lost.select(
        "run", "birth", "message", "sent", F.explode(F.split("sent.group", ",")).alias("group")
    )
    inside = each.join(wanted.select(*_GROUP, "birth", "first_view"), ["run", "birth", "group"])
    inside = inside.where(F.col("first_view.row.step") < F.col("sent.step"))
    text = F.format_string("Process %s never delivered its own message %s.", "sent.process", "message")
    once = inside.select("run", "component", "message", "sent").distinct()
    return once.select("run", *finding(True, text, evidence("sent")))


def _arrival(groups: GroupSilver, wanted: DataFrame, alive: DataFrame) -> DataFrame:
    """What is sent in the final configuration reaches who is in the group, be the sender in it or not."""
    joined = wanted.where(F.col("first_view").isNotNull())
    earliest = joined.groupBy(*_GROUP).agg(F.min("first_view.place").alias("earliest"))
    sent = groups.messages.where(F.col("first").isNull() & F.col("floor").isNotNull())
    sent = sent.withColumns({"birth": F.col("sent.birth"), "final": F.col("sent.configuration")})
    sent = sent.join(alive, ["run", "birth", "final"])
    to_groups = F.posexplode(F.split("sent.group", ",")).alias("at", "group")
    each = sent.select("run", "component", "message", "sent", "floor", to_groups)
    due = each.join(earliest, list(_GROUP)).where(F.col("earliest") <= F.col("floor"))
    lost = due.groupBy("run", "component", "message").agg(
        F.min(F.struct("at", "group", "sent")).alias("lost")
    )
    text = F.format_string(
        "Nobody in %s ever delivered %s, sent in %s.", "lost.group", "message", "lost.sent.configuration"
    )
    return lost.select("run", *finding(True, text, evidence("lost.sent")))
