"""The durable order's properties on Spark: in parts, and beside the statements of the other layers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import test_broken_logs
from agreement import silver_of, verdicts_of
from loggroups import World
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spoiltgroups import renumbered

from handbroken import Runs, runs_of
from totempole.checkers.corel import COREL
from totempole.checkers.terms import Terms
from totempole.spark.in_parts import LOG_JOBS, findings_in_parts
from totempole.spark.silver import Silver
from totempole.spark.verify import Judge, verify
from totempole.trace.schema import Row

PARTS = 2
EVERY = 7
NAMES = [item.name for item in COREL.properties]


@pytest.fixture(scope="module")
def runs() -> Runs:
    by_hand = runs_of(test_broken_logs)
    found: dict[str, tuple[Sequence[Row], Terms]] = {
        name: (renumbered(by_hand[name][0]), by_hand[name][1]) for name in [*by_hand][::EVERY]
    }
    world = World(1, 3)
    world.random_run(changes=6, appends=6)
    found["log"] = world.rows, Terms(complete=True)
    return found


@pytest.fixture(scope="module")
def silver(spark: SparkSession, runs: Runs) -> Silver:
    return silver_of(spark, runs)


def test_parts_say_what_the_checkers_say(silver: Silver, runs: Runs) -> None:
    found: dict[tuple[str, str], set[str]] = {}
    for row in findings_in_parts(silver.bronze, silver.terms, PARTS, LOG_JOBS).collect():
        if row["violated"]:
            found.setdefault((row["run"], row["property"]), set()).add(row["text"])
    whole = {
        key: {violation.text for violation in verdict.violations}
        for key, verdict in verdicts_of(runs, NAMES).items()
        if verdict.count
    }
    assert found == whole
    assert len({name for _, name in whole}) > len(NAMES) // 2


def test_only_runs_that_have_a_log_are_said_to(silver: Silver, runs: Runs) -> None:
    logged = {row["run"] for row in silver.spans.where("logged").select("run").collect()}
    assert logged == {name for name, (rows, _) in runs.items() if any(row.layer == "corel" for row in rows)}


@pytest.mark.long
def test_the_statements_leave_the_log_to_the_parts(silver: Silver, runs: Runs) -> None:
    whole = {key: verdict.count for key, verdict in verdicts_of(runs, NAMES).items()}
    chosen = sorted({run for (run, _), count in whole.items() if count})[:2]
    few = silver.only(silver.terms.where(F.col("run").isin(*chosen)))
    found = verify(few.bronze, few.terms, judge=Judge.STATEMENTS)
    assert (found.judge, found.runs, found.logged) == (Judge.STATEMENTS, 2, 2)
    counts = {(row["run"], row["property"]): row["count"] for row in found.verdicts.collect()}
    assert {key: counts[key] for key in counts if key[1] in NAMES} == {
        key: count for key, count in whole.items() if key[0] in chosen
    }
