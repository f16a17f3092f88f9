"""Broken objects are noticed: each by a seed that is known to give it away."""

from __future__ import annotations

import pytest

from totempole.sim.fuzz.mutation import Mutant, hunt
from totempole.sim.fuzz.object_mutants import OBJECT_MUTANTS, OBJECT_STAGED

DAILY = (
    "a duplicate takes effect twice",
    "a call that was sent is said to have had no effect",
    "a read without a barrier",
    "a doubtful record goes again under new numbers",
)
"""Those that every run of the tests hunts."""


def test_there_are_enough() -> None:
    assert len(OBJECT_MUTANTS) + len(OBJECT_STAGED) >= 15
    assert {*DAILY} <= {mutant.name for mutant in OBJECT_MUTANTS}


@pytest.mark.parametrize("mutant", [*OBJECT_MUTANTS, *OBJECT_STAGED], ids=lambda mutant: mutant.name)
def test_its_code_is_there(mutant: Mutant) -> None:
    assert mutant.source


@pytest.mark.parametrize(
    "mutant",
    [each if each.name in DAILY else pytest.param(each, marks=pytest.mark.long) for each in OBJECT_MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_its_seed_gives_it_away(mutant: Mutant) -> None:
    caught = hunt(mutant, [mutant.seed])
    assert caught is not None
    assert any(name.startswith("object-") for name in caught[1].violated)
