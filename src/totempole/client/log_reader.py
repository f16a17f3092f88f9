"""Reads the durable order, for asyncio programs.

    log = log_reader("orders")
    async for record in log.read(start=position, follow=True):
        ...

Each reading has a connection of its own to a log service. When that is lost, the reading goes on at its
position, at another replica or when the service is back. A program that takes records slowly makes the
service wait, and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import cast

from totempole.client.endpoint import Endpoint, Path, Reconnect, Tls, reconnect_of
from totempole.client.log_endpoints import (
    ANSWER_S_MAX,
    Replicas,
    check_measures,
    located,
    log_endpoints,
    unexpected,
    unreachable,
)
from totempole.client.log_records import LogBatch, Notice, Reading, Record, Start
from totempole.corel.run import RunId
from totempole.errors import CodecError, SessionError
from totempole.session.log_frames import (
    COLUMNS,
    FRAME_BYTES_MAX,
    SILENCE_S,
    Answer,
    AskSegments,
    AskStatus,
    Failed,
    FrameBuffer,
    Locate,
    Measure,
    Measured,
    OrderedRun,
    Reached,
    ReplicaStatus,
    Request,
    Segments,
    Welcome,
    decode_answer,
    encode,
)

HELD_FRAMES_MAX = 4
"""Frames that the program has not taken. The service waits then."""


def log_reader(
    log: str = "",
    *,
    path: Path | Sequence[Path] | None = None,
    replicas: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
    name: str = "",
    reconnect: bool | Reconnect = True,
) -> LogReader:
    """For programs that only read: `log` is the name of one log; empty: all of them, as one order.

    The log service is that beside the daemon at `path`, or those of several, as `connect` has it; or, on
    other hosts, those of `replicas` ("address:port,…", as their setting log.listen has it), with `tls`. They
    are asked in turn. `reconnect` says how long a reading waits for a service to come back.
    """
    endpoints = log_endpoints(path, replicas, tls)
    return LogReader(endpoints, log=log, name=name, reconnect=reconnect_of(reconnect))


class LogReader:
    """Reads a log, or all of them, from log services. Made by `log_reader`, or by `Session.log`."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        log: str = "",
        name: str = "",
        reconnect: Reconnect | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """`log`: the name of one log; empty: all of them, as one order."""
        self.log = log
        self._endpoints = tuple(endpoints)
        self._name = name
        self._reconnect = reconnect
        self._logger = logger or logging.getLogger("totempole.client")
        self.log_id = 0
        """The log's own name, once a service has told it: another one is not read."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where the log services are."""
        return self._endpoints

    @property
    def name(self) -> str:
        """What the program calls itself."""
        return self._name

    @property
    def reconnect(self) -> Reconnect | None:
        """How it comes back to a service; None: it does not."""
        return self._reconnect

    def replicas(self, *only: Endpoint) -> Replicas:
        """The services, to be asked in turn; or only these."""
        return Replicas(only or self._endpoints, self._reconnect, self._name, self.log_id)

    async def read(
        self, start: Start = "earliest", stop: int | None = None, *, follow: bool = False, known: int = 0
    ) -> AsyncIterator[Record]:
        """Records from position `start` on, before `stop`. Without `follow` it ends with what was green
        when it began. LogTrimmedError names the earliest position that is kept."""
        async for batch in self.batches(start, stop, follow=follow, known=known):
            for record in batch:
                yield record

    async def batches(
        self,
        start: Start = "earliest",
        stop: int | None = None,
        *,
        follow: bool = False,
        bytes_max: int = 0,
        columns: Sequence[str] = COLUMNS,
        known: int = 0,
    ) -> AsyncIterator[LogBatch]:
        """The same, run by run. `bytes_max` ends it after so many bytes. Payloads and keys are not sent if
        `columns` does not name them. `known`: positions before it are known to be green, though the replica
        may not have written so yet."""
        reading = Reading(
            self.log, start, stop, follow=follow, bytes_max=bytes_max, columns=columns, known=known
        )
        async for item in self.follow(reading):
            assert isinstance(item, LogBatch), "no notices were asked for"
            yield item

    async def follow(self, reading: Reading) -> AsyncIterator[LogBatch | Notice]:
        """What a reading asks for, until it is done."""
        async with aclosing(self.answers(reading)) as answers:
            async for answer in answers:
                for item in reading.take(answer):
                    yield item

    async def answers(self, reading: Reading) -> AsyncGenerator[Answer, None]:
        """As they come: each is to be given to the reading before the next is taken."""
        replicas = self.replicas()
        while not reading.is_done:
            try:
                async with (
                    self.connected(replicas) as (link, welcome),
                    aclosing(self._read_from(link, welcome, replicas, reading)) as answers,
                ):
                    async for answer in answers:
                        yield answer
            except SessionError as error:
                await self.pause(replicas, error)

    async def locate(self, run: RunId) -> OrderedRun | None:
        """Where a run is in the order. None: it is not green at the replica that was asked. LogError: it may
        have been trimmed."""
        return located(await self._ask(Locate(run)))

    async def status(self) -> ReplicaStatus:
        """Of the first replica that answers."""
        answer = await self._ask(AskStatus())
        if isinstance(answer, ReplicaStatus):
            return answer
        raise unexpected(answer)

    async def segments(self) -> Segments:
        """The sizes of the first replica's segments that answers: to read in parts of about one size."""
        answer = await self._ask(AskSegments())
        if isinstance(answer, Segments):
            return answer
        raise unexpected(answer)

    async def measure(self, request: Measure) -> Measured:
        """How far a program may read within bounds. LogTrimmedError as for reading."""
        answer = await self._ask(request)
        if isinstance(answer, Measured):
            return answer
        raise unexpected(answer)

    # Within

    async def _ask(self, request: Request) -> Answer:
        replicas = self.replicas()
        while True:
            try:
                async with self.connected(replicas) as (link, welcome):
                    check_measures(request, welcome)
                    link.send(request)
                    while isinstance(answer := await link.next(ANSWER_S_MAX), Reached):
                        pass  # it takes long
                    if not isinstance(answer, Failed):
                        return answer
                    raise replicas.refused(answer)
            except SessionError as error:
                await self.pause(replicas, error)

    async def _read_from(
        self, link: Link, welcome: Welcome, replicas: Replicas, reading: Reading
    ) -> AsyncGenerator[Answer, None]:
        request = reading.request(welcome.position)
        if reading.is_done:
            return
        link.send(request)
        while not reading.is_done:
            answer = await link.next(SILENCE_S)
            if isinstance(answer, Failed):
                raise replicas.refused(answer)
            yield answer
            replicas.answered(answer)
            if reading.is_stalled and len(replicas.endpoints) > 1:
                raise SessionError(f"the replica at {replicas.endpoint} has not got so far yet")

    @asynccontextmanager
    async def connected(self, replicas: Replicas) -> AsyncIterator[tuple[Link, Welcome]]:
        """Speaks with the service whose turn it is. SessionError: another, or the same later, may do."""
        loop = asyncio.get_running_loop()
        link = Link(loop)
        try:
            await link.connect(replicas.endpoint)
            link.send(replicas.hello())
            answer = await link.next(ANSWER_S_MAX)
            if isinstance(answer, Failed):
                raise replicas.refused(answer)
            if not isinstance(answer, Welcome):
                raise unexpected(answer)
            replicas.welcomed(answer, loop.time())
            self.log_id = replicas.log
            yield link, answer
        finally:
            await link.close()

    async def pause(self, replicas: Replicas, error: SessionError) -> None:
        """Waits until the next service may be asked. Raises if there is no use."""
        where = replicas.endpoint
        pause_s = replicas.failed(error, asyncio.get_running_loop().time())
        self._logger.info("reading from %s has stopped: %s; next %s", where, error, replicas.endpoint)
        await asyncio.sleep(pause_s)


class Link(asyncio.BufferedProtocol):
    """One connection. Reading stops while the program has frames to take."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer: FrameBuffer[Answer] = FrameBuffer(decode_answer, FRAME_BYTES_MAX)
        self._frames: deque[Answer] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._error: SessionError | None = None
        self._is_paused = False
        self._is_lost = asyncio.Event()

    async def connect(self, where: Endpoint) -> None:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                if where.path:
                    await self._loop.create_unix_connection(lambda: self, where.path)
                else:
                    await self._loop.create_connection(
                        lambda: self,
                        where.host,
                        where.port,
                        ssl=where.context,
                        server_hostname=where.server_name,
                    )
        except OSError as error:  # TimeoutError is one
            raise unreachable(where, error) from None

    def send(self, request: Request) -> None:
        if self._transport is not None:
            self._transport.write(encode(request))

    async def next(self, timeout_s: float) -> Answer:
        """The next frame. SessionError when the connection is lost, or silent for so long."""
        while not self._frames:
            if self._error is not None:
                raise self._error
            self._resume()
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
            except TimeoutError:
                raise SessionError(f"the log service has said nothing for {timeout_s:g} s") from None
            finally:
                self._waiter = None
        frame = self._frames.popleft()
        if len(self._frames) < HELD_FRAMES_MAX // 2:
            self._resume()
        return frame

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            await self._is_lost.wait()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # For the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, count: int) -> None:
        try:
            self._frames += self._buffer.filled(count)
        except CodecError as error:
            self._error = SessionError(f"the log service: {error}")
            assert self._transport is not None, "it is connected"
            self._transport.abort()
        if len(self._frames) >= HELD_FRAMES_MAX and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: BaseException | None) -> None:
        if self._error is None:
            why = str(error or "") or "it has closed the connection"
            self._error = SessionError(f"the connection to the log service is lost: {why}")
        self._is_lost.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
