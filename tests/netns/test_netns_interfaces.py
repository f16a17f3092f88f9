"""Nodes on two networks whose interfaces come late, go down, vanish, are made anew and stand still.

Two hosts are joined by two cables, veth pairs, without a switch between them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import PATIENT
from totempole.lab import commands, namespaces

WAIT_S = 60.0
NODE = Path(__file__).parent / "interface_node.py"
CABLES = "ab"


class Node:
    """A node in a namespace of its own."""

    def __init__(self, number: int, namespace: str, directory: Path) -> None:
        self.number = number
        self.namespace = namespace
        self.directory = directory
        self.process: subprocess.Popen[str] | None = None

    def configure(self, transport: str, more: str = "") -> Path:
        """`more`: further settings of each network."""
        file = self.directory / f"node{self.number}.toml"
        text = f'processor = {self.number}\ndirectory = "state{self.number}"\n[security]\nunsealed = true\n'
        text += '[redundancy]\nstyle = "passive"\nhello_us = 100000\nprobation_us = 200000\n'
        text += f"[ring]\n{PATIENT}"
        for place, name in enumerate(CABLES):
            text += f'[[network]]\nname = "{name}"\naddress = "{address(place, self.number)}"\n{more}'
            if transport == "mesh":
                peers = [f"{other}@{address(place, other)}" for other in (1, 2)]
                text += f'transport = "mesh"\npeers = {json.dumps(peers)}\n'
        file.write_text(text)
        return file

    def start(self, transport: str = "multicast", more: str = "") -> None:
        argv = [sys.executable, str(NODE), str(self.configure(transport, more))]
        with (self.directory / f"node{self.number}.log").open("w") as log:
            self.process = subprocess.Popen(
                commands.inside(self.namespace, argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._answer() == "started"

    def _answer(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, (self.directory / f"node{self.number}.log").read_text()
        return line

    def tell(self, command: str) -> str:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer()

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.tell("report"))
        assert not found["error"], found["error"]
        return found

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def sent_packets(self, cable: str) -> int:
        """What has left by a cable, by the kernel's own count."""
        argv = [
            commands.tool("ip"),
            "-n",
            self.namespace,
            "-s",
            "-json",
            "link",
            "show",
            "dev",
            f"cable-{cable}",
        ]
        return int(json.loads(commands.run(argv))[0]["stats64"]["tx"]["packets"])


def address(place: int, number: int) -> str:
    return f"10.9.{place}.{number}"


def address6(place: int, number: int) -> str:
    return f"fd09:{place}::{number}"


class Hosts:
    def __init__(self, directory: Path) -> None:
        self.nodes = [Node(number, f"tp-{os.getpid()}-cables-{number}", directory) for number in (1, 2)]
        self.switch_namespace = f"tp-{os.getpid()}-cables-sw"

    def __enter__(self) -> Hosts:
        names = [*[node.namespace for node in self.nodes], self.switch_namespace]
        namespaces.remove(names)
        commands.ip([f"netns add {name}" for name in names])
        for name in names:
            commands.ip(["link set lo up"], name)
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.stop()
        namespaces.remove([*[node.namespace for node in self.nodes], self.switch_namespace])

    def plug(self, cable: str, mtu: int = 1500) -> None:
        one, two = (node.namespace for node in self.nodes)
        wire = f"cable-{cable}"
        commands.ip([f"link add {wire} netns {one} mtu {mtu} type veth peer {wire} netns {two} mtu {mtu}"])
        for node in self.nodes:
            self._configure(node, cable)

    def plug_all_into_one_switch(self) -> None:
        """The mistake of whoever has one switch for two networks."""
        there = self.switch_namespace
        commands.ip(["link add bridge type bridge", "link set bridge up"], there)
        for node in self.nodes:
            for cable in CABLES:
                port = f"port-{node.number}{cable}"
                commands.ip(
                    [f"link add cable-{cable} netns {node.namespace} type veth peer {port} netns {there}"]
                )
                commands.ip([f"link set {port} master bridge up"], there)
                self._configure(node, cable)

    def _configure(self, node: Node, cable: str) -> None:
        place, wire = CABLES.index(cable), f"cable-{cable}"
        where = [f"{address(place, node.number)}/24", f"{address6(place, node.number)}/64"]
        lines = [f"addr add {each} dev {wire} {'nodad' if ':' in each else ''}" for each in where]
        commands.ip([*lines, f"link set {wire} up"], node.namespace)

    def unplug(self, cable: str) -> None:
        commands.ip([f"link del cable-{cable}"], self.nodes[0].namespace)

    def switch(self, number: int, cable: str, state: str) -> None:
        commands.ip([f"link set cable-{cable} {state}"], self.nodes[number - 1].namespace)

    def wait(self, holds: Callable[[dict[str, Any]], object], what: str) -> list[dict[str, Any]]:
        """Until that is so of both nodes."""
        end_s = time.monotonic() + WAIT_S
        while True:
            reports = [node.report() for node in self.nodes]
            if all(map(holds, reports)):
                return reports
            assert time.monotonic() < end_s, (what, reports)
            time.sleep(0.05)

    def wait_for_states(self, *states: str) -> None:
        self.wait(lambda found: found["states"] == list(states), f"networks to be {states}")

    def exchange(self, name: str, count: int = 100) -> list[dict[str, Any]]:
        """Both send; both deliver all of it in one order."""
        goal = self.nodes[0].report()["messages"] + 2 * count
        for node in self.nodes:
            assert node.tell(f"send {name}{node.number} {count}") == "sent"
        reports = self.wait(lambda found: found["messages"] >= goal, f"{goal} messages")
        assert [found["messages"] for found in reports] == [goal, goal]
        assert reports[0]["digest"] == reports[1]["digest"]
        return reports

    def wait_logged(self, number: int, *words: str) -> None:
        """Until a node has logged it, and has done so once."""
        end_s = time.monotonic() + WAIT_S
        while True:
            lines = self.nodes[number - 1].report()["log"]
            found = [line for line in lines if all(word in line for word in words)]
            if found:
                break
            assert time.monotonic() < end_s, lines
            time.sleep(0.05)
        assert len(found) == 1, found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with Hosts(tmp_path) as found:
        yield found


def start(hosts: Hosts, transport: str = "multicast", more: str = "") -> None:
    for node in hosts.nodes:
        node.start(transport, more)
    hosts.wait(lambda found: found["members"] == [1, 2], "a ring of two")


@pytest.mark.parametrize("transport", ["multicast", "mesh"])
def test_a_network_that_is_plugged_in_later(hosts: Hosts, transport: str) -> None:
    hosts.plug("a")
    start(hosts, transport)
    hosts.wait_logged(1, "network is absent", "network=b", "10.9.1.1")
    hosts.exchange("without")
    configurations = [node.report()["configurations"] for node in hosts.nodes]
    hosts.plug("b", mtu=9000)
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    hosts.wait(lambda found: found["segment_bytes"] == [1472, 8972], "the datagrams of the new cable")
    before = [node.sent_packets("b") for node in hosts.nodes]
    reports = hosts.exchange("with", 300)
    assert all(node.sent_packets("b") > start + 50 for node, start in zip(hosts.nodes, before, strict=True))
    hosts.wait_logged(1, "network is back", "network=b", "interface=cable-b")
    assert [found["configurations"] for found in reports] == configurations
    # And it can do without the first one, which it began with.
    hosts.switch(1, "a", "down")
    hosts.exchange("alone")


def test_an_interface_that_goes_down_and_up(hosts: Hosts) -> None:
    for cable in CABLES:
        hosts.plug(cable)
    start(hosts)
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    configurations = [node.report()["configurations"] for node in hosts.nodes]
    for cable, states in (("b", ("IN_SERVICE", "FAULTY")), ("a", ("FAULTY", "IN_SERVICE"))):
        hosts.switch(1, cable, "down")
        hosts.exchange(f"without-{cable}")
        hosts.wait_for_states(*states)
        hosts.wait_logged(1, "network is absent", f"network={cable}", "down")
        hosts.switch(1, cable, "up")
        hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
        hosts.exchange(f"with-{cable}")
        hosts.wait_logged(1, "network is back", f"network={cable}")
    assert [node.report()["configurations"] for node in hosts.nodes] == configurations


@pytest.mark.parametrize("transport", ["multicast", "mesh"])
def test_an_interface_that_is_made_anew(hosts: Hosts, transport: str) -> None:
    """With it went the sockets' memberships: without new sockets nothing would be heard on it again."""
    for cable in CABLES:
        hosts.plug(cable)
    start(hosts, transport)
    for _ in range(2):
        hosts.unplug("b")
        hosts.exchange("without")
        hosts.wait_for_states("IN_SERVICE", "FAULTY")
        hosts.wait(lambda found: found["there"] == [True, False], "the interface to be missed")
        hosts.plug("b")
        hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
        hosts.switch(2, "a", "down")
        hosts.exchange("on-the-new-one")
        hosts.switch(2, "a", "up")
        hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")


def test_an_interface_made_anew_between_two_looks(hosts: Hosts) -> None:
    """Nobody sees that it was gone, only that it is another one."""
    for cable in CABLES:
        hosts.plug(cable)
    start(hosts)
    hosts.unplug("b")
    hosts.plug("b")
    hosts.exchange("just-after")
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    hosts.switch(1, "a", "down")
    hosts.exchange("on-the-new-one")


def test_an_address_that_goes_and_comes(hosts: Hosts) -> None:
    for cable in CABLES:
        hosts.plug(cable)
    start(hosts)
    name = hosts.nodes[0].namespace
    commands.ip(["addr del 10.9.1.1/24 dev cable-b"], name)
    hosts.exchange("without")
    hosts.wait(lambda found: found["states"] == ["IN_SERVICE", "FAULTY"], "the loss to be noticed")
    hosts.wait_logged(1, "network is absent", "network=b", "no interface of this host has it")
    commands.ip(["addr add 10.9.1.1/24 dev cable-b"], name)
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    hosts.exchange("with")


def test_a_queue_that_stands_still_does_not_stop_the_node(hosts: Hosts) -> None:
    for cable in CABLES:
        hosts.plug(cable)
    start(hosts, more="send_buffer_bytes = 65536\n")
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    one = hosts.nodes[0]
    configurations = one.report()["configurations"]
    commands.tc(["qdisc add dev cable-b root tbf rate 8bit burst 1600 limit 500000000"], one.namespace)
    hosts.exchange("stalled", 2_000)
    hosts.wait_for_states("IN_SERVICE", "FAULTY")
    found = one.report()
    assert found["refused"][1]["EAGAIN"] > 0
    assert not found["refused"][0]
    assert found["configurations"] == configurations
    commands.tc(["qdisc del dev cable-b root"], one.namespace)
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    hosts.exchange("again")


def test_a_network_keeps_to_its_own_interface(hosts: Hosts) -> None:
    """Routes of the first node send the second network's words by the first cable: it goes by its own."""
    for cable in CABLES:
        hosts.plug(cable)
    one = hosts.nodes[0]
    commands.ip(["route add 10.9.1.2/32 dev cable-a src 10.9.1.1"], one.namespace)
    start(hosts, "mesh")
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")
    before = one.sent_packets("b")
    hosts.exchange("by-its-own")
    assert one.sent_packets("b") > before + 20


@pytest.mark.parametrize("transport", ["multicast", "mesh"])
def test_networks_that_are_wired_together_still_carry_a_ring(hosts: Hosts, transport: str) -> None:
    """Each host answers for both its addresses on both its interfaces, and hears itself."""
    hosts.plug_all_into_one_switch()
    start(hosts, transport)
    hosts.exchange("wired", 300)
    for node in hosts.nodes:
        assert not [line for line in node.report()["log"] if "uses this processor's number" in line]
        assert node.report()["states"].count("IN_SERVICE") > 0
    if transport == "multicast":  # a mesh has no way to notice
        hosts.wait(lambda found: found["crossed"] == [[0, 1]], "the networks to be known as one")
        hosts.wait(lambda found: found["why"] == ["wired together with b", "wired together with a"], "words")
    hosts.exchange("still")


def test_networks_that_are_apart_are_not_taken_for_one(hosts: Hosts) -> None:
    for cable in CABLES:
        hosts.plug(cable)
    start(hosts)
    hosts.exchange("apart")
    time.sleep(1)
    assert [node.report()["crossed"] for node in hosts.nodes] == [[], []]


# Sockets

HEARER = """
import errno, json, socket, sys
from totempole.core.effects import Channel
from totempole.runtime.config import NetworkConfig
from totempole.runtime.sockets import Sockets
from totempole.segment import Burst

class Unprivileged(socket.socket):
    def setsockopt(self, *arguments):
        if arguments[:2] == (socket.SOL_SOCKET, socket.SO_BINDTODEVICE):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        super().setsockopt(*arguments)

who, group, *addresses, neighbour = sys.argv[1:]
if who == "unprivileged":
    socket.socket = Unprivileged
configs = [NetworkConfig(address=address, multicast_group=group) for address in addresses]
networks = [Sockets(config, configs[1 - place : 2 - place]) for place, config in enumerate(configs)]
networks[1].send(Channel.TOKEN, (Burst(b"token", 1000),), (neighbour, 5401))
print(json.dumps([dict(network.refused) for network in networks]), flush=True)
input()
heard = []
for network in networks:
    heard.append([])
    while (read := Sockets.read(network.multicast)) is not None:
        heard[-1].append(read.data.decode())
print(json.dumps(heard), flush=True)
"""

SPEAKER = """
import socket, sys, time
group, *cables = sys.argv[1:]
for cable in cables:
    index, six = socket.if_nametoindex(cable), ":" in group
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        if six:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        else:
            choice = bytes(8) + index.to_bytes(4, "little")
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, choice)
        for _ in range(600):
            try:
                sock.sendto(cable.encode(), (group, 5400))
                break
            except OSError:  # a new interface takes a moment before it has its routes
                time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("who", "group"),
    # Of IPv6 the kernel gives a socket what comes for its group by any interface, unless it is bound to one.
    [("privileged", "239.1.2.3"), ("unprivileged", "239.1.2.3"), ("privileged", "ff15::123")],
)
def test_each_network_hears_and_sends_by_its_own_interface(hosts: Hosts, who: str, group: str) -> None:
    """Both have one group and one port, and a route sends the second one's words by the first one's cable."""
    for cable in CABLES:
        hosts.plug(cable)
    one, two = hosts.nodes
    where = address6 if ":" in group else address
    commands.ip([f"route add {where(1, 2)} dev cable-a metric 1"], one.namespace)
    argv = [sys.executable, "-c", HEARER, who, group, where(0, 1), where(1, 1), where(1, 2)]
    with subprocess.Popen(
        commands.inside(one.namespace, argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as hearer:
        assert hearer.stdout is not None
        assert hearer.stdout.readline() == "[{}, {}]\n"
        commands.run(
            commands.inside(two.namespace, [sys.executable, "-c", SPEAKER, group, "cable-a", "cable-b"])
        )
        time.sleep(0.2)
        heard, _ = hearer.communicate("done\n", timeout=WAIT_S)
    assert json.loads(heard) == [["cable-a"], ["cable-b"]]
    assert neighbours(one, where(1, 2)) == {"cable-b"}


def neighbours(node: Node, address: str) -> set[str]:
    """The interfaces by which an address was looked for."""
    argv = [commands.tool("ip"), "-n", node.namespace, "-json", "neigh", "show", "to", address]
    return {entry["dev"] for entry in json.loads(commands.run(argv) or "[]")}


# Mistakes


def test_two_networks_on_one_interface_are_refused(hosts: Hosts) -> None:
    hosts.plug("a")
    one = hosts.nodes[0]
    commands.ip(["addr add 10.9.1.1/24 dev cable-a"], one.namespace)
    assert "both are on interface cable-a: give each network its own" in refusal(one)


def test_two_networks_in_one_subnet_are_refused(hosts: Hosts) -> None:
    for cable in CABLES:
        hosts.plug(cable)
    one = hosts.nodes[0]
    commands.ip(["addr del 10.9.1.1/24 dev cable-b", "addr add 10.9.1.1/16 dev cable-b"], one.namespace)
    text = refusal(one)
    assert "[[network]] address = 10.9.0.1 of network a and 10.9.1.1 of network b" in text
    assert "both are in subnet" in text


def test_a_network_that_comes_into_the_others_subnet_stays_out(hosts: Hosts) -> None:
    hosts.plug("a")
    start(hosts)
    one, two = (node.namespace for node in hosts.nodes)
    commands.ip([f"link add cable-b netns {one} type veth peer cable-b netns {two}"])
    commands.ip(["addr add 10.9.1.1/16 dev cable-b", "link set cable-b up"], one)
    time.sleep(1)
    hosts.exchange("without")
    assert not hosts.nodes[0].report()["there"][1]
    commands.ip(["addr del 10.9.1.1/16 dev cable-b", "addr add 10.9.1.1/24 dev cable-b"], one)
    commands.ip(["addr add 10.9.1.2/24 dev cable-b", "link set cable-b up"], two)
    hosts.wait_for_states("IN_SERVICE", "IN_SERVICE")


def refusal(node: Node) -> str:
    """What `totem node` and `totem node --check` say of the settings."""
    file = node.configure("multicast")
    argv = [sys.executable, "-m", "totempole", "node", "--config", str(file)]
    found = []
    for more in ((), ("--check",)):
        done = subprocess.run(
            commands.inside(node.namespace, [*argv, *more]),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env={**os.environ, "COLUMNS": "500"},
        )
        assert done.returncode == 2, done.stderr
        found.append(done.stderr + done.stdout)
    return "\n".join(found)


def test_what_would_be_opened_is_said_of_each_network(hosts: Hosts) -> None:
    hosts.plug("a")
    one = hosts.nodes[0]
    file = one.configure("multicast")
    argv = [sys.executable, "-m", "totempole", "node", "--config", str(file), "--check", "--json", "-"]
    done = subprocess.run(
        commands.inside(one.namespace, argv), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stdout
    texts = {finding["what"]: finding["text"] for finding in json.loads(done.stdout)["findings"]}
    assert "on cable-a, datagrams of 1,472 bytes" in texts["sockets a"]
    assert "absent now, and the node starts without it" in texts["sockets b"]
    assert "239.192.54.2" in texts["sockets b"]
    assert texts["networks"] == "2, passive"
    assert "239.192.54.2" in texts["peers b"]
