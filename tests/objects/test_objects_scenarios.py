"""The stories of one object end well; broken objects are given away by a story or by a random history."""

from __future__ import annotations

import pytest
from objects_kit import TRUE, broken
from objects_mutants import MUTANTS
from objects_play import Play, steps_of
from objects_scenarios import SCENARIOS, Scenario

from sweeps import first_of, first_row_of
from totempole.errors import TotemError
from totempole.sim.fuzz.mutation import Mutant

BROKEN = (
    AssertionError,
    TotemError,
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    pytest.fail.Exception,
)
"""How a broken object gives itself away."""

BY_NAME = {each.name: each for each in MUTANTS}
TRAPS = [(scenario, name) for scenario, names in SCENARIOS for name in names]


@pytest.mark.parametrize("scenario", [each for each, _ in SCENARIOS], ids=lambda each: each.__name__)
def test_a_story_ends_well(scenario: Scenario) -> None:
    scenario(TRUE)


def test_every_mutant_is_given_away_by_a_history_or_a_story() -> None:
    assert {each.name for each in MUTANTS if not each.seed} == {name for _, name in TRAPS}
    assert len(MUTANTS) == len(BY_NAME) >= 40


@pytest.mark.parametrize(("scenario", "name"), first_row_of(TRAPS), ids=[name for _, name in TRAPS])
def test_a_story_gives_a_mutant_away(scenario: Scenario, name: str) -> None:
    kit = broken(BY_NAME[name])
    with pytest.raises(BROKEN):
        scenario(kit)


@pytest.mark.parametrize(
    "mutant", first_of(each for each in MUTANTS if each.seed), ids=lambda each: each.name
)
def test_a_history_gives_a_mutant_away(mutant: Mutant) -> None:
    kit = broken(mutant)
    with pytest.raises(BROKEN):
        Play(kit).run(steps_of(mutant.seed))
