"""An interface that comes back may be a new one, with another hardware address."""

from __future__ import annotations

from totempole.core.effects import Send
from totempole.rrp import RedundancyConfig
from totempole.rrp.commands import NetworkBack, NetworkLost
from totempole.sim.conditions import Lan
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.stack import NetworkSpec, ProcessorStack


def test_every_member_is_sent_something_by_unicast() -> None:
    networks = (NetworkSpec(name="a"), NetworkSpec(name="b"))
    stack = RealStack(networks=networks, redundancy=RedundancyConfig(style="passive"))
    world = World(1, 3, stack=stack, lans=(Lan(), Lan()))
    world.start()
    world.run_until(1_000_000)
    built = world.hosts[1].stack
    assert isinstance(built, ProcessorStack)
    built.feed(world.now_us, NetworkLost(1))
    effects = built.feed(world.now_us, NetworkBack(1))
    sent = [(effect.networks, effect.to) for effect in effects if isinstance(effect, Send) and effect.to]
    assert sent == [((1,), 2), ((1,), 3)]
    assert not [effect for effect in built.feed(world.now_us, NetworkBack(1)) if isinstance(effect, Send)]
