"""A seed becomes a scenario: always the same one, with everything in it that a search needs."""

from __future__ import annotations

import pytest

from totempole.sim.fuzz.circumstances import SHAPES
from totempole.sim.fuzz.coverage import IDLE_RUN_US
from totempole.sim.fuzz.plan import CALM_US, END_US, Planner, plan
from totempole.sim.fuzz.profiles import HARMS, RARE
from totempole.sim.script import Fault, OnProcessor, Send, Traffic
from totempole.sim.script_parser import parse
from totempole.types import RingKind

SEEDS = range(200)


def test_a_seed_always_gives_the_same_scenario() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 17, 392])
def test_a_plan_survives_being_written_down_and_read_again(seed: int) -> None:
    scenario = plan(seed)
    assert parse(scenario.to_text(), scenario.name) == scenario


def test_both_ring_kinds_and_all_sizes_of_ring_take_part() -> None:
    plans = [plan(seed) for seed in SEEDS]
    kinds = {setting.value for each in plans for setting in each.settings if setting.field == "ring_kind"}
    assert kinds == set(RingKind)
    assert {len(each.processors) for each in plans} >= {*range(1, 10), 12}


def test_every_run_has_ten_seconds_several_faults_and_hundreds_of_messages() -> None:
    assert END_US >= 10_000_000
    for seed in SEEDS:
        scenario = plan(seed)
        faults = [step for step in scenario.steps if isinstance(step.action, Fault) and step.at_us < CALM_US]
        assert len(faults) >= 3, seed
        assert sum(_messages(step.action) for step in scenario.steps) >= 100, seed


def _messages(action: object) -> float:
    if isinstance(action, Send):
        return action.count
    return action.rate_per_s if isinstance(action, Traffic) else 0


def test_the_calm_has_no_faults_but_the_repairs_that_begin_it() -> None:
    for seed in SEEDS:
        scenario = plan(seed)
        late = [
            step.action for step in scenario.steps if step.at_us > CALM_US and isinstance(step.action, Fault)
        ]
        idle = scenario.end_us >= IDLE_RUN_US
        verbs = [action.verb for action in late if isinstance(action, OnProcessor)]
        assert verbs == (["pause", "resume", "crash"] if idle else []), seed
        assert len(verbs) == len(late), seed


def test_seeds_differ_in_what_surrounds_a_run() -> None:
    around = [Planner(seed).around for seed in range(400)]
    assert {each.shape for each in around} == {shape for _, shape in SHAPES}
    assert 20 < sum(each.sealed for each in around) < 100
    assert 50 < sum(each.unequal for each in around) < 150


def test_half_of_the_seeds_do_only_some_kinds_of_harm() -> None:
    harms = [Planner(seed).around.harms.harms for seed in SEEDS]
    whole = sum(each == {*HARMS, *RARE} for each in harms)
    assert 60 < whole < 140
    assert all(any(harm not in each for each in harms) for harm in HARMS)
    assert len(set(harms)) > 60


def test_processors_may_have_settings_of_their_own_but_not_where_they_must_agree() -> None:
    differing = {setting.field for seed in SEEDS for setting in plan(seed).settings if setting.processors}
    assert "token_loss_us" in differing
    assert not differing & {"ring_kind", "cluster_id", "members_max", "outstanding_packets_max"}
