"""Events that come rarely and in bad company: what a processor must survive without raising or lying."""

from __future__ import annotations

import pytest
from srp_bench import Bench, alone_in, arrival, join_of

from totempole.core.effects import Send, Write
from totempole.core.order import Deliver, InstallConfiguration, SafeUpTo
from totempole.sim.conditions import DiskSpeed
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.srp.packets import CommitEntry, CommitToken, Packet, RegularMessage, RegularToken, Wake
from totempole.srp.states import State, Timer
from totempole.types import ConfigurationKind, RingId, Service


def commit_token(
    ring_id: RingId, members: tuple[int, ...], token_seq: int, filled: bool, old_seq: int = 4, sender: int = 0
) -> CommitToken:
    entries = tuple(CommitEntry(me, RingId(old_seq, me), 0, 0, (), filled=filled) for me in members)
    return CommitToken(sender or members[-1], 1, 1, ring_id, token_seq, 0, len(members) - 1, entries)


# Stable storage before the send


def test_the_commit_token_goes_round_again_only_when_the_ring_number_is_stored() -> None:
    """Totem §4.2: write my_ring_id.seq to stable storage, then forward the token the second time."""
    bench = Bench([1])
    bench.start()
    bench.pump()
    bench.forget()
    bench.disk_stands_still = True
    bench.hand(1, join_of(2, {2}, ring_seq=4))
    bench.expire(1, Timer.CONSENSUS)
    number = bench[1].machine.ring_id.seq
    bench.pump()
    rotations = [p.packet.token_seq for p in bench.of_kind(1, Send) if type(p.packet) is CommitToken]
    assert rotations == [1]
    assert bench.of_kind(1, Write)[-1].records["ring_seq"] == number
    bench.write_out(1)
    bench.disk_stands_still = False
    bench.pump()
    assert bench.ring_of(1) == (1,)


@pytest.mark.parametrize("writes", range(1, 8))
def test_no_ring_number_and_no_incarnation_is_ever_used_twice(writes: int) -> None:
    """A crash right after any write: what the next life installs is numbered above all of the last."""
    bench = Bench([1])
    bench.disk_stands_still = True
    bench.start()
    for _ in range(writes):
        bench.write_out(1)
        bench.pump()
        if bench[1].state is State.OPERATIONAL:
            bench.hand(1, join_of(2, {2}, counter=writes, ring_seq=4))
            bench.expire(1, Timer.CONSENSUS)
    used = [configuration.id for configuration in bench.configurations(1)]
    incarnation = bench[1].incarnation
    bench.restart(1)
    bench.write_out(1)
    assert bench[1].incarnation == incarnation + 1
    assert min(configuration.id for configuration in bench.configurations(1)) > max(used)


def test_a_disk_slower_than_the_token_loss_timeout_does_not_keep_a_processor_down() -> None:
    world = World(1, 1, disk=DiskSpeed(latency_us=(150_000, 150_000)))
    world.start()
    world.run_for(5_000_000)
    assert len(world.hosts[1].configurations) > 1, "it has installed a ring beyond the one it starts on"
    assert world.submit(1, b"at last")
    world.run_for(1_000_000)
    assert world.hosts[1].delivered == 1


def test_slow_disks_write_at_the_same_time_while_a_ring_forms() -> None:
    """One after the other, ten writes of 12 ms would outlast the token loss timeout."""
    world = World(1, 10, disk=DiskSpeed(latency_us=(10_000, 14_000)))
    world.start()
    world.run_for(5_000_000)
    assert {len(host.configurations[-1].members) for host in world.hosts.values()} == {10}


# Commit tokens


@pytest.mark.parametrize("old_seq", [1, 4])
def test_a_commit_token_of_an_earlier_life_with_the_same_number_is_no_part_of_this_ring(old_seq: int) -> None:
    """A representative that crashed before it stored the number may use it again for other members."""
    bench = alone_in(State.COMMIT)
    ring_id = bench[1].machine.ring_id
    bench.write_out(1)
    bench.hand(1, commit_token(ring_id, (1, 2), 2, True, old_seq))
    assert bench[1].state is State.COMMIT
    bench.disk_stands_still = False
    bench.pump()
    assert bench.ring_of(1) == (1,)


def test_a_commit_token_that_has_been_given_up_is_discarded_when_it_comes_late() -> None:
    """Totem §4.2, The Token Loss Timeout: "the processor discards the token"."""
    bench = Bench([2])
    bench.start()
    bench.pump()
    bench.hand(2, join_of(1, {1, 2}, counter=1, ring_seq=8))
    bench.hand(2, join_of(1, {1, 2}, counter=2, ring_seq=8))
    assert bench[2].state is State.GATHER
    assert Timer.TOKEN_LOSS in bench.timers[2], "consensus: it waits for the Commit token"
    bench.expire(2, Timer.TOKEN_LOSS)
    bench.hand(2, join_of(1, {1, 2}, counter=3, ring_seq=12))
    bench.hand(2, commit_token(RingId(12, 1), (1, 2), token_seq=1, filled=False))
    assert bench[2].state is State.GATHER


def test_a_commit_token_in_time_is_taken() -> None:
    bench = Bench([2])
    bench.start()
    bench.pump()
    bench.hand(2, join_of(1, {1, 2}, ring_seq=8))
    bench.hand(2, commit_token(RingId(12, 1), (1, 2), token_seq=1, filled=False, sender=1))
    assert bench[2].state is State.COMMIT


@pytest.mark.parametrize(
    ("ring_seq", "members", "token_seq", "sender"),
    [(8, (1, 2), 1, 1), (12, (1, 2), 2, 1), (12, (1, 2, 3), 1, 1), (12, (1, 2), 1, 3)],
    ids=["number not above mine", "second rotation", "another membership", "another than the predecessor"],
)
def test_a_commit_token_that_fails_a_test_of_acceptance_is_discarded(
    ring_seq: int, members: tuple[int, ...], token_seq: int, sender: int
) -> None:
    """Totem §4.2, Receiving a Commit Token."""
    bench = Bench([2])
    bench.start()
    bench.pump()
    bench.hand(2, join_of(1, {1, 2}, ring_seq=8))
    bench.hand(2, commit_token(RingId(ring_seq, 1), members, token_seq, filled=False, sender=sender))
    assert bench[2].state is State.GATHER


# Recovery


def in_recovery() -> Bench:
    """Ring (1, 2, 3) after 1 is gone: 3 has a message that 2 lacks, and both are about to exchange."""
    bench = Bench([1, 2, 3])
    bench.form()
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage and to == 2
    bench.submit(1, b"rescued")
    bench.pump(until=lambda: bool(bench.delivered(3)))
    bench.lost = lambda source, to, packet: 1 in (source, to)
    return bench


def is_rescue(packet: Packet) -> bool:
    return type(packet) is RegularMessage and packet.recovered


def test_a_message_damaged_inside_its_capsule_is_not_taken_for_received() -> None:
    """The capsule must be opened before it is counted: what it holds may have been damaged before."""
    bench = in_recovery()
    bench.advance(2_000_000, until=lambda: bool(bench.wire) and is_rescue(bench.wire[0][2].packet))
    source, to, transmit = bench.wire.popleft()
    assert (source, to) in {(3, 2), (3, 1)}
    while to != 2:
        source, to, transmit = bench.wire.popleft()
    whole = transmit.datagrams[0]
    start = whole.index(b"TP", whole.index(b"TP") + 1)
    damaged = whole[: start + 20] + bytes([whole[start + 20] ^ 1]) + whole[start + 21 :]
    bench.feed(2, arrival((damaged,)))
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == bench.ring_of(3) == (2, 3))
    assert bench.delivered(2) == bench.delivered(3) == [b"rescued"]


def test_an_exchange_brings_companions_to_the_same_messages() -> None:
    bench = in_recovery()
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == bench.ring_of(3) == (2, 3))
    assert bench.delivered(2) == bench.delivered(3) == [b"rescued"]


def test_old_messages_then_the_transitional_configuration_then_the_new_one() -> None:
    """Totem §4.3, steps 2 to 6: one atomic action, in this order."""
    bench = in_recovery()
    bench.forget()
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == (2, 3))
    events = [effect for effect in bench.effects[2] if isinstance(effect, Deliver | InstallConfiguration)]
    kinds = [e.configuration.kind if isinstance(e, InstallConfiguration) else "deliver" for e in events]
    assert kinds == ["deliver", ConfigurationKind.TRANSITIONAL, ConfigurationKind.REGULAR]
    assert [event.key for event in events] == sorted(event.key for event in events)


def test_safety_is_reported_only_for_a_ring_that_is_installed() -> None:
    bench = in_recovery()
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == bench.ring_of(3) == (2, 3))
    for me in (2, 3):
        installed = set()
        for effect in bench.effects[me]:
            if isinstance(effect, InstallConfiguration):
                installed.add(effect.configuration.id)
            elif isinstance(effect, SafeUpTo):
                assert effect.ring_id in installed


def test_a_promise_outlives_the_recovery_that_fails() -> None:
    """Totem, Failure of Recovery, figure 4.16: alone at last, it still delivers what it promised."""
    bench = Bench([1, 2, 3])
    bench.form()
    bench.lost = lambda source, to, packet: type(packet) is RegularMessage and to == 2
    bench.forget()
    bench.submit(3, b"promised", Service.SAFE)
    bench.pump(until=lambda: bench[1].machine.installed.my_aru > bench[2].machine.installed.my_aru)
    bench.lost = lambda source, to, packet: 1 in (source, to)
    bench.advance(2_000_000, until=lambda: "promise given" in bench.traced(2, "branch"))
    assert bench[2].state is State.RECOVER
    bench.lost = lambda source, to, packet: source != to
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == (2,))
    assert bench.delivered(2) == [b"promised"]
    assert "promise carried into a smaller configuration" in bench.traced(2, "branch")


def test_an_old_message_that_comes_past_the_new_ring_changes_nothing_in_recover() -> None:
    bench = in_recovery()
    bench.advance(2_000_000, until=lambda: bench[2].state is State.RECOVER)
    old = bench[3].machine.installed
    straggler = max(old.messages)
    before = bench[2].machine.installed.my_aru
    bench.hand(2, old.messages[straggler].message)
    assert bench[2].machine.installed.my_aru == before


# The idle ring


def test_a_wake_that_comes_just_before_the_token_is_not_forgotten() -> None:
    """Otherwise the token rests for idle_hold_us although somebody waits for it."""
    bench = Bench([1, 2])
    bench.form()
    bench.forget()
    bench.expire(1, Timer.HOLD)
    ring_id = bench[1].machine.ring_id
    bench.pump(until=lambda: any(to == 1 and type(t.packet) is RegularToken for _, to, t in bench.wire))
    bench.hand(1, Wake(2, 1, 1, ring_id))
    bench.step()
    passed = [t.packet for t in bench.of_kind(1, Send) if type(t.packet) is RegularToken]
    assert len(passed) == 2


# What would otherwise grow without end


def test_joins_of_strangers_do_not_fill_the_memory() -> None:
    bench = alone_in(State.OPERATIONAL, RingConfig(members_max=4))
    for stranger in range(100, 5_100):
        bench.hand(1, join_of(stranger, {stranger}))
    assert len(bench[1].machine.outsiders._joins) < 5_000


def test_a_join_that_was_held_back_does_not_silence_the_next_gather() -> None:
    """A Commit token overtakes the Join that is held back, and its ring is given up at once."""
    bench = Bench([2])
    bench.start()
    bench.pump()
    bench.now_us += bench.config.join_us
    bench.hand(2, join_of(1, {1}))
    bench.hand(2, join_of(3, {1, 2, 3}))
    assert "join held back" in bench.traced(2, "branch")
    bench.hand(2, commit_token(RingId(100, 1), (1, 2, 3), 1, filled=False, sender=1))
    assert bench[2].state is State.COMMIT
    bench.forget()
    bench.hand(2, join_of(1, {1, 2, 3}, counter=2, ring_seq=100))
    assert bench[2].state is State.GATHER
    bench.advance(bench.config.join_us, until=lambda: bool(bench.of_kind(2, Send)))
    assert bench.of_kind(2, Send), "silent until the consensus timeout"
