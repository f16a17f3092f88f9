"""A profile leaves in a plan what it names, and nothing else that harms."""

from __future__ import annotations

import pytest

from totempole.cli import main
from totempole.sim.conditions import Condition
from totempole.sim.fuzz.kinds import GROUPS, KINDS, RING
from totempole.sim.fuzz.plan import CASCADES, FAULTS
from totempole.sim.fuzz.profiles import ALL, DONE_BY, FORBIDDEN, HARMS, PROFILES, RARE, Profile, harm_of
from totempole.sim.fuzz.search import Tally, search, try_profiled_seed, try_seed
from totempole.sim.script import Scenario
from totempole.sim.script_parser import parse

SEEDS = range(80)
RESTRICTED = [profile for profile in PROFILES.values() if not profile.whole]


def harms_in(scenario: Scenario) -> set[str]:
    clean: Condition = scenario.condition
    return {harm for step in scenario.steps if (harm := harm_of(step.action, clean)) is not None}


def test_every_injector_is_accounted_for() -> None:
    assert {injector.__name__ for injector in (*FAULTS, *CASCADES)} == set(DONE_BY)
    # A link is severed by the circumstances of a seed, and by no injector.
    assert {*set().union(*DONE_BY.values()), "sever"} == {*HARMS, *FORBIDDEN}


def test_all_is_what_a_seed_is_without_a_profile() -> None:
    for kind in (RING, GROUPS):
        assert [kind.plan(seed, ALL) for seed in range(10)] == [kind.plan(seed) for seed in range(10)]
        done = set().union(*(harms_in(kind.plan(seed)) for seed in SEEDS))
        assert done == {*HARMS, *RARE}, kind.name


@pytest.mark.parametrize("profile", RESTRICTED, ids=lambda profile: profile.name)
def test_only_the_named_harms_are_done_and_all_of_them(profile: Profile) -> None:
    for kind in (RING, GROUPS):
        done = set().union(*(harms_in(kind.plan(seed, profile)) for seed in SEEDS))
        assert done == profile.harms, kind.name


@pytest.mark.parametrize("profile", RESTRICTED, ids=lambda profile: profile.name)
def test_a_profiles_plan_can_be_written_down_and_has_a_name_of_its_own(profile: Profile) -> None:
    scenario = GROUPS.plan(3, profile)
    assert scenario.name == f"groups-3-{profile.name}"
    assert parse(scenario.to_text(), scenario.name) == scenario


@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        pytest.param(profile.name, kind, marks=pytest.mark.long if (row + column) % 3 else ())
        for row, profile in enumerate(RESTRICTED)
        for column, kind in enumerate(KINDS)
    ],
)
def test_every_property_holds_with_every_profile(profile: str, kind: str) -> None:
    """Every day each profile with two kinds of runs, and each kind with several profiles."""
    _, verdict = try_profiled_seed(kind, profile, 1)
    assert not verdict.violated, verdict.text
    assert verdict.deliveries


def test_a_search_with_a_profile() -> None:
    tally = search(Tally(1, 2, profile="calm"), jobs=1)
    assert (tally.done, tally.failed) == (1, 0)
    assert not tally.coverage["fault: crash"]
    assert try_seed(1)[1].coverage["fault: condition"] > tally.coverage["fault: condition"]


def test_the_command_that_replays_a_seed_names_the_profile(capsys: pytest.CaptureFixture[str]) -> None:
    command = RING.replay_command(1, PROFILES["crashes"])
    assert command == "totem fuzz --profile crashes --seed 1"
    assert GROUPS.replay_command(1) == "totem fuzz --groups --seed 1"
    assert main([*command.split()[1:], "--trace-hash"]) == 0
    with_profile = capsys.readouterr().out
    assert main(["fuzz", "--seed", "1", "--trace-hash"]) == 0
    assert capsys.readouterr().out != with_profile


def test_a_profile_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--profile", "stormy", "--seed", "1"]) == 2
    assert "calm" in capsys.readouterr().err
