"""Each breakage of the group layer is noticed by a checker, at a seed that is written down beside it.

`totem fuzz --mutants --groups --seeds 0:500` looks for them from the beginning. A few, of which together
every property of groups is broken, are run every day; the rest with `make long`.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from totempole.checkers.groups import GROUPS
from totempole.groups import GroupLayer
from totempole.sim.fuzz.group_mutants import GROUP_HARMLESS, GROUP_MUTANTS, GROUP_STAGED, GROUP_UNNOTICED
from totempole.sim.fuzz.mutants import (
    BY_HAND,
    HARMLESS,
    MUTANTS,
    STAGED,
    UNNOTICED,
    Mutant,
    hunt,
    mutated_stack,
)
from totempole.sim.fuzz.trial import RAISED
from totempole.sim.stacks import RealStack

EVERY = (*GROUP_MUTANTS, *GROUP_STAGED, *GROUP_UNNOTICED, *GROUP_HARMLESS)

DAILY = (
    "a message to two groups delivered for each",
    "packets of a stale epoch taken",
    "a part with the processes of others",
    "a joiner that has its state waits on",
)
CHOSEN = [mutant for mutant in GROUP_MUTANTS if mutant.name in DAILY]


@lru_cache
def violated(mutant: Mutant) -> tuple[str, ...]:
    """At its own seed."""
    caught = hunt(mutant, [mutant.seed])
    return () if caught is None else caught[1].violated


def test_there_are_at_least_forty_with_names_of_their_own() -> None:
    names = [mutant.name for mutant in (*MUTANTS, *STAGED, *BY_HAND, *UNNOTICED, *HARMLESS, *EVERY)]
    assert len(set(names)) == len(names)
    assert len(GROUP_MUTANTS) >= 40


def test_each_is_a_breakage_of_the_present_source() -> None:
    for mutant in EVERY:
        compile(mutant.source, mutant.module, "exec")


@pytest.mark.parametrize(
    "mutant",
    [each if each in CHOSEN else pytest.param(each, marks=pytest.mark.long) for each in GROUP_MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_a_checker_notices(mutant: Mutant) -> None:
    assert mutant.seed < 500
    assert violated(mutant), f"{mutant.name} got by at seed {mutant.seed}"
    assert violated(mutant) != (RAISED,), "noticed by an exception, not by a checker"


def test_those_of_every_day_break_every_property() -> None:
    assert len(CHOSEN) == len(DAILY)
    broken = {name for mutant in CHOSEN for name in violated(mutant)}
    assert {item.name for item in GROUPS.properties} <= broken


@pytest.mark.parametrize("mutant", GROUP_HARMLESS, ids=lambda mutant: mutant.name)
def test_what_is_called_harmless_is_not_noticed(mutant: Mutant) -> None:
    assert hunt(mutant, (3,)) is None


def test_the_true_layer_is_left_as_it_was() -> None:
    broken = mutated_stack(GROUP_MUTANTS[0])
    assert broken.parts.groups is not GroupLayer
    assert RealStack().parts.groups is GroupLayer
