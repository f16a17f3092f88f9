"""A processor on one network beside others that are on several: they cannot meet, and are told why."""

from __future__ import annotations

from collections.abc import Mapping

from totempole.core.effects import Alarm
from totempole.rrp.alarms import WaysDiffer
from totempole.rrp.config import RedundancyConfig
from totempole.sim.conditions import Lan
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, ProcessorStack
from totempole.types import ProcessorId

SEVERAL = RealStack(
    networks=(NetworkSpec(name="a"), NetworkSpec(name="b")), redundancy=RedundancyConfig(style="active")
)


def mixed(
    me: ProcessorId, config: RingConfig, stable: Mapping[str, int], kinds: frozenset[str], /
) -> ProcessorStack:
    return (RealStack() if me == 3 else SEVERAL)(me, config, stable, kinds)


def alarms(world: World, me: ProcessorId) -> list[object]:
    return [
        effect.alarm
        for life in world.hosts[me].recordings
        for effects in life.effects
        for effect in effects
        if isinstance(effect, Alarm)
    ]


def test_who_never_says_hello_is_told_of_once() -> None:
    world = World(1, 3, stack=mixed, lans=(Lan(), Lan()), record_inputs=True)
    for other in (1, 2):
        world.medium.sever(other, 3, network=1)
    world.start()
    world.run_until(5_000_000)
    for me in (1, 2):
        configuration = world.hosts[me].regular_configuration
        assert configuration is not None
        assert configuration.members == (1, 2)
        assert alarms(world, me) == [WaysDiffer(3, "networks", 1, 2)]


def test_who_says_hello_is_not() -> None:
    world = World(1, 3, stack=SEVERAL, lans=(Lan(), Lan()), record_inputs=True)
    world.start()
    world.run_until(5_000_000)
    assert [alarms(world, me) for me in (1, 2, 3)] == [[], [], []]
