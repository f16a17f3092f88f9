"""The study as a Spark job: graphs by their number, each from a seed of its own, and the tables made of them.

`trials` has a row for each graph; the tables made from it have the figures of Totem §5.4. All sums are of
whole numbers, so that the same study gives the same tables in however many pieces it is done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from totempole.errors import ConfigurationError
from totempole.spark.cancellable import run_cancellable
from totempole.spark.topology.deletion import NODES_MAX, decay
from totempole.spark.topology.graphs import Edge, random_graph
from totempole.spark.topology.patterns import Pattern, robust_pattern

GRAPHS = 20_000
"""Of each design: a minute or two on two cores."""
NODES = 50
DEGREE = 4
DEGREE_MIN = 2
"""Which makes a ring: the least that is biconnected."""

TASK_GRAPHS = 400
"""A task should take a second or more: starting one costs 20 to 35 ms."""
BATCH_CELLS = 192 * NODES * NODES
"""Distances that are kept at a time."""
CERTAINTY = 1.96
"""Standard errors within which 95 of 100 means lie."""


class Design(StrEnum):
    """How a network's gateways are placed."""

    RANDOM = "random"
    """At random, until the network is biconnected."""
    ROBUST = "robust"
    """By a pattern of hops."""
    FILLED = "filled"
    """At random, as long as any fits. Not in the paper: with about as many edges as the robust design, it
    tells what the pattern is worth, and what the edges."""


@dataclass(frozen=True, slots=True)
class Study:
    graphs: int = GRAPHS
    """Of each design."""
    nodes: int = NODES
    degree: int = DEGREE
    """The most edges that a node may have."""
    seed: int = 0

    @property
    def pattern(self) -> Pattern:
        return robust_pattern(self.nodes, self.degree)

    @property
    def tasks(self) -> int:
        """Into how many pieces it is cut. The work grows with the cube of the nodes."""
        pieces = math.ceil(self.graphs / TASK_GRAPHS * (self.nodes / NODES) ** 3)
        return min(self.graphs, pieces)

    def check(self) -> None:
        """What cannot be done is found out before anything is begun."""
        if self.degree < DEGREE_MIN:
            raise ConfigurationError(f"--degree {self.degree}: give at least {DEGREE_MIN}")
        if self.nodes > NODES_MAX:
            raise ConfigurationError(f"--nodes {self.nodes}: give at most {NODES_MAX}")
        for design in Design:
            deletions(self, design, 0, self.pattern.edges())


def deletions(study: Study, design: Design, graph: int, robust: Iterable[Edge]) -> list[Edge]:
    """The edges of a graph in the order of their deletion: any edge that is left may be next."""
    random = Random(f"{study.seed}/{design}/{graph}")
    if design is Design.ROBUST:
        edges = list(robust)
    else:
        edges = random_graph(study.nodes, study.degree, random, fill=design is Design.FILLED)
    random.shuffle(edges)
    return edges


# One row for each graph

TRIALS = pa.schema(
    [
        pa.field("design", pa.string(), nullable=False),
        pa.field("graph", pa.int64(), nullable=False),
        pa.field("nodes", pa.int32(), nullable=False),
        pa.field("edges", pa.int32(), nullable=False),
        pa.field("survived", pa.int32(), nullable=False),
        pa.field("smaller", pa.int32(), nullable=False),
        pa.field("heights", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
    ]
)
"""`heights[k]`: the sum of the heights of all nodes' spanning trees after k deletions, k up to `survived`."""
TRIALS_DDL = (
    "design string not null, graph bigint not null, nodes int not null, edges int not null, "
    "survived int not null, smaller int not null, heights array<int> not null"
)


def trials(spark: SparkSession, study: Study, tasks: int | None = None) -> DataFrame:
    """Each graph loses its edges, on whichever core is free."""
    work = partial(_run_graphs, study, study.pattern.edges())
    return spark.range(0, study.graphs, 1, tasks or study.tasks).mapInArrow(work, TRIALS_DDL)


def _run_graphs(
    study: Study, robust: list[Edge], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    size = max(1, BATCH_CELLS // study.nodes**2 // len(Design))
    for batch in batches:
        graphs = batch.column(0).to_pylist()
        for first in range(0, len(graphs), size):
            yield pa.RecordBatch.from_pylist(
                _rows(study, robust, graphs[first : first + size]), schema=TRIALS
            )


def _rows(study: Study, robust: list[Edge], graphs: list[int]) -> list[dict[str, object]]:
    names = [(design, graph) for graph in graphs for design in Design]
    orders = [deletions(study, design, graph, robust) for design, graph in names]
    return [
        {
            "design": str(design),
            "graph": graph,
            "nodes": study.nodes,
            "edges": len(order),
            "survived": found.survived,
            "smaller": found.smaller,
            "heights": found.heights,
        }
        for (design, graph), order, found in zip(names, orders, decay(study.nodes, orders), strict=True)
    ]


# The tables of the figures


def by_deletions(trials: DataFrame) -> DataFrame:
    """Figures 5.21, 5.22: after so many deletions, how many are connected, and the height of their trees."""
    each = trials.select("design", "nodes", F.posexplode("heights").alias("deleted", "height"))
    counted = each.groupBy("design", "deleted").agg(
        F.count("*").alias("connected"), (F.sum("height") / F.sum("nodes")).alias("mean_height")
    )
    all_of_design = F.max("connected").over(Window.partitionBy("design"))
    return counted.withColumn("share_connected", F.col("connected") / all_of_design)


def by_size(trials: DataFrame) -> DataFrame:
    """Figure 5.23: how often the smaller component has so many nodes when a graph first falls apart."""
    counted = trials.groupBy("design", F.col("smaller").alias("size")).agg(F.count("*").alias("graphs"))
    return counted.withColumn("share", F.col("graphs") / F.sum("graphs").over(Window.partitionBy("design")))


def by_first_partition(trials: DataFrame) -> DataFrame:
    """Of the graphs that fell apart with so many deletions or fewer, how many lost one or two nodes only."""
    small = F.when(F.col("smaller") <= 2, 1).otherwise(0)
    counted = trials.groupBy("design", (F.col("survived") + 1).alias("deleted")).agg(
        F.count("*").alias("parted"), F.sum(small).alias("parted_small")
    )
    so_far = Window.partitionBy("design").orderBy("deleted").rowsBetween(Window.unboundedPreceding, 0)
    share = F.sum("parted_small").over(so_far) / F.sum("parted").over(so_far)
    return counted.withColumn("share_small_so_far", share)


def summary(trials: DataFrame) -> DataFrame:
    """A row for each design. `margin_survived`: the true mean is within it, 95 times of 100."""
    return trials.groupBy("design").agg(
        F.count("*").alias("graphs"),
        F.avg("edges").alias("mean_edges"),
        F.avg("survived").alias("mean_survived"),
        _margin(F.col("survived").cast("bigint")).alias("margin_survived"),
    )


def _margin(values: Column) -> Column:
    """From whole sums, whose order does not matter. A single value has no margin."""
    count, total, squares = F.count(values), F.sum(values).cast("double"), F.sum(values * values)
    variance = (squares - total * total / count) / F.nullif(count - 1, F.lit(0))
    return F.coalesce(CERTAINTY * F.sqrt(variance / count), F.lit(0.0))


def per_graph(trials: DataFrame) -> DataFrame:
    """A row for each graph, without the long lists."""
    return trials.select("design", "graph", "nodes", "edges", "survived", "smaller")


TABLES = {
    "graphs": per_graph,
    "by_deletions": by_deletions,
    "by_size": by_size,
    "by_first_partition": by_first_partition,
    "summary": summary,
}
"""The gold tables, by the names of their files. Each is sorted by its first two columns."""


def run(spark: SparkSession, study: Study) -> dict[str, pa.Table]:
    """All the tables. They are small, so the driver has them, and executors need not see its disk."""
    return run_cancellable(spark, lambda: tables(trials(spark, study)))


def tables(trials: DataFrame) -> dict[str, pa.Table]:
    """Graphs are drawn once: their rows stay with the executors until every table is made."""
    trials = trials.persist()
    try:
        return {name: _sorted(make(trials).toArrow()) for name, make in TABLES.items()}
    finally:
        trials.unpersist()


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(column, "ascending") for column in table.column_names[:2]])
