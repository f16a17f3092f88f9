"""Rings on several networks, in whole runs: what fails below them, applications do not notice."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rrp_worlds import (
    S,
    ask,
    begun,
    changes,
    dead,
    deaf,
    installed,
    members_of,
    mute,
    redundant_world,
    rows_of,
    saturate,
    sent_by,
    stack_of,
    states,
    why,
)

from sweeps import first_of
from totempole.checkers import check
from totempole.core.effects import Role
from totempole.networks.commands import Drain, Restore
from totempole.networks.events import NetworkState
from totempole.networks.reports import ReportKind, Request, is_report, pack_request
from totempole.sim.conditions import Condition, Lan
from totempole.sim.load import Arrivals
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec
from totempole.types import RingKind, Service

SERVED, SICK, FAULTY, DRAINED, PROBATION = NetworkState

EVERY = [
    pytest.param(
        *(style, networks, tokens, kind),
        id=f"{style} {networks} {tokens} {kind.name.lower()}",
        marks=[] if kind is RingKind.CLASSIC and networks == 2 and tokens == "all" else pytest.mark.search,
    )
    for style, networks, tokens in (
        ("active", 2, "all"),
        ("passive", 2, "all"),
        ("passive", 2, "one"),
        ("passive", 3, "all"),
        ("active-passive", 3, "all"),
        ("active-passive", 3, "one"),
    )
    for kind in RingKind
]


def agree(world: World) -> None:
    """All members list the same changes in the same order."""
    assert len({tuple(changes(world, me)) for me in world.hosts}) == 1


@pytest.mark.parametrize(("style", "networks", "tokens", "kind"), EVERY)
def test_a_network_that_dies_changes_no_configuration_and_is_named(
    style: str, networks: int, tokens: str, kind: RingKind
) -> None:
    world = begun(redundant_world(style, networks, 3, tokens=tokens, kind=kind))
    before = installed(world)
    dead(world, 0)
    world.run_for(S)
    assert installed(world) == before
    assert all(states(world, me)[0] is FAULTY for me in world.hosts)
    assert why(world, 0) == "nobody hears anybody"
    assert not check(world.rows).violated
    agree(world)


@pytest.mark.parametrize("networks", first_of([2, 3]))
@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_networks_that_lose_nothing_cause_no_retransmission(style: str, networks: int) -> None:
    """A2 and P1, with up to a millisecond between the networks."""
    world = redundant_world(style, networks, 3)
    world.medium.set_condition(Condition(delay_us=(700, 900)), network=1)
    begun(world, rate=100)
    assert not rows_of(world, "retransmit")
    saturate(world)
    world.run_for(S // 10)
    assert not rows_of(world, "retransmit")
    assert states(world) == [SERVED] * networks


def test_beyond_a_millisecond_the_gate_adapts() -> None:
    world = redundant_world("passive", 2, 3)
    world.medium.set_condition(Condition(delay_us=(2_500, 2_700)), network=1)
    begun(world, rate=100)
    settled_us = world.now_us
    world.run_for(S)
    assert not rows_of(world, "retransmit", settled_us)


@pytest.mark.parametrize("seed", first_of(range(3)))
@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_two_half_faults_break_no_ring(style: str, seed: int) -> None:
    """1 and 2 do not hear each other on a, nor 2 and 3 on b: every two still share a network. Where RRP's
    marks stop the sending, the ring breaks up again and again."""
    world = begun(redundant_world(style, 2, 3, seed=seed), rate=50)
    before = installed(world)
    for one, other, network in ((1, 2, 0), (2, 1, 0), (2, 3, 1), (3, 2, 1)):
        world.cut(one, other, network)
    world.run_for(2 * S)
    assert installed(world) == before
    agree(world)


def test_the_last_network_in_service_is_never_marked() -> None:
    world = begun(redundant_world("passive", 2, 3))
    dead(world, 0)
    world.run_for(S)
    world.set_condition(Condition(loss=0.4, delay_us=(150, 250)), network=1)
    world.run_for(2 * S)
    assert states(world)[1] is SERVED
    world.set_condition(Condition(delay_us=(150, 250)), network=1)
    world.heal()
    world.run_for(3 * S)
    assert states(world) == [SERVED, SERVED]


def test_all_networks_dead_for_a_while_hang_nothing() -> None:
    world = begun(redundant_world("passive", 2, 3))
    dead(world, 0)
    dead(world, 1)
    world.run_for(2 * S)
    assert members_of(world) == [(1,), (2,), (3,)]
    world.heal()
    world.run_for(4 * S)
    assert members_of(world) == [(1, 2, 3)] * 3
    assert SERVED in states(world)
    assert not check(world.rows).violated


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_a_processor_alone_marks_no_network(style: str) -> None:
    world = redundant_world(style, 2, 1)
    world.start()
    world.run_for(3 * S)
    assert members_of(world) == [(1,)]
    assert states(world) == [SERVED, SERVED]
    assert not changes(world)


def test_a_mended_network_returns_by_itself() -> None:
    world = begun(redundant_world("passive", 2, 3))
    before = installed(world)
    dead(world, 1)
    world.run_for(S)
    world.heal(1)
    world.run_for(3 * S)
    assert [new for _, _, new, _ in changes(world)][-2:] == ["probation", "in_service"]
    assert installed(world) == before
    agree(world)


def test_each_relapse_doubles_the_probation() -> None:
    world = begun(redundant_world("passive", 2, 3, probation_us=100_000), rate=20)
    lasted = []
    for _ in range(4):
        dead(world, 1)
        for _ in range(15):
            world.run_for(100_000)
            if states(world)[1] is FAULTY:
                break
        world.heal(1)
        for _ in range(400):
            world.run_for(10_000)
            if states(world)[1] is SERVED:
                break
        rows = [row for row in rows_of(world, "network") if row.node == 1]
        (began,) = [row for row in rows if row.new_state == "probation"][-1:]
        lasted.append(rows[-1].at_us - began.at_us)
        assert rows[-1].new_state == "in_service"
    ratios = [later / earlier for earlier, later in pairwise(lasted)]
    assert ratios[0] == pytest.approx(1, abs=0.3) or ratios[0] == pytest.approx(2, abs=0.3)
    assert all(ratio == pytest.approx(2, abs=0.3) for ratio in ratios[1:])


def test_one_processor_alone_reinstates_nothing() -> None:
    """While one path is still bad, nobody's clear paths bring the network back."""
    world = begun(redundant_world("passive", 2, 3), rate=50)
    mute(world, 2, 1, to=[1])
    world.run_for(S)
    assert states(world)[1] is FAULTY
    world.run_for(2 * S)
    assert states(world)[1] is FAULTY
    assert why(world, 1) == "1 does not hear 2"


# What is named


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_a_processor_that_cannot_send_is_named(style: str) -> None:
    world = begun(redundant_world(style, 2, 4))
    mute(world, 2, 0)
    world.run_for(2 * S)
    assert why(world, 0) == "2 cannot send"
    agree(world)


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_a_processor_that_cannot_receive_is_named(style: str) -> None:
    world = begun(redundant_world(style, 2, 4))
    deaf(world, 3, 1)
    world.run_for(2 * S)
    assert why(world, 1) == "3 cannot receive"
    agree(world)


def test_a_split_is_named() -> None:
    world = begun(redundant_world("passive", 2, 4))
    world.partition([[1, 4], [2, 3]], 0)
    world.run_for(2 * S)
    assert why(world, 0) == "split into 1, 4 and 2, 3"


def test_an_idle_ring_names_a_fault_within_five_seconds() -> None:
    world = redundant_world("passive", 2, 3, hello_us=350_000)
    world.start()
    world.run_for(2 * S)
    dead(world, 1)
    world.run_for(5 * S)
    assert states(world)[1] is FAULTY
    assert why(world, 1) == "nobody hears anybody"


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
@pytest.mark.parametrize("kind", first_of(RingKind))
def test_a_saturated_ring_tells_of_a_fault_within_twenty_rotations(style: str, kind: RingKind) -> None:
    """Though hundreds of packets wait at each processor."""
    lans = (Lan(12_500_000), Lan(12_500_000))
    world = redundant_world(style, 2, 3, kind=kind, lans=lans, hello_us=350_000)
    world.start()
    world.run_until(S // 2)
    saturate(world)
    world.run_for(S // 5)
    since_us = world.now_us
    dead(world, 0)
    world.run_for(S // 5)
    told_us = next(row.at_us for row in rows_of(world, "network", since_us) if row.node == 1)
    rotations = [row for row in rows_of(world, "token", since_us) if row.node == 1 and row.at_us <= told_us]
    assert len(rotations) < 20


def test_reports_go_before_what_waits_and_find_room_in_a_full_queue() -> None:
    world = begun(
        redundant_world("passive", 2, 2, config=RingConfig(send_queue_max=50, send_queue_ready=10)),
        rate=0.001,
    )
    ring = stack_of(world, 1).ring
    sent = [ring.submit(b"%d" % number, Service.AGREED) for number in range(60)]
    assert sum(sent) in (50, 51)
    assert ring.report(pack_request(Request(ReportKind.DRAIN, 1)))
    assert ring.report(pack_request(Request(ReportKind.RESTORE, 1)))
    waiting = [submission.payload for submission in ring._ordering.queue]
    assert list(map(is_report, waiting[:3])) == [True, True, False]
    assert not ring.submit(b"no room", Service.AGREED)
    world.run_for(S // 2)
    assert [new for _, _, new, _ in changes(world)] == ["drained", "in_service"]


@pytest.mark.parametrize("style", first_of(["passive", "active"]))
def test_five_percent_loss_on_every_network_raises_no_alarm(style: str) -> None:
    """A run of seconds; a million tokens are counted in test_requirements.py."""
    world = redundant_world(style, 2, 3)
    world.start()
    world.run_until(S)
    before = installed(world)
    world.set_condition(Condition(loss=0.05, delay_us=(150, 250)))
    for me in world.hosts:
        Arrivals(world, me, 500, size=600).start()
    world.run_for(3 * S // 2)
    assert len(rows_of(world, "token", S)) > 2_000
    assert rows_of(world, "retransmit")
    assert not changes(world)
    assert installed(world) == before


def test_a_lossy_network_is_sick_and_set_aside() -> None:
    world = begun(redundant_world("passive", 2, 3))
    before = installed(world)
    world.set_condition(Condition(loss=0.4, delay_us=(150, 250)), network=1)
    world.run_for(2 * S)
    assert states(world)[1] is SICK or states(world)[1] is FAULTY
    assert installed(world) == before


def test_networks_that_are_wired_together_are_named() -> None:
    world = begun(redundant_world("passive", 2, 3), rate=50)
    medium = world.medium
    for source in world.hosts:
        for route in medium._networks[0].all_routes[source]:
            across = medium._networks[1].routes[source][route.target].arrive
            true = route.arrive

            def both(*read: object, true: object = true, across: object = across) -> None:
                true(*read)  # type: ignore[operator]
                across(*read)  # type: ignore[operator]

            route.arrive = both
    world.run_for(2 * S)
    assert "wired together with b" in why(world, 0)
    assert "wired together with a" in why(world, 1)
    assert states(world) == [SERVED, SERVED]


# Drain and restore


def test_a_drained_network_carries_no_data_in_a_run() -> None:
    world = begun(redundant_world("active", 2, 3))
    ask(world, 2, Drain(1))
    world.run_for(S // 2)
    assert [states(world, me) for me in world.hosts] == [[SERVED, DRAINED]] * 3
    sent = sent_by(world)
    world.run_for(S // 2)
    carried = {send.role for network, send in sent if network == 1}
    assert not carried & {Role.MESSAGE, Role.RETRANSMISSION, Role.TOKEN, Role.TOKEN_AGAIN}
    assert {send.role for network, send in sent if network == 0} >= {Role.MESSAGE, Role.TOKEN}
    ask(world, 3, Restore(1))
    world.run_for(S // 2)
    assert states(world) == [SERVED, SERVED]
    agree(world)


def test_a_drain_that_would_cut_somebody_off_is_refused() -> None:
    world = begun(redundant_world("passive", 2, 3))
    mute(world, 2, 0)
    world.run_for(S)
    ask(world, 1, Drain(1))
    world.run_for(S // 2)
    assert states(world)[1] is SERVED
    ask(world, 1, Drain(0))
    world.run_for(S // 2)
    assert states(world) == [DRAINED, SERVED]


# Membership


def test_membership_changes_while_a_network_is_faulty() -> None:
    world = begun(redundant_world("passive", 2, 4))
    dead(world, 0)
    world.run_for(S)
    world.crash(2)
    world.run_for(S)
    assert members_of(world)[0] == (1, 3, 4)
    world.restart(2)
    world.run_for(2 * S)
    assert members_of(world) == [(1, 2, 3, 4)] * 4
    assert all(states(world, me)[0] in (FAULTY, PROBATION) for me in world.hosts)
    world.run_for(2 * S)
    assert all(states(world, me)[0] is FAULTY for me in world.hosts)
    assert not check(world.rows).violated


def test_a_joiner_adopts_the_state_of_the_ring() -> None:
    world = redundant_world("passive", 2, 4)
    world.start([1, 2, 3])
    world.run_for(S)
    ask(world, 1, Drain(1))
    world.run_for(S // 2)
    world.start([4])
    world.run_for(S)
    assert members_of(world) == [(1, 2, 3, 4)] * 4
    assert states(world, 4) == [SERVED, DRAINED]
    assert stack_of(world, 4).replicators[0].drained == 0b10


def test_rings_that_come_together_agree_on_their_networks() -> None:
    world = begun(redundant_world("passive", 2, 4))
    world.partition([[1, 2], [3, 4]])
    world.run_for(S)
    ask(world, 1, Drain(1))
    world.run_for(S // 2)
    assert states(world, 3) == [SERVED, SERVED]
    world.heal()
    world.run_for(2 * S)
    assert [states(world, me) for me in world.hosts] == [[SERVED, DRAINED]] * 4


def test_networks_of_different_segment_sizes_work_together() -> None:
    specs = (NetworkSpec(1_400, "a"), NetworkSpec(8_900, "b"))
    world = begun(redundant_world("passive", 2, 3, specs=specs), rate=100, size=20_000)
    assert [link.cut_bytes for link in stack_of(world, 1).replicators[0]._link] == [1_400, 8_900]
    dead(world, 0)
    world.run_for(S)
    world.heal(0)
    dead(world, 1)
    world.run_for(2 * S)
    assert members_of(world) == [(1, 2, 3)] * 3
    assert not check(world.rows).violated


def test_networks_of_different_speeds_are_filled_by_capacity() -> None:
    lans = (Lan(12_500_000, shared=True), Lan(1_250_000, shared=True))
    specs = (NetworkSpec(name="a", capacity=10), NetworkSpec(name="b", capacity=1))
    world = begun(redundant_world("passive", 2, 3, lans=lans, specs=specs), rate=10)
    before = installed(world)
    saturate(world, size=20_000)
    world.run_for(S)
    assert installed(world) == before
    assert states(world) == [SERVED, SERVED]
