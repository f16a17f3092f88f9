"""Drain and restore through a driver, and networks seen by the program that a node is embedded in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from loopback import LIMIT_S, Place, a_place, wait_until
from members import Member, mesh_of, node_config, started

from totempole.client.events import NetworkChanged
from totempole.core.inputs import Command
from totempole.errors import ConfigurationError
from totempole.networks.commands import Drain
from totempole.networks.events import NetworkRefused
from totempole.networks.reports import Row
from totempole.networks.service import Service
from totempole.rrp import RedundancyConfig
from totempole.runtime.config import NetworkConfig, NodeConfig, Peer
from totempole.runtime.control import Request
from totempole.runtime.driver import Driver
from totempole.runtime.network_requests import STOPPED, NetworkRequests, number_of
from totempole.runtime.node import Node
from totempole.runtime.snapshot import snapshot


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as place:
        yield place


def on_two(place: Place, number: int, directory: Path, *numbers: int) -> NodeConfig:
    """As node_config has it, on the networks `left` and `right`."""
    first, second, last = place.address(number).rsplit(".", 2)
    other = f"{first}.{int(second) + 1}."
    peers = tuple(Peer(each, f"{other}{each}", place.port) for each in numbers)
    right = NetworkConfig(
        name="right", address=f"{other}{last}", port=place.port, transport="mesh", peers=peers
    )
    return node_config(
        place,
        number,
        directory,
        name="left",
        more_networks=(right,),
        redundancy=RedundancyConfig(style="passive"),
        **mesh_of(place, *numbers),
    )


def test_a_network_has_a_name_and_a_number() -> None:
    assert [number_of(word, ("left", "right")) for word in ("left", "right", "1", "2")] == [0, 1, 0, 1]
    assert number_of("2", ("2", "1")) == 0, "a name goes before a number"
    for word in ("3", "0", "", "middle", "-1"):
        with pytest.raises(ConfigurationError, match="the ring has left, right; give one of these"):
            number_of(word, ("left", "right"))
    with pytest.raises(ConfigurationError):
        number_of("a", ("a", "a"))


def test_a_drained_network_is_not_drained_again() -> None:
    """Whoever asked would wait for a change that never comes."""
    service = Service(("left", "right"))
    service.install((1,))
    service.take_row(1, Row(0, 0, (), (), 2))
    assert isinstance(service.drain(0), list)
    assert service.drain(0) == "it is drained already"


def test_a_node_that_stops_says_so_to_who_waits(place: Place, tmp_path: Path) -> None:
    """The ring is never formed: the driver does not run."""
    member = Member(on_two(place, 1, tmp_path, 1))
    requests = NetworkRequests(member.driver)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(requests.carry_out(Request("drain", "left", 60))))
    thread.start()
    wait_until(lambda: requests._waiting is not None)
    requests.give_up()
    thread.join(LIMIT_S)
    answers.append(requests.carry_out(Request("restore", "right", 60)))
    member.driver.close()
    expected = {"processor": 1, "outcome": "unknown", "why": STOPPED}
    assert answers == [{"network": "left", **expected}, {"network": "right", **expected}]


class Loop:
    """What requests need of a driver. Time stands still until the test says otherwise."""

    def __init__(self) -> None:
        self.service = Service(("left", "right"))
        self.stack = SimpleNamespace(networks=[SimpleNamespace(service=self.service)])
        self.config = SimpleNamespace(processor=1)
        self.network_listeners: list[Callable[[Any], None]] = []
        self.timers: dict[Callable[[], None], int] = {}
        self.fed: list[Command] = []

    def call(self, function: Callable[[], None]) -> None:
        function()

    def now_us(self) -> int:
        return 0

    def at(self, due_us: int, function: Callable[[], None]) -> None:
        self.timers[function] = due_us

    def feed(self, command: Command) -> None:
        self.fed.append(command)

    def tell(self, told: NetworkRefused) -> None:
        for listener in tuple(self.network_listeners):
            listener(told)

    def expire(self) -> None:
        (function,) = self.timers
        del self.timers[function]
        function()

    def agree(self) -> None:
        self.service.install((1,))
        self.service.take_row(1, Row(0, 0, (), (), 2))


def test_while_the_ring_has_just_changed_it_is_asked_again() -> None:
    loop, answers = Loop(), []
    requests = NetworkRequests(cast("Driver", loop))
    thread = threading.Thread(
        target=lambda: answers.append(requests.carry_out(Request("drain", "left", LIMIT_S)))
    )
    loop.service.install((1, 2))
    thread.start()
    wait_until(lambda: loop.timers)
    loop.expire()
    assert loop.timers, "not yet"
    assert loop.fed == []
    loop.agree()
    loop.expire()
    assert loop.fed == [Drain(0)]
    loop.service.install((1, 2))
    loop.tell(NetworkRefused(1, "right", "of another one"))
    loop.tell(NetworkRefused(0, "left", "the ring has just changed: ask again"))
    loop.agree()
    loop.expire()
    assert loop.fed == [Drain(0)] * 2
    loop.tell(NetworkRefused(0, "left", "no other network is in service"))
    thread.join(LIMIT_S)
    assert [(answer["outcome"], answer["why"]) for answer in answers] == [
        ("refused", "no other network is in service")
    ]
    assert loop.network_listeners == []


def test_who_waits_no_longer_leaves_nothing_behind() -> None:
    loop = Loop()
    loop.service.install((1, 2))
    answer = NetworkRequests(cast("Driver", loop)).carry_out(Request("drain", "left", 0.01))
    assert answer == {"network": "left", "processor": 1, "outcome": "unknown"}
    assert (loop.timers, loop.network_listeners) == ({}, [])


def test_a_ring_on_one_network_has_nothing_to_drain(place: Place, tmp_path: Path) -> None:
    member = Member(node_config(place, 1, tmp_path, **mesh_of(place, 1)))
    with pytest.raises(ConfigurationError, match="on one network"):
        NetworkRequests(member.driver).carry_out(Request("drain", "1"))
    assert member.driver.network_status == ()
    member.driver.close()


def test_a_network_that_is_absent_is_shown(place: Place, tmp_path: Path) -> None:
    """Its address is no host's."""
    config = on_two(place, 1, tmp_path, 1)
    absent = replace(config.more_networks[0], address="192.0.2.1", peers=(Peer(1, "192.0.2.1", place.port),))
    member = Member(replace(config, more_networks=(absent,)))
    left, right = snapshot(member.driver)["networks"]
    assert (left["interface"], left["absence"]) == ("lo", "")
    assert right["interface"] == ""
    assert "no interface of this host has it" in right["absence"]
    member.driver.close()


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_program_that_embeds_a_node_sees_its_networks(placement: Any, place: Place, tmp_path: Path) -> None:
    """Another member drains one."""

    async def main() -> None:
        node = Node(on_two(place, 1, tmp_path, 1, 2), placement=placement)
        async with asyncio.timeout(LIMIT_S), node as session:
            events = session.events(networks=True)
            assert [(await anext(events)).name for _ in range(2)] == ["left", "right"]  # type: ignore[union-attr]
            await asyncio.to_thread(wait_until, lambda: other.members == (1, 2))
            assert (await asyncio.to_thread(drain))["outcome"] == "done"
            event = await anext(events)
            while not isinstance(event, NetworkChanged) or event.state != "drained":
                event = await anext(events)
            assert event.name == "left"
            assert [network.state for network in await session.networks()] == ["drained", "in_service"]
            document = await node.status()
            assert [network["state"] for network in document["networks"]] == ["drained", "in_service"]

    def drain() -> dict[str, Any]:
        return NetworkRequests(other.driver).carry_out(Request("drain", "left", LIMIT_S))

    with started(on_two(place, 2, tmp_path, 1, 2)) as (other,):
        asyncio.run(main())
    assert any(line.startswith("network drained processor=2 network=left") for line in other.log.lines)
