"""Was every guarantee kept? Bronze and terms in, verdicts and findings out.

There are three judges, which say the same. The checkers take a run at a time, whole, on one core: as many
runs at once as there are cores. In parts, the same checkers take as much of a run at a time as the scope of
each property allows. The statements say the properties of rings and groups once more, as tables, by other
means; but planning them alone takes Spark ten seconds and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.properties import PROPERTIES
from totempole.checkers.verdict import LISTED_MAX
from totempole.errors import TraceError
from totempole.spark import findings, oracle
from totempole.spark.checkpoint import checkpoint_all, checkpointed
from totempole.spark.in_parts import findings_in_parts
from totempole.spark.silver import Silver
from totempole.spark.statements import Tell, findings_of_statements

NAMES = tuple(item.name for item in PROPERTIES)

CHECKED_MAX = 1_000_000
"""Rows that the checkers take at a time, unless the judge is named: about a gigabyte, and half a minute."""


class Judge(StrEnum):
    STATEMENTS = "statements"
    CHECKERS = "checkers"
    PARTS = "parts"


@dataclass(frozen=True)
class Verification:
    """What was found."""

    judge: Judge
    runs: int
    events: int
    absent: list[tuple[str, int]]
    """Runs and nodes: members of configurations that left no trace. The first few."""
    verdicts: DataFrame
    """run, property, outcome, count: one row for each run and property."""
    findings: DataFrame
    """Violations, and why something is undecided; of each run and property the first few."""
    grouped: int
    """How many runs have process groups: of the others, what is said of groups holds of nothing."""
    logged: int
    """How many have a log: of the others, what is said of it holds of nothing."""


def verify(
    bronze: DataFrame,
    terms: DataFrame,
    tell: Tell = lambda done, note: None,
    judge: Judge | None = None,
) -> Verification:
    """`tell` hears how many properties are done, of `len(NAMES)`, and the name of the last."""
    silver = Silver(bronze, checkpointed(terms))
    checkpoint_all(silver, ("spans",))
    check_steps(silver)
    rows = silver.spans.groupBy("run").agg(F.sum("rows").alias("rows")).agg(F.sum("rows"), F.max("rows"))
    total, most = rows.collect()[0]
    judge = judge or (Judge.CHECKERS if (most or 0) <= CHECKED_MAX else Judge.STATEMENTS)
    if judge is Judge.CHECKERS:
        return by_checkers(oracle.judge_runs(bronze, silver.terms))
    found = _found(judge, silver, tell)
    return Verification(
        judge,
        silver.terms.count(),
        int(total or 0),
        absentees(silver),
        findings.verdicts(silver.terms, NAMES, found),
        findings.listed(found),
        silver.spans.where("grouped").select("run").distinct().count(),
        silver.spans.where("logged").select("run").distinct().count(),
    )


def _found(judge: Judge, silver: Silver, tell: Tell) -> DataFrame:
    if judge is Judge.STATEMENTS:
        return findings_of_statements(silver, tell)
    found = checkpointed(findings_in_parts(silver.bronze, silver.terms))
    tell(len(NAMES), "all parts")
    return found


def by_checkers(judged: DataFrame) -> Verification:
    """`judged`: what `oracle` found."""
    judged = checkpointed(judged)
    counts = (F.count("*"), F.sum("rows"), F.count_if("grouped"), F.count_if("logged"))
    runs, rows, grouped, logged = judged.agg(*counts).collect()[0]
    for row in judged.where("trouble is not null").orderBy("run").limit(1).collect():
        raise TraceError(row["trouble"])
    missing = judged.select("run", F.explode("absent").alias("node")).orderBy("run", "node").limit(LISTED_MAX)
    return Verification(
        Judge.CHECKERS,
        runs,
        int(rows or 0),
        [(row["run"], row["node"]) for row in missing.collect()],
        oracle.verdicts_in(judged, NAMES),
        oracle.findings_in(judged),
        grouped,
        logged,
    )


def check_steps(silver: Silver) -> None:
    """A node counts its events: more events than steps are those of two runs with one name."""
    steps = F.max("last") - F.min("first") + 1
    each = silver.spans.groupBy("run", "node").agg(F.sum("events").alias("events"), steps.alias("steps"))
    for row in each.where("events > steps").orderBy("run", "node").limit(1).collect():
        files = _files_of(silver.bronze, row["run"], row["node"])
        raise TraceError(
            oracle.twice_told(files, *(row[name] for name in ("run", "node", "events", "steps")))
        )


def _files_of(bronze: DataFrame, run: str, node: int) -> list[str]:
    rows = bronze.where((F.col("run") == run) & (F.col("node") == node))
    names = rows.select(F.input_file_name().alias("file")).distinct().orderBy("file").collect()
    return [row["file"].removeprefix("file://") for row in names if row["file"]]


def absentees(silver: Silver) -> list[tuple[str, int]]:
    """Runs and nodes: members of configurations that left no trace."""
    changes = silver.bronze.where("kind = 'configuration'")
    members = changes.select("run", F.explode("members").alias("node")).distinct()
    missing = members.join(silver.spans, ["run", "node"], "left_anti").orderBy("run", "node")
    return [(row["run"], row["node"]) for row in missing.limit(LISTED_MAX).collect()]


def sentences(found: Verification) -> DataFrame:
    """run, property, outcome, count, text: the verdicts, each with the first of what was found, or null."""
    order = Window.partitionBy("run", "property").orderBy(~F.col("violated"), "steps", "nodes", "text")
    first = found.findings.withColumn("place", F.row_number().over(order)).where("place = 1")
    return found.verdicts.join(first.select("run", "property", "text"), ["run", "property"], "left")


def outcomes(verdicts: DataFrame, names: Iterable[str] = NAMES) -> Mapping[str, Mapping[str, int]]:
    """For each property how many runs have which outcome."""
    counted = verdicts.groupBy("property", "outcome").count().collect()
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for row in counted:
        found[row["property"]][row["outcome"]] = row["count"]
    return found
