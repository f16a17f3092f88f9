"""Nothing that arrives raises anything but CodecError, and each refusal has its true reason."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies import SAMPLES, packets
from totempole.errors import CodecError
from totempole.srp.formats import ring_codec
from totempole.srp.layout import (
    COMMIT,
    CONTENTS_MAX,
    ENTRY,
    GROUPS_MAX,
    JOIN,
    MESSAGE,
    NOTICE,
    NULL,
    PLAIN_CONTENTS_MAX,
    REQUESTS_MAX,
    TOKEN,
    PacketType,
)
from totempole.types import RingKind
from totempole.wire.check import check_of
from totempole.wire.codec import UNCHECKED as UNCHECKED_FLAG
from totempole.wire.layout import HEAD, HEADER, MAGIC, PACKET_BYTES_MAX, PROCESSORS_MAX, VERSION

CLUSTER = 1
CODEC = ring_codec(CLUSTER, RingKind.CLASSIC)
UNCHECKED = ring_codec(CLUSTER, RingKind.CLASSIC, check_contents=False)
ENCODED = {name: CODEC.encode(packet) for name, packet in SAMPLES.items()}
REASONS = {
    *("truncated", "oversized", "magic", "version", "cluster"),
    *("ring kind", "key", "type", "checksum", "malformed"),
}


def reason(data: bytes) -> str:
    with pytest.raises(CodecError) as caught:
        CODEC.decode(data)
    assert caught.value.reason in REASONS
    return caught.value.reason


def forge(kind: int, fields: bytes, contents: bytes = b"", flags: int = 0, sender: int = 1) -> bytes:
    """A packet with a true check, whatever its fields say."""
    head = HEAD.pack(MAGIC, VERSION, kind, RingKind.CLASSIC, 0, flags, CLUSTER, sender, 1)
    return head + check_of(head, fields, contents).to_bytes(4, "big") + fields + contents


def message_fields(representative=1, src_sender=1, src_ring=(1, 1), service=1, groups=0, length=0) -> bytes:
    return MESSAGE.pack(1, representative, 1, 1, 1, src_sender, *src_ring, service, groups, length)


def token_fields(representative=1, requests=0, ranges=0, tail=b"") -> bytes:
    return TOKEN.pack(1, representative, 1, 1, 1, 0, 0, 0, 0, 0, 0, requests, ranges) + tail


def join_fields(procs=1, fails=0, names=(1,)) -> bytes:
    return JOIN.pack(1, 1, 1, 1, 1_400, *[1] * 6, procs, fails) + b"".join(
        name.to_bytes(4, "big") for name in names
    )


def commit_fields(representative=1, index=0, entries=0, names=0, tail=b"") -> bytes:
    return COMMIT.pack(1, 1, representative, 1, 1, index, entries, names) + tail


@pytest.mark.parametrize("name", ENCODED)
def test_every_truncation_is_known_for_one(name):
    for length in range(len(ENCODED[name])):
        assert reason(ENCODED[name][:length]) == "truncated"


@pytest.mark.parametrize("name", ENCODED)
def test_trailing_bytes_are_oversized(name):
    assert reason(ENCODED[name] + b"\0") == "oversized"


@pytest.mark.parametrize("name", ENCODED)
def test_every_flipped_bit_is_found(name):
    for bit in range(8 * len(ENCODED[name])):
        reason(flipped(ENCODED[name], bit))


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_every_flipped_bit_of_long_contents_is_found():
    contents = bytes(range(256)) * 8
    data = CODEC.encode(SAMPLES["message"]._replace(contents=contents))
    for bit in range(8 * (len(data) - len(contents)), 8 * len(data)):
        assert reason(flipped(data, bit)) == "checksum"


def test_without_a_check_of_the_contents_flipped_bits_of_all_else_are_found():
    message = SAMPLES["message"]._replace(contents=b"some contents")
    data = UNCHECKED.encode(message)
    assert CODEC.decode(data) == message
    fields_stop = len(data) - len(message.contents)
    for bit in range(8 * fields_stop):
        reason(flipped(data, bit))
    assert CODEC.decode(flipped(data, 8 * fields_stop)).contents == b"rome contents"


def test_only_contents_go_unchecked():
    for name, packet in SAMPLES.items():
        if name != "message":
            assert UNCHECKED.encode(packet) == ENCODED[name]
    nothing = message_fields(length=0)
    assert reason(forge(PacketType.MESSAGE, nothing, flags=UNCHECKED_FLAG)) == "malformed"


@given(packets, st.data())
def test_a_flipped_bit_in_any_packet_is_found(packet, data):
    encoded = CODEC.encode(packet)
    reason(flipped(encoded, data.draw(st.integers(0, 8 * len(encoded) - 1))))


@given(packets, st.data())
def test_any_packet_cut_short_is_truncated(packet, data):
    encoded = CODEC.encode(packet)
    assert reason(encoded[: data.draw(st.integers(0, len(encoded) - 1))]) == "truncated"


def only_codec_error(data: bytes | memoryview) -> None:
    """Either refused, or the one encoding of a sound packet."""
    try:
        packet = CODEC.decode(data)
    except CodecError:
        return
    assert CODEC.encode(packet) == bytes(data)


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data):
    only_codec_error(data)
    only_codec_error(memoryview(data))


@given(st.integers(0, 255), st.binary(max_size=400), st.integers(0, 3), st.integers(0, 1))
@example(PacketType.TOKEN, token_fields(requests=1, ranges=1, tail=bytes(17)), 0, 1)
def test_random_fields_under_a_true_check_are_refused_or_sound(kind, fields, flags, sender):
    only_codec_error(forge(kind, fields, flags=flags, sender=sender))


LAYOUTS = {
    PacketType.MESSAGE: MESSAGE,
    PacketType.TOKEN: TOKEN,
    PacketType.JOIN: JOIN,
    PacketType.COMMIT: COMMIT,
    PacketType.NULL: NULL,
    PacketType.LEAVE: NOTICE,
}


@given(st.sampled_from(sorted(LAYOUTS)), st.data())
def test_random_counts_are_refused_or_sound(kind, data):
    """Mostly zero bytes, so that small counts are common and the lists behind them are reached."""
    fields = bytearray(LAYOUTS[kind].size + data.draw(st.integers(0, 120)))
    for _ in range(data.draw(st.integers(0, 12))):
        fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(st.integers(0, 3))
    only_codec_error(forge(kind, bytes(fields)))


def put(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


SAMPLE = ENCODED["message"]

FOREIGN = {
    "magic": b"XX" + SAMPLE[2:],
    "version": put(SAMPLE, 2, VERSION + 1),
    "type": put(SAMPLE, 3, 99),
    "ring kind": put(SAMPLE, 4, RingKind.ACCELERATED),
    "key": put(SAMPLE, 5, 1),
    "cluster": put(SAMPLE, 15, 2),
}


@pytest.mark.parametrize("expected", FOREIGN)
def test_what_is_not_ours_is_told_apart_before_the_checksum(expected):
    assert reason(FOREIGN[expected]) == expected


def test_foreign_packets_with_true_checks_keep_their_reasons():
    packet = SAMPLES["token"]
    assert reason(ring_codec(2, RingKind.CLASSIC).encode(packet)) == "cluster"
    assert reason(ring_codec(CLUSTER, RingKind.ACCELERATED).encode(packet)) == "ring kind"
    assert reason(ring_codec(2, RingKind.ACCELERATED).encode(packet)) == "cluster"


def test_a_wrong_check_is_a_checksum():
    assert reason(put(SAMPLE, HEADER.size - 1, SAMPLE[HEADER.size - 1] ^ 1)) == "checksum"


OVERSIZED = {
    "contents": forge(1, message_fields(length=CONTENTS_MAX + 1), bytes(CONTENTS_MAX + 1)),
    "requests": forge(2, token_fields(requests=REQUESTS_MAX + 1, tail=bytes(9 * (REQUESTS_MAX + 1)))),
    "ranges": forge(2, token_fields(requests=1, ranges=33, tail=bytes(9 + 8 * 33))),
    "proc_set": forge(3, join_fields(procs=PROCESSORS_MAX + 1, names=range(1, PROCESSORS_MAX + 2))),
    "fail_set": forge(3, join_fields(fails=PROCESSORS_MAX + 1, names=(1, *range(1, PROCESSORS_MAX + 2)))),
    "memb_list": forge(4, commit_fields(entries=PROCESSORS_MAX + 1)),
    "deliver_memb": forge(4, commit_fields(entries=1, names=PROCESSORS_MAX + 1)),
    "packet": forge(4, commit_fields(entries=1024, names=2**17, tail=bytes(35 * 1024 + 2**19))),
}


@pytest.mark.parametrize("name", OVERSIZED)
def test_counts_over_their_maxima_are_oversized(name):
    assert reason(OVERSIZED[name]) == "oversized"


def test_counts_that_promise_more_than_is_there_are_truncated():
    assert reason(forge(1, message_fields(length=CONTENTS_MAX))) == "truncated"
    assert reason(forge(1, message_fields(groups=GROUPS_MAX))) == "truncated"
    assert reason(forge(2, token_fields(requests=REQUESTS_MAX, ranges=REQUESTS_MAX))) == "truncated"
    assert reason(forge(3, join_fields(procs=PROCESSORS_MAX))) == "truncated"
    assert reason(forge(4, commit_fields(entries=PROCESSORS_MAX))) == "truncated"


def entry(processor=1, ring=(0, 1), names=0, flags=2) -> bytes:
    return ENTRY.pack(processor, *ring, 0, 0, names, flags)


def one_entry(index=0, names=0, tail=None, **fields) -> bytes:
    return commit_fields(index=index, entries=1, names=names, tail=entry(**fields) if tail is None else tail)


MALFORMED = {
    "message sender": forge(1, message_fields(), sender=0),
    "message ring": forge(1, message_fields(representative=0)),
    "message src_sender": forge(1, message_fields(src_sender=0)),
    "message src_ring": forge(1, message_fields(src_ring=(1, 0))),
    "message service": forge(1, message_fields(service=0)),
    "message unknown service": forge(1, message_fields(service=3)),
    "message flags": forge(1, message_fields(), flags=4),
    "message plain contents": forge(
        1, message_fields(length=PLAIN_CONTENTS_MAX + 1), bytes(PLAIN_CONTENTS_MAX + 1)
    ),
    "token sender": forge(2, token_fields(), sender=0),
    "token ring": forge(2, token_fields(representative=0)),
    "token flags": forge(2, token_fields(), flags=4),
    "token ranges": forge(2, token_fields(requests=1, ranges=1, tail=bytes(17))),
    "token empty range": forge(2, token_fields(requests=1, ranges=1, tail=bytes(8) + b"\1" + bytes(8))),
    "join sender": forge(3, join_fields(), sender=0),
    "join flags": forge(3, join_fields(), flags=1),
    "join order": forge(3, join_fields(procs=2, names=(2, 1))),
    "join of others": forge(3, join_fields(names=(2,))),
    "join of the failed": forge(3, join_fields(fails=1, names=(1, 1))),
    "join twice": forge(3, join_fields(procs=2, fails=2, names=(1, 2, 2, 2))),
    "join no processor": forge(3, join_fields(procs=2, names=(0, 1))),
    "commit sender": forge(4, one_entry(), sender=0),
    "commit ring": forge(4, commit_fields(representative=0, entries=1, tail=entry())),
    "commit flags": forge(4, one_entry(), flags=1),
    "commit index": forge(4, one_entry(index=1)),
    "commit of nobody": forge(4, commit_fields()),
    "commit entry": forge(4, one_entry(processor=0)),
    "commit entry ring": forge(4, one_entry(ring=(0, 0))),
    "commit entry flags": forge(4, one_entry(flags=4)),
    "commit names": forge(4, one_entry(names=1, tail=entry(names=0) + bytes(4))),
    "commit no processor": forge(4, one_entry(names=1, tail=entry(names=1) + bytes(4))),
    "null sender": forge(5, NULL.pack(1, 1, 1, 1), sender=0),
    "null ring": forge(5, NULL.pack(1, 1, 0, 1)),
    "null without members": forge(5, NULL.pack(1, 1, 1, 0)),
    "null members": forge(5, NULL.pack(1, 1, 1, PROCESSORS_MAX + 1)),
    "null flags": forge(5, NULL.pack(1, 1, 1, 1), flags=1),
    "leave flags": forge(6, NOTICE.pack(1, 1, 1), flags=1),
    "wake ring": forge(7, NOTICE.pack(1, 1, 0)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_true_checks_do_not_make_sense_of_nonsense(name):
    assert reason(MALFORMED[name]) == "malformed"


def test_forge_forges_what_is_else_accepted():
    for data in (
        forge(1, message_fields(length=3), b"abc"),
        forge(2, token_fields(requests=1, tail=bytes(7) + b"\1\0")),
        forge(3, join_fields(procs=2, fails=1, names=(1, 2, 2))),
        forge(4, one_entry(names=1, tail=entry(names=1, flags=3) + b"\0\0\0\1")),
        forge(5, NULL.pack(1, 1, 1, PROCESSORS_MAX)),
        forge(7, NOTICE.pack(1, 0, 0)),
    ):
        assert CODEC.encode(CODEC.decode(data)) == data


def test_a_packet_over_the_maximum_is_refused_though_its_counts_agree():
    assert len(OVERSIZED["packet"]) > PACKET_BYTES_MAX
