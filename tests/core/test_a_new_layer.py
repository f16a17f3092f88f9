"""What a new layer costs: its own code, and its place in the description of a stack.

The layer here stands between the ring and groups. It counts deliveries, holds each submission back for a
while with a timer of its own, and keeps its count on stable storage. Nothing else knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import cast

import pytest

from totempole.core.effects import SetTimer
from totempole.core.io import Scope
from totempole.core.order import Between, Deliver, InstallConfiguration, Order
from totempole.errors import ConfigurationError
from totempole.groups import GroupConfig, pack
from totempole.groups.commands import Connect, JoinGroup, Multicast
from totempole.groups.events import GroupMessages, ToProcesses
from totempole.groups.packing import Batch
from totempole.jitter import jitter
from totempole.rrp import RedundancyConfig
from totempole.sim.conditions import Lan
from totempole.sim.host import Host
from totempole.sim.stacks import SIM_PARTS
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, ProcessorStack, RingSpec, StackSpec, build
from totempole.types import Configuration, ProcessorId, Service

DELAY_US = 7_000
GROUPED_US = 1_000_000


class Wait(IntEnum):
    OVER = 0


class CountsAndDelays(Between):
    def __init__(self, scope: Scope, below: Order) -> None:
        super().__init__(Scope(scope.io, *scope.name, timers=Wait), below)
        self.count = 0
        self.written_count = 0
        self._held: list[tuple[bytes, Service, tuple[int, ...]]] = []
        self._writes: dict[int, int] = {}

    @property
    def queued(self) -> int:
        """What is held back waits as well: the layer above must not run ahead of it."""
        return len(self._held) + self.below.queued

    def submit(
        self, payload: bytes, service: Service, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        if not self._held:
            self.scope.set_timer(Wait.OVER, DELAY_US)
        self._held.append((payload, service, groups))
        return True

    def expired(self, timer: int) -> None:
        self.scope.expired(Wait(timer))
        held, self._held = self._held, []
        for submission in held:
            assert self.below.submit(*submission)

    def deliver(self, packet: Deliver) -> None:
        self.count += 1
        self._writes[self.scope.write({"count": self.count, "last": bytes(packet.payload[:4])})] = self.count
        self.above.deliver(packet)

    def written(self, ticket: int) -> None:
        self.written_count = max(self.written_count, self._writes.pop(ticket))


def delayed_stack(
    me: ProcessorId, config: RingConfig, stable: Mapping[str, int], kinds: frozenset[str]
) -> ProcessorStack:
    ring = RingSpec(config, between=(CountsAndDelays,))
    spec = StackSpec(me, rings=(ring,), groups=GroupConfig())
    return build(spec, stable, kinds, draw=jitter(me, stable), parts=SIM_PARTS)


def plain_stack(
    me: ProcessorId, config: RingConfig, stable: Mapping[str, int], kinds: frozenset[str]
) -> ProcessorStack:
    spec = StackSpec(me, rings=(RingSpec(config),), groups=GroupConfig())
    return build(spec, stable, kinds, draw=jitter(me, stable), parts=SIM_PARTS)


class Listener:
    """Processors with process 1 each, a member of `g`, and when each message came to whom."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: dict[ProcessorId, list[tuple[int, bytes]]] = {me: [] for me in world.hosts}
        for host in world.hosts.values():
            host.listener = self._listen
        world.start()
        world.run_until(GROUPED_US)
        for host in world.hosts.values():
            host.ask(Connect(1))
            host.ask(JoinGroup(1, "g"))
        world.run_for(200_000)

    def _listen(self, host: Host, event: object) -> None:
        if isinstance(event, ToProcesses) and isinstance(event.event, GroupMessages):
            self.heard[host.me] += [(self.world.now_us, payload) for payload in Batch(event.event.batch)]

    def multicast(self, me: ProcessorId, *payloads: bytes) -> None:
        self.world.hosts[me].ask(Multicast(1, ("g",), pack(payloads), Service.SAFE))


def layer_of(world: World, me: ProcessorId) -> CountsAndDelays:
    stack = cast(ProcessorStack, world.hosts[me].stack)
    return next(layer for layer in stack.layers if isinstance(layer, CountsAndDelays))


def test_a_layer_between_the_ring_and_groups_by_the_description_alone() -> None:
    listener = Listener(World(1, 3, stack=delayed_stack))
    world, sent_us = listener.world, listener.world.now_us
    listener.multicast(2, b"one", b"two")
    world.run_for(500_000)
    for me, heard in listener.heard.items():
        assert [payload for _, payload in heard] == [b"one", b"two"]
        assert all(at_us >= sent_us + DELAY_US for at_us, _ in heard), "it was held back"
        layer = layer_of(world, me)
        assert layer.count == layer.written_count > 0
        assert world.hosts[me].disk.latest["count"] == layer.count
        assert type(world.hosts[me].disk.latest["last"]) is bytes


def test_without_it_the_same_program_is_quicker() -> None:
    listener = Listener(World(1, 3, stack=plain_stack))
    sent_us = listener.world.now_us
    listener.multicast(2, b"one")
    listener.world.run_for(500_000)
    assert all(heard[0][0] < sent_us + DELAY_US for heard in listener.heard.values())


def test_its_numbers_outlive_a_crash() -> None:
    listener = Listener(World(1, 3, stack=delayed_stack))
    world = listener.world
    listener.multicast(1, b"one")
    world.run_for(500_000)
    count = layer_of(world, 3).count
    world.crash(3)
    world.restart(3)
    assert world.hosts[3].disk.recover()["count"] == count


# Two rings in one node, on two networks

SECOND = RingConfig(cluster_id=2, token_loss_us=120_000)


def two_rings(
    me: ProcessorId, config: RingConfig, stable: Mapping[str, int], kinds: frozenset[str]
) -> ProcessorStack:
    spec = StackSpec(
        me,
        networks=(NetworkSpec(), NetworkSpec(segment_bytes=1_400)),
        rings=(RingSpec(config), RingSpec(SECOND, (1,))),
        groups=GroupConfig(),
    )
    return build(spec, stable, kinds, draw=jitter(me, stable), parts=SIM_PARTS)


def members(world: World, me: ProcessorId, ring: int) -> tuple[ProcessorId, ...]:
    stack = cast(ProcessorStack, world.hosts[me].stack)
    return stack.rings[ring].machine.installed.members


def formed() -> World:
    world = World(1, 3, stack=two_rings, lans=(Lan(), Lan()), record_inputs=True)
    world.start()
    world.run_until(GROUPED_US)
    return world


def installed(world: World, me: ProcessorId, ring: int) -> list[Configuration]:
    return [
        effect.event.configuration
        for life in world.hosts[me].recordings
        for effects in life.effects
        for effect in effects
        if getattr(effect, "layer", None) == ("srp", ring) and isinstance(effect.event, InstallConfiguration)
    ]


def test_two_rings_form_side_by_side() -> None:
    world = formed()
    for me in world.hosts:
        assert members(world, me, 0) == members(world, me, 1) == (1, 2, 3)


def test_one_ring_breaks_and_the_other_does_not_notice() -> None:
    world = formed()
    before = {me: installed(world, me, 0) for me in world.hosts}
    world.medium.partition([[1, 2], [3]], network=1)
    world.run_for(GROUPED_US)
    for me in world.hosts:
        assert members(world, me, 0) == (1, 2, 3)
        assert installed(world, me, 0) == before[me], "no configuration more"
    assert members(world, 1, 1) == (1, 2)
    assert members(world, 3, 1) == (3,)


def test_neither_timers_nor_stable_records_of_two_rings_meet() -> None:
    world = formed()
    for host in world.hosts.values():
        names = {
            effect.timer
            for life in host.recordings
            for effects in life.effects
            for effect in effects
            if isinstance(effect, SetTimer)
        }
        by_ring = [{name.timer for name in names if name.instance == ring} for ring in (0, 1)]
        assert by_ring[0] & by_ring[1], "both use the same numbers"
        assert len(names) == len(by_ring[0]) + len(by_ring[1])
        assert {"ring_seq", "srp.1.ring_seq", "timestamp", "srp.1.timestamp"} <= set(host.disk.latest)


@pytest.mark.parametrize("lose_second", [False, True])
def test_groups_on_the_first_ring_are_as_without_a_second(lose_second: bool) -> None:
    listener = Listener(World(1, 3, stack=two_rings, lans=(Lan(), Lan())))
    if lose_second:
        listener.world.medium.partition([[1], [2], [3]], network=1)
    listener.multicast(1, b"one")
    listener.world.run_for(GROUPED_US)
    assert all([payload for _, payload in heard] == [b"one"] for heard in listener.heard.values())


def test_a_life_is_above_that_of_every_ring() -> None:
    """A ring may have spoken in a life that another had not written yet."""
    stable = {"incarnation": 4, "srp.1.incarnation": 5}
    assert two_rings(1, RingConfig(), stable, frozenset()).incarnation == 6


def test_a_stack_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="each ring of a node needs networks of its own"):
        StackSpec(1, rings=(RingSpec(), RingSpec(SECOND)))
    with pytest.raises(ConfigurationError, match=r"network = 1: there are 1 networks"):
        replace(StackSpec(1), rings=(RingSpec(networks=(1,)),))
    with pytest.raises(ConfigurationError, match="networks that follow each other"):
        RingSpec(networks=(0, 2), redundancy=RedundancyConfig(style="active"))
    with pytest.raises(ConfigurationError, match="say how it uses them"):
        RingSpec(networks=(0, 1))


def test_a_second_ring_may_have_several_networks_of_its_own() -> None:
    def both(
        me: ProcessorId, config: RingConfig, stable: Mapping[str, int], kinds: frozenset[str]
    ) -> ProcessorStack:
        redundant = RingSpec(SECOND, (1, 2), RedundancyConfig(style="passive"))
        networks = tuple(NetworkSpec(name=name) for name in "abc")
        spec = StackSpec(me, networks, (RingSpec(config), redundant), GroupConfig())
        return build(spec, stable, kinds, draw=jitter(me, stable), parts=SIM_PARTS)

    world = World(1, 3, stack=both, lans=(Lan(), Lan(), Lan()))
    world.start()
    world.run_until(GROUPED_US)
    assert members(world, 1, 0) == members(world, 1, 1) == (1, 2, 3)
    world.medium.partition([[1], [2], [3]], network=2)
    world.run_for(8_000_000)
    for me in world.hosts:
        stack = cast(ProcessorStack, world.hosts[me].stack)
        assert stack.networks[0].service.why[:2] == ["", "nobody hears anybody"]
        assert members(world, me, 1) == (1, 2, 3)
