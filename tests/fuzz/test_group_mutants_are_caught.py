"""Each breakage of the group layer is noticed by a checker, at a seed that is written down beside it.

`totem fuzz --mutants --groups --seeds 0:500` looks for them from the beginning.
"""

from __future__ import annotations

import pytest

from totempole.groups import GroupLayer
from totempole.sim.fuzz.group_mutants import GROUP_MUTANTS, GROUP_UNNOTICED
from totempole.sim.fuzz.mutants import MUTANTS, Mutant, hunt, mutated_endpoint
from totempole.sim.fuzz.trial import RAISED
from totempole.sim.grouped import Grouped


def test_there_are_at_least_twelve_with_names_of_their_own() -> None:
    names = [mutant.name for mutant in (*MUTANTS, *GROUP_MUTANTS)]
    assert len(set(names)) == len(names)
    assert len(GROUP_MUTANTS) >= 12


@pytest.mark.parametrize("mutant", GROUP_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_checker_notices(mutant: Mutant) -> None:
    caught = hunt(mutant, [mutant.seed])
    assert caught is not None, f"{mutant.name} got by at seed {mutant.seed}"
    assert caught[1].violated != (RAISED,), "noticed by an exception, not by a checker"


@pytest.mark.parametrize("mutant", GROUP_UNNOTICED, ids=lambda mutant: mutant.name)
def test_what_goes_unnoticed_is_still_a_breakage_of_the_present_source(mutant: Mutant) -> None:
    assert isinstance(mutated_endpoint(mutant), Grouped)


def test_the_true_layer_is_left_as_it_was() -> None:
    broken = mutated_endpoint(GROUP_MUTANTS[0])
    assert isinstance(broken, Grouped)
    assert broken.layer is not GroupLayer
    assert Grouped().layer is GroupLayer
