"""State for a joiner, for Spark: whole, from one donor, once, and the state as of its place in the order."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.group_history import NO_DIGEST
from totempole.checkers.group_state import NOBODY
from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.group_places import order_of, shown
from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group_traces import with_telling

TRANSFER = ("run", "group", "place", "donor", "joiner")
"""A state is as of a place, from one donor for one joiner."""
_MEMBERSHIP = ("run", "birth", "group", "membership")


def state_transfer(groups: GroupSilver) -> Iterable[DataFrame]:
    yield from _donors(groups)
    joiners = _joiners(groups)
    yield failing(joiners, _unwanted(), _from_another(), _twice())
    yield _whole(groups, joiners.where("whole"))
    yield from _prefixes(groups)
    yield _choices(groups)


def transfers(groups: GroupSilver, stage: str) -> DataFrame:
    """The first row that tells of each transfer as `stage`, asked or given: its keys, row and digest."""
    states = groups.states.where(F.col("stage") == stage)
    named = states.withColumnsRenamed({"process": "donor", "peer": "joiner"})
    first = F.min(F.struct("row", "digest")).alias("first")
    return named.groupBy(*TRANSFER).agg(first).select(*TRANSFER, "first.*")


def _donors(groups: GroupSilver) -> Iterable[DataFrame]:
    asked, given = transfers(groups, "asked"), transfers(groups, "given")
    latest = groups.processes.where("latest").select("run", "birth")
    offers = groups.memberships.where("offers_state")
    offers = offers.join(latest, ["run", "birth"], "left_semi").withColumnRenamed("process", "donor")
    unoffered = asked.join(offers, ["run", "group", "donor"], "left_anti")
    text = F.format_string("Process %s was asked for the state of %s and never offered it.", "donor", "group")
    yield unoffered.select("run", *finding(True, text, evidence("row")))
    unasked = given.join(asked, list(TRANSFER), "left_anti")
    text = F.format_string(
        "Process %s gave %s the state of %s as of %s and had not been asked for it.",
        *("donor", "joiner", "group", shown("place")),
    )
    yield unasked.select("run", *finding(True, text, evidence("row")))


def _choices(groups: GroupSilver) -> DataFrame:
    """Who joins gets the state from the first member, by number, that can give it. One that offers it and
    never wanted it itself can."""
    latest = groups.processes.where("latest").select("run", "birth")
    can = F.col("offers_state") & ~F.col("wants_state")
    able = groups.memberships.join(latest, ["run", "birth"], "left_semi")
    able = able.groupBy("run", "group", F.col("process").alias("name")).agg(F.bool_and(can).alias("can"))
    members = groups.memberships.where(F.col("first_view").isNotNull()).select(
        *_MEMBERSHIP, F.col("first_view.place").alias("place"), F.explode("first_view.members").alias("name")
    )
    begun = groups.states.where("stage = 'begins'").select(*_MEMBERSHIP, "process", "place", "row", "peer")
    each = begun.join(members, [*_MEMBERSHIP, "place"]).where(F.col("name") != F.col("process"))
    each = each.join(able.where("can"), ["run", "group", "name"])
    first = F.min(F.struct(order_of("name").alias("order"), "name")).alias("first")
    chosen = each.groupBy("run", "group", "process", "row", "peer").agg(first)
    late = (F.col("peer") == NOBODY) | (F.col("first.order") < order_of("peer"))
    text = F.format_string(
        "Process %s was told to get the state of %s from %s, when %s was the first that could give it.",
        *("process", "group", _peer("peer"), "first.name"),
    )
    return failing(chosen, (late, finding(True, text, evidence("row"))))


def _peer(name: str) -> Column:
    return F.when(F.col(name) == NOBODY, F.lit("nobody")).otherwise(F.col(name))


def _joiners(groups: GroupSilver) -> DataFrame:
    """What a membership was told of its state: with begun, what began last; whole: this ends what began; and
    complete: the last before this that did."""
    along = Window.partitionBy(*_MEMBERSHIP).orderBy("row")
    before = along.rowsBetween(Window.unboundedPreceding, -1)
    state = F.struct("row", "place", "peer", "digest")
    begins, ends = F.col("stage") == "begins", F.col("stage") == "last"
    begun = F.last(F.when(begins, state), ignorenulls=True).over(along)
    states = groups.states.where("membership > 0").withColumns({"begins": begins, "begun": begun})
    whole = ends & F.coalesce(F.col("begun.peer") == F.col("peer"), F.lit(False))
    states = states.withColumns({"ends": ends, "whole": whole})
    complete = F.last(F.when(F.col("whole"), state), ignorenulls=True).over(before)
    wishes = groups.memberships.select(*_MEMBERSHIP, "wants_state")
    return states.withColumn("complete", complete).join(wishes, list(_MEMBERSHIP))


def _unwanted() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s was given the state of %s and had not asked for it.", "process", "group"
    )
    return F.col("begins") & ~F.col("wants_state"), finding(True, text, evidence("row"))


def _from_another() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s got the state of %s from %s and not from %s.",
        *("process", "group", "peer", F.coalesce(_peer("begun.peer"), F.lit("no one"))),
    )
    return F.col("ends") & ~F.col("whole"), finding(True, text, evidence("row"))


def _twice() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s had the state of %s from %s when another began or ended, from %s.",
        *("process", "group", "complete.peer", "peer"),
    )
    again = F.col("complete").isNotNull() & (F.col("begins") | F.col("whole"))
    return again, finding(True, text, evidence("complete.row", "row"))


def _whole(groups: GroupSilver, ends: DataFrame) -> DataFrame:
    """What a joiner got is what its donor gave."""
    got = ends.select(
        *("run", "group", F.col("begun.place").alias("place"), F.col("begun.peer").alias("donor")),
        *(F.col("begun.row.process").alias("joiner"), "row", "digest"),
    )
    given = transfers(groups, "given").withColumnsRenamed({"row": "given", "digest": "given_digest"})
    rows = _told(groups, got.join(given, list(TRANSFER), "left"))
    text = F.format_string("Process %s got the state of %s as of %s", "joiner", "group", shown("place"))
    never = F.format_string("%s, which %s never gave.", text, "donor")
    unseen = F.lit("The states were not compared: the trace's level has no digests of them.")
    other = F.format_string(
        "%s with digest %08x, and %s gave it with %08x.", text, "digest", "donor", "given_digest"
    )
    is_given = F.col("given").isNotNull()
    seen = (F.col("digest") != NO_DIGEST) & (F.col("given_digest") != NO_DIGEST)
    differ = seen & (F.col("digest") != F.col("given_digest"))
    return failing(
        rows,
        *_missing(~is_given, never),
        (is_given & ~seen, reason(unseen)),
        (is_given & differ, finding(True, other, evidence("given", "row"))),
    )


def _told(groups: GroupSilver, rows: DataFrame) -> DataFrame:
    return with_telling(groups, rows.withColumn("since", F.col("row.at_us")), "donor", "since")


def _missing(missing: Column, text: Column) -> tuple[tuple[Column, tuple[Column, ...]], ...]:
    silent = F.format_string("Node %s, the donor's, left no trace.", "processor")
    nodes = F.array("row.node", "processor")
    return (
        (missing & ~F.col("known"), reason(silent)),
        (missing & F.col("known"), finding(F.col("told"), text, evidence("row"), nodes)),
    )


def _prefixes(groups: GroupSilver) -> Iterable[DataFrame]:
    """What a joiner loaded is what a replay of the order gives up to that place. Applications that keep such
    a digest write it down: the donor's when it is asked, the joiner's when it has loaded the state.

    Donors are not compared with each other: where parts of a group merge, each part has a past of its own.
    """
    loaded = groups.states.where("stage = 'state'").withColumn("joiner", F.col("process"))
    begun = _last(groups, "begins", "joiner").select("run", "group", "place", "joiner", "told.peer")
    begun = begun.withColumnRenamed("peer", "donor")
    loaded = loaded.join(begun, ["run", "group", "place", "joiner"], "left")
    text = F.format_string(
        "Process %s loaded the state of %s as of %s, which nobody began.", "joiner", "group", shown("place")
    )
    yield failing(loaded, (F.col("donor").isNull(), finding(True, text, evidence("row"))))
    prefix = _last(groups, "prefix", "donor")
    rows = loaded.where(F.col("donor").isNotNull()).join(prefix, ["run", "group", "place", "donor"], "left")
    text = F.format_string(
        "The state of %s as of %s is %08x at %s", "group", shown("place"), "digest", "joiner"
    )
    none = F.format_string("%s, and %s has none.", text, "donor")
    other = F.format_string("%s and %08x at its donor %s.", text, "prefix.digest", "donor")
    known, differ = F.col("prefix").isNotNull(), F.col("prefix.digest") != F.col("digest")
    found = finding(True, other, evidence("prefix.row", "row"))
    yield failing(
        _told(groups, rows.withColumnRenamed("told", "prefix")),
        *_missing(~known, none),
        (known & differ, found),
    )


def _last(groups: GroupSilver, stage: str, whose: str) -> DataFrame:
    """The last row of this kind that a process wrote about the state of a group as of a place."""
    states = groups.states.where(F.col("stage") == stage).withColumnRenamed("process", whose)
    told = F.max(F.struct("row", "peer", "digest")).alias("told")
    return states.groupBy("run", "group", "place", whose).agg(told)
