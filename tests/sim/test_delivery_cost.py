"""What an application does with a message takes time, too, and comes after what the protocol sends."""

from __future__ import annotations

from collections.abc import Sequence

from sim_fakes import Puppet, burst

from totempole.effects import Deliver, Effect, Heard
from totempole.sim.conditions import Condition, Costs
from totempole.sim.world import World
from totempole.types import NO_RING, MessageId, OrderKey, Service

FREE = Costs(0, 0, 0, 0, 0, 0)
PRICED = Costs(0, 0, 0, 0, 0, 0, delivered_ns=40_000, delivered_byte_ns=1_000)
DELAY_US = 100


class Answering(Puppet):
    """1 delivers what it hears and answers it."""

    def receive(self, now_us: int, datagrams: Sequence[bytes]) -> list[Effect]:
        super().receive(now_us, datagrams)
        if self.me != 1:
            return []
        key = OrderKey(NO_RING, 1, NO_RING)
        deliver = Deliver(MessageId(2, 1, 1), 2, datagrams[0], Service.AGREED, key, 0, NO_RING)
        return [Heard(2, just_now=True), deliver, burst(b"answer", to=2)]


def run(costs: Costs) -> World:
    world = World(1, 2, endpoint=Answering, costs=costs, condition=Condition(delay_us=(DELAY_US, DELAY_US)))
    world.start(spread_us=0)
    world.run_for(10_000)
    world.medium.send(2, burst(b"0123456789", to=1), world.now_us)
    world.run_for(1_000)
    return world


def test_a_delivery_keeps_the_processor_busy() -> None:
    assert run(PRICED).hosts[1].busy_until_us == 10_000 + DELAY_US + 40 + 10


def test_what_the_same_input_sends_does_not_wait_for_it() -> None:
    endpoint = run(PRICED).hosts[2].endpoint
    assert isinstance(endpoint, Answering)
    assert [at_us for kind, at_us, *_ in endpoint.log if kind == "receive"] == [10_000 + 2 * DELAY_US]


def test_a_delivery_is_free_unless_priced() -> None:
    assert Costs().delivered_ns == Costs().delivered_byte_ns == 0
    assert run(FREE).hosts[1].busy_until_us == 10_000 + DELAY_US
