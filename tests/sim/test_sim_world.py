"""Whole worlds with the real protocol: repeatable, recorded, loaded, and broken on command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from totempole.sim.conditions import Condition
from totempole.sim.load import Arrivals, Burst, PacketDriver, Saturation, one_of, payload, uniform
from totempole.sim.replay import replay
from totempole.sim.world import World
from totempole.trace.digest import trace_digest
from totempole.trace.schema import Row
from totempole.trace.told import told
from totempole.types import Service

NOISY = Condition(loss=0.05, duplicate=0.02, reorder=0.05, late=0.001, corrupt=0.005, delay_us=(50, 300))


def stormy(seed: int, record_inputs: bool = False) -> World:
    """A second of everything."""
    world = World(
        seed, 4, condition=NOISY, drift_ppm_max=100, clock_offset_us_max=10**6, record_inputs=record_inputs
    )
    world.start()
    for me in world.hosts:
        Arrivals(world, me, 200, size=uniform(1, 5_000), safe=0.5).start()
    world.run_until(300_000)
    world.partition([[1, 2], [3, 4]])
    world.run_until(500_000)
    world.heal()
    world.crash(3)
    world.run_until(700_000)
    world.restart(3)
    world.run_until(1_000_000)
    return world


def test_one_seed_gives_one_run() -> None:
    rows = stormy(5).rows
    assert trace_digest(rows) == trace_digest(stormy(5).rows)
    assert rows != [row._replace(run=rows[0].run) for row in stormy(6).rows]


@pytest.mark.search
def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    code = "import test_sim_world as t; print(t.trace_digest(t.stormy(9).rows))"
    prints = set()
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        prints.add(result.stdout)
    assert len(prints) == 1


def test_every_fate_is_met_in_a_storm() -> None:
    counters = stormy(5).counters
    for fate in ("sent", "delivered", "lost", "cut", "duplicated", "reordered", "corrupted", "unheard"):
        assert counters[fate] > 0, fate


def test_replaying_the_inputs_gives_the_same_effects() -> None:
    world = stormy(5, record_inputs=True)
    for host in world.hosts.values():
        assert len(host.recordings) == (2 if host.me == 3 else 1)
        for life in host.recordings:
            assert replay(life) == life.effects


def test_faults_are_rows_and_are_counted() -> None:
    world = World(1, 3)
    world.partition([[2, 1], [3]])
    world.cut(1, 2)
    world.set_condition(Condition(loss=0.5), 1, 2)
    faults = [(row.node, row.layer, told(row)) for row in world.rows if row.kind == "fault"]
    assert faults == [
        (0, "sim", "partition (1 2) (3)"),
        (0, "sim", "cut 1 2"),
        (0, "sim", "condition loss=0.5 from 1 to 2"),
    ]
    assert world.faults == {"partition": 1, "cut": 1, "condition": 1}


def deliveries(rows: list[Row], node: int) -> list[str]:
    return [row.message for row in rows if row.kind == "deliver" and row.node == node]


def test_all_deliver_one_order() -> None:
    world = World(2, 3)
    world.start()
    world.run_until(400_000)
    for me in world.hosts:
        Burst(world, me, 50, size=100, service=Service.SAFE).start()
    world.run_until(900_000)
    orders = [deliveries(world.rows, me) for me in world.hosts]
    assert len(orders[0]) == 150
    assert orders[0] == orders[1] == orders[2]


@pytest.fixture
def ring() -> World:
    world = World(3, 2)
    world.start()
    world.run_until(500_000)
    return world


def test_a_burst_goes_on_after_push_back(ring: World) -> None:
    load = Burst(ring, 1, 1_000, size=10, service=Service.AGREED)
    load.start()
    ring.run_until(2_000_000)
    assert load.refused > 0
    assert load.submitted == ring.hosts[2].delivered == 1_000


def test_saturation_keeps_the_queue_full(ring: World) -> None:
    load = Saturation(ring, 1, size=100, until_us=550_000)
    load.start()
    ring.run_until(550_000)
    assert load.submitted >= load.host.config.send_queue_max
    assert load.submitted - load.host.delivered_own >= load.host.config.send_queue_ready - 60


def test_even_arrivals_keep_their_rate(ring: World) -> None:
    load = Arrivals(ring, 1, 300, poisson=False, until_us=1_500_000)
    load.start()
    ring.run_until(2_000_000)
    assert 299 <= load.submitted <= 300


def test_poisson_arrivals_keep_their_rate_roughly(ring: World) -> None:
    load = Arrivals(ring, 1, 500, size=one_of(10, 1_000), safe=0.3, until_us=1_500_000)
    load.start()
    ring.run_until(2_000_000)
    assert 400 < load.submitted < 600
    services = [row.service for row in ring.rows if row.kind == "deliver" and row.node == 1]
    assert 0.2 < services.count("safe") / len(services) < 0.4


def test_the_packet_driver_fills_a_window_each_period(ring: World) -> None:
    load = PacketDriver(ring, 1, size=64, period_us=500_000)
    load.start()
    ring.run_until(1_600_000)
    assert load.submitted == 3 * load.host.config.window_packets


def test_a_load_goes_on_after_its_processor_restarts(ring: World) -> None:
    load = Arrivals(ring, 1, 100, poisson=False)
    load.start()
    ring.run_until(600_000)
    ring.crash(1)
    ring.run_until(900_000)
    before = load.submitted
    ring.restart(1)
    ring.run_until(1_400_000)
    assert load.submitted > before + 30


def test_payloads_have_their_size_and_their_name() -> None:
    assert [len(payload(1, 2, size)) for size in (0, 5, 12, 13, 100_000)] == [0, 5, 12, 13, 100_000]
    assert payload(1, 2, 100) != payload(1, 3, 100)
