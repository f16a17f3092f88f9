"""One ring on several networks: each fault of a network in turn, under load, and nobody notices but those
who read alarms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from netns_stage import Stage, StageMaker

from totempole.lab import Fault, Lab
from totempole.lab.cluster import Setup, network_name
from totempole.rrp.config import RedundancyConfig
from totempole.srp.config import RingConfig
from totempole.types import RingKind

HOSTS = 4
GROUP = "239.192.54.1"
"""Of all networks: two that are wired together then hear each other."""
SLOW_RATE = "50mbit"
CALM = RingConfig(token_loss_us=500_000)
"""The machine may stand still for that long: what changes a configuration is then a network."""
HELLO_US = 100_000
PROBATION_US = 20_000
"""Doubled by each fault of a network here."""


@dataclass(frozen=True)
class Trial:
    """A fault of one network, and what all nodes must say of it. `{other}` names the other network."""

    inject: Callable[[Lab, int], Fault]
    named: str
    state: str = "faulty"


def _other(lab: Lab, network: int) -> int:
    return (network + 1) % lab.networks


FAULTS: Mapping[str, Trial] = {
    "cannot send": Trial(lambda lab, network: lab.mute(2, network=network), "2 cannot send"),
    "cannot receive": Trial(lambda lab, network: lab.deafen(3, network=network), "3 cannot receive"),
    "one path": Trial(lambda lab, network: lab.cut(1, 3, network=network), "3 does not hear 1"),
    "split": Trial(
        lambda lab, network: lab.partition([[1, 2], [3, 4]], network=network), "split into 1, 2 and 3, 4"
    ),
    "all of it": Trial(lambda lab, network: lab.sever(network=network), "nobody hears anybody"),
    "multicast only": Trial(
        lambda lab, network: lab.sever("multicast", network=network), "nobody hears anybody, multicast only"
    ),
    "large datagrams only": Trial(
        lambda lab, network: lab.sever("large", network=network),
        "nobody hears anybody, large datagrams only",
    ),
    "wired together": Trial(
        lambda lab, network: lab.wire(network, _other(lab, network)),
        "wired together with {other}",
        "in_service",
    ),
    "no carrier": Trial(lambda lab, network: lab.unplug(2, network=network), "2 cannot send or receive"),
    "interface down": Trial(
        lambda lab, network: lab.interface_down(4, network=network), "4 cannot send or receive"
    ),
    "interface gone": Trial(
        lambda lab, network: lab.interface_gone(1, network=network), "1 cannot send or receive"
    ),
}


def redundant(
    style: str = "passive", networks: int = 2, multicast_group: str = GROUP, **options: Any
) -> Setup:
    copies = 2 if style == "active-passive" else 0
    redundancy = RedundancyConfig(style=style, copies=copies, hello_us=HELLO_US, probation_us=PROBATION_US)
    options.setdefault("ring", CALM)
    return Setup(networks=networks, redundancy=redundancy, multicast_group=multicast_group, **options)


def states(ring: Stage, network: int) -> list[tuple[str, str]]:
    """What each node says of a network."""
    found = [report["networks"][network] for report in ring.cluster.reports().values()]
    return [(each["state"], each["why"]) for each in found]


def endure(ring: Stage, name: str, network: int) -> None:
    """The fault is named by all, messages go on, and once it is mended the network is in service again."""
    trial = FAULTS[name]
    wanted = trial.state, trial.named.format(other=network_name(_other(ring.lab, network)))
    fault = trial.inject(ring.lab, network)
    ring.wait(lambda: all(_names(said, wanted) for said in states(ring, network)), f"{wanted} of {network}")
    ring.deliver(50)
    fault.undo()
    sound = {("in_service", "")}
    ring.wait(lambda: set(states(ring, network)) == sound, f"network {network} to be back after {name}")
    ring.deliver(50)


def _names(said: tuple[str, str], wanted: tuple[str, str]) -> bool:
    """Exactly, but for what a host says of itself: `cannot send or receive` is not `cannot send`."""
    return (said[0], said[1].removesuffix(" (its interface is down)")) == wanted


def endure_all(ring: Stage, without: Collection[str] = ()) -> None:
    ring.deliver()
    before = ring.changes()
    for name in FAULTS:
        for network in range(ring.lab.networks) if name not in without else ():
            endure(ring, name, network)
    assert ring.changes() == before
    nothing_is_lost(ring)


def test_faults_of_one_network_after_the_other_are_named_and_change_nothing(stage: StageMaker) -> None:
    with stage(hosts=HOSTS, setup=redundant(), prepare=lambda lab: lab.holes()) as ring:
        ring.load(size=3_000)
        endure_all(ring)
    alarms_are_alike(ring)


@pytest.mark.long
@pytest.mark.parametrize(
    ("setup", "without"),
    [
        (redundant("active"), ()),
        (redundant("active-passive", networks=3), ()),
        (redundant(ring=replace(CALM, ring_kind=RingKind.ACCELERATED)), ()),
        # Of a mesh each socket takes what is for its own address, whichever switch it has come by.
        (redundant(transport="mesh"), ("multicast only", "wired together")),
        (redundant(ipv6=True, multicast_group=""), ("wired together",)),
    ],
    ids=["active", "two of three", "accelerated", "mesh", "IPv6"],
)
def test_the_same_in_every_style(stage: StageMaker, setup: Setup, without: Collection[str]) -> None:
    with stage(hosts=HOSTS, setup=setup, prepare=lambda lab: lab.holes()) as ring:
        ring.load(size=3_000)
        endure_all(ring, without)
    alarms_are_alike(ring)


@pytest.mark.long
@pytest.mark.parametrize("style", ["passive", "active"])
def test_the_same_at_full_load(stage: StageMaker, style: str) -> None:
    """Networks so slow that the machine fills them, and its traces can be judged. A cable with a queue stays
    in."""
    with stage(hosts=HOSTS, setup=redundant(style), prepare=_slow) as ring:
        ring.cluster.tell("flood", 20_000, "agreed")
        endure_all(ring, without=("interface gone",))
    alarms_are_alike(ring)


def _slow(lab: Lab) -> None:
    lab.holes()
    for network in range(lab.networks):
        lab.shape(SLOW_RATE, direction="from", network=network)
        lab.shared_medium(SLOW_RATE, network=network)


def nothing_is_lost(ring: Stage) -> None:
    ring.cluster.tell("quiet")
    ring.drain()
    reports = ring.cluster.reports()
    sent = {str(number): report["sent"] for number, report in reports.items()}
    assert all(report["delivered_from"] == sent for report in reports.values()), (sent, reports)


def alarms_are_alike(ring: Stage) -> None:
    """All nodes list the same faults in the same order, each at the same place of the total order."""
    told: dict[int, list[tuple[Any, ...]]] = {number: [] for number in ring.lab.hosts}
    for row in ring.of_kind("network"):
        told[row.node].append((row.network, row.old_state, row.new_state, row.reason, row.ring, row.seq))
    assert told[1]
    assert all(rows == told[1] for rows in told.values()), told
