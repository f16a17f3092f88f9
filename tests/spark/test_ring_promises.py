"""Agreement, storage, contents and what is told of others: Spark says what the checkers say."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import test_broken_promises
from agreement import Runs, disagreements, silver_of, verdicts_of
from corruption import corrupted
from goodtraces import figure_4_15, figure_4_16
from pyspark.sql import SparkSession
from tracebuilder import TraceBuilder

from handbroken import runs_of
from totempole.checkers import Outcome
from totempole.checkers.terms import Calm, Terms
from totempole.sim.fuzz.mutants import MUTANTS, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run, terms_of
from totempole.spark.checkpoint import checkpoint_all
from totempole.spark.properties.ring import RING
from totempole.spark.silver import Silver
from totempole.trace.schema import Row

NEVER_UNDECIDED = {"justified-expulsion", "steady-rings", "written-before-used"}
NAMES = NEVER_UNDECIDED | {"membership-agreement", "safe-notices", "service-kept"}
STATED = {name: statement for name, statement in RING.items() if name in NAMES}

SHARED = ("events", "skeleton", "lives", "stays", "nodes", "configurations", "slots", "committed", "on_rings")
CLEAN_SEED = 31
BROKEN = ("ring number not persisted", "safe after one rotation")
SPOILT = 60


@pytest.fixture(scope="module")
def runs() -> Runs:
    found: dict[str, tuple[list[Row], Terms]] = {}
    for name, (rows, terms) in runs_of(test_broken_promises).items():
        found[name] = list(rows), terms
        found[f"{name}-missing"] = [row for row in rows if row.node != 2], Terms(terms.complete)
        middle_us = sorted(row.at_us for row in rows)[len(rows) // 2]
        found[f"{name}-killed"] = [row for row in rows if row.node != 1 or row.at_us <= middle_us], Terms()
    outcome = run(plan(CLEAN_SEED), level="checked")
    found["clean"] = list(outcome.rows), terms_of(outcome)
    found["clean-other-clocks"] = list(outcome.rows), Terms(True, same_clock=False)
    for mutant in MUTANTS:
        if mutant.name in BROKEN:
            outcome = run(plan(mutant.seed), level="checked", stack=mutated_stack(mutant))
            found[mutant.name] = list(outcome.rows), terms_of(outcome)
    return {**found, **_spoilt(Random("promises"))}


def _spoilt(random: Random) -> Runs:
    """Both figures of Totem §4.3 with notices and blame, and a few events spoilt."""
    bases = (_with_words(figure_4_15(), random), _with_words(figure_4_16(), random))
    found: dict[str, tuple[list[Row], Terms]] = {}
    for number in range(SPOILT):
        rows = corrupted(random.choice(bases).rows, random, random.choice((1, 3, 8)))
        calm = random.choice(((), (Calm(0, random.randint(0, 900), random.randint(500, 3_000)),)))
        found[f"spoilt-{number}"] = rows, Terms(random.random() < 0.7, random.random() < 0.7, None, calm)
    return found


def _with_words(trace: TraceBuilder, random: Random) -> TraceBuilder:
    for _ in range(12):
        ring, seq = random.choice(("8@6", "12@1", "20@2")), random.randint(0, 5)
        trace.row(random.randint(1, 7), "safe", ring=ring, seq=seq)
        trace.row(random.randint(1, 7), "blame", origin=random.randint(1, 8), ring=ring, seq=seq, count=100)
    return trace


@pytest.fixture(scope="module")
def silver(spark: SparkSession, runs: Runs) -> Iterator[Silver]:
    made = silver_of(spark, runs)
    checkpoint_all(made, SHARED)
    yield made
    made.bronze.unpersist()


def test_the_checkers_say_the_same(silver: Silver, runs: Runs) -> None:
    assert disagreements(silver, runs, STATED) == []


def test_every_outcome_is_among_them(runs: Runs) -> None:
    """Or agreement would say little."""
    seen: dict[str, set[Outcome]] = {name: set() for name in NAMES}
    for (_, name), verdict in verdicts_of(runs, NAMES).items():
        seen[name].add(verdict.outcome)
    for name, outcomes in seen.items():
        wanted = set(Outcome) - ({Outcome.UNDECIDED} if name in NEVER_UNDECIDED else set())
        assert outcomes == wanted, name
