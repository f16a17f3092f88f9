"""The gold tables of figures, built from the raw events, each partitioned by run. The page shows them.

A row is one of each:

- lives: run, node and incarnation; what it did in all, its first and last time
- runs: run; the same summed, its level, length and width of time bins
- latency: run, layer, scope, service and percentile
- latency_over_time: run, layer, scope, service and bin
- throughput: run, node and bin
- group_traffic: run, group and bin
- losses: run, node, kind (retransmit or drop), reason and bin
- rotation: run, node (0 is all) and percentile
- rotation_over_time: run and bin
- stays: run, node, incarnation and configuration
- outages: run, node, incarnation and the time at which it began
- marks: run, node and step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from totempole.spark.report import latency, lives, timeline, token, traffic
from totempole.trace.layers.corel import GREEN

READ_KINDS = (
    "submit",
    "deliver",
    "configuration",
    "state",
    "crash",
    "restart",
    "leave",
    "fault",
    "token",
    "retransmit",
    "drop",
    "group_send",
    "group_deliver",
    "accept",
    "colour",
)
"""All that the tables beyond `lives` are made of: not the receptions, of which a trace has most."""
READ_COLUMNS = (
    "run",
    "node",
    "incarnation",
    "step",
    "at_us",
    "layer",
    "kind",
    "message",
    "origin",
    "service",
    "ring",
    "configuration",
    "configuration_kind",
    "members",
    "count",
    "bytes",
    "reason",
    "old_state",
    "new_state",
    "previous",
    "groups_to",
    "detail",
)

Keep = Callable[[str, DataFrame], DataFrame]
"""Takes a table's name and how to make it, and gives it back from where it is kept."""


def summaries(events: DataFrame, keep: Keep) -> tuple[DataFrame, DataFrame]:
    """The tables `lives` and `runs`, on which the others stand."""
    of_lives = keep("lives", lives.lives(events))
    return of_lives, keep("runs", lives.runs(of_lives))


def figures(events: DataFrame, of_lives: DataFrame, runs: DataFrame, keep: Keep) -> None:
    """All other tables."""
    is_read = events["kind"].isin(*READ_KINDS) & (
        (events["kind"] != "colour") | (events["new_state"] == GREEN)
    )
    wanted = events.where(is_read).select(*READ_COLUMNS)
    with _cached(wanted) as read:
        for name, table in (_of_stays(read, of_lives) | _of_traffic(read, runs)).items():
            keep(name, table)
        with _cached(latency.latencies(read)) as latencies:
            keep("latency", latency.percentiles(latencies))
            keep("latency_over_time", latency.over_time(latencies, runs))
        with _cached(token.rotations(read)) as rotations:
            keep("rotation", token.percentiles(rotations))
            keep("rotation_over_time", token.over_time(rotations, runs))


def _of_stays(events: DataFrame, of_lives: DataFrame) -> dict[str, DataFrame]:
    return {
        "stays": timeline.stays(events, of_lives),
        "outages": timeline.outages(events),
        "marks": timeline.marks(events),
    }


def _of_traffic(events: DataFrame, runs: DataFrame) -> dict[str, DataFrame]:
    return {
        "throughput": traffic.throughput(events, runs),
        "group_traffic": traffic.group_traffic(events, runs),
        "losses": traffic.losses(events, runs),
    }


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    """What several tables are made from is made once."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
