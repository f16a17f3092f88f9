"""All properties stated over tables, for all runs at once: the judge of large traces.

Properties that look at few rows, such as those of membership, are stated for all runs. Those of messages are
stated for the runs that `prefilter` could not clear; those of groups for the runs that have groups. Of runs
that have a log, the checkers judge its properties in parts: these are stated once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

from totempole.checkers.properties import PROPERTIES
from totempole.spark import findings, prefilter
from totempole.spark.checkpoint import checkpoint_all, checkpointed
from totempole.spark.group_silver import GroupSilver
from totempole.spark.in_parts import LOG_JOBS, findings_in_parts
from totempole.spark.properties.group import GROUP
from totempole.spark.properties.networks import NETWORKS
from totempole.spark.properties.ring import RING
from totempole.spark.silver import Silver
from totempole.spark.sums import Sums

JOBS_AT_ONCE = 3
"""Statements that run at a time: most of the time of a small one is Spark's planning."""

Tell = Callable[[int, str], None]
Statement = Callable[[Any], Iterable[DataFrame]]


def findings_of_statements(silver: Silver, tell: Tell = lambda done, note: None) -> DataFrame:
    """`tell` hears how many properties are done, of all, and the name of the last."""
    suspects = checkpointed(prefilter.suspects(Sums(silver).checkpointed()))
    doubtful = {row["property"] for row in suspects.select("property").distinct().collect()}
    tell(0, "suspects found")
    work: list[tuple[str, Statement, Any]] = [
        (name, statement, silver) for name, statement in RING.items() if name not in prefilter.PROPERTIES
    ]
    work += [(name, statement, silver) for name, statement in NETWORKS.items()]
    if doubtful:
        few = silver.only(suspects)
        checkpoint_all(few, _FEW)
        work += [(name, statement, few) for name, statement in RING.items() if name in doubtful]
    grouped = checkpointed(silver.spans.where("grouped").select("run").distinct())
    if not grouped.isEmpty():
        groups = GroupSilver(silver.only(grouped))
        checkpoint_all(groups.silver, _FEW)
        checkpoint_all(groups, _GROUPS)
        work += [(name, statement, groups) for name, statement in GROUP.items()]
    found = _state(work, tell)
    logged = checkpointed(silver.spans.where("logged").select("run").distinct())
    if not logged.isEmpty():
        few = silver.only(logged)
        found.append(checkpointed(findings_in_parts(few.bronze, few.terms, jobs=LOG_JOBS)))
    return reduce(DataFrame.unionByName, found)


_FEW = (
    "events",
    "spans",
    "skeleton",
    "lives",
    "stays",
    "nodes",
    "configurations",
    "slots",
    "originations",
    "deliveries",
    "committed",
    "on_rings",
)
_GROUPS = ("events", "processes", "views", "memberships", "deliveries", "receptions", "sends", "messages")
"""What several statements ask for."""


def _state(work: list[tuple[str, Statement, Any]], tell: Tell) -> list[DataFrame]:
    """The findings of each statement."""
    done = len(PROPERTIES) - len(work)

    def one(item: tuple[str, Statement, Any]) -> DataFrame:
        nonlocal done
        name, statement, tables = item
        found = checkpointed(findings.named(name, statement(tables)))
        done += 1
        tell(done, name)
        return found

    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        return list(pool.map(one, work))
