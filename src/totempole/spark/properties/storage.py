"""Ring numbers (Totem §4.2) and timestamps (Totem §5.1) are on stable storage before they are used.

The oracle is `checkers.storage`. Along each life: the highest values of the writes that are done so far.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding
from totempole.spark.silver import Silver, moved, ring_id
from totempole.trace.layers.srp import RECOVERING


def written_before_used(silver: Silver) -> Iterable[DataFrame]:
    ticket = Window.partitionBy("run", "node", "life", "kind_of", "count").orderBy("step")
    life = Window.partitionBy("run", "node", "life").orderBy("step")
    is_write = F.col("kind").isin("persist", "persisted")
    begun = F.last(F.when(F.col("kind") == "persist", F.struct("seq", "timestamp")), ignorenulls=True)
    done = F.when(F.col("kind") == "persisted", begun.over(ticket))
    rows = _rows(silver).withColumn("kind_of", is_write).withColumn("done", done)
    covered = rows.withColumns(
        {
            "ring_seq": F.coalesce(F.max("done.seq").over(life), F.lit(0)),
            "bound": F.coalesce(F.max("done.timestamp").over(life), F.lit(0)),
            "row": F.struct("node", "step", "message"),
        }
    )
    untimely = F.format_string(
        "Node %s gave %s timestamp %s, and stable storage covered timestamps below %s.",
        *("node", "message", "timestamp", "bound"),
    )
    unwritten = F.format_string(
        "Node %s went on with ring %s, and the highest number on stable storage was %s.",
        *("node", "ring", "ring_seq"),
    )
    sent = F.col("kind") == "originate"
    used = F.col("kind").isin("state", "configuration")
    yield failing(
        covered,
        (sent & (F.col("timestamp") >= F.col("bound")), finding(True, untimely, evidence("row"))),
        (used & (ring_id("ring")["seq"] > F.col("ring_seq")), finding(True, unwritten, evidence("row"))),
    )


def _rows(silver: Silver) -> DataFrame:
    """Writes, first configurations, second visits of Commit tokens, originations; where writes are known."""
    columns = ("run", "node", "life", "step", "kind", "message", "ring", "seq", "timestamp", "count")
    writes = silver.skeleton.where("kind in ('persist', 'persisted')")
    firsts = silver.skeleton.where("kind = 'configuration' and stay = 1")
    visits = silver.states.where(moved(RECOVERING))
    sent = silver.events.where("kind = 'originate' and stay > 0")
    together = writes.select(*columns)
    for more in (firsts, visits, sent):
        together = together.unionByName(more.select(*columns))
    return together.join(F.broadcast(writes.select("run").distinct()), "run", "left_semi")
