"""Each breakage of the redundant ring is noticed: by a checker at a seed that is written down beside it, in a
staged scenario (test_staged_mutants.py), or by the test that is named.

`totem fuzz --mutants --networks any --seeds 0:100` looks for them from the beginning. Two are run every day;
the rest with `make long`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from totempole.networks.layer import Networks
from totempole.rrp.layer import Replicator
from totempole.sim.fuzz.mutants import Mutant, hunt, mutated_stack
from totempole.sim.fuzz.network_mutants import NETWORK_BY_HAND, NETWORK_MUTANTS, NETWORK_STAGED
from totempole.sim.fuzz.trial import RAISED

sys.path.append(str(Path(__file__).parents[1] / "rrp"))

BY_HAND = tuple(mutant for mutant, _ in NETWORK_BY_HAND)
EVERY = (*NETWORK_MUTANTS, *NETWORK_STAGED, *BY_HAND)
DAILY = ("a held token waits for its copies for ever", "one row told, and no other")


@lru_cache
def violated(mutant: Mutant) -> tuple[str, ...]:
    """At its own seed."""
    caught = hunt(mutant, [mutant.seed])
    return () if caught is None else caught[1].violated


def test_there_are_at_least_fifteen_and_each_has_its_own_name() -> None:
    assert len(EVERY) >= 15
    assert len({mutant.name for mutant in EVERY}) == len(EVERY)
    assert len({(mutant.where, mutant.old, mutant.new) for mutant in EVERY}) == len(EVERY)


def test_each_is_a_breakage_of_the_present_source() -> None:
    for mutant in EVERY:
        compile(mutant.source, mutant.module, "exec")


@pytest.mark.parametrize(
    "mutant",
    [each if each.name in DAILY else pytest.param(each, marks=pytest.mark.long) for each in NETWORK_MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_a_checker_notices(mutant: Mutant) -> None:
    assert violated(mutant), f"{mutant.name} got by at seed {mutant.seed}"
    assert violated(mutant) != (RAISED,), "noticed by an exception, not by a checker"


@pytest.mark.parametrize(("mutant", "name"), NETWORK_BY_HAND, ids=[mutant.name for mutant in BY_HAND])
def test_a_test_notices(mutant: Mutant, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import rrp_bench
    import test_requirements
    import test_rrp_routes

    test = getattr(test_requirements, name, None) or getattr(test_rrp_routes, name)
    marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    cases = [{names: value} for names, values in marks for value in values] or [{}]
    for case in cases:
        test(**case)
    broken = mutated_stack(mutant).parts
    monkeypatch.setattr(rrp_bench, "Replicator", broken.replicator)
    monkeypatch.setattr(rrp_bench, "Accounts", broken.accounts)
    assert any(_fails(lambda case=case: test(**case)) for case in cases)


def _fails(test: Callable[[], None]) -> bool:
    try:
        test()
    except AssertionError:
        return True
    return False


def test_the_true_layers_are_left_as_they_were() -> None:
    for mutant, layer in ((BY_HAND[0], Replicator), (NETWORK_STAGED[-1], Networks)):
        parts = mutated_stack(mutant).parts
        assert {parts.replicator, parts.networks} != {Replicator, Networks}
        assert layer.__module__ in sys.modules
        assert getattr(sys.modules[layer.__module__], layer.__name__) is layer
