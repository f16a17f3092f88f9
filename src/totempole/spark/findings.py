"""What a property finds, in one shape, and the verdicts that follow from it.

A finding is a violation, or a reason why part of the property cannot be decided. It names nodes, messages and
steps as `checkers.verdict.Violation` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.verdict import LISTED_MAX, Outcome

SCHEMA = (
    "run string, property string, violated boolean, nodes array<bigint>, messages array<string>, "
    "steps array<struct<node:bigint,step:bigint>>, text string"
)
VERDICTS = "run string, property string, outcome string, count bigint"


def evidence(*rows: str) -> Column:
    """The rows that show a finding, each a struct column with node, step and message, in this order."""
    shown = F.array(*(F.struct(f"{row}.node", f"{row}.step", f"{row}.message") for row in rows))
    return shown.cast("array<struct<node:bigint,step:bigint,message:string>>")


def finding(
    violated: Column | bool, text: Column, rows: Column, nodes: Column | None = None
) -> tuple[Column, ...]:
    """The columns of a finding beside `run`: `rows` is what `evidence` gives, or an array of such structs.

    The nodes are `nodes`, or else those of the rows, sorted, each once; the messages are those of the rows,
    each once, in their order, without empty ones: as `Findings.violated` does it.
    """
    shown = F.filter(rows, lambda row: row.isNotNull())
    return (
        (F.lit(violated) if isinstance(violated, bool) else violated).alias("violated"),
        F.array_sort(
            F.array_distinct(nodes if nodes is not None else F.transform(shown, lambda r: r["node"]))
        )
        .cast("array<bigint>")
        .alias("nodes"),
        F.array_distinct(F.filter(F.transform(shown, lambda r: r["message"]), lambda m: m != "")).alias(
            "messages"
        ),
        F.array_distinct(F.transform(shown, lambda r: F.struct(r["node"], r["step"])))
        .cast("array<struct<node:bigint,step:bigint>>")
        .alias("steps"),
        text.alias("text"),
    )


def reason(text: Column) -> tuple[Column, ...]:
    """The columns of a finding that says why something cannot be decided."""
    return finding(False, text, evidence())


Check = tuple[Column, tuple[Column, ...]]
"""What is wrong with a row, and the finding that says so."""


def failing(rows: DataFrame, *checks: Check) -> DataFrame:
    """A finding for each row and each check that it fails."""
    found = F.array(*(F.when(wrong, F.struct(*columns)) for wrong, columns in checks))
    return rows.select("run", F.inline(F.array_compact(found)))


def named(property: str, found: Iterable[DataFrame]) -> DataFrame:
    """All findings of one property."""
    together = reduce(DataFrame.unionByName, found)
    return together.select("run", F.lit(property).alias("property"), *_COLUMNS)


_COLUMNS = ("violated", "nodes", "messages", "steps", "text")


def listed(findings: DataFrame) -> DataFrame:
    """The first of each run and property, as many as a verdict lists: smallest nodes and steps first."""
    order = Window.partitionBy("run", "property", "violated").orderBy("steps", "nodes", "text")
    numbered = findings.withColumn("place", F.row_number().over(order))
    return numbered.where(F.col("place") <= LISTED_MAX).drop("place")


def verdicts(runs: DataFrame, properties: Iterable[str], findings: DataFrame) -> DataFrame:
    """One row for each run and property: it holds where nothing was found."""
    counted = findings.groupBy("run", "property").agg(
        F.count_if("violated").alias("violations"), F.count_if(~F.col("violated")).alias("reasons")
    )
    names = F.explode(F.array(*map(F.lit, properties))).alias("property")
    every = runs.select("run").distinct().select("run", names)
    outcome = (
        F.when(F.col("violations") > 0, Outcome.VIOLATED.value)
        .when(F.col("reasons") > 0, Outcome.UNDECIDED.value)
        .otherwise(Outcome.HOLDS.value)
    )
    return every.join(counted, ["run", "property"], "left").select(
        "run", "property", outcome.alias("outcome"), F.coalesce("violations", F.lit(0)).alias("count")
    )
