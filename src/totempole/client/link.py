"""One connection of an asyncio session."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from totempole.client.endpoint import Endpoint
from totempole.errors import SessionError
from totempole.types import Payload

READ_BYTES = 65_536
LAST_READS_MAX = 16
"""More than a socket holds."""


class Owner(Protocol):
    """The session."""

    def received(self, link: Link, data: bytes) -> None: ...

    def lost(self, link: Link, error: BaseException | None) -> None: ...

    def writable(self) -> None: ...


class Link(asyncio.Protocol):
    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.welcomed: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.reading_paused = False
        self.writing_paused = False
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None

    async def connect(self, where: Endpoint | socket.socket) -> None:
        loop = self._loop
        try:
            if isinstance(where, socket.socket):
                await loop.create_connection(lambda: self, sock=where)
            elif where.path:
                await loop.create_unix_connection(lambda: self, where.path)
            else:
                await loop.create_connection(
                    lambda: self, where.host, where.port, ssl=where.context, server_hostname=where.server_name
                )
        except TimeoutError:
            raise
        except OSError as error:
            if isinstance(where, Endpoint):
                raise where.unreachable(error) from None
            raise SessionError(f"the socket cannot be used: {error}") from None

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream

    def data_received(self, data: bytes) -> None:
        self._owner.received(self, data)

    def connection_lost(self, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            self._hear_last_words()
        self._close()
        self._owner.lost(self, error)

    def _hear_last_words(self) -> None:
        """Writing failed, for the daemon has hung up. It may have said why, and asyncio has not read that."""
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return
        with suppress(OSError):
            descriptor = transport.get_extra_info("socket").fileno()
            for _ in range(LAST_READS_MAX):
                data = os.read(descriptor, READ_BYTES)
                if not data:
                    return
                self._owner.received(self, data)

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        self._owner.writable()

    # The session's

    @property
    def closing(self) -> bool:
        """Whether it takes nothing any more. The session hears a little later that it is lost."""
        return self._transport is None or self._transport.is_closing()

    def write(self, parts: Sequence[Payload]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(parts)

    def read(self, on: bool) -> None:
        """Reads on, or does not."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and on is self.reading_paused:
            self.reading_paused = not on
            (transport.resume_reading if on else transport.pause_reading)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._close()

    def _close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
