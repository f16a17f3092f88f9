"""Read barriers over the whole stack: a replica that was paused with the token in hand, and a search."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from totempole.corel.barriers import Barriers
from totempole.errors import ScenarioError
from totempole.sim.fuzz.log_plan import log_plan
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.scenario import Outcome, parse, run
from totempole.sim.script import When
from totempole.sim.script_logs import Read

PAUSED = """
processors p=1 q=2 r=3
seed 3
groups
log p q r
at 1s append p orders
at 1.5s pause p
at 1510ms partition (p)
at 2s append q orders units=3
at 2.5s resume p
at 2.5s read p 2
at 2.6s heal
at 4s read r
end 6s
expect checkers hold
"""


def judged(outcome: Outcome) -> set[str]:
    return {verdict.property for report in outcome.reports for verdict in report.violated}


def test_a_paused_replica_does_not_read_its_own_past() -> None:
    outcome = run(parse(PAUSED), level="checked")
    appenders = outcome.appenders
    assert appenders is not None
    assert judged(outcome) == set()
    assert appenders.acts["barrier asked in a primary of the past"] == 2
    assert all(barrier.place >= barrier.green > 0 for barrier in appenders.barriers)
    assert appenders.acts["barrier passed"] == 3


def test_the_checker_and_the_programs_notice_if_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Barriers.settle

    def without_answers(self: Barriers, green_runs: int, is_quorum: Callable[[set[int]], bool]) -> None:
        true(self, green_runs, lambda there: True)

    monkeypatch.setattr(Barriers, "settle", without_answers)
    assert judged(run(parse(PAUSED), level="checked")) == {"corel-barriers", "barriers-passed"}


def test_what_a_scenario_says_of_reads() -> None:
    scenario = parse(PAUSED)
    assert [step.action for step in scenario.steps if isinstance(step.action, Read)] == [Read(1, 2), Read(3)]
    assert parse(scenario.to_text()) == scenario
    when = parse(PAUSED.replace("at 4s read r", 'at 4s when "log primary" read r 2'))
    assert Read(3, 2) in [step.action.action for step in when.steps if isinstance(step.action, When)]
    for wrong in ("read", "read p 0", "read p q r", "read s"):
        with pytest.raises(ScenarioError):
            parse(PAUSED.replace("read r", wrong))
    bare = PAUSED.replace("log p q r", "").replace("at 1s append p orders", "")
    with pytest.raises(ScenarioError, match="a line `log p q r`"):
        parse(bare.replace("at 2s append q orders units=3", ""))


@pytest.mark.search
@pytest.mark.parametrize("seed", [17, 19, 20, 21])
def test_seeds_with_reads_hold(seed: int) -> None:
    verdict, _ = try_scenario(log_plan(seed))
    assert not verdict.violated, verdict.text
    assert verdict.coverage["log: barrier passed"] > 0
