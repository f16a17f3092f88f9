"""A small search of rings on several networks on every test run. `totem fuzz --networks any` is large."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeps import daily
from totempole.cli import main
from totempole.errors import TotemError
from totempole.sim.fuzz.kinds import kind_named, network_kind
from totempole.sim.fuzz.network_plan import STYLES, Ways, named, network_plan
from totempole.sim.fuzz.profiles import PROFILES
from totempole.sim.fuzz.search import try_profiled_seed
from totempole.sim.script_parser import parse
from totempole.sim.shared import shared_stretches

SEEDS = daily(range(8), 5)
ONLY = "only-networks"


@pytest.mark.parametrize("kind", ["networks", ONLY])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_property_holds(seed: int, kind: str) -> None:
    _, verdict = try_profiled_seed(kind, "all", seed)
    assert not verdict.violated, verdict.text
    assert verdict.deliveries


@pytest.mark.parametrize("ways", [Ways(), Ways(only_networks=True), Ways("active", 4), Ways("passive", 2)])
@pytest.mark.parametrize("seed", range(30))
def test_a_plan_survives_being_written_down_and_read_again(seed: int, ways: Ways) -> None:
    scenario = network_plan(ways, seed)
    assert parse(scenario.to_text(), scenario.name) == scenario


@pytest.mark.parametrize("seed", range(60))
def test_where_only_networks_fail_every_two_always_share_one(seed: int) -> None:
    """The last fault included: the stretch reaches to the end of the run."""
    scenario = network_plan(Ways(only_networks=True), seed)
    assert scenario.redundancy is not None
    scenario = replace(scenario, redundancy=replace(scenario.redundancy, tokens="all"))
    (whole,) = shared_stretches(scenario, 2_000_000)
    assert whole.to_us == scenario.end_us


def test_a_seed_decides_style_number_and_kind() -> None:
    drawn = [network_plan(Ways(), seed) for seed in range(80)]
    assert {len(scenario.networks) for scenario in drawn} == {2, 3}
    styles = {scenario.redundancy.style for scenario in drawn if scenario.redundancy}
    assert styles == set(STYLES) - {"any"}
    assert {scenario.redundancy.tokens for scenario in drawn if scenario.redundancy} == {"all", "one"}
    assert any(network.lan.bandwidth_bytes_per_s for one in drawn for network in one.networks)
    assert any(network.condition for one in drawn for network in one.networks)


@pytest.mark.parametrize("ways", [Ways(), Ways("active-passive", 3), Ways("passive", 2, only_networks=True)])
def test_a_search_is_found_by_its_name(ways: Ways) -> None:
    assert named(ways.name) == ways
    kind = kind_named(ways.name)
    assert kind.plan(5) == network_kind(ways).plan(5)
    assert kind.replay_command(5).startswith("totem fuzz --networks ")


def test_ways_that_cannot_be_are_refused() -> None:
    with pytest.raises(TotemError, match="style 'round-robin'"):
        Ways("round-robin")
    with pytest.raises(TotemError, match="1 networks: give 2, 3 or 4"):
        Ways(networks=1)
    with pytest.raises(TotemError, match="active-passive needs 3"):
        Ways("active-passive", 2)


def test_a_calm_profile_has_no_faults() -> None:
    for ways in (Ways(), Ways(only_networks=True)):
        scenario = network_plan(ways, 3, PROFILES["calm"])
        assert not any(" on " in step.action.text(str) for step in scenario.steps)


def test_the_command_line_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--networks", "2", "--style", "passive", "--seeds", "1:2", "--jobs", "1"]) == 0
    assert "none failed" in capsys.readouterr().out
    assert main(["fuzz", "--style", "passive", "--seeds", "1:2"]) == 2
    assert "need --networks N" in capsys.readouterr().err
    assert main(["fuzz", "--networks", "2", "--groups", "--seeds", "1:2"]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_a_name_of_other_things_is_none() -> None:
    assert named("ring") is None
    assert replace(Ways(), networks=3).name == "networks:any:3"
