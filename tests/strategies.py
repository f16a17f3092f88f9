"""Hypothesis strategies for packets, and one fixed sample of each kind."""

from hypothesis import strategies as st

from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    RetransmissionRequest,
    SharedSettings,
    Unordered,
    Wake,
)
from totempole.types import NO_RING, PROCESSOR_MAX, RingId, Service
from totempole.wire.layout import (
    DATAGRAM_BYTES_MAX,
    DATAGRAM_BYTES_MIN,
    INCARNATION_MAX,
    NUMBER_MAX,
    PROCESSORS_MAX,
)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
incarnations = st.integers(0, INCARNATION_MAX)
numbers = st.integers(0, NUMBER_MAX - 1)
processors = st.integers(1, PROCESSOR_MAX)
rings = st.builds(RingId, numbers, processors)
rings_or_none = rings | st.just(NO_RING)
few_processors = st.lists(processors, max_size=6, unique=True)
processor_sets = few_processors.map(frozenset)


@st.composite
def byte_ranges(draw, limit: int = 2**32 - 1):
    start = draw(st.integers(0, limit - 1))
    return start, draw(st.integers(start + 1, limit))


messages = st.builds(
    RegularMessage,
    sender=processors,
    incarnation=incarnations,
    ring_id=rings,
    seq=numbers,
    number=numbers,
    service=st.sampled_from(Service),
    timestamp=numbers,
    src_sender=processors,
    src_ring_id=rings_or_none,
    groups=st.lists(u64, max_size=5).map(tuple),
    after_token=st.booleans(),
    recovered=st.booleans(),
    contents=st.binary(max_size=300),
)


@st.composite
def tokens(draw):
    seq = draw(numbers)
    asked = draw(st.lists(st.integers(1, seq), max_size=5, unique=True)) if seq else []
    ranges = st.lists(byte_ranges(), max_size=4).map(tuple)
    return RegularToken(
        sender=draw(processors),
        incarnation=draw(incarnations),
        ring_id=draw(rings),
        token_seq=draw(numbers),
        seq=seq,
        aru=draw(st.integers(0, seq)),
        aru_id=draw(u32),
        timestamp=draw(numbers),
        retrans_flg=draw(st.booleans()),
        retrans_round=draw(numbers),
        bytes_round=draw(numbers),
        backlog=draw(numbers),
        block=draw(st.booleans()),
        block_seq=draw(numbers),
        rtr=tuple(RetransmissionRequest(place, draw(ranges)) for place in sorted(asked)),
    )


@st.composite
def joins(draw):
    sender = draw(processors)
    failed = draw(processor_sets) - {sender}
    return Join(
        sender=sender,
        incarnation=draw(incarnations),
        counter=draw(numbers),
        ring_seq=draw(numbers),
        future_ring_seq=draw(numbers),
        proc_set=draw(processor_sets) | failed | {sender},
        fail_set=failed,
        rotation_count=draw(numbers),
        segment_bytes=draw(st.integers(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX)),
        settings=draw(st.builds(SharedSettings, *[numbers] * 6)),
    )


@st.composite
def entries(draw, processor, ring_seq):
    gateway = draw(st.booleans())
    if ring_seq == 0 or draw(st.booleans()):
        return CommitEntry(processor, NO_RING, 0, 0, (), gateway)
    aru = draw(numbers)
    promised = draw(st.just(frozenset()) | processor_sets.map(lambda names: names | {processor}))
    return CommitEntry(
        processor=processor,
        old_ring_id=RingId(draw(st.integers(0, ring_seq - 1)), draw(processors)),
        old_ring_aru=aru,
        high_delivered=draw(st.integers(0, aru)),
        deliver_memb=tuple(sorted(promised)),
        gateway=gateway,
        filled=True,
    )


@st.composite
def commit_tokens(draw):
    members = sorted(draw(st.sets(processors, min_size=1, max_size=4)))
    ring_seq = draw(numbers)
    return CommitToken(
        sender=draw(st.sampled_from(members)),
        incarnation=draw(incarnations),
        counter=draw(numbers),
        ring_id=RingId(ring_seq, members[0]),
        token_seq=draw(numbers),
        timestamp=draw(numbers),
        memb_index=draw(st.integers(0, len(members) - 1)),
        memb_list=tuple(draw(entries(processor, ring_seq)) for processor in members),
    )


notice_fields = {
    "sender": processors,
    "incarnation": incarnations,
    "counter": numbers,
    "ring_id": rings_or_none,
}
nulls = st.builds(NullMessage, **notice_fields, members=st.integers(1, PROCESSORS_MAX))
unordered = st.builds(Unordered, **notice_fields, contents=st.binary(min_size=1, max_size=1024))
notices = nulls | st.builds(Leave, **notice_fields) | st.builds(Wake, **notice_fields) | unordered

packets = messages | tokens() | joins() | commit_tokens() | notices

RING = RingId(0x0102030405060708, 3)
OLD_RING = RingId(40, 2)

SAMPLES: dict[str, Packet] = {
    "message": RegularMessage(
        sender=3,
        incarnation=5,
        ring_id=RING,
        seq=1001,
        number=77,
        service=Service.SAFE,
        timestamp=123_456,
        src_sender=9,
        src_ring_id=OLD_RING,
        groups=(0xA1A2A3A4A5A6A7A8, 2),
        after_token=True,
        recovered=False,
        contents=b"contents",
    ),
    "token": RegularToken(
        sender=3,
        incarnation=5,
        ring_id=RING,
        token_seq=2002,
        seq=1001,
        aru=998,
        aru_id=2,
        timestamp=123_456,
        retrans_flg=True,
        retrans_round=4,
        bytes_round=65_000,
        backlog=17,
        block=False,
        block_seq=6,
        rtr=(
            RetransmissionRequest(999),
            RetransmissionRequest(1000, ((0, 1368), (2736, 4104))),
            RetransmissionRequest(1001, ((5, 6),)),
        ),
    ),
    "join": Join(
        sender=3,
        incarnation=5,
        counter=11,
        ring_seq=40,
        future_ring_seq=44,
        proc_set=frozenset({1, 2, 3, PROCESSOR_MAX}),
        fail_set=frozenset({PROCESSOR_MAX}),
        rotation_count=12,
        settings=SharedSettings(80_000, 20_000, 50_000, 10_000, 250, 60),
    ),
    "commit": CommitToken(
        sender=3,
        incarnation=5,
        counter=11,
        ring_id=RingId(RING.seq, 2),
        token_seq=4,
        timestamp=123_456,
        memb_index=1,
        memb_list=(
            CommitEntry(2, OLD_RING, 700, 690, (2, 3), gateway=True, filled=True),
            CommitEntry(3, OLD_RING, 701, 695, (3,), gateway=False, filled=True),
            CommitEntry(7, NO_RING, 0, 0, ()),
        ),
    ),
    "null": NullMessage(sender=3, incarnation=5, counter=12, ring_id=RING, members=258),
    "leave": Leave(sender=3, incarnation=5, counter=13, ring_id=RING),
    "wake": Wake(sender=3, incarnation=5, counter=14, ring_id=NO_RING),
    "unordered": Unordered(sender=3, incarnation=5, counter=15, ring_id=RING, contents=b"past the order"),
}
