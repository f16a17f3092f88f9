"""The silver tables of groups have what the checkers' index of the same runs has."""

from __future__ import annotations

import pytest
from groupindex import facts_of_checkers, facts_of_spark
from groupruns import WANDERERS, group_runs, group_tables, wanderer
from pyspark.sql import SparkSession

from totempole.checkers.group_history import GroupHistory
from totempole.checkers.history import History


@pytest.mark.long
def test_the_index_is_the_checkers_own(spark: SparkSession) -> None:
    mine, theirs = facts_of_spark(group_tables(spark)), facts_of_checkers(group_runs())
    assert sorted(map(str, mine - theirs)) == []
    assert sorted(map(str, theirs - mine)) == []


def test_wanderers_are_in_many_memberships() -> None:
    """Or the test before would say little of how views are given to memberships."""
    active = []
    for seed in WANDERERS:
        rows = wanderer(seed)
        memberships = GroupHistory(rows, History(rows)).processes[0].memberships["g"]
        active.append(sum(bool(membership.views) for membership in memberships))
    assert min(active) <= 1
    assert max(active) >= 3
