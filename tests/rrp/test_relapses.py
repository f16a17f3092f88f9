"""How often a network has come back from probation is known to all members, whichever of them start anew."""

from __future__ import annotations

import pytest
from rrp_worlds import S, begun, dead, members_of, redundant_world, rows_of, states

from totempole.networks.events import NetworkState
from totempole.sim.world import World

PROBATION_US = 100_000


def probation_us(world: World) -> int:
    """Network b fails at once, and is mended. How long it is on probation then."""
    dead(world, 1)
    for _ in range(150):
        world.run_for(10_000)
        if states(world)[1] is NetworkState.FAULTY:
            break
    world.heal(1)
    for _ in range(400):
        world.run_for(10_000)
        if states(world)[1] is NetworkState.IN_SERVICE:
            break
    rows = [row for row in rows_of(world, "network") if row.node == 1]
    (began,) = [row for row in rows if row.new_state == "probation"][-1:]
    assert rows[-1].new_state == "in_service"
    return rows[-1].at_us - began.at_us


def test_a_member_that_starts_anew_shortens_no_probation() -> None:
    world = begun(redundant_world("passive", 2, 3, probation_us=PROBATION_US), rate=20)
    lasted = [probation_us(world) for _ in range(3)]
    world.crash(3)
    world.run_for(S)
    world.restart(3)
    world.run_for(2 * S)
    assert members_of(world) == [(1, 2, 3)] * 3
    lasted += [probation_us(world) for _ in range(2)]
    assert [later / PROBATION_US for later in lasted] == pytest.approx([1, 2, 4, 8, 16], rel=0.3)


def test_a_member_that_starts_while_a_network_has_failed_learns_how_often_it_did() -> None:
    world = begun(redundant_world("passive", 2, 3, probation_us=PROBATION_US), rate=20)
    lasted = [probation_us(world) for _ in range(2)]
    world.crash(1)  # the member whose timer is the shortest
    world.run_for(S)
    dead(world, 1)
    world.run_for(S)
    world.restart(1)
    world.run_for(2 * S)
    assert members_of(world) == [(1, 2, 3)] * 3
    lasted += [probation_us(world) for _ in range(2)]
    assert [later / PROBATION_US for later in lasted] == pytest.approx([1, 2, 4, 8], rel=0.3)


def test_rings_that_come_together_take_the_longest_probation_of_all() -> None:
    """Processors 3 and 4 have seen the network fail, and 1 and 2, whose timers are shorter, have not."""
    world = begun(redundant_world("passive", 2, 4, probation_us=PROBATION_US), rate=20)
    for number in (0, 1):
        world.partition([[1, 2], [3, 4]], number)
    world.run_for(2 * S)
    for _ in range(2):
        world.partition([[1, 2], [3], [4]], 1)
        world.run_for(S)
        assert states(world, 3)[1] is NetworkState.FAULTY
        world.partition([[1, 2], [3, 4]], 1)
        world.run_for(2 * S)
        assert states(world, 3)[1] is NetworkState.IN_SERVICE
    world.heal()
    world.run_for(3 * S)
    assert members_of(world) == [(1, 2, 3, 4)] * 4
    lasted = [probation_us(world) for _ in range(2)]
    assert [later / PROBATION_US for later in lasted] == pytest.approx([4, 8], rel=0.3)
