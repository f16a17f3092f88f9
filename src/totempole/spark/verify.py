"""Was every guarantee kept? Bronze and terms in, verdicts and findings out.

Properties that look at few rows, such as those of membership, are stated for all runs. Those of messages are
stated for the runs that `suspicion` could not clear; those of groups for the runs that have groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.checkers.properties import PROPERTIES
from totempole.checkers.verdict import LISTED_MAX
from totempole.errors import TraceError
from totempole.spark import findings, suspicion
from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group import GROUP
from totempole.spark.properties.ring import RING
from totempole.spark.settling import settle, settled
from totempole.spark.silver import Silver

JOBS_AT_ONCE = 3
"""Statements that run at a time: most of the time of a small one is Spark's planning."""

NAMES = tuple(item.name for item in PROPERTIES)

Tell = Callable[[int, str], None]
Statement = Callable[[Any], Iterable[DataFrame]]


@dataclass(frozen=True)
class Verification:
    """What was found."""

    verdicts: DataFrame
    """run, property, outcome, count: one row for each run and property."""
    findings: DataFrame
    """Violations, and why something is undecided; of each run and property the first few."""


def verify(bronze: DataFrame, terms: DataFrame, tell: Tell = lambda done, note: None) -> Verification:
    """`tell` hears how many properties are done, of `len(NAMES)`, and the name of the last."""
    check_steps(bronze)
    terms = settled(terms)
    silver = Silver(bronze, terms)
    suspects = settled(suspicion.Suspicion(silver).settled().suspects())
    doubtful = {row["property"] for row in suspects.select("property").distinct().collect()}
    tell(0, "suspects found")
    few = silver.only(suspects)
    groups = GroupSilver(silver.only(bronze.where("kind = 'process'")))
    grouped = not groups.events.isEmpty()
    if doubtful:
        settle(few, _FEW)
    work: list[tuple[str, Statement, Any]] = [
        (name, statement, few if name in suspicion.PROPERTIES else silver)
        for name, statement in RING.items()
        if name in doubtful or name not in suspicion.PROPERTIES
    ]
    if grouped:
        settle(groups.silver, _FEW)
        settle(groups, _GROUPS)
        work += [(name, statement, groups) for name, statement in GROUP.items()]
    together = reduce(DataFrame.unionByName, _state(work, tell))
    return Verification(findings.verdicts(terms, NAMES, together), findings.listed(together))


_FEW = (
    "events",
    "skeleton",
    "lives",
    "stays",
    "nodes",
    "configurations",
    "slots",
    "originations",
    "deliveries",
)
_GROUPS = ("events", "processes", "views", "memberships", "deliveries", "receptions", "sends", "messages")
"""What several statements ask for."""


def _state(work: list[tuple[str, Statement, Any]], tell: Tell) -> list[DataFrame]:
    """The findings of each statement."""
    done = len(NAMES) - len(work)

    def one(item: tuple[str, Statement, Any]) -> DataFrame:
        nonlocal done
        name, statement, tables = item
        found = settled(findings.named(name, statement(tables)))
        done += 1
        tell(done, name)
        return found

    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        return list(pool.map(one, work))


def check_steps(bronze: DataFrame) -> None:
    """A node counts its events: more events than steps are those of two runs with one name."""
    each = bronze.where("kind != 'fault'").groupBy("run", "node")
    counted = each.agg(F.count("*").alias("rows"), (F.max("step") - F.min("step") + 1).alias("steps"))
    for row in counted.where("rows > steps").orderBy("run", "node").limit(1).collect():
        where = _files_of(bronze, row["run"], row["node"])
        raise TraceError(
            f"{', '.join(where)}: node {row['node']} of run {row['run']!r} has {row['rows']} events in "
            f"{row['steps']} steps: are these two runs with one name, or files that are there twice?"
        )


def _files_of(bronze: DataFrame, run: str, node: int) -> list[str]:
    rows = bronze.where((F.col("run") == run) & (F.col("node") == node))
    names = rows.select(F.input_file_name().alias("file")).distinct().orderBy("file").collect()
    return [row["file"].removeprefix("file://") for row in names if row["file"]]


def absentees(silver: Silver) -> list[tuple[str, int]]:
    """Runs and nodes: members of configurations that left no trace."""
    members = silver.stays.select("run", F.explode("members").alias("node")).distinct()
    missing = members.join(silver.nodes, ["run", "node"], "left_anti").orderBy("run", "node")
    return [(row["run"], row["node"]) for row in missing.limit(LISTED_MAX).collect()]


def outcomes(verdicts: DataFrame) -> Mapping[str, Mapping[str, int]]:
    """For each property how many runs have which outcome."""
    counted = verdicts.groupBy("property", "outcome").count().collect()
    found: dict[str, dict[str, int]] = {name: {} for name in NAMES}
    for row in counted:
        found[row["property"]][row["outcome"]] = row["count"]
    return found
