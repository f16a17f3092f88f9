"""Simulated programs with replicated objects: seeds hold, their histories can be judged from the trace alone,
and scenarios are text."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps import first_of
from totempole.checkers.linearizability import judge
from totempole.sim.fuzz.kinds import OBJECTS
from totempole.sim.fuzz.object_plan import object_plan
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.objects.history import history_of
from totempole.sim.objects.own import OWN
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import run
from totempole.trace.ndjson import read_ndjson, write_ndjson

QUIET = """
processors 1 2 3
seed 7
groups
log 1 2 3
objects {object}

at 800ms host 1.a open
at 800ms host 2.a open
at 1s work 1.a count=30 callers=3 pause=3000
at 1s work 2.a count=30 callers=3 pause=3000
at 1200ms host 2.a snapshot
at 1300ms host 3.a open
at 1300ms work 3.a count=10 callers=1 pause=3000
at 4s expect settled 2500ms
end 4s
"""


@pytest.mark.parametrize("name", ["dict", "lock", "work-queue"])
def test_all_goes_well(name: str) -> None:
    verdict, outcome = try_scenario(parse(QUIET.format(object=name)))
    assert not verdict.violated, verdict.text
    assert outcome is not None
    assert outcome.objects is not None
    assert outcome.objects.history.began == 70
    assert outcome.objects.history.ended == 70 - outcome.objects.acts["unknown"]
    digests = {
        program.life.host.machine.digest()
        for program in outcome.objects.programs.values()
        if program.life is not None
    }
    assert len(digests) == 1


@pytest.mark.parametrize("seed", first_of([0, 1]))
def test_seeds_hold(seed: int) -> None:
    verdict, _ = try_scenario(object_plan(seed))
    assert not verdict.violated, verdict.text


def test_a_trace_can_be_judged_later(tmp_path: Path) -> None:
    outcome = run(parse(QUIET.format(object="store")))
    path = tmp_path / "trace.ndjson"
    write_ndjson(path, outcome.rows)
    calls = history_of(read_ndjson(path), OWN["store"])
    assert len(calls) == 70
    assert judge(calls, OWN["store"].model()).holds
    rows = [row for row in outcome.rows if row.kind == "call"]
    assert {row.process.rsplit(".", 2)[0] for row in rows} == {"1.a", "2.a", "3.a"}


def test_a_scenario_is_text() -> None:
    for seed in range(30):
        scenario = object_plan(seed)
        assert parse(scenario.to_text(), scenario.name) == scenario


def test_the_same_run_from_the_same_seed() -> None:
    scenario = parse(QUIET.format(object="queue"))
    assert run(scenario).rows == run(scenario).rows


def test_the_search_has_a_name() -> None:
    assert OBJECTS.replay_command(17) == "totem fuzz --objects --seed 17"
