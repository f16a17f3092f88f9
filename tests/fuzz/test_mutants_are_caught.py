"""Each one-line breakage of the protocol is noticed by a checker, at a seed that is written down beside it.

`totem fuzz --mutants --seeds 0:500` looks for them from the beginning. A few, of which together every
property of the ring is broken, are run every day; the rest with `make long`.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from inspect import getsource

import pytest

from totempole.checkers.properties import RING_PROPERTIES
from totempole.sim.fuzz.mutants import (
    BY_HAND,
    HARMLESS,
    MUTANTS,
    STAGED,
    UNNOTICED,
    Mutant,
    hunt,
    mutated_endpoint,
)
from totempole.sim.fuzz.trial import RAISED
from totempole.srp.endpoint import Endpoint

EVERY = (*MUTANTS, *STAGED, *BY_HAND, *UNNOTICED, *HARMLESS)

DAILY = (
    "every message delivered twice to oneself",
    "rebroadcast messages delivered",
    "ring number not persisted",
    "seq not advanced",
    "timestamp of the token ignored",
    "an outsider's fail set believed",
    "no transitional configuration",
    "consensus without agreement",
    "no consensus timeout",
    "timestamps used before they are stored",
    "the wrong processor expelled",
)
CHOSEN = [mutant for mutant in MUTANTS if mutant.name in DAILY]


@lru_cache
def violated(mutant: Mutant) -> tuple[str, ...]:
    """At its own seed."""
    caught = hunt(mutant, [mutant.seed])
    return () if caught is None else caught[1].violated


def test_there_are_at_least_sixty_and_each_has_its_own_name() -> None:
    assert len(MUTANTS) >= 60
    assert len({mutant.name for mutant in EVERY}) == len(EVERY)
    assert len({(mutant.module, mutant.old, mutant.new) for mutant in EVERY}) == len(EVERY)


def test_each_is_a_breakage_of_the_present_source() -> None:
    for mutant in EVERY:
        source = getsource(import_module(f"totempole.{mutant.package}.{mutant.module}"))
        assert source.count(mutant.old) == 1, mutant.name
        compile(source.replace(mutant.old, mutant.new), mutant.module, "exec")


@pytest.mark.parametrize(
    "mutant",
    [each if each in CHOSEN else pytest.param(each, marks=pytest.mark.long) for each in MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_a_checker_notices(mutant: Mutant) -> None:
    assert mutant.seed < 500
    assert violated(mutant), f"{mutant.name} got by at seed {mutant.seed}"
    assert violated(mutant) != (RAISED,), "noticed by an exception, not by a checker"


def test_those_of_every_day_break_every_property() -> None:
    assert len(CHOSEN) == len(DAILY)
    broken = {name for mutant in CHOSEN for name in violated(mutant)}
    assert {item.name for item in RING_PROPERTIES} <= broken


@pytest.mark.parametrize("mutant", HARMLESS, ids=lambda mutant: mutant.name)
def test_what_is_called_harmless_is_not_noticed(mutant: Mutant) -> None:
    assert hunt(mutant, (3,)) is None


def test_the_true_protocol_is_left_as_it_was() -> None:
    broken = mutated_endpoint(MUTANTS[0])
    from totempole.srp.endpoint import Endpoint as again

    assert broken is not Endpoint
    assert again is Endpoint


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    with pytest.raises(AssertionError, match="stands 0 times"):
        mutated_endpoint(Mutant("nothing", "ring", "no such text", ""))
