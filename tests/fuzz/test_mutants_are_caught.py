"""Each one-line breakage of the protocol is noticed by a checker, at a seed that is written down beside it.

`totem fuzz --mutants --seeds 0:500` looks for them from the beginning.
"""

from __future__ import annotations

import pytest

from totempole.sim.fuzz.mutants import MUTANTS, UNNOTICED, Mutant, hunt, mutated_endpoint
from totempole.sim.fuzz.trial import RAISED
from totempole.srp.endpoint import Endpoint


def test_there_are_at_least_twenty() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_checker_notices(mutant: Mutant) -> None:
    assert mutant.seed < 500
    caught = hunt(mutant, [mutant.seed])
    assert caught is not None, f"{mutant.name} got by at seed {mutant.seed}"
    assert caught[1].violated != (RAISED,), "noticed by an exception, not by a checker"


@pytest.mark.parametrize("mutant", UNNOTICED, ids=lambda mutant: mutant.name)
def test_what_goes_unnoticed_is_still_a_breakage_of_the_present_source(mutant: Mutant) -> None:
    assert mutated_endpoint(mutant) is not Endpoint


def test_the_true_protocol_is_left_as_it_was() -> None:
    broken = mutated_endpoint(MUTANTS[0])
    from totempole.srp.endpoint import Endpoint as again

    assert broken is not Endpoint
    assert again is Endpoint


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    with pytest.raises(AssertionError, match="stands 0 times"):
        mutated_endpoint(Mutant("nothing", "ring", "no such text", ""))
