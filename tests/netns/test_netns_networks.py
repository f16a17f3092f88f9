"""Each way to build a ring: transports, address families, ring kinds, seals, sizes; and neighbours."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from netns_stage import Stage, StageMaker, cluster_on

from totempole.lab import Lab
from totempole.lab.cluster import Setup
from totempole.runtime import keyring
from totempole.runtime.replaying import replay
from totempole.srp.config import RingConfig
from totempole.types import RingKind

SMALL_MTU = 600
SEGMENT_AT_SMALL_MTU = SMALL_MTU - 28
"""What the headers of IPv4 and UDP leave."""


@pytest.mark.parametrize(
    ("transport", "ipv6", "ring_kind", "sealed"),
    [
        ("multicast", False, RingKind.CLASSIC, False),
        ("multicast", True, RingKind.ACCELERATED, True),
        ("mesh", False, RingKind.ACCELERATED, True),
        ("mesh", True, RingKind.CLASSIC, True),
        ("mesh", True, RingKind.ACCELERATED, False),
    ],
)
def test_every_two_choices_go_together(
    stage: StageMaker, tmp_path: Path, transport: str, ipv6: bool, ring_kind: RingKind, sealed: bool
) -> None:
    setup = Setup(ring=RingConfig(ring_kind=ring_kind), transport=transport, ipv6=ipv6)
    if sealed:
        setup = replace(setup, key_file=new_key_file(tmp_path))
    with stage(hosts=3, setup=setup) as ring:
        ring.load(size=5_000)
        with ring.loss(3):
            ring.deliver()
            ring.partition([1, 2], [3])
            ring.deliver()
        ring.heal()
        ring.deliver()
        assert {ring.status(number)["sealed"] for number in ring.lab.hosts} == {sealed}


def new_key_file(directory: Path, name: str = "ring.key") -> Path:
    keyring.create(directory / name)
    return directory / name


# Sizes


@pytest.mark.parametrize("transport", ["multicast", "mesh"])
def test_a_host_with_a_small_mtu_gets_large_packets(stage: StageMaker, transport: str) -> None:
    """The Joins agree on a size that all can take: what is larger never reaches the third host."""
    setup = Setup(transport=transport)
    with stage(hosts=3, setup=setup, prepare=lambda lab: lab.mtu(3, SMALL_MTU)) as ring:
        assert ring.status(3)["segment_bytes"] == SEGMENT_AT_SMALL_MTU
        ring.load(size=20_000, rate=30)
        ring.deliver()


def test_a_path_that_becomes_narrow_under_load(stage: StageMaker) -> None:
    with stage(hosts=3) as ring:
        ring.load(size=20_000, rate=30)
        ring.deliver(50)
        ring.lab.mtu(3, SMALL_MTU)
        ring.wait(lambda: ring.status(3)["segment_bytes"] == SEGMENT_AT_SMALL_MTU, "the size to be noticed")
        ring.deliver()
        assert ring.lab.counters().ports[3].dropped > 0


# Keys


def test_keys_are_rotated_under_load_and_no_message_is_lost(stage: StageMaker, tmp_path: Path) -> None:
    key_file = new_key_file(tmp_path)
    with stage(hosts=4, setup=Setup(key_file=key_file)) as ring:
        ring.load()
        for step, ids in ((keyring.add, [1, 2]), (keyring.activate, [2, 1]), (keyring.retire, [2])):
            step(key_file)
            for number in ring.lab.hosts:
                rekey(ring, number, ids)
                ring.deliver(30)
        dropped = {number: ring.status(number)["dropped"] for number in ring.lab.hosts}
        assert not any(dropped.values()), dropped
        ring.cluster.tell("quiet")
        ring.drain()
        reports = ring.cluster.reports()
        sent = {str(number): report["sent"] for number, report in reports.items()}
        assert all(report["delivered_from"] == sent for report in reports.values()), (sent, reports)


def rekey(ring: Stage, number: int, ids: list[int]) -> None:
    ring.cluster.players[number].tell("rekey")
    ring.wait(lambda: ring.status(number)["key_ids"] == ids, f"host {number} to have the keys {ids}")


# Neighbours


@pytest.mark.parametrize("differ_in", ["id", "key", "kind"])
def test_two_clusters_on_one_network_do_not_disturb_each_other(tmp_path: Path, differ_in: str) -> None:
    one, other = Setup(), Setup()
    if differ_in == "id":
        other = Setup(ring=RingConfig(cluster_id=2))
    elif differ_in == "key":
        one, other = Setup(key_file=new_key_file(tmp_path)), Setup(key_file=new_key_file(tmp_path, "other"))
    else:
        other = Setup(ring=RingConfig(ring_kind=RingKind.ACCELERATED))
    with Lab("ring", hosts=6) as lab, ExitStack() as clusters:
        odd = clusters.enter_context(cluster_on(lab, tmp_path / "odd", one, [1, 3, 5]))
        even = clusters.enter_context(cluster_on(lab, tmp_path / "even", other, [2, 4, 6]))
        stages = [Stage(lab, cluster) for cluster in (odd, even)]
        for stage in stages:
            stage.wait_whole()
            stage.load()
        for stage in stages:
            stage.deliver()
            stage.wait(lambda stage=stage: all(map(stage.dropped, stage.running)), "strange packets")
        for stage in stages:
            stage.finish()
            strangers = {6, 4, 2} if stage.cluster is odd else {1, 3, 5}
            assert not any(strangers & set(row.members) for row in stage.of_kind("configuration"))


# Incidents


def test_recorded_inputs_have_the_same_effects_again(stage: StageMaker, tmp_path: Path) -> None:
    key_file = new_key_file(tmp_path)
    with stage(hosts=3, setup=Setup(key_file=key_file, inputs=True)) as ring:
        ring.load(size=5_000)
        with ring.loss(5):
            ring.deliver()
        ring.partition([1], [2, 3])
        ring.deliver()
        ring.heal()
        ring.deliver()
    keys = {key.id: key for key in keyring.load(key_file).keys}
    delivered = {row.node: 0 for row in ring.rows}
    for row in ring.of_kind("deliver"):
        delivered[row.node] += 1
    recordings = sorted(ring.cluster.trace_directory.glob("inputs-*.totem"))
    assert len(recordings) == 3
    for path in recordings:
        report = replay(path, keys=keys)
        assert report.identical, report.difference
        assert report.deliveries == delivered[report.header.spec.processor] > 0
        assert report.ended == "closed"
