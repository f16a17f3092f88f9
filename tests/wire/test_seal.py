"""The seal: what it hides, what it refuses, which nonces it uses, and how keys change under it."""

import hmac
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from strategies import SAMPLES, packets
from totempole.errors import CodecError, ConfigurationError
from totempole.srp.formats import ring_codec
from totempole.srp.layout import CONTENTS_MAX, ENTRY, GROUPS_MAX, PLAIN_CONTENTS_MAX
from totempole.types import RingKind
from totempole.wire import Codec, seal
from totempole.wire.layout import HEADER, PACKET_BYTES_MAX, PROCESSOR_BYTES, SEAL_BYTES
from totempole.wire.seal import COUNTER_MAX, KEYS_MAX, SUBKEYS_MAX, Key, Keyring, Seal

CLUSTER = 1
PLAIN = ring_codec(CLUSTER, RingKind.CLASSIC)
OLD, NEW = Key(1, bytes(range(32))), Key(2, bytes(range(32, 64)))
ONE = Keyring((OLD,))
MESSAGE, WAKE = SAMPLES["message"], SAMPLES["wake"]
REASONS = {
    *("truncated", "oversized", "magic", "version", "cluster", "ring kind"),
    *("key", "unsealed", "seal", "type", "malformed"),
}
COUNTER = slice(HEADER.size, HEADER.size + 8)
KEY_AT = 5


def seal_of(packet=MESSAGE, keyring=ONE, cluster_id=CLUSTER) -> Seal:
    """The seal of the packet's sender."""
    return Seal(keyring, cluster_id, packet.sender, packet.incarnation)


def codec(packet=MESSAGE, keyring=ONE, cluster_id=CLUSTER) -> Codec:
    return ring_codec(cluster_id, RingKind.CLASSIC, seal_of(packet, keyring, cluster_id))


def reason(data: bytes, reader: Codec | None = None) -> str:
    with pytest.raises(CodecError) as caught:
        (reader or codec()).decode(data)
    assert caught.value.reason in REASONS
    return caught.value.reason


# Round trips


@given(packets)
def test_what_was_sealed_can_be_opened(packet):
    decoded = codec().decode(codec(packet).encode(packet))
    assert decoded == packet
    assert type(decoded) is type(packet)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_seal_adds_a_counter_and_a_tag(name):
    sealed, plain = codec().encode(SAMPLES[name]), PLAIN.encode(SAMPLES[name])
    assert len(sealed) == len(plain) + SEAL_BYTES
    assert sealed[KEY_AT] == OLD.id
    assert plain[HEADER.size : HEADER.size + 12] not in sealed


def test_views_are_opened_too():
    assert codec().decode(memoryview(codec().encode(MESSAGE))) == MESSAGE


def test_the_largest_message_can_be_recovered():
    groups = tuple(range(GROUPS_MAX))
    plain = MESSAGE._replace(groups=groups, contents=bytes(PLAIN_CONTENTS_MAX))
    inner = codec().encode(plain)
    assert len(inner) == CONTENTS_MAX
    outer = MESSAGE._replace(groups=groups, recovered=True, contents=inner)
    data = codec().encode(outer)
    assert codec().decode(codec().decode(data).contents) == plain


def test_encoding_refuses_a_packet_that_the_seal_makes_too_long():
    entry = SAMPLES["commit"].memb_list[0]
    entries = [entry._replace(processor=q, deliver_memb=tuple(range(q, q + 1_020))) for q in range(2, 129)]
    token = SAMPLES["commit"]._replace(memb_list=tuple(entries))
    spare = PACKET_BYTES_MAX - len(PLAIN.encode(token))
    names = range(200, 200 + (spare - ENTRY.size) // PROCESSOR_BYTES)
    entries.append(entry._replace(processor=200, deliver_memb=tuple(names)))
    token = token._replace(memb_list=tuple(entries))
    assert len(PLAIN.encode(token)) > PACKET_BYTES_MAX - SEAL_BYTES
    with pytest.raises(ConfigurationError, match="at most"):
        codec().encode(token)


# What it is, byte by byte


GOLDEN = (
    "5450020702010000c1c2c3c4c5c6c7c8000000030000000500000000"  # header
    "0000000000000001"  # counter
    "9da14a7a6b41b229b4acf831b13a0e2cfcebf614"  # fields
    "662cc2a72d22c5d8a76c380e95e68e13"  # tag
)


def test_golden_bytes():
    """A change here is a change of the format: raise its version."""
    sealed = ring_codec(0xC1C2C3C4C5C6C7C8, RingKind.ACCELERATED, seal_of(cluster_id=0xC1C2C3C4C5C6C7C8))
    assert sealed.encode(WAKE).hex() == GOLDEN
    assert sealed.decode(bytes.fromhex(GOLDEN)) == WAKE


def test_the_format_in_terms_of_its_parts():
    """HKDF by its two HMACs, AES-GCM by hand: what another implementation would do."""
    data = codec().encode(MESSAGE)
    header, counter, body = data[: HEADER.size], data[COUNTER], data[COUNTER.stop :]
    identity = CLUSTER.to_bytes(8) + MESSAGE.sender.to_bytes(4) + MESSAGE.incarnation.to_bytes(4)
    info = b"totempole seal 1" + identity
    extracted = hmac.digest(bytes(32), OLD.secret, "sha256")
    subkey = hmac.digest(extracted, info + b"\1", "sha256")
    fields = AESGCM(subkey).decrypt(bytes(4) + counter, body, header)
    assert int.from_bytes(counter) == 1
    assert fields == PLAIN.encode(MESSAGE)[HEADER.size :]
    assert header[-4:] == bytes(4)


# What it refuses


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flipped_bit_is_found(name):
    data = codec().encode(SAMPLES[name])
    reader = codec()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        reason(bytes(flipped), reader)
    assert reader.decode(data) == SAMPLES[name]


@given(packets, st.data())
def test_any_packet_cut_short_or_drawn_out_is_refused(packet, data):
    sealed = codec(packet).encode(packet)
    length = data.draw(st.integers(0, len(sealed) - 1))
    expected = "truncated" if length < HEADER.size + SEAL_BYTES else "seal"
    assert reason(sealed[:length]) == expected
    assert reason(sealed + b"\0") == "seal"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_are_refused(junk, tail):
    reason(junk)
    reason(codec().encode(MESSAGE)[: HEADER.size] + tail)


def test_what_is_too_long_is_not_even_opened(monkeypatch):
    reader, data = codec(), codec().encode(MESSAGE)
    monkeypatch.setattr(seal, "_subkey", None)
    assert reason(data.ljust(PACKET_BYTES_MAX + 1, b"\0"), reader) == "oversized"


def test_a_wrong_key_is_known_by_its_id_or_by_the_seal():
    data = codec().encode(MESSAGE)
    assert reason(data, codec(keyring=Keyring((NEW,)))) == "key"
    assert reason(data, codec(keyring=Keyring((Key(OLD.id, NEW.secret),)))) == "seal"


def test_unsealed_to_sealed_and_the_other_way():
    assert reason(PLAIN.encode(MESSAGE)) == "unsealed"
    assert reason(codec().encode(MESSAGE), PLAIN) == "key"


def put(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


FOREIGN = {
    "magic": (0, 0),
    "version": (2, 99),
    "ring kind": (4, RingKind.ACCELERATED),
    "key": (KEY_AT, 7),
    "unsealed": (KEY_AT, 0),
    "cluster": (15, 2),
}


@pytest.mark.parametrize("expected", FOREIGN)
def test_what_is_not_ours_is_told_apart_before_it_is_opened(expected, monkeypatch):
    reader = codec()
    data = codec().encode(MESSAGE)
    monkeypatch.setattr(seal, "_subkey", None)
    assert reason(put(data, *FOREIGN[expected]), reader) == expected


@pytest.mark.parametrize(
    ("at", "what"), [(3, "type"), (7, "flags"), (19, "sender"), (23, "incarnation"), (27, "check")]
)
def test_the_header_is_vouched_for(at, what):
    data = codec().encode(MESSAGE)
    assert reason(put(data, at, data[at] ^ 3)) == "seal", what


def test_clusters_with_one_key_do_not_open_each_others_packets():
    theirs = codec(cluster_id=2).encode(MESSAGE)
    assert reason(theirs) == "cluster"
    assert reason(put(theirs, 15, CLUSTER)) == "seal"


def under_a_true_seal(packet, **header) -> bytes:
    """A packet that only who holds the key can make, with a header that nobody makes."""
    parts = {"kind": 1, "flags": 0, "check": 0, "body": b""} | header
    head = HEADER.pack(
        *(b"TP", 2, parts["kind"], RingKind.CLASSIC, OLD.id, parts["flags"]),
        *(CLUSTER, packet.sender, packet.incarnation, parts["check"]),
    )
    return seal_of(packet).close(head, parts["body"])


def test_a_true_seal_does_not_make_sense_of_nonsense():
    assert reason(under_a_true_seal(MESSAGE, kind=99)) == "type"
    assert reason(under_a_true_seal(MESSAGE, kind=7, check=1, body=bytes(20))) == "malformed"
    assert reason(under_a_true_seal(MESSAGE, kind=7, flags=1, body=bytes(20))) == "malformed"
    assert reason(under_a_true_seal(MESSAGE, kind=7, body=bytes(19))) == "truncated"
    assert reason(under_a_true_seal(MESSAGE, kind=7, body=bytes(21))) == "oversized"
    assert codec().decode(under_a_true_seal(WAKE, kind=7, body=bytes(20))) == WAKE._replace(counter=0)


@given(st.integers(1, 7), st.binary(max_size=300), st.integers(0, 3))
def test_random_fields_under_a_true_seal_are_refused_or_sound(kind, body, flags):
    data = under_a_true_seal(MESSAGE, kind=kind, flags=flags, body=body)
    try:
        packet = codec().decode(data)
    except CodecError:
        return
    assert codec().encode(packet) == data


def test_identical_bytes_are_opened_again_and_nothing_is_remembered():
    reader, data = codec(), codec().encode(MESSAGE)
    assert reader.decode(data) == reader.decode(data) == MESSAGE
    reader._seal.rekey(Keyring((NEW,)))
    assert reason(data, reader) == "key"


# Nonces


def test_no_counter_is_used_twice_by_one_seal_whatever_the_keys():
    writer = codec()
    used = set()
    for keyring in (ONE, Keyring((NEW, OLD)), ONE, Keyring((OLD, NEW))):
        writer._seal.rekey(keyring)
        for packet in SAMPLES.values():
            used.add(writer.encode(packet)[COUNTER])
    assert used == {number.to_bytes(8) for number in range(1, 4 * len(SAMPLES) + 1)}


def test_a_packet_that_is_refused_by_encode_uses_up_no_nonce():
    writer = codec()
    with pytest.raises(ConfigurationError):
        writer.encode(MESSAGE._replace(seq=-1))
    assert writer.encode(MESSAGE)[COUNTER] == (1).to_bytes(8)


def test_equal_counters_of_different_senders_and_lives_have_different_subkeys():
    lives = [MESSAGE, MESSAGE._replace(sender=4), MESSAGE._replace(incarnation=6)]
    bodies = {codec(packet).encode(packet)[COUNTER.stop :] for packet in lives}
    assert len({codec(packet).encode(packet)[COUNTER] for packet in lives}) == 1
    assert len(bodies) == len(lives)


@pytest.mark.parametrize("other", [{"sender": 4}, {"incarnation": 6}])
def test_only_the_sender_itself_may_seal(other):
    with pytest.raises(ConfigurationError, match="only these themselves"):
        codec().encode(MESSAGE._replace(**other))


def test_a_seal_of_another_cluster_is_of_no_use_to_a_codec():
    with pytest.raises(ConfigurationError, match="only these themselves"):
        ring_codec(2, RingKind.CLASSIC, seal_of()).encode(MESSAGE)


def test_at_the_end_of_the_counter_nothing_is_sealed_any_more():
    writer = codec()
    writer._seal._counter = COUNTER_MAX - 1
    assert codec().decode(writer.encode(MESSAGE)) == MESSAGE
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="has run out"):
            writer.encode(MESSAGE)


@pytest.mark.parametrize("identity", [(2**64, 1, 1), (1, 2**32, 1), (1, 1, 2**32), (1, -1, 1)])
def test_an_identity_fits_the_header(identity):
    with pytest.raises(ConfigurationError, match="give at most"):
        Seal(ONE, *identity)


# Rotation

STEPS = [ONE, Keyring((OLD, NEW)), Keyring((NEW, OLD)), Keyring((NEW,))]


def test_a_rotation_loses_nothing_while_hosts_are_at_most_one_step_apart():
    for before, after in pairwise(STEPS):
        for writer, reader in ((before, after), (after, before)):
            data = codec(keyring=writer).encode(MESSAGE)
            assert codec(keyring=reader).decode(data) == MESSAGE
            assert data[KEY_AT] == writer.active.id


def test_what_was_sealed_before_a_step_can_be_sent_again_after_it():
    processor = codec()
    sealed = processor.encode(MESSAGE)
    for keyring in STEPS[1:3]:
        processor._seal.rekey(keyring)
        assert processor.decode(sealed) == MESSAGE
    processor._seal.rekey(STEPS[3])
    assert reason(sealed, processor) == "key"
    assert processor.decode(processor.encode(MESSAGE)) == MESSAGE


def test_steps_skipped_are_noticed():
    assert reason(codec(keyring=STEPS[2]).encode(MESSAGE), codec(keyring=STEPS[0])) == "key"
    assert reason(codec(keyring=STEPS[1]).encode(MESSAGE), codec(keyring=STEPS[3])) == "key"


def test_a_new_key_under_an_old_id_is_a_new_key():
    processor, sealed = codec(), codec().encode(MESSAGE)
    assert processor.decode(sealed) == MESSAGE
    processor._seal.rekey(Keyring((Key(OLD.id, NEW.secret),)))
    assert reason(sealed, processor) == "seal"


def test_a_ring_has_one_or_two_keys_of_different_ids():
    with pytest.raises(ConfigurationError, match="0 keys: give 1 to 2"):
        Keyring(())
    with pytest.raises(ConfigurationError, match="3 keys: give 1 to 2"):
        Keyring((OLD, NEW, Key(3, OLD.secret)))
    with pytest.raises(ConfigurationError, match="two keys have the id 1"):
        Keyring((OLD, Key(1, NEW.secret)))
    assert len(Keyring((OLD, NEW)).keys) == KEYS_MAX


@pytest.mark.parametrize("key_id", [0, 256, -1])
def test_key_ids_run_from_1_to_255(key_id):
    with pytest.raises(ConfigurationError, match="from 1 to 255"):
        Key(key_id, OLD.secret)
    assert [Key(edge, OLD.secret).id for edge in (1, 255)] == [1, 255]


def test_a_key_has_32_bytes_and_never_shows_them():
    with pytest.raises(ConfigurationError, match="31 bytes: give 32"):
        Key(1, bytes(31))
    assert repr(ONE) == "Keyring(keys=(Key(id=1),))"


# Subkeys that are remembered


def test_subkeys_are_derived_once_and_the_oldest_is_forgotten(monkeypatch):
    derived = []
    derive = seal._subkey
    reader = codec()
    sealed = [codec(p).encode(p) for p in (WAKE._replace(sender=s) for s in range(1, SUBKEYS_MAX + 2))]

    def spy(secret, identity):
        derived.append(identity)
        return derive(secret, identity)

    monkeypatch.setattr(seal, "_subkey", spy)
    for data in sealed[:SUBKEYS_MAX]:
        reader.decode(data)
    assert len(derived) == len(reader._seal._subkeys) == SUBKEYS_MAX
    reader.decode(sealed[0])
    assert len(derived) == SUBKEYS_MAX
    reader.decode(sealed[SUBKEYS_MAX])
    assert len(reader._seal._subkeys) == SUBKEYS_MAX
    reader.decode(sealed[1])
    assert len(derived) == SUBKEYS_MAX + 1
    assert reader.decode(sealed[0]).sender == 1
    assert len(derived) == SUBKEYS_MAX + 2


def test_forgers_push_out_no_subkey():
    reader, data = codec(), codec().encode(MESSAGE)
    reader.decode(data)
    for sender in range(10):
        assert reason(put(data, 18, sender + 1), reader) == "seal"
    assert len(reader._seal._subkeys) == 1
