"""A node on several networks takes further ones, and does without the last, while it runs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import LIMIT_S, Place, a_place, wait_until
from members import Member, started, wait_for_ring
from test_several_networks import address, config_of, exchange, states

from sweeps import first_of
from totempole.errors import ConfigurationError
from totempole.networks.events import NetworkState
from totempole.runtime.config import LoggingConfig, NodeConfig, TraceConfig
from totempole.runtime.reloading import NEEDS_RESTART, NOT_RELOADED, check_window, differences
from totempole.runtime.replaying import replay
from totempole.runtime.snapshot import snapshot
from totempole.runtime.status import StatusError, read_status

IN, FAULTY = NetworkState.IN_SERVICE.name, NetworkState.FAULTY.name


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


def change(member: Member, config: NodeConfig) -> None:
    """And waits until it is taken."""
    done = threading.Event()
    member.driver.change_settings(config)
    member.driver.call(done.set)
    wait_until(lambda: done.is_set() or member.error is not None)
    assert member.error is None, member.error


def lines(member: Member, name: str) -> list[str]:
    return [line for line in member.log.lines if line.startswith(name)]


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_a_network_is_added_and_removed_on_real_sockets(place: Place, tmp_path: Path, style: str) -> None:
    trace = TraceConfig(inputs=True)
    two = [config_of(place, number, tmp_path, style=style, trace=trace) for number in (1, 2)]
    three = [config_of(place, number, tmp_path, style=style, networks=3, trace=trace) for number in (1, 2)]
    with started(*two) as members:
        wait_for_ring(*members)
        exchange(members, "two")
        kinds = [list(member.kinds) for member in members]
        first, second = members
        change(first, three[0])
        wait_until(lambda: states(first) == [IN, IN, FAULTY])
        wait_until(lambda: first.driver.stack.networks[0].service.why[2] == "not configured at 2")
        exchange(members, "one of two has three")
        change(second, three[1])
        wait_until(lambda: states(first) == states(second) == [IN, IN, IN])
        exchange(members, "three")
        document = snapshot(first.driver)["networks"]
        assert [each["name"] for each in document] == ["a", "b", "c"]
        assert document[2]["state"] == "in_service"
        assert document[2]["bytes_sent"]
        assert document[2]["address"].startswith(address(place, 1, 2))
        for member, config in zip(members, two, strict=True):
            change(member, config)
        wait_until(lambda: states(first) == states(second) == [IN, IN])
        exchange(members, "two again")
        assert [each["name"] for each in snapshot(first.driver)["networks"]] == ["a", "b"]
        assert [member.kinds for member in members] == kinds
        assert lines(first, "network added")
        assert lines(first, "network removed")
        assert not lines(first, NEEDS_RESTART)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind((address(place, 1, 2), place.port))
        for member in members:
            member.driver.leave()
            member.end()
    (recording,) = (tmp_path / "node1" / "trace").glob("inputs-*.totem")
    report = replay(recording)
    assert report.identical, report.difference
    assert report.inputs["AddNetwork"] == report.inputs["RemoveNetwork"] == 1


def test_what_else_has_changed_needs_a_restart(place: Place, tmp_path: Path) -> None:
    old = config_of(place, 1, tmp_path, members=1)
    with started(old) as (member,):
        wait_for_ring(member)
        new = replace(config_of(place, 1, tmp_path, members=1, networks=3), lag_alarm_ms=70)
        change(member, replace(new, logging=LoggingConfig(level="debug")))
        wait_until(lambda: states(member) == [IN, IN, IN])
        (line,) = lines(member, NEEDS_RESTART)
        assert line.endswith("settings=lag_alarm_ms, [logging] level")
        assert member.driver.config.lag_alarm_ms == old.lag_alarm_ms
        # The first of three is gone, and not the last: that cannot be done.
        change(member, replace(new, network=new.more_networks[0], more_networks=new.more_networks[1:]))
        assert len(member.driver.networks) == 3
        assert "the number of [[network]] tables" in lines(member, NEEDS_RESTART)[1]
        assert "[[network]] 1 address" in lines(member, NEEDS_RESTART)[1]


def test_a_network_that_cannot_be_had_changes_nothing(place: Place, tmp_path: Path) -> None:
    with started(config_of(place, 1, tmp_path, members=1)) as (member,):
        wait_for_ring(member)
        three = config_of(place, 1, tmp_path, members=1, networks=3)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((address(place, 1, 2), place.port))
            change(member, three)
        (line,) = lines(member, NOT_RELOADED)
        assert "Address already in use" in line
        assert len(member.driver.networks) == len(states(member)) == 2
        change(member, three)
        wait_until(lambda: states(member) == [IN, IN, IN])


def test_a_network_without_room_for_the_window_is_refused() -> None:
    check_window(1_000, 1_000, "c")
    with pytest.raises(ConfigurationError, match=r"network c: .*rmem_max"):
        check_window(999, 1_000, "c")


def test_settings_that_differ_are_named_as_in_the_file(place: Place, tmp_path: Path) -> None:
    old = config_of(place, 1, tmp_path)
    assert differences(old, old) == []
    more = (replace(old.more_networks[0], capacity=5),)
    new = replace(old, more_networks=more, ring=replace(old.ring, members_max=7), processor=1)
    assert differences(old, new) == ["[[network]] 2 capacity", "[ring] members_max"]


# A process


class Process:
    """`totem node` on several networks, with a file of its own."""

    def __init__(self, place: Place, number: int, folder: Path) -> None:
        self.place, self.number = place, number
        self.directory, self.file, self.log = (
            folder / f"s{number}",
            folder / f"n{number}",
            folder / f"l{number}",
        )
        self.write(2)
        with self.log.open("w") as stream:
            command = [sys.executable, "-m", "totempole", "node", "--config", str(self.file)]
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream)

    def write(self, networks: int, more: str = "") -> None:
        tables = "".join(
            f'[[network]]\nname = "{name}"\ntransport = "mesh"\nport = {self.place.port}\n'
            f'address = "{address(self.place, self.number, network)}"\n'
            f"peers = {[f'{peer}@{address(self.place, peer, network)}' for peer in (1, 2)]}\n"
            for network, name in enumerate("abc"[:networks])
        )
        self.file.write_text(
            f'processor = {self.number}\ndirectory = "{self.directory}"\n{tables}'
            '[redundancy]\nstyle = "passive"\nhello_us = 100000\nprobation_us = 200000\n'
            "[security]\nunsealed = true\n"
            '[logging]\nformat = "json"\n'
            f"[ring]\ntoken_loss_us = 2000000\ntoken_retransmission_us = 200000\n{more}"
        )

    def reload(self, networks: int, more: str = "") -> None:
        self.write(networks, more)
        self.process.send_signal(signal.SIGHUP)

    def networks(self) -> list[str]:
        assert self.process.poll() is None, self.log.read_text()
        try:
            document = read_status(self.directory)
        except StatusError:
            return []
        if document["members"] != [1, 2]:
            return []
        return [f"{each['name']} {each['state']}" for each in document["networks"]]

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0


@pytest.mark.nodes
def test_sighup_adds_and_removes_a_network(place: Place, tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = []
        for number in (1, 2):
            nodes.append(Process(place, number, tmp_path))
            stack.callback(nodes[-1].stop)
        two = ["a in_service", "b in_service"]
        wait_until(lambda: all(node.networks() == two for node in nodes))
        changes = read_status(nodes[0].directory)["configuration_changes"]
        nodes[0].reload(3)
        wait_until(lambda: nodes[0].networks() == [*two, "c faulty"])
        nodes[1].reload(3, "members_max = 9\n")
        wait_until(lambda: all(node.networks() == [*two, "c in_service"] for node in nodes))
        shown = subprocess.run(
            [sys.executable, "-m", "totempole", "network", "--directory", str(nodes[0].directory)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown
        assert "c        in service" in shown.stdout
        assert nodes[1].lines(NEEDS_RESTART)[0]["settings"] == "[ring] members_max"
        nodes[0].reload(1)
        wait_until(lambda: nodes[0].lines(NOT_RELOADED))
        for node in nodes:
            node.reload(2)
        wait_until(lambda: all(node.networks() == two for node in nodes))
        assert read_status(nodes[0].directory)["configuration_changes"] == changes
        assert not nodes[0].lines("key file not reloaded")
