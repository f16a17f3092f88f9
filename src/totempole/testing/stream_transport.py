"""asyncio's end of a simulated connection, and a server of such."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from totempole.sim.streams import Channel

WRITE_BYTES_HIGH = 65_536


class StreamTransport(asyncio.Transport):
    """A program's end of a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        incoming: Channel,
        outgoing: Channel,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol: Any = protocol
        self._incoming = incoming
        self._outgoing = outgoing
        self._context = copy_context()
        """Of the task that has connected: what comes is its program's, too."""
        self._unsent = bytearray()
        self._high, self._low = WRITE_BYTES_HIGH, WRITE_BYTES_HIGH // 4
        self._is_closing = self._is_lost = False
        self._reads, self._is_reading = True, False
        self._has_paused_writing = False
        incoming.on_readable = self._read_soon
        outgoing.on_writable = self._write_soon
        protocol.connection_made(self)
        if incoming.is_readable:
            self._read_soon()

    # Reading

    def _read_soon(self) -> None:
        if not self._is_reading and self._reads and not self._is_closing:
            self._is_reading = True
            self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._is_reading = False
        if not self._reads or self._is_closing:
            return
        if self._take():
            if self._incoming.is_readable:
                self._read_soon()
        elif self._incoming.is_over and not self._protocol.eof_received():
            self.close()

    def _take(self) -> int:
        """How many bytes there were."""
        incoming, protocol = self._incoming, self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            data = incoming.read(len(buffer))
            buffer[: len(data)] = data
            if data:
                protocol.buffer_updated(len(data))
        elif data := incoming.read():
            protocol.data_received(data)
        return len(data)

    def is_reading(self) -> bool:
        return self._reads and not self._is_closing

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        if self._incoming.is_readable:
            self._read_soon()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._unsent += data
            self._write_on()
            if len(self._unsent) > self._high and not self._has_paused_writing:
                self._has_paused_writing = True
                self._protocol.pause_writing()

    def _write_soon(self) -> None:
        if self._unsent:
            self._loop.call_soon(self._write_on, context=self._context)

    def _write_on(self) -> None:
        try:
            del self._unsent[: self._outgoing.write(bytes(self._unsent))]
        except BrokenPipeError:
            self._unsent.clear()  # that it is over will be read
        if self._has_paused_writing and len(self._unsent) <= self._low:
            self._has_paused_writing = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._lose()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BYTES_HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._unsent:
                self._lose()

    def abort(self) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._lose()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._incoming.stop_reading()
            self._outgoing.close()
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


class StreamServer(asyncio.AbstractServer):
    """What `loop.create_server` gives."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, address: tuple[str, int], stop_listening: Callable[[], None]
    ) -> None:
        self.sockets = (_Bound(address),)
        self._loop = loop
        self._stop_listening: Callable[[], None] | None = stop_listening
        self._serving: asyncio.Future[None] | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._stop_listening is not None

    async def start_serving(self) -> None:
        pass  # it does

    async def serve_forever(self) -> None:
        self._serving = self._loop.create_future()
        try:
            await self._serving
        finally:
            self.close()

    def close(self) -> None:
        """Connections that are there stay."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        if self._serving is not None:
            self._serving.cancel()

    async def wait_closed(self) -> None:
        pass


class _Bound:
    """What one asks of a server's socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address
