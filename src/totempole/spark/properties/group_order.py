"""One order for all groups, for Spark (Totem CACM "The Totem Process Group Interface")."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding
from totempole.spark.group_places import shown
from totempole.spark.group_silver import GroupSilver


def one_order(groups: GroupSilver) -> Iterable[DataFrame]:
    """Every process sees messages and views at increasing places, in whatever groups it is, and a message has
    one place for all: so any two agree on the order of what both deliver, without being compared."""
    yield _along_processes(groups)
    of_place = Window.partitionBy("run", "place").orderBy("birth", "row")
    of_message = Window.partitionBy("run", "message").orderBy("row")
    told = groups.deliveries.withColumns(
        {
            "there": F.first("row").over(of_place),
            "first": F.first(F.struct("row", "place")).over(of_message),
        }
    )
    yield failing(told, _two_messages(), _two_places())


def _along_processes(groups: GroupSilver) -> DataFrame:
    """Each event after the one at the highest place so far; of equal places, that is the first."""
    columns = ("run", "birth", "row", "place", "group")
    events = groups.views.select(*columns).unionByName(groups.deliveries.select(*columns))
    along = Window.partitionBy("run", "birth").orderBy("row")
    highest = F.max(F.struct("place", -F.col("number"), "row", "group"))
    before = highest.over(along.rowsBetween(Window.unboundedPreceding, -1))
    numbered = events.withColumn("number", F.row_number().over(along)).withColumn("before", before)
    text = F.format_string(
        "Process %s was told of %s at %s after %s at %s.",
        *("row.process", _named("row.message", "group"), shown("place")),
        *(_named("before.row.message", "before.group"), shown("before.place")),
    )
    behind = F.col("place") <= F.col("before.place")
    return failing(numbered, (behind, finding(True, text, evidence("before.row", "row"))))


def _named(message: str, group: str) -> Column:
    is_view = F.col(message) == ""
    return F.when(is_view, F.concat(F.lit("the view of "), group)).otherwise(F.col(message))


def _two_messages() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Place %s holds two messages: process %s delivered %s there and process %s %s.",
        *(shown("place"), "there.process", "there.message", "row.process", "row.message"),
    )
    return F.col("there.message") != F.col("message"), finding(True, text, evidence("there", "row"))


def _two_places() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Message %s has two places: process %s delivered it at %s and process %s at %s.",
        *("message", "first.row.process", shown("first.place"), "row.process", shown("place")),
    )
    return F.col("first.place") != F.col("place"), finding(True, text, evidence("first.row", "row"))
