"""Processors that move, learned addresses, two nodes with one number: each fault fires and is survived."""

from __future__ import annotations

import pytest

from sweeps import first_of
from totempole.core.effects import Reachable
from totempole.sim.host import Host
from totempole.sim.medium import NOWHERE
from totempole.sim.packet_filter import StrayRule
from totempole.sim.scenario import Outcome, parse, run
from totempole.sim.world import World

FOUR = """
processors 1 2 3 4
seed 3
set timeout_stretch_max_percent 100
set readmission_us 400000
"""
BUSY = "\n".join(f"at 200ms load {me} rate=25 size=100 safe=0.3 until=4s" for me in (1, 2, 3, 4))
SETTLED = "end 7s\nexpect settled 2s"

GAVE_WAY = "gave way to another of its number"
OUTLIVED = "outlived another of its number"


def play(steps: str) -> Outcome:
    """The scenario, which must also survive being written down."""
    scenario = parse("\n".join([FOUR, BUSY, steps, SETTLED]))
    assert parse(scenario.to_text(), scenario.name) == scenario
    outcome = run(scenario, level="checked")
    assert not outcome.failures, outcome.failures
    return outcome


def branches(outcome: Outcome, reason: str) -> int:
    return sum(row.kind == "branch" and row.reason == reason for row in outcome.rows)


# Addresses


def settled_world(processors: int = 3) -> World:
    world = World(5, processors)
    world.start()
    world.run_for(1_000_000)
    assert all(len(host.configurations[-1].members) == processors for host in world.hosts.values())
    return world


def test_a_host_learns_where_the_others_are() -> None:
    world = settled_world()
    assert world.hosts[1].addresses.known == {2: 2, 3: 3}
    world.crash(2)
    world.move(2)
    world.restart(2)
    world.run_for(1_000_000)
    assert world.hosts[2].address < 0
    assert {host.addresses.known.get(2) for me, host in world.hosts.items() if me != 2} == {
        world.hosts[2].address
    }


def test_a_restart_forgets_all_addresses() -> None:
    world = settled_world()
    world.crash(1)
    world.restart(1)
    assert not world.hosts[1].addresses.known


@pytest.mark.parametrize("me", first_of([1, 3]))
def test_a_processor_that_moves_while_it_runs_is_found_again(me: int) -> None:
    """Tokens to its old address reach nobody, so that the ring forms again; its Joins say where it is."""
    outcome = play(f"at 4.1s move {me}")
    assert outcome.world.faults["move"] == 1
    assert outcome.world.counters["sent to an old address"] > 0
    assert any((row.new_state, row.reason) == ("gather", "token loss") for row in outcome.rows)


def test_a_processor_that_moves_while_it_is_down() -> None:
    outcome = play("at 4s crash 2\nat 4s move 2\nat 4.2s restart 2")
    assert outcome.world.hosts[2].address < 0


def test_what_was_under_way_to_the_old_address_is_lost() -> None:
    world = settled_world(2)
    before = world.counters["sent to an old address"]
    for _ in range(100):
        world.submit(1, b"x")
        world.run_for(20)
        if world.counters["sent"]:
            world.move(2)
    assert world.counters["sent to an old address"] > before


def test_a_recorded_join_leads_to_a_wrong_address() -> None:
    """Whoever repeats it is taken for its sender, if the true one came from elsewhere and was lost."""
    world = settled_world(2)
    world.crash(2)
    world.lead_astray(StrayRule("replay", "join", 1, 2, 1, 50_000))
    world.partition([[1], [2]])
    world.crash(1)
    world.restart(1)
    world.restart(2)
    world.run_for(49_000)
    assert 1 not in world.hosts[2].addresses.known
    world.run_for(20_000)
    assert world.hosts[2].addresses.known[1] == NOWHERE
    world.heal()
    world.run_for(2_000_000)
    assert world.hosts[2].addresses.known[1] == 1
    assert len(world.hosts[2].configurations[-1].members) == 2


def test_a_hint_is_no_address() -> None:
    world = settled_world(2)
    host: Host = world.hosts[1]
    host._apply_rarer(Reachable(9, 0, 9, just_now=False))
    assert 9 not in host.addresses.known
    assert 9 in host.addresses.hints


# Doubles


def test_a_double_that_hears_its_number_never_speaks() -> None:
    outcome = play("at 1s double 2")
    assert outcome.world.faults["double"] == 1
    assert branches(outcome, GAVE_WAY) == 1
    assert not branches(outcome, OUTLIVED)
    (start,) = [row for row in outcome.rows if row.kind == "restart" and row.at_us == 1_000_000]
    assert not [row for row in outcome.rows if row.incarnation == start.incarnation and row.kind == "join"]
    assert outcome.world.hosts[2].address == 2


@pytest.mark.parametrize("me", first_of([1, 2]), ids=["representative", "other"])
def test_two_that_have_both_run_for_a_while_outlive_each_other_until_one_gives_way(me: int) -> None:
    outcome = play(f"at 1s pause {me}\nat 1.1s double {me}\nat 2.5s resume {me}")
    assert 1 <= branches(outcome, OUTLIVED) <= 6
    assert branches(outcome, GAVE_WAY) == 1


def test_whoever_comes_back_to_a_number_that_was_taken_gives_way() -> None:
    outcome = play("at 1s crash 2\nat 1.1s double 2\nat 2.5s restart 2")
    assert branches(outcome, GAVE_WAY) == 1
    assert outcome.world.hosts[2].address < 0, "the double is the processor now"
    assert not outcome.world.doubles[2].alive


def test_one_that_has_spoken_does_not_give_way_to_an_earlier_life() -> None:
    """The others know the later life, and would refuse the one that is left."""
    outcome = play("at 1s crash 2\nat 1.1s double 2\nat 1.5s restart 2")
    lives = [row.incarnation for row in outcome.rows if row.node == 2 and row.kind == "restart"]
    assert outcome.world.hosts[2].recorder.incarnation == max(lives)


def test_a_double_is_switched_off() -> None:
    outcome = play("at 1s pause 2\nat 1.1s double 2\nat 2.5s resume 2\nat 2.502s single 2")
    assert outcome.world.faults["single"] == 1


def test_doubles_that_cannot_hear_each_other_are_told_of() -> None:
    scenario = parse("\n".join([FOUR, "at 1s pause 2\nat 1.1s double 2", SETTLED]))
    outcome = run(scenario, level="checked")
    assert "Two nodes with the number 2 are still up" in outcome.failures[0]


def test_the_rows_of_a_doubled_number_and_its_messages_are_not_judged() -> None:
    outcome = play("at 1s pause 2\nat 1.1s double 2\nat 2.5s resume 2")
    steps = [row.step for row in outcome.rows if row.node == 2]
    assert len(steps) == len(set(steps))
    left = outcome.judged_rows
    assert any(row.kind == "deliver" for row in left)
    assert not any(row.node == 2 or row.message.startswith("2.") for row in left)


def test_a_double_does_not_inherit_a_disk_that_is_slow_just_then() -> None:
    """Its disk is new, and nothing that is done to the first one's disk would mend it."""
    world = settled_world(2)
    usual = world.hosts[2].disk.speed
    world.slow_disk(2, (50_000, 100_000))
    world.double(2)
    assert world.doubles[2].disk.speed == usual
    world.doubles[2].disk.mend()
    assert world.doubles[2].disk.speed == usual
