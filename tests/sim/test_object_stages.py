"""Breakages of replicated objects, and the scenarios that show them: each is noticed, and by what it should
be."""

from __future__ import annotations

import object_stages as stages
import pytest

from sweeps import first_row_of
from totempole.sim.fuzz.mutation import Mutant, mutated_objects, mutated_stack
from totempole.sim.fuzz.object_mutants import OBJECT_STAGED
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.objects.program import Program
from totempole.sim.objects.programs import ObjectParts
from totempole.sim.script_parser import parse

BY_NAME = {mutant.name: mutant for mutant in OBJECT_STAGED}


def tried(text: str, seed: int, mutant: Mutant | None = None, parts: ObjectParts | None = None) -> Verdict:
    scenario = parse(text.format(seed=seed, object="store"), "stage")
    stack = mutated_stack(mutant) if mutant is not None else None
    return try_scenario(scenario, stack, parts or (mutated_objects(mutant) if mutant is not None else None))[
        0
    ]


@pytest.mark.parametrize(
    ("text", "seed", "name", "violated"),
    first_row_of(
        [
            (stages.PAUSED_WITH_THE_TOKEN, 5, "a barrier without answers", "object-linearizable"),
            (stages.LATE_COPY, 0, "a settled number is applied again", "object-linearizable"),
            (
                stages.READ_AT_ONCE,
                0,
                "a read before the place of its barrier is applied",
                "object-linearizable",
            ),
        ]
    ),
)
def test_a_breakage_that_its_stage_shows(text: str, seed: int, name: str, violated: str) -> None:
    assert not tried(text, seed).violated
    assert violated in tried(text, seed, BY_NAME[name]).violated


def test_a_read_after_a_pause_with_the_token_in_hand() -> None:
    """The stage is what it says: the reads are asked for while the token waits for the paused processor."""
    found = tried(stages.PAUSED_WITH_THE_TOKEN, 0).coverage
    assert found["object: resumed with the token in hand"] == 1
    assert found["object: read while paused with the token in hand"] > 0


def test_a_barrier_that_nobody_waits_for_any_more() -> None:
    """Its question was under way when its program left: it is forgotten, and nobody says that it never
    passed."""
    assert not tried(stages.FORGOTTEN_QUESTION, 0).violated


def test_client_numbers_that_are_used_again_after_a_restart() -> None:
    """A program that is started again must not be the client that it was: its numbers begin again."""

    def same_again(program: Program) -> str:
        return f"{program.name}/{len(program.life.host._clients) if program.life else 0}"

    assert not tried(stages.CRASHES, 13).violated
    violated = tried(stages.CRASHES, 13, parts=ObjectParts(new_client=same_again)).violated
    assert {"object-linearizable", "object-outcomes"} & set(violated)
