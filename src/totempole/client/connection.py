"""A session's connection to its daemon, for asyncio: opened, read and written, lost, and opened again.

`protocol` decides, without I/O. This module moves its bytes, by a `Link` at a time, and wakes the tasks that
wait for what has come.

Events that the program has not taken yet are bounded. Above RECEIVED_BYTES_MAX nothing more is read, so that
the daemon's policy for the group applies; and a connection that was lost is not opened again before the
program has taken half of them, because it would only fall behind again. A task that waits for the daemon
suspends both rules, up to WAITING_BYTES_MAX: what it waits for comes behind events. Two things end such a
pause: a task begins to wait, or there are fewer events to take. The cause of either calls `go_on`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from totempole.client.endpoint import (
    ANSWER_S_MAX,
    Attempts,
    Endpoints,
    Link,
    Reconnect,
    keep_freed_memory,
)
from totempole.client.protocol import RECEIVED_BYTES_MAX, WAITING_BYTES_MAX, Phase, Protocol
from totempole.errors import SessionError

T = TypeVar("T")

CLOSED = "the session is closed: use it inside `async with`"
DISCARDED_BYTES = 4_096
"""Read at once from a connection that was given up."""


class Connection:
    """Lives as long as the session, through all links to its daemons."""

    def __init__(
        self,
        protocol: Protocol,
        endpoints: Endpoints,
        reconnect: Reconnect | None,
        logger: logging.Logger,
    ) -> None:
        self.protocol = protocol
        self.link: Link | None = None
        """None while there is no connection."""
        self.closing = False
        """Nothing more is taken from the program."""
        self.flushing = False
        """`flush` runs at the end of this turn of the loop."""
        self._endpoints = endpoints
        self._attempts = Attempts(reconnect) if reconnect else None
        self._logger = logger
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: SessionError | None = None
        """Why the session is over."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._news: set[asyncio.Future[None]] = set()
        """Tasks that wait for credit, or for a connection."""
        self._room: asyncio.Future[None] | None = None
        """Coming back waits for the program to take events."""
        self._waiting = 0
        """How many tasks wait for something that comes behind events."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    # Life

    async def open(self) -> None:
        """Connects to the first daemon that answers."""
        if self._loop is not None:
            raise SessionError("a session is entered once: make another one")
        self._loop = asyncio.get_running_loop()
        keep_freed_memory()
        try:
            await self._open_first()
        except BaseException as error:
            self._end(error if isinstance(error, SessionError) else SessionError(CLOSED))
            raise

    async def close(self) -> None:
        """Sends what was accepted, says goodbye, and ends."""
        self.closing = True
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self.link is not None and self.protocol.phase is Phase.OPEN:
                await self._say_bye(self.link)
        finally:
            self._end(None)

    async def _say_bye(self, link: Link) -> None:
        self.protocol.bye()
        self.wake()
        self.flush()
        self._read_on()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await link.closed
        except TimeoutError:
            self._logger.warning("the daemon did not answer the farewell within %g s", ANSWER_S_MAX)

    def _end(self, error: SessionError | None) -> None:
        if self.protocol.phase is not Phase.OVER:
            self._error = error or SessionError(CLOSED)
            self.protocol.end(error)
        if self.link is not None:
            self.link.abort()
            self.link = None
        self.wake()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(self._error or SessionError(CLOSED))
                future.exception()  # nobody need be waiting
        self._answers.clear()

    def check_open(self) -> None:
        """SessionError unless the session was entered and goes on."""
        if self._loop is None or self.closing or self.protocol.phase is Phase.OVER:
            raise self._error or SessionError(CLOSED)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that ends with the session."""
        task: asyncio.Task[T] = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Opening

    async def _open_first(self) -> None:
        for is_last in self._endpoints.tries():
            try:
                await self._open()
                return
            except SessionError:
                if is_last:
                    raise
            self._endpoints.move_on()

    async def _open(self) -> None:
        """A link, greeted and welcomed; or SessionError."""
        link = Link(self, self.loop)
        try:
            async with asyncio.timeout(self._endpoints.greeting_s_max):
                await link.connect(self._endpoints.current)
                self.link = link
                self.protocol.connect(link.offer())
                self.flush()
                await link.welcomed
        except TimeoutError:
            # A loop that was busy may find the welcome and the end of the time for it in one turn.
            if not link.is_welcome:
                self._give_up(link)
                text = f"no daemon at {self._endpoints.name}: no answer within {ANSWER_S_MAX:g} s"
                raise SessionError(text) from None
        except BaseException as error:
            self._give_up(link)
            raise error from None
        if self._attempts is not None:
            self._attempts.opened(self.loop.time())

    def _give_up(self, link: Link) -> None:
        link.abort()
        self.link = None

    # Losing it, and coming back

    def lost(self, link: Link, error: BaseException | None) -> None:
        """The link is gone."""
        if link is not self.link:
            return
        self.link = None
        protocol, where = self.protocol, self._endpoints.name
        why = str(error or "") or "the daemon has closed the connection"
        reason = protocol.farewell or why
        if not link.welcomed.done():
            link.welcomed.set_exception(self._endpoints.refused(protocol.farewell, why))
            link.welcomed.exception()
            return
        if self.closing:
            self._end(None)
        elif self._attempts is None or protocol.refused_for_good:
            self._end(SessionError(f"the session with {where} is over: {reason}"))
        else:
            self._logger.warning("the connection to %s is lost: %s", where, reason)
            protocol.lost(reason)
            self.wake()
            self.start(self._come_back(self._attempts, reason))

    async def _come_back(self, attempts: Attempts, reason: str) -> None:
        lost_s, give_up_s = self.loop.time(), attempts.how.give_up_s
        give_up_at = None if give_up_s is None else lost_s + give_up_s
        attempts.lost(lost_s)
        while True:
            await asyncio.sleep(attempts.next_pause())
            await self._room_for_events()
            self._endpoints.move_on()
            try:
                await self._open()
            except SessionError as error:
                self._logger.info("not back yet: %s", error)
                if self.protocol.refused_for_good:
                    self._end(error)
                    return
                if give_up_at is not None and self.loop.time() >= give_up_at:
                    text = f"the daemon went away ({reason}) and did not come back within {give_up_s:g} s"
                    self._end(SessionError(f"{text}: {error}"))
                    return
            else:
                self._logger.info("back at %s as process %s", self._endpoints.name, self.protocol.process)
                return

    async def _room_for_events(self) -> None:
        """Waits while the program has many events to take, and waits for nothing from the daemon itself."""
        while self.protocol.inbox.meter.bytes > RECEIVED_BYTES_MAX // 2 and not self._waits:
            self._room = self.loop.create_future()
            await self._room

    # Reading

    def room(self, link: Link) -> memoryview:
        """Where the link reads to. A link that was given up reads into nothing that counts."""
        return self.protocol.room() if link is self.link else memoryview(bytearray(DISCARDED_BYTES))

    def received(self, link: Link, count: int) -> None:
        """So many bytes were read into `room`."""
        if link is not self.link:
            return
        protocol = self.protocol
        try:
            protocol.received(count)
        except SessionError as error:
            self.wake()  # for what came before it
            link.abort()
            self.lost(link, error)
            return
        self.wake()
        if protocol.farewell is not None:
            link.abort()
            self.lost(link, None)
            return
        if protocol.wants_move:
            link.abort()
            self.lost(link, SessionError("its log is closed"))
            return
        if protocol.sending.waiting:
            self.flush()
        if protocol.inbox.meter.bytes > RECEIVED_BYTES_MAX:
            self._read_on()

    def wake(self) -> None:
        """Wakes the tasks that wait for what has come."""
        protocol = self.protocol
        link = self.link
        if link is not None and protocol.phase is Phase.OPEN and not link.welcomed.done():
            link.welcomed.set_result(None)
        meter = protocol.inbox.meter
        if meter.news:
            news, meter.news = meter.news, []
            for stream in news:
                _wake(stream.waiters)
                stream.waiters.clear()
        if protocol.answers:
            answers, protocol.answers = protocol.answers, []
            for answer in answers:
                future = self._answers.pop(answer.request, None)
                if future is not None and not future.done():
                    if answer.error is None:
                        future.set_result(answer.value)
                    else:
                        future.set_exception(answer.error)
        if protocol.sending.settled:
            settled, protocol.sending.settled = protocol.sending.settled, []
            for sent in settled:
                _wake(sent.waiters)
                sent.waiters.clear()
        if self._news:
            _wake(self._news)
            self._news.clear()

    def go_on(self) -> None:
        """A task waits for the daemon, or there are fewer events to take: reads on, or comes back."""
        if self.link is not None:
            if self.link.reading_paused:
                self._read_on()
        elif self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _read_on(self) -> None:
        """Reads, or pauses."""
        link = self.link
        if link is not None:
            held = self.protocol.inbox.meter.bytes
            low = RECEIVED_BYTES_MAX // 2 if link.reading_paused else RECEIVED_BYTES_MAX
            waits = self._waits or self.closing
            link.read(held <= low or (waits and held <= WAITING_BYTES_MAX))

    @property
    def _waits(self) -> bool:
        """Whether the program waits for something that the daemon sends, perhaps behind events."""
        return bool(self._waiting or self.protocol.asking)

    # Writing

    def flush(self) -> None:
        """Writes what there is."""
        self.flushing = False
        self.protocol.pump()
        link, sending = self.link, self.protocol.sending
        if link is not None and sending.waiting:
            sending.close_batch()
            out, sending.out = sending.out, []
            link.write(out)

    def flush_soon(self) -> None:
        """Flushes at the end of this turn of the loop; at once if a batch is full."""
        if self.protocol.sending.out:
            self.flush()
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self.flush)

    def writable(self) -> None:
        """The link takes more again."""
        self.wake()

    # Waiting for the daemon

    async def awaiting(self, waiter: Awaitable[T]) -> T:
        """Waits for what the daemon sends, perhaps behind events: a reason to read on, and to come back."""
        self._waiting += 1
        self.go_on()
        try:
            return await waiter
        finally:
            self._waiting -= 1
            self._read_on()

    async def news(self) -> None:
        """Waits for credit, for a connection, or for the end."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._news.add(future)
        try:
            await future
        finally:
            self._news.discard(future)

    async def connected(self) -> None:
        """Waits until there is a daemon."""
        self.check_open()
        while self.protocol.phase is not Phase.OPEN:
            await self.awaiting(self.news())
            self.check_open()

    async def answer(self, request: int) -> Any:
        """Sends a request that is in `protocol` already, and waits for its answer."""
        self.flush()
        future = self.expect(request)
        self.wake()  # it may be answered already
        try:
            return await future
        finally:
            self.forget(request)
            self._read_on()

    def expect(self, request: int) -> asyncio.Future[Any]:
        """The answer, to be waited for. `forget` it afterwards."""
        future = self._answers[request] = self.loop.create_future()
        self.go_on()
        return future

    def forget(self, request: int) -> None:
        """Nobody waits for the answer any more."""
        self._answers.pop(request, None)


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
