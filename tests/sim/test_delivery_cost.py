"""What an application does with a message takes time, too, and comes after what the protocol sends."""

from __future__ import annotations

from sim_fakes import Puppet, burst

from totempole.core.effects import Effect, Reachable, Tell
from totempole.core.inputs import Arrived, Input
from totempole.core.order import Deliver
from totempole.sim.conditions import Condition, Costs
from totempole.sim.world import World
from totempole.stack import ORDER
from totempole.types import NO_RING, MessageId, OrderKey, Service

FREE = Costs(0, 0, 0, 0, 0, 0)
PRICED = Costs(0, 0, 0, 0, 0, 0, delivered_ns=40_000, delivered_byte_ns=1_000)
DELAY_US = 100


class Answering(Puppet):
    """1 delivers what it hears and answers it."""

    def feed(self, now_us: int, given: Input) -> list[Effect]:
        effects = super().feed(now_us, given)
        if self.me != 1 or not isinstance(given, Arrived):
            return effects
        datagrams = given.datagrams
        key = OrderKey(NO_RING, 1, NO_RING)
        deliver = Deliver(MessageId(2, 1, 1), 2, datagrams[0], Service.AGREED, key, 0, NO_RING)
        told = Tell(ORDER, deliver)
        return [Reachable(2, 0, given.source, just_now=True), told, burst(b"answer", to=2)]


def run(costs: Costs) -> World:
    world = World(1, 2, stack=Answering, costs=costs, condition=Condition(delay_us=(DELAY_US, DELAY_US)))
    world.start(spread_us=0)
    world.run_for(10_000)
    world.medium.send(2, burst(b"0123456789", to=1), world.now_us)
    world.run_for(1_000)
    return world


def test_a_delivery_keeps_the_processor_busy() -> None:
    assert run(PRICED).hosts[1].busy_until_us == 10_000 + DELAY_US + 40 + 10


def test_what_the_same_input_sends_does_not_wait_for_it() -> None:
    puppet = run(PRICED).hosts[2].stack
    assert isinstance(puppet, Answering)
    assert [at_us for kind, at_us, *_ in puppet.log if kind == "receive"] == [10_000 + 2 * DELAY_US]


def test_a_delivery_is_free_unless_priced() -> None:
    assert Costs().delivered_ns == Costs().delivered_byte_ns == 0
    assert run(FREE).hosts[1].busy_until_us == 10_000 + DELAY_US
