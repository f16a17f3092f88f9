"""A simulation decodes a multicast once, for all its receivers."""

from __future__ import annotations

import pytest

from strategies import SAMPLES
from totempole.errors import CodecError
from totempole.sim.memo import RememberingCodec, shared_codec
from totempole.types import RingKind

MESSAGE, TOKEN = SAMPLES["message"], SAMPLES["token"]


def codec() -> RememberingCodec:
    return RememberingCodec(1, RingKind.CLASSIC)


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


def test_a_view_gives_what_its_bytes_give_even_after_its_owner_reuses_the_buffer():
    one = codec()
    buffer = bytearray(one.encode(MESSAGE))
    assert one.decode(memoryview(buffer)) == MESSAGE
    buffer[:] = one.encode(MESSAGE._replace(seq=7))
    assert one.decode(memoryview(buffer)).seq == 7


def test_processors_of_one_kind_share_a_codec():
    assert shared_codec(1, RingKind.CLASSIC) is shared_codec(1, RingKind.CLASSIC)
    assert shared_codec(1, RingKind.CLASSIC) is not shared_codec(2, RingKind.CLASSIC)
