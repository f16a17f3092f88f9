"""When a processor reports on its networks."""

from __future__ import annotations

from typing import Any

from totempole.core.order import Deliver
from totempole.networks.layer import Networks
from totempole.networks.reports import Row, unpack
from totempole.rrp import RedundancyConfig
from totempole.rrp.paths import Finding
from totempole.sim.conditions import Lan
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.stack import NetworkSpec, ProcessorStack
from totempole.types import MessageId, OrderKey, RingId, Service

SILENCE = (Finding(0, 2, True, 1),)


def a_layer() -> Networks:
    networks = (NetworkSpec(name="a"), NetworkSpec(name="b"))
    stack = RealStack(networks=networks, redundancy=RedundancyConfig(style="passive"))
    world = World(1, 2, stack=stack, lans=(Lan(), Lan()))
    world.start()
    world.run_until(1_000_000)
    built = world.hosts[1].stack
    assert isinstance(built, ProcessorStack)
    return built.networks[0]


class OrderAtOnce:
    """Delivers a report before `report` returns, as a ring does whose token rests here."""

    def __init__(self, layer: Networks) -> None:
        self.rows: list[Row] = []
        self._layer = layer

    def report(self, payload: bytes) -> bool:
        row = unpack(payload)
        assert isinstance(row, Row)
        self.rows.append(row)
        number, ring = len(self.rows), RingId(8, 1)
        message, key = MessageId(1, 1, number), OrderKey(ring, number, ring)
        self._layer.deliver(Deliver(message, 1, payload, Service.AGREED, key, 0, ring))
        return True

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not asked for")


def test_a_row_that_is_delivered_at_once_is_not_under_way() -> None:
    """The next change is told, too."""
    layer = a_layer()
    below = OrderAtOnce(layer)
    layer._ring = below
    replicator = layer._replicator
    replicator.watch.findings = SILENCE
    layer.settle()
    replicator.watch.findings = (*SILENCE, Finding(1, 2, True, 1))
    layer.settle()
    assert [len(row.findings) for row in below.rows] == [1, 2]


class FullOrder(OrderAtOnce):
    """Takes no report for a while."""

    is_full = True

    def report(self, payload: bytes) -> bool:
        return not self.is_full and super().report(payload)


def test_what_the_ring_does_not_take_is_told_when_it_does() -> None:
    layer = a_layer()
    layer._ring = below = FullOrder(layer)
    layer._replicator.watch.findings = SILENCE
    for _ in range(2):
        layer.settle()
    assert below.rows == []
    below.is_full = False
    layer.settle()
    layer.settle()
    assert [row.findings for row in below.rows] == [SILENCE]
