"""The lab itself: hosts that reach each other, and faults that fire, each seen by programs on the hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from lab_traffic import GROUP, GROUP6, Traffic

from totempole.lab import Host, Lab, LabError, missing
from totempole.lab import namespaces as ns
from totempole.lab.filter import Filter, Stage, cut_rules, loss_rule, partition_rules

needs_lab = pytest.mark.skipif(bool(missing()), reason=missing() or "a lab can be had")


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab("test", hosts=3) as built:
        yield built


@pytest.fixture
def traffic(lab: Lab) -> Traffic:
    return Traffic(lab)


# What it is


@needs_lab
@pytest.mark.parametrize("group", [GROUP, GROUP6])
def test_multicast_reaches_the_others(traffic: Traffic, group: str) -> None:
    traffic.listen(2, 3, ipv6=group == GROUP6).send(1, group)
    assert traffic.got() == {2: list(range(200)), 3: list(range(200))}


@needs_lab
def test_unicast_reaches_one(lab: Lab, traffic: Traffic) -> None:
    traffic.listen(2, 3).send(1, lab.hosts[2].address)
    assert traffic.got() == {2: list(range(200)), 3: []}


@needs_lab
def test_the_process_id_is_the_programs_own(lab: Lab) -> None:
    program = lab.hosts[1].popen(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, text=True
    )
    assert int(program.communicate()[0]) == program.pid


@needs_lab
def test_a_program_sees_its_own_interface_only(lab: Lab) -> None:
    assert lab.hosts[1].run(["ls", "/sys/class/net"]).stdout.split() == ["eth0", "lo"]
    assert lab.hosts[1].run(["cat", "/sys/class/net/eth0/mtu"]).stdout.strip() == "1500"


@needs_lab
def test_the_machines_own_network_is_not_touched() -> None:
    before = sorted(os.listdir("/sys/class/net"))
    with Lab("apart", hosts=2):
        assert sorted(os.listdir("/sys/class/net")) == before


# Its end


def left(pid: int) -> list[str]:
    return [name for name in ns.existing() if name.startswith(f"tp-{pid}-")]


@needs_lab
def test_nothing_is_left_after_an_error() -> None:
    def fail() -> None:
        with Lab("fails", hosts=2) as lab:
            programs.append(lab.hosts[1].popen(["sleep", "100"]))
            raise ZeroDivisionError

    programs: list[subprocess.Popen[Any]] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert [name for name in left(os.getpid()) if "fails" in name] == []
    assert programs[0].returncode == -signal.SIGKILL


@needs_lab
def test_programs_that_programs_started_end_too() -> None:
    with Lab("family", hosts=1) as lab:
        lab.hosts[1].run(["sh", "-c", "sleep 100 >/dev/null 2>&1 &"])
        orphans = ns.processes([lab.hosts[1].namespace])
        assert len(orphans) == 1
    assert not ns.is_alive(orphans[0])


OPEN_LAB = """
import sys, time
from totempole.lab import Lab
with Lab("open", hosts=2) as lab:
    lab.hosts[1].popen(["sleep", "100"])
    print("open", flush=True)
    time.sleep(100)
"""


def open_lab() -> subprocess.Popen[str]:
    program = subprocess.Popen([sys.executable, "-c", OPEN_LAB], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "open\n"
    program.stdout.close()
    assert len(left(program.pid)) == 3
    return program


@needs_lab
def test_sigterm_removes_the_lab() -> None:
    program = open_lab()
    program.terminate()
    assert program.wait() == 143
    assert left(program.pid) == []


@needs_lab
def test_what_a_killed_lab_left_is_removed_by_the_next() -> None:
    program = open_lab()
    program.kill()
    program.wait()
    assert len(left(program.pid)) == 3
    with Lab("next", hosts=1):
        assert left(program.pid) == []


@needs_lab
def test_a_living_lab_is_no_leftover() -> None:
    program = open_lab()
    Lab.clean_leftovers()
    assert len(left(program.pid)) == 3
    program.terminate()
    program.wait()


@needs_lab
def test_one_name_twice_in_a_process(lab: Lab) -> None:
    with pytest.raises(LabError, match="choose another name"), Lab("test", hosts=1):
        pass
    assert lab.hosts[1].run(["true"]).returncode == 0


# Faults


@needs_lab
def test_loss_is_of_what_goes_to_one_host(lab: Lab, traffic: Traffic) -> None:
    with lab.loss(2, percent=50):
        got = traffic.listen(2, 3).send(1, GROUP, count=400).got()
    assert 100 < len(got[2]) < 300
    assert len(got[3]) == 400
    assert lab.counters().lost >= 400 - len(got[2])
    assert len(traffic.listen(2).send(1, GROUP).got()[2]) == 200


@needs_lab
def test_loss_from_one_host_only(lab: Lab, traffic: Traffic) -> None:
    lab.loss(2, percent=100, frm=1)
    got = traffic.listen(2, 3).send(1, GROUP).got()
    assert (len(got[2]), len(got[3])) == (0, 200)
    assert len(traffic.listen(2).send(3, GROUP).got()[2]) == 200


@needs_lab
def test_a_cut_is_one_way(lab: Lab, traffic: Traffic) -> None:
    cut = lab.cut(1, 2)
    assert traffic.listen(2, 3).send(1, GROUP).got() == {2: [], 3: list(range(200))}
    assert len(traffic.listen(1).send(2, GROUP).got()[1]) == 200
    cut.undo()
    assert len(traffic.listen(2).send(1, GROUP).got()[2]) == 200


@needs_lab
def test_a_cut_of_one_protocol_lets_the_others_pass(lab: Lab, traffic: Traffic) -> None:
    """Hosts that have never met find each other's hardware address first, by ARP."""
    lab.cut(1, 2, only="udp")
    assert traffic.listen(2, 3).send(1, GROUP).got() == {2: [], 3: list(range(200))}
    assert len(traffic.listen(1).send(2, lab.hosts[1].address).got()[1]) == 200


@needs_lab
def test_a_partition_and_its_end(lab: Lab, traffic: Traffic) -> None:
    lab.partition([[1, 2], [3]])
    assert traffic.listen(2, 3).send(1, GROUP).got() == {2: list(range(200)), 3: []}
    assert traffic.listen(1, 2).send(3, GROUP).got() == {1: [], 2: []}
    lab.partition([[1, 3]])
    assert traffic.listen(2, 3).send(1, GROUP).got() == {2: [], 3: list(range(200))}
    lab.heal()
    assert traffic.listen(2, 3).send(1, GROUP).got() == {2: list(range(200)), 3: list(range(200))}


@pytest.mark.parametrize("holes", [False, True])
@needs_lab
def test_bursts_are_lost_whole_without_holes(lab: Lab, traffic: Traffic, holes: bool) -> None:
    burst = 40
    lab.holes(holes)
    lab.loss(2, percent=50)
    got = set(traffic.listen(2).send(1, GROUP, count=40 * burst, size=1000, burst=burst).got()[2])
    arrived = [len(got & set(range(first, first + burst))) for first in range(0, 40 * burst, burst)]
    assert any(0 < number < burst for number in arrived) is holes
    assert sum(arrived) < 40 * burst


@needs_lab
def test_holes_end(lab: Lab, traffic: Traffic) -> None:
    lab.holes()
    lab.holes(False)
    before = lab.counters().ports[1].sent_frames
    traffic.send(1, GROUP, count=400, size=1000, burst=40)
    assert lab.counters().ports[1].sent_frames - before < 40


@needs_lab
@pytest.mark.parametrize("burst", [1, 40])
def test_a_small_mtu_drops_what_is_larger(lab: Lab, traffic: Traffic, burst: int) -> None:
    with lab.mtu(2, 1000):
        got = traffic.listen(2, 3).send(1, GROUP, size=1400, burst=burst).got()
        assert (len(got[2]), len(got[3])) == (0, 200)
        assert lab.counters().ports[2].dropped >= 200
        assert len(traffic.listen(2).send(1, GROUP, size=900, burst=burst).got()[2]) == 200
    assert len(traffic.listen(2).send(1, GROUP, size=1400, burst=burst).got()[2]) == 200
    assert len(traffic.listen(2, ipv6=True).send(1, GROUP6).got()[2]) == 200


@needs_lab
def test_a_shaped_cable_to_a_host_holds_so_much(lab: Lab, traffic: Traffic) -> None:
    with lab.shape("1mbit", hosts=[2], direction="to", queue_bytes=20_000):
        got = traffic.listen(2, 3).send(1, GROUP, size=1000).got()
        assert 10 < len(got[2]) < 100
        assert len(got[3]) == 200
        assert lab.counters().ports[2].dropped >= 100
    assert len(traffic.listen(2).send(1, GROUP, size=1000).got()[2]) == 200


@needs_lab
def test_a_shaped_cable_from_a_host_slows_its_sender_and_loses_nothing(lab: Lab, traffic: Traffic) -> None:
    lab.shape("100mbit", direction="from")
    got = traffic.listen(2, 3).send(1, GROUP, count=2000, size=1000, burst=40).got()
    assert (len(got[2]), len(got[3])) == (2000, 2000)
    # The shaper cuts bursts, as a card does.
    assert lab.counters().ports[1].sent_frames >= 2000


@needs_lab
def test_one_medium_for_all(lab: Lab, traffic: Traffic) -> None:
    with lab.shared_medium("1mbit", queue_bytes=20_000):
        got = traffic.listen(2, 3).send(1, GROUP, size=1000).got()
        assert 10 < len(got[2]) < 100
        assert got[3] == got[2]
    assert len(traffic.listen(2).send(1, GROUP, size=1000).got()[2]) == 200


@needs_lab
def test_reordering(lab: Lab, traffic: Traffic) -> None:
    with lab.reorder(2, percent=30, slow_rate="10mbit"):
        got = traffic.listen(2, 3).send(1, GROUP, count=1000, size=1000).got()
        assert sorted(got[2]) == list(range(1000))
        assert sum(later < earlier for earlier, later in zip(got[2], got[2][1:], strict=False)) > 0
        assert got[3] == list(range(1000))
        assert lab.counters().marked > 10
    assert traffic.listen(2).send(1, GROUP, count=1000).got()[2] == list(range(1000))


@needs_lab
def test_a_cable_has_one_queue(lab: Lab) -> None:
    lab.shape(hosts=[2])
    with pytest.raises(LabError, match="undo its shape or reorder first"):
        lab.reorder(2)
    with pytest.raises(LabError, match="has a queue already"):
        lab.shape(hosts=[1, 2])
    lab.shape(hosts=[1, 3]).undo()
    lab.reorder(1)


@needs_lab
def test_a_fault_is_undone_once(lab: Lab) -> None:
    fault = lab.loss(1, percent=5)
    assert fault.active
    fault.undo()
    fault.undo()
    assert repr(fault) == "Fault('loss of 5 % to 1', undone)"


# Mistakes, without a lab


def test_mistakes_are_named() -> None:
    with pytest.raises(LabError, match="hosts is 0"):
        Lab("x", hosts=0)
    with pytest.raises(LabError, match="name is 'A B'"):
        Lab("A B", hosts=1)
    with pytest.raises(LabError, match="mtu is 7"):
        Lab("x", hosts=1, mtu=7)
    lab = Lab("x", hosts=2)
    with pytest.raises(LabError, match="no host 3: this lab has 1 to 2"):
        lab.loss(3, 5)
    with pytest.raises(LabError, match="percent is 101"):
        lab.loss(1, 101)
    with pytest.raises(LabError, match="in two groups"):
        lab.partition([[1], [1, 2]])


def test_addresses() -> None:
    host = Host("somewhere", 10, ipv6=True)
    assert (host.address, host.address6) == ("10.77.0.10", "fd77::a")
    assert Host("somewhere", 10, ipv6=False).address6 == ""


def test_rules() -> None:
    assert loss_rule(None, 2, 0.5) == ('oifname "p2" numgen random mod 10000 < 50 counter name lost drop')
    assert loss_rule(1, 2, 100) == 'iifname "p1" oifname "p2" counter name lost drop'
    assert cut_rules([2, 1], [3]) == ['iifname { "p1", "p2" } oifname { "p3" } counter name cut drop']
    assert partition_rules([[1], [2]]) == [*cut_rules([1], [2]), *cut_rules([2], [1])]
    assert cut_rules([1], [2], "udp", network=1) == [
        'iifname { "n1p1" } oifname { "n1p2" } meta l4proto udp counter name cut drop'
    ]
    assert len(cut_rules([1], [2], "multicast")) == 2
    assert Filter("nowhere").render().endswith("flush chain bridge lab forward\n")
    assert Stage.CUT < Stage.LOSS < Stage.MARK
