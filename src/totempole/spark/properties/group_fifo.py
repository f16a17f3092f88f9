"""First in, first out, for Spark: a sender's messages arrive in the order of sending, none is passed over.

What is passed over can be judged on one ring. A process delivers a message on it: then its processor had all
that the ring carried before, so that whatever the sender had on the ring before must have come too, if it was
for a group that the receiver was in by then. Which messages these are is known from others who delivered
them; one that nobody delivered was on the ring if its sender was in that configuration when it sent it, and
after all that the sender's processor had seen by then.

From one ring to a later one, or from group to group, it can be judged of receivers whose processors stayed
with the sender's (group_fate.py): whatever came back to the sender was sent again before anything later.

What one process sent to one group on one ring, in the order of sending, is a line. A receiver goes along it:
it starts at the first message that may have come after it joined, and each delivery takes it past that one.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.group_fifo import SHOWN_MAX
from totempole.spark.findings import evidence, failing, finding
from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group_fate import missed, with_company
from totempole.spark.properties.group_traces import without_trace
from totempole.spark.silver import ring_id

_LINE = ("run", "sender", "group", "ring")
_DELIVERY = "struct<node:bigint,step:bigint,message:string,number:bigint,end:bigint,process:string>"


def first_in_first_out(groups: GroupSilver) -> Iterable[DataFrame]:
    yield _numbers(groups)
    yield _out_of_order(groups)
    yield _passed_over(groups)
    yield _across_rings(groups)
    unsent = groups.messages.where(F.col("sent").isNull()).select("run", F.col("sender").alias("name"))
    yield without_trace(groups, unsent, "Node %s, whose processes sent messages, left no trace.")


def _numbers(groups: GroupSilver) -> DataFrame:
    """A sender numbers its messages as it sends them."""
    along = Window.partitionBy("run", "sent.birth").orderBy("sent")
    expected = F.coalesce(F.lag("end").over(along), F.lit(1))
    sent = groups.messages.where(F.col("sent").isNotNull()).withColumn("expected", expected)
    text = F.format_string(
        "Process %s sent %s, when its next message was number %s.", "sent.process", "message", "expected"
    )
    return failing(sent, (F.col("number") != F.col("expected"), finding(True, text, evidence("sent"))))


def _out_of_order(groups: GroupSilver) -> DataFrame:
    """Each delivery against the last one of the same sender that was in order: one after the other, as what
    is out of order moves nothing on."""
    sent = groups.messages.select("run", "message", "sender", "number", "end")
    told = F.struct("node", "step", "message", "number", "end", "process").cast(_DELIVERY)
    each = groups.deliveries.join(sent, ["run", "message"]).groupBy("run", "birth", "sender")
    along = each.agg(F.array_sort(F.collect_list(told)).alias("told"))
    nothing = F.struct(
        F.lit(None).cast(_DELIVERY).alias("latest"),
        F.array().cast(f"array<struct<before:{_DELIVERY},this:{_DELIVERY}>>").alias("pairs"),
    )
    pairs = F.aggregate("told", nothing, _add_delivery, lambda known: known["pairs"])
    found = along.select("run", "sender", F.inline(pairs))
    text = F.format_string(
        "Process %s delivered %s after %s, which %s had sent later.",
        *("this.process", "this.message", "before.message", "sender"),
    )
    return found.select("run", *finding(True, text, evidence("before", "this")))


def _add_delivery(known: Column, this: Column) -> Column:
    latest, pairs = known["latest"], known["pairs"]
    behind = F.coalesce(this["number"] < latest["end"], F.lit(False))
    pair = F.struct(latest.alias("before"), this.alias("this"))
    return F.struct(
        F.when(behind, latest).otherwise(this).alias("latest"),
        F.when(behind, F.concat(pairs, F.array(pair))).otherwise(pairs).alias("pairs"),
    )


def _passed_over(groups: GroupSilver) -> DataFrame:
    lines = _lines(groups)
    passed = (
        _cursors(groups, lines)
        .where("start < here")
        .where(F.col("left").isNull() | (F.col("left.step") > F.col("row.step")))
    )
    shown = F.sequence("start", F.least("here", F.col("start") + SHOWN_MAX) - 1)
    missed = passed.select(*_LINE, "row", "at", F.explode(shown).alias("position"))
    missed = missed.join(lines.select(*_LINE, "position", "sent"), [*_LINE, "position"])
    row = F.struct("sent.node", "sent.step", "sent.message")
    found = missed.groupBy(*_LINE, "row", "at").agg(
        F.array_sort(F.collect_list(F.struct("position", row.alias("row")))).alias("missed")
    )
    rows = F.transform("missed", lambda one: one["row"])
    text = F.format_string(
        "Process %s delivered %s without %s, which the same sender had sent to %s before, where %s was all "
        "the time.",
        *("row.process", "row.message", F.col("missed")[0]["row"]["message"], "group", "row.process"),
    )
    return found.select("run", *finding(True, text, F.concat(evidence("row"), rows), F.array("row.node")))


def _lines(groups: GroupSilver) -> DataFrame:
    """Each message in its lines, at a position from 0. It has the place `floor` or a later one; floors never
    decrease along a line."""
    placed = groups.messages.where(F.col("sent").isNotNull()).withColumns(
        {"ring": _ring_of_line(), "floor": F.coalesce("first.place", "floor")}
    )
    to_groups = F.posexplode("sent.groups_to").alias("at", "group")
    each = placed.where(F.col("ring").isNotNull()).select(
        *("run", "sender", "ring", "message", "sent", "floor", to_groups)
    )
    along = Window.partitionBy(*_LINE).orderBy("sent.birth", "sent", "at")
    position = F.row_number().over(along) - 1
    return each.withColumns({"position": position, "floor": F.max("floor").over(along)})


def _ring_of_line() -> Column:
    """The ring that carried a message, if that is known."""
    guessed = F.when(F.col("floor").isNotNull() & F.col("sent.regular"), ring_id("sent.configuration"))
    return F.coalesce("first.place.ring", guessed)


def _across_rings(groups: GroupSilver) -> DataFrame:
    """At the first delivery that shows it. What was on the ring of that delivery is judged above."""
    sent = groups.messages.select("run", "message", "sender", "number")
    told = F.struct("row", "place", F.col("groups_to").alias("groups")).alias("told")
    deliveries = groups.deliveries.select("run", "birth", "message", told).join(sent, ["run", "message"])
    deliveries = deliveries.drop("message").withColumn("rank", F.lit(1))
    cases = missed(groups).withColumns({"ring": _ring_of_line(), "rank": F.lit(0)})
    later = Window.partitionBy("run", "birth", "sender").orderBy(F.desc("number"), "rank")
    first = F.min("told").over(later.rowsBetween(Window.unboundedPreceding, -1))
    both = cases.unionByName(deliveries, allowMissingColumns=True).withColumn("later", first)
    shown = both.where((F.col("rank") == 0) & F.col("later").isNotNull())
    shown = shown.where(F.col("left").isNull() | (F.col("left.step") > F.col("later.row.step")))
    on_one_line = (F.col("ring") == F.col("later.place.ring")) & F.array_contains(
        "later.groups", F.col("group")
    )
    shown = shown.where(~F.coalesce(on_one_line, F.lit(False)))
    lost = with_company(groups, shown, F.col("later.place.ring"))
    text = F.format_string(
        "Process %s delivered %s without %s, which the same sender had sent to %s before, where %s was all "
        "the time.",
        *("later.row.process", "later.row.message", "message", "group", "later.row.process"),
    )
    return lost.select("run", *finding(True, text, evidence("later.row", "sent"), F.array("later.row.node")))


def _cursors(groups: GroupSilver, lines: DataFrame) -> DataFrame:
    """Each delivery in a view, with here: where its message stands in the line; start: where the receiver is
    in it; and left, of its membership."""
    here = lines.groupBy(*_LINE, "message").agg(F.max("position").alias("here"))
    memberships = groups.memberships.select(
        *("run", "birth", "group", "membership", "left", F.col("first_view.place").alias("mark"))
    )
    deliveries = groups.receptions.where(F.col("seen").isNotNull()).select(
        *("run", "birth", "group", "row", "at", F.col("seen.membership").alias("membership")),
        *(F.col("place.ring").alias("ring"), F.col("row.message").alias("message")),
    )
    asked = deliveries.join(memberships, ["run", "birth", "group", "membership"])
    asked = asked.join(here, ["run", "group", "ring", "message"]).withColumn("rank", F.lit(0))
    floors = lines.select(*_LINE, F.col("floor").alias("mark"), F.lit(1).alias("rank"))
    before = Window.partitionBy(*_LINE).orderBy("mark", "rank")
    joined = F.count_if(F.col("rank") == 1).over(before)
    both = asked.unionByName(floors, allowMissingColumns=True).withColumn("joined", joined)
    along = Window.partitionBy(*_LINE, "birth", "membership").orderBy("row", "at")
    past = F.max(F.col("here") + 1).over(along.rowsBetween(Window.unboundedPreceding, -1))
    return both.where("rank = 0").withColumn("start", F.greatest("joined", past))
