"""The checkers themselves on the executors, a run at a time: the judge of many small runs.

They know nothing of `properties`, which state the same for Spark: on the same runs the two must agree. A task
reads the files of some runs by the trace's own reader, and Java never sees a row; or it is given the rows of
a DataFrame, run by run.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from totempole.checkers import Liveness, Verdict
from totempole.checkers.properties import judge_rows
from totempole.checkers.terms import Alarmed, Calm, Terms
from totempole.checkers.terms_file import STRETCHES, from_json, to_json
from totempole.checkers.verdict import Outcome
from totempole.errors import TraceError
from totempole.spark.run_files import RunFiles
from totempole.spark.session import cores_of
from totempole.trace.arrow import to_rows
from totempole.trace.reader import read_trace
from totempole.trace.schema import Row

TASKS_OF_A_CORE = 16

_FINDING = (
    "nodes:array<bigint>,messages:array<string>,steps:array<struct<node:bigint,step:bigint>>,text:string"
)
SCHEMA = (
    "run string, rows bigint, grouped boolean, logged boolean, absent array<bigint>, trouble string, "
    "doubts array<struct<property:string,"
    f"outcome:string,count:bigint,violations:array<struct<{_FINDING}>>,reasons:array<string>>>"
)
"""One row for each run. grouped: it has process groups; logged: it has a log; absent: members of its
configurations that left no trace; trouble: why it cannot be judged; doubts: the verdicts that are not that a
property holds."""


def judge_files(
    spark: SparkSession, groups: Sequence[RunFiles], known: Mapping[str, Terms], otherwise: Terms
) -> DataFrame:
    """`otherwise`: what holds of runs of which nothing is known."""
    rows = []
    for group in sorted(groups, key=lambda group: -group.rows):
        terms = {run: to_json(known.get(run, otherwise)) for run in group.runs}
        rows.append(([str(file) for file in group.files], json.dumps(terms)))
    tasks = min(len(rows), TASKS_OF_A_CORE * cores_of(spark))
    work = spark.createDataFrame(rows, "files array<string>, terms string").repartition(tasks)
    return work.mapInArrow(_judge_groups, SCHEMA)


def judge_runs(bronze: DataFrame, terms: DataFrame) -> DataFrame:
    """The terms come once for each run: beside every row they would cost more than all the rest."""
    return bronze.groupBy("run").cogroup(terms.groupBy("run")).applyInArrow(_judge_table, SCHEMA)


def verdicts_in(judged: DataFrame, properties: Iterable[str]) -> DataFrame:
    """In the shape of `findings.VERDICTS`."""
    names = F.explode(F.array(*map(F.lit, properties))).alias("property")
    doubts = judged.select("run", F.inline("doubts")).select("run", "property", "outcome", "count")
    return (
        judged.select("run", names)
        .join(doubts, ["run", "property"], "left")
        .fillna({"outcome": Outcome.HOLDS.value, "count": 0})
    )


def findings_in(judged: DataFrame) -> DataFrame:
    """In the shape of `findings.SCHEMA`."""
    doubts = judged.select("run", F.inline("doubts"))
    told = doubts.select("run", "property", F.lit(True).alias("violated"), F.inline("violations"))
    why = doubts.select("run", "property", F.lit(False).alias("violated"), F.explode("reasons").alias("text"))
    none = {name: F.array().cast(told.schema[name].dataType) for name in ("nodes", "messages", "steps")}
    return told.unionByName(why.withColumns(none))


# On the executors


def _judge_groups(batches: Iterator[Any]) -> Iterator[Any]:
    """`batches` have files and terms, a group in each row."""
    for batch in batches:
        for group in batch.to_pylist():
            with without_collector():
                judged = list(_judge_group(group["files"], json.loads(group["terms"])))
            yield _batch(judged)


def _judge_group(files: list[str], terms: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        rows = [row for file in files for row in read_trace(Path(file))]
    except TraceError as error:
        yield _refused("", str(error))
        return
    rows.sort(key=attrgetter("run", "node", "step"))
    for run, of_run in groupby(rows, key=attrgetter("run")):
        if run in terms:
            yield _judge(list(of_run), from_json(terms[run]), files)
        else:
            yield _refused(run, f"{', '.join(files)}: events of run {run!r} in the directory of another")


def _refused(run: str, why: str) -> dict[str, Any]:
    return {
        "run": run,
        "rows": 0,
        "grouped": False,
        "logged": False,
        "absent": [],
        "trouble": why,
        "doubts": [],
    }


def _judge_table(table: Any, terms: Any) -> Any:
    """`table` is all of a run; `terms` has its only row."""
    import pyarrow as pa

    with without_collector():
        rows = list(to_rows(table, Path("events")))
        rows.sort(key=attrgetter("node", "step"))
        judged = _judge(rows, terms_in(terms.to_pylist()[0]), [])
    return pa.Table.from_batches([_batch([judged])])


@contextmanager
def without_collector() -> Iterator[None]:
    """A million rows have no cycles, and it would look for some again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def terms_in(row: dict[str, Any]) -> Terms:
    """Of a row of `terms.SCHEMA`."""
    wanted = row["expectation"]
    expectation = None
    if wanted is not None:
        groups = tuple(tuple(group) for group in wanted["groups"])
        expectation = Liveness(wanted["at_us"], groups, wanted["bound_us"])
    stretches = {
        name: tuple(Calm(each["from_us"], each["settled_us"], each["to_us"]) for each in row[name])
        for name in STRETCHES
    }
    alarmed = tuple(
        Alarmed(each["network"], each["from_us"], each["told_us"], each["why"]) for each in row["alarmed"]
    )
    return Terms(row["complete"], row["same_clock"], expectation, alarmed=alarmed, **stretches)


def _judge(rows: list[Row], terms: Terms, files: Sequence[str]) -> dict[str, Any]:
    """Of one run, its rows in the order of node and step."""
    run, trouble = rows[0].run, _twice(rows, files)
    if trouble:
        return _refused(run, trouble)
    report = judge_rows(rows, terms)
    doubts = [_data(verdict) for verdict in report.verdicts if verdict.outcome is not Outcome.HOLDS]
    return {
        "run": run,
        "rows": len(rows),
        "grouped": any(row.kind == "process" for row in rows),
        "logged": any(row.layer == "corel" for row in rows),
        "absent": _absent(rows),
        "trouble": None,
        "doubts": doubts,
    }


def _absent(rows: list[Row]) -> list[int]:
    members = {member for row in rows if row.kind == "configuration" for member in row.members}
    return sorted(members - {row.node for row in rows})


def _twice(rows: list[Row], files: Sequence[str]) -> str | None:
    """A node counts its events: see `verify.check_steps`."""
    for node, of_node in groupby(rows, key=attrgetter("node")):
        steps = [row.step for row in of_node if row.kind != "fault"]
        if steps and len(steps) > steps[-1] - steps[0] + 1:
            return twice_told(files, rows[0].run, node, len(steps), steps[-1] - steps[0] + 1)
    return None


def twice_told(files: Sequence[str], run: str, node: int, events: int, steps: int) -> str:
    where = f"{', '.join(files)}: " if files else ""
    return (
        f"{where}node {node} of run {run!r} has {events} events in {steps} steps: are these two runs with "
        "one name, or files that are there twice?"
    )


def _data(verdict: Verdict) -> dict[str, Any]:
    return {
        "property": verdict.property,
        "outcome": verdict.outcome.value,
        "count": verdict.count,
        "violations": [
            {
                "nodes": list(violation.nodes),
                "messages": list(violation.messages),
                "steps": [{"node": node, "step": step} for node, step in violation.steps],
                "text": violation.text,
            }
            for violation in verdict.violations
        ],
        "reasons": list(verdict.reasons),
    }


def _batch(judged: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(judged, schema=_arrow_schema())


@cache
def _arrow_schema() -> Any:
    """SCHEMA once more: an executor has no session that could read it."""
    import pyarrow as pa

    step = pa.struct([("node", pa.int64()), ("step", pa.int64())])
    violation = pa.struct(
        [
            ("nodes", pa.list_(pa.int64())),
            ("messages", pa.list_(pa.string())),
            ("steps", pa.list_(step)),
            ("text", pa.string()),
        ]
    )
    doubt = pa.struct(
        [
            *((name, pa.string()) for name in ("property", "outcome")),
            ("count", pa.int64()),
            ("violations", pa.list_(violation)),
            ("reasons", pa.list_(pa.string())),
        ]
    )
    return pa.schema(
        [
            ("run", pa.string()),
            ("rows", pa.int64()),
            ("grouped", pa.bool_()),
            ("logged", pa.bool_()),
            ("absent", pa.list_(pa.int64())),
            ("trouble", pa.string()),
            ("doubts", pa.list_(doubt)),
        ]
    )
