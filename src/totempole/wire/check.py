"""The check of a packet without a seal (docs/decisions/0002-what-the-checksum-covers.md).

It finds damage, and is no defence against forgers: the key of the check over long contents is public.

CRC-32 covers the header and the protocol's fields. Over long contents it would cost more than all the rest of
decoding, so these are covered by the tag of AES-GCM under a fixed key and nonce, which processors compute at
many gigabytes a second.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from zlib import crc32

from totempole.types import Payload
from totempole.wire.layout import CHECK_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LONG_CONTENTS = 2_048
"""From here on the tag is cheaper than the CRC."""

_KEY, _NONCE = bytes(32), bytes(12)


def check_of(head: bytes, fields: bytes, contents: Payload) -> int:
    check = crc32(fields, crc32(head))
    return check ^ _contents_check(contents) if contents else check


def _contents_check(contents: Payload) -> int:
    if len(contents) < LONG_CONTENTS:
        return crc32(contents)
    return int.from_bytes(_cipher().encrypt(_NONCE, b"", contents)[:CHECK_BYTES], "big")


@cache
def _cipher() -> AESGCM:
    # Here, or else every program that imports the package would wait for `cryptography` to load.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_KEY)
