"""Totem §5.1, what the single-ring protocol does for timestamps and future ring numbers, a test per claim."""

from __future__ import annotations

from itertools import pairwise

from paperlab import MS, Lab

from totempole.core.inputs import Written
from totempole.sim.conditions import Condition, DiskSpeed
from totempole.sim.disk import Fate, read_log
from totempole.srp import RingConfig
from totempole.srp.packets import CommitToken, RegularMessage, RegularToken
from totempole.types import RingId, Service

OFTEN = RingConfig(each_time_packets=5, timestamp_interval=20)
"""A write to stable storage every few messages."""

SLOW_DISK = DiskSpeed(latency_us=(5 * MS, 5 * MS))


def busy(lab: Lab, rounds: int = 10) -> Lab:
    for _ in range(rounds):
        for me in lab.everyone:
            lab.send(me, 5)
        lab.run(20 * MS)
    return lab


def messages(lab: Lab, since_us: int = 0) -> list[RegularMessage]:
    """New messages as they were broadcast."""
    seen = {}
    for sent in lab.sent(RegularMessage, since_us):
        if not sent.packet.recovered:
            seen.setdefault((sent.packet.ring_id, sent.packet.seq), sent.packet)
    return list(seen.values())


def test_the_commit_token_collects_the_highest_timestamp() -> None:
    """§5.1: on the Commit token's first rotation the timestamp becomes the highest my_timestamp of any."""
    lab = Lab(4).form([1, 2], [3, 4])
    lab.send(3, 200)
    lab.run(50 * MS)
    clocks = {me: lab.machine(me).processor.ordering.clock.now for me in lab.everyone}
    assert clocks[3] > clocks[1]
    since_us = lab.mark
    lab.world.heal()
    lab.until_rings(lab.everyone)
    whole = [s.packet for s in lab.sent(CommitToken, since_us) if len(s.packet.memb_list) == 4][-8:]
    assert [token.timestamp for token in whole] == [clocks[1], clocks[2], *[clocks[3]] * 6]


def test_timestamps_rise_strictly_with_the_sequence_numbers_of_a_ring() -> None:
    """§5.1: the token's timestamp ensures strictly increasing timestamps for the messages of a ring."""
    lab = busy(Lab(4).form())
    sent = messages(lab)
    assert len(sent) == 200
    assert all(a.seq < b.seq and a.timestamp < b.timestamp for a, b in pairwise(sent))


def test_the_token_carries_the_timestamp_of_the_last_message() -> None:
    """§5.1: before forwarding the token, a processor sets its timestamp field to my_timestamp."""
    lab = busy(Lab(3).form())
    highest = 0
    for entry in lab.log():
        for packet in entry.packets:
            if isinstance(packet, RegularMessage):
                highest = max(highest, packet.timestamp)
            if isinstance(packet, RegularToken):
                assert packet.timestamp >= highest
                highest = packet.timestamp


def test_a_processor_follows_the_timestamps_it_receives() -> None:
    """§5.1: on receiving a message or the token, my_timestamp becomes the larger of the two."""
    lab = Lab(3).form()
    ring_id = lab.ring(1).ring_id
    far = lab.machine(2).processor.ordering.clock.now + 5_000
    # One with a gap below it: the ring's own messages take the places from 1 on.
    message = RegularMessage(
        1, 1, ring_id, 100, 1, Service.AGREED, far, 1, ring_id, (), False, False, b"ahead of its time"
    )
    lab.inject(2, message)
    assert lab.machine(2).processor.ordering.clock.now == far
    lab.send(2)
    lab.run(20 * MS)
    assert messages(lab)[-1].timestamp > far


def test_timestamps_obey_causal_order_across_rings() -> None:
    """§5.1: what a processor broadcasts after a merge is above all that any member broadcast before it."""
    lab = Lab(4).form([1, 2], [3, 4])
    lab.send(3, 100)
    lab.run(50 * MS)
    before = max(message.timestamp for message in messages(lab))
    since_us = lab.mark
    lab.world.heal()
    lab.until_rings(lab.everyone)
    lab.send(1)
    lab.run(20 * MS)
    assert all(message.timestamp > before for message in messages(lab, since_us))


def test_the_timestamp_is_on_stable_storage_before_it_is_used() -> None:
    """§5.1: before my_timestamp reaches my_stable_timestamp + timestamp_interval, it is written."""
    lab = Lab(3, OFTEN, disk=SLOW_DISK).form()
    bounds = []
    for _ in range(40):
        lab.send(1, 3)
        lab.run(20 * MS)
        for me in lab.everyone:
            stored, _ = read_log(bytes(lab.world.hosts[me].disk.log))
            sent = [m.timestamp for m in messages(lab) if m.sender == me]
            assert not sent or max(sent) < stored["timestamp"] + OFTEN.timestamp_interval
            bounds.append(stored["timestamp"])
    assert len(set(bounds)) > 4


def test_the_token_waits_for_that_write() -> None:
    """§5.1: the write is complete before the message is broadcast or the token forwarded."""
    lab = Lab(3, OFTEN, disk=SLOW_DISK).form()
    since_us = lab.mark
    lab.send(1, 300)
    lab.run(1_000 * MS)
    resumed = [e for e in lab.entries(1) if isinstance(e.given, Written) and e.sent(RegularToken)]
    assert len(resumed) > 3
    assert all(len(lab.delivered(me)) == 300 for me in lab.everyone)
    assert not lab.rows("state", since_us=since_us)


def test_a_crash_never_takes_timestamps_back() -> None:
    """§5.1: a restarted processor begins above every timestamp that it can have used."""
    lab = Lab(3, OFTEN, disk=SLOW_DISK).form()
    for _ in range(4):
        lab.send(2, 15)
        lab.run(30 * MS)
        used = max(message.timestamp for message in messages(lab) if message.sender == 2)
        lab.world.crash(2, Fate.LOST)
        lab.world.restart(2)
        lab.run(10 * MS)
        assert lab.machine(2).processor.ordering.clock.now > used
        lab.until_rings(lab.everyone)
    lab.assert_checkers_hold()


def test_a_retransmitted_message_keeps_its_timestamp() -> None:
    """§5.1: a forwarded or retransmitted message retains the timestamp it was given when originated."""
    lab = busy(Lab(4, condition=Condition(loss=0.1, token_loss=0.0)).form(within_us=10_000 * MS))
    stamps: dict[tuple[RingId, int], set[int]] = {}
    copies = lab.sent(RegularMessage)
    for sent in copies:
        stamps.setdefault((sent.packet.ring_id, sent.packet.seq), set()).add(sent.packet.timestamp)
    assert len(copies) > len(stamps)
    assert all(len(times) == 1 for times in stamps.values())


def forwarded_from_afar(lab: Lab, ring_seq: int) -> None:
    """2 receives a message of 1 that was originated on another ring with a high number."""
    ring_id = lab.ring(1).ring_id
    far = RingId(ring_seq, 9)
    message = RegularMessage(
        1, 1, ring_id, 1, 1, Service.AGREED, 50_000, 9, far, (), False, False, b"gateway"
    )
    lab.inject(2, message)


def test_rings_are_numbered_above_every_ring_heard_of() -> None:
    """§5.1: a new ring's number is four plus the largest my_future_ring_seq of any of its processors."""
    lab = Lab(3).form()
    forwarded_from_afar(lab, 400)
    lab.lose_token()
    lab.until_next_rings(lab.everyone)
    assert lab.ring(1).ring_id.seq == 404


def test_the_highest_ring_heard_of_survives_a_crash() -> None:
    """§5.1: my_future_ring_seq is written to stable storage when it changes."""
    lab = Lab(3).form()
    forwarded_from_afar(lab, 400)
    lab.run(5 * MS)
    lab.world.crash(2)
    lab.world.restart(2)
    lab.until_rings(lab.everyone)
    assert lab.ring(1).ring_id.seq > 400


def test_my_future_ring_seq_follows_the_rings_own_number() -> None:
    """§5.1: when a processor shifts to Recover it sets my_future_ring_seq to the new ring's number."""
    lab = Lab(3).form([1, 2], [3])
    lab.world.heal()
    lab.until_rings(lab.everyone)
    for me in lab.everyone:
        assert lab.machine(me).future_ring_seq == lab.ring(me).ring_id.seq
