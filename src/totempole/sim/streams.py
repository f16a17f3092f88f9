"""A connection between two simulated processes of one host: two channels of bytes, each in order, bounded,
and a moment late.

An end is used as a non-blocking socket (`StreamSocket`), which is what the daemon wants, or as an asyncio
transport (`testing.virtual_loop`), which is what programs want.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence

from totempole.sim.clock import Scheduler
from totempole.types import Payload

CAPACITY_BYTES = 212_992
"""What a stock Linux socket holds."""

Draw = Callable[[], int]
"""How long the next bytes take, in microseconds."""


def _nothing() -> None:
    pass


class Channel:
    """One direction."""

    def __init__(self, scheduler: Scheduler, delay_us: Draw) -> None:
        self.on_readable: Callable[[], None] = _nothing
        """Told when bytes have come, or the end."""
        self.on_writable: Callable[[], None] = _nothing
        """Told when the reader has made room, or is gone."""
        self.is_over = False
        """No more bytes will come."""
        self.is_unread = False
        """The reader is gone."""
        self._scheduler = scheduler
        self._delay_us = delay_us
        self._due_us = 0
        self._arrived = bytearray()
        self._held = 0
        """Bytes that were written and are not read."""
        self._is_closed = False

    # The writer's

    @property
    def room(self) -> int:
        return max(0, CAPACITY_BYTES - self._held)

    def write(self, data: Payload) -> int:
        """How much was taken. Raises BrokenPipeError when nobody reads any more."""
        if self.is_unread or self._is_closed:
            raise BrokenPipeError("the other end is closed")
        taken = bytes(data[: self.room])
        if taken:
            self._held += len(taken)
            self._later(self._arrive, taken)
        return len(taken)

    def close(self) -> None:
        """The reader gets what was written, and then the end."""
        if not self._is_closed:
            self._is_closed = True
            self._later(self._end)

    def _later(self, act: Callable[..., None], *arguments: object) -> None:
        self._due_us = max(self._due_us, self._scheduler.now_us + self._delay_us())
        self._scheduler.at(self._due_us, act, *arguments)

    def _arrive(self, data: bytes) -> None:
        if not self.is_unread:
            self._arrived += data
            self.on_readable()

    def _end(self) -> None:
        self.is_over = True
        if not self.is_unread:
            self.on_readable()

    # The reader's

    @property
    def is_readable(self) -> bool:
        return bool(self._arrived) or self.is_over

    def read(self, size: int = CAPACITY_BYTES) -> bytes:
        """Nothing: nothing has come yet, or it `is_over`."""
        data = bytes(self._arrived[:size])
        if data:
            del self._arrived[: len(data)]
            self._held -= len(data)
            self._later_writable()
        return data

    def stop_reading(self) -> None:
        if not self.is_unread:
            self.is_unread = True
            self._arrived.clear()
            self._later_writable()

    def _later_writable(self) -> None:
        self._scheduler.at(self._scheduler.now_us, self._tell_writable)

    def _tell_writable(self) -> None:
        if not self._is_closed:
            self.on_writable()


class StreamSocket:
    """The daemon's end: what it uses of a non-blocking socket."""

    def __init__(self, number: int, incoming: Channel, outgoing: Channel) -> None:
        self.on_change: Callable[[], None] = _nothing
        """Told when it may be ready for something."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._number = number
        incoming.on_readable = outgoing.on_writable = self._changed

    def _changed(self) -> None:
        self.on_change()

    @property
    def ready_for(self) -> int:
        """As epoll tells it."""
        reading, writing = self._incoming, self._outgoing
        mask = select.EPOLLIN if reading.is_readable else 0
        mask |= select.EPOLLOUT if writing.room or writing.is_unread else 0
        return mask | (select.EPOLLHUP if reading.is_over and writing.is_unread else 0)

    def fileno(self) -> int:
        return self._number

    def setblocking(self, flag: bool, /) -> None:
        assert not flag, "a simulated daemon never waits"

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Its buffer has one size."""

    def recv(self, size: int, /) -> bytes:
        if not self._incoming.is_readable:
            raise BlockingIOError
        return self._incoming.read(size)

    def sendmsg(self, buffers: Sequence[Payload], ancillary: tuple[()] = (), flags: int = 0, /) -> int:
        count = self._outgoing.write(b"".join(buffers))
        if not count and any(buffers):
            raise BlockingIOError
        return count

    def close(self) -> None:
        self._incoming.stop_reading()
        self._outgoing.close()
