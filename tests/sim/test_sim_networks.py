"""Several networks in the simulator: each fails by itself, and what a scenario says of them comes true."""

from __future__ import annotations

from random import Random

import pytest
from sim_fakes import burst

from totempole.checkers.terms import Calm
from totempole.core.effects import Channel
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import Buffers, Condition, Lan
from totempole.sim.inbox import Inbox
from totempole.sim.medium import Medium
from totempole.sim.packet_filter import DropRule, StrayRule
from totempole.sim.scenario import parse, run
from totempole.sim.script import INTERFACE_VERBS, LINK_VERBS, PROCESSOR_VERBS, SERVICE_VERBS, Scenario
from totempole.sim.script_runner import TO_INTERFACES, TO_LINKS, TO_PROCESSORS, TO_SERVICE
from totempole.sim.shared import lossless_stretches, shared_stretches
from totempole.srp.packets import Wake
from totempole.types import NO_RING

A, B = 0, 1


class Ear:
    """Hears on which network what comes."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes]] = []

    def arrive(
        self, channel: Channel, datagrams: tuple[bytes, ...], size: int, source: int, network: int = 0
    ) -> None:
        self.heard += [(network, datagram) for datagram in datagrams]

    def on(self, network: int) -> list[bytes]:
        return [datagram for where, datagram in self.heard if where == network]


class Lab:
    """Ears 1, 2 and 3 on two networks, the second slower than the first."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        conditions = (None, Condition(delay_us=(500, 500)))
        self.medium = Medium(
            self.scheduler,
            Random(1),
            condition=Condition(delay_us=(100, 100)),
            lans=(Lan(), Lan()),
            conditions=conditions,
        )
        self.ears = {me: Ear() for me in (1, 2, 3)}
        for me, ear in self.ears.items():
            self.medium.attach(me, ear)

    def say(self, text: bytes = b"x", networks: tuple[int, ...] = (A, B)) -> None:
        transmit = burst(text)._replace(packet=Wake(1, 1, 1, NO_RING), networks=networks)
        for network in networks:
            self.medium.send(1, transmit, self.scheduler.now_us, network)

    def heard(self, me: int = 2) -> list[tuple[int, bytes]]:
        self.scheduler.run_until(self.scheduler.now_us + 10_000)
        found, self.ears[me].heard = self.ears[me].heard, []
        return found


def test_each_network_has_its_own_condition() -> None:
    lab = Lab()
    assert lab.medium.condition_of(1, 2, A).delay_us == (100, 100)
    assert lab.medium.condition_of(1, 2, B).delay_us == (500, 500)
    lab.medium.set_condition(Condition(loss=1.0), network=B)
    lab.say()
    assert lab.heard() == [(A, b"x")]
    assert lab.medium.condition.loss == 0.0


@pytest.mark.parametrize("network", [A, B])
def test_a_cut_on_one_network_leaves_the_other(network: int) -> None:
    lab = Lab()
    lab.medium.cut(1, 2, network)
    lab.say()
    assert lab.heard() == [(1 - network, b"x")]
    lab.medium.heal(1 - network)
    lab.say()
    assert lab.heard() == [(1 - network, b"x")]
    lab.medium.heal(network)
    lab.say()
    assert len(lab.heard()) == 2


def test_healing_one_network_leaves_the_rules_of_others() -> None:
    lab = Lab()
    lab.medium.drop_next(DropRule("wake", network=A))
    lab.medium.drop_next(DropRule("wake", network=B))
    lab.medium.heal(B)
    lab.say()
    assert lab.heard() == [(B, b"x")]
    lab.medium.drop_next(DropRule("wake", network=B))
    lab.medium.heal()
    lab.say()
    assert len(lab.heard()) == 2


def test_a_dropped_packet_is_dropped_on_all_networks_and_counts_once() -> None:
    lab = Lab()
    lab.medium.drop_next(DropRule("wake", count=2))
    for text in (b"1", b"2", b"3"):
        lab.say(text)
    assert sorted(lab.heard()) == [(A, b"3"), (B, b"3")]


def test_networks_that_are_wired_together_bring_everything_twice() -> None:
    lab = Lab()
    lab.medium.wire(A, B)
    lab.say(networks=(A,))
    assert sorted(lab.heard()) == [(A, b"x"), (B, b"x")]
    assert lab.medium.counters["crossed"] == 2
    lab.medium.heal(B)
    lab.say(networks=(A,))
    assert lab.heard() == [(A, b"x")]


def test_a_recorded_packet_comes_on_the_network_that_is_named() -> None:
    lab = Lab()
    lab.medium.lead_astray(StrayRule("replay", "wake", after_us=1_000, network=B))
    lab.say(networks=(A,))
    assert lab.heard() == [(A, b"x"), (B, b"x")]


def test_a_link_is_severed_where_it_is_on_every_network() -> None:
    lab = Lab()
    lab.medium.sever(1, 2, A)
    assert lab.medium.severed == set()
    lab.medium.sever(1, 2, B)
    assert lab.medium.severed == {(1, 2)}


def test_each_network_has_a_receive_buffer_of_its_own() -> None:
    inbox = Inbox(10, 100, networks=2)
    assert inbox.put([b"x" * 10], 10, network=0) == 0
    assert inbox.put([b"x"], 1, network=0) == 1
    assert inbox.put([b"x" * 10], 10, network=1) == 0
    assert [inbox.take()[3], inbox.take()[3]] == [0, 1]
    assert inbox.put([b"x" * 10], 10, network=0) == 0
    inbox.clear()
    assert inbox.sizes == inbox.datagrams == [0, 0]
    assert Buffers().data_bytes > 10


# Stretches in which every two processors share a network

TWO = "processors p=1 q=2 r=3\ncondition delay=100..150\nnetwork a\nnetwork b\nredundancy style=passive\n"


def stretches(steps: str, lossless: bool = False) -> list[tuple[int, int]]:
    found = (lossless_stretches if lossless else shared_stretches)(parse(f"{TWO}{steps}end 10s\n"), 1_000_000)
    assert all(isinstance(calm, Calm) for calm in found)
    return [(calm.from_us // 1_000_000, calm.to_us // 1_000_000) for calm in found]


@pytest.mark.parametrize(
    "steps",
    [
        "",
        "at 2s mute p on a\n",
        "at 2s deafen q on b\nat 3s cure q on b\nat 4s mute p on a\n",
        "at 2s partition (p) (q) (r) on a\n",
        "at 2s cut p q on a\nat 2s cut q r on b\n",
        "at 2s loss 1 on b\nat 3s loss 0 on b\nat 4s loss 1 on a\n",
        "at 2s drop-next token on a\nat 3s heal on a\nat 4s mute p on b\n",
        "at 2s sever p q on a\nat 3s mend p q on a\nat 4s sever p q on b\n",
        "at 2s wire a b\nat 3s replay hello after=1s on a\n",
    ],
)
def test_every_two_share_a_network(steps: str) -> None:
    assert stretches(steps) == [(0, 10)]


@pytest.mark.parametrize(
    "steps",
    [
        "at 2s mute p\n",
        "at 2s mute p on a\nat 2s mute p on b\n",
        "at 2s cut p q on a\nat 2s cut q p on b\n",
        "at 2s partition (p) (q r) on a\nat 2s partition (r) (p q) on b\n",
        "at 2s drain a by p\nat 2s cut p q on b\n",
        "at 2s loss 0.1 on a\nat 2s cut p q on b\n",
        "at 2s crash p\n",
        "at 2s partition (p) (q r)\n",
        "at 2s slow p 10\n",
    ],
)
def test_some_two_share_none(steps: str) -> None:
    assert stretches(steps) == [(0, 1)]


def test_nothing_is_promised_where_tokens_go_on_one_network() -> None:
    text = TWO.replace("style=passive", "style=passive tokens=one") + "end 10s\n"
    assert shared_stretches(parse(text), 1_000_000) == ()


def test_nothing_is_lost_before_and_after_a_fault() -> None:
    assert stretches("at 2s cut p q on a\nat 4s heal on a\n", lossless=True) == [(0, 1), (4, 10)]
    assert stretches("at 2s loss 0.1 on a\n", lossless=True) == [(0, 1)]
    assert stretches("at 2s condition delay=2ms..3ms on a\n", lossless=True) == [(0, 1)]
    assert stretches("at 2s condition delay=200..900 on a\n", lossless=True) == [(0, 10)]


def test_a_network_that_keeps_no_order_may_cause_retransmissions() -> None:
    """A message may take longer than the token that went by way of another processor."""
    text = TWO.replace("100..150", "100..300") + "end 10s\n"
    assert lossless_stretches(parse(text), 1_000_000) == ()


def with_speeds(style: str, each: tuple[str, str]) -> Scenario:
    text = TWO.replace("style=passive", f"style={style}")
    for name, words in zip("ab", each, strict=True):
        text = text.replace(f"network {name}", f"network {name} {words}")
    return parse(f"{text}end 10s\n")


FAST, SLOW = "bandwidth=12500000", "bandwidth=1250000"


@pytest.mark.parametrize(
    ("style", "each", "promised"),
    [
        ("active", (FAST, SLOW), True),
        ("active", (FAST, FAST), True),
        ("active", (FAST, "bandwidth=1249999"), False),
        ("active", ("bandwidth=12500001", SLOW), False),
        ("active", (FAST, ""), False),
        ("active tokens=one", (FAST, SLOW), False),
        ("passive", (FAST, FAST), True),
        ("passive", (FAST, SLOW), False),
        ("passive", (f"{FAST} capacity=10", SLOW), True),
    ],
)
def test_speeds_within_which_nothing_is_sent_again(style: str, each: tuple[str, str], promised: bool) -> None:
    assert bool(lossless_stretches(with_speeds(style, each), 1_000_000)) is promised


# Scenarios


def test_what_is_expected_of_networks_is_judged() -> None:
    text = (
        f"{TWO.replace('passive', 'passive hello=100000')}at 2s partition (p) (q) (r) on a\n"
        "at 4s expect network a in_service at p\nat 4s expect network b in_service at q\nend 4s\n"
    )
    (failure,) = run(parse(text)).failures
    assert "expect network a in_service at p: it is faulty (nobody hears anybody)" in failure


def test_an_alarm_that_does_not_come_is_a_failure() -> None:
    text = (
        f"{TWO}at 2s partition (p) (q) (r) on a\n"
        'at 9s expect alarm a "nobody hears anybody" since 2s within 5s\n'
        'at 9s expect alarm b "p cannot send" since 2s within 5s\nat 9s expect settled 2s\nend 9s\n'
    )
    (failure,) = run(parse(text)).failures
    assert "network-alarmed: violated" in failure
    assert "network 2" in failure
    assert "network 1" not in failure


def test_each_verb_is_a_method_of_the_world() -> None:
    assert set(TO_PROCESSORS) == set(PROCESSOR_VERBS)
    assert set(TO_LINKS) == set(LINK_VERBS)
    assert set(TO_INTERFACES) == set(INTERFACE_VERBS)
    assert set(TO_SERVICE) == set(SERVICE_VERBS)
