"""What processors are told of networks: Spark says what the checkers say."""

from __future__ import annotations

from random import Random

import pytest
import test_broken_networks
from agreement import Runs, disagreements, silver_of, verdicts_of
from pyspark.sql import SparkSession

from handbroken import runs_of
from totempole.checkers import Outcome
from totempole.checkers.networks import NETWORKS as LAYER
from totempole.checkers.terms import Terms
from totempole.sim.fuzz.network_plan import Ways, network_plan
from totempole.sim.script_runner import run, terms_of
from totempole.spark.properties.networks import NETWORKS
from totempole.trace.schema import Row

SPOILT = 6
KINDS = ("restart", "crash", "leave", "configuration", "network", "retransmit")
DELIVERED = 200
"""Of the run's deliveries the last: how far each has come."""


@pytest.fixture(scope="module")
def runs() -> Runs:
    found: dict[str, tuple[list[Row], Terms]] = dict(runs_of(test_broken_networks))
    outcome = run(network_plan(Ways("passive", 2, only_networks=True), 3), level="protocol")
    terms = terms_of(outcome)
    last = {id(row) for row in [row for row in outcome.rows if row.kind == "deliver"][-DELIVERED:]}
    rows = [row for row in outcome.rows if row.kind in KINDS or id(row) in last]
    found["clean"] = rows, terms
    chance = Random(5)
    told = [place for place, row in enumerate(rows) if row.kind == "network"]
    for number in range(SPOILT):
        spoilt = list(rows)
        del spoilt[chance.choice(told)]
        found[f"spoilt-{number}"] = spoilt, terms
    return found


def test_each_property_is_stated() -> None:
    assert [item.name for item in LAYER.properties] == list(NETWORKS)


@pytest.mark.long
def test_spark_and_the_checkers_say_the_same(spark: SparkSession, runs: Runs) -> None:
    silver = silver_of(spark, runs)
    assert disagreements(silver, runs, NETWORKS) == []
    outcomes = {(name, verdict.outcome) for (_, name), verdict in verdicts_of(runs, NETWORKS).items()}
    assert outcomes >= {(name, outcome) for name in NETWORKS for outcome in (Outcome.HOLDS, Outcome.VIOLATED)}
