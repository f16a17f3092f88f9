"""Runs judged in parts on Spark get the checkers' verdicts; silver has the one model's lives and stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import test_broken_logs
import test_broken_promises
import test_broken_traces
from agreement import silver_of, verdicts_of
from goodtraces import figure_4_15, figure_4_16
from groupnoise import noise
from pyspark.sql import SparkSession
from spoiltgroups import renumbered

from handbroken import Runs, runs_of
from oddnames import odd_run
from totempole.checkers import PROPERTIES, Verdict
from totempole.checkers.history import History
from totempole.checkers.property import Scope
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import LISTED_MAX
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.mutants import MUTANTS, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run, terms_of
from totempole.spark import findings
from totempole.spark.in_parts import JOBS, findings_in_parts
from totempole.spark.report import lives, timeline
from totempole.spark.silver import Silver
from totempole.spark.verify import NAMES, Judge, verify
from totempole.trace.schema import Row

PARTS = 3
BY_HAND_EVERY = 6
LOGS_EVERY = 16
"""Beside those of test_spark_logs.py."""
NOISE = range(8)


@pytest.fixture(scope="module")
def runs() -> Runs:
    found: dict[str, tuple[Sequence[Row], Terms]] = {
        "figure 4.15": (figure_4_15().rows, Terms(complete=True)),
        "figure 4.16": (figure_4_16().rows, Terms(complete=True)),
    }
    by_hand = {**runs_of(test_broken_traces), **runs_of(test_broken_promises)}
    logs = runs_of(test_broken_logs)
    for every, of in ((BY_HAND_EVERY, by_hand), (LOGS_EVERY, logs)):
        chosen = [name for name in [*of][::every] if of[name][0]]  # a run without rows is none
        found |= {name: (renumbered(of[name][0]), of[name][1]) for name in chosen}
    outcomes = {"ring": run(plan(0), level="checked"), "groups": run(group_plan(5), level="checked")}
    outcomes["odd names"] = odd_run()
    mutant = MUTANTS[0]
    outcomes[mutant.name] = run(plan(mutant.seed), level="checked", stack=mutated_stack(mutant))
    found |= {name: (outcome.rows, terms_of(outcome)) for name, outcome in outcomes.items()}
    found |= {f"noise {seed}": (noise(seed), Terms(seed % 2 > 0)) for seed in NOISE}
    return found


@pytest.fixture(scope="module")
def silver(spark: SparkSession, runs: Runs) -> Silver:
    return silver_of(spark, runs)


def test_every_property_is_in_one_job() -> None:
    assert Counter(item.name for job in JOBS for item in job.properties) == Counter(NAMES)
    assert {job.scope for job in JOBS} == set(Scope)


def test_parts_say_what_the_checkers_say_of_the_whole(silver: Silver, runs: Runs) -> None:
    found: dict[tuple[str, str], list[Any]] = {}
    for row in findings_in_parts(silver.bronze, silver.terms, PARTS).collect():
        found.setdefault((row["run"], row["property"]), []).append(row)
    whole = verdicts_of(runs, NAMES)
    assert len(whole) == len(runs) * len(PROPERTIES)
    for key, verdict in whole.items():
        assert _of_parts(found.get(key, [])) == _of_checkers(verdict), f"{key}: {verdict}"
    broken = {name for (_, name), verdict in whole.items() if verdict.count}
    assert len(broken) > len(PROPERTIES) // 2


def _of_parts(rows: list[Any]) -> tuple[str, int, Any]:
    violations = [
        (tuple(row["nodes"]), tuple(row["messages"]), tuple(map(tuple, row["steps"])), row["text"])
        for row in rows
        if row["violated"]
    ]
    outcome = "violated" if violations else "undecided" if rows else "holds"
    return outcome, len(violations), sorted(violations) if len(violations) <= LISTED_MAX else None


def _of_checkers(verdict: Verdict) -> tuple[str, int, Any]:
    violations = [(item.nodes, item.messages, item.steps, item.text) for item in verdict.violations]
    return verdict.outcome.value, verdict.count, sorted(violations) if verdict.count <= LISTED_MAX else None


def test_the_judge_by_name(silver: Silver, runs: Runs) -> None:
    few = silver.only(silver.terms.where("run in ('figure 4.15', 'noise 1')"))
    found = verify(few.bronze, few.terms, judge=Judge.PARTS)
    assert (found.judge, found.runs, found.grouped) == (Judge.PARTS, 2, 1)
    verdicts = {
        (row["run"], row["property"]): (row["outcome"], row["count"]) for row in found.verdicts.collect()
    }
    whole = verdicts_of({name: runs[name] for name in ("figure 4.15", "noise 1")}, NAMES)
    assert verdicts == {key: (verdict.outcome.value, verdict.count) for key, verdict in whole.items()}
    assert set(found.findings.columns) == {part.split()[0] for part in findings.SCHEMA.split(", ")}


# The model of lives and stays


def test_silver_has_the_lives_and_stays_of_the_one_model(silver: Silver, runs: Runs) -> None:
    found = {
        (
            row["run"],
            row["node"],
            row["life"],
            row["stay"],
            row["name"],
            row["regular"],
            row["ended"],
            row["open"],
        )
        for row in silver.stays.collect()
    }
    wanted = set()
    for name, (rows, _) in runs.items():
        for node, of_node in History(rows).by_node.items():
            for number, life in enumerate(of_node, 1):
                for stay in life.stays:
                    is_open = not life.ended and stay is life.stays[-1]
                    place = (number, stay.place + 1, stay.name, stay.regular)
                    wanted.add((name, node, *place, life.ended, is_open))
    assert found == wanted


def test_reports_have_the_stays_of_the_one_model(silver: Silver, runs: Runs) -> None:
    stays = timeline.stays(silver.bronze, lives.lives(silver.bronze)).collect()
    found = Counter(
        (row["run"], row["node"], row["configuration"], row["from_us"], row["ended"]) for row in stays
    )
    wanted = Counter(
        (name, life.node, stay.name, stay.at_us, life.end_of(stay)[0])
        for name, (rows, _) in runs.items()
        for life in History(rows).lives
        for stay in life.stays
    )
    assert found == wanted
