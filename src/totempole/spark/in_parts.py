"""The checkers on parts of runs: how one long run is judged by the same functions as a short one.

Each property says by its scope which rows it must see together (`checkers.property`). The rows of a run are
dealt out to parts accordingly, as `checkers.parts` does it in one process; the context goes to every part.
What several parts find in the context is one finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.checkers.corel import COREL
from totempole.checkers.parts import PART_LISTED_MAX
from totempole.checkers.properties import LAYERS
from totempole.checkers.property import Facts, Indices, Layer, Property, Scope
from totempole.checkers.verdict import Verdict, Violation
from totempole.spark.findings import SCHEMA
from totempole.spark.oracle import terms_in, without_collector
from totempole.spark.schema import EVENTS
from totempole.trace.arrow import to_rows
from totempole.trace.schema import COLUMNS, Row

PART_ROWS = 250_000
"""Rows that a part has, about, beside the context."""


@dataclass(frozen=True)
class Job:
    """Properties that are judged by the same parts."""

    layer: Layer[Any]
    scope: Scope
    properties: tuple[Property[Any], ...]

    @property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(item.reads for item in self.properties))


def jobs_of(layers: Iterable[Layer[Any]]) -> list[Job]:
    """Properties that need all rows of a run are a job each: they are not split, but judged side by side."""
    jobs: dict[tuple[str, Scope, str], Job] = {}
    for layer in layers:
        for item in layer.properties:
            alone = item.name if item.scope is Scope.RUN and item.reads else ""
            key = (layer.name, item.scope, alone)
            others = jobs[key].properties if key in jobs else ()
            jobs[key] = Job(layer, item.scope, (*others, item))
    return list(jobs.values())


JOBS = jobs_of(LAYERS)

LOG_JOBS = tuple(place for place, job in enumerate(JOBS) if job.layer is COREL)
"""Those of the durable order, whose properties are stated once, here."""


def findings_in_parts(
    bronze: DataFrame, terms: DataFrame, parts: int | None = None, jobs: Iterable[int] = range(len(JOBS))
) -> DataFrame:
    """In the shape of `findings.SCHEMA`, each finding once. `parts`: how many of a run, or as it is long.
    `jobs`: those of JOBS to do."""
    count = parts or _parts_for(bronze)
    numbers = {place: 1 if JOBS[place].scope is Scope.RUN else count for place in jobs}
    wanted = sorted(frozenset().union(*(JOBS[place].reads | JOBS[place].layer.context for place in numbers)))
    rows = bronze.where(F.col("kind").isin(wanted)).withColumn("is_mark", F.lit(False))
    every = rows.unionByName(_marks(bronze))
    dealt = every.select("*", F.inline(_shares(numbers)))
    judged = dealt.groupBy("run", "job", "part").cogroup(_known(bronze, terms, numbers))
    return judged.applyInArrow(_judge, f"{SCHEMA}, copy bigint").distinct().drop("copy")


def _parts_for(bronze: DataFrame) -> int:
    rows = bronze.groupBy("run").count().agg(F.max("count")).collect()[0][0]
    return max(1, ceil((rows or 0) / PART_ROWS))


# Dealing rows out


def _shares(numbers: dict[int, int]) -> Column:
    """The jobs and parts that a row goes to. `numbers`: of parts, by job."""
    return F.flatten(F.array(*(_share(place, parts) for place, parts in numbers.items())))


def _share(place: int, parts: int) -> Column:
    job, kind = JOBS[place], F.col("kind")
    everywhere = kind.isin(*sorted(job.layer.context)) | F.col("is_mark")
    mine = F.array_distinct(F.transform(_keys(job.scope), lambda key: F.crc32(key) % parts))
    chosen = (
        F.when(everywhere, F.sequence(F.lit(0).cast("bigint"), F.lit(parts - 1).cast("bigint")))
        .when(kind.isin(*sorted(job.reads)), mine)
        .otherwise(F.array().cast("array<bigint>"))
    )
    return F.transform(chosen, lambda part: F.struct(F.lit(place).alias("job"), part.alias("part")))


def _keys(scope: Scope) -> Column:
    """As `checkers.parts` has them."""
    match scope:
        case Scope.GROUP:
            several = F.size("groups_to") > 0
            return F.when(several, F.col("groups_to")).otherwise(F.array("group"))
        case Scope.PLACE:
            return F.array(F.col("corel_place").cast("string"))
        case Scope.RUN:
            return F.array(F.lit(""))
        case _:
            return F.array(F.col(scope.value).cast("string"))


def _marks(bronze: DataFrame) -> DataFrame:
    """As `checkers.parts.marks_of` has them: where a life's rows end, and where a process's begin."""
    columns = F.struct("at_us", "layer")
    own = bronze.where("kind != 'fault'")
    last = own.groupBy("run", "node", "incarnation").agg(
        F.max("step").alias("step"), F.max_by(columns, "step").alias("row")
    )
    first = (
        bronze.where("process != ''")
        .groupBy("run", "process")
        .agg(F.min(F.struct("node", "step", "incarnation", "at_us", "layer")).alias("row"))
    )
    return _as_events(last.select("run", "node", "incarnation", "step", "row.*"), "branch").unionByName(
        _as_events(first.select("run", "process", "row.*"), "process")
    )


def _as_events(marks: DataFrame, kind: str) -> DataFrame:
    there = {*marks.columns, "kind"}
    rest = {
        column.name: F.lit(_plain(column.empty)).cast(EVENTS[column.name].dataType)
        for column in COLUMNS
        if column.name not in there
    }
    return marks.withColumns({**rest, "kind": F.lit(kind), "is_mark": F.lit(True)})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _known(bronze: DataFrame, terms: DataFrame, numbers: dict[int, int]) -> Any:
    """Terms and facts of its run, for each part."""
    receipts, sizes = F.col("kind") == "receive", (F.col("kind") == "originate") & (F.col("bytes") > 0)
    facts = bronze.groupBy("run").agg(F.bool_or(receipts).alias("receipts"), F.bool_or(sizes).alias("sizes"))
    shares = [(job, part) for job, parts in numbers.items() for part in range(parts)]
    every = F.array(
        *(F.struct(F.lit(job).alias("job"), F.lit(part).cast("bigint").alias("part")) for job, part in shares)
    )
    known = terms.join(facts, "run").select("*", F.inline(every))
    return known.groupBy("run", "job", "part")


# On the executors


def _judge(table: Any, known: Any) -> Any:
    """`table` is a part; `known` has its only row."""
    import pyarrow as pa

    (terms,) = known.to_pylist()
    found: list[dict[str, Any]] = []
    if table.num_rows:
        job, facts = JOBS[terms["job"]], Facts(terms["receipts"], terms["sizes"])
        with without_collector():
            indices = Indices(_rows(table), facts)
            for item in job.properties:
                verdict = job.layer.judge(item, indices, terms_in(terms), PART_LISTED_MAX)
                found += findings_of(terms["run"], verdict)
    return pa.Table.from_pylist(found, schema=findings_schema())


def _rows(table: Any) -> list[Row]:
    """In the order of node and step. A mark makes way for the row that it stands for."""
    columns = [column.name for column in COLUMNS]
    of_marks = table.column("is_mark")
    where = Path("events")
    import pyarrow.compute as pc

    real = list(to_rows(table.filter(pc.invert(of_marks)).select(columns), where))
    there = {(row.node, row.step) for row in real}
    marks = {(row.node, row.step): row for row in to_rows(table.filter(of_marks).select(columns), where)}
    rows = real + [row for place, row in marks.items() if place not in there]
    rows.sort(key=lambda row: (row.node, row.step))
    return rows


def findings_of(run: str, verdict: Verdict) -> Iterator[dict[str, Any]]:
    """`copy` tells equal findings of one part from each other."""
    copies: Counter[Violation] = Counter()
    for violation in verdict.violations:
        copies[violation] += 1
        yield {
            "copy": copies[violation],
            "run": run,
            "property": verdict.property,
            "violated": True,
            "nodes": list(violation.nodes),
            "messages": list(violation.messages),
            "steps": [{"node": node, "step": step} for node, step in violation.steps],
            "text": violation.text,
        }
    nothing: dict[str, Any] = {"nodes": [], "messages": [], "steps": [], "copy": 0}
    for reason in dict.fromkeys(verdict.reasons):
        yield {"run": run, "property": verdict.property, "violated": False, **nothing, "text": reason}


def findings_schema() -> Any:
    """`findings.SCHEMA` and `copy` once more: an executor has no session that could read it."""
    import pyarrow as pa

    step = pa.struct([("node", pa.int64()), ("step", pa.int64())])
    return pa.schema(
        [
            ("run", pa.string()),
            ("property", pa.string()),
            ("violated", pa.bool_()),
            ("nodes", pa.list_(pa.int64())),
            ("messages", pa.list_(pa.string())),
            ("steps", pa.list_(step)),
            ("text", pa.string()),
            ("copy", pa.int64()),
        ]
    )
