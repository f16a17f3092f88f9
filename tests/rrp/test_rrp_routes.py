"""On which networks packets go: by style, when they are sent again, when networks are out of service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rrp_bench import CONFIG, HELLO, ME, PREDECESSOR, RING, Bench

from totempole.core.effects import Alarm, Channel, Reachable, Role
from totempole.core.inputs import Arrived
from totempole.link import Link
from totempole.rrp.alarms import WaysDiffer
from totempole.rrp.commands import NetworkBack, NetworkLost, RemoveNetwork
from totempole.rrp.config import NETWORKS_MAX
from totempole.rrp.layer import WARY_US
from totempole.rrp.paths import RECOVERY, Lost
from totempole.rrp.route import stripes
from totempole.rrp.watching import CROSSED_LEAST, HASTE
from totempole.segment.cutter import cut
from totempole.segment.header import OFFSET_BYTES, SEGMENT, data_name
from totempole.srp.packets import RegularMessage
from totempole.types import Service
from totempole.wire.layout import PACKET_BYTES_MAX


@pytest.mark.parametrize(
    ("style", "networks", "copies", "carry"),
    [
        ("active", 2, 0, 2),
        ("active", 3, 0, 3),
        ("passive", 2, 0, 1),
        ("passive", 3, 0, 1),
        ("active-passive", 3, 2, 2),
        ("active-passive", 4, 3, 3),
    ],
)
def test_a_message_goes_on_as_many_networks_as_the_style_says(
    style: str, networks: int, copies: int, carry: int
) -> None:
    bench = Bench(style, networks, copies)
    sent = [bench.networks_of(bench.send(Role.MESSAGE)) for _ in range(12)]
    assert {len(each) for each in sent} == {carry}
    used = [network for each in sent for network in each]
    assert {used.count(network) for network in bench.networks} == {12 * carry // networks}


def test_tokens_go_on_every_network_in_service() -> None:
    bench = Bench("passive", 3)
    assert bench.networks_of(bench.send(Role.TOKEN)) == {0, 1, 2}
    bench.replicator.serve(0b101, 0, False)
    assert bench.networks_of(bench.send(Role.TOKEN)) == {0, 2}


def test_as_in_004_tokens_go_on_one_network_in_turn() -> None:
    bench = Bench("passive", 3, tokens="one")
    used = [bench.networks_of(bench.send(Role.TOKEN)) for _ in range(6)]
    assert {len(each) for each in used} == {1}
    assert {frozenset(each) for each in used} == {frozenset({number}) for number in range(3)}


def test_after_a_lost_token_all_go_on_every_network_for_a_while() -> None:
    bench = Bench("passive", 3, tokens="one")
    sent = tuple(bench.send(Role.TOKEN))
    bench.io.now_us = bench.now_us
    bench.replicator.repeat(sent, Role.TOKEN_AGAIN)
    bench.io.take()
    assert bench.networks_of(bench.send(Role.TOKEN)) == {0, 1, 2}
    bench.io.now_us += WARY_US
    assert len(bench.networks_of(bench.send(Role.TOKEN))) == 1


@pytest.mark.parametrize("role", [Role.RETRANSMISSION, Role.SEARCH, Role.CONTROL])
def test_what_is_sent_again_and_what_forms_a_ring_goes_on_every_network(role: Role) -> None:
    bench = Bench("passive", 3)
    bench.replicator.serve(0b001, 0, False)
    assert bench.networks_of(bench.send(role)) == {0, 1, 2}


def test_a_token_passed_again_goes_on_every_network() -> None:
    bench = Bench("passive", 3, tokens="one")
    bench.replicator.serve(0b001, 0, False)
    sent = tuple(bench.send(Role.TOKEN))
    assert bench.networks_of(sent) == {0}
    bench.replicator.repeat(sent, Role.TOKEN_AGAIN)
    assert bench.networks_of(bench.io.take()) == {0, 1, 2}  # type: ignore[arg-type]


def test_a_drained_network_carries_no_data() -> None:
    bench = Bench("active", 3)
    bench.replicator.serve(0b011, 0b100, False)
    for role in (Role.MESSAGE, Role.RETRANSMISSION, Role.TOKEN):
        assert bench.networks_of(bench.send(role)) == {0, 1}, role
    token = tuple(bench.send(Role.TOKEN))
    bench.replicator.repeat(token, Role.TOKEN_AGAIN)
    assert bench.networks_of(bench.io.take()) == {0, 1}  # type: ignore[arg-type]
    assert bench.networks_of(bench.send(Role.SEARCH)) == {0, 1, 2}


def test_where_no_network_reaches_everyone_messages_go_on_all_that_are_left() -> None:
    bench = Bench("passive", 3)
    bench.replicator.serve(0b011, 0b100, True)
    assert bench.networks_of(bench.send(Role.MESSAGE)) == {0, 1}


def test_a_network_that_is_back_in_service_does_not_make_up_for_its_absence() -> None:
    bench = Bench("passive", 3)
    bench.replicator.serve(0b011, 0, False)
    for _ in range(100):
        bench.send(Role.MESSAGE)
    bench.replicator.serve(0b111, 0, False)
    used = [bench.networks_of(bench.send(Role.MESSAGE)).pop() for _ in range(12)]
    assert 3 <= used.count(2) <= 5


def test_long_messages_fill_unequal_networks_by_their_capacities() -> None:
    bench = Bench("passive", 2, capacities=(10, 1))
    sent = bench.send(Role.MESSAGE, size=60_000)
    carried = {send.networks: sum(len(burst.data) for burst in send.bursts) for send in sent}
    assert carried[0,] / carried[1,] == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("copies", [1, 2])
def test_stripes_carry_every_byte_on_as_many_networks_as_there_are_copies(copies: int) -> None:
    _stripes_carry_every_byte(copies, 33_333)


def test_long_stripes_carry_every_byte_too() -> None:
    _stripes_carry_every_byte(1, 222_222)
    _stripes_carry_every_byte(2, 222_222)


def _stripes_carry_every_byte(copies: int, size: int) -> None:
    style = "passive" if copies == 1 else "active-passive"
    bench = Bench(style, 3, 0 if copies == 1 else copies, capacities=(5, 3, 1))
    sent = bench.send(Role.MESSAGE, size=size)
    assert len({send.networks for send in sent}) == 3
    whole = Bench("active", 3).send(Role.MESSAGE, size=size)
    (total,) = {sum(len(data) - SEGMENT.size for data in send.datagrams) for send in whole}
    pieces: dict[int, int] = {}
    for send in sent:
        for data in send.datagrams:
            start = int.from_bytes(data[SEGMENT.size - OFFSET_BYTES : SEGMENT.size], "big")
            for place in range(start, start + len(data) - SEGMENT.size):
                pieces[place] = pieces.get(place, 0) + 1
    assert set(pieces.values()) == {copies}
    assert sorted(pieces) == list(range(total))


@given(
    capacities=st.lists(st.integers(1, 20), min_size=2, max_size=NETWORKS_MAX).map(tuple),
    total=st.integers(6_000, PACKET_BYTES_MAX),
)
def test_stripes_are_cut_so_near_to_what_former_versions_expect_that_no_network_looks_sick(
    capacities: tuple[int, ...], total: int
) -> None:
    """Their receivers charge a network for what is missing of the part that its capacity says."""
    whole, sum_, exact = sum(capacities), 0, [0]
    for capacity in capacities:
        sum_ += capacity
        exact.append(total * sum_ // whole)
    carried = stripes(total, (1 << len(capacities)) - 1, capacities, 1)
    ends = [range_ for _, ranges in carried for range_ in ranges]
    assert [stop for _, stop in ends] == [start for start, _ in ends[1:]] + [total]
    for (start, stop), before, after in zip(ends, exact, exact[1:], strict=False):
        expected = after - before
        lost = (expected - min(expected, stop - start)) / expected
        assert lost - RECOVERY * (1 - lost) < -0.1, (start, stop, expected)


def test_stripes_of_long_packets_begin_at_few_places() -> None:
    begun = {ranges[0][0] for total in range(50_000, 60_000) for _, ranges in stripes(total, 3, (1, 1), 1)}
    assert len(begun) <= 22


def test_packets_are_cut_for_each_network() -> None:
    bench = Bench("active", 2, segment_bytes=(1_400, 9_000), members=(1,))
    by_network = {send.networks: send.bursts for send in bench.send(Role.MESSAGE, size=20_000)}
    assert max(len(datagram) for burst in by_network[0,] for datagram in burst.datagrams) <= 1_400
    longest = max(len(datagram) for burst in by_network[1,] for datagram in burst.datagrams)
    assert 1_400 < longest <= 9_000


def test_a_network_is_cut_for_the_member_that_takes_least_on_it() -> None:
    bench = Bench("active", 2, segment_bytes=(9_000, 9_000))
    for member in (2, 3):
        for network, size in ((0, 9_000), (1, 1_400 if member == 3 else 9_000)):
            bench.come(bench.hello(network, 1, member, segment_bytes=size), network)
    bench.come(bench.token(1), 0, 1)
    assert [link.cut_bytes for link in bench.links] == [9_000, 1_400]


def test_what_is_sent_to_oneself_goes_on_no_network() -> None:
    bench = Bench("active", members=(1,))
    (sent,) = bench.send(Role.TOKEN, to=ME)
    assert sent.to == ME
    assert len(sent.networks) == 1


# Hellos


def test_hellos_go_on_every_network_short_and_long() -> None:
    bench = Bench("passive", 2)
    bench.send(Role.SEARCH)
    bench.replicator._say_hello()
    sent = [effect for effect in bench.io.take() if hasattr(effect, "networks")]
    assert sorted((send.networks, send.packet.padding > 0) for send in sent) == [  # type: ignore[union-attr]
        ((0,), False),
        ((0,), True),
        ((1,), False),
        ((1,), True),
    ]


def test_a_silent_network_is_found_by_hellos_alone() -> None:
    bench = Bench("passive", 2)
    for counter in range(1, 14):
        bench.hellos(counter, 2, (0,))
    (finding,) = bench.found
    assert (finding.network, finding.sender, finding.dead) == (1, 2, True)
    assert finding.lost == Lost.SHORT | Lost.LONG


def test_large_datagrams_that_do_not_come_are_found() -> None:
    bench = Bench("passive", 2)
    for counter in range(1, 14):
        bench.hellos(counter, 2, (0,))
        bench.come(bench.hello(1, counter, 2), 1)
    (finding,) = bench.found
    assert finding.network == 1
    assert finding.lost == Lost.LONG


def test_a_network_that_lost_some_large_datagrams_and_then_all_is_dead_for_them() -> None:
    bench = Bench("passive", 2)
    for counter, is_lost in enumerate([True] * 5 + [False] + [True] * 20, 1):
        bench.hellos(counter, 2, (0,))
        bench.come(bench.hello(1, counter, 2), 1)
        if not is_lost:
            bench.come(bench.hello(1, counter, 2, 1_000), 1)
    (finding,) = bench.found
    assert (finding.network, finding.dead, finding.lost) == (1, True, Lost.LONG)


def test_a_path_is_clear_again_after_hellos_for_a_while() -> None:
    bench = Bench("passive", 2)
    for counter in range(1, 14):
        bench.hellos(counter, 2, (0,))
    for counter in range(14, 19):
        bench.hellos(counter, 2, (0, 1))
        assert bench.found
    bench.hellos(20, 2, (0, 1))
    assert bench.found == []


def test_a_processor_that_stops_or_leaves_makes_no_network_bad() -> None:
    """Silence on all networks is no fault of any of them."""
    bench = Bench("passive", 2)
    for counter in range(1, 5):
        bench.hellos(counter, 2, (0, 1))
    for counter in range(1, 50):
        bench.hellos(counter, PREDECESSOR, (0, 1))
    assert bench.found == []


def test_departed_members_are_not_monitored() -> None:
    bench = Bench("passive", 2)
    for counter in range(1, 14):
        bench.hellos(counter, 2, (0,))
    assert bench.found
    bench.ring.members = (1, 3)
    bench.come(bench.token(1), 0, 1)
    assert bench.found == []


def test_while_a_network_is_out_of_service_hellos_come_more_often() -> None:
    bench = Bench("passive", 2)
    bench.send(Role.SEARCH)
    bench.replicator._say_hello()
    bench.io.take()
    bench.timers[HELLO] = bench.now_us
    bench.run_out(HELLO)
    slow_us = bench.timers[HELLO] - bench.now_us
    bench.replicator.serve(0b01, 0, False)
    bench.run_out(HELLO)
    assert bench.timers[HELLO] - bench.now_us == slow_us // HASTE


def test_an_interface_that_is_gone_is_told_at_once_and_cleared_by_hellos() -> None:
    bench = Bench("passive", 2)
    for counter in (1, 2):
        for member in (2, 3):
            bench.hellos(counter, member, (0, 1))
    bench.ask(NetworkLost(1))
    assert [(finding.sender, finding.lost) for finding in bench.found] == [
        (2, Lost.INTERFACE),
        (3, Lost.INTERFACE),
    ]
    bench.ask(NetworkBack(1))
    assert len(bench.found) == 2
    for counter in range(3, 10):
        for member in (2, 3):
            bench.hellos(counter, member, (0, 1))
    assert bench.found == []


# Forged, repeated and crossed copies


def test_a_replayed_hello_moves_no_address() -> None:
    bench = Bench("passive", 2)
    recorded = bench.hello(1, 1, 2)
    bench.come(recorded, 1)
    bench.come(bench.hello(1, 2, 2), 1)
    bench.effects.clear()
    bench.come(recorded, 1)
    assert not any(isinstance(effect, Reachable) for effect in bench.effects)
    assert bench.says("stale hello") == 1


def test_a_hello_of_a_former_life_is_dropped() -> None:
    bench = Bench("passive", 2)
    bench.come(bench.hello(1, 1, 2, incarnation=3), 1)
    bench.effects.clear()
    bench.come(bench.hello(1, 9, 2, incarnation=2), 1)
    assert not any(isinstance(effect, Reachable) for effect in bench.effects)
    assert bench.says("hello of a former life") == 1


def test_one_crossed_hello_is_a_repetition_and_several_are_wires() -> None:
    bench = Bench("passive", 2)
    for counter in range(1, CROSSED_LEAST):
        bench.come(bench.hello(0, counter, 2), 0, 1)
    assert bench.crossed == []
    bench.come(bench.hello(0, CROSSED_LEAST, 2), 0, 1)
    assert bench.crossed == [(0, 1)]


def test_networks_that_are_parted_again_are_not_crossed_for_ever() -> None:
    bench = Bench("passive", 2)
    for counter in range(1, 20):
        bench.come(bench.hello(0, counter, 2), 0, 1)
    for counter in range(20, 20 + CROSSED_LEAST):
        assert bench.crossed == [(0, 1)]
        bench.come(bench.hello(0, counter, 2), 0)
    bench.come(bench.hello(0, 30, 2), 0)
    assert bench.crossed == []


def test_recorded_hellos_on_another_network_cross_nothing() -> None:
    bench = Bench("passive", 2)
    recorded = [bench.hello(0, counter, 2) for counter in range(1, 20)]
    for hello in recorded:
        bench.come(hello, 0)
    for hello in recorded[:-1] * 3:
        bench.come(hello, 1)
    assert bench.crossed == []


def test_copies_that_anybody_sends_make_no_path_bad() -> None:
    """Recorded packets, on both networks, again and again: a network can look better by them, never worse."""
    bench = Bench("passive", 2)
    recorded = []
    for rotation in range(1, 200):
        message, token = bench.message(rotation, on=(rotation % 2,)), bench.token(rotation, seq=rotation)
        bench.come(message, rotation % 2)
        bench.come(token, 0, 1)
        recorded.append((message, token))
        for old, stale in recorded[-5:]:
            bench.come(old, rotation % 2, 1 - rotation % 2)
            bench.come(stale, 1)
    assert bench.found == []
    assert bench.sequence == list(range(1, 200))


def test_a_damaged_copy_bars_no_true_one() -> None:
    bench = Bench("active", 2)
    (true,) = bench.message(1)
    damaged = true[:-1] + bytes((true[-1] ^ 1,))
    bench.arrive(0, [damaged])
    assert bench.sequence == []
    assert bench.ring.refusals
    bench.arrive(1, [true])
    assert bench.sequence == [1]


def stripe(data: bytes, start: int, stop: int) -> list[bytes]:
    (burst,) = cut(data_name(RING, 1), data, 1_400, ((start, stop),), CONFIG.cluster_id)
    return list(burst.datagrams)


@pytest.mark.parametrize("in_bursts", [False, True])
def test_junk_in_the_place_of_a_stripe_bars_no_true_one(in_bursts: bool) -> None:
    """With the right name and length, and ahead of it."""
    bench = Bench("passive", 2)
    packet = RegularMessage(2, 1, RING, 1, 1, Service.AGREED, 0, 2, RING, (), False, False, bytes(6_000))
    data = bench.codec.encode(packet, 0b11)
    half, junk = len(data) // 2, bytes([255]) * len(data)
    came = ((0, stripe(junk, 0, half)), (0, stripe(data, 0, half)), (1, stripe(data, half, len(data))))
    for network, datagrams in came:
        if in_bursts:
            bench.feed(Arrived(network, Channel.DATA, (b"".join(datagrams),), 1_400, "anywhere"))
        else:
            bench.arrive(network, datagrams)
    assert bench.sequence == [1]
    assert bench.ring.refusals == []


@pytest.mark.parametrize("in_bursts", [False, True])
def test_copies_of_a_message_that_is_here_are_dropped_by_their_headers(in_bursts: bool) -> None:
    bench = Bench("active", 2)
    whole = bench.message(1, size=6_000)
    bench.arrive(0, whole)
    assert bench.sequence == [1]
    junk = [segment[: SEGMENT.size] + bytes(len(segment) - SEGMENT.size) for segment in whole]
    if in_bursts:
        bench.feed(Arrived(1, Channel.DATA, (b"".join(junk),), 1_400, "anywhere"))
    else:
        bench.arrive(1, junk)
    assert bench.sequence == [1]
    assert bench.ring.refusals == []
    assert bench.links[0]._reassembler._partials == {}


def test_whoever_uses_the_networks_in_another_way_is_told_of() -> None:
    bench = Bench("passive", 2)
    ways = bench.replicator.watch.ways
    bench.come(bench.hello(0, 1, 2, ways=ways._replace(copies=2)), 0)
    bench.come(bench.hello(0, 1, 3, ways=ways._replace(networks=3)), 0)
    alarms = [effect.alarm for effect in bench.effects if isinstance(effect, Alarm)]
    assert alarms == [WaysDiffer(2, "copies", 2, 1), WaysDiffer(3, "networks", 3, 2)]


def test_a_ring_starts_anew_with_its_accounts() -> None:
    bench = Bench("passive", 2)
    bench.come(bench.message(1, on=(0,)), 0)
    bench.come(bench.token(1, seq=1), 0, 1)
    assert bench.tokens == [(RING, 1)]


def test_hellos_count_for_the_networks_that_both_have() -> None:
    """A processor with three networks is heard on two of them, and missed on none that it does not have."""
    bench = Bench("passive", 2)
    ways = bench.replicator.watch.ways._replace(networks=3)
    for counter in range(1, 30):
        for padding in (0, 100):
            bench.come(bench.hello(0, counter, 2, padding, ways=ways), 0)
    assert [(finding.network, finding.dead) for finding in bench.replicator.findings] == [(1, True)]
    bench = Bench("passive", 3)
    ways = bench.replicator.watch.ways._replace(networks=2)
    for counter in range(1, 30):
        for network in (0, 1):
            for padding in (0, 100):
                bench.come(bench.hello(network, counter, 2, padding, ways=ways), network)
    assert bench.replicator.findings == ()
    assert bench.replicator.watch.hears(2, 0)
    assert not bench.replicator.watch.hears(2, 2)


def test_a_difference_is_told_when_it_comes_up() -> None:
    bench = Bench("active", 2)
    ways = bench.replicator.watch.ways
    more = ways._replace(networks=3, copies=3, names=7, capacities=8)
    for counter, said in enumerate((ways, more, more, ways, more._replace(networks=2, copies=2)), 1):
        bench.come(bench.hello(0, counter, 2, ways=said), 0)
    alarms = [effect.alarm for effect in bench.effects if isinstance(effect, Alarm)]
    assert alarms == [
        WaysDiffer(2, "networks", 3, 2),
        WaysDiffer(2, "names", 7, ways.names),
        WaysDiffer(2, "capacities", 8, ways.capacities),
    ]


class TakenAway:
    """Links of a bench: none is added, and what is removed is forgotten."""

    def add(self, network: int, segment_bytes: int) -> Link:
        raise AssertionError("nothing is added")

    def remove(self, network: int) -> None: ...


def test_a_token_does_not_wait_for_its_copy_on_a_network_that_is_removed() -> None:
    bench = Bench("active", 3)
    bench.replicator.connect_links(TakenAway())
    bench.come(bench.token(1), 0, 1)
    assert bench.ring.tokens == []
    bench.feed(RemoveNetwork(2))
    assert len(bench.ring.tokens) == 1
    bench.come(bench.token(2, on=(0, 1, 2)), 0, 1)
    assert len(bench.ring.tokens) == 2, "the sender has not learned of it yet"
