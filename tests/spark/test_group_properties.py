"""Spark's statements about groups, and the checks of the same names, say the same of all runs."""

from __future__ import annotations

from typing import Any

import pytest
from agreement import verdicts_of
from groupruns import CAUGHT, group_runs, group_tables
from pyspark.sql import SparkSession

from totempole.checkers import Outcome, Verdict
from totempole.checkers.groups import GROUPS
from totempole.checkers.verdict import LISTED_MAX
from totempole.spark import findings
from totempole.spark.properties.group import GROUP

NEVER_UNDECIDED = {"group-self-inclusion", "group-views-first", "group-one-order"}
"""What they need is in the rows of those who are judged."""

QUICK = {"group-view-agreement", "group-self-inclusion", "group-views-first", "group-one-order"}
"""A few seconds each; the others take longer, and are not stated every day."""

Verdicts = dict[tuple[str, str], Verdict]


@pytest.fixture(scope="module")
def checkers() -> Verdicts:
    return verdicts_of(group_runs(), GROUP)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in GROUP]
)
def test_both_say_the_same_in_the_same_words(name: str, spark: SparkSession, checkers: Verdicts) -> None:
    found: dict[str, list[Any]] = {run: [] for run in group_runs()}
    for row in findings.named(name, GROUP[name](group_tables(spark))).collect():
        found[row["run"]].append(row)
    for run, rows in found.items():
        verdict = checkers[run, name]
        assert _of_spark(rows) == _of_checkers(verdict), f"{run}: {verdict}"


def _of_spark(rows: list[Any]) -> tuple[str, int, list[Any]]:
    violations = [
        (tuple(row["nodes"]), tuple(row["messages"]), tuple(map(tuple, row["steps"])), row["text"])
        for row in rows
        if row["violated"]
    ]
    outcome = Outcome.VIOLATED if violations else Outcome.UNDECIDED if rows else Outcome.HOLDS
    return outcome, len(violations), sorted(violations) if len(violations) <= LISTED_MAX else []


def _of_checkers(verdict: Verdict) -> tuple[str, int, list[Any]]:
    violations = [(item.nodes, item.messages, item.steps, item.text) for item in verdict.violations]
    return verdict.outcome, verdict.count, sorted(violations) if verdict.count <= LISTED_MAX else []


@pytest.mark.parametrize("name", GROUP)
def test_the_runs_show_all_there_is_to_say(name: str, checkers: Verdicts) -> None:
    outcomes = {verdict.outcome for (_, judged), verdict in checkers.items() if judged == name}
    assert outcomes == set(Outcome) - ({Outcome.UNDECIDED} if name in NEVER_UNDECIDED else set())


def test_the_mutants_break_every_one_of_them(checkers: Verdicts) -> None:
    broken = {name for (run, name), verdict in checkers.items() if run in CAUGHT and verdict.count}
    assert broken == set(GROUP)


def test_every_property_of_groups_is_stated() -> None:
    assert list(GROUP) == [item.name for item in GROUPS.properties]
