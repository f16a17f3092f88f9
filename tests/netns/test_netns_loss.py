"""Packets that get lost or out of order: whole bursts, and, where the sender's kernel cuts them, parts."""

from __future__ import annotations

import pytest
from netns_stage import StageMaker

from totempole.lab.cluster import Setup
from totempole.srp.config import RingConfig
from totempole.types import RingKind

REPAIRED = "hole in a burst repaired"
SIX_SEGMENTS = 8_000
"""Bytes of a message that travels as a burst at an MTU of 1500."""


def kind(ring_kind: RingKind) -> Setup:
    return Setup(ring=RingConfig(ring_kind=ring_kind))


@pytest.mark.parametrize(
    ("percent", "ring_kind"), [(1, RingKind.CLASSIC), (5, RingKind.ACCELERATED), (20, RingKind.CLASSIC)]
)
def test_lost_bursts_are_sent_again(stage: StageMaker, percent: int, ring_kind: RingKind) -> None:
    with stage(hosts=4, setup=kind(ring_kind)) as ring:
        ring.load(size=SIX_SEGMENTS)
        with ring.loss(percent):
            ring.wait(lambda: ring.sum_of("retransmissions") > 0, "a retransmission")
            ring.deliver(300)


@pytest.mark.parametrize(
    ("percent", "ring_kind"), [(1, RingKind.ACCELERATED), (5, RingKind.CLASSIC), (20, RingKind.ACCELERATED)]
)
def test_holes_in_bursts_are_repaired(stage: StageMaker, percent: int, ring_kind: RingKind) -> None:
    with stage(hosts=4, setup=kind(ring_kind), prepare=lambda lab: lab.holes()) as ring:
        ring.load(size=SIX_SEGMENTS)
        with ring.loss(percent):
            ring.deliver(300)
    assert ring.branches[REPAIRED], ring.branches


@pytest.mark.parametrize("in_pieces", [False, True])
def test_packets_out_of_order_are_delivered_in_order(stage: StageMaker, in_pieces: bool) -> None:
    with stage(hosts=3, prepare=lambda lab: lab.holes(in_pieces)) as ring:
        for number in ring.lab.hosts:
            ring.lab.reorder(number, percent=20, slow_rate="20mbit")
        ring.load(size=SIX_SEGMENTS if in_pieces else 300, rate=150)
        ring.deliver(400)
        assert ring.lab.counters().marked > 0
