"""A group's state, from a member to one that joins.

The joiner has a place in the total order, and the state is that of this place. So a member is asked between
two events (`StateAsked`), when its program has worked off all before it. The program's provider gives the
state there and then, in one piece or in chunks; they are cut to pieces of even size and sent on credit, while
the program goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from totempole.client.events import Item, Stream
from totempole.client.protocol import Chunks
from totempole.errors import SessionError
from totempole.groups.events import StateAsked
from totempole.types import Payload

if TYPE_CHECKING:
    from totempole.client.connection import Connection

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
    """A member that cannot give the state leaves the group: the joiner gets it from another."""
    text = f"group {group!r} was left, because its state could not be given: {type(error).__name__}: {error}"
    failure = SessionError(text)
    failure.__cause__ = error
    return failure


class Donor:
    """A member's side, for asyncio."""

    def __init__(
        self,
        connection: Connection,
        abandon: Callable[[str, SessionError], None],
        logger: logging.Logger,
    ) -> None:
        """`abandon` leaves a group whose state cannot be given."""
        self._connection = connection
        self._protocol = connection.protocol
        self._abandon = abandon
        self._logger = logger

    async def give(self, stream: Stream, item: Item, asked: StateAsked) -> None:
        """The program has worked off all before this place: takes the state here, and sends it on a task."""
        provider = self._protocol.gift(asked)
        if provider is None:
            return
        try:
            chunks: Any = provider()
            if inspect.isawaitable(chunks):
                chunks = await chunks
            chunks = captured(chunks)
        except Exception as error:
            self._fail(asked, error)
        except BaseException:
            stream.put_back(item)  # the next to iterate is asked again
            raise
        else:
            self._connection.start(self._send(asked, chunks))

    async def _send(self, asked: StateAsked, chunks: Chunks) -> None:
        connection, protocol = self._connection, self._protocol
        try:
            async for content, last in pieces_async(chunks, protocol.sending.state_piece_bytes):
                while protocol.is_wanted(asked) and not protocol.give(asked, content, last):
                    connection.flush()
                    await connection.news()
                if not last and not protocol.is_wanted(asked):
                    return
                connection.flush()
                await asyncio.sleep(0)
        except Exception as error:
            self._fail(asked, error)

    def _fail(self, asked: StateAsked, error: Exception) -> None:
        failure = could_not_give(asked.group, error)
        self._logger.error("%s", failure, exc_info=error)
        self._abandon(asked.group, failure)
