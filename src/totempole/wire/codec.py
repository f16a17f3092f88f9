"""Packets to bytes and back: the header, the check, the seal, and a registry of an engine's packets.

Decoding asks, in this order, so that each refusal has its true reason: is it ours (magic, version, cluster,
ring kind, key, type), is it all there and no more (truncated, oversized), is it unharmed (checksum), does it
mean anything (malformed). What the check covers: check.py. The last three are asked by the format of the
packet's type, which the engine brings (`Formats`, srp/formats.py), with the functions below.

With a seal, packets without one are refused (unsealed), and what follows the key is asked only of packets
that the seal vouches for (seal): docs/decisions/0009-the-seal.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from totempole.errors import CodecError, ConfigurationError
from totempole.types import Payload
from totempole.wire.check import check_of
from totempole.wire.layout import (
    CHECK_BYTES,
    HEAD,
    HEADER,
    MAGIC,
    PACKET_BYTES_MAX,
    ROUTE_SHIFT,
    UNSEALED,
    VERSION,
)

if TYPE_CHECKING:
    from totempole.wire.seal import (  # else whoever needs no seal would wait for `cryptography` to load
        Keyring,
        Seal,
    )

Packet = Any
"""A named tuple of the engine's, whose first two fields are `sender` and `incarnation`."""

Written = tuple[int, bytes, Payload]
"""Flags, protocol fields, contents."""

Head = tuple[int, int, int, int]
"""Flags, sender, incarnation, check (or VOUCHED)."""

VOUCHED = -1
"""Stands for the check of a packet whose seal was whole, which says more than any check."""

UNCHECKED = 4
"""The flag of a packet whose check does not cover its contents. No format may use this bit."""

_NO_CHECK = bytes(CHECK_BYTES)
"""The check of a sealed packet, in its header."""

_FIELDS = HEADER.size
_FLAGS = (1 << ROUTE_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class Format:
    """How packets of one class are written, and read: from bytes, from where in them the protocol fields
    start, and from what the header says."""

    number: int
    """The packet's type, in the header."""
    packet: type
    write: Callable[[Any], Written]
    read: Callable[[bytes, int, Head], Packet]


class Formats:
    """All packets of an engine."""

    def __init__(self, *formats: Format) -> None:
        self.all = formats
        self.writers = {each.packet: (each.number, each.write) for each in formats}
        self.readers = {each.number: each.read for each in formats}
        assert len(self.writers) == len(self.readers) == len(formats), "two formats of one packet or type"
        assert all(0 < each.number < 256 for each in formats), "a packet's type is one byte, and not 0"


class Codec:
    """Encodes and decodes an engine's packets, of one cluster and one ring kind.

    `check_contents`: whether the check of what is encoded without a seal covers contents. What is decoded
    says so itself. `routed`: whether packets may have routes.

    Without a seal, both directions are pure functions. With one, the codec is its sender's own, and each
    encoding differs from all before.
    """

    __slots__ = ("_check_contents", "_cluster_id", "_readers", "_ring_kind", "_routed", "_seal", "_writers")

    def __init__(
        self,
        formats: Formats,
        cluster_id: int,
        ring_kind: int,
        seal: Seal | None = None,
        check_contents: bool = True,
        routed: bool = False,
    ) -> None:
        if not 0 <= cluster_id < 2**64:
            raise ConfigurationError(f"cluster_id = {cluster_id}: give a number from 0 to 2**64 - 1")
        assert HEAD.size + CHECK_BYTES == HEADER.size, "the check ends the header"
        assert seal is None or seal.key_id != UNSEALED, "a seal has a key"
        self._writers = formats.writers
        self._readers = formats.readers
        self._cluster_id = cluster_id
        self._ring_kind = int(ring_kind)
        self._seal = seal
        self._check_contents = check_contents
        self._routed = routed

    def rekey(self, keyring: Keyring) -> None:
        """From now on seals with the keyring's active key, and accepts its keys and no others."""
        assert self._seal is not None, "a codec without a seal cannot be given keys"
        self._seal.rekey(keyring)

    def encode(self, packet: Packet, route: int = 0) -> bytes:
        """The packet's bytes. What `decode` would refuse is not built, but raises ConfigurationError."""
        assert not route or self._routed, "a route on a ring that is on one network"
        kind, write = self._writers[type(packet)]
        seal = self._seal
        key = UNSEALED if seal is None else seal.key_id
        try:
            flags, fields, contents = write(packet)
            assert not flags & UNCHECKED, "a format uses the flag of the check"
            unchecked = contents and seal is None and not self._check_contents
            if unchecked:
                flags |= UNCHECKED
            if route:
                flags |= route << ROUTE_SHIFT
            head = HEAD.pack(
                MAGIC, VERSION, kind, self._ring_kind, key, flags, self._cluster_id, packet[0], packet[1]
            )
        except struct.error as error:
            raise ConfigurationError(f"{type(packet).__name__}: a number does not fit: {error}") from error
        if seal is None:
            check = check_of(head, fields, b"" if unchecked else contents).to_bytes(CHECK_BYTES, "big")
            data = b"".join((head, check, fields, contents))
        else:
            data = seal.close(head + _NO_CHECK, fields + contents)
        if len(data) > PACKET_BYTES_MAX:
            raise ConfigurationError(
                f"{type(packet).__name__}: {len(data)} bytes; a packet has at most {PACKET_BYTES_MAX}"
            )
        return data

    def decode(self, data: bytes | memoryview) -> Packet:
        """The packet that these bytes are, or CodecError with one of the reasons named above."""
        data = bytes(data)  # no copy of bytes; of a view a copy, which its owner cannot change
        if len(data) < _FIELDS:
            raise CodecError("truncated")
        magic, version, kind, ring_kind, key, flags, cluster, sender, incarnation, check = HEADER.unpack_from(
            data
        )
        if magic != MAGIC:
            raise CodecError("magic")
        if version != VERSION:
            raise CodecError("version")
        if cluster != self._cluster_id:
            raise CodecError("cluster")
        if ring_kind != self._ring_kind:
            raise CodecError("ring kind")
        if self._routed:
            flags &= _FLAGS  # else the format finds them malformed
        start = _FIELDS
        if self._seal is not None:
            data, start = self._seal.open(key, data), 0
            accept(check == 0)
            check = VOUCHED
        elif key != UNSEALED:
            raise CodecError("key")
        read = self._readers.get(kind)
        if read is None:
            raise CodecError("type")
        return read(data, start, (flags, sender, incarnation, check))


# For formats


def verify(
    data: bytes, start: int, fields_stop: int, stop: int, check: int, covers_contents: bool = True
) -> None:
    """Checks the packet's length, then its check, which covers all of it but itself."""
    assert start <= fields_stop <= stop, "the contents follow the fields, which follow the header"
    if len(data) != stop or stop > PACKET_BYTES_MAX:
        raise CodecError("truncated" if len(data) < stop else "oversized")
    if check == VOUCHED:
        return
    contents = memoryview(data)[fields_stop:] if covers_contents and fields_stop < stop else b""
    if check_of(data[: HEAD.size], data[start:fields_stop], contents) != check:
        raise CodecError("checksum")


def fixed(layout: struct.Struct, data: bytes, start: int) -> tuple[Any, ...]:
    """The fixed fields, with which a packet's own begin."""
    if len(data) < start + layout.size:
        raise CodecError("truncated")
    return layout.unpack_from(data, start)


def limit(count: int, maximum: int) -> None:
    if count > maximum:
        raise CodecError("oversized")


def accept(sound: bool) -> None:
    if not sound:
        raise CodecError("malformed")


def demand(sound: bool, packet: Packet) -> None:
    if not sound:
        raise ConfigurationError(
            f"{type(packet).__name__}: a field is outside its domain; its soundness module says what holds"
        )
