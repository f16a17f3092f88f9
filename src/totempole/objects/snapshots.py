"""A snapshot: the whole of a machine at one place in the order, as bytes.

It has the state and everything that decides what the next command does: the clients' table, the version, the
hosts and the digests. Two hosts that have applied the same records, and started from any snapshots, have the
same bytes.
"""

from __future__ import annotations

import struct

import msgspec

from totempole.errors import ObjectError, ObjectVersionError
from totempole.objects.clients import TableRows
from totempole.objects.digests import DigestRows
from totempole.objects.records import Limits
from totempole.objects.versions import HostRow

SNAPSHOT_FORMAT = 1
MAGIC = b"\xc1totempole object\n"
_HEAD = struct.Struct("<BQQ")
"""Format, bytes of the head, bytes of the state."""


class SnapshotHead(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """Of the class."""
    version: int
    applied: int
    """Records before this position are in it, later ones are not."""
    time_us: int
    commands: int
    limits: Limits
    table: TableRows
    hosts: tuple[HostRow, ...]
    digests: DigestRows
    failed_upgrade: int


class Snapshot:
    __slots__ = ("head", "state")

    def __init__(self, head: SnapshotHead, state: bytes | memoryview) -> None:
        self.head = head
        self.state = state
        """As the class's `StateCodec` writes it."""

    @property
    def applied(self) -> int:
        return self.head.applied

    def pieces(self) -> tuple[bytes, bytes | memoryview]:
        """Written one after the other they are the snapshot. The second one may be large."""
        return beginning(self.head, len(self.state)), self.state

    def encode(self) -> bytes:
        return b"".join(self.pieces())

    @classmethod
    def decode(cls, content: bytes | memoryview) -> Snapshot:
        """Keeps a view of the content: it is not copied. Raises ObjectError."""
        view = memoryview(content)
        start = len(MAGIC) + _HEAD.size
        if bytes(view[: len(MAGIC)]) != MAGIC or len(view) < start:
            raise ObjectError("this is no snapshot of an object")
        form, head_bytes, state_bytes = _HEAD.unpack_from(view, len(MAGIC))
        if form != SNAPSHOT_FORMAT:
            raise ObjectVersionError(f"a snapshot of format {form}; this program knows {SNAPSHOT_FORMAT}")
        if len(view) != start + head_bytes + state_bytes:
            raise ObjectError(
                f"a snapshot of {len(view)} bytes, which should have {start + head_bytes + state_bytes}"
            )
        head = decode_head(view[start : start + head_bytes])
        return cls(head, view[start + head_bytes :])


encode_head = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(SnapshotHead)


def beginning(head: SnapshotHead, state_bytes: int) -> bytes:
    """Of a snapshot whose state has so many bytes: these follow."""
    content = encode_head(head)
    return MAGIC + _HEAD.pack(SNAPSHOT_FORMAT, len(content), state_bytes) + content


def decode_head(content: bytes | memoryview) -> SnapshotHead:
    """Raises ObjectError."""
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ObjectError(f"a snapshot that cannot be read: {error}") from None
