"""Whatever arrives, the ring goes on: bytes that are no packets, packets of others, packets of the past.

The datagrams come from a live ring's own history, one of every packet type, and are handed to its hosts
while it is under load. Bits of a message's contents are left alone: what the check covers is decision 0002. A
forger with a true check is held off by the seal alone; here it may cost the ring its time, but not its sense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import get_args

import pytest
from paperlab import MS, Lab

from sweeps import first_of
from totempole.core.effects import Channel, Send
from totempole.segment import Cutter
from totempole.segment.header import SEGMENT, VERSION
from totempole.sim.load import Arrivals, uniform
from totempole.srp import RingConfig
from totempole.srp.formats import ring_codec
from totempole.srp.layout import REGULAR_OVERHEAD
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Unordered,
    Wake,
)
from totempole.types import NO_RING, ProcessorId, RingId, RingKind, Service
from totempole.wire.layout import HEADER

TOKENS = (RegularToken, CommitToken)

Sample = tuple[Packet, bytes]
"""A packet, and the datagram that carried the whole of it."""


def ring_with_a_past(kind: RingKind) -> Lab:
    """Four processors on a ring, behind them a merge, a departure, a crash and a sleep."""
    lab = Lab(4, RingConfig(ring_kind=kind)).form([1, 2], [3, 4])
    lab.world.heal()
    lab.until_rings(lab.everyone)
    lab.world.leave(4)
    lab.until_rings([1, 2, 3])
    lab.world.restart(4)
    lab.until_rings(lab.everyone)
    lab.run(100 * MS)
    lab.send(3, 3)
    lab.send(2, 3, Service.SAFE)
    lab.run(100 * MS)
    return lab


def samples(lab: Lab) -> list[Sample]:
    """The last packet of each type that was sent."""
    found: dict[type, Sample] = {}
    for entry in lab.log():
        for effect in entry.effects:
            if isinstance(effect, Send) and len(effect.datagrams) == 1:
                found[type(effect.packet)] = effect.packet, effect.datagrams[0]
    # Only replicas of the log speak past the order: as one of them would have in place of its last Wake.
    unordered = Unordered(*found[Wake][0], b"past the order")
    config = lab.world.hosts[1].config
    data = ring_codec(config.cluster_id, config.ring_kind).encode(unordered)
    (burst,) = Cutter(config.segment_bytes, unordered.sender, unordered.incarnation).cut(data, None)
    found[Unordered] = unordered, burst.datagrams[0]
    assert set(found) == set(get_args(Packet))
    return [found[kind] for kind in get_args(Packet)]


def load(lab: Lab) -> None:
    for me in lab.everyone:
        Arrivals(lab.world, me, 150, size=uniform(1, 3_000), safe=0.5, until_us=lab.mark + 400 * MS).start()


def pelt(lab: Lab, packets: list[tuple[type, bytes]], duration_us: int = 400 * MS) -> dict[ProcessorId, int]:
    """Hands the datagrams to hosts in turn, spread over the time; says how many each got."""
    hosts = list(lab.world.hosts.values())
    got = dict.fromkeys(lab.world.hosts, 0)
    for number, (kind, datagram) in enumerate(packets):
        host = hosts[number % len(hosts)]
        at_us = lab.mark + 1 + number * duration_us // len(packets)
        channel = Channel.TOKEN if kind in TOKENS else Channel.DATA
        lab.world.scheduler.at(at_us, host.arrive, channel, (datagram,), len(datagram))
        got[host.me] += 1
    return got


def assert_it_went_on(lab: Lab, since_us: int) -> None:
    """All that was submitted has been delivered by all, in one order, by the rules."""
    submitted = [row.message for row in lab.rows("submit", since_us=since_us)]
    assert len(submitted) > 100
    orders = {tuple(str(d.message) for d in lab.delivered(me, since_us)) for me in lab.everyone}
    assert len(orders) == 1
    assert sorted(orders.pop()) == sorted(submitted)
    lab.assert_checkers_hold()


# Damaged, and other people's


def truncated(sample: Sample) -> Iterator[bytes]:
    """Segments that end within their header, and whole segments of packets that end too early."""
    _, datagram = sample
    for length in range(SEGMENT.size + 1):
        yield datagram[:length]
    *name, _, _ = SEGMENT.unpack_from(datagram)
    for length in range(1, len(datagram) - SEGMENT.size):
        yield SEGMENT.pack(*name, length, 0) + datagram[SEGMENT.size :][:length]


def cut_short(sample: Sample) -> Iterator[bytes]:
    """Segments of which the end is missing: taken for the first of several, they wait for the rest."""
    _, datagram = sample
    for length in range(SEGMENT.size + 1, len(datagram)):
        yield datagram[:length]


def with_a_damaged_segment_header(sample: Sample) -> Iterator[bytes]:
    """It has no check of its own: with a changed name it is a replay, with a changed length not whole."""
    for place in range(SEGMENT.size * 8):
        spoiled = bytearray(sample[1])
        spoiled[place >> 3] ^= 1 << (place & 7)
        yield bytes(spoiled)


def with_a_flipped_bit(sample: Sample) -> Iterator[bytes]:
    """Every bit of the packet, but for a message's contents."""
    packet, datagram = sample
    stop = SEGMENT.size + REGULAR_OVERHEAD if isinstance(packet, RegularMessage) else len(datagram)
    for place in range(SEGMENT.size * 8, stop * 8):
        spoiled = bytearray(datagram)
        spoiled[place >> 3] ^= 1 << (place & 7)
        yield bytes(spoiled)


def edited(sample: Sample) -> Iterator[bytes]:
    """Fields rewritten by somebody who forgot the check."""
    packet, datagram = sample
    random = Random(type(packet).__name__)
    stop = SEGMENT.size + REGULAR_OVERHEAD if isinstance(packet, RegularMessage) else len(datagram)
    start = SEGMENT.size + HEADER.size
    for _ in range(30):
        fields = random.randbytes(stop - start)
        yield datagram[:start] + fields + datagram[stop:]


def of_other_people(sample: Sample) -> Iterator[bytes]:
    """The same packet in another cluster, and on a ring of the other kind."""
    packet, datagram = sample
    kind = RingKind(datagram[SEGMENT.size + 4])
    other = next(each for each in RingKind if each is not kind)
    for codec in (ring_codec(77, kind), ring_codec(1, other), ring_codec(77, other)):
        yield datagram[: SEGMENT.size] + codec.encode(packet)


def random_bytes(sample: Sample) -> Iterator[bytes]:
    """Noise, noise that begins as a segment does, and noise that begins as a packet does."""
    packet, datagram = sample
    random = Random(f"noise {type(packet).__name__}")
    for _ in range(40):
        noise = random.randbytes(random.randint(0, 300))
        yield noise
        total = 40 + len(noise)
        header = SEGMENT.pack(b"TS", VERSION, 2, 1, 1, 9, random.randrange(2**32), total, 0)
        yield header + datagram[SEGMENT.size :][:6] + random.randbytes(34) + noise


Damage = Callable[[Sample], Iterator[bytes]]

DAMAGES: tuple[Damage, ...] = (truncated, with_a_flipped_bit, edited, of_other_people, random_bytes)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("kind", first_of(RingKind), ids=lambda kind: kind.name.lower())
def test_damaged_packets_are_counted_and_nothing_else_happens(kind: RingKind, damage: Damage) -> None:
    """Each is dropped with a reason; the ring delivers everything and does not even re-form."""
    lab = ring_with_a_past(kind)
    packets = [(type(sample[0]), spoiled) for sample in samples(lab) for spoiled in damage(sample)]
    Random(1).shuffle(packets)
    since_us = lab.mark
    before = {me: lab.engine(me).dropped.total() for me in lab.everyone}
    load(lab)
    got = pelt(lab, packets)
    lab.run(600 * MS)
    assert {me: lab.engine(me).dropped.total() - before[me] for me in lab.everyone} == got
    assert len(lab.rows("drop", since_us=since_us)) >= len(packets)
    assert not lab.rows("state", since_us=since_us)
    assert_it_went_on(lab, since_us)


@pytest.mark.parametrize("damage", [cut_short, with_a_damaged_segment_header], ids=lambda d: d.__name__)
@pytest.mark.parametrize("kind", first_of(RingKind), ids=lambda kind: kind.name.lower())
def test_damaged_segments_do_no_harm(kind: RingKind, damage: Damage) -> None:
    """They may be nobody's fault to count, but they change nothing."""
    lab = ring_with_a_past(kind)
    packets = [(type(sample[0]), spoiled) for sample in samples(lab) for spoiled in damage(sample)]
    since_us = lab.mark
    load(lab)
    pelt(lab, packets)
    lab.run(600 * MS)
    assert not lab.rows("state", since_us=since_us)
    assert_it_went_on(lab, since_us)


# Out of the past


@pytest.mark.parametrize("kind", first_of(RingKind), ids=lambda kind: kind.name.lower())
def test_replayed_packets_change_nothing(kind: RingKind) -> None:
    """All that was ever sent, sent again, every packet to every host: the ring does not even re-form."""
    lab = ring_with_a_past(kind)
    packets = [
        (type(effect.packet), datagram)
        for entry in lab.log()
        for effect in entry.effects
        if isinstance(effect, Send)
        for datagram in effect.datagrams
    ]
    chosen = {datagram: kind for kind, datagram in packets[-400:]}
    chosen |= {datagram: kind for kind, datagram in packets if kind is not RegularToken}
    chosen |= {datagram: type(packet) for packet, datagram in samples(lab) if type(packet) is Unordered}
    assert set(chosen.values()) == set(get_args(Packet))
    since_us = lab.mark
    load(lab)
    pelt(lab, [(kind, datagram) for datagram, kind in chosen.items() for _ in lab.everyone])
    lab.run(600 * MS)
    assert not lab.rows("state", since_us=since_us)
    assert_it_went_on(lab, since_us)


@pytest.mark.parametrize("kind", first_of(RingKind), ids=lambda kind: kind.name.lower())
def test_replays_under_load_change_nothing(kind: RingKind) -> None:
    """Every packet of the present ring comes a second time, a few milliseconds late."""
    lab = ring_with_a_past(kind)
    since_us = lab.mark
    load(lab)
    for _ in range(40):
        start_us = lab.mark
        lab.run(10 * MS)
        packets = [
            (type(effect.packet), datagram)
            for entry in lab.log(start_us)
            for effect in entry.effects
            if isinstance(effect, Send)
            for datagram in effect.datagrams
        ]
        pelt(lab, [packet for packet in packets for _ in lab.everyone], duration_us=5 * MS)
    lab.run(200 * MS)
    assert not lab.rows("state", since_us=since_us)
    assert_it_went_on(lab, since_us)


# Forged


def forgeries(lab: Lab) -> list[Packet]:
    """Packets with a true check from processors that do not exist, or about rings that do not."""
    ring_id = lab.ring(1).ring_id
    nowhere, future = RingId(2, 99), RingId(ring_id.seq + 10**6, 99)
    crowd = frozenset({98, *range(100, 158)})
    message = RegularMessage(
        99, 1, nowhere, 1, 1, Service.SAFE, 10**12, 99, nowhere, (), False, False, b"forged"
    )
    entries = tuple(CommitEntry(me, NO_RING, 2**60, 2**60, (me, 100)) for me in (*lab.everyone, 99))
    return [
        message,
        message._replace(ring_id=future, seq=2**61),
        message._replace(recovered=True),
        message._replace(ring_id=ring_id, seq=2**61, sender=1, src_sender=1, timestamp=5),
        RegularToken(99, 1, nowhere, 2**61, 2**61, 2**61),
        RegularToken(99, 1, future, 2**61, 2**61, 0, 99),
        RegularToken(99, 1, ring_id, 0, 2**61, 2**61),
        Join(99, 1, 1, 0, 0, frozenset({99}), frozenset(), 0),
        Join(99, 1, 2, 0, 0, frozenset({1, 2, 3, 4, 99}), frozenset({2, 3}), 7),
        Join(99, 1, 3, 8, 8, frozenset({1, 2, 3, 4, 99}), frozenset({1, 2, 3, 4}), 7),
        Join(98, 1, 1, 8, 8, crowd, frozenset(), 7),
        Join(97, 1, 1, 8, 8, frozenset({1, 97}), frozenset({1}), 7),
        CommitToken(99, 1, 1, RingId(future.seq, 1), 0, 0, 0, entries),
        CommitToken(99, 1, 1, ring_id, 1, 0, 0, entries),
        NullMessage(99, 1, 1, nowhere),
        NullMessage(96, 1, 1, future),
        Leave(99, 1, 1, ring_id),
        Leave(2, 1, 1, nowhere),
        Leave(3, 10**6, 1, ring_id),
        Wake(99, 1, 1, ring_id),
        Wake(2, 1, 1, future),
        Unordered(99, 1, 1, ring_id, b"past the order"),
        Unordered(2, 1, 1, future, b"past the order"),
        Unordered(3, 10**6, 1, ring_id, b"past the order"),
    ]


@pytest.mark.parametrize("kind", first_of(RingKind), ids=lambda kind: kind.name.lower())
def test_forgeries_cost_time_at_most(kind: RingKind) -> None:
    """Nothing raises, nobody is lost for good, and every rule of order and membership is kept."""
    lab = ring_with_a_past(kind)
    assert {type(packet) for packet in forgeries(lab)} == set(get_args(Packet))
    since_us = lab.mark
    for number in range(len(forgeries(lab))):
        for me in lab.everyone:
            lab.send(me, 2, Service.SAFE)
        for me in lab.everyone:
            lab.inject(me, forgeries(lab)[number])
        lab.run(20 * MS)
        lab.until_rings(lab.everyone)
    lab.run(500 * MS)
    assert all(lab.members(me) == lab.everyone for me in lab.everyone)
    for me in lab.everyone:
        submitted = {row.message for row in lab.rows("submit", me, since_us)}
        assert submitted <= {str(delivery.message) for delivery in lab.delivered(me, since_us)}
        assert {delivery.origin for delivery in lab.delivered(me, since_us)} == set(lab.everyone)
    since_us = lab.mark
    lab.send(4, 10, Service.SAFE)
    lab.run(50 * MS)
    assert all(len(lab.delivered(me, since_us)) == 10 for me in lab.everyone)
    lab.assert_checkers_hold()


@pytest.mark.parametrize("kind", first_of(RingKind), ids=lambda kind: kind.name.lower())
def test_bad_packets_do_not_keep_a_ring_from_forming(kind: RingKind) -> None:
    """Damage of every kind, while the membership algorithm is at work on a partition, a crash and a merge."""
    lab = ring_with_a_past(kind)
    random = Random(3)
    packets = [
        (type(sample[0]), spoiled)
        for sample in samples(lab)
        for damage in DAMAGES
        for spoiled in damage(sample)
    ]
    random.shuffle(packets)
    since_us = lab.mark
    pelt(lab, packets[:4_000], duration_us=1_200 * MS)
    lab.world.partition([[1, 2], [3, 4]])
    lab.run(300 * MS)
    lab.world.crash(2)
    lab.run(200 * MS)
    lab.world.heal()
    lab.world.restart(2)
    lab.until_rings(lab.everyone)
    lab.run(1_000 * MS)
    lab.send(1, 10)
    lab.run(50 * MS)
    assert all(len(lab.delivered(me, since_us)) == 10 for me in lab.everyone)
    lab.assert_checkers_hold()
