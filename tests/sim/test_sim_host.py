"""A simulated processor: CPU, buffers, drain rule, timers, pause, slowness, crash and restart."""

from __future__ import annotations

import pytest
from sim_fakes import Alarm, Puppet

from totempole.core.effects import Channel
from totempole.sim.conditions import Buffers, Condition, Costs, DiskSpeed
from totempole.sim.contract import SimulationError
from totempole.sim.disk import Fate
from totempole.sim.drift import LocalClock
from totempole.sim.host import LOOPBACK_US, Host
from totempole.sim.world import World

FREE = Costs(0, 0, 0, 0, 0, 0)
SLOW_READER = Costs(event_ns=100_000, datagram_ns=0, received_byte_ns=0, token_ns=0, sent_packet_ns=0)


def world_of_puppets(count: int = 2, **settings: object) -> World:
    defaults = {
        "stack": Puppet,
        "costs": FREE,
        "condition": Condition(delay_us=(100, 100)),
        "disk": DiskSpeed(latency_us=(50, 50)),
        "level": "protocol",
    }
    world = World(1, count, **{**defaults, **settings})  # type: ignore[arg-type]
    world.start(spread_us=0)
    world.run_until(10_000)
    return world


def puppet(world: World, me: int) -> Puppet:
    stack = world.hosts[me].stack
    assert isinstance(stack, Puppet)
    return stack


def kinds(world: World, node: int) -> list[str]:
    return [row.kind for row in world.rows if row.node == node]


def feed(host: Host, *texts: str, channel: Channel = Channel.DATA) -> None:
    for text in texts:
        host.arrive(channel, (text.encode(),), len(text))


def heard(world: World, me: int) -> list[str]:
    return [datagram.decode() for _, datagrams in puppet(world, me).fed("receive") for datagram in datagrams]


def test_start_writes_a_restart_row_first_and_persists() -> None:
    world = world_of_puppets()
    assert kinds(world, 1) == ["restart"]
    assert puppet(world, 1).fed("persisted") == [(50, 1)]


def test_a_multicast_is_heard_by_the_other_and_a_packet_to_oneself_by_oneself() -> None:
    world = world_of_puppets()
    world.submit(1, b"say hello")
    world.submit(1, b"self echo")
    world.run_for(1_000)
    assert heard(world, 2) == ["hello"]
    assert puppet(world, 1).fed("receive") == [(10_000 + LOOPBACK_US, (b"echo",))]


def test_a_packet_to_oneself_is_never_lost() -> None:
    world = world_of_puppets(condition=Condition(loss=1.0), buffers=Buffers(data_bytes=0))
    world.submit(1, b"self echo")
    world.submit(1, b"say hello")
    world.run_for(10_000)
    assert heard(world, 1) == ["echo"]
    assert heard(world, 2) == []


def test_timers_fire_move_and_are_cancelled() -> None:
    world = world_of_puppets()
    world.submit(1, b"set FIRST 500")
    world.submit(1, b"set SECOND 500")
    world.run_for(100)
    world.submit(1, b"set FIRST 700")
    world.submit(1, b"cancel SECOND")
    world.run_for(10_000)
    assert puppet(world, 1).fed("expire") == [(10_800, Alarm.FIRST)]


def test_a_timer_moved_earlier_fires_earlier_and_once() -> None:
    world = world_of_puppets()
    world.submit(1, b"set FIRST 5000")
    world.submit(1, b"set FIRST 50")
    world.run_for(10_000)
    assert puppet(world, 1).fed("expire") == [(10_050, Alarm.FIRST)]


def test_a_moving_timer_keeps_one_event_in_the_heap() -> None:
    world = world_of_puppets(1)
    for _ in range(100):
        world.submit(1, b"set FIRST 5000")
        world.run_for(1)
    assert len(world.scheduler) == 1


def test_a_fast_clock_fires_its_timers_sooner() -> None:
    world = world_of_puppets(1)
    world.hosts[1].clock = LocalClock(0, 100_000)
    world.submit(1, b"set FIRST 11000")
    world.run_for(9_999)
    assert puppet(world, 1).fed("expire") == []
    world.run_for(1)
    assert puppet(world, 1).fed("expire") == [(22_000, Alarm.FIRST)]


def test_data_is_drained_before_the_token() -> None:
    world = world_of_puppets(costs=SLOW_READER)
    host = world.hosts[1]
    feed(host, "busy")
    feed(host, "token", channel=Channel.TOKEN)
    feed(host, "a", "b")
    world.run_for(1_000)
    assert heard(world, 1) == ["busy", "a", "b", "token"]


def test_the_token_goes_first_when_the_protocol_says_so() -> None:
    world = world_of_puppets(costs=SLOW_READER)
    host = world.hosts[1]
    puppet(world, 1).wants_the_token = True
    feed(host, "busy", "a", "b")
    feed(host, "token", channel=Channel.TOKEN)
    world.run_for(1_000)
    assert heard(world, 1) == ["busy", "token", "a", "b"]


def test_what_has_arrived_goes_before_a_timer_that_is_due() -> None:
    world = world_of_puppets(costs=SLOW_READER)
    world.submit(1, b"set FIRST 150")
    world.run_for(120)
    feed(world.hosts[1], "busy", "token")
    world.run_for(1_000)
    order = [entry[0] for entry in puppet(world, 1).log]
    assert order[-3:] == ["receive", "receive", "expire"]


def test_inputs_wait_for_the_cpu() -> None:
    world = world_of_puppets(costs=SLOW_READER)
    feed(world.hosts[1], "a", "b", "c")
    world.run_for(1_000)
    assert [at_us for at_us, _ in puppet(world, 1).fed("receive")] == [10_000, 10_100, 10_200]


def test_a_slow_processor_takes_longer() -> None:
    world = world_of_puppets(costs=SLOW_READER)
    world.slow(1, 10)
    feed(world.hosts[1], "a", "b")
    world.run_for(2_000)
    assert [at_us for at_us, _ in puppet(world, 1).fed("receive")] == [10_000, 11_000]
    assert world.faults["slow"] == 1


def test_an_output_leaves_when_the_cpu_has_got_to_it() -> None:
    costs = Costs(event_ns=50_000, sent_packet_ns=20_000, sent_byte_ns=0)
    world = world_of_puppets(costs=costs)
    world.submit(1, b"say hello")
    world.run_for(1_000)
    assert [at_us for at_us, _ in puppet(world, 2).fed("receive")] == [10_170]


def test_fractions_of_a_microsecond_add_up() -> None:
    world = world_of_puppets(costs=Costs(300, 0, 0, 0, 0, 0))
    feed(world.hosts[1], *"abcdefghij")
    world.run_for(1_000)
    assert world.hosts[1].busy_until_us == 10_000 + 3


def test_full_buffers_overflow_and_are_counted_and_traced() -> None:
    world = world_of_puppets(costs=SLOW_READER, buffers=Buffers(data_bytes=3, token_datagrams=1))
    feed(world.hosts[1], "x")
    world.hosts[1].arrive(Channel.DATA, (b"a", b"b", b"c", b"d"), 4)
    feed(world.hosts[1], "t", "u", channel=Channel.TOKEN)
    world.run_for(1_000)
    assert heard(world, 1) == ["x", "a", "b", "c", "t"]
    assert world.counters["overflowed"] == 2
    drops = [(row.count, row.reason) for row in world.rows if row.kind == "drop"]
    assert drops == [(1, "overflow data"), (1, "overflow token")]


def test_pause_freezes_and_resume_goes_on() -> None:
    world = world_of_puppets(buffers=Buffers(data_datagrams=2))
    world.submit(1, b"set FIRST 500")
    world.pause(1)
    feed(world.hosts[1], "a", "b", "c")
    assert not world.submit(1, b"say hello")
    world.run_for(5_000)
    assert (puppet(world, 1).fed("receive"), puppet(world, 1).fed("expire")) == ([], [])
    world.resume(1)
    world.run_for(1_000)
    assert puppet(world, 1).fed("receive") == [(15_000, (b"a",)), (15_000, (b"b",))]
    assert puppet(world, 1).fed("expire") == [(15_000, Alarm.FIRST)]
    assert world.counters["overflowed"] == 1


def test_a_crash_forgets_all_but_the_disk_and_a_restart_is_a_new_incarnation() -> None:
    world = world_of_puppets()
    world.submit(1, b"set FIRST 500")
    world.submit(1, b"write ring_seq 8")
    world.run_for(60)
    world.submit(1, b"write ring_seq 12")
    world.crash(1, Fate.LOST)
    feed(world.hosts[1], "unheard")
    world.run_for(1_000)
    world.restart(1)
    world.run_for(1_000)
    assert puppet(world, 1).stable == {"incarnation": 1, "ring_seq": 8}
    assert puppet(world, 1).incarnation == 2
    assert puppet(world, 1).fed("receive") == puppet(world, 1).fed("expire") == []
    assert kinds(world, 1) == ["restart", "fault", "crash", "fault", "restart"]
    assert world.rows[-1].incarnation == 2


def test_a_crash_stops_a_queue_of_inputs() -> None:
    world = world_of_puppets(costs=SLOW_READER)
    feed(world.hosts[1], "a", "b", "c")
    world.run_for(50)
    world.crash(1)
    world.restart(1)
    world.run_for(10_000)
    assert heard(world, 1) == []


def test_leaving_ends_in_a_leave_row() -> None:
    world = world_of_puppets()
    world.leave(1)
    assert kinds(world, 1) == ["restart", "fault", "leave"]
    assert not world.hosts[1].alive


def test_push_back_refuses() -> None:
    world = world_of_puppets()
    assert world.submit(1, b"say hello")
    assert not world.submit(1, b"full")


def test_an_exception_names_seed_processor_time_and_input() -> None:
    world = world_of_puppets()
    with pytest.raises(SimulationError, match=r"seed 1: processor 2 at 10000 us .*Arrived.*aru went back"):
        feed(world.hosts[2], "explode")


def test_packet_events_count_datagrams_processed() -> None:
    world = world_of_puppets()
    world.hosts[1].arrive(Channel.DATA, (b"a", b"b"), 2)
    feed(world.hosts[2], "c")
    assert world.packet_events == world.counters["delivered"] == 3
