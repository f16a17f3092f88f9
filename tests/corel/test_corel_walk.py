"""Random walks of the model end well, the same seed twice the same; broken replicas do not."""

from __future__ import annotations

import pytest
from corel_mutants import MUTANTS, gives_away
from corel_walk import Walk
from test_corel_green import TRAPS as HINTS
from test_corel_repairs import REPAIRS
from test_corel_traps import TRAPS

from totempole.sim.fuzz.mutation import Mutant

SEEDS_OF_BUGS = (9, 20, 113, 3108, 4088, 5248, 6002, 300546)
"""Seeds that have found something, in replicas or in the model."""


@pytest.mark.search
@pytest.mark.parametrize("seed", [*range(40), *SEEDS_OF_BUGS])
def test_a_walk(seed: int) -> None:
    Walk(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 2_000))
def test_many_walks(seed: int) -> None:
    Walk(seed).run()


def test_a_seed_is_a_walk() -> None:
    first, second = Walk(3), Walk(3)
    first.run()
    second.run()
    assert first.world.now_us == second.world.now_us
    assert first.properties.order == second.properties.order
    assert first.properties.order


def test_every_mutant_is_given_away_by_a_walk_or_a_scenario() -> None:
    by_scenario = {name for _, name in (*REPAIRS, *TRAPS, *HINTS)}
    assert {each.name for each in MUTANTS if not each.seed} == by_scenario
    assert len(MUTANTS) >= 40


@pytest.mark.search
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.seed], ids=lambda each: each.name)
def test_a_walk_gives_a_mutant_away(mutant: Mutant) -> None:
    assert gives_away(mutant, mutant.seed)
