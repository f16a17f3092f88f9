"""Each thing that the medium can do to a datagram is shown to happen."""

from __future__ import annotations

from random import Random

import pytest
from sim_fakes import Ear, burst

from totempole.core.effects import Channel
from totempole.errors import ConfigurationError
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import Condition, Lan
from totempole.sim.medium import Medium
from totempole.sim.packet_filter import DropRule, StrayRule
from totempole.srp.packets import Wake
from totempole.types import NO_RING

STILL = (100, 100)


class Lab:
    """A medium with ears 1, 2 and 3."""

    def __init__(self, lans: tuple[Lan, ...] = (Lan(),), **condition: object) -> None:
        self.scheduler = Scheduler()
        settings = Condition(**{"delay_us": STILL, **condition})  # type: ignore[arg-type]
        self.medium = Medium(self.scheduler, Random(1), condition=settings, lans=lans)
        self.ears = {me: Ear(self.scheduler) for me in (1, 2, 3)}
        for me, ear in self.ears.items():
            self.medium.attach(me, ear)

    def say(self, count: int = 1, source: int = 1, **how: object) -> None:
        for number in range(count):
            self.medium.send(source, burst(b"%d" % number, **how), self.scheduler.now_us)  # type: ignore[arg-type]

    def run(self) -> None:
        self.scheduler.run_until(10**9)


def test_a_multicast_reaches_all_others_and_not_its_sender() -> None:
    lab = Lab()
    lab.say()
    lab.run()
    assert [len(ear.heard) for ear in lab.ears.values()] == [0, 1, 1]
    assert lab.ears[2].heard == [(100, Channel.DATA, (b"0",))]


def test_a_unicast_reaches_one() -> None:
    lab = Lab()
    lab.say(to=3)
    lab.run()
    assert [len(ear.heard) for ear in lab.ears.values()] == [0, 0, 1]


def test_a_whole_burst_arrives_as_one_event() -> None:
    lab = Lab()
    lab.medium.send(1, burst(b"a", b"b", b"c", to=2), 0)
    lab.run()
    assert lab.ears[2].heard == [(100, Channel.DATA, (b"a", b"b", b"c"))]


def test_the_survivors_of_a_burst_arrive_as_one_event() -> None:
    lab = Lab(loss=0.5)
    lab.medium.send(1, burst(*(b"%d" % n for n in range(100)), to=2), 0)
    lab.run()
    ((_, _, survivors),) = lab.ears[2].heard
    assert 30 < len(survivors) < 70
    assert lab.medium.counters["lost"] == 100 - len(survivors)


def test_loss_is_near_its_probability_and_apart_for_each_receiver() -> None:
    lab = Lab(loss=0.2)
    lab.say(5_000)
    lab.run()
    heard = [set(lab.ears[me].datagrams) for me in (2, 3)]
    assert all(3_850 < len(each) < 4_150 for each in heard)
    assert heard[0] != heard[1]
    assert lab.medium.counters["lost"] == 10_000 - sum(map(len, heard))


def test_tokens_and_messages_are_lost_apart() -> None:
    lab = Lab(loss=0.0, token_loss=1.0)
    lab.say(10)
    lab.say(10, channel=Channel.TOKEN)
    lab.run()
    assert {channel for _, channel, _ in lab.ears[2].heard} == {Channel.DATA}
    assert len(lab.ears[2].heard) == 10


def test_duplicates_arrive_twice() -> None:
    lab = Lab(duplicate=1.0)
    lab.say(5, to=2)
    lab.run()
    assert sorted(lab.ears[2].datagrams) == sorted([b"%d" % n for n in range(5)] * 2)
    assert lab.medium.counters["duplicated"] == 5


def test_a_link_keeps_its_order_unless_told_to_reorder() -> None:
    in_order, disordered = Lab(delay_us=(1, 10_000)), Lab(reorder=0.3)
    for lab in (in_order, disordered):
        lab.say(50, to=2)
        lab.run()
    sent = [b"%d" % n for n in range(50)]
    assert in_order.ears[2].datagrams == sent
    assert disordered.ears[2].datagrams != sent
    assert sorted(disordered.ears[2].datagrams) == sorted(sent)
    assert 5 < disordered.medium.counters["reordered"] < 25


def test_late_datagrams_come_after_the_timeouts() -> None:
    lab = Lab(late=1.0, late_us=(200_000, 300_000))
    lab.say(to=2)
    lab.run()
    assert 200_100 <= lab.ears[2].heard[0][0] <= 300_100
    assert lab.medium.counters["delayed"] == 1


def test_corruption_flips_one_bit() -> None:
    lab = Lab(corrupt=1.0)
    lab.medium.send(1, burst(b"\0\0\0\0", to=2), 0)
    lab.run()
    (spoiled,) = lab.ears[2].datagrams
    assert int.from_bytes(spoiled, "big").bit_count() == 1
    assert lab.medium.counters["corrupted"] == 1


def test_delay_stays_in_its_range() -> None:
    lab = Lab(delay_us=(50, 60))
    delays = set()
    for _ in range(200):
        before = lab.scheduler.now_us
        lab.say(to=2)
        lab.scheduler.run_until(before + 1_000)
        delays.add(lab.ears[2].heard[-1][0] - before)
    assert delays == set(range(50, 61))


def test_a_cut_is_one_way_and_is_mended() -> None:
    lab = Lab()
    lab.medium.cut(1, 2)
    lab.say(to=2)
    lab.say(source=2, to=1)
    lab.run()
    assert (lab.ears[2].heard, len(lab.ears[1].heard)) == ([], 1)
    assert lab.medium.counters["cut"] == 1
    lab.medium.mend(1, 2)
    lab.say(to=2)
    lab.scheduler.run_until(2 * 10**9)
    assert len(lab.ears[2].heard) == 1


def test_a_partition_parts_and_the_unnamed_stay_together() -> None:
    lab = Lab()
    lab.medium.partition([[1]])
    lab.say()
    lab.say(source=2)
    lab.run()
    assert [len(lab.ears[me].heard) for me in (1, 2, 3)] == [0, 0, 1]
    lab.medium.heal()
    lab.say()
    lab.scheduler.run_until(2 * 10**9)
    assert [len(lab.ears[me].heard) for me in (1, 2, 3)] == [0, 1, 2]


def test_networks_fail_apart() -> None:
    lab = Lab(lans=(Lan(), Lan()))
    lab.medium.partition([[1], [2, 3]], network=0)
    for network in (0, 1):
        lab.medium.send(1, burst(b"%d" % network, to=2), 0, network)
    lab.run()
    assert lab.ears[2].datagrams == [b"1"]


def test_one_link_has_a_condition_of_its_own() -> None:
    lab = Lab()
    lab.medium.set_condition(Condition(loss=1.0), 1, 2)
    lab.say()
    lab.run()
    assert [len(lab.ears[me].heard) for me in (2, 3)] == [0, 1]


def test_bandwidth_spaces_one_senders_datagrams_only() -> None:
    lab = Lab(lans=(Lan(bandwidth_bytes_per_s=1_000_000, overhead_bytes=0),))
    for source in (1, 2):
        for _ in range(2):
            lab.medium.send(source, burst(bytes(1_000), to=3), 0)
    lab.run()
    assert [at_us for at_us, _, _ in lab.ears[3].heard] == [1_100, 1_100, 2_100, 2_100]


def test_a_shared_wire_takes_one_transmission_at_a_time_in_order_of_departure() -> None:
    lab = Lab(lans=(Lan(bandwidth_bytes_per_s=1_000_000, overhead_bytes=0, shared=True),))
    lab.medium.send(1, burst(b"1" * 1_000, to=3), 500)
    lab.medium.send(2, burst(b"2" * 1_000, to=3), 5)
    lab.run()
    assert [(at_us, datagrams[0][:1]) for at_us, _, datagrams in lab.ears[3].heard] == [
        (1_105, b"2"),
        (2_105, b"1"),
    ]


def test_overhead_takes_wire_time() -> None:
    lab = Lab(lans=(Lan(bandwidth_bytes_per_s=1_000_000, overhead_bytes=66),))
    lab.medium.send(1, burst(b"x" * 934, b"x" * 934, to=2), 0)
    lab.run()
    assert lab.ears[2].heard[0][0] == 2_100


def test_drop_next_drops_exactly_what_it_names() -> None:
    lab = Lab()
    wake = burst(b"wake")._replace(packet=Wake(1, 1, 1, NO_RING))
    null = burst(b"null")
    lab.medium.drop_next(DropRule("wake", source=1, to=2, count=1))
    for transmit in (null, wake, wake):
        lab.medium.send(1, transmit, 0)
    lab.run()
    assert lab.ears[2].datagrams == [b"null", b"wake"]
    assert lab.ears[3].datagrams == [b"null", b"wake", b"wake"]
    assert lab.medium.counters["filtered"] == 1


@pytest.mark.parametrize("bad", [{"loss": 1.5}, {"token_loss": -0.1}, {"delay_us": (5, 1)}])
def test_bad_conditions_are_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bad))):
        Condition(**bad)  # type: ignore[arg-type]


def test_a_sharp_partition_loses_what_is_under_way_across_it_only() -> None:
    for sharp in (False, True):
        lab = Lab()
        lab.say(3)
        lab.medium.partition([[1, 2], [3]], sharp=sharp)
        lab.run()
        assert [len(ear.heard) for ear in lab.ears.values()] == [0, 3, 0 if sharp else 3]
        assert lab.medium.counters["cut under way"] == (3 if sharp else 0)


@pytest.mark.parametrize(
    ("fate", "counted", "heard"),
    [
        ("show", "shown", [0, 1, 1]),
        ("misdirect", "misdirected", [0, 0, 1]),
        ("reflect", "reflected", [1, 1, 0]),
    ],
)
def test_a_packet_led_astray(fate: str, counted: str, heard: list[int]) -> None:
    lab = Lab()
    lab.medium.lead_astray(StrayRule(fate, "null", to=None if fate == "reflect" else 3))
    lab.say(to=2)
    lab.run()
    assert [len(ear.heard) for ear in lab.ears.values()] == heard
    assert lab.medium.counters[counted] == 1


def test_what_was_meant_for_one_anyway_is_not_astray_there() -> None:
    lab = Lab()
    lab.medium.lead_astray(StrayRule("show", "null", to=2))
    lab.say(2)
    lab.say(to=2)
    lab.say(to=3)
    lab.run()
    assert [len(ear.heard) for ear in lab.ears.values()] == [0, 4, 3]
    assert lab.medium.counters["shown"] == 1


def test_a_recorded_packet_comes_again() -> None:
    lab = Lab()
    lab.medium.lead_astray(StrayRule("replay", "null", after_us=5_000))
    lab.say(2)
    lab.run()
    assert [at_us for at_us, _, _ in lab.ears[3].heard] == [100, 100, 5_100]
