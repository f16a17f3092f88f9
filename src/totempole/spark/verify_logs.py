"""Logs on disk judged beside the traces of the replicas that wrote them, range by range of places.

A task has the rows of the trace that are about its range, and reads the same range of every log itself: Java
never sees a record. What several ranges find is one finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.checkers.parts import PART_LISTED_MAX
from totempole.checkers.stored import STORED
from totempole.checkers.stored_logs import StoredLog, StoredLogs
from totempole.checkers.terms import Terms
from totempole.errors import ConfigurationError, StorageError
from totempole.spark import findings
from totempole.spark.checkpoint import checkpointed
from totempole.spark.in_parts import findings_of, findings_schema
from totempole.spark.log_files import LogFiles, read_items
from totempole.spark.log_parts import Told, deal, greens_in, parts_of, told_in
from totempole.spark.log_ranges import RANGE_RECORDS, RANGE_RUNS, range_of, ranges_of
from totempole.spark.oracle import without_collector
from totempole.trace.arrow import to_rows
from totempole.trace.schema import Row

NAMES = tuple(item.name for item in STORED)

_UNREADABLE = ""
"""Stands for a property, where an executor could not read a log at all."""


@dataclass(frozen=True)
class LogVerification:
    """What was found of the logs of one run."""

    run: str
    logs: Sequence[LogFiles]
    told: Told
    verdicts: DataFrame
    findings: DataFrame


def verify_logs(
    events: DataFrame,
    run: str,
    terms: Terms,
    logs: Sequence[LogFiles],
    runs_max: int = RANGE_RUNS,
    records_max: int = RANGE_RECORDS,
) -> LogVerification:
    """`events`: raw events of this run, or of several. `runs_max`, `records_max`: of a range."""
    rows = events.where((F.col("run") == run) & (F.col("layer") == "corel"))
    told = told_in(rows)
    starts = ranges_of(logs, told.stop, runs_max, records_max)
    greens = deal(greens_in(rows), starts)
    parts = parts_of(events.sparkSession, [run], starts)
    judged = greens.groupBy("run", "part").cogroup(parts.groupBy("run", "part"))
    schema = f"{findings.SCHEMA}, copy bigint"
    found = checkpointed(
        judged.applyInArrow(_judge_with(tuple(logs), told, tuple(starts), terms), schema).distinct()
    )
    for row in found.where(F.col("property") == _UNREADABLE).orderBy("text").limit(1).collect():
        raise StorageError(row["text"])
    found = found.drop("copy")
    return LogVerification(run, logs, told, findings.verdicts(parts, NAMES, found), findings.listed(found))


def run_of_logs(events: DataFrame) -> str:
    """The run that the logs are of."""
    runs = events.groupBy("run").agg(F.bool_or(F.col("layer") == "corel").alias("logged")).collect()
    logged: list[str] = sorted(row["run"] for row in runs if row["logged"])
    found = logged or sorted(row["run"] for row in runs)
    if len(found) != 1:
        raise ConfigurationError(
            f"--log: the traces have several runs ({', '.join(found[:5])}{', …' if len(found) > 5 else ''}); "
            "say with --run which one the logs are of"
        )
    return found[0]


# On the executors


def _judge_with(
    logs: tuple[LogFiles, ...], told: Told, starts: tuple[int, ...], terms: Terms
) -> Callable[[Any, Any], Any]:
    def judge(table: Any, parts: Any) -> Any:
        """`table` is the rows of a range; `parts` has its only row."""
        import pyarrow as pa

        (known,) = parts.to_pylist()
        start, stop = range_of(starts, known["part"])
        try:
            with without_collector():
                index = StoredLogs(
                    [_read(log, start, stop) for log in logs],
                    _rows(table),
                    told.tellings,
                    told.replicas,
                    start,
                    stop,
                )
                verdicts = [item.judge(index, terms, PART_LISTED_MAX) for item in STORED]
            found = [row for verdict in verdicts for row in findings_of(known["run"], verdict)]
        except StorageError as error:
            found = [_unreadable(known["run"], error)]
        return pa.Table.from_pylist(found, schema=findings_schema())

    return judge


def _read(log: LogFiles, start: int, stop: int) -> StoredLog:
    return StoredLog(log.node, list(read_items(log, start, stop)), log.place, log.pending)


def _rows(table: Any) -> list[Row]:
    rows = list(to_rows(table.drop_columns(["part"]), Path("events")))
    rows.sort(key=lambda row: (row.node, row.step))
    return rows


def _unreadable(run: str, error: StorageError) -> dict[str, Any]:
    none: dict[str, Any] = {"nodes": [], "messages": [], "steps": [], "copy": 0}
    return {"run": run, "property": _UNREADABLE, "violated": True, **none, "text": str(error)}
