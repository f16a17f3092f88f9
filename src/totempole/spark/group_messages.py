"""What processes send to groups: each message with its one sending, and the first who delivered it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.group_places import end_of_packet, start_of

_SENT = (
    *("node", "step", "message", "at_us", "process", "birth", "groups_to", "service", "count", "bytes"),
    *("configuration", "digest"),
)


def sends_of(
    events: DataFrame, packets: DataFrame, processes: DataFrame, configurations: DataFrame
) -> DataFrame:
    """run, message, sent (struct: the row's columns, birth and digest), again: the message was sent before;
    floor: how far in the order the processor had come, so that the message's own place is later; or null.

    `packets`: run, node, step, ring and seq of each packet that a processor delivered, in runs with groups.
    Where the life was never in a configuration nothing can have left the processor: that is not sent at all.
    """
    told = F.when(F.col("kind").isin("group_view", "group_deliver", "packet"), F.col("place"))
    reached = F.max(told).over(Window.partitionBy("run", "node").orderBy("step"))
    marks = packets.select(
        "run", "node", "step", end_of_packet().alias("place"), F.lit("packet").alias("kind")
    )
    both = events.unionByName(marks, allowMissingColumns=True)
    rows = both.withColumn("reached", reached).where("kind = 'group_send'")
    somewhere = processes.where(F.col("final").isNotNull()).select("run", "birth")
    sent = rows.join(somewhere, ["run", "birth"], "left_semi").join(
        configurations, ["run", "configuration"], "left"
    )
    regular = F.col("change.configuration_kind") == "regular"
    start = F.when(regular, start_of(F.col("configuration")))
    order = Window.partitionBy("run", "message").orderBy("node", "step")
    return sent.select(
        *("run", "message", F.struct(*_SENT, regular.alias("regular")).alias("sent")),
        (F.row_number().over(order) > 1).alias("again"),
        F.greatest(start, "reached").alias("floor"),
    )


def messages_of(sends: DataFrame, deliveries: DataFrame) -> DataFrame:
    """run, message, sender, number; end: the number of the sender's next; sent and floor, as `sends_of` has
    them, or null; first: its first delivery by (node, step) (struct: row, place, count), or null."""
    first = F.min_by(F.struct("row", "place", "count"), "row").alias("first")
    delivered = deliveries.groupBy("run", "message").agg(first)
    known = sends.where(~F.col("again")).drop("again").join(delivered, ["run", "message"], "full")
    number, count = _number(), F.coalesce("sent.count", "first.count")
    return known.withColumns({"sender": _sender(), "number": number, "end": number + count})


def _sender() -> Column:
    """A message is named SENDER:NUMBER."""
    return F.regexp_extract("message", "^(.*):", 1)


def _number() -> Column:
    return F.substring_index("message", ":", -1).cast("bigint")
