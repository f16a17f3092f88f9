"""Fences over the whole stack: rivals in a partition, a crash in between, and a search."""

from __future__ import annotations

import pytest

from totempole.corel.fences import FenceMark, Fences
from totempole.errors import ScenarioError
from totempole.sim.fuzz.log_plan import log_plan
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.scenario import Outcome, parse, run
from totempole.sim.script_logs import Append
from totempole.types import Fence

RACE = """
processors p=1 q=2 r=3
seed 3
groups
log p q r
at 1s append p orders count=2 fence=f:0..0:1
at 1.5s partition (p)
at 1.6s append p orders units=2 fence=f:1..1:2
at 2s append q stock count=3 fence=f:1..1:2
at 2.5s heal
at 3.5s crash q
at 3.8s append r orders fence=f:1..1:2
at 3.9s append r orders fence=f:0..2:7
at 4s restart q
at 5s append q orders fence=f:0..6:7
end 8s
expect checkers hold
"""


def judged(outcome: Outcome) -> set[str]:
    return {verdict.property for report in outcome.reports for verdict in report.violated}


def test_of_rivals_one_is_let_in_through_a_partition_and_a_crash() -> None:
    outcome = run(parse(RACE), level="checked")
    assert outcome.appenders is not None
    assert judged(outcome) == set()
    first, *red, green, late, seventh, last = outcome.appenders.requests
    assert (first.placed is not None, green.placed is not None, seventh.placed is not None) == (True,) * 3
    for request in (*red, late):
        assert request.fenced is not None
        assert (request.fenced.mark, request.fenced.position) == (2, 2), "where the rival's records begin"
    assert last.fenced is not None
    assert (last.fenced.mark, last.fenced.position) == (7, 5)


def test_the_checker_and_the_programs_notice_a_fence_that_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def let_all_in(self: Fences, fence: Fence) -> FenceMark | None:
        return None

    monkeypatch.setattr(Fences, "keeps_out", let_all_in)
    assert judged(run(parse(RACE), level="checked")) == {"corel-fences", "fences-told"}


def test_what_a_scenario_says_of_fences() -> None:
    scenario = parse(RACE)
    appends = [step.action for step in scenario.steps if isinstance(step.action, Append)]
    assert appends[0] == Append(1, "orders", count=2, fence=Fence("f", 1, 0, 0))
    assert parse(scenario.to_text()) == scenario
    for wrong in ("f", "f:1", "f:0..0", "f:x..0:1", "f:0..1:1", ":0..0:1"):
        with pytest.raises(ScenarioError):
            parse(RACE.replace("f:0..0:1", wrong))


@pytest.mark.search
@pytest.mark.parametrize("seed", [4, 7, 8, 13])
def test_seeds_with_fences_hold(seed: int) -> None:
    verdict, _ = try_scenario(log_plan(seed))
    assert not verdict.violated, verdict.text
    assert verdict.coverage["log: fenced"] > 0
