"""Labs with several networks: each host is on each of them, and a fault of one leaves the others alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lab_traffic import GROUP, GROUP6, Traffic

from totempole.lab import Fault, Host, Lab, LabError, missing

needs_lab = pytest.mark.skipif(bool(missing()), reason=missing() or "a lab can be had")

ALL = list(range(200))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab("nets", hosts=3, networks=2) as built:
        yield built


@pytest.fixture
def traffic(lab: Lab) -> Traffic:
    return Traffic(lab)


def test_addresses_are_of_a_subnet_for_each_network() -> None:
    host = Host("somewhere", 10, ipv6=True, networks=2)
    assert host.addresses == ("10.77.0.10", "10.77.1.10")
    assert host.addresses6 == ("fd77::a", "fd77:0:0:1::a")
    assert (host.address, host.address6) == ("10.77.0.10", "fd77::a")


def test_mistakes_are_named() -> None:
    with pytest.raises(LabError, match="networks is 0"):
        Lab("x", hosts=1, networks=0)
    with pytest.raises(LabError, match="one for each of 2 networks"):
        Lab("x", hosts=1, networks=2, mtu=(1500,))
    lab = Lab("x", hosts=2, networks=2)
    with pytest.raises(LabError, match="no network 2: this lab has 0 to 1"):
        lab.loss(1, 5, network=2)
    with pytest.raises(LabError, match="would be a loop"):
        lab.wire(1, 1)


@needs_lab
@pytest.mark.parametrize("group", [GROUP, GROUP6])
def test_a_network_carries_what_is_sent_on_it(traffic: Traffic, group: str) -> None:
    ipv6 = group == GROUP6
    traffic.listen(2, ipv6=ipv6, network=0).listen(3, ipv6=ipv6, network=1)
    assert traffic.send(1, group, network=1).got() == {2: [], 3: ALL}


FAULTS: dict[str, Callable[[Lab], Fault]] = {
    "loss": lambda lab: lab.loss(2, 100, network=1),
    "cut": lambda lab: lab.cut(1, 2, network=1),
    "mute": lambda lab: lab.mute(1, network=1),
    "deafen": lambda lab: lab.deafen(2, network=1),
    "sever": lambda lab: lab.sever(network=1),
    "multicast": lambda lab: lab.sever("multicast", network=1),
    "partition": lambda lab: lab.partition([[1], [2, 3]], network=1),
    "unplug": lambda lab: lab.unplug(2, network=1),
    "down": lambda lab: lab.interface_down(2, network=1),
}


@needs_lab
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_of_one_network(lab: Lab, traffic: Traffic, name: str) -> None:
    traffic.listen(2, network=1)
    with FAULTS[name](lab):
        assert traffic.send(1, GROUP, network=1).got() == {2: []}
        assert traffic.listen(2).send(1, GROUP).got() == {2: ALL}
    assert traffic.listen(2, network=1).send(1, GROUP, network=1).got() == {2: ALL}


@needs_lab
def test_a_host_that_cannot_send_still_receives(lab: Lab, traffic: Traffic) -> None:
    lab.mute(1, network=1)
    assert traffic.listen(1, network=1).send(2, GROUP, network=1).got() == {1: ALL}
    lab.heal()
    lab.deafen(1, network=1)
    assert traffic.listen(2, network=1).send(1, GROUP, network=1).got() == {2: ALL}


@needs_lab
def test_only_multicast_or_only_what_is_large(lab: Lab, traffic: Traffic) -> None:
    lab.holes()
    with lab.sever("multicast", network=1):
        assert traffic.listen(2, network=1).send(1, lab.hosts[2].addresses[1], network=1).got() == {2: ALL}
    with lab.sever("large", network=1):
        assert traffic.listen(2, network=1).send(1, GROUP, size=1200, network=1).got() == {2: []}
        assert traffic.listen(2, network=1).send(1, GROUP, size=900, network=1).got() == {2: ALL}


@needs_lab
def test_an_interface_is_taken_out_and_a_new_one_put_in(lab: Lab, traffic: Traffic) -> None:
    with lab.interface_gone(2, network=1):
        gone = lab.hosts[2].run(["ls", "/sys/class/net"]).stdout.split()
        assert gone == ["eth0", "lo"]
    traffic.listen(2, 3, network=1)
    assert traffic.send(1, GROUP, network=1).got() == {2: ALL, 3: ALL}
    lab.shape(hosts=[2], network=1)
    with pytest.raises(LabError, match="undo its shape"):
        lab.interface_gone(2, network=1)


@needs_lab
def test_two_networks_wired_together(lab: Lab, traffic: Traffic) -> None:
    with lab.wire(0, 1):
        assert traffic.listen(2, network=1).send(1, GROUP, network=0).got() == {2: ALL}
    assert traffic.listen(2, network=1).send(1, GROUP, network=0).got() == {2: []}


@needs_lab
def test_each_network_has_its_speed(lab: Lab, traffic: Traffic) -> None:
    with lab.shared_medium("1mbit", queue_bytes=20_000, network=1), lab.shared_medium("100mbit"):
        got = traffic.listen(2, network=1).send(1, GROUP, size=1000, network=1).got()
        assert 10 < len(got[2]) < 100
        assert traffic.listen(2).send(1, GROUP, size=1000).got() == {2: ALL}
    assert lab.counters(network=1).ports[2].received_frames >= 10


@needs_lab
def test_each_network_has_its_mtu() -> None:
    with Lab("sizes", hosts=2, networks=2, mtu=(1500, 9000)) as lab:
        read = [
            lab.hosts[1].run(["cat", f"/sys/class/net/eth{network}/mtu"]).stdout.strip()
            for network in range(2)
        ]
        assert read == ["1500", "9000"]
        with lab.mtu(2, 1000, network=1):
            assert lab.hosts[2].run(["cat", "/sys/class/net/eth1/mtu"]).stdout.strip() == "1000"
