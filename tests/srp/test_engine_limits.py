"""Each queue and limit at its maximum does what its setting says."""

from __future__ import annotations

from itertools import count, pairwise

import pytest
from srp_bench import Bench, alone_in, join_of

from totempole.core.effects import Send, Stopped
from totempole.core.order import PushBack, Ready, Submit
from totempole.errors import ConfigurationError
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.srp.packets import Join, Leave, Packet, RegularMessage, RegularToken
from totempole.srp.states import State, Timer
from totempole.types import RingKind, Service

KINDS = pytest.mark.parametrize("kind", RingKind, ids=lambda kind: kind.name.lower())


def sent(bench: Bench, me: int, kind: type[Packet]) -> list[Packet]:
    return [transmit.packet for transmit in bench.of_kind(me, Send) if type(transmit.packet) is kind]


def tokens(bench: Bench) -> list[RegularToken]:
    """Every token that was passed, of every processor."""
    return [
        packet for me in bench.stacks for packet in sent(bench, me, RegularToken)
        if isinstance(packet, RegularToken)
    ]  # fmt: skip


# The send queue


def test_a_full_send_queue_pushes_back_and_takes_nothing() -> None:
    bench = alone_in(State.GATHER, RingConfig(send_queue_max=5, send_queue_ready=2))
    for number in range(5):
        assert bench.submit(1, b"%d" % number) == []
    for _ in range(3):
        assert bench.submit(1, b"too much") == [PushBack()]
    bench.advance(1_000_000)
    assert bench.delivered(1) == [b"0", b"1", b"2", b"3", b"4"]


def test_ready_follows_once_when_the_queue_has_drained_to_its_mark() -> None:
    config = RingConfig(send_queue_max=30, send_queue_ready=12, each_time_packets=10)
    bench = alone_in(State.GATHER, config)
    for number in range(31):
        bench.submit(1, b"%d" % number)
    lengths: list[int] = []
    bench.forget()

    def note() -> bool:
        if bench.of_kind(1, Ready) and not lengths:
            lengths.append(len(bench[1]._ordering.queue))
        return False

    bench.advance(1_000_000, until=note)
    assert bench.of_kind(1, Ready) == [Ready()]
    assert lengths == [10], "thirty, then twenty, then ten: the first not above twelve"


def test_ready_is_not_said_to_one_that_was_never_pushed_back() -> None:
    bench = alone_in(State.OPERATIONAL)
    for number in range(200):
        bench.submit(1, b"%d" % number)
    bench.pump()
    assert len(bench.delivered(1)) == 200
    assert bench.of_kind(1, Ready) == []


def test_push_back_does_not_flutter_at_the_mark() -> None:
    """A queue as long as send_queue_max is not ready, whatever send_queue_ready says."""
    with pytest.raises(ConfigurationError, match="send_queue_ready = 5"):
        RingConfig(send_queue_max=5, send_queue_ready=5)


# One submission


def test_the_largest_payload_is_delivered_and_a_larger_one_is_refused() -> None:
    bench = Bench([1, 2])
    bench.form()
    largest = bytes(bench.config.packet_bytes_max)
    bench.submit(1, largest)
    with pytest.raises(
        ConfigurationError, match=r"440001 bytes exceeds packet_bytes_max = 440000: send less"
    ):
        bench.submit(1, largest + b"!")
    bench.submit(1, b"after")
    bench.pump()
    assert bench.delivered(2) == [largest, b"after"]


def test_the_largest_payload_survives_recovery() -> None:
    """Encapsulated on the new ring it is larger than any plain packet (Totem §4.3)."""
    bench = Bench([1, 2, 3])
    bench.form()
    largest = bytes(bench.config.packet_bytes_max)
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage and to == 2
    bench.submit(1, largest)
    bench.pump(until=lambda: bool(bench.delivered(3)))
    bench.lost = lambda source, to, packet: 1 in (source, to)
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == bench.ring_of(3) == (2, 3))
    assert bench.delivered(2) == bench.delivered(3) == [largest]


def test_as_many_groups_as_a_packet_holds_are_taken_and_more_are_refused_at_once() -> None:
    """Refused when submitted: in the token visit it would take the token down with it."""
    bench = alone_in(State.OPERATIONAL)
    bench.feed(1, Submit(b"most", Service.AGREED, tuple(range(255))))
    bench.pump()
    assert bench.delivered(1) == [b"most"]
    with pytest.raises(ConfigurationError, match="256"):
        bench.feed(1, Submit(b"more", Service.AGREED, tuple(range(256))))
    bench.submit(1, b"after")
    bench.pump()
    assert bench.delivered(1) == [b"most", b"after"]


# The token visit


@KINDS
def test_a_visit_sends_no_more_than_each_time(kind: RingKind) -> None:
    config = RingConfig(each_time_packets=4, window_packets=50, ring_kind=kind)
    bench = Bench([1, 2], config)
    bench.form()
    bench.forget()
    for number in range(50):
        bench.submit(1, b"%d" % number)
    bench.pump()
    seqs = [token.seq for token in tokens(bench)]
    assert max(after - before for before, after in pairwise(seqs)) == 4
    assert bench.delivered(2) == [b"%d" % number for number in range(50)]


@KINDS
def test_a_visit_sends_no_more_bytes_than_each_time_but_always_one_packet(kind: RingKind) -> None:
    config = RingConfig(each_time_bytes=1_000, packet_bytes_max=1_000, ring_kind=kind)
    bench = Bench([1], config)
    bench.form()
    bench.forget()
    for size in (10, 600, 600, 600, 1_000, 1_000):
        bench.submit(1, bytes(size))
    bench.pump()
    seqs = [token.seq for token in tokens(bench)]
    taken = [seq - seqs[0] for seq in seqs[1:4]]
    assert taken == [2, 4, 5], "600 + 600 and it is over; 600 + 1000 and it is over; 1000"


@KINDS
def test_the_accelerated_ring_sends_at_most_its_window_after_the_token(kind: RingKind) -> None:
    bench = Bench([1, 2], RingConfig(accelerated_window=3, each_time_packets=8, ring_kind=kind))
    bench.form()
    bench.forget()
    for number in range(8):
        bench.submit(2, b"%d" % number)  # the token rests with 1
    bench.advance(1_000_000)
    order = [
        type(transmit.packet).__name__[:7] + ("+" if getattr(transmit.packet, "after_token", False) else "")
        for transmit in bench.of_kind(2, Send)
        if type(transmit.packet) is RegularMessage
        or (type(transmit.packet) is RegularToken and transmit.packet.seq >= 8)
    ][:9]
    late = 3 if kind is RingKind.ACCELERATED else 0
    assert order == ["Regular"] * (8 - late) + ["Regular"] + ["Regular+"] * late
    assert bench.delivered(1) == [b"%d" % number for number in range(8)]


@KINDS
def test_new_packets_wait_at_the_outstanding_cap_and_go_on_after_it(kind: RingKind) -> None:
    config = RingConfig(outstanding_packets_max=20, window_packets=12, each_time_packets=4, ring_kind=kind)
    bench = Bench([1, 2, 3], config)
    bench.form()
    bench.forget()
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage and to == 2
    for number in range(200):
        bench.submit(1, b"%d" % number)
    bench.rotate(150)
    outstanding = [token.seq - token.aru for token in tokens(bench)]
    assert max(outstanding) <= 20 + 12, "the cap, and what one rotation may send before the aru falls"
    assert max(token.seq for token in tokens(bench)) == tokens(bench)[-1].seq < 200, "they wait"
    assert [bench[me].state for me in (1, 2, 3)] == [State.OPERATIONAL] * 3
    bench.lost = lambda source, to, packet: False
    bench.pump()
    for me in (1, 2, 3):
        assert bench.delivered(me) == [b"%d" % number for number in range(200)]


@KINDS
def test_the_rtr_list_holds_at_most_requests_max_and_all_is_repaired(kind: RingKind) -> None:
    config = RingConfig(requests_max=5, ring_kind=kind)
    bench = Bench([1, 2, 3], config)
    bench.form()
    bench.forget()
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage and to == 2
    for number in range(60):
        bench.submit(1, b"%d" % number)
    bench.rotate(150)
    bench.lost = lambda source, to, packet: False
    bench.pump()
    assert max(len(token.rtr) for token in tokens(bench)) == 5
    for me in (1, 2, 3):
        assert bench.delivered(me) == [b"%d" % number for number in range(60)]


@KINDS
def test_one_that_never_receives_is_expelled_after_fail_to_receive_rounds(kind: RingKind) -> None:
    """Totem §4.2, Recognizing Failure to Receive: the others blame the aru's setter and go on without it."""
    config = RingConfig(fail_to_receive_rounds=6, ring_kind=kind)
    bench = Bench([1, 2, 3], config)
    bench.form()
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage and to == 2
    bench.hop_us = 100
    bench.submit(1, b"unheard", Service.SAFE)
    bench.advance(90_000, until=lambda: bench.ring_of(1) == bench.ring_of(3) == (1, 3))
    assert bench.delivered(1) == bench.delivered(3) == [b"unheard"]
    assert "failure to receive" in bench.traced(1, "branch") + bench.traced(3, "branch")
    assert "failure to receive" not in bench.traced(2, "branch")


def test_one_missing_message_for_fewer_rounds_expels_nobody() -> None:
    bench = Bench([1, 2, 3], RingConfig(fail_to_receive_rounds=6))
    bench.form()
    rounds = [0]

    def lost(source: int, to: int, packet: Packet) -> bool:
        rounds[0] += type(packet) is RegularToken and to == 2
        return type(packet) is RegularMessage and to == 2 and rounds[0] < 6

    bench.lost = lost
    bench.submit(1, b"late", Service.SAFE)
    bench.pump()
    assert bench.delivered(2) == [b"late"]
    assert bench.ring_of(2) == (1, 2, 3)


# Members


def test_a_ring_at_members_max_is_not_disturbed_by_one_too_many() -> None:
    """The one too many stays alone; the full ring neither gathers for it nor ever takes it in."""
    world = World(1, 3, RingConfig(members_max=2))
    world.start([1, 2])
    world.run_for(1_000_000)
    assert [len(world.hosts[me].configurations[-1].members) for me in (1, 2)] == [2, 2]
    settled = [len(world.hosts[me].configurations) for me in (1, 2)]
    world.start([3])
    world.run_for(3_000_000)
    assert [len(world.hosts[me].configurations) for me in (1, 2)] == settled
    alone = world.hosts[3].regular_configuration
    assert alone is not None
    assert alone.members == (3,)
    assert len(world.hosts[3].configurations) < 10


def test_two_rings_that_together_are_too_many_live_side_by_side() -> None:
    world = World(1, 4, RingConfig(members_max=3))
    world.partition([[1, 2], [3, 4]])
    world.start()
    world.run_for(1_000_000)
    world.heal()
    world.run_for(1_000_000)
    before = {me: len(host.configurations) for me, host in world.hosts.items()}
    world.run_for(3_000_000)
    after = {me: len(host.configurations) for me, host in world.hosts.items()}
    assert after == before


def test_a_full_ring_answers_a_join_and_not_the_answer_to_its_own() -> None:
    """Two full rings would answer each other for ever: ten thousand Joins a second, and those who are on
    neither could not agree for them (seed 2807)."""
    bench = Bench([1, 2, 3], RingConfig(members_max=3))
    bench.form()
    counter = count(1)

    def answers(*proc_set: int) -> int:
        effects = bench.hand(1, join_of(8, proc_set, counter=next(counter)))
        return sum(isinstance(effect, Send) and effect.to == 8 for effect in effects)

    assert [answers(8, 9) for _ in range(3)] == [1, 0, 0], "the same company is told once"
    assert [answers(7, 8, 9) for _ in range(2)] == [1, 0]
    assert [answers(1, 8) for _ in range(2)] == [1, 1], "it waits for this processor"


def test_a_ring_of_exactly_members_max_forms() -> None:
    bench = Bench([1, 2, 3], RingConfig(members_max=3))
    bench.form()
    assert [bench.ring_of(me) for me in (1, 2, 3)] == [(1, 2, 3)] * 3


# Joins


def test_a_join_is_taken_once_and_an_older_one_never() -> None:
    bench = alone_in(State.GATHER)
    fresh = join_of(3, {3}, counter=5, incarnation=2, ring_seq=8)
    for stale in (
        fresh,
        fresh._replace(counter=4, proc_set=frozenset({3, 4})),
        fresh._replace(counter=9, incarnation=1, proc_set=frozenset({3, 4})),
    ):
        bench.hand(1, fresh)
        bench.hand(1, stale)
    assert bench[1].machine.processor.peers.gathering.proc_set == {1, 2, 3}
    assert bench.traced(1, "drop").count("stale join") == 4
    assert bench.traced(1, "drop").count("join of a former life") == 1


def test_a_restarted_processor_s_joins_are_fresh_again() -> None:
    """Its counter begins anew, but its incarnation is higher: stable storage has seen to that."""
    bench = Bench([1, 2])
    bench.form()
    bench.restart(2)
    bench.forget()
    bench.advance(2_000_000, until=lambda: bench.ring_of(1) == bench.ring_of(2) == (1, 2))
    assert bench.ring_of(2) == (1, 2)
    assert bench[2].incarnation == 2


def test_a_join_is_repeated_every_join_timeout_until_consensus_times_out() -> None:
    bench = alone_in(State.GATHER)
    bench.forget()
    first_us = bench.timers[1][Timer.JOIN]
    bench.advance(bench.config.consensus_us - 1)
    assert len(sent(bench, 1, Join)) == 1 + (bench.config.consensus_us - 1 - first_us) // bench.config.join_us
    bench.advance(1)
    assert bench.ring_of(1) == (1,)


# Leaving


def test_one_that_leaves_takes_no_more_and_goes_when_its_messages_are_safe() -> None:
    bench = Bench([1, 2])
    bench.form()
    bench.submit(2, b"last words", Service.SAFE)
    bench.leave(2)
    assert bench.submit(2, b"too late") == [PushBack()]
    bench.advance(1_000_000, until=lambda: bench[2].state is State.LEFT)
    assert bench.delivered(2) == [b"last words"]
    assert bench.of_kind(2, Stopped) == [Stopped()]
    started_us = bench.now_us
    bench.advance(bench.config.consensus_us - 1, until=lambda: bench.ring_of(1) == (1,))
    assert bench.ring_of(1) == (1,), "those who stay wait for no timeout"
    assert bench.now_us == started_us
    assert bench.delivered(1) == [b"last words"]


def test_one_that_cannot_finish_leaves_after_leave_us_all_the_same() -> None:
    bench = Bench([1, 2])
    bench.form()
    bench.lost = lambda source, to, packet: True
    bench.submit(2, b"never")
    bench.leave(2)
    bench.leave(2)
    bench.advance(bench.config.leave_us - 1, until=lambda: bench[2].state is State.LEFT)
    if bench[2].state is not State.LEFT:
        bench.advance(1)
    assert bench[2].state is State.LEFT
    assert bench.of_kind(2, Stopped) == [Stopped()]
    assert len(sent(bench, 2, Leave)) == 1
    assert bench.timers[2] == {}


# Timers


def test_a_lost_token_is_passed_again_until_it_arrives() -> None:
    bench = Bench([1, 2])
    bench.form()
    bench.forget()
    drops = [0]

    def lost(source: int, to: int, packet: Packet) -> bool:
        drop = type(packet) is RegularToken and to == 2 and drops[0] < 2
        drops[0] += drop
        return drop

    bench.lost = lost
    bench.submit(1, b"through")
    bench.advance(2 * bench.config.token_retransmission_us)
    assert bench.delivered(2) == [b"through"]
    assert bench.traced(1, "branch").count("token retransmitted") == 2
    assert bench.configurations(1) == []


def test_an_idle_ring_s_token_rests_no_longer_than_idle_hold() -> None:
    bench = Bench([1, 2])
    bench.form()
    assert Timer.HOLD in bench.timers[1]
    bench.forget()
    bench.advance(10 * bench.config.idle_hold_us)
    passed = len(sent(bench, 1, RegularToken))
    assert passed == 10
    assert bench.configurations(1) == []


@pytest.mark.parametrize("me", [1, 2])
def test_a_submission_to_an_idle_ring_does_not_wait(me: int) -> None:
    bench = Bench([1, 2, 3])
    bench.form()
    bench.submit(me, b"now", Service.SAFE)
    bench.pump()
    assert [bench.delivered(other) for other in (1, 2, 3)] == [[b"now"]] * 3


def test_a_request_for_bytes_that_a_packet_does_not_have_is_answered_with_all_of_it() -> None:
    """A damaged segment can tell a wrong length. Fuzz seed 886: the answer was no datagram at all."""
    bench = Bench([1, 2, 3])
    bench.form()
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage
    bench.submit(1, b"short", Service.AGREED)
    bench.rotate(2)
    output = bench[1]._output
    held = bench[1].machine.installed.messages[1]
    assert output.retransmit(held, ((10_000, 20_000),)) >= len(held.data)
    (transmit,) = [effect for effect in bench[1]._io.take() if isinstance(effect, Send)]
    assert transmit.datagrams
