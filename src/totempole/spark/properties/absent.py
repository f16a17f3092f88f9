"""Members that left no trace: what they did cannot be told."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.spark.silver import Silver


def absent(silver: Silver, companies: DataFrame) -> DataFrame:
    """The rows of `companies` (run, members, …), once for each member whose trace is not here at all.

    In place of `members` there is `member`. A node to which only a fault was done is not absent.
    """
    nodes = silver.nodes.select("run", F.col("node").alias("member"))
    each = companies.withColumn("member", F.explode("members")).drop("members")
    return each.join(nodes, ["run", "member"], "left_anti")
