"""Safe notices, for Spark: a message that was delivered is at every processor of the configuration by now
(Totem §3.5)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.group_places import shown
from totempole.spark.group_silver import GroupSilver

_PACKET = ("run", "ring", "seq")


def safe_notices(groups: GroupSilver) -> Iterable[DataFrame]:
    yield _as_delivered(groups)
    notices = _earliest(groups)
    receives = groups.silver.bronze.where("kind = 'receive'").select("run").distinct()
    recorded = receives.withColumn("recorded", F.lit(True))
    notices = notices.join(recorded, "run", "left").join(F.broadcast(groups.silver.terms), "run")
    told = F.coalesce("recorded", F.lit(False)) & F.col("same_clock")
    text = F.lit("What each processor had received, and when, the trace does not tell.")
    yield notices.where(~told).select("run").distinct().select("run", *reason(text))
    yield from _received(groups, notices.where(told))


def _as_delivered(groups: GroupSilver) -> DataFrame:
    """Told once, after it was delivered, and the same of it."""
    told = groups.deliveries.groupBy("run", "birth", "message").agg(
        F.min(F.struct("row", "place", "count")).alias("known")
    )
    of_message = Window.partitionBy("run", "birth", "message").orderBy("row")
    notices = groups.notices.withColumn("first", F.first("row").over(of_message))
    notices = notices.join(told, ["run", "birth", "message"], "left")
    early = F.col("known").isNull() | (F.col("known.row.step") > F.col("step"))
    same = (F.col("known.place") == F.col("place")) & (F.col("known.count") == F.col("count"))
    was = F.format_string("Process %s was told that %s is safe", "process", "message")
    twice = F.format_string("Process %s was told twice that %s is safe.", "process", "message")
    other = F.format_string(
        "%s, %s at %s, and had delivered %s at %s.",
        *(was, "count", shown("place"), "known.count", shown("known.place")),
    )
    return failing(
        notices,
        (F.col("first") != F.col("row"), finding(True, twice, evidence("first", "row"))),
        (early, finding(True, F.concat(was, F.lit(" and had not delivered it.")), evidence("row"))),
        (~early & ~same, finding(True, other, evidence("known.row", "row"))),
    )


def _earliest(groups: GroupSilver) -> DataFrame:
    """The first notice of each packet in each configuration, with change: the configuration, or null. Where
    everyone was alone there is nothing to ask of others."""
    first = F.min(F.struct("at_us", "birth", "row")).alias("first")
    notices = groups.notices.groupBy(*_PACKET, "configuration").agg(first)
    notices = notices.join(groups.configurations, ["run", "configuration"], "left")
    others = F.coalesce(F.size("change.members") != 1, F.lit(True))
    in_company = F.bool_or(others).over(Window.partitionBy("run"))
    asked = notices.withColumn("in_company", in_company).where("in_company")
    return asked.withColumn("row", F.col("first.row")).drop("first", "in_company")


def _received(groups: GroupSilver, notices: DataFrame) -> Iterable[DataFrame]:
    text = F.format_string(
        "Process %s was told that %s is safe in no configuration.", "row.process", "row.message"
    )
    yield failing(notices, (F.col("change").isNull(), finding(True, text, evidence("row"))))
    members = notices.select("*", F.explode("change.members").alias("node"))
    nodes = groups.silver.nodes.withColumn("known", F.lit(True))
    holders = members.join(_receipts(groups, notices), [*_PACKET, "node"], "left")
    receipt = F.col("receipt")
    late = F.coalesce(receipt["at_us"] > F.col("row.at_us"), F.lit(True))
    lacking = holders.where(late).join(nodes, ["run", "node"], "left")
    lacking = lacking.join(_killed(groups), ["run", "node", "ring"], "left")
    yield failing(lacking, _without_trace(), _lacking())


def _killed(groups: GroupSilver) -> DataFrame:
    """run, node, ring, killed_at: the last row of a life that was on the ring and was killed. Those after it
    were never written."""
    on_ring = Window.partitionBy("run", "name", "node").orderBy("life", "stay")
    stays = groups.silver.stays.where("regular").withColumn("number", F.row_number().over(on_ring))
    stays = stays.where("number = 1").select("run", "node", "life", F.col("name").alias("ring"))
    killed = groups.silver.lives.where("ended AND end IS NULL").select(
        "run", "node", "life", F.col("last_at").alias("killed_at")
    )
    return stays.join(killed, ["run", "node", "life"]).drop("life")


def _receipts(groups: GroupSilver, notices: DataFrame) -> DataFrame:
    """Who had each of these packets, and since when: it made it, or received it."""
    rows = groups.silver.bronze.where(F.col("kind").isin("originate", "receive"))
    wanted = rows.join(notices.select(*_PACKET).distinct(), list(_PACKET), "left_semi")
    made_first = F.struct(F.col("kind") == "receive", "step")
    receipt = F.min_by(F.struct("node", "step", "message", "at_us"), made_first)
    return wanted.groupBy(*_PACKET, "node").agg(receipt.alias("receipt"))


def _without_trace() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string("Node %s of configuration %s left no trace.", "node", "configuration")
    return F.col("known").isNull(), reason(text)


def _lacking() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s was told that %s is safe in %s, when node %s had not received packet %s of %s.",
        *("row.process", "row.message", "configuration", "node", "seq", "ring"),
    )
    received = F.col("receipt").isNotNull()
    reached = F.coalesce("last_at", F.lit(-1)) >= F.col("row.at_us")
    rows = F.when(received, evidence("row", "receipt")).otherwise(evidence("row"))
    tells = F.when(F.col("killed_at").isNotNull(), F.col("killed_at") >= F.col("row.at_us"))
    told = received | tells.otherwise(F.col("complete") | reached)
    return F.col("known"), finding(told, text, rows, F.array("row.node", "node"))
