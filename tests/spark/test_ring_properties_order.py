"""Spark's statements about order and synchrony say of all runs what the checks of the same names say."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import test_broken_promises
import test_broken_traces
from agreement import Runs, disagreements, silver_of, verdicts_of
from corruption import corrupted
from goodtraces import figure_4_15, figure_4_16
from idealrun import IdealRun
from pyspark.sql import SparkSession
from tracebuilder import TraceBuilder

from handbroken import runs_of
from totempole.checkers import Outcome, Verdict
from totempole.checkers.ring import RING as RING_LAYER
from totempole.checkers.terms import Terms
from totempole.sim.fuzz.mutants import MUTANTS, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run, terms_of
from totempole.spark.checkpoint import checkpoint_all
from totempole.spark.properties.ring import RING
from totempole.spark.silver import Silver
from totempole.trace.schema import Row

STATED = (
    "all-messages-absent-change",
    "delivery-in-origin-configuration",
    "same-messages-in-consecutive-configurations",
    "transitional-delivery",
    "causal-order",
    "agreed-order",
    "safe-delivery",
    "global-order",
)
NEVER_UNDECIDED = {"delivery-in-origin-configuration", "global-order"}
"""What they need is in the rows of one node, or of the two that are compared."""

CAUGHT = (
    "deliver past a gap",
    "no transitional configuration",
    "messages of other old rings taken in",
    "nothing exchanged",
    "what was delivered not told",
)
"""Mutants of which together every one of these properties is broken."""

SETTLED = ("events", "skeleton", "lives", "stays", "slots", "nodes")
"""The tables that the statements share."""

CORRUPTED_SEEDS = range(60)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return {
        **runs_of(test_broken_traces),
        **runs_of(test_broken_promises),
        **_clean(1),
        **_mutants(),
        **_by_hand(),
        **_corrupted(),
    }


def _clean(seed: int) -> Runs:
    """Whole; a prefix; one node's rows cut off, on clocks of their own; one node's rows missing."""
    outcome = run(plan(seed), level="checked")
    rows, middle_us = list(outcome.rows), outcome.rows[len(outcome.rows) // 2].at_us
    cut = [row for row in rows if row.node != 1 or row.at_us <= middle_us]
    return {
        "clean-complete": (rows, terms_of(outcome)),
        "clean-prefix": ([row for row in rows if row.at_us <= middle_us], Terms()),
        "clean-killed": (cut, Terms()),
        "clean-other-clocks": (cut, Terms(same_clock=False)),
        "clean-missing": ([row for row in rows if row.node != 1], Terms()),
        "clean-without-receipts": ([row for row in cut if row.kind != "receive"], Terms()),
    }


def _mutants() -> Runs:
    found: dict[str, tuple[list[Row], Terms]] = {}
    for mutant in MUTANTS:
        if mutant.name in CAUGHT:
            outcome = run(plan(mutant.seed), level="checked", stack=mutated_stack(mutant))
            found[mutant.name] = list(outcome.rows), terms_of(outcome)
    return found


def _corrupted() -> Runs:
    """Of every second, one node's rows stop somewhere."""
    found: dict[str, tuple[list[Row], Terms]] = {}
    for seed in CORRUPTED_SEEDS:
        random = Random(seed)
        rows = corrupted(IdealRun(seed, 4).rows_of(changes=2, messages=6).rows, random)
        if seed % 2:
            end = random.choice(rows)
            rows = [row for row in rows if row.node != end.node or row.step <= end.step]
        found[f"corrupted-{seed}"] = rows, Terms(complete=seed % 3 == 0, same_clock=seed % 5 != 0)
    return found


def _by_hand() -> Runs:
    made = {
        "figure 4.15": figure_4_15(),
        "figure 4.16": figure_4_16(),
        "skipped behind a place of no message": _skipped_behind_a_place_of_no_message(),
        "out of order on a ring without messages": _out_of_order_on_a_ring_without_messages(),
        "twenty skipped at once": _many_skipped(),
    }
    return {name: (trace.rows, Terms(complete=True)) for name, trace in made.items()}


def _skipped_behind_a_place_of_no_message() -> TraceBuilder:
    """Node 2 delivers the second message at 3, where none is, and so never what is at 4."""
    trace = TraceBuilder()
    trace.form(1, 2)
    first, second, third = (trace.originate(1, seq=seq) for seq in (1, 4, 6))
    trace.transitional("10@1", [1, 2])
    for message in (first, second, third):
        trace.deliver(message, 1)
    trace.deliver(first, 2)
    trace.deliver(second, 2, seq=3)
    trace.deliver(third, 2)
    return trace


def _out_of_order_on_a_ring_without_messages() -> TraceBuilder:
    """All that node 2 delivers on its second ring are messages of the first one."""
    trace = TraceBuilder()
    trace.form(1, 2)
    message = trace.send(1, 2)
    trace.move(2, seq=12)
    trace.deliver(message, 2, 2, ring="12@2")
    return trace


def _many_skipped() -> TraceBuilder:
    """More than one finding names, in a regular and in a transitional configuration."""
    trace = TraceBuilder()
    trace.form(1, 2)
    for _ in range(20):
        trace.send(1)
    trace.send(1, 2)
    for _ in range(20):
        trace.originate(2)
    trace.move(1, 2, seq=12)
    return trace


@pytest.fixture(scope="module")
def checkers(runs: Runs) -> dict[tuple[str, str], Verdict]:
    return verdicts_of(runs, STATED)


@pytest.fixture(scope="module")
def silver(spark: SparkSession, runs: Runs) -> Iterator[Silver]:
    made = silver_of(spark, runs)
    checkpoint_all(made, SETTLED)
    yield made
    made.bronze.unpersist()


def test_both_say_the_same_and_name_the_same(silver: Silver, runs: Runs) -> None:
    assert disagreements(silver, runs, {name: RING[name] for name in STATED}) == []


@pytest.mark.parametrize("name", STATED)
def test_the_runs_have_every_outcome(name: str, checkers: dict[tuple[str, str], Verdict]) -> None:
    """Or agreement on them would show little."""
    outcomes = {verdict.outcome for (_, judged), verdict in checkers.items() if judged == name}
    assert outcomes == set(Outcome) - ({Outcome.UNDECIDED} if name in NEVER_UNDECIDED else set())


def test_the_mutants_break_every_one_of_them(checkers: dict[tuple[str, str], Verdict]) -> None:
    broken = {name for (run, name), verdict in checkers.items() if run in CAUGHT and verdict.count}
    assert broken == set(STATED)


def test_texts_are_the_checkers_own(silver: Silver, checkers: dict[tuple[str, str], Verdict]) -> None:
    rows = [row for part in RING["agreed-order"](silver) for row in part.where("violated").collect()]
    mine: dict[str, list[str]] = {}
    for row in rows:
        mine.setdefault(row["run"], []).append(row["text"])
    theirs = {run: found for (run, name), found in checkers.items() if name == "agreed-order" and found.count}
    assert mine.keys() == theirs.keys()
    for run_name, verdict in theirs.items():
        if verdict.count == len(verdict.violations):
            assert sorted(mine[run_name]) == sorted(violation.text for violation in verdict.violations)


def test_what_was_skipped_is_found_behind_a_place_of_no_message(
    checkers: dict[tuple[str, str], Verdict],
) -> None:
    verdict = checkers["skipped behind a place of no message", "agreed-order"]
    assert [(item.nodes, item.messages) for item in verdict.violations] == [
        ((2,), ("1.1.3", "1.1.2")),
        ((1, 2), ("1.1.3", "1.1.2")),  # node 1 has none at 3
        ((1, 2), ("1.1.3", "1.1.2")),  # node 2 has none at 4
    ]


def test_every_ring_property_is_stated() -> None:
    assert list(RING) == [item.name for item in RING_LAYER.properties]
