"""Whole or nothing, for Spark: what a process gets is what another sent, all of it, once."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.group_history import NO_DIGEST
from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.group_places import listed
from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group_traces import with_telling

_COMPARED = (
    *(("count", "count", "count"), ("bytes", "bytes", "bytes"), ("service", "service", "service")),
    ("origin", "node", "origin"),
)
"""Of each: its name, the column of the sending, and that of the delivery."""


def whole_or_nothing(groups: GroupSilver) -> Iterable[DataFrame]:
    first = groups.messages.select("run", "message", F.col("sent").alias("first"))
    again = groups.sends.where("again").join(first, ["run", "message"])
    text = F.format_string("Message %s was sent twice.", "message")
    yield again.select("run", *finding(True, text, evidence("first", "sent")))
    yield _never_sent(groups)
    of_process = Window.partitionBy("run", "birth", "message").orderBy("row")
    told = groups.deliveries.withColumn("before", F.first("row").over(of_process))
    yield failing(told, _twice())
    sent = groups.messages.where(F.col("sent").isNotNull()).select("run", "message", "sent")
    came = groups.deliveries.join(sent, ["run", "message"]).join(F.broadcast(groups.silver.terms), "run")
    yield failing(came, _not_the_same(), _before_it_was_sent())
    unseen = came.where((F.col("digest") == NO_DIGEST) | (F.col("sent.digest") == NO_DIGEST))
    text = F.lit("The contents were not compared: the trace's level has no digests of them.")
    yield unseen.select("run").distinct().select("run", *reason(text))


def _never_sent(groups: GroupSilver) -> DataFrame:
    unknown = groups.messages.where(F.col("sent").isNull()).withColumn("since", F.col("first.row.at_us"))
    rows = with_telling(groups, unknown, "sender", "since")
    silent = F.format_string("Node %s, from where %s comes, left no trace.", "processor", "message")
    text = F.format_string(
        "Process %s delivered %s, which process %s never sent.", "first.row.process", "message", "sender"
    )
    nodes = F.array("first.row.node", "processor")
    spurious = finding(F.col("told"), text, evidence("first.row"), nodes)
    return failing(rows, (~F.col("known"), reason(silent)), (F.col("known"), spurious))


def _twice() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string("Process %s delivered %s twice.", "process", "message")
    return F.col("before") != F.col("row"), finding(True, text, evidence("before", "row"))


def _not_the_same() -> tuple[Column, tuple[Column, ...]]:
    differences = F.array_compact(
        F.array(*(_difference(*names) for names in _COMPARED), _groups(), _digest())
    )
    text = F.format_string(
        "Process %s delivered %s not as it was sent: %s.",
        *("process", "message", F.array_join(differences, ", ")),
    )
    return F.size(differences) > 0, finding(True, text, evidence("sent", "row"))


def _difference(name: str, ours: str, theirs: str) -> Column:
    mine, yours = F.col(f"sent.{ours}"), F.col(theirs)
    return F.when(mine != yours, F.format_string("%s %s for %s", F.lit(name), yours, mine))


def _groups() -> Column:
    mine, yours = F.col("sent.groups_to"), F.col("groups_to")
    return F.when(mine != yours, F.format_string("groups %s for %s", listed(yours), listed(mine)))


def _digest() -> Column:
    mine, yours = F.col("sent.digest"), F.col("digest")
    differ = (mine != yours) & (mine != NO_DIGEST) & (yours != NO_DIGEST)
    return F.when(differ, F.format_string("digest %08x for %08x", yours, mine))


def _before_it_was_sent() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string("Process %s delivered %s before it was sent.", "process", "message")
    here = F.col("node") == F.col("sent.node")
    earlier = F.col("same_clock") & (F.col("at_us") < F.col("sent.at_us"))
    early = F.when(here, F.col("step") < F.col("sent.step")).otherwise(earlier)
    return early, finding(True, text, evidence("sent", "row"))
