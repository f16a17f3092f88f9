"""The codec: round trips, what encoding refuses, and every limit at its edge."""

import pytest
from hypothesis import given

from strategies import SAMPLES, packets
from totempole.errors import ConfigurationError
from totempole.srp.formats import ring_codec
from totempole.srp.layout import (
    CONTENTS_MAX,
    GROUP_BYTES,
    GROUPS_MAX,
    PLAIN_CONTENTS_MAX,
    RANGES_PER_REQUEST_MAX,
    REGULAR_OVERHEAD,
    REQUESTS_MAX,
)
from totempole.srp.packets import CommitEntry, CommitToken, RetransmissionRequest
from totempole.types import NO_RING, PROCESSOR_MAX, RingId, RingKind, Service
from totempole.wire import Codec
from totempole.wire.layout import (
    INCARNATION_MAX,
    NUMBER_MAX,
    PACKET_BYTES_MAX,
    PROCESSORS_MAX,
    SEAL_BYTES,
)

MESSAGE, TOKEN, JOIN, COMMIT = (SAMPLES[name] for name in ("message", "token", "join", "commit"))


def codec() -> Codec:
    return ring_codec(1, RingKind.CLASSIC)


@given(packets)
def test_decode_undoes_encode(packet):
    decoded = codec().decode(codec().encode(packet))
    assert decoded == packet
    assert type(decoded) is type(packet)


@given(packets)
def test_encoding_is_canonical(packet):
    data = codec().encode(packet)
    assert codec().encode(codec().decode(data)) == data


@pytest.mark.parametrize("packet", SAMPLES.values(), ids=SAMPLES)
def test_fields_have_the_types_that_the_packets_declare(packet):
    decoded = codec().decode(memoryview(codec().encode(packet)))
    for value, original in zip(decoded, packet, strict=True):
        assert type(value) is type(original)


def test_a_view_gives_what_its_bytes_give_even_after_its_owner_reuses_the_buffer():
    one = codec()
    first, second = one.encode(MESSAGE), one.encode(MESSAGE._replace(seq=7))
    buffer = bytearray(first)
    assert one.decode(memoryview(buffer)) == MESSAGE
    buffer[:] = second
    assert one.decode(memoryview(buffer)).seq == 7
    assert one.decode(memoryview(first)[::1]) == MESSAGE


def test_regular_overhead_is_what_encoding_adds():
    bare = MESSAGE._replace(groups=())
    assert len(codec().encode(bare)) == REGULAR_OVERHEAD + len(bare.contents)
    assert len(codec().encode(MESSAGE)) == REGULAR_OVERHEAD + 2 * GROUP_BYTES + len(MESSAGE.contents)


def test_every_plain_message_can_be_encapsulated():
    groups = tuple(range(GROUPS_MAX))
    plain = MESSAGE._replace(groups=groups, recovered=False, contents=bytes(PLAIN_CONTENTS_MAX))
    inner = codec().encode(plain)
    assert len(inner) == CONTENTS_MAX - SEAL_BYTES
    outer = MESSAGE._replace(groups=groups, recovered=True, contents=inner)
    data = codec().encode(outer)
    assert codec().decode(codec().decode(data).contents) == plain


def entry(**changes) -> CommitEntry:
    return CommitEntry(2, RingId(1, 1), 0, 0, (), filled=True)._replace(**changes)


def commit_of(*entries: CommitEntry) -> CommitToken:
    """A Commit token that is sound if its entries are, and ascend from processor 2."""
    return COMMIT._replace(sender=2, memb_index=0, memb_list=entries)


def request(seq: int, ranges: int = 0) -> RetransmissionRequest:
    return RetransmissionRequest(seq, ((0, 1),) * ranges)


MANY = range(1, REQUESTS_MAX + 1)
LONG_TOKEN = TOKEN._replace(seq=REQUESTS_MAX + 1, aru=0)
CROWD = range(2, PROCESSORS_MAX + 2)
LAST = NUMBER_MAX - 1

AT_THE_LIMIT = {
    "all requests": LONG_TOKEN._replace(rtr=tuple(request(seq, RANGES_PER_REQUEST_MAX) for seq in MANY)),
    "groups": MESSAGE._replace(groups=(2**64 - 1,) * GROUPS_MAX),
    "requests": LONG_TOKEN._replace(rtr=tuple(map(request, MANY))),
    "ranges": TOKEN._replace(rtr=(RetransmissionRequest(1, ((0, 1),) * RANGES_PER_REQUEST_MAX),)),
    "proc_set": JOIN._replace(proc_set=frozenset(range(1, PROCESSORS_MAX + 1)), fail_set=frozenset()),
    "fail_set": JOIN._replace(sender=9, proc_set=frozenset({9, *CROWD}), fail_set=frozenset({*CROWD} - {9})),
    "memb_list": commit_of(*(entry(processor=q) for q in CROWD))._replace(memb_index=PROCESSORS_MAX - 1),
    "deliver_memb": commit_of(entry(deliver_memb=tuple(CROWD))),
    "large numbers": MESSAGE._replace(
        ring_id=RingId(LAST, 1), seq=LAST, number=LAST, timestamp=LAST, incarnation=INCARNATION_MAX
    ),
    "large numbers of a token": TOKEN._replace(token_seq=LAST, seq=LAST, aru=LAST, timestamp=LAST),
    "large numbers of a join": JOIN._replace(counter=LAST, ring_seq=LAST, future_ring_seq=LAST),
    "large numbers of an entry": commit_of(entry(old_ring_aru=LAST, high_delivered=LAST)),
    "aru_id": TOKEN._replace(aru_id=0),
    "no rings": MESSAGE._replace(src_ring_id=NO_RING),
    "empty": MESSAGE._replace(contents=b"", groups=()),
}


@pytest.mark.parametrize("packet", AT_THE_LIMIT.values(), ids=AT_THE_LIMIT)
def test_limits_are_inclusive(packet):
    assert codec().decode(codec().encode(packet)) == packet


BEYOND = {
    "groups": MESSAGE._replace(groups=(1,) * (GROUPS_MAX + 1)),
    "group": MESSAGE._replace(groups=(2**64,)),
    "plain contents": MESSAGE._replace(contents=bytes(PLAIN_CONTENTS_MAX + 1)),
    "recovered contents": MESSAGE._replace(recovered=True, contents=bytes(CONTENTS_MAX + 1)),
    "service": MESSAGE._replace(service=3),
    "src_sender": MESSAGE._replace(src_sender=0),
    "sender": MESSAGE._replace(sender=0),
    "large sender": MESSAGE._replace(sender=2**32),
    "negative seq": MESSAGE._replace(seq=-1),
    "large seq": MESSAGE._replace(seq=2**64),
    "ring": MESSAGE._replace(ring_id=NO_RING),
    "src_ring": MESSAGE._replace(src_ring_id=RingId(1, 0)),
    "number": MESSAGE._replace(number=NUMBER_MAX),
    "seq": MESSAGE._replace(seq=NUMBER_MAX),
    "timestamp": MESSAGE._replace(timestamp=NUMBER_MAX),
    "ring number": MESSAGE._replace(ring_id=RingId(NUMBER_MAX, 1)),
    "src_ring number": MESSAGE._replace(src_ring_id=RingId(NUMBER_MAX, 1)),
    "incarnation": MESSAGE._replace(incarnation=INCARNATION_MAX + 1),
    "token incarnation": TOKEN._replace(incarnation=INCARNATION_MAX + 1),
    "token_seq": TOKEN._replace(token_seq=NUMBER_MAX),
    "token seq": TOKEN._replace(seq=NUMBER_MAX),
    "token timestamp": TOKEN._replace(timestamp=NUMBER_MAX),
    "retrans_round": TOKEN._replace(retrans_round=NUMBER_MAX),
    "bytes_round": TOKEN._replace(bytes_round=NUMBER_MAX),
    "backlog": TOKEN._replace(backlog=NUMBER_MAX),
    "aru above seq": TOKEN._replace(aru=TOKEN.seq + 1),
    "request above seq": TOKEN._replace(rtr=(request(TOKEN.seq + 1),)),
    "request of nothing": TOKEN._replace(rtr=(request(0),)),
    "requests that repeat": TOKEN._replace(rtr=(request(5), request(5))),
    "requests": LONG_TOKEN._replace(rtr=tuple(map(request, (*MANY, REQUESTS_MAX + 1)))),
    "ranges": TOKEN._replace(rtr=(request(1, RANGES_PER_REQUEST_MAX + 1),)),
    "empty range": TOKEN._replace(rtr=(RetransmissionRequest(1, ((4, 4),)),)),
    "far range": TOKEN._replace(rtr=(RetransmissionRequest(1, ((4, 2**32),)),)),
    "token ring": TOKEN._replace(ring_id=NO_RING),
    "proc_set": JOIN._replace(proc_set=frozenset(range(1, PROCESSORS_MAX + 2)), fail_set=frozenset()),
    "no processor": JOIN._replace(proc_set=JOIN.proc_set | {0}),
    "failed but not considered": JOIN._replace(fail_set=frozenset({77})),
    "sender not considered": JOIN._replace(proc_set=frozenset({1, PROCESSOR_MAX})),
    "sender failed": JOIN._replace(fail_set=frozenset({JOIN.sender})),
    "join ring_seq": JOIN._replace(ring_seq=NUMBER_MAX),
    "join future_ring_seq": JOIN._replace(future_ring_seq=NUMBER_MAX),
    "join counter": JOIN._replace(counter=NUMBER_MAX),
    "join incarnation": JOIN._replace(incarnation=INCARNATION_MAX + 1),
    "tiny datagrams": JOIN._replace(segment_bytes=127),
    "impossible datagrams": JOIN._replace(segment_bytes=65_508),
    "large processor": JOIN._replace(proc_set=JOIN.proc_set | {2**32}),
    "memb_list": commit_of(*(entry(processor=q) for q in (*CROWD, PROCESSORS_MAX + 2))),
    "empty memb_list": commit_of(),
    "memb_index": COMMIT._replace(memb_index=len(COMMIT.memb_list)),
    "representative": COMMIT._replace(ring_id=RingId(COMMIT.ring_id.seq, 3)),
    "members that do not ascend": commit_of(entry(), entry(processor=5), entry(processor=4)),
    "member twice": commit_of(entry(), entry()),
    "deliver_memb": commit_of(entry(deliver_memb=(*CROWD, PROCESSORS_MAX + 2))),
    "promise not for itself": commit_of(entry(deliver_memb=(1, 3))),
    "promise that does not ascend": commit_of(entry(deliver_memb=(2, 1))),
    "delivered but not received": commit_of(entry(old_ring_aru=4, high_delivered=5)),
    "old ring that is newer": commit_of(entry(old_ring_id=RingId(COMMIT.ring_id.seq, 1))),
    "filled entry without a ring": commit_of(entry(old_ring_id=NO_RING)),
    "entry aru": commit_of(entry(old_ring_aru=NUMBER_MAX)),
    "entry": commit_of(entry(processor=0)),
    "entry ring": commit_of(entry(old_ring_id=RingId(7, 0))),
    "commit ring": COMMIT._replace(ring_id=NO_RING),
    "commit ring number": COMMIT._replace(ring_id=RingId(NUMBER_MAX, 2)),
    "commit timestamp": COMMIT._replace(timestamp=NUMBER_MAX),
    "commit token_seq": COMMIT._replace(token_seq=NUMBER_MAX),
    "packet": commit_of(*(entry(processor=q, deliver_memb=tuple(CROWD)) for q in range(2, 162))),
    "notice ring": SAMPLES["null"]._replace(ring_id=RingId(NUMBER_MAX, 1)),
    "notice incarnation": SAMPLES["wake"]._replace(incarnation=INCARNATION_MAX + 1),
    "null without members": SAMPLES["null"]._replace(members=0),
    "null members": SAMPLES["null"]._replace(members=PROCESSORS_MAX + 1),
    "notice": SAMPLES["null"]._replace(ring_id=RingId(1, 0)),
}


@pytest.mark.parametrize("packet", BEYOND.values(), ids=BEYOND)
def test_encode_refuses_what_decode_would(packet):
    with pytest.raises(ConfigurationError):
        codec().encode(packet)


@pytest.mark.parametrize("cluster_id", [-1, 2**64])
def test_a_cluster_id_has_64_bits(cluster_id):
    with pytest.raises(ConfigurationError):
        ring_codec(cluster_id, RingKind.CLASSIC)


@pytest.mark.parametrize("kind", RingKind)
@pytest.mark.parametrize("cluster_id", [0, 2**64 - 1])
def test_each_cluster_and_ring_kind_reads_its_own(cluster_id, kind):
    one = ring_codec(cluster_id, kind)
    assert one.decode(one.encode(MESSAGE)) == MESSAGE


def test_the_largest_packet_is_larger_than_any_message():
    assert REGULAR_OVERHEAD + GROUP_BYTES * GROUPS_MAX + CONTENTS_MAX < PACKET_BYTES_MAX


def test_services_stay_enumerations():
    assert codec().decode(codec().encode(MESSAGE)).service is Service.SAFE
