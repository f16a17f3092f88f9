"""Each assertion of `wire` fails when what it says is broken."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from invariants_seen import Breakage, assertions_in, failed_at
from totempole.wire import Codec, Format, Formats, codec, seal
from totempole.wire.codec import UNCHECKED, verify
from totempole.wire.layout import HEADER, UNSEALED
from totempole.wire.seal import COUNTER_MAX, SUBKEYS_MAX, Key, Keyring, Seal

KEYRING = Keyring((Key(1, bytes(32)),))


class Packet(tuple):
    """Of sender 1 in its life 1."""


def form(number: int = 1, packet: type = Packet, flags: int = 0) -> Format:
    return Format(number, packet, lambda _: (flags, b"fields", b""), lambda *_: None)


def a_codec(sealed: Seal | None = None, flags: int = 0) -> Codec:
    return Codec(Formats(form(flags=flags)), 1, 1, sealed)


def a_seal() -> Seal:
    return Seal(KEYRING, 1, 1, 1)


def a_packet_sealed() -> bytes:
    return a_codec(a_seal()).encode(Packet((1, 1)))


# Codec


def two_formats_of_one_type(patch: pytest.MonkeyPatch) -> None:
    Formats(form(1), form(1, tuple))


def a_type_that_is_no_byte(patch: pytest.MonkeyPatch) -> None:
    Formats(form(256))


def a_header_that_does_not_end_with_the_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(codec, "CHECK_BYTES", 5)
    a_codec()


def a_seal_without_a_key(patch: pytest.MonkeyPatch) -> None:
    sealed = a_seal()
    sealed.key_id = UNSEALED
    a_codec(sealed)


def a_format_with_the_flag_of_the_check(patch: pytest.MonkeyPatch) -> None:
    a_codec(flags=UNCHECKED).encode(Packet((1, 1)))


def a_route_on_a_ring_that_is_on_one_network(patch: pytest.MonkeyPatch) -> None:
    a_codec().encode(Packet((1, 1)), route=1)


def fields_that_end_before_they_begin(patch: pytest.MonkeyPatch) -> None:
    verify(bytes(100), HEADER.size, HEADER.size - 1, 100, 0)


# Seal


def an_identity_longer_than_the_headers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seal, "IDENTITY", slice(9, None))
    a_seal()


def two_keys_of_one_id(patch: pytest.MonkeyPatch) -> None:
    a_seal().rekey(SimpleNamespace(keys=KEYRING.keys * 2, active=KEYRING.active))


def half_a_header_sealed(patch: pytest.MonkeyPatch) -> None:
    packet = a_packet_sealed()
    a_seal().close(packet[: HEADER.size - 1], b"body")


def a_counter_that_has_run_over(patch: pytest.MonkeyPatch) -> None:
    sealed = a_seal()
    sealed._counter = COUNTER_MAX + 1
    sealed.close(a_packet_sealed()[: HEADER.size], b"body")


def an_opened_packet_that_has_grown(patch: pytest.MonkeyPatch) -> None:
    packet, reader = a_packet_sealed(), a_codec(a_seal())
    patch.setattr(seal, "_subkey", lambda *_: SimpleNamespace(decrypt=lambda *_: bytes(1_000)))
    reader.decode(packet)


def more_subkeys_than_are_remembered(patch: pytest.MonkeyPatch) -> None:
    sealed = a_seal()
    sealed._subkeys = {(1, bytes((at % 256, at // 256))): sealed._active for at in range(SUBKEYS_MAX + 1)}
    sealed._remember((1, b"new"), sealed._active)


def a_subkey_of_half_an_identity(patch: pytest.MonkeyPatch) -> None:
    seal._subkey(bytes(32), b"half")


def keys_for_a_codec_without_a_seal(patch: pytest.MonkeyPatch) -> None:
    Codec(Formats(), 1, 1).rekey(Keyring((Key(1, bytes(32)),)))


BREAKAGES: tuple[Breakage, ...] = (
    two_formats_of_one_type,
    a_type_that_is_no_byte,
    a_header_that_does_not_end_with_the_check,
    a_seal_without_a_key,
    a_format_with_the_flag_of_the_check,
    a_route_on_a_ring_that_is_on_one_network,
    fields_that_end_before_they_begin,
    an_identity_longer_than_the_headers,
    two_keys_of_one_id,
    half_a_header_sealed,
    a_counter_that_has_run_over,
    an_opened_packet_that_has_grown,
    more_subkeys_than_are_remembered,
    a_subkey_of_half_an_identity,
    keys_for_a_codec_without_a_seal,
)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_what_is_broken_is_noticed(breakage: Breakage) -> None:
    assert failed_at(breakage) in assertions_in("wire")


def test_every_assertion_was_seen_to_fail() -> None:
    assert {failed_at(breakage) for breakage in BREAKAGES} == assertions_in("wire")
