"""The codec: round trips, what encoding refuses, and every limit at its edge."""

import pytest
from hypothesis import given

from strategies import SAMPLES, packets
from totempole.errors import CodecError, ConfigurationError
from totempole.types import NO_RING, RingId, RingKind, Service
from totempole.wire import Codec
from totempole.wire.layout import (
    CONTENTS_MAX,
    GROUPS_MAX,
    PACKET_BYTES_MAX,
    PLAIN_CONTENTS_MAX,
    PROCESSORS_MAX,
    RANGES_PER_REQUEST_MAX,
    REGULAR_OVERHEAD,
    REQUESTS_MAX,
    SEAL_BYTES,
    regular_bytes,
)
from totempole.wire.packets import CommitEntry, RetransmissionRequest

MESSAGE, TOKEN, JOIN, COMMIT = (SAMPLES[name] for name in ("message", "token", "join", "commit"))


def codec() -> Codec:
    return Codec(1, RingKind.CLASSIC)


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


def test_equal_bytes_share_one_packet():
    one = codec()
    data = one.encode(MESSAGE)
    decoded = one.decode(data)
    assert one.decode(bytes(bytearray(data))) is decoded
    assert one.decode(one.encode(TOKEN)) == TOKEN
    assert one.decode(data) == MESSAGE


def test_a_refusal_is_not_remembered_as_an_answer():
    one = codec()
    data = one.encode(MESSAGE)
    one.decode(data)
    for _ in range(2):
        with pytest.raises(CodecError):
            one.decode(data[:-1])
    assert one.decode(data) == MESSAGE


def test_regular_overhead_is_what_encoding_adds():
    bare = MESSAGE._replace(groups=())
    assert len(codec().encode(bare)) == REGULAR_OVERHEAD + len(bare.contents)
    assert len(codec().encode(MESSAGE)) == regular_bytes(len(MESSAGE.contents), groups=2)


def test_every_plain_message_can_be_encapsulated():
    groups = tuple(range(GROUPS_MAX))
    plain = MESSAGE._replace(groups=groups, recovered=False, contents=bytes(PLAIN_CONTENTS_MAX))
    inner = codec().encode(plain)
    assert len(inner) == CONTENTS_MAX - SEAL_BYTES
    outer = MESSAGE._replace(groups=groups, recovered=True, contents=inner)
    data = codec().encode(outer)
    assert codec().decode(codec().decode(data).contents) == plain


def entry(**changes) -> CommitEntry:
    return CommitEntry(2, RingId(1, 1), 0, 0, ())._replace(**changes)


AT_THE_LIMIT = {
    "all requests": TOKEN._replace(
        rtr=(RetransmissionRequest(1, ((0, 1),) * RANGES_PER_REQUEST_MAX),) * REQUESTS_MAX
    ),
    "groups": MESSAGE._replace(groups=(2**64 - 1,) * GROUPS_MAX),
    "requests": TOKEN._replace(rtr=(RetransmissionRequest(1),) * REQUESTS_MAX),
    "ranges": TOKEN._replace(rtr=(RetransmissionRequest(1, ((0, 1),) * RANGES_PER_REQUEST_MAX),)),
    "proc_set": JOIN._replace(proc_set=frozenset(range(1, PROCESSORS_MAX + 1))),
    "fail_set": JOIN._replace(fail_set=frozenset(range(1, PROCESSORS_MAX + 1))),
    "memb_list": COMMIT._replace(memb_list=(entry(),) * PROCESSORS_MAX, memb_index=PROCESSORS_MAX),
    "deliver_memb": COMMIT._replace(memb_list=(entry(deliver_memb=(1,) * PROCESSORS_MAX),)),
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
    "requests": TOKEN._replace(rtr=(RetransmissionRequest(1),) * (REQUESTS_MAX + 1)),
    "ranges": TOKEN._replace(rtr=(RetransmissionRequest(1, ((0, 1),) * (RANGES_PER_REQUEST_MAX + 1)),)),
    "empty range": TOKEN._replace(rtr=(RetransmissionRequest(1, ((4, 4),)),)),
    "far range": TOKEN._replace(rtr=(RetransmissionRequest(1, ((4, 2**32),)),)),
    "token ring": TOKEN._replace(ring_id=NO_RING),
    "proc_set": JOIN._replace(proc_set=frozenset(range(1, PROCESSORS_MAX + 2))),
    "no processor": JOIN._replace(fail_set=frozenset({0})),
    "tiny datagrams": JOIN._replace(segment_bytes=127),
    "impossible datagrams": JOIN._replace(segment_bytes=65_508),
    "large processor": JOIN._replace(fail_set=frozenset({2**32})),
    "memb_list": COMMIT._replace(memb_list=(entry(),) * (PROCESSORS_MAX + 1)),
    "memb_index": COMMIT._replace(memb_index=len(COMMIT.memb_list) + 1),
    "deliver_memb": COMMIT._replace(memb_list=(entry(deliver_memb=(1,) * (PROCESSORS_MAX + 1)),)),
    "entry": COMMIT._replace(memb_list=(entry(processor=0),)),
    "entry ring": COMMIT._replace(memb_list=(entry(old_ring_id=RingId(7, 0)),)),
    "commit ring": COMMIT._replace(ring_id=NO_RING),
    "packet": COMMIT._replace(memb_list=(entry(deliver_memb=(1,) * PROCESSORS_MAX),) * 160),
    "notice": SAMPLES["null"]._replace(ring_id=RingId(1, 0)),
}


@pytest.mark.parametrize("packet", BEYOND.values(), ids=BEYOND)
def test_encode_refuses_what_decode_would(packet):
    with pytest.raises(ConfigurationError):
        codec().encode(packet)


@pytest.mark.parametrize("cluster_id", [-1, 2**64])
def test_a_cluster_id_has_64_bits(cluster_id):
    with pytest.raises(ConfigurationError):
        Codec(cluster_id, RingKind.CLASSIC)


@pytest.mark.parametrize("kind", RingKind)
@pytest.mark.parametrize("cluster_id", [0, 2**64 - 1])
def test_each_cluster_and_ring_kind_reads_its_own(cluster_id, kind):
    one = Codec(cluster_id, kind)
    assert one.decode(one.encode(MESSAGE)) == MESSAGE


def test_the_largest_packet_is_larger_than_any_message():
    assert regular_bytes(CONTENTS_MAX, GROUPS_MAX) < PACKET_BYTES_MAX


def test_services_stay_enumerations():
    assert codec().decode(codec().encode(MESSAGE)).service is Service.SAFE
