"""Messages as they were originated, to hold their deliveries against."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.spark.silver import Silver


def row() -> Column:
    """An event as a struct, the same for every kind."""
    return F.struct(
        *("kind", "node", "step", "message", "origin", "service", "ring", "seq", "timestamp", "at_us"),
        *("bytes", "digest"),
    )


def sources(silver: Silver) -> DataFrame:
    """run, message, source: the first origination of each message."""
    return silver.originations.where("first").select("run", "message", row().alias("source"))


def first_deliveries(silver: Silver) -> DataFrame:
    """run, message, node, row: each deliverer's first delivery of a message."""
    return silver.deliveries.where("first").select("run", "message", "node", row().alias("row"))
