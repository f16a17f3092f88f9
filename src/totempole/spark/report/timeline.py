"""Configurations per processor over time, as in figure 4.15 of Totem, and what happened to the processors."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.trace.layers.node import DROPPED
from totempole.trace.layers.srp import LEFT
from totempole.trace.lives import Life, Lives, Stay
from totempole.trace.schema import Row

BOUNDS = ("configuration", "restart", "crash", "leave")
"""What lives and stays are known by."""

_STAYS = (
    "run string, node bigint, incarnation bigint, configuration string, configuration_kind string, "
    "ring string, members array<bigint>, previous string, from_us bigint, ended_us bigint, ended string"
)


def stays(events: DataFrame, of_lives: DataFrame) -> DataFrame:
    """A row for each configuration that a node installed: from when to when, and what it delivered in it.

    `ended` is the kind of row that ended it (`trace.lives`). Where that tells no time, the stay is known to
    have lasted until the last row of its life.
    """
    life = ["run", "node", "incarnation"]
    bounds = events.where(F.col("kind").isin(*BOUNDS)).select(*_BOUND)
    return (
        bounds.groupBy("run", "node")
        .applyInArrow(_stays_of_node, _STAYS)
        .join(of_lives.select(*life, "last_us"), life)
        .join(_delivered(events), [*life, "configuration"], "left")
        .select(
            *life,
            *("configuration", "configuration_kind", "ring", "members", "previous", "from_us"),
            F.coalesce("ended_us", "last_us").alias("until_us"),
            "ended",
            F.coalesce("delivered", F.lit(0).cast("long")).alias("delivered"),
        )
    )


_BOUND = (
    *("run", "node", "incarnation", "step", "at_us", "kind", "configuration", "configuration_kind"),
    *("ring", "members", "previous", "reason"),
)


def _stays_of_node(table: Any) -> Any:
    """On an executor: few rows, by the model that checkers and terminal use."""
    import pyarrow as pa

    lives = Lives()
    for values in sorted(table.to_pylist(), key=lambda row: int(row["step"])):
        members = tuple(values.pop("members"))
        lives.hear(Row(**values, layer="", members=members))
    found = [_stay(life, stay) for life in lives.lives for stay in life.stays]
    return pa.Table.from_pylist(found, schema=_arrow_schema())


def _stay(life: Life, stay: Stay) -> dict[str, Any]:
    ended, ended_us = life.end_of(stay)
    change = stay.change
    names = ("run", "node", "incarnation", "configuration", "configuration_kind", "ring", "previous")
    columns = {name: getattr(change, name) for name in names}
    ends = {"from_us": change.at_us, "ended_us": ended_us, "ended": ended}
    return {**columns, "members": list(change.members), **ends}


def _arrow_schema() -> Any:
    """_STAYS once more: an executor has no session that could read it."""
    import pyarrow as pa

    types = {"string": pa.string(), "bigint": pa.int64(), "array<bigint>": pa.list_(pa.int64())}
    return pa.schema([(name, types[kind]) for name, kind in map(str.split, _STAYS.split(", "))])


def outages(events: DataFrame) -> DataFrame:
    """A row for each time that a node left the Operational state, and when it was back if it ever was.

    So long it takes to re-form a ring (Totem §4.4). The reason is the one for which the node left the old
    ring.
    """
    moved = events.where((F.col("kind") == "state") & (F.col("layer") == "srp")).where(
        (F.col("old_state") == "operational") | (F.col("new_state") == "operational")
    )
    in_life = Window.partitionBy("run", "node", "incarnation").orderBy("step")
    return (
        moved.withColumn("until_us", F.lead("at_us").over(in_life))
        .where((F.col("old_state") == "operational") & (F.col("new_state") != LEFT))
        .select(
            "run",
            "node",
            "incarnation",
            F.col("at_us").alias("from_us"),
            "until_us",
            "reason",
        )
    )


def marks(events: DataFrame) -> DataFrame:
    """Crashes, leaves, restarts but the first start of a node, and the faults that a simulation injected.

    Not the single packets that a simulated network was told to drop: what those lead to is seen elsewhere.
    """
    kinds = ("crash", "leave", "restart", "fault")
    number = F.row_number().over(Window.partitionBy("run", "node", "kind").orderBy("step"))
    a_packet = (F.col("kind") == "fault") & (F.col("reason") == DROPPED)
    return (
        events.where(F.col("kind").isin(*kinds) & ~a_packet)
        .withColumn("number", number)
        .where((F.col("kind") != "restart") | (F.col("number") > 1))
        .select("run", "node", "incarnation", "step", "at_us", "kind", told().alias("told"))
    )


def told() -> Column:
    """As `trace.told` has it."""
    return F.trim(F.concat_ws(" ", "reason", "detail"))


def _delivered(events: DataFrame) -> DataFrame:
    return (
        events.where(F.col("kind") == "deliver")
        .groupBy("run", "node", "incarnation", "configuration")
        .agg(F.sum(F.greatest(F.col("count"), F.lit(1))).alias("delivered"))
    )
