"""Totem §4.4: throughput, latency and the time to re-form a ring, in the simulator's virtual time.

The machines and the experiments are in totempole.sim.paper. Nothing here depends on how fast the tests run.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from statistics import mean

import pytest

from sweeps import first_of
from totempole.sim.conditions import Lan
from totempole.sim.load import Arrivals, Saturation
from totempole.sim.paper.experiments import latency, throughput
from totempole.sim.paper.faults import TOKEN_LOSS_US, crashes, token_losses
from totempole.sim.paper.machines import MS, SPARCSTATION_20, SUN_4_IPC, S
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.types import RingKind

pytestmark = pytest.mark.search

# Throughput


@pytest.mark.parametrize(("size", "published"), [(1_024, 810), (4, 1_130)])
def test_the_calibration_meets_the_published_throughputs(size: int, published: int) -> None:
    """§4.4: 810 messages of 1024 bytes per second, 1130 of 4 bytes, five processors, window_size 70."""
    assert throughput(SUN_4_IPC, 1, size=size) == pytest.approx(published, rel=0.03)


def test_600_byte_messages() -> None:
    """§4.4: reducing the message size to 600 bytes results in over 900 ordered messages per second."""
    assert 900 < throughput(SUN_4_IPC, 1, size=600) < 1_000


def test_a_single_sender_is_about_as_fast() -> None:
    """§4.4: throughput is relatively unaffected by the number of senders."""
    assert throughput(SUN_4_IPC, 1, size=1_024, one_sender=True) == pytest.approx(810, rel=0.1)


# Latency

LOW_LOADS = (50, 100, 200)
"""Messages per second of all five, as a Poisson process; nobody is ever held back by flow control."""

SIZE = 1_000
OWN_US = SUN_4_IPC.sending_us(SIZE) + SUN_4_IPC.broadcast_us(SIZE) + SUN_4_IPC.taking_us(SIZE)
"""What a message takes by itself, 1.7 ms: the model of §4.4 counts the rotations alone."""


@cache
def means(rate_per_s: float, *, safe: bool = False, processors: int | None = None) -> tuple[float, float]:
    """Latency to delivery by all, and rotation time, in microseconds."""
    found = latency(SUN_4_IPC, 1, rate_per_s=rate_per_s, safe=safe, size=SIZE, processors=processors)
    return mean(found.to_all_us), mean(found.rotation_us)


@pytest.mark.parametrize("rate_per_s", first_of(LOW_LOADS))
def test_agreed_delivery_takes_about_half_a_rotation(rate_per_s: int) -> None:
    """§4.4: at low load the latency to agreed delivery is approximately half a token rotation, or slightly
    more. Beside that a message has to be sent and received, which is short only where the ring is slow."""
    latency_us, rotation_us = means(rate_per_s)
    assert 0.4 < (latency_us - OWN_US) / rotation_us < 0.7


@pytest.mark.parametrize("rate_per_s", first_of(LOW_LOADS))
def test_safe_delivery_takes_about_two_rotations(rate_per_s: int) -> None:
    """§4.4: at low load the latency to safe delivery is approximately two token rotations."""
    latency_us, rotation_us = means(rate_per_s, safe=True)
    assert 1.5 < (latency_us - OWN_US) / rotation_us < 2.7


def test_latency_grows_with_load() -> None:
    """§4.4: the rotation time is Nb / (1 - r * rho), and with it latency grows with the load."""
    latencies, rotations = zip(*(means(rate_per_s) for rate_per_s in (50, 200, 400, 625)), strict=True)
    assert sorted(latencies) == list(latencies)
    assert sorted(rotations) == list(rotations)
    assert rotations[-1] > 3 * rotations[0]


def test_latency_at_400_messages_per_second() -> None:
    """§4.4: under 10 milliseconds. (At 625 it is 20 here, and about 13 in the paper: docs/spark.md.)"""
    assert means(400)[0] < 10 * MS


def test_latency_grows_linearly_with_the_ring() -> None:
    """§4.4: the latency increases linearly with the size of the membership."""
    five, ten, fifteen = (means(100, processors=processors)[0] for processors in (5, 10, 15))
    assert fifteen - ten == pytest.approx(ten - five, rel=0.3)


# Token loss


@pytest.mark.parametrize("rate_per_s", first_of([400, None]))
def test_a_ring_is_re_formed_within_40_ms_of_the_token_loss_timeout(rate_per_s: int | None) -> None:
    """§4.4: with retransmission disabled, returning to normal operation takes on average 40 ms plus the
    Token Loss timeout of 100 ms.

    Measured 131.8 ms when all send all they can and 135.3 ms at 400 messages/s. Of this, 20 ms are the disk's
    (machines.py). The first timeout comes up to 9 ms early: a sender's timer runs from the start of its token
    visit. join_us and consensus_us play no part, since no Join is lost.
    """
    times_us = token_losses(SUN_4_IPC, 1, retransmission=False, rate_per_s=rate_per_s, losses=8)
    assert TOKEN_LOSS_US < mean(times_us) < TOKEN_LOSS_US + 40 * MS
    assert max(times_us) < 150 * MS


@pytest.mark.parametrize("rate_per_s", first_of([400, None]))
def test_a_retransmitted_token_takes_16_ms(rate_per_s: int | None) -> None:
    """§4.4: with retransmission, the average time to return to normal operation is 16 ms.

    The paper's timeout is not stated; it is 15 ms here. Measured 7.9 ms (as above: the timer started when the
    visit did) and 14.3 ms.
    """
    times_us = token_losses(SUN_4_IPC, 1, retransmission=True, rate_per_s=rate_per_s, losses=8)
    assert mean(times_us) < 16 * MS
    assert max(times_us) < 25 * MS


# Totem CACM, eight faster machines


def test_a_crash_is_detected_and_recovered_from() -> None:
    """Totem CACM, Performance: detection takes at most 50 ms, recovery after that typically less than 20."""
    found = crashes(SPARCSTATION_20, 1, count=4)
    assert max(crash.detection_us for crash in found) < 50 * MS
    assert mean(crash.recovery_us for crash in found) < 20 * MS


def test_even_arrivals_have_the_shorter_tail() -> None:
    """Totem CACM, figure 7: at low loss, deterministic arrivals seldom wait as long as Poisson arrivals."""
    poisson, even = (
        sorted(latency(SPARCSTATION_20, 1, rate_per_s=1_000, poisson=poisson, duration_us=S).each_us)
        for poisson in (True, False)
    )
    assert even[len(even) * 99 // 100] < poisson[len(poisson) * 99 // 100]


# The accelerated ring

GIGABIT = Lan(bandwidth_bytes_per_s=125_000_000)
"""A switch: each has its own line."""


@cache
def on_gigabit(kind: RingKind, rate_per_s: int | None) -> tuple[float, float]:
    """Messages of 1350 bytes per second, and their mean latency to all in microseconds."""
    config = RingConfig(
        ring_kind=kind, window_packets=160, each_time_packets=20, accelerated_window=15, idle_rounds=10**9
    )
    world = World(1, 5, config, lans=(GIGABIT,))
    world.start()
    world.run_until(50 * MS)
    assert len(world.hosts[1].configurations[-1].members) == 5
    for me in world.hosts:
        if rate_per_s is None:
            Saturation(world, me, size=1_350).start()
        else:
            Arrivals(world, me, rate_per_s / 5, size=1_350).start()
    world.run_for(20 * MS)
    start_us, before = world.now_us, world.hosts[1].delivered
    world.run_for(40 * MS)
    submitted = {
        row.message: row.at_us for row in world.rows if row.kind == "submit" and row.at_us > start_us
    }
    delivered: dict[str, list[int]] = defaultdict(list)
    for row in world.rows:
        if row.kind == "deliver" and row.message in submitted:
            delivered[row.message].append(row.at_us)
    waits = [max(times) - submitted[message] for message, times in delivered.items() if len(times) == 5]
    throughput = (world.hosts[1].delivered - before) * S / (40 * MS)
    return throughput, mean(waits) if waits else 0.0


def test_the_accelerated_ring_is_faster() -> None:
    """Babay and Amir: at 1 Gbit/s, 30 % more throughput (docs/accelerated.md)."""
    classic, _ = on_gigabit(RingKind.CLASSIC, None)
    accelerated, _ = on_gigabit(RingKind.ACCELERATED, None)
    assert accelerated > 1.3 * classic


def test_the_accelerated_ring_is_quicker_at_once() -> None:
    """Babay and Amir: at 1 Gbit/s, 45 % less latency at a load that the classic ring bears, too."""
    _, classic_us = on_gigabit(RingKind.CLASSIC, 50_000)
    _, accelerated_us = on_gigabit(RingKind.ACCELERATED, 50_000)
    assert accelerated_us < 0.55 * classic_us
