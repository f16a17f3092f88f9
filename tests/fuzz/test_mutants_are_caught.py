"""Each one-line breakage of the protocol is noticed by a checker, at a seed that is written down beside it.

`totem fuzz --mutants --seeds 0:500` looks for them from the beginning. A few, of which together every
property of the ring is broken, are run every day; the rest with `make long`.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from totempole.checkers.ring import RING as RING_LAYER
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
from totempole.sim.fuzz.mutation import places_in
from totempole.sim.fuzz.trial import RAISED
from totempole.srp.engine import SingleRing

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
    assert len({(mutant.where, mutant.old, mutant.new) for mutant in EVERY}) == len(EVERY)


def test_each_is_a_breakage_of_the_present_source() -> None:
    for mutant in EVERY:
        compile(mutant.source, mutant.module, "exec")


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
    assert {item.name for item in RING_LAYER.properties} <= broken


@pytest.mark.parametrize("mutant", HARMLESS, ids=lambda mutant: mutant.name)
def test_what_is_called_harmless_is_not_noticed(mutant: Mutant) -> None:
    assert hunt(mutant, (3,)) is None


def test_the_true_protocol_is_left_as_it_was() -> None:
    broken = mutated_stack(MUTANTS[0])
    from totempole.srp.engine import SingleRing as again

    assert broken.parts.engines["totem"] is not SingleRing
    assert again is SingleRing


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    with pytest.raises(AssertionError, match="its text stands 0 times"):
        mutated_stack(Mutant("nothing", "Ring.answer", "no such text", ""))
    with pytest.raises(AssertionError, match=r"Ring\.nothing stands in 0 places"):
        mutated_stack(Mutant("nothing", "Ring.nothing", "no such text", ""))


def test_a_mutant_does_not_depend_on_how_its_code_is_written() -> None:
    """Comments, line breaks, quotes and doc strings may change, and the function may be in another module."""
    source = (
        'class Ring:\n    def blame(self, token):\n        """Whom."""\n'
        '        if (token.aru > 5  # so far\n                and token.name == "a"):\n            return 1\n'
    )
    (place,) = places_in("anywhere", source)
    assert place.name == "Ring.blame"
    assert place.code == (
        "def blame(self, token):\n    if token.aru > 5 and token.name == 'a':\n        return 1"
    )
    mutated = place.module_with(place.code.replace("> 5", "> 6"))
    assert mutated == (
        "class Ring:\n    def blame(self, token):\n        if token.aru > 6 and token.name == 'a':\n"
        "            return 1\n"
    )
