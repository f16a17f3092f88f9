"""What a node says of its own interfaces counts for every member, whatever else is known of it."""

from __future__ import annotations

from totempole.rrp import RedundancyConfig, Replicator
from totempole.rrp.commands import NetworkBack, NetworkLost
from totempole.rrp.paths import Finding, Lost
from totempole.sim.conditions import Lan
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.stack import NetworkSpec, ProcessorStack


def a_stack_of_two() -> ProcessorStack:
    networks = (NetworkSpec(name="a"), NetworkSpec(name="b"))
    redundancy = RedundancyConfig(style="passive")
    world = World(1, 2, stack=RealStack(networks=networks, redundancy=redundancy), lans=(Lan(), Lan()))
    world.start()
    world.run_until(1_000_000)
    stack = world.hosts[1].stack
    assert isinstance(stack, ProcessorStack)
    assert stack.ring.members == (1, 2)
    return stack


def replicator_of(stack: ProcessorStack) -> Replicator:
    return stack.replicators[0]


def test_a_lost_interface_is_found_of_a_member_that_has_said_nothing_yet() -> None:
    stack = a_stack_of_two()
    replicator_of(stack).watch._speakers.clear()
    stack.feed(2_000_000, NetworkLost(1))
    assert replicator_of(stack).findings == (Finding(1, 2, True, int(Lost.INTERFACE)),)
    stack.feed(2_000_001, NetworkBack(1))
    assert replicator_of(stack).findings == ()


def test_one_that_is_back_is_bad_until_hellos_have_come() -> None:
    stack = a_stack_of_two()
    stack.feed(2_000_000, NetworkLost(1))
    stack.feed(2_000_001, NetworkBack(1))
    (found,) = replicator_of(stack).findings
    assert (found.network, found.sender, found.lost) == (1, 2, 0)
