"""A large value in pieces: the bytes that `Codec.encode` gives, and never all of them in memory.

A dict or a list with many items is written some items at a time. To compare what is read back with the value,
these items suffice, too. So neither the bytes nor what is read back from them takes memory that counts, and
whoever writes the pieces can rest between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Any

from totempole.objects.codec import LARGE, Codec

PIECE_ITEMS = 1_024
"""A dict or a list that has no more of them is one piece."""

Piece = bytes | bytearray | memoryview

_SMALL, _MIDDLE, _LARGEST = Struct(">B"), Struct(">BH"), Struct(">BI")
_KINDS: dict[type, tuple[int, int, int]] = {dict: (0x80, 0xDE, 0xDF), list: (0x90, 0xDC, 0xDD)}
"""How msgpack begins up to 15 items, up to 65,535, and more."""


class IndivisibleError(Exception):
    """The value has integers of more than 64 bits: all of it is written in the second form."""


def pieces(
    codec: Codec[Any], value: Any, *, is_exact: bool = False, items: int = PIECE_ITEMS
) -> Iterator[Piece]:
    """What `encode` gives, or `encode_exact`. Raises CannotCarryError as they do, and IndivisibleError."""
    encode = codec.encode_exact if is_exact else codec.encode
    kind = type(value)
    if not codec.is_divisible or kind not in _KINDS or len(value) <= items:
        yield encode(value)
        return
    yield _head(kind, len(value))
    for part in _divided(value, items):
        content = encode(part)
        if content.startswith(LARGE):
            raise IndivisibleError
        yield memoryview(content)[len(_head(kind, len(part))) :]


def _divided(value: dict[Any, Any] | list[Any], items: int) -> Iterator[dict[Any, Any] | list[Any]]:
    if isinstance(value, list):
        for at in range(0, len(value), items):
            yield value[at : at + items]
        return
    left = iter(value.items())
    while part := dict(islice(left, items)):
        yield part


def _head(kind: type, count: int) -> bytes:
    small, middle, large = _KINDS[kind]
    if count < 16:
        return _SMALL.pack(small | count)
    return _MIDDLE.pack(middle, count) if count < 65_536 else _LARGEST.pack(large, count)


class Measured:
    """A value that is written twice: once to learn how long it is, and then to keep it."""

    def __init__(self, codec: Codec[Any], value: Any) -> None:
        self.size = 0
        self._codec = codec
        self._value = value
        self._is_whole = False

    def measure(self, is_exact: bool) -> Iterator[Piece]:
        """Gives empty pieces. `is_exact`: what would be read back is compared with the value."""
        try:
            for piece in pieces(self._codec, self._value, is_exact=is_exact):
                self.size += len(piece)
                yield b""
        except IndivisibleError:
            self._is_whole = True
            encode = self._codec.encode_exact if is_exact else self._codec.encode
            self.size = len(encode(self._value))
            yield b""

    def __iter__(self) -> Iterator[Piece]:
        if self._is_whole:
            yield self._codec.encode(self._value)
        else:
            yield from pieces(self._codec, self._value)
