"""The job of `totem verify`: from trace files to what a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from totempole.checkers.terms import Terms
from totempole.checkers.terms_file import read_terms
from totempole.checkers.verdict import LISTED_MAX, Outcome
from totempole.errors import TraceError
from totempole.spark.bronze import damage, find_files, read_events
from totempole.spark.checkpoint import checkpointed
from totempole.spark.log_files import LogFiles, find_logs
from totempole.spark.oracle import judge_files as judge_groups
from totempole.spark.oracle import judge_runs
from totempole.spark.run_files import group_by_run
from totempole.spark.silver import Silver
from totempole.spark.statements import Tell
from totempole.spark.tables import Tables
from totempole.spark.terms import terms_of, terms_table
from totempole.spark.verify import CHECKED_MAX, Judge, Verification, absentees, by_checkers, outcomes, verify
from totempole.spark.verify_logs import NAMES as STORED_NAMES
from totempole.spark.verify_logs import LogVerification, run_of_logs, verify_logs

LISTED = 1_000
"""Findings that are brought to the driver. The tables have all of them."""


@dataclass(frozen=True)
class Judged:
    runs: int
    events: int
    outcomes: Mapping[str, Mapping[str, int]]
    """For each property how many runs have which outcome."""
    listed: list[dict[str, Any]]
    """Findings, violations first."""
    absent: list[tuple[str, int]]
    """Runs and nodes: members of configurations that left no trace."""
    grouped: int = 0
    """How many runs have process groups."""
    logged: int = 0
    """How many have a log."""
    disagreements: list[str] = field(default_factory=list)
    """Where the checkers say otherwise."""
    logs: Sequence[LogFiles] = ()
    """The logs on disk that were judged, too."""

    @property
    def holds(self) -> bool:
        violated = any(counts.get(Outcome.VIOLATED, 0) for counts in self.outcomes.values())
        return not (violated or self.absent or self.disagreements)


def judge_files(
    spark: SparkSession,
    paths: Sequence[Path],
    otherwise: Terms,
    *,
    runs: Sequence[str] | None = None,
    by: Judge | None = None,
    oracle: bool = False,
    tables: Path | None = None,
    logs: Sequence[Path] = (),
    tell: Tell = lambda done, note: None,
) -> Judged:
    """`otherwise`: what holds of runs of which no file tells the terms. `oracle`: by both judges. `logs`: the
    directories of logs on disk, which are judged, too."""
    files = find_files(paths)
    there = find_logs(logs)
    try:
        known = {run: terms for path in paths if path.is_dir() for run, terms in read_terms(path).items()}
        stored = None
        if there:
            events = _chosen(read_events(spark, files), runs)
            run = run_of_logs(events)
            stored = verify_logs(events, run, known.get(run, otherwise), there)
        if tables is not None:
            kept = Tables(spark, tables)
            kept.update(files, known, otherwise, tell)
            if stored is not None:
                kept.keep_logs(stored)
            return _with_logs(_from_tables(kept, runs), stored)
        if not (runs or oracle) and by in (None, Judge.CHECKERS):
            groups = group_by_run(files)
            if by is Judge.CHECKERS or max(group.rows for group in groups) <= CHECKED_MAX:
                judged = _judged(by_checkers(judge_groups(spark, groups, known, otherwise)))
                return _with_logs(judged, stored)
        events = _chosen(read_events(spark, files), runs)
        terms = checkpointed(terms_of(events, terms_table(spark, known), otherwise))
        return _with_logs(judge(events, terms, by=by, oracle=oracle, tell=tell), stored)
    except (PySparkException, Py4JJavaError) as error:
        found = damage(error)
        if found is None:
            raise
        raise found from None


def _with_logs(judged: Judged, stored: LogVerification | None) -> Judged:
    """The same, and what was found of logs on disk."""
    if stored is None:
        return judged
    counts = outcomes(stored.verdicts, STORED_NAMES)
    listed = sorted([*judged.listed, *_first(stored.findings)], key=lambda row: not row["violated"])
    return replace(judged, outcomes={**judged.outcomes, **counts}, listed=listed[:LISTED], logs=stored.logs)


def _from_tables(tables: Tables, runs: Sequence[str] | None) -> Judged:
    events = _chosen(tables.read("bronze/events"), runs)
    few = F.broadcast(events.select("run").distinct())
    verdicts = tables.read("gold/verdicts").join(few, "run", "left_semi")
    rows = tables.read("gold/findings").join(few, "run", "left_semi")
    return Judged(
        runs=verdicts.select("run").distinct().count(),
        events=events.count(),
        outcomes=outcomes(verdicts),
        listed=_first(rows),
        absent=absentees(Silver(events, verdicts)),
        grouped=events.where("kind = 'process'").select("run").distinct().count(),
        logged=events.where("layer = 'corel'").select("run").distinct().count(),
    )


def judge(
    events: DataFrame,
    terms: DataFrame,
    *,
    by: Judge | None = None,
    oracle: bool = False,
    tell: Tell = lambda done, note: None,
) -> Judged:
    verification = verify(events, terms, tell, Judge.STATEMENTS if oracle else by)
    disagreements = (
        _compare(verification.verdicts, by_checkers(judge_runs(events, terms)).verdicts) if oracle else []
    )
    return _judged(verification, disagreements)


def _judged(found: Verification, disagreements: Sequence[str] = ()) -> Judged:
    return Judged(
        runs=found.runs,
        events=found.events,
        outcomes=outcomes(found.verdicts),
        listed=_first(found.findings),
        absent=found.absent,
        grouped=found.grouped,
        logged=found.logged,
        disagreements=list(disagreements),
    )


def _chosen(events: DataFrame, runs: Sequence[str] | None) -> DataFrame:
    if not runs:
        return events
    chosen = events.where(F.col("run").isin(*runs))
    there = {row["run"] for row in chosen.select("run").distinct().collect()}
    for run in runs:
        if run not in there:
            raise TraceError(f"--run {run}: no events of this run in the traces")
    return chosen


def _compare(mine: DataFrame, theirs: DataFrame) -> list[str]:
    """Verdicts on which Spark's statements and the checkers do not agree."""
    checkers = theirs.select(
        "run", "property", F.col("outcome").alias("other"), F.col("count").alias("others")
    )
    both = mine.join(checkers, ["run", "property"], "full")
    different = both.where("not (outcome <=> other and count <=> others)").orderBy("run", "property")
    return [
        f"run {row['run']}, {row['property']}: {row['other']} ({row['others']}) and not {row['outcome']} "
        f"({row['count']})"
        for row in different.limit(LISTED_MAX).collect()
    ]


def _first(rows: DataFrame) -> list[dict[str, Any]]:
    chosen = rows.orderBy(~F.col("violated"), "run", "property").limit(LISTED)
    return [_plain(row) for row in chosen.collect()]


def _plain(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = row.asDict()
    found["steps"] = [(step["node"], step["step"]) for step in row["steps"]]
    return found
