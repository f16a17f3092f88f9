"""Who is expected, who is missing, and when that is said."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from loopback import a_place, wait_until
from members import mesh_of, node_config, started, wait_for_ring

from totempole.errors import ConfigurationError
from totempole.runtime import expected
from totempole.runtime.config import NetworkConfig, NodeConfig, Peer, SecurityConfig
from totempole.runtime.expected import MISSING_US, Absent, Attendance, Expectation
from totempole.runtime.snapshot import snapshot
from totempole.srp.config import RingConfig

WHERE = {1: ["10.0.0.1:5400"], 2: ["10.0.0.2:5400", "10.1.0.2:5400"]}
START_US = 1_000


def attendance(*args: Any) -> Attendance:
    return Attendance(Expectation(*args), lambda processor: WHERE.get(processor, []))


# Settings


def config(**settings: Any) -> NodeConfig:
    network = settings.pop("network", NetworkConfig(address="10.0.0.1"))
    return NodeConfig(
        processor=1,
        directory=Path("/tmp"),
        network=network,
        security=SecurityConfig(unsealed=True),
        **settings,
    )


def mesh(subnet: int, *processors: int) -> NetworkConfig:
    peers = tuple(Peer(processor, f"10.0.{subnet}.{processor}") for processor in processors)
    return NetworkConfig(address=f"10.0.{subnet}.1", transport="mesh", peers=peers)


@pytest.mark.parametrize(
    ("settings", "expectation"),
    [
        ({}, Expectation()),
        ({"expected": 3}, Expectation(3)),
        ({"expected": (3, 1, 2)}, Expectation(3, (1, 2, 3))),
        ({"expected": (2, 3)}, Expectation(3, (1, 2, 3))),
        ({"network": mesh(0, 1, 2, 5)}, Expectation(3, (1, 2, 5))),
        ({"network": mesh(0, 2)}, Expectation(2, (1, 2))),
        ({"network": mesh(0, 2), "more_networks": (mesh(1, 2, 3),)}, Expectation(3, (1, 2, 3))),
        ({"network": mesh(0, 1, 2, 5), "expected": 0}, Expectation()),
        ({"network": mesh(0, 1, 2, 5), "expected": (1, 2)}, Expectation(2, (1, 2))),
    ],
)
def test_what_the_settings_say(settings: dict[str, Any], expectation: Expectation) -> None:
    if "more_networks" in settings:
        from totempole.rrp.config import RedundancyConfig

        settings = settings | {"redundancy": RedundancyConfig(style="passive")}
    assert config(**settings).expectation == expectation


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"expected": -1}, "expected = -1: give a number of members, or a list of processors"),
        ({"expected": (1, 1)}, r"expected = \[1, 1\]: name each processor once"),
        (
            {"expected": 9, "ring": RingConfig(members_max=8)},
            "9 members, and a ring takes .* = 8",
        ),
    ],
)
def test_what_cannot_be_expected(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        config(**settings)


def test_a_file_and_the_command_line_have_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    rest = 'processor = 1\ndirectory = "n"\n[network]\naddress = "10.0.0.1"\n[security]\nunsealed = true\n'
    file.write_text(f"expected = [1, 2]\n{rest}")
    assert NodeConfig.load(file).expectation == Expectation(2, (1, 2))
    assert NodeConfig.load(file, ["expected=5"]).expectation == Expectation(5)


# Time


def test_the_log_speaks_when_somebody_has_been_missing_for_a_while_and_when_all_are_back() -> None:
    them = attendance(3, (1, 2, 3))
    assert them.look(START_US, (1, 2)) is None
    assert them.look(START_US + MISSING_US - 1, (1, 2)) is None
    line = them.look(START_US + MISSING_US, (1, 2))
    assert line is not None
    assert (line.level, line.name) == (logging.WARNING, "members are missing")
    assert line.fields == {"expected": 3, "missing": 1, "who": [3], "where": ["unknown"], "never_met": [3]}
    assert them.look(START_US + 9 * MISSING_US, (1, 2)) is None
    line = them.look(START_US + 10 * MISSING_US, (1, 2, 3))
    assert line is not None
    assert (line.level, line.name) == (logging.INFO, "all expected members are here")


def test_a_restart_of_a_node_is_no_news() -> None:
    them = attendance(2, (1, 2))
    assert them.look(START_US, (1, 2)) is None
    assert them.look(2 * START_US, (1,)) is None
    assert them.look(MISSING_US, (1, 2)) is None
    assert them.look(20 * MISSING_US, (1, 2)) is None


def test_who_else_goes_missing_is_told_anew() -> None:
    them = attendance(3, (1, 2, 3))
    them.look(START_US, (1, 2))
    assert them.look(START_US + MISSING_US, (1, 2)) is not None
    assert them.look(START_US + MISSING_US + 1, (1,)) is None
    line = them.look(START_US + 2 * MISSING_US + 1, (1,))
    assert line is not None
    assert (line.fields["who"], line.fields["never_met"]) == ([2, 3], [3])


def test_of_a_number_those_are_named_who_were_there_before() -> None:
    them = attendance(3)
    assert them.absent((1,)) == []
    them.look(START_US, (1, 2, 3))
    assert them.absent((1,)) == [Absent(2, "10.0.0.2:5400", met=True), Absent(3, "", met=True)]
    assert them.missing((1,)) == 2
    assert them.document(START_US, (1,))["present"] == 1


def test_more_than_expected_is_well() -> None:
    assert attendance(2).missing((1, 2, 3)) == 0
    assert attendance(2, (1, 2)).missing((1, 3)) == 1
    assert attendance().document(START_US, (1,)) == {}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "MET_MAX", 10)
    them = attendance(3)
    for number in range(1, 100, 2):
        them.look(number, (number, number + 1))
    assert len(them.absent(())) == 10


# Nodes


def test_a_peer_that_was_never_met_is_named_until_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "MISSING_US", 300_000)
    with a_place() as place:
        settings = mesh_of(place, 1, 2)
        one, two = (node_config(place, me, tmp_path, **settings) for me in (1, 2))
        with started(one) as (first,):
            wait_until(lambda: any("members are missing" in line for line in first.log.lines))
            (line,) = (line for line in first.log.lines if "members are missing" in line)
            where = f"{place.address(2)}:{place.port}"
            assert f"expected=2 missing=1 who=[2] where=['{where}'] never_met=[2]" in line
            document = snapshot(first.driver)
            assert document["expected"]["absent"] == [{"processor": 2, "address": where, "met": False}]
            assert document["addresses"] == {"1": [f"{place.address(1)}:{place.port}"], "2": [where]}
            with started(two) as (second,):
                wait_for_ring(first, second)
                wait_until(lambda: any("all expected members are here" in line for line in first.log.lines))
                assert snapshot(first.driver)["expected"]["missing"] == 0
