"""What a stay owes: the messages of its ring that it did not deliver (Totem theorems 4.8 and 4.9)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.spark.silver import Silver

_STAY = ("run", "node", "life", "stay")


def undelivered(silver: Silver, stays: DataFrame) -> DataFrame:
    """What is known to be on the ring of each stay and was delivered neither in it nor right after.

    `stays` are some of `silver.stays`, regular ones. Gives their columns, and seq and row of the slot
    (`silver.slots`), once for each message that is missing.
    """
    slots = silver.slots.select("run", F.col("ring").alias("name"), "seq", "row")
    return stays.join(slots, ["run", "name"]).join(_seen(silver), [*_STAY, "seq"], "left_anti")


def _seen(silver: Silver) -> DataFrame:
    """Which seq was delivered in a stay, or in the transitional configuration right after it."""
    delivered = silver.events.where("kind = 'deliver' and stay > 0")
    counts_for = F.when(F.col("stay_regular"), F.array("stay")).otherwise(
        F.array(F.col("stay"), F.col("stay") - 1)
    )
    return delivered.select("run", "node", "life", F.explode(counts_for).alias("stay"), "seq")
