"""Groups on the ring itself, in the simulator: what an order conducted by hand cannot show."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from totempole.effects import Effect, ToProcesses
from totempole.groups import Batch, GroupConfig, GroupLayer, pack
from totempole.groups.events import BecameSafe, GroupEvent, GroupMessages
from totempole.groups.over_ring import over_ring
from totempole.jitter import jitter
from totempole.sim.host import Host
from totempole.sim.world import World
from totempole.srp import Endpoint
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId, Service


def layer(
    me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str]
) -> GroupLayer:
    endpoint = Endpoint(me, config, stable, trace_kinds, draw=jitter(me, stable))
    return over_ring(endpoint, config, GroupConfig(), trace_kinds)


def world_of(processors: int, config: RingConfig | None = None) -> tuple[World, dict[int, list[GroupEvent]]]:
    """Each processor with process 1, a member of `g`."""
    world = World(1, processors, config, endpoint=layer)
    events: dict[int, list[GroupEvent]] = {me: [] for me in world.hosts}

    def listen(host: Host, effect: Effect) -> None:
        if isinstance(effect, ToProcesses):
            events[host.me].append(effect.event)

    for host in world.hosts.values():
        host.listener = listen
    world.start()
    world.run_until(1_000_000)
    for host in world.hosts.values():
        host.ask("connect", 1)
        host.ask("join", 1, "g")
    world.run_for(100_000)
    return world, events


def test_no_more_is_sent_ahead_than_the_ring_has_room_for() -> None:
    """It would push back, as it also does when the processor leaves."""
    ring = RingConfig(each_time_packets=30, send_queue_max=2, send_queue_ready=1)
    world, events = world_of(2, ring)
    sent = [bytes([number]) * 100_000 for number in range(10)]
    for payload in sent:
        world.hosts[1].ask("multicast", 1, ("g",), pack([payload]), Service.AGREED)
    world.run_for(1_000_000)
    for told in events.values():
        batches = [event.batch for event in told if isinstance(event, GroupMessages)]
        assert [payload for batch in batches for payload in Batch(batch)] == sent


@pytest.mark.parametrize("service", Service)
def test_every_notice_comes_though_the_ring_falls_silent(service: Service) -> None:
    """The ring tells that a safe message is safe before it delivers it."""
    world, events = world_of(3)
    world.hosts[2].ask("multicast", 1, ("g",), pack([b"1"]), service, True)
    world.run_for(1_000_000)
    for told in events.values():
        messages = [event.place for event in told if isinstance(event, GroupMessages)]
        notices = [event.place for event in told if isinstance(event, BecameSafe)]
        assert len(messages) == 1
        assert notices == messages
