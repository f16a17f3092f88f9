"""Who is expelled for failure to receive has failed to receive; blaming another is noticed."""

from __future__ import annotations

from totempole.checkers import check
from totempole.sim.fuzz.mutants import Mutant, mutated_stack
from totempole.sim.scenario import parse, run

DEAF = """
processors 1 2 3
set fail_to_receive_rounds 10
at 500ms condition loss=1 token_loss=0 to 3
at 500ms load 1 rate=500 size=100 until=900ms
at 1s condition loss=0 token_loss=0 to 3
end 2s
"""

WRONG = Mutant(
    "the wrong one blamed",
    "Ordering.blame",
    "return Blame(aru_id, FAILURE_TO_RECEIVE)",
    "return Blame(next(q for q in ring.members if q not in (aru_id, self.me)), FAILURE_TO_RECEIVE)",
)


def test_the_deaf_one_is_blamed() -> None:
    rows = run(parse(DEAF), level="checked").rows
    assert {row.origin for row in rows if row.kind == "blame"} == {3}
    assert check(rows).violated == ()


def test_blaming_another_is_noticed() -> None:
    rows = run(parse(DEAF), level="checked", stack=mutated_stack(WRONG)).rows
    violated = check(rows).violated
    assert [verdict.property for verdict in violated] == ["justified-expulsion"]
    assert 3 not in violated[0].violations[0].nodes
