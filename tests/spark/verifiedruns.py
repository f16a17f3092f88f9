"""Runs for both judges: clean ones, whole and as prefixes, and one of every mutant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType

from agreement import Runs

from totempole.checkers.terms import Terms
from totempole.sim.fuzz.group_mutants import GROUP_MUTANTS
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.mutants import MUTANTS, Mutant, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run, terms_of
from totempole.trace.schema import Row

CLEAN_SEEDS = range(4)
GROUP_SEEDS = range(2)
LEVEL = "checked"


@lru_cache
def clean_runs() -> Runs:
    found: dict[str, tuple[list[Row], Terms]] = {}
    for seed in CLEAN_SEEDS:
        _add(found, f"ring-{seed}", plan(seed))
    for seed in GROUP_SEEDS:
        _add(found, f"groups-{seed}", group_plan(seed))
    return MappingProxyType(found)


def _add(found: dict[str, tuple[list[Row], Terms]], name: str, scenario: object) -> None:
    """Whole; cut off in the middle; with the trace of one node a prefix, or missing."""
    outcome = run(scenario, level=LEVEL)  # type: ignore[arg-type]
    rows = list(outcome.rows)
    middle_us = rows[len(rows) // 2].at_us
    found[f"{name}-complete"] = rows, terms_of(outcome)
    found[f"{name}-prefix"] = [row for row in rows if row.at_us <= middle_us], Terms()
    found[f"{name}-killed"] = (
        [row for row in rows if row.node != 2 or row.at_us <= middle_us],
        Terms(same_clock=False),
    )
    found[f"{name}-missing"] = [row for row in rows if row.node != 2], Terms()


@lru_cache
def broken_runs() -> Runs:
    """Each mutant at the seed that gives it away."""
    return _broken(MUTANTS, GROUP_MUTANTS)


@lru_cache
def few_runs() -> Runs:
    """One seed of the ring, and a few mutants."""
    found: dict[str, tuple[list[Row], Terms]] = {}
    _add(found, "ring-0", plan(0))
    return MappingProxyType({**found, **_broken(MUTANTS[:3], ())})


def _broken(ring: Sequence[Mutant], groups: Sequence[Mutant]) -> Runs:
    found: dict[str, tuple[list[Row], Terms]] = {}
    for planned, mutants in ((plan, ring), (group_plan, groups)):
        for mutant in mutants:
            outcome = run(planned(mutant.seed), level=LEVEL, stack=mutated_stack(mutant))
            found[mutant.name] = list(outcome.rows), terms_of(outcome)
    return MappingProxyType(found)
