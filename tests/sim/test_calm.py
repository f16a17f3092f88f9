"""When a scenario is calm, and that a ring which breaks up while it is calm is noticed."""

from __future__ import annotations

import pytest

from totempole.checkers import check
from totempole.checkers.terms import Calm
from totempole.sim.calm import calm_stretches
from totempole.sim.scenario import parse, run

MS = 1_000
SETTLE_US = 500 * MS
BOUND_US = SETTLE_US + 100 * MS
"""As long again as a laggard is kept out."""

HEAD = "processors 1 2 3\nset readmission_us 100000\nset leave_us 200000\n"


def stretches(*steps: str, head: str = HEAD) -> tuple[Calm, ...]:
    return calm_stretches(parse("\n".join([head, *steps, "end 10s"])), SETTLE_US)


def calm(from_ms: int, to_us: int) -> Calm:
    return Calm(from_ms * MS, from_ms * MS + BOUND_US, to_us)


def test_without_faults_all_is_calm() -> None:
    assert stretches("at 1s send 1 20") == (calm(0, 10_000 * MS),)


def test_between_faults_it_is_calm() -> None:
    steps = ("at 2s crash 1", "at 2300ms restart 1", "at 5s partition (1) (2 3)", "at 9s heal")
    assert stretches(*steps) == (
        calm(0, 2_000 * MS - 1),
        calm(2_300, 5_000 * MS - 1),
        calm(5_000, 9_000 * MS - 1),
        calm(9_000, 10_000 * MS),
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("cut 1 2", "mend 1 2"),
        ("cut 1 2", "heal"),
        ("pause 1", "resume 1"),
        ("slow 1 10", "slow 1 1"),
        ("loss 0.1", "loss 0"),
        ("condition delay=1ms..2ms from 1", "condition delay=50us..100us from 1"),
        ("drop-next token", "heal"),
        ('when "gather>commit" crash 1', "heal"),
    ],
)
def test_it_is_not_calm_while_something_is_wrong(wrong: str, right: str) -> None:
    found = stretches(f"at 2s {wrong}", f"at 8s {right}")
    assert found == (calm(0, 2_000 * MS - 1), calm(8_000, 10_000 * MS))


def test_a_leave_may_take_its_time() -> None:
    assert stretches("at 2s leave 1")[-1] == calm(2_200, 10_000 * MS)


@pytest.mark.parametrize("line", ["condition loss=0.01", "lan bandwidth=1000000", "costs event=9"])
def test_some_networks_are_never_calm(line: str) -> None:
    assert stretches(head=HEAD + line) == ()


def test_a_ring_that_breaks_up_while_nothing_is_wrong_is_noticed() -> None:
    """The scenario that it is judged by does not know that links fail every second."""
    quiet = "at 500ms crash 3\nat 600ms restart 3\nat 8s crash 3\nat 9s restart 3\nend 10s\n"
    quiet += "expect settled 500ms\n"
    broken = "".join(f"at {second}s partition (1) (2 3)\nat {second}500ms heal\n" for second in (3, 4, 5))
    stretch = calm_stretches(parse(HEAD + quiet), SETTLE_US)
    whole = run(parse(HEAD + quiet), level="checked")
    assert whole.failures == []
    rows = run(parse(HEAD + quiet.replace("at 8s", broken + "at 8s", 1)), level="checked").rows
    found = check(rows, complete=True, calm=stretch)
    assert {verdict.property for verdict in found.violated} == {"steady-rings"}
    assert found["steady-rings"].violations[0].nodes in ((1,), (2,), (3,))
