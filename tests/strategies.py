"""Hypothesis strategies for packets, and one fixed sample of each kind."""

from hypothesis import strategies as st

from totempole.types import NO_RING, PROCESSOR_MAX, RingId, Service
from totempole.wire.layout import DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN
from totempole.wire.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    RetransmissionRequest,
    Wake,
)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
processors = st.integers(1, PROCESSOR_MAX)
rings = st.builds(RingId, u64, processors)
rings_or_none = rings | st.just(NO_RING)
few_processors = st.lists(processors, max_size=6, unique=True)
processor_sets = few_processors.map(frozenset)


@st.composite
def byte_ranges(draw, limit: int = 2**32 - 1):
    start = draw(st.integers(0, limit - 1))
    return start, draw(st.integers(start + 1, limit))


requests = st.builds(RetransmissionRequest, u64, st.lists(byte_ranges(), max_size=4).map(tuple))

messages = st.builds(
    RegularMessage,
    sender=processors,
    incarnation=u32,
    ring_id=rings,
    seq=u64,
    number=u64,
    service=st.sampled_from(Service),
    timestamp=u64,
    src_sender=processors,
    src_ring_id=rings_or_none,
    groups=st.lists(u64, max_size=5).map(tuple),
    after_token=st.booleans(),
    recovered=st.booleans(),
    contents=st.binary(max_size=300),
)

tokens = st.builds(
    RegularToken,
    sender=processors,
    incarnation=u32,
    ring_id=rings,
    token_seq=u64,
    seq=u64,
    aru=u64,
    aru_id=u32,
    timestamp=u64,
    retrans_flg=st.booleans(),
    retrans_round=u64,
    bytes_round=u64,
    backlog=u64,
    block=st.booleans(),
    block_seq=u64,
    rtr=st.lists(requests, max_size=5).map(tuple),
)

joins = st.builds(
    Join,
    sender=processors,
    incarnation=u32,
    counter=u64,
    ring_seq=u64,
    future_ring_seq=u64,
    proc_set=processor_sets,
    fail_set=processor_sets,
    rotation_count=u64,
    segment_bytes=st.integers(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX),
)

entries = st.builds(
    CommitEntry,
    processor=processors,
    old_ring_id=rings_or_none,
    old_ring_aru=u64,
    high_delivered=u64,
    deliver_memb=few_processors.map(tuple),
    gateway=st.booleans(),
    filled=st.booleans(),
)


@st.composite
def commit_tokens(draw):
    memb_list = tuple(draw(st.lists(entries, max_size=4)))
    return CommitToken(
        sender=draw(processors),
        incarnation=draw(u32),
        counter=draw(u64),
        ring_id=draw(rings),
        token_seq=draw(u64),
        timestamp=draw(u64),
        memb_index=draw(st.integers(0, len(memb_list))),
        memb_list=memb_list,
    )


notices = st.one_of(
    *(
        st.builds(packet_class, sender=processors, incarnation=u32, ring_id=rings_or_none)
        for packet_class in (NullMessage, Leave, Wake)
    )
)

packets = messages | tokens | joins | commit_tokens() | notices

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
    ),
    "commit": CommitToken(
        sender=3,
        incarnation=5,
        counter=11,
        ring_id=RING,
        token_seq=4,
        timestamp=123_456,
        memb_index=1,
        memb_list=(
            CommitEntry(2, OLD_RING, 700, 690, (2, 3), gateway=True, filled=True),
            CommitEntry(3, OLD_RING, 701, 695, (3,), gateway=False, filled=True),
            CommitEntry(7, NO_RING, 0, 0, ()),
        ),
    ),
    "null": NullMessage(sender=3, incarnation=5, ring_id=RING),
    "leave": Leave(sender=3, incarnation=5, ring_id=RING),
    "wake": Wake(sender=3, incarnation=5, ring_id=NO_RING),
}
