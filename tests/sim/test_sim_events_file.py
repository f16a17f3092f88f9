"""The events file of appendix A, as it stands."""

from __future__ import annotations

import pytest

from totempole.errors import ScenarioError
from totempole.sim.events_file import PartitionEvent, events_scenario, parse_events
from totempole.sim.scenario import parse, run
from totempole.sim.script import Partition, Step

APPENDIX = """\
partition: 40000000 193 (100 104 105) (101 103)
partition: 65000000 193 (100 104 101 103 105)
partition: 74000000 193 (100 101) (105) (104 103)
"""


def test_the_file_of_the_appendix_is_read() -> None:
    assert parse_events(APPENDIX, "part.cfg") == [
        PartitionEvent(40_000_000, 193, ((100, 104, 105), (101, 103))),
        PartitionEvent(65_000_000, 193, ((100, 104, 101, 103, 105),)),
        PartitionEvent(74_000_000, 193, ((100, 101), (105,), (104, 103))),
    ]


def test_it_becomes_a_scenario_of_the_processors_it_names() -> None:
    scenario = events_scenario(parse_events(APPENDIX), "part.cfg")
    assert [number for _, number in scenario.processors] == [100, 101, 103, 104, 105]
    assert scenario.steps[0] == Step(40_000_000, Partition(((100, 104, 105), (101, 103))))
    assert parse(scenario.to_text(), "part.cfg") == scenario


def test_it_plays() -> None:
    soon = APPENDIX.replace("000000 ", "0000 ")
    outcome = run(events_scenario(parse_events(soon), end_us=3_000_000))
    members = {me: host.regular_configuration for me, host in outcome.world.hosts.items()}
    found = {me: conf.members for me, conf in members.items() if conf}
    assert found == {100: (100, 101), 101: (100, 101), 105: (105,), 103: (103, 104), 104: (103, 104)}
    assert outcome.world.faults["partition"] == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("merge: 1 193 (1)", "part.cfg, line 1: .*unknown event 'merge': the only event is `partition:`"),
        ("partition: soon 193 (1)", "write `partition: TIME_US NETWORK"),
        ("partition: 1 193 1 2", "write `partition: TIME_US NETWORK"),
        ("partition: 1 193", "write `partition: TIME_US NETWORK"),
        ("partition: 1 193 (1) ()", "an empty component"),
        ("partition: 1 193 (1 2) (2)", "twice"),
        ("partition: 1 193 (0 2)", "numbered from 1"),
        ("\npartition: 5 193 (1)\npartition: 4 193 (1)", "line 3: .*time goes backwards"),
    ],
)
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        parse_events(text, "part.cfg")


def test_several_networks_need_a_choice() -> None:
    events = parse_events("partition: 1 63 (1 2)\npartition: 2 193 (3) (4)")
    with pytest.raises(ScenarioError, match="networks 63, 193: choose one with --network"):
        events_scenario(events)
    with pytest.raises(ScenarioError, match="no events on network 5"):
        events_scenario(events, network=5)
    assert [number for _, number in events_scenario(events, network=193).processors] == [3, 4]
