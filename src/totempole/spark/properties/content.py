"""What a message carries arrives as it was sent (Totem §3.5), and its timestamps order it (Totem §5.1).

The oracle is `checkers.content`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import Check, evidence, failing, finding, reason
from totempole.spark.properties.sources import first_deliveries, row, sources
from totempole.spark.silver import Silver


def service_kept(silver: Silver) -> Iterable[DataFrame]:
    """Theorem 4.16 asks for delivery as the originator requested: its service, and its payload unchanged.

    Where the origination is not in the trace, the first delivery stands for it.
    """
    of_message = Window.partitionBy("run", "message").orderBy("node")
    # An engine that leaves an origination's size out leaves it out of all of them.
    sizes = silver.originations.groupBy("run").agg(F.bool_or(F.col("bytes") != 0).alias("sizes"))
    rows = (
        first_deliveries(silver)
        .withColumn("elder", F.first("row").over(of_message))
        .join(sources(silver), ["run", "message"], "left")
        .join(sizes, "run", "left")
        .withColumn("known", F.coalesce("source", "elder"))
    )
    unknown = F.format_string("The origination of %s is not in the trace.", "message")
    as_other = F.format_string(
        "Node %s delivered %s as %s, and node %s has it as %s.",
        *("node", "message", "row.service", "known.node", "known.service"),
    )
    other_size = F.format_string(
        "Node %s delivered %s bytes of %s, and node %s has %s.",
        *("node", "row.bytes", "message", "known.node", "known.bytes"),
    )
    sized = F.col("sizes") | F.col("source").isNull()
    shown = evidence("known", "row")
    yield failing(
        rows,
        (F.col("source").isNull() & (F.col("node") == F.col("elder.node")), reason(unknown)),
        (F.col("row.service") != F.col("known.service"), finding(True, as_other, shown)),
        (sized & (F.col("row.bytes") != F.col("known.bytes")), finding(True, other_size, shown)),
        _other_digest("delivered", "known"),
    )
    received = silver.receives.select("run", "message", row().alias("row"))
    yield failing(received.join(sources(silver), ["run", "message"]), _other_digest("received", "source"))
    # A life that ends before its first write originates nothing, and the next one uses its names again.
    given = silver.submissions.groupBy("run", "message").agg(F.max_by(row(), "step").alias("given"))
    sent = sources(silver).withColumnRenamed("source", "row")
    yield failing(given.join(sent, ["run", "message"]), _other_digest("originated", "given"))


def _other_digest(what: str, known: str) -> Check:
    """A trace below the level `checked` has no digests."""
    mine, theirs = F.col("row.digest"), F.col(f"{known}.digest")
    text = F.format_string(
        f"Node %s {what} %s with digest %08x, and node %s has %08x.",
        *("row.node", "row.message", "row.digest", f"{known}.node", f"{known}.digest"),
    )
    differ = (mine != theirs) & (mine != 0) & (theirs != 0)
    return differ, finding(True, text, evidence(known, "row"))


def timestamps(silver: Silver) -> Iterable[DataFrame]:
    """Totem §5.1: they grow along a ring, and along a processor's originations whatever fails between. A
    message is later than every message that its originator has delivered in the same life, on any ring."""
    yield _along_rings(silver)
    yield _along_originators(silver)
    yield _after_causes(silver)
    delivered = silver.deliveries.select("run", "message", row().alias("row"))
    text = F.format_string(
        "Node %s delivered %s with timestamp %s, and it was originated with %s.",
        *("row.node", "message", "row.timestamp", "source.timestamp"),
    )
    changed = F.col("source.timestamp") != F.col("row.timestamp")
    yield failing(
        delivered.join(sources(silver), ["run", "message"]),
        (changed, finding(True, text, evidence("source", "row"))),
    )


def _along_rings(silver: Silver) -> DataFrame:
    along = Window.partitionBy("run", "ring").orderBy("seq")
    pairs = silver.slots.withColumns({"before": F.lag("row").over(along), "place": F.lag("seq").over(along)})
    text = F.format_string(
        "On ring %s message %s at %s has timestamp %s, no later than %s of %s at %s.",
        *("ring", "row.message", "seq", "row.timestamp", "before.timestamp", "before.message", "place"),
    )
    no_later = F.col("row.timestamp") <= F.col("before.timestamp")
    return failing(pairs, (no_later, finding(True, text, evidence("before", "row"))))


def _along_originators(silver: Silver) -> DataFrame:
    along = Window.partitionBy("run", "node").orderBy("row.step")
    mine = silver.originations.where("stay > 0").select("run", "node", row().alias("row"))
    pairs = mine.withColumn("before", F.lag("row").over(along))
    text = F.format_string(
        "Node %s gave %s timestamp %s, no later than %s of %s before it.",
        *("node", "row.message", "row.timestamp", "before.timestamp", "before.message"),
    )
    no_later = F.col("row.timestamp") <= F.col("before.timestamp")
    return failing(pairs, (no_later, finding(True, text, evidence("before", "row"))))


def _after_causes(silver: Silver) -> DataFrame:
    """A Lamport clock, along each life: the latest of what was delivered so far, the first of equals."""
    along = Window.partitionBy("run", "node", "life").orderBy("step")
    before = along.rowsBetween(Window.unboundedPreceding, -1)
    rows = silver.events.where("kind in ('originate', 'deliver') and stay > 0").select(
        *("run", "node", "life", "step", "kind", "timestamp"),
        F.struct("node", "step", "message", "timestamp").alias("row"),
    )
    delivered = F.when(F.col("kind") == "deliver", F.struct("timestamp", -F.col("step"), "row"))
    compared = rows.withColumn("latest", F.max(delivered).over(before)).where("kind = 'originate'")
    text = F.format_string(
        "Node %s gave %s timestamp %s, no later than %s of %s, which it had delivered.",
        *("node", "row.message", "timestamp", "latest.timestamp", "latest.row.message"),
    )
    no_later = F.col("timestamp") <= F.col("latest.timestamp")
    return failing(compared, (no_later, finding(True, text, evidence("latest.row", "row"))))
