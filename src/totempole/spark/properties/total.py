"""The global delivery order of extended virtual synchrony: Totem §3.5, theorems 4.17 and 4.18.

The oracle is `checkers.total`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, finding
from totempole.spark.silver import Silver, ring_id

_NO_RING = "0@0"


def global_order(silver: Silver) -> Iterable[DataFrame]:
    yield _out_of_place(silver)
    yield _contradictions(_without_witness(silver))


def _key(conf: Column) -> Column:
    """The identifier (ring_id, seq, conf_id)."""
    return F.struct(ring_id("ring").alias("ring"), F.col("seq"), ring_id(conf).alias("conf"))


def _out_of_place(silver: Silver) -> DataFrame:
    """Theorem 4.17: what a node delivers, changes included, increases in (ring_id, seq, conf_id)."""
    change = F.col("kind") == "configuration"
    conf = (
        F.when(~change, _NO_RING)
        .when(F.col("stay_regular"), F.col("previous"))
        .otherwise(F.col("configuration"))
    )
    named = F.when(F.col("message") != "", F.col("message")).otherwise(
        F.concat(F.lit("the change to "), "configuration")
    )
    row = F.struct("node", "step", "message", named.alias("named"))
    told = silver.events.where("kind in ('configuration', 'deliver') and stay > 0").select(
        "run", "node", "life", "step", _key(conf).alias("key"), row.alias("row")
    )
    before = (
        Window.partitionBy("run", "node", "life").orderBy("step").rowsBetween(Window.unboundedPreceding, -1)
    )
    first_at_key = F.struct("key", -F.col("step"), "row")
    wrong = told.withColumn("top", F.max(first_at_key).over(before)).where("key <= top.key")
    text = F.format_string(
        "Node %d delivered %s after %s, which the global order has the other way round.",
        *("row.node", "row.named", "top.row.named"),
    )
    return wrong.select("run", *finding(True, text, evidence("top.row", "row")))


def _without_witness(silver: Silver) -> DataFrame:
    """What each node delivered, once each, of the runs without a ranking of all messages that all follow.

    Such a ranking would prove that they agree, wherever it comes from: the places seen first are the guess,
    and no sequence number is trusted.
    """
    delivered = silver.events.where("kind = 'deliver'").withColumn("key", _key(F.lit(_NO_RING)))
    guessed = F.min_by("key", F.struct("node", "step")).over(Window.partitionBy("run", "message"))
    repeat = Window.partitionBy("run", "message", "node").orderBy("step")
    ranked = delivered.withColumn("rank", guessed).where("stay > 0")
    sequences = ranked.withColumn("time", F.row_number().over(repeat)).where("time = 1")
    along = Window.partitionBy("run", "node").orderBy("step")
    stepwise = sequences.withColumn("previous", F.lag("rank").over(along))
    doubtful = stepwise.where("rank <= previous").select("run").distinct()
    return sequences.select("run", "message", "node", "step").join(doubtful, "run", "left_semi")


def _contradictions(sequences: DataFrame) -> DataFrame:
    """Between two nodes it is enough to compare neighbours among the messages that both delivered."""
    row = F.struct("node", "step", "message")
    mine = sequences.select("run", "message", F.col("node").alias("p"), row.alias("mine"))
    yours = sequences.select("run", "message", F.col("node").alias("q"), row.alias("yours"))
    along = Window.partitionBy("run", "p", "q").orderBy("mine.step")
    common = (
        mine.join(yours, ["run", "message"])
        .where("p < q")
        .withColumns({"my_last": F.lag("mine").over(along), "your_last": F.lag("yours").over(along)})
        .where("yours.step < your_last.step")
    )
    text = F.format_string(
        "Node %d delivered %s before %s, and node %d the other way round.",
        *("p", "my_last.message", "mine.message", "q"),
    )
    rows = evidence("my_last", "mine", "yours", "your_last")
    return common.select("run", *finding(True, text, rows))
