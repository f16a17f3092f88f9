"""Frames between a program and its node in another process: a length, a kind, a body, on a stream socket."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from struct import Struct

from totempole.errors import SessionError

HEAD = Struct(">IB")
READ_BYTES = 262_144
FRAME_BYTES_MAX = 8 * 1024 * 1024


class Frame(IntEnum):
    CONFIG = 1
    """The node's configuration, as TOML. The first frame."""
    SEND = 2
    """Service u8, packed messages."""
    TAKEN = 3
    """u64: bytes of messages that the program has taken since the start."""
    LEAVE = 4
    STOP = 5
    STATUS = 6
    """Asked with a number, u64; answered with it and JSON."""
    MESSAGES = 7
    """Origin, service, order key, packed messages."""
    VIEW = 8
    """JSON."""
    ACCEPTED = 9
    """u64: bytes, as SEND counted them."""
    ENDED = 10
    """The reason, or nothing after a graceful leave."""
    KEYS = 11
    """Asked with a number: read the key file again; answered with it and what is wrong, if anything is."""


def known_frame(kind: int) -> Frame:
    try:
        return Frame(kind)
    except ValueError:
        raise SessionError(f"a frame of kind {kind}, which there is not") from None


class FrameReader:
    """Puts frames together from what a socket gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Frame, bytes]]:
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            length, kind = HEAD.unpack_from(self._buffer)
            if length > FRAME_BYTES_MAX:
                raise SessionError(f"a frame of {length} bytes; the most is {FRAME_BYTES_MAX}")
            stop = HEAD.size + length
            if len(self._buffer) < stop:
                return
            body = bytes(memoryview(self._buffer)[HEAD.size : stop])
            del self._buffer[:stop]
            yield known_frame(kind), body


class FrameWriter:
    """Writes on a thread of its own, so that neither side ever waits for the other. What waits is bounded by
    the program's credit (`node.SENDING_BYTES_MAX`) one way and by `hosting.RECEIVED_BYTES_MAX` the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="totempole-frames", daemon=True)
        self._thread.start()

    def write(self, kind: Frame, *parts: bytes) -> None:
        self._queue.put(b"".join((HEAD.pack(sum(map(len, parts)), kind), *parts)))

    def close(self) -> None:
        """Returns when all is written, or the other side is gone."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):
            while (frame := self._queue.get()) is not None:
                self._socket.sendall(frame)
