"""000 §4.4: throughput, latency and the time to re-form a ring, in the simulator's virtual time.

The machines are in sun4ipc.py. Nothing here depends on how fast the tests run.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from statistics import mean

import pytest
from sun4ipc import MS, S, latency, reforming, retransmitting, throughput

from totempole.sim.conditions import Lan
from totempole.sim.load import Arrivals, Saturation
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.types import RingKind, Service

# Throughput


@pytest.mark.parametrize(("size", "published"), [(1_024, 810), (4, 1_130)])
def test_the_calibration_meets_the_published_throughputs(size: int, published: int) -> None:
    """§4.4: 810 messages of 1024 bytes per second, 1130 of 4 bytes, five processors, window_size 70."""
    assert throughput(size) == pytest.approx(published, rel=0.03)


def test_600_byte_messages() -> None:
    """§4.4: reducing the message size to 600 bytes results in over 900 ordered messages per second."""
    assert 900 < throughput(600) < 1_000


def test_a_single_sender_is_about_as_fast() -> None:
    """§4.4: throughput is relatively unaffected by the number of senders."""
    assert throughput(1_024, senders=[3]) == pytest.approx(810, rel=0.1)


# Latency

LOW_LOADS = (50, 100, 200)
"""Messages per second of all five, as a Poisson process; nobody is ever held back by flow control."""


@pytest.mark.parametrize("rate_per_s", LOW_LOADS)
def test_agreed_delivery_takes_about_half_a_rotation(rate_per_s: int) -> None:
    """§4.4: at low load the latency to agreed delivery is approximately half a token rotation, or slightly
    more: the message has to be sent and received as well, and that is a quarter of a rotation here."""
    latency_us, rotation_us = latency(rate_per_s, Service.AGREED)
    assert 0.4 < latency_us / rotation_us < 0.9


@pytest.mark.parametrize("rate_per_s", LOW_LOADS)
def test_safe_delivery_takes_about_two_rotations(rate_per_s: int) -> None:
    """§4.4: at low load the latency to safe delivery is approximately two token rotations."""
    latency_us, rotation_us = latency(rate_per_s, Service.SAFE)
    assert 1.5 < latency_us / rotation_us < 2.7


def test_latency_grows_with_load() -> None:
    """§4.4: the rotation time is Nb / (1 - r * rho), and with it latency grows with the load."""
    times = [latency(rate_per_s, Service.AGREED) for rate_per_s in (50, 200, 400, 625)]
    latencies, rotations = zip(*times, strict=True)
    assert sorted(latencies) == list(latencies)
    assert sorted(rotations) == list(rotations)
    assert rotations[-1] > 3 * rotations[0]


def test_latency_grows_linearly_with_the_ring() -> None:
    """§4.4: the latency increases linearly with the size of the membership."""
    five, ten, fifteen = (latency(100, Service.AGREED, processors)[0] for processors in (5, 10, 15))
    assert fifteen - ten == pytest.approx(ten - five, rel=0.3)


# Token loss


@pytest.mark.parametrize("rate_per_s", [None, 400])
def test_a_ring_is_re_formed_within_40_ms_of_the_token_loss_timeout(rate_per_s: int | None) -> None:
    """§4.4: with retransmission disabled, returning to normal operation takes on average 40 ms plus the
    Token Loss timeout of 100 ms.

    Measured 131.9 ms when all send all they can and 138.1 ms at 400 messages/s. The first timeout comes 3 to
    9 ms early (a sender's timer runs from the start of its token visit), so that 40.5 ms are left from there:
    5 for the Joins, 24 token hops of 1.5 ms for the rest. join_us and consensus_us play
    no part, since no Join is lost; for the disk see sun4ipc.py.
    """
    times_us = reforming(rate_per_s)
    assert 100 * MS < mean(times_us) < 140 * MS
    assert max(times_us) < 150 * MS


@pytest.mark.parametrize("rate_per_s", [None, 400])
def test_a_retransmitted_token_takes_16_ms(rate_per_s: int | None) -> None:
    """§4.4: with retransmission, the average time to return to normal operation is 16 ms.

    The paper's timeout is not stated; it is 15 ms here. Measured 5.8 ms (as above: the timer started when the
    visit did, up to 10 ms before the token left) and 12.9 ms.
    """
    times_us = retransmitting(rate_per_s)
    assert mean(times_us) < 16 * MS
    assert max(times_us) < 25 * MS


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
