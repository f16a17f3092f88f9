"""A life's deliveries of one ring's messages, in the order it made them.

They are those of the regular configuration and of the transitional one right after it (Totem §4.3): the two
belong together, or a message delivered in both is missed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.spark.silver import Silver

HOME = ("run", "node", "life", "home")
"""What a ring's deliveries by one life are keyed by: `home` is its stay in the regular configuration."""


def on_ring(silver: Silver) -> DataFrame:
    """HOME, stay, ring, step, seq, origin, row (struct: node, step, message), members.

    `members` are those of the transitional configuration that the delivery is in; null in the regular one.
    """
    regular, before = F.col("regular"), F.col("before")
    row = F.struct("node", "step", "message")
    stays = silver.stays.select(
        *("run", "node", "life", "stay"),
        F.when(regular, F.col("stay")).when(before["regular"], before["stay"]).alias("home"),
        F.when(regular, F.col("name")).when(before["regular"], before["name"]).alias("home_ring"),
        F.when(~regular, F.col("members")).alias("members"),
    )
    delivered = silver.events.where("kind = 'deliver' and stay > 0").select(
        *("run", "node", "life", "stay", "ring", "step", "seq", "origin", row.alias("row"))
    )
    return delivered.join(stays, ["run", "node", "life", "stay"]).where("ring = home_ring").drop("home_ring")
