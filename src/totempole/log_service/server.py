"""Listens as the daemon does, lets the same users and certificates in, and answers them.

All readers share one thread, in short steps; what one has not read yet waits in its socket, and the service
reads no further for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from totempole.daemon.credentials import allowed_uids, peer_of
from totempole.daemon.identity import EMBEDDED, Identity
from totempole.daemon.log import Complaints
from totempole.daemon.socket_file import UnixListener
from totempole.daemon.tls import HANDSHAKE_S, certificate_name, server_context
from totempole.errors import CodecError, LogDamagedError, NetworkError, TotemError
from totempole.log_service.answering import (
    answer_locate,
    answer_measure,
    answer_read,
    segments_of,
    status_of,
)
from totempole.log_service.settings import ServiceSettings
from totempole.log_service.snapshots import SnapshotService
from totempole.log_service.source import Source
from totempole.session.log_frames import (
    HEAD,
    REQUEST_BYTES_MAX,
    VERSION,
    Answer,
    AskSegments,
    AskStatus,
    EncodedRuns,
    Failed,
    GetSnapshot,
    Hello,
    ListSnapshots,
    Locate,
    Measure,
    PutChunk,
    PutSnapshot,
    Read,
    Request,
    Welcome,
    decode_request,
    encode,
)
from totempole.structured_log import event

HELLO_S = 10.0
"""How long a program may take to say hello."""
WRITE_BYTES_MAX = 1024 * 1024
"""What waits for one reader's socket."""
SOCKET_BYTES = 1024 * 1024
"""What a socket has room for, if the host's limit (net.core.wmem_max) is not lower: a frame of runs and more.
What does not fit is copied, and sent later."""


Enter = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listen = Callable[[Enter], AbstractContextManager[object]]


class LogService:
    def __init__(
        self,
        settings: ServiceSettings,
        logger: logging.Logger,
        *,
        listen: Listen | None = None,
        now: Callable[[], float] = monotonic,
        threads: Executor | None = None,
        damaged: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`listen`, `now`, `threads`: not given, sockets, the host's clock, and threads of its own. `damaged`
        is called when part of the log turns out to be unreadable."""
        self._damaged = damaged
        self.source = Source(Path(settings.directory), now, threads)
        self._listen_elsewhere = listen
        self.snapshots = SnapshotService(
            self.source, settings.processor, self._complain_of_snapshot, settings.snapshots_bytes_max
        )
        self.tcp_address: tuple[str, int] | None = None
        self._settings = settings
        self._clients = settings.clients
        self._logger = logger
        self._complaints = Complaints(logger)
        self._uids = allowed_uids(settings.users)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, until: Callable[[], Any]) -> None:
        """Serves until the awaitable that `until` gives is done."""
        async with AsyncExitStack() as open_now:
            keeping_up = asyncio.ensure_future(self.source.keep_up())
            open_now.push_async_callback(_cancel, keeping_up)
            await self._listen(open_now)
            open_now.callback(self.snapshots.close)
            open_now.push_async_callback(self._hang_up)
            event(
                self._logger,
                logging.DEBUG,
                "log service",
                socket=self._settings.socket,
                listen=":".join(map(str, self.tcp_address or ())),
            )
            ending = asyncio.ensure_future(until())
            open_now.push_async_callback(_cancel, ending)
            await asyncio.wait((keeping_up, ending), return_when=asyncio.FIRST_COMPLETED)
            if keeping_up.done():
                keeping_up.result()  # the log cannot be read: whoever starts the service is told

    async def _listen(self, open_now: AsyncExitStack) -> None:
        clients = self._clients
        if self._listen_elsewhere is not None:
            open_now.enter_context(self._listen_elsewhere(self._enter))
            return
        if clients.socket is not None:
            listener = UnixListener(clients.socket, clients.socket_mode)
            open_now.callback(listener.close)
            server = await asyncio.start_unix_server(self._enter, sock=listener.socket)
            open_now.callback(server.close)
        if clients.address is not None:
            host, port = clients.address
            context = server_context(clients)
            try:
                tcp = await asyncio.start_server(
                    self._enter, host, port, ssl=context, ssl_handshake_timeout=HANDSHAKE_S
                )
            except OSError as error:
                raise NetworkError(
                    f"listen = {host}:{port}: {error.strerror}; give an address of this host and a free port"
                ) from None
            open_now.callback(tcp.close)
            self.tcp_address = tcp.sockets[0].getsockname()[:2]

    async def _hang_up(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # One program

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio gives each connection a task"
        self._tasks.add(task)
        self.source.readers += 1
        connection = Connection(self, reader, writer)
        try:
            await connection.serve()
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # it has hung up, or the service ends
        except CodecError as error:
            self._complain("malformed request", str(error), connection.identity)
        except TotemError as error:
            is_damaged = isinstance(error, LogDamagedError)
            if is_damaged:
                self._damaged(str(error))
            with suppress(OSError, EOFError):
                await connection.send(Failed("damaged" if is_damaged else "closed", str(error)))
            self._complain("log cannot be read", str(error), connection.identity)
        finally:
            self.source.readers -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    def admit(self, writer: asyncio.StreamWriter) -> tuple[Identity, Failed | None]:
        """Who it is, and why it may not come in."""
        context: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
        if context is not None:
            identity = Identity(certificate=certificate_name(context.getpeercert() or {}))
        else:
            sock: socket.socket | None = writer.get_extra_info("socket")
            identity = EMBEDDED if sock is None else peer_of(sock)
            if sock is not None and identity.uid not in self._uids:
                text = f"user {identity.uid} may not read this log: name it in the setting clients.users"
                self._complain("user", text, identity)
                return identity, Failed("user", text)
        if self.source.readers > self._settings.readers_max:
            most = self._settings.readers_max
            text = f"this service has {most} readers, as many as clients.clients_max allows"
            self._complain("readers", text, identity)
            return identity, Failed("closed", text)
        return identity, None

    def welcome(self) -> Welcome:
        settings, source = self._settings, self.source
        return Welcome(
            VERSION,
            settings.cluster_id,
            settings.processor,
            source.zones.log,
            source.earliest(),
            source.position,
            True,
            True,
        )

    async def answer(self, request: Request, connection: Connection) -> None:
        match request:
            case Read():
                await answer_read(self.source, request, connection.send)
            case Locate():
                await connection.send(await answer_locate(self.source, request))
            case AskSegments():
                await self.source.refresh()
                await connection.send(segments_of(self.source))
            case Measure():
                await self.source.refresh()
                await answer_measure(self.source, request, connection.send)
            case AskStatus():
                await self.source.refresh()
                settings = self._settings
                await connection.send(
                    status_of(self.source, settings.cluster_id, settings.processor, self.source.readers)
                )
            case ListSnapshots():
                await connection.send(await self.snapshots.list(request))
            case GetSnapshot():
                await self.snapshots.get(request, connection.send)
            case PutSnapshot():
                await self.snapshots.put(request, connection.next, connection.send)
            case PutChunk():
                raise CodecError("frame unexpected", "a chunk of no snapshot")
            case Hello():
                raise CodecError("frame unexpected", "a second Hello")

    def _complain_of_snapshot(self, text: str) -> None:
        """From any thread."""
        event(self._logger, logging.ERROR, "snapshot cannot be used", reason=text)

    def _complain(self, why: str, text: str, identity: Identity | None) -> None:
        now_us = int(asyncio.get_running_loop().time() * 1_000_000)
        fields = identity.fields() if identity is not None else {}
        self._complaints.write(now_us, "log reader turned away", reason=why, text=text, **fields)


class Connection:
    def __init__(
        self, service: LogService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.identity: Identity | None = None
        self._service = service
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)
        sock = writer.get_extra_info("socket")
        if sock is None:
            return
        if sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def serve(self) -> None:
        service = self._service
        async with asyncio.timeout(HELLO_S):
            hello = await self.next()  # also from those who may not read: they wait for an answer to it
        self.identity, failed = service.admit(self._writer)
        if failed is not None:
            await self.send(failed)
            return
        if not isinstance(hello, Hello):
            raise CodecError("frame unexpected", f"{type(hello).__name__} before Hello")
        if hello.version != VERSION:
            text = f"this log service speaks version {VERSION}, the program version {hello.version}"
            await self.send(Failed("version", text))
            return
        await service.source.refresh()
        log = service.source.zones.log
        if hello.log and log and hello.log != log:
            text = (
                f"this replica has log {log:x}, and the program has read log {hello.log:x}: it is another "
                "cluster's, or was rescued since"
            )
            await self.send(Failed("log", text))
            return
        await self.send(service.welcome())
        while True:
            await service.answer(await self.next(), self)

    async def next(self, bytes_max: int = REQUEST_BYTES_MAX) -> Request:
        (length,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if length > bytes_max:
            raise CodecError("frame too long", f"a request of {length} bytes: the most is {bytes_max}")
        return decode_request(await self._reader.readexactly(length))

    async def send(self, answer: Answer | EncodedRuns) -> None:
        """Waits while the program does not read."""
        if self._reader.at_eof():
            raise EOFError("the program has hung up")
        self._writer.write(encode(answer))
        await self._writer.drain()
        await asyncio.sleep(0)  # others have their turn even if this one always has room


async def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
