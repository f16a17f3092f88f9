"""No change without a cause, and no long time without a ring (Totem §3.4, theorem 4.3).

The oracle is `checkers.steady`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding
from totempole.spark.silver import Silver


def steady_rings(silver: Silver) -> Iterable[DataFrame]:
    stretches = silver.terms.select("run", F.explode("calm").alias("calm"))
    blames = silver.skeleton.where("kind = 'blame'").select("run", F.col("at_us").alias("blamed_us"))
    inside = F.expr("blamed_us between calm.from_us and calm.to_us")
    blamed = stretches.join(blames, "run").where(inside).select("run", "calm").distinct()
    stretches = stretches.join(blamed, ["run", "calm"], "left_anti")
    row = F.struct("node", "step", F.lit("").alias("message"), "old_state", "new_state")
    states = silver.states.select("run", "node", "life", "step", "at_us", row.alias("row"))
    during = states.join(stretches, "run")
    changed = F.format_string(
        "Node %s went from %s at %s us, and nothing had gone wrong since %s us.",
        *(F.col("node"), F.concat_ws(" to ", "row.old_state", "row.new_state")),
        *(F.col("at_us"), F.col("calm.from_us")),
    )
    within = F.expr("at_us > calm.settled_us and at_us <= calm.to_us")
    yield failing(during, (within, finding(True, changed, evidence("row"))))
    yield _without_ring(silver, during)


def _without_ring(silver: Silver, during: DataFrame) -> DataFrame:
    before = during.where("at_us <= calm.settled_us").groupBy("run", "node", "life", "calm")
    last = before.agg(F.max_by("row", "step").alias("row"))
    lives = silver.lives.select("run", "node", "life", "end", "last_at")
    up = F.expr("end is null or last_at > calm.settled_us")
    text = F.format_string(
        "Node %s had no ring at %s us, and nothing had gone wrong since %s us.",
        *("node", "calm.settled_us", "calm.from_us"),
    )
    without = up & (F.col("row.new_state") != "operational")
    joined = last.join(lives, ["run", "node", "life"])
    return failing(joined, (without, finding(True, text, evidence("row"))))
