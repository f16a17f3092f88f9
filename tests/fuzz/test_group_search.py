"""A search of process groups: its own plan, coverage and mutants, behind the same commands as the ring's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from totempole.cli import main
from totempole.cli.fuzz import SearchReport
from totempole.cli.mutants import find_mutant
from totempole.errors import TotemError
from totempole.sim.fuzz import group_coverage
from totempole.sim.fuzz.coverage import IDLE_RUN_US
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.mutants import mutated_stack
from totempole.sim.fuzz.plan import CALM_US, plan
from totempole.sim.fuzz.search import Tally, search
from totempole.sim.fuzz.shrink import Shrinker
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.script import Fault, ProcessAction, Setting
from totempole.sim.script_parser import parse

SHORT = 5
"""A seed of two processors, which takes little time."""

FLIPPED = 20
"""An unsealed seed with flipped bits, some of them in what programs wrote."""


def test_a_seed_always_gives_the_same_scenario_and_not_the_rings() -> None:
    assert group_plan(7) == group_plan(7)
    assert group_plan(7).steps != plan(7).steps


def test_every_plan_has_programs_and_faults_and_a_calm() -> None:
    for seed in range(100):
        steps = group_plan(seed).steps
        assert sum(isinstance(step.action, ProcessAction) for step in steps) > 10, seed
        late = [step for step in steps if step.at_us > CALM_US and isinstance(step.action, Fault)]
        assert len(late) == 3 * (group_plan(seed).end_us >= IDLE_RUN_US), seed


def test_bits_are_flipped_without_a_seal_too_and_only_the_check_of_contents_helps() -> None:
    scenario = group_plan(FLIPPED)
    assert not scenario.sealed
    verdict, outcome = try_scenario(scenario)
    assert outcome.world.counters["corrupted"] > 5
    assert not verdict.violated
    unchecked = replace(scenario, settings=(*scenario.settings, Setting("check_contents", 0)))
    assert "group-whole-or-nothing" in try_scenario(unchecked)[0].violated


def test_a_search_counts_what_it_reached_of_groups(capsys: pytest.CaptureFixture[str]) -> None:
    tally = search(Tally(SHORT, SHORT + 1, kind="groups"), jobs=1)
    assert (tally.done, tally.failed) == (1, 0)
    assert tally.coverage["branch: exchange ends"]
    assert tally.coverage["groups: regular view by join"]
    assert tally.coverage["process: multicast"]
    report = SearchReport(tally, 1, 1.0)
    assert set(report.missing) < set(group_coverage.EXPECTED)


def test_a_failing_seed_is_replayed_with_groups() -> None:
    tally = Tally(0, 1, kind="groups")
    tally.add(0, Verdict("groups-0", ("group-one-order",), "text"))
    (failure,) = SearchReport(tally, 1, 1.0).data()["failures"]
    assert failure["replay"] == "totem fuzz --groups --seed 0"


def test_a_search_of_another_kind_is_not_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    Tally(0, 1, kind="groups").save(file)
    assert Tally.load(file, 0, 1, "groups").kind == "groups"
    with pytest.raises(TotemError, match="a search of groups"):
        Tally.load(file, 0, 1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert main(["fuzz", "--groups", "--seeds", f"{SHORT}:{SHORT + 1}", "--jobs", "1"]) == 0
    assert "regular view by join" in capsys.readouterr().out
    assert main(["fuzz", "--groups", "--seed", str(SHORT), "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "join" in text
    assert "group-one-order" in text
    assert parse(json.loads(file.read_text())["text"]).groups is not None
    assert main(["fuzz", "--mutants"]) == 0
    assert "no transitional view" in capsys.readouterr().out


def test_a_broken_layer_is_caught_and_shrunk_to_a_file() -> None:
    mutant = find_mutant("a lane not first in")
    endpoint = mutated_stack(mutant)
    scenario = group_plan(mutant.seed)
    verdict, _ = try_scenario(scenario, endpoint)
    small = Shrinker(scenario, verdict.violated, endpoint, trials_max=8).shrink()
    assert len(small.steps) < len(scenario.steps)
    again = parse(small.to_text(), "small")
    assert set(try_scenario(again, endpoint)[0].violated) & set(verdict.violated)
