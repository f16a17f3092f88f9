"""Runs with process groups for both judges: clean, of mutants, broken by hand, and spoilt at random."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from types import ModuleType

import grouptests
import test_group_messages
import test_group_settling
import test_group_views
from agreement import Runs, silver_of
from groupbuilder import GroupBuilder
from groupnoise import noise
from idealgroups import IdealGroups
from pyspark.sql import SparkSession
from spoiltgroups import renumbered, spoilt

from handbroken import runs_of
from oddnames import odd_run
from totempole.checkers import Liveness, check
from totempole.checkers.terms import Terms
from totempole.errors import TraceError
from totempole.sim.fuzz.group_mutants import GROUP_MUTANTS
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.mutants import mutated_stack
from totempole.sim.script_runner import Outcome, run, terms_of
from totempole.spark.group_silver import GroupSilver
from totempole.trace.schema import Row

CAUGHT = (
    "a message to two groups delivered for each",
    "packets of a stale epoch taken",
    "a part with the processes of others",
    "a joiner that has its state waits on",
)
"""Mutants of which together every property of groups is broken."""

CLEAN_SEEDS = (5, 11, 19)
SPOILT_SEEDS = range(60)
WANDERERS = range(12)
NOISE = range(60)

Known = dict[str, tuple[list[Row], Terms]]


@lru_cache
def group_runs() -> Runs:
    return {
        **_by_hand(),
        **{name: run for seed in CLEAN_SEEDS for name, run in _clean(seed).items()},
        "odd names": _odd_names(),
        **_mutants(),
        **{f"wanderer {seed}": (wanderer(seed), Terms()) for seed in WANDERERS},
        **_spoilt(),
        **{f"noise {seed}": (noise(seed), _terms_of_noise(seed)) for seed in NOISE},
    }


@lru_cache
def group_tables(spark: SparkSession) -> GroupSilver:
    """Of all these runs: all tests share them, as computing them takes longer than what is asked of them."""
    return GroupSilver(silver_of(spark, group_runs())).prepare()


@lru_cache
def _by_hand() -> Known:
    found: Known = {}
    for module in (test_group_views, test_group_messages, test_group_settling):
        for name, (rows, terms) in _judged(module).items():
            if not name.startswith("test_rows_that_cannot_be_read"):
                found[name] = renumbered(rows), terms
    return found


def _judged(module: ModuleType) -> Runs:
    """Some of its traces are given to `check` by `grouptests`."""
    true_check = grouptests.check
    grouptests.check = lambda *rows, **terms: vars(module)["check"](*rows, **terms)
    try:
        return runs_of(module)
    finally:
        grouptests.check = true_check


def _clean(seed: int) -> Known:
    """Whole; a prefix; one node's rows cut off; the same on clocks of their own; one node's rows missing."""
    outcome = run(group_plan(seed), level="checked")
    rows, terms = _rows_of(outcome), terms_of(outcome)
    middle_us = rows[len(rows) // 2].at_us
    node = rows[len(rows) // 2].node
    cut = [row for row in rows if row.node != node or row.at_us <= middle_us]
    missing = [row for row in rows if row.node != node]
    return {
        f"clean {seed}": (rows, terms),
        f"prefix of {seed}": ([row for row in rows if row.at_us <= middle_us], Terms()),
        f"killed node of {seed}": (cut, Terms()),
        f"other clocks of {seed}": (cut, Terms(True, False, terms.expectation)),
        f"missing node of {seed}": (missing, terms),
    }


def _odd_names() -> tuple[list[Row], Terms]:
    """Names with commas, spaces and line breaks; and a delivery that is missing."""
    outcome = odd_run()
    rows = _rows_of(outcome)
    rows.remove(next(row for row in rows if row.kind == "group_deliver" and len(row.groups.to) > 1))
    return rows, terms_of(outcome)


def _mutants() -> Known:
    found: Known = {}
    for mutant in GROUP_MUTANTS:
        if mutant.name in CAUGHT:
            outcome = run(group_plan(mutant.seed), level="checked", stack=mutated_stack(mutant))
            found[mutant.name] = _rows_of(outcome), terms_of(outcome)
    return found


def _rows_of(outcome: Outcome) -> list[Row]:
    """Without most of what the properties of groups do not look at: Spark is slow to take rows in."""
    noticed = {(row.ring, row.seq) for row in outcome.rows if row.kind == "group_safe"}
    kinds = {"configuration", "crash", "restart", "leave", "fault"}
    return [
        row
        for row in outcome.rows
        if row.layer == "groups"
        or row.kind in kinds
        or row.new_state == "left"
        or (row.kind in ("originate", "receive") and (row.ring, row.seq) in noticed)
    ]


def wanderer(seed: int) -> list[Row]:
    """One process that joins and leaves a group at random, and views that it is told of at random."""
    chance = Random(seed)
    trace = GroupBuilder()
    trace.ring(1)
    process = trace.connect(1)
    for seq in range(chance.randint(5, 40)):
        what = chance.choice(("group_join", "group_leave", "group_view", "group_view", "group_state"))
        if what == "group_view":
            together = chance.choice(((process,), (), (), ("2.1.1",)))
            trace.tell(
                *(what, process),
                group="g",
                configuration_kind="regular",
                ring="8@1",
                seq=seq,
                reason="configuration",
                processes=(process,),
                together=together,
            )
        elif what == "group_state":
            trace.state(process, "g", "begins", ("8@1", seq))
        else:
            trace.tell(what, process, group="g")
    return trace.rows


def _terms_of_noise(seed: int) -> Terms:
    parts = ((1, 2),) if seed % 3 else ((1,), (2, 3))
    return Terms(seed % 5 > 0, seed % 4 > 0, Liveness(0, parts, 0) if seed % 7 else None)


def _spoilt() -> Known:
    """Those that the checkers can read."""
    found: Known = {}
    for seed, (rows, terms) in zip(SPOILT_SEEDS, _to_be_spoilt(), strict=False):
        chance = Random(seed)
        rows = spoilt(rows, chance)
        if chance.random() < 0.2:
            node = chance.choice(rows).node
            rows = [row for row in rows if row.node != node]
        known = terms.expectation if chance.random() < 0.7 else None
        terms = Terms(chance.random() < 0.7, chance.random() < 0.8, known)
        if _readable(rows):
            found[f"spoilt {seed}"] = rows, terms
    return found


def _to_be_spoilt() -> Iterator[tuple[list[Row], Terms]]:
    by_hand = list(_by_hand().values())
    for seed in SPOILT_SEEDS:
        if seed % 2:
            yield by_hand[seed * 3 % len(by_hand)]
        else:
            ideal = IdealGroups(seed, 2 + seed % 4)
            trace = ideal.rows_of(changes=3, acts=9)
            yield trace.rows, Terms(True, True, Liveness(trace.at_us, tuple(ideal.components), 0))


def _readable(rows: list[Row]) -> bool:
    try:
        check(rows)
    except TraceError:
        return False
    return True
