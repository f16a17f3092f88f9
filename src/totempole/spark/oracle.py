"""The checkers themselves, run by run, on the executors: an independent opinion of every verdict.

They know nothing of `properties`, which state the same for Spark. On the same runs the two must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.checkers import Liveness, Verdict, check
from totempole.checkers.terms import Terms
from totempole.trace.schema import Row

SCHEMA = (
    "run string, property string, outcome string, count bigint, violations array<struct<nodes:array<bigint>,"
    "messages:array<string>,steps:array<struct<node:bigint,step:bigint>>,text:string>>, reasons array<string>"
)


def judge_runs(bronze: DataFrame, terms: DataFrame) -> DataFrame:
    """A row for each run and property, with what the checkers list."""
    rows = bronze.join(F.broadcast(terms), "run").sortWithinPartitions("run", "node", "step")
    return rows.groupBy("run").applyInArrow(_judge, SCHEMA)


def _judge(table: Any) -> Any:
    """`table` is all of a run."""
    import pyarrow as pa

    order = [("node", "ascending"), ("step", "ascending")]
    table = table.sort_by(order)
    terms = _terms(table.slice(0, 1).to_pylist()[0])
    columns = [table.column(name).to_pylist() for name in Row._fields]
    columns[Row._fields.index("members")] = list(map(tuple, columns[Row._fields.index("members")]))
    report = check(
        map(Row, *columns), terms.complete, expectation=terms.expectation, same_clock=terms.same_clock
    )
    run = columns[0][0]
    return pa.Table.from_pylist(list(_rows(run, report.verdicts)), schema=_arrow_schema())


def _terms(row: dict[str, Any]) -> Terms:
    wanted = row["expectation"]
    expectation = None
    if wanted is not None:
        groups = tuple(tuple(group) for group in wanted["groups"])
        expectation = Liveness(wanted["at_us"], groups, wanted["bound_us"])
    return Terms(row["complete"], row["same_clock"], expectation)


def _rows(run: str, verdicts: tuple[Verdict, ...]) -> Iterator[dict[str, Any]]:
    for verdict in verdicts:
        yield {
            "run": run,
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
    return pa.schema(
        [
            *((name, pa.string()) for name in ("run", "property", "outcome")),
            ("count", pa.int64()),
            ("violations", pa.list_(violation)),
            ("reasons", pa.list_(pa.string())),
        ]
    )
