"""A group's state on its way from a member to a joiner: cut into pieces of even size."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import cast

from totempole.client.protocol import Chunks
from totempole.errors import SessionError
from totempole.types import Payload

Piece = tuple[Payload, bool]
"""Some of the state, and whether it is the last."""

_TYPES = "a state is bytes, or an iterable of bytes"


class _Cutter:
    """Pieces of one size out of chunks of any: small chunks together, large ones cut."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rest = bytearray()

    def add(self, chunk: Payload) -> Iterator[Piece]:
        view = _as_view(chunk)
        if self._rest:
            missing = self._size - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if len(self._rest) == self._size:
                yield bytes(self._rest), False
                self._rest.clear()
        while len(view) >= self._size:
            yield view[: self._size], False
            view = view[self._size :]
        self._rest += view

    def end(self) -> Piece:
        """The last piece; it may be empty."""
        return bytes(self._rest), True


def _as_view(chunk: object) -> memoryview:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise TypeError(f"{_TYPES}, not {type(chunk).__name__}")
    return memoryview(chunk).cast("B")


def captured(chunks: object) -> Chunks:
    """What a provider gave: a buffer may change before it is sent, so it is copied."""
    if isinstance(chunks, bytearray | memoryview):
        return bytes(chunks)
    if isinstance(chunks, str) or not isinstance(chunks, bytes | Iterable | AsyncIterable):
        raise TypeError(f"{_TYPES}, not {type(chunks).__name__}")
    return chunks


def pieces(chunks: Chunks, size: int) -> Iterator[Piece]:
    cutter = _Cutter(size)
    for chunk in (chunks,) if isinstance(chunks, bytes) else cast(Iterable[bytes], chunks):
        yield from cutter.add(chunk)
    yield cutter.end()


async def pieces_async(chunks: Chunks, size: int) -> AsyncIterator[Piece]:
    """The same for any kind of chunks."""
    if not isinstance(chunks, AsyncIterable):
        for piece in pieces(chunks, size):
            yield piece
        return
    cutter = _Cutter(size)
    async for chunk in chunks:
        for piece in cutter.add(chunk):
            yield piece
    yield cutter.end()


def could_not_give(group: str, error: Exception) -> SessionError:
    """Who cannot give the state leaves the group: the joiner gets it from another."""
    text = f"group {group!r} was left, because its state could not be given: {type(error).__name__}: {error}"
    failure = SessionError(text)
    failure.__cause__ = error
    return failure
