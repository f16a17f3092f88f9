"""Judged in parts or as a whole, a run gets the same verdicts: the scopes that properties claim are true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import grouptests
import pytest
import test_broken_logs
import test_broken_networks
import test_broken_promises
import test_broken_traces
import test_group_messages
import test_group_settling
import test_group_views
from goodtraces import figure_4_15, figure_4_16
from idealgroups import IdealGroups
from idealrun import IdealRun
from loggroups import World
from test_broken_traces import ring

from handbroken import Runs, runs_of
from sweeps import examples
from totempole.checkers import LAYERS, PROPERTIES, Outcome, Property, Scope, Verdict
from totempole.checkers.parts import judge_in_parts, merged, split
from totempole.checkers.property import Indices, Layer
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import LISTED_MAX, Violation
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run, terms_of
from totempole.trace.schema import Row

PARTS = 5
LOGS = 8
LOST = 40
"""Rows taken out of the random runs, one at a time."""


@cache
def runs() -> Runs:
    found: dict[str, tuple[Sequence[Row], Terms]] = {}
    for module in (test_broken_traces, test_broken_promises, test_broken_networks, test_broken_logs):
        found |= runs_of(module)
    for module in (test_group_views, test_group_messages, test_group_settling):
        found |= _of_groups(module)
    found["figure 4.15"] = figure_4_15().rows, Terms(complete=True)
    found["figure 4.16"] = figure_4_16().rows, Terms(complete=True)
    for kind, scenario in (("ring", plan(0)), ("groups", group_plan(5))):
        outcome = run(scenario, level="checked")
        found[kind] = outcome.rows, terms_of(outcome)
        found[f"{kind}, a node missing"] = [row for row in outcome.rows if row.node != 1], Terms()
    found |= dict(_with_losses())
    found |= dict(_of_logs())
    return found


def _of_groups(module: object) -> Runs:
    """Some of their traces are given to `check` by `grouptests`."""
    true_check = grouptests.check
    grouptests.check = lambda *rows, **terms: vars(module)["check"](*rows, **terms)
    try:
        every = runs_of(module)  # type: ignore[arg-type]
    finally:
        grouptests.check = true_check
    return {name: judged for name, judged in every.items() if "cannot_be_read" not in name}


def _with_losses() -> Iterator[tuple[str, tuple[list[Row], Terms]]]:
    chance = Random(7)
    for seed in range(examples(LOST)):
        if seed % 2:
            rows = list(IdealRun(seed, 4).rows_of(changes=3, messages=20).rows)
        else:
            rows = list(IdealGroups(seed, 3).rows_of(changes=3, acts=12).rows)
        for _ in range(3):
            del rows[chance.randrange(len(rows))]
        yield f"losses {seed}", (rows, Terms(complete=seed % 3 > 0))


def _of_logs() -> Iterator[tuple[str, tuple[list[Row], Terms]]]:
    """Real replicas; then some of their rows are missing."""
    chance = Random(11)
    for seed in range(LOGS):
        world = World(seed, 3)
        world.random_run(changes=6, appends=6)
        rows = world.rows
        for _ in range(seed % 4):
            del rows[chance.randrange(len(rows))]
        yield f"log {seed}", (rows, Terms(complete=seed % 3 > 0))


@cache
def whole_of(name: str) -> Indices:
    """As `check` has them: one index for all properties of a layer."""
    return Indices(list(runs()[name][0]))


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    """Else the collector would look through them for the rest of the test run."""
    yield
    runs.cache_clear()
    whole_of.cache_clear()


def alike(verdict: Verdict) -> tuple[Outcome, int, str, frozenset[Violation]]:
    few = verdict.count <= LISTED_MAX
    return verdict.outcome, verdict.count, verdict.note, frozenset(verdict.violations if few else ())


def cases() -> list[tuple[Layer[object], Property[object]]]:
    return [(layer, item) for layer in LAYERS for item in layer.properties]


@pytest.mark.search
@pytest.mark.parametrize(("layer", "item"), [pytest.param(*case, id=case[1].name) for case in cases()])
def test_parts_say_what_the_whole_says(layer: Layer[object], item: Property[object]) -> None:
    outcomes = set()
    for name, (rows, terms) in runs().items():
        whole = layer.judge(item, whole_of(name), terms)
        in_parts = judge_in_parts(rows, layer, item, terms, PARTS)
        assert alike(in_parts) == alike(whole), f"{name}: {whole} / {in_parts}"
        outcomes.add(whole.outcome)
    assert outcomes >= {Outcome.HOLDS, Outcome.VIOLATED}


def test_every_scope_is_claimed() -> None:
    assert {item.scope for item in PROPERTIES} == set(Scope)
    assert all(item.layer == layer.name for layer in LAYERS for item in layer.properties)


def test_a_part_has_its_rows_the_context_and_marks() -> None:
    trace = ring(1, 2)
    first, second = trace.send(1, 2), trace.send(2, 1)
    layer, item = next(case for case in cases() if case[1].name == "single-delivery")
    divided = split(trace.rows, layer, item.scope, item.reads, 50)
    of_first = next(part for part in divided if any(row.message == first for row in part))
    assert {row.message for row in of_first} <= {"", first, second}
    assert not any(row.kind in ("originate", "receive") for row in of_first)
    for part in divided:
        assert [row for row in part if row.kind == "configuration"] == [
            row for row in trace.rows if row.kind == "configuration"
        ]
        ends = {row.node: row.step for row in part}
        assert ends == {row.node: row.step for row in trace.rows}, "a life reaches as far as in the whole"


def test_what_several_parts_find_in_the_context_is_one_finding() -> None:
    seen = Violation("p", (1,), (), ((1, 2),), "seen everywhere")
    twice = Violation("p", (2,), (), ((2, 3),), "seen twice in one part")
    parts = [
        Verdict("p", Outcome.VIOLATED, (seen,), 1, ("unknown",)),
        Verdict("p", Outcome.VIOLATED, (seen, twice, twice), 3, ("unknown", "more")),
        Verdict("p", Outcome.UNDECIDED, (), 0, ("unknown",)),
    ]
    verdict = merged(parts)
    assert (verdict.outcome, verdict.count) == (Outcome.VIOLATED, 3)
    assert verdict.violations == (seen, twice, twice)
    assert verdict.reasons == ("unknown", "more")
