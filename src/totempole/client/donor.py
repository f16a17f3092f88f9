"""A member's side of a group's state: asked for at one place in the order, given while it goes on."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from totempole.client.giving import captured, could_not_give, pieces_async
from totempole.client.protocol import Chunks
from totempole.client.protocol import Protocol as Conversation
from totempole.client.streams import Item, Stream
from totempole.errors import SessionError
from totempole.groups.events import StateAsked


class Desk(Protocol):
    """What it needs of the session."""

    def start(self, work: Coroutine[Any, Any, None]) -> Any: ...

    def flush(self) -> None: ...

    def abandon(self, group: str, error: SessionError | None = None) -> None: ...

    async def news(self) -> None:
        """Waits for credit, or the end."""


class Donor:
    def __init__(self, desk: Desk, protocol: Conversation, logger: logging.Logger) -> None:
        self._desk = desk
        self._protocol = protocol
        self._logger = logger

    async def give(self, stream: Stream, item: Item, asked: StateAsked) -> None:
        """The program has worked off all before this place: the state is taken here, and sent on a task."""
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
            stream.put_back(item)  # whoever goes on iterating is asked again
            raise
        else:
            self._desk.start(self._send(asked, chunks))

    async def _send(self, asked: StateAsked, chunks: Chunks) -> None:
        try:
            async for content, last in pieces_async(chunks, self._protocol.sending.state_piece_bytes):
                while self._protocol.is_wanted(asked) and not self._protocol.give(asked, content, last):
                    self._desk.flush()
                    await self._desk.news()
                if not last and not self._protocol.is_wanted(asked):
                    return
                self._desk.flush()
                await asyncio.sleep(0)
        except Exception as error:
            self._fail(asked, error)

    def _fail(self, asked: StateAsked, error: Exception) -> None:
        failure = could_not_give(asked.group, error)
        self._logger.error("%s", failure, exc_info=error)
        self._desk.abandon(asked.group, failure)
