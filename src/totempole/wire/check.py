"""The check of a packet without a seal: a CRC-32 (docs/decisions/0002-what-the-checksum-covers.md).

It covers all of the packet, or all but the contents where the sender says so. It finds damage, and is no
defence against forgers.
"""

from __future__ import annotations

from isal.isal_zlib import crc32  # as zlib's, and ten times as fast over long contents

from totempole.types import Payload


def check_of(head: bytes, fields: bytes, contents: Payload) -> int:
    check = crc32(fields, crc32(head))
    return crc32(contents, check) if contents else check
