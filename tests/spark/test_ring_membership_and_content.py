"""Membership, reliable delivery, content and liveness as Spark states them: the checkers say the same."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import test_broken_traces
from agreement import Runs, disagreements, silver_of, verdicts_of
from corruption import corrupted
from goodtraces import P, Q, R, S, T, U, V, figure_4_15, figure_4_16
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from handbroken import runs_of
from totempole.checkers import Liveness, Outcome
from totempole.checkers.terms import Terms
from totempole.sim.fuzz.mutants import MUTANTS, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run, terms_of
from totempole.spark.checkpoint import checkpoint_all
from totempole.spark.properties.ring import RING
from totempole.spark.properties.undelivered import undelivered
from totempole.spark.silver import Silver
from totempole.trace.schema import Row

NEVER_UNDECIDED = {
    "unique-configurations",
    "outsiders-break-no-ring",
    "unique-messages",
    "single-delivery",
    "timestamps",
}
"""What is wrong in a prefix stays wrong, and nothing is owed."""
NAMES = NEVER_UNDECIDED | {
    "termination",
    "configuration-change-consistency",
    "no-spurious-delivery",
    "self-delivery",
    "service-kept",
    "liveness",
}
STATED = {name: statement for name, statement in RING.items() if name in NAMES}

SHARED = ("events", "skeleton", "lives", "stays", "nodes", "configurations", "slots")
"""The tables that the statements ask for again and again."""

CLEAN_SEED = 29
BROKEN = ("ring number not persisted", "seq not advanced")
SPOILT = 60

Found = dict[str, tuple[list[Row], Terms]]


@pytest.fixture(scope="module")
def runs() -> Runs:
    found: Found = {}
    for name, (rows, terms) in runs_of(test_broken_traces).items():
        _add(found, name, list(rows), terms)
    outcome = run(plan(CLEAN_SEED), level="checked")
    _add(found, "clean", list(outcome.rows), terms_of(outcome))
    for mutant in MUTANTS:
        if mutant.name in BROKEN:
            outcome = run(plan(mutant.seed), level="checked", stack=mutated_stack(mutant))
            found[mutant.name] = list(outcome.rows), terms_of(outcome)
    return {**found, **_spoilt(Random("spoilt"))}


def _add(found: Found, name: str, rows: list[Row], terms: Terms) -> None:
    """As it is; cut off in the middle; with the trace of one node cut off, or missing."""
    middle_us = sorted(row.at_us for row in rows)[len(rows) // 2]
    found[name] = rows, terms
    found[f"{name}-prefix"] = [row for row in rows if row.at_us <= middle_us], Terms()
    found[f"{name}-killed"] = (
        [row for row in rows if row.node != 1 or row.at_us <= middle_us],
        Terms(same_clock=False),
    )
    found[f"{name}-missing"] = [row for row in rows if row.node != 2], terms


def _spoilt(random: Random) -> Found:
    """Both figures of Totem §4.3, whose nodes then suspect one another, with a few events spoilt."""
    bases = (figure_4_15(), figure_4_16())
    for trace in bases:
        for node in (P, Q, R, S, T, U, V):
            trace.row(node, "suspect", origin=random.randint(1, 9), members=(random.randint(1, 9), 9))
    found: Found = {}
    for number in range(SPOILT):
        rows = corrupted(random.choice(bases).rows, random, random.choice((1, 3, 8)))
        found[f"spoilt-{number}"] = rows, _some_terms(random)
    return found


def _some_terms(random: Random) -> Terms:
    """The nodes that are hoped to be together may be too many, be in two groups, or have left no trace."""
    groups = random.choice((([P, Q, R, S, T, U, V],), ([P], [Q, R, S, T, U, V]), ([P, 9], [Q, R], [R, S])))
    hoped = Liveness(random.randint(0, 2_000), groups, random.choice((0, 500, 1_000_000)))
    return Terms(random.random() < 0.7, random.random() < 0.7, random.choice((None, hoped, hoped)))


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


def test_the_transitional_configuration_pays_what_the_regular_one_owes(silver: Silver) -> None:
    """Totem §4.3: q to t deliver 2.1.2 and 4.1.1 only after the ring 12@1 broke, and never 1.1.2."""
    name = "test_settled_too_late-1"  # figure 4.15
    stays = silver.stays.where((F.col("run") == name) & (F.col("name") == "12@1"))
    owed = {(row["node"], row["row"]["message"]) for row in undelivered(silver, stays).collect()}
    assert owed == {(P, "2.1.2"), (P, "4.1.1")} | {(node, "1.1.2") for node in (Q, R, S, T)}
