"""Spark's verdicts and the checkers': the same for each property, of good runs and of every mutant's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agreement import Runs, silver_of, verdicts_of
from pyspark.sql import SparkSession
from verifiedruns import broken_runs, clean_runs, few_runs

from totempole.checkers.terms import Terms
from totempole.checkers.verdict import LISTED_MAX, Outcome, Verdict
from totempole.spark import prefilter
from totempole.spark.bronze import find_files
from totempole.spark.oracle import judge_files, judge_runs
from totempole.spark.run_files import group_by_run
from totempole.spark.silver import Silver
from totempole.spark.sums import Sums
from totempole.spark.verify import NAMES, Judge, Verification, by_checkers, verify
from totempole.trace.parquet import write_parquet
from totempole.trace.schema import Row


@pytest.fixture(scope="module", params=["a few", pytest.param("every mutant", marks=pytest.mark.long)])
def runs(request: pytest.FixtureRequest) -> Runs:
    return few_runs() if request.param == "a few" else {**clean_runs(), **broken_runs()}


@pytest.fixture(scope="module")
def silver(spark: SparkSession, runs: Runs) -> Iterator[Silver]:
    made = silver_of(spark, runs)
    yield made
    made.bronze.unpersist()


@pytest.fixture(scope="module")
def checkers(runs: Runs) -> dict[tuple[str, str], Verdict]:
    return verdicts_of(runs, NAMES)


@pytest.fixture(scope="module")
def suspects(silver: Silver) -> set[tuple[str, str]]:
    rows = prefilter.suspects(Sums(silver).checkpointed()).collect()
    return {(row["run"], row["property"]) for row in rows}


@pytest.mark.long
def test_both_say_the_same_and_name_the_same(
    silver: Silver, checkers: dict[tuple[str, str], Verdict]
) -> None:
    judged = verify(silver.bronze, silver.terms, judge=Judge.STATEMENTS)
    mine = {
        (row["run"], row["property"]): (row["outcome"], row["count"]) for row in judged.verdicts.collect()
    }
    assert {key: (verdict.outcome.value, verdict.count) for key, verdict in checkers.items()} == mine
    named: dict[tuple[str, str], list[object]] = {key: [] for key in checkers}
    for row in judged.findings.where("violated").collect():
        named[row["run"], row["property"]].append((tuple(row["nodes"]), sorted(row["messages"])))
    for key, verdict in checkers.items():
        if verdict.count <= LISTED_MAX:
            theirs = [(violation.nodes, sorted(violation.messages)) for violation in verdict.violations]
            assert sorted(named[key], key=str) == sorted(theirs, key=str), key


def test_nothing_is_cleared_that_does_not_hold(
    suspects: set[tuple[str, str]], checkers: dict[tuple[str, str], Verdict]
) -> None:
    doubtful = {key for key, verdict in checkers.items() if verdict.outcome is not Outcome.HOLDS}
    assert {key for key in doubtful if key[1] in prefilter.PROPERTIES} <= suspects


def test_good_runs_are_mostly_cleared(suspects: set[tuple[str, str]], runs: Runs) -> None:
    """Or the test before would be true of one that suspects everything."""
    good = [run for run in runs if run.endswith("complete")]
    cleared = [(run, name) for run in good for name in prefilter.PROPERTIES if (run, name) not in suspects]
    assert len(cleared) > 0.8 * len(good) * len(prefilter.PROPERTIES)


def test_the_oracle_on_executors_is_the_oracle(
    silver: Silver, checkers: dict[tuple[str, str], Verdict]
) -> None:
    check_verdicts(by_checkers(judge_runs(silver.bronze, silver.terms)), checkers)


def check_verdicts(found: Verification, checkers: dict[tuple[str, str], Verdict]) -> None:
    """The same verdicts, in the same words."""
    verdicts = {(row["run"], row["property"]): row for row in found.verdicts.collect()}
    told: dict[tuple[str, str, bool], list[str]] = {}
    for row in found.findings.collect():
        told.setdefault((row["run"], row["property"], row["violated"]), []).append(row["text"])
    assert verdicts.keys() == checkers.keys()
    for key, verdict in checkers.items():
        assert (verdicts[key]["outcome"], verdicts[key]["count"]) == (verdict.outcome.value, verdict.count)
        assert told.get((*key, True), []) == [violation.text for violation in verdict.violations]
        assert told.get((*key, False), []) == list(verdict.reasons)


def test_the_oracle_reads_files(
    spark: SparkSession, tmp_path: Path, runs: Runs, checkers: dict[tuple[str, str], Verdict]
) -> None:
    """Some runs share a file; another has one for each node."""
    *several, last = runs
    write_parquet(tmp_path / "part-00000.parquet", [_named(runs, run) for run in several])
    for node in {row.node for row in runs[last][0]}:
        directory = tmp_path / f"run={last}" / f"node={node}"
        directory.mkdir(parents=True)
        rows = [row for row in _named(runs, last) if row.node == node]
        write_parquet(directory / "part-00000.parquet", [rows])
    groups = group_by_run(find_files([tmp_path]))
    assert {group.runs for group in groups} == {frozenset(several), frozenset({last})}
    found = by_checkers(judge_files(spark, groups, {run: terms for run, (_, terms) in runs.items()}, Terms()))
    check_verdicts(found, checkers)
    assert found.runs == len(runs)
    assert found.events == sum(len(rows) for rows, _ in runs.values())
    assert set(found.absent[:1]) <= {(run, 2) for run in runs if run.endswith("missing")}
    assert found.absent


def _named(runs: Runs, run: str) -> list[Row]:
    return [row._replace(run=run) for row in runs[run][0]]
