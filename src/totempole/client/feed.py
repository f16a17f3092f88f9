"""A feed of a log, for asyncio programs: what lies before from the log service, what comes from the daemon.

    async with session.feed("orders", start=position) as feed:
        async for item in feed:
            ...

While it is live, a run is there to be taken before `append` has returned its position, and before a barrier
behind it has passed, on the same session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Self

from totempole.client.feeding import FeedBase, Feeding, Item
from totempole.client.log_reader import LogReader
from totempole.errors import SessionError

if TYPE_CHECKING:
    from totempole.client.connection import Connection
    from totempole.client.endpoint import Endpoint, Reconnect


class Feed(FeedBase, AsyncIterator[Item]):
    """Made by `Session.feed`. It begins with the first item that is asked for, or with `async with`."""

    def __init__(
        self,
        connection: Connection,
        feeding: Feeding,
        endpoints: Callable[[], Sequence[Endpoint]],
        reconnect: Reconnect | None,
    ) -> None:
        """`endpoints`: the log services that it reads from; `reconnect`: how it comes back to them."""
        self._connection = connection
        super().__init__(feeding)
        self._endpoints = endpoints
        self._reconnect = reconnect
        self._reader: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        """Of the program;"""
        self._reading: asyncio.Future[None] | None = None
        """and of the reader, for something to do."""
        self.on_news: Callable[[], None] | None = None
        """Called when there is something to take, for a program that does not wait for items; and when the
        feed is over."""
        feeding.on_news = self._has_news

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Gives nothing more."""
        self._connection.protocol.feeds.close(self._feeding)
        self._connection.flush()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])

    # Taking

    async def __anext__(self) -> Item:
        """Raises LogTrimmedError if what comes next is not kept any more, SessionError when the session had
        to end."""
        feeding = self._feeding
        self._start()
        while (item := feeding.take()) is None:
            if feeding.is_over:
                raise feeding.error or StopAsyncIteration
            await self._news()
        self._taken()
        return item

    def take(self) -> list[Item]:
        """What there is, without waiting."""
        self._start()
        taken: list[Item] = []
        while (item := self._feeding.take()) is not None:
            taken.append(item)
        self._taken()
        return taken

    async def reach(self, place: int) -> list[Item]:
        """Waits until it has come so far: the items up to there, and perhaps more."""
        feeding = self._feeding
        taken = self.take()
        while feeding.place < place:
            if feeding.is_over:
                raise feeding.error or SessionError("the feed is closed")
            await self._news()
            taken += self.take()
        return taken

    def _taken(self) -> None:
        """There is more room, and `place` has moved on."""
        if self._waiters or not self._feeding.is_live:
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self._feeding.is_over

    @property
    def error(self) -> Exception | None:
        """Why it is over; None: the program wanted it."""
        return self._feeding.error

    # Waiting

    def _has_news(self) -> None:
        self._wake()
        if self.on_news is not None:
            self.on_news()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        reading = self._reading
        if reading is not None and not reading.done() and self._has_to_do:
            reading.set_result(None)

    async def _news(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await self._connection.awaiting(waiter)
        finally:
            self._waiters.discard(waiter)

    # Reading what lies before

    def _start(self) -> None:
        if self._reader is None and not self._feeding.is_over:
            self._reader = self._connection.start(self._read())

    async def _read(self) -> None:
        feeding = self._feeding
        try:
            reader = LogReader(self._endpoints(), log=feeding.log, reconnect=self._reconnect)
            while not feeding.is_over:
                await self._read_on(reader)
                await self._something_to_do()
        except Exception as error:  # the program is told whatever it is: nobody else waits for this task
            feeding.end(error)

    @property
    def _has_to_do(self) -> bool:
        feeding = self._feeding
        return feeding.is_over or (feeding.wants_reading and feeding.has_room)

    async def _something_to_do(self) -> None:
        while not self._has_to_do:
            self._reading = asyncio.get_running_loop().create_future()
            try:
                await self._reading
            finally:
                self._reading = None

    async def _read_on(self, reader: LogReader) -> None:
        """Until the feed is live."""
        feeding = self._feeding
        reader.log_id = feeding.log_id
        reading = feeding.new_reading()
        async with aclosing(reader.answers(reading)) as answers:
            async for answer in answers:
                feeding.read(reading, answer, reader.log_id)
                self._connection.flush()
                if feeding.wants_reading and not feeding.has_room:
                    await self._something_to_do()
                if not feeding.wants_reading:
                    return
