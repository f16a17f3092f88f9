"""Frames out of a stream of bytes."""

from __future__ import annotations

from collections.abc import Mapping

from totempole.client.frame_decoding import decode
from totempole.client.frame_types import (
    DAEMON_KINDS,
    HEAD,
    Kind,
    Large,
    kind_name,
)
from totempole.errors import CodecError
from totempole.types import Payload


class Assembly:
    """The body that a LARGE announced, filled by its PARTs."""

    __slots__ = ("_buffer", "_filled", "kind", "total")

    def __init__(self, kind: Kind, total: int) -> None:
        self.kind = kind
        self.total = total
        self._buffer = bytearray(total)
        self._filled = 0

    def add(self, content: Payload) -> bool:
        """Whether it is whole now. More than was announced, or nothing at all, raises CodecError."""
        stop = self._filled + len(content)
        if not content or stop > self.total:
            raise CodecError("frame malformed", "PART does not fit its LARGE")
        self._buffer[self._filled : stop] = content
        self._filled = stop
        return stop == self.total

    @property
    def body(self) -> memoryview:
        return memoryview(self._buffer).toreadonly()


class FrameReader:
    """Puts frames together from what a socket gives.

    `kinds` are those that the other side may send, and the longest body of each. With `large_bytes_max` the
    parts of a LARGE come out as the one frame that they are; without, as they come.
    """

    def __init__(self, kinds: Mapping[int, int] = DAEMON_KINDS, large_bytes_max: int = 0) -> None:
        self._kinds = kinds
        self._large_bytes_max = large_bytes_max
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._assembly: Assembly | None = None

    def __len__(self) -> int:
        """Bytes that were fed and are not taken yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        if self._at == len(self._buffer):
            self._buffer, self._at = data, 0
            return
        if isinstance(self._buffer, bytes):
            self._buffer = bytearray(memoryview(self._buffer)[self._at :])
        else:
            del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def take(self, most: int = 2**31) -> list[tuple[int, Payload]]:
        """The frames that are whole, kind and body, so many at most.

        What cannot be a frame raises CodecError, once the frames before it were taken.
        """
        found: list[tuple[int, Payload]] = []
        try:
            while len(found) < most and (frame := self._next()) is not None:
                found += self._assemble(*frame) if self._large_bytes_max else [frame]
        except CodecError:
            if not found:
                raise
        return found

    def _next(self) -> tuple[int, bytes] | None:
        start = self._at + HEAD.size
        if start > len(self._buffer):
            return None
        length, kind = HEAD.unpack_from(self._buffer, self._at)
        if length > self._kinds.get(kind, -1):
            raise _unfit(kind, length, kind in self._kinds)
        stop = start + length
        if stop > len(self._buffer):
            return None
        self._at = stop
        with memoryview(self._buffer) as view:
            return kind, view[start:stop].tobytes()

    def _assemble(self, kind: int, body: bytes) -> list[tuple[int, Payload]]:
        if kind == Kind.LARGE:
            large = _read_large_body(body)
            if not 0 < large.total <= self._large_bytes_max or self._assembly is not None:
                raise CodecError("frame malformed", f"LARGE of {large.total} bytes out of place")
            self._assembly = Assembly(large.kind, large.total)
            return []
        if kind != Kind.PART:
            return [(kind, body)]
        assembly = self._assembly
        if assembly is None:
            raise CodecError("frame malformed", "PART without a LARGE")
        if not assembly.add(body):
            return []
        self._assembly = None
        return [(assembly.kind, assembly.body)]


def _read_large_body(body: bytes) -> Large:
    large: Large = decode(Kind.LARGE, body)
    return large


def _unfit(kind: int, length: int, known: bool) -> CodecError:
    if not known:
        return CodecError("frame unknown", f"{kind_name(kind)} is not expected here")
    return CodecError("frame too long", f"{kind_name(kind)} of {length} bytes")
