"""Networks of different speeds under full load: the slowest sets the pace where it carries all, and none that
loses nothing is taken for a bad one. Ten times the speed is promised (docs/redundant-networks.md)."""

from __future__ import annotations

import pytest
from rrp_bench import GATE, WAIT_MOST_US, Bench
from rrp_worlds import (
    NAMES,
    S,
    ask,
    begun,
    changes,
    dead,
    installed,
    redundant_world,
    rows_of,
    saturate,
    states,
    why,
)

from sweeps import daily, first_of
from totempole.networks.commands import Drain, Restore
from totempole.networks.events import NetworkState
from totempole.rrp.gate import BEHIND_MOST, WAIT_LEAST_US
from totempole.sim.conditions import Lan
from totempole.sim.world import World
from totempole.stack import NetworkSpec
from totempole.types import RingKind

SERVED = NetworkState.IN_SERVICE
FAST = 12_500_000
SLOW = 1_250_000
X, Y = 0, 1


def unequal_world(
    style: str,
    processors: int,
    speeds: tuple[int, ...],
    kind: RingKind = RingKind.CLASSIC,
    capacities: tuple[int, ...] = (1, 1, 1),
    shared: bool = True,
) -> World:
    lans = [Lan(speed, shared=shared) for speed in speeds]
    specs = [NetworkSpec(name=NAMES[place], capacity=capacities[place]) for place in range(len(speeds))]
    world = redundant_world(
        *(style, len(speeds), processors),
        lans=lans,
        specs=specs,
        kind=kind,
        hello_us=350_000,
        probation_us=2_000_000,
    )
    return begun(world, rate=10)


def carried(world: World, size: int, duration_us: int = S // 2) -> float:
    """Bytes of messages per second that a processor delivers."""
    since_us = world.now_us
    world.run_for(duration_us)
    delivered = [row for row in rows_of(world, "deliver", since_us) if row.node == 1]
    return len(delivered) * size * S / duration_us


def is_sound(world: World, since_us: int, before: int) -> bool:
    return (
        not rows_of(world, "retransmit", since_us)
        and not rows_of(world, "network", since_us)
        and installed(world) == before
    )


@pytest.mark.parametrize("shared", first_of([True, False]))
@pytest.mark.parametrize("kind", first_of(RingKind))
@pytest.mark.parametrize("slow", daily([SLOW, 2 * SLOW, 5 * SLOW // 2], 1))
@pytest.mark.parametrize("processors", daily([4, 2, 3, 8], 1))
def test_active_replication_is_as_fast_as_the_slowest_network_and_blames_none(
    processors: int, slow: int, kind: RingKind, shared: bool
) -> None:
    """A2, A3, A6: 100 Mbit/s beside 10, 20 and 25."""
    world = unequal_world("active", processors, (FAST, slow), kind, shared=shared)
    since_us, before = world.now_us, installed(world)
    saturate(world)
    world.run_for(S)
    speed = carried(world, 1_400, S)
    assert is_sound(world, since_us, before)
    assert speed > 0.7 * slow


@pytest.mark.parametrize("size", first_of([20_000, 1_400]))
@pytest.mark.parametrize("kind", first_of(RingKind))
@pytest.mark.parametrize("slow", first_of([SLOW, 5 * SLOW]))
def test_passive_replication_fills_networks_by_capacity(slow: int, kind: RingKind, size: int) -> None:
    """P1, P2: long packets fill both, short ones go whole."""
    world = unequal_world("passive", 4, (FAST, slow), kind, (FAST // SLOW, slow // SLOW))
    since_us, before = world.now_us, installed(world)
    saturate(world, size)
    world.run_for(S // 2)
    speed = carried(world, size)
    assert is_sound(world, since_us, before)
    if size == 20_000:
        assert speed > 0.8 * (FAST + slow)


@pytest.mark.parametrize("size", first_of([20_000, 1_400]))
@pytest.mark.parametrize("kind", first_of(RingKind))
def test_a_network_that_the_others_do_not_miss_stays_in_step(kind: RingKind, size: int) -> None:
    """Two of three carry each byte: nothing is missing while the slow one falls behind."""
    world = unequal_world("active-passive", 4, (FAST, FAST, SLOW), kind)
    since_us, before = world.now_us, installed(world)
    saturate(world, size)
    world.run_for(S)
    assert is_sound(world, since_us, before)


@pytest.mark.parametrize("processors", first_of([4, 2]))
def test_a_slow_network_that_is_restored_under_load_stays(processors: int) -> None:
    world = unequal_world("active", processors, (FAST, SLOW))
    saturate(world)
    ask(world, 1, Drain(1))
    world.run_for(S // 2)
    ask(world, 2, Restore(1))
    world.run_for(2 * S)
    assert [new for _, _, new, _ in changes(world)] == ["drained", "in_service"]


@pytest.mark.parametrize("dies", first_of([1, 0]))
@pytest.mark.parametrize("processors", daily([4, 2, 8], 1))
def test_of_unequal_networks_a_dead_one_is_told_within_twenty_rotations(processors: int, dies: int) -> None:
    world = unequal_world("active", processors, (FAST, SLOW))
    saturate(world)
    world.run_for(S)
    since_us, before = world.now_us, installed(world)
    dead(world, dies)
    world.run_for(2 * S)
    told_us = next(row.at_us for row in rows_of(world, "network", since_us) if row.node == 1)
    rotations = [row for row in rows_of(world, "token", since_us) if row.node == 1 and row.at_us <= told_us]
    assert len(rotations) < 20
    assert why(world, dies) == "nobody hears anybody"
    assert states(world)[1 - dies] is SERVED
    assert installed(world) == before


# The gate


def late(bench: Bench, tokens: int, alive: bool = True) -> list[int]:
    """How long each token may be held, while `Y` brings messages (or none) and none of the tokens."""
    waits = []
    for token_seq in range(1, tokens + 1):
        bench.now_us += 10_000
        bench.come(bench.message(token_seq), X, *([Y] if alive else []))
        bench.come(bench.token(token_seq, seq=token_seq), X)
        waits.append(bench.timers[GATE] - bench.now_us)
        bench.run_out(GATE)
    return waits


def test_a_token_waits_for_a_network_that_lags() -> None:
    waits = late(Bench("active"), BEHIND_MOST + 2)
    assert waits[0] == WAIT_LEAST_US
    assert waits[1:BEHIND_MOST] == [WAIT_MOST_US] * (BEHIND_MOST - 1)
    assert waits[BEHIND_MOST:] == [WAIT_LEAST_US] * 2, "it brings no tokens"


def test_a_token_does_not_wait_for_a_silent_network() -> None:
    assert late(Bench("active"), 5, alive=False) == [WAIT_LEAST_US] * 5


def test_copies_that_come_a_rotation_late_are_not_lost() -> None:
    """Later than 10 ms, and than the next token: the skew is learnt all the same."""
    bench = Bench("active")
    before: list[bytes] = []
    for token_seq in range(1, 100):
        bench.now_us += 25_000
        token = bench.token(token_seq)
        bench.come(token, X)
        if before:
            bench.come(before, Y)
        bench.run_out(GATE)
        before = token
    assert bench.found == []
