"""Networks are added to a ring that runs, and removed from it, processor by processor."""

from __future__ import annotations

import pytest
from rrp_worlds import (
    NAMES,
    S,
    ask,
    begun,
    changes,
    dead,
    installed,
    members_of,
    redundant_world,
    rows_of,
    stack_of,
    states,
    why,
)

from sweeps import first_of, first_row_of
from totempole.checkers import check
from totempole.core.inputs import Command
from totempole.errors import ConfigurationError
from totempole.networks.commands import Drain
from totempole.networks.events import NetworkState
from totempole.rrp.commands import AddNetwork, NetworkLost, RemoveNetwork
from totempole.rrp.config import NETWORKS_MAX
from totempole.sim.conditions import Lan
from totempole.sim.world import World
from totempole.types import ProcessorId, RingKind

IN, FAULTY, DRAINED = NetworkState.IN_SERVICE, NetworkState.FAULTY, NetworkState.DRAINED
STYLES = (("passive", 2), ("active", 2), ("active-passive", 3))
SEGMENT_BYTES = 1_400


def a_world(style: str = "passive", networks: int = 2, processors: int = 4, **settings: object) -> World:
    """With a network more than its processors have."""
    lans = (Lan(),) * (networks + 1)
    return redundant_world(style, networks, processors, lans=lans, **settings)  # type: ignore[arg-type]


def add(world: World, me: ProcessorId, network: int = 2) -> None:
    ask(world, me, AddNetwork(network, SEGMENT_BYTES, NAMES[network], 1))


def sound(world: World, configurations: int | None = None) -> None:
    """All members delivered the same, in one order, and were told the same of the networks."""
    if configurations is not None:
        assert installed(world) == configurations
    assert not check(world.rows).violated


def places(world: World, network: int, state: str) -> list[set[tuple[str, int]]]:
    """Of each processor: where in the total order the network came into a state."""
    return [
        {
            (str(row.ring), row.seq)
            for row in rows_of(world, "network")
            if row.node == me and row.network == network + 1 and row.new_state == state != row.old_state
        }
        for me in world.hosts
    ]


@pytest.mark.parametrize("kind", first_of(RingKind))
@pytest.mark.parametrize(("style", "networks"), first_row_of(STYLES))
def test_a_network_is_added_processor_by_processor(style: str, networks: int, kind: RingKind) -> None:
    """No configuration, no retransmission; all use it from the same place on, when the last has it."""
    world = begun(a_world(style, networks, kind=kind))
    before, from_us = installed(world), world.now_us
    for me in (2, 1, 4):
        add(world, me, networks)
        world.run_for(S // 3)
        assert states(world, me) == [IN] * networks + [FAULTY]
    assert why(world, networks) == "not configured at 3"
    assert states(world, 3) == [IN] * networks
    add(world, 3, networks)
    world.run_for(S)
    assert all(states(world, me) == [IN] * (networks + 1) for me in world.hosts)
    assert why(world, networks) == ""
    first, *others = places(world, networks, "in_service")
    assert len(first) == 1
    assert all(other == first for other in others)
    assert not rows_of(world, "retransmit", from_us)
    sound(world, before)
    for me in world.hosts:
        replicator = stack_of(world, me).replicators[0]
        assert replicator.service == (1 << networks + 1) - 1
        assert replicator.copies == (networks + 1 if style == "active" else max(1, networks - 1))


@pytest.mark.parametrize("drained", first_of([True, False]))
@pytest.mark.parametrize(
    ("style", "networks"), first_row_of([("passive", 3), ("active", 3), ("active-passive", 4)])
)
def test_a_network_is_removed_processor_by_processor(style: str, networks: int, drained: bool) -> None:
    world = begun(redundant_world(style, networks, 4))
    before, last = installed(world), networks - 1
    if drained:
        ask(world, 1, Drain(last))
        world.run_for(S // 4)
    for me in (3, 1, 2):
        ask(world, me, RemoveNetwork(last))
        world.run_for(S // 3)
        assert states(world, 4) == [IN] * last + [DRAINED if drained else FAULTY]
        assert states(world, me) == [IN] * last
    assert why(world, last, 4) == ("" if drained else "not configured at 1, 2, 3")
    ask(world, 4, RemoveNetwork(last))
    world.run_for(S)
    assert all(states(world, me) == [IN] * last for me in world.hosts)
    sound(world, before)
    # What is added again is a new network: nobody remembers that it was drained.
    for me in world.hosts:
        add(world, me, last)
    world.run_for(S)
    assert all(states(world, me) == [IN] * networks for me in world.hosts)
    sound(world, before)


def test_a_network_that_is_added_and_does_not_work_is_not_used() -> None:
    world = a_world()
    dead(world, 2)
    begun(world)
    before = installed(world)
    for me in world.hosts:
        add(world, me)
        ask(world, me, NetworkLost(2))
    world.run_for(2 * S)
    assert all(states(world, me) == [IN, IN, FAULTY] for me in world.hosts)
    assert why(world, 2) == "nobody hears anybody (its interface is down)"
    assert not any(new == "in_service" for network, _, new, _ in changes(world) if network == 2)
    sound(world, before)


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_whoever_comes_with_fewer_networks_takes_the_others_out_of_service(style: str) -> None:
    """A processor that starts again has two networks; the third is out of service until it has three."""
    world = begun(a_world(style))
    for me in world.hosts:
        add(world, me)
    world.run_for(S)
    assert states(world) == [IN, IN, IN]
    world.crash(2)
    world.run_for(S)
    world.restart(2)
    world.run_for(S)
    assert members_of(world) == [(1, 2, 3, 4)] * 4
    assert states(world) == [IN, IN, FAULTY]
    assert why(world, 2) == "not configured at 2"
    assert states(world, 2) == [IN, IN]
    before = installed(world)
    add(world, 2)
    world.run_for(S)
    assert all(states(world, me) == [IN, IN, IN] for me in world.hosts)
    sound(world, before)


def test_a_crash_in_the_middle_of_the_roll_out() -> None:
    """The last one without the network is gone: the others use it."""
    world = begun(a_world())
    for me in (1, 2, 3):
        add(world, me)
        world.run_for(S // 10)
    world.crash(4)
    world.run_for(2 * S)
    assert members_of(world)[:3] == [(1, 2, 3)] * 3
    assert all(states(world, me) == [IN, IN, IN] for me in (1, 2, 3))
    sound(world)


def test_a_network_fails_in_the_middle_of_the_roll_out() -> None:
    """The two that all have are judged as ever. The one in service that reaches all is never marked."""
    world = begun(a_world())
    before = installed(world)
    for me in (1, 2):
        add(world, me)
    dead(world, 0)
    world.run_for(S)
    assert all(states(world, me)[:2] == [FAULTY, IN] for me in world.hosts)
    dead(world, 1)
    for me in (3, 4):
        add(world, me)
    world.run_for(2 * S)
    assert members_of(world) == [(1, 2, 3, 4)] * 4
    assert all(states(world, me)[2] is IN for me in world.hosts)
    sound(world)
    assert before <= installed(world)


def test_the_network_that_goes_is_the_last_in_service_elsewhere() -> None:
    """The others drain all but the network that one is about to remove. What all have is taken again."""
    world = begun(redundant_world("passive", 3, 4), rate=50)
    ask(world, 1, Drain(1))
    world.run_for(S // 4)
    ask(world, 2, Drain(0))
    ask(world, 3, RemoveNetwork(2))
    world.run_for(3 * S)
    assert members_of(world) == [(1, 2, 3, 4)] * 4
    assert all(IN in states(world, me)[:2] for me in world.hosts)
    assert len({tuple(states(world, me)[:2]) for me in world.hosts}) == 1
    sound(world)


def refused(world: World, command: Command) -> str:
    with pytest.raises(ConfigurationError) as error:
        stack_of(world, 1).feed(world.now_us, command)
    return str(error.value)


def test_what_cannot_be_is_refused() -> None:
    world = begun(redundant_world("passive", 3, 2))
    assert refused(world, RemoveNetwork(0)) == "network a: it is not the last"
    assert "used already" in refused(world, AddNetwork(2, SEGMENT_BYTES, "d"))
    for network in (0, 1):
        ask(world, 1, Drain(network))
        world.run_for(S // 4)
    assert refused(world, RemoveNetwork(2)) == "network c: no other network is in service"
    assert states(world) == [DRAINED, DRAINED, IN]
    world = begun(redundant_world("passive", 2, 2))
    assert "there is 1 network" in refused(world, RemoveNetwork(1))
    for network in range(2, NETWORKS_MAX):
        stack_of(world, 1).feed(world.now_us, AddNetwork(network, SEGMENT_BYTES, str(network)))
    assert "at most 7" in refused(world, AddNetwork(NETWORKS_MAX, SEGMENT_BYTES, "8"))
    world = begun(redundant_world("active-passive", 3, 2))
    assert "copies = 2" in refused(world, RemoveNetwork(2))
