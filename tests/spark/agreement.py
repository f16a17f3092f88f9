"""Runs to judge, and whether Spark's properties and the checkers say the same of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from handbroken import Runs
from totempole.checkers import Verdict
from totempole.checkers.properties import judge_rows
from totempole.checkers.verdict import LISTED_MAX
from totempole.spark import findings
from totempole.spark.schema import EVENTS
from totempole.spark.silver import Silver
from totempole.spark.terms import terms_table
from totempole.trace.schema import flat

SparkProperty = Callable[[Any], Iterable[DataFrame]]


def silver_of(spark: SparkSession, runs: Runs) -> Silver:
    rows = [row._replace(run=run) for run, (events, _) in runs.items() for row in events]
    bronze = spark.createDataFrame(list(map(flat, rows)), EVENTS).repartition(2, "run").cache()
    return Silver(bronze, terms_table(spark, {run: terms for run, (_, terms) in runs.items()}))


def verdicts_of(runs: Runs, names: Iterable[str]) -> dict[tuple[str, str], Verdict]:
    """What the checkers say, each run's rows in the order of node and step."""
    wanted = set(names)
    found = {}
    for run, (rows, terms) in runs.items():
        ordered = sorted(rows, key=lambda row: (row.node, row.step))
        report = judge_rows(ordered, terms)
        found |= {
            (run, verdict.property): verdict for verdict in report.verdicts if verdict.property in wanted
        }
    return found


def disagreements(silver: Any, runs: Runs, properties: Mapping[str, SparkProperty]) -> list[str]:
    """One line for each run and property of which the two do not say the same; `silver` has these runs."""
    together = [findings.named(name, statement(silver)) for name, statement in properties.items()]
    found: dict[tuple[str, str], list[Any]] = {}
    for frame in together:
        for row in frame.collect():
            found.setdefault((row["run"], row["property"]), []).append(row)
    lines = []
    for key, verdict in verdicts_of(runs, properties).items():
        lines += _compare(key, verdict, found.get(key, []))
    return lines


def _compare(key: tuple[str, str], verdict: Verdict, found: list[Any]) -> Iterable[str]:
    violations = [row for row in found if row["violated"]]
    outcome = "violated" if violations else "undecided" if found else "holds"
    if outcome != verdict.outcome.value:
        shown = [row["text"] for row in found[:3]]
        yield f"{key}: checkers say {verdict}, Spark {outcome} {shown}"
        return
    if len(violations) != verdict.count:
        shown = [row["text"] for row in violations[:5]]
        yield f"{key}: checkers count {verdict.count}, Spark {len(violations)}: {verdict} / {shown}"
        return
    if verdict.count <= LISTED_MAX:
        mine = Counter((tuple(row["nodes"]), tuple(sorted(row["messages"]))) for row in violations)
        theirs = Counter(
            (violation.nodes, tuple(sorted(violation.messages))) for violation in verdict.violations
        )
        if mine != theirs:
            yield f"{key}: only checkers {theirs - mine}, only Spark {mine - theirs}"
