"""A processor that leaves while its processes' messages are on their way: nothing accepted is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import pytest

from sweeps import first_of
from totempole.groups import Batch, GroupConfig, GroupLayer, pack
from totempole.groups.commands import Connect, Disconnect, JoinGroup, LeaveGroup, Multicast
from totempole.groups.events import GroupMessages, ToProcesses
from totempole.sim.host import Host
from totempole.sim.stacks import SIM_PARTS, RealStack
from totempole.sim.world import Ambush, World
from totempole.srp.config import RingConfig
from totempole.stack import ProcessorStack
from totempole.types import ProcessorId, Service

MESSAGES = [bytes([number]) * 20_000 for number in range(40)]


class Stage:
    """Processors with process 1 each, a member of `g`."""

    def __init__(
        self, processors: int, *, config: RingConfig | None = None, layer: type[GroupLayer] = GroupLayer
    ) -> None:
        self.world = World(
            1,
            processors,
            config,
            stack=RealStack(GroupConfig(), parts=replace(SIM_PARTS, groups=layer)),
            level="protocol",
        )
        self.received: dict[ProcessorId, list[bytes]] = {me: [] for me in self.world.hosts}
        for host in self.world.hosts.values():
            host.listener = self._listen
        self.world.start()
        self.world.run_until(1_000_000)
        for host in self.world.hosts.values():
            host.ask(Connect(1))
            host.ask(JoinGroup(1, "g"))
        self.world.run_for(100_000)

    def _listen(self, host: Host, event: object) -> None:
        if isinstance(event, ToProcesses) and isinstance(event.event, GroupMessages):
            self.received[host.me] += Batch(event.event.batch)

    def multicast(self, me: ProcessorId, service: Service = Service.AGREED) -> None:
        for payload in MESSAGES:
            self.world.hosts[me].ask(Multicast(1, ("g",), pack([payload]), service))

    def branches(self, me: ProcessorId) -> list[str]:
        return [row.reason for row in self.world.rows if row.kind == "branch" and row.node == me]


@pytest.mark.parametrize("service", Service)
@pytest.mark.parametrize("later_us", first_of([100, 0, 200, 400]))
@pytest.mark.parametrize("other_goes", [World.leave, World.crash], ids=["leaves", "crashes"])
def test_all_that_was_accepted_arrives_though_another_goes_at_the_same_time(
    other_goes: Callable[[World, ProcessorId], None], later_us: int, service: Service
) -> None:
    stage = Stage(4)
    stage.multicast(2, service)
    stage.world.leave(2)
    stage.world.run_for(later_us)
    other_goes(stage.world, 4)
    stage.world.run_for(1_500_000)
    assert not stage.world.hosts[2].alive
    assert "sent again" in stage.branches(2)
    for me in (1, 3):
        assert stage.received[me] == MESSAGES


def test_all_that_was_accepted_arrives_though_everyone_but_one_leaves_at_once() -> None:
    """A rolling restart that does not wait: nobody waits for another one that waits."""
    stage = Stage(5)
    leaving = (2, 3, 4, 5)
    for me in leaving:
        stage.multicast(me)
    for me in leaving:
        stage.world.leave(me)
    started_us = stage.world.now_us
    stage.world.run_for(1_500_000)
    assert not any(stage.world.hosts[me].alive for me in leaving)
    assert sorted(stage.received[1]) == sorted(MESSAGES * len(leaving))
    left_us = max(row.at_us for row in stage.world.rows if row.kind == "leave")
    assert left_us - started_us < RingConfig().leave_us // 2


def test_all_leave_at_once_and_nobody_waits_for_ever() -> None:
    stage = Stage(3)
    for me in stage.world.hosts:
        stage.multicast(me)
        stage.world.leave(me)
    stage.world.run_for(1_500_000)
    assert not any(host.alive for host in stage.world.hosts.values())


def test_one_that_is_alone_leaves_when_it_has_told_itself_everything() -> None:
    stage = Stage(1)
    stage.multicast(1)
    stage.world.leave(1)
    stage.world.run_for(500_000)
    assert not stage.world.hosts[1].alive
    assert stage.received[1] == MESSAGES


def test_all_that_was_accepted_arrives_through_a_cascade_of_changes() -> None:
    """Each change comes before what the last one brought back is sent again."""
    stage = Stage(6)
    stage.multicast(2)
    stage.world.leave(2)
    for me in (6, 5, 4):
        stage.world.ambush(Ambush("exchange begins", partial(stage.world.crash, me), by=2))
        stage.world.run_for(200)
    stage.world.run_for(1_900_000)
    assert not stage.world.hosts[2].alive
    assert "exchange abandoned" in stage.branches(2)
    for me in (1, 3):
        assert stage.received[me] == MESSAGES


def test_processes_may_go_while_their_processor_leaves() -> None:
    stage = Stage(3)
    stage.multicast(2)
    stage.world.leave(2)
    stage.world.hosts[2].ask(LeaveGroup(1, "g"))
    stage.world.hosts[2].ask(Disconnect(1))
    stage.world.crash(3)
    stage.world.run_for(1_500_000)
    assert not stage.world.hosts[2].alive
    assert stage.received[1] == MESSAGES


class Silent(GroupLayer):
    """Hands nothing to the ring once it is told to be silent, not even its part of the table."""

    silent = False

    def _pump(self) -> None:
        if not self.silent:
            super()._pump()


def test_one_whose_exchange_never_ends_leaves_after_leave_us_and_says_what_may_be_lost() -> None:
    config = RingConfig(leave_us=300_000)
    stage = Stage(3, config=config, layer=Silent)
    stage.multicast(2)
    stage.world.leave(2)
    leaver, other = (cast(ProcessorStack, stage.world.hosts[me].stack).groups for me in (2, 1))
    assert isinstance(leaver, Silent)
    assert isinstance(other, Silent)
    other.silent = True
    stage.world.crash(3)
    stage.world.run_for(config.leave_us - 1_000)
    assert stage.world.hosts[2].alive
    stage.world.run_for(10_000)
    assert not stage.world.hosts[2].alive
    assert "left with messages unsent" in stage.branches(2)
    assert leaver.unsent_messages == len(MESSAGES) - len(stage.received[1]) > 0
