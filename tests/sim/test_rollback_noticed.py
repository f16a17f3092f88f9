"""A rolled-back disk is refused by those who remember better, and the check that says so can fail."""

from __future__ import annotations

from totempole.sim.fuzz.mutation import Mutant, mutated_stack
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.rollback import REFUSED, Rollback, check_rollbacks
from totempole.sim.scenario import Outcome, parse, run
from totempole.trace.schema import Row

HEAD = """
processors 1 2 3
seed 4
set timeout_stretch_max_percent 100
"""
NOTICED = "expect rollbacks noticed"
TWO_LIVES = "at 500ms crash 2\nat 600ms restart 2\nat 1s crash 2\nat 1.1s restart 2"
BACK = "at 2s disk 2 rollback 20\nat 2s crash 2\nat 2.1s restart 2"


def play(steps: str, head: str = HEAD) -> Outcome:
    scenario = parse("\n".join([head, steps]))
    assert parse(scenario.to_text(), scenario.name) == scenario
    return run(scenario, level="checked")


def test_those_who_remember_a_later_life_refuse_the_former_one_and_say_so() -> None:
    outcome = play(f"{TWO_LIVES}\n{BACK}\nend 6s\n{NOTICED}")
    assert not outcome.failures, outcome.failures
    (rollback,) = outcome.world.rollbacks
    assert rollback.lasts
    assert set(rollback.witnesses) == {1, 3}
    refusals = [row for row in outcome.rows if row.kind == "branch" and row.reason == REFUSED]
    assert {row.node for row in refusals} == {1, 3}
    assert {(row.origin, row.count) for row in refusals} == {(2, rollback.row.incarnation)}
    assert outcome.world.hosts[1].regular_configuration is not None
    assert tuple(outcome.world.hosts[1].regular_configuration.members) == (1, 3)


def test_nobody_needs_to_notice_what_nobody_remembers() -> None:
    forgetful = "at 2.05s crash 1\nat 2.05s crash 3\nat 2.1s restart 1\nat 2.1s restart 3"
    steps = BACK.replace("at 2.1s restart 2", f"{forgetful}\nat 2.1s restart 2")
    outcome = play(f"{TWO_LIVES}\n{steps}\nend 6s\n{NOTICED}")
    assert not outcome.failures, outcome.failures
    assert not outcome.world.rollbacks[0].witnesses


def test_a_protocol_that_lets_former_lives_in_is_found_out() -> None:
    silent = Mutant(
        "former lives", "SingleRing._is_of_a_former_life", "if join.incarnation >= latest:", "if True:"
    )
    scenario = parse("\n".join([HEAD, TWO_LIVES, BACK, f"end 6s\n{NOTICED}"]))
    verdict, _ = try_scenario(scenario, mutated_stack(silent))
    assert verdict.violated == ("rollback-noticed",)


# The check itself


def row(node: int, step: int, kind: str, incarnation: int = 1, **columns: object) -> Row:
    return Row("run", node, incarnation, step, 1_000 + step, "srp", kind, **columns)  # type: ignore[arg-type]


START = row(2, 10, "restart", 3)
BEFORE = Rollback(START, {1: 1}, lasts=True)


def test_a_rollback_that_nobody_notices() -> None:
    (violation,) = check_rollbacks([START], [BEFORE]).violations
    assert "nobody of [1]" in violation.text
    refusal = row(1, 20, "branch", reason=REFUSED, origin=2)
    assert not check_rollbacks([START, refusal], [BEFORE]).violations
    assert check_rollbacks([START, refusal._replace(origin=3)], [BEFORE]).violations


def test_a_rollback_is_excused_when_it_or_its_witnesses_are_gone() -> None:
    assert not check_rollbacks([START], [Rollback(START, {1: 1}, lasts=False)]).violations
    assert not check_rollbacks([START, row(1, 20, "crash")], [BEFORE]).violations


def test_a_ring_with_one_who_knows_better() -> None:
    refusal = row(1, 20, "branch", reason=REFUSED, origin=2)
    installed = {"configuration": "40@1", "configuration_kind": "regular", "members": (1, 2)}
    rows = [START, refusal, row(1, 21, "configuration", **installed)]
    assert not check_rollbacks(rows, [BEFORE]).violations
    (violation,) = check_rollbacks([*rows, row(2, 21, "configuration", 3, **installed)], [BEFORE]).violations
    assert "is with it in configuration 40@1" in violation.text
    # In its next life it has other numbers.
    later = [row(2, 21, "restart", 9), row(2, 22, "configuration", 9, **installed)]
    assert not check_rollbacks([*rows, *later], [BEFORE]).violations
