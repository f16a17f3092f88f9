"""Carries bytes between a TLS connection and a socket pair, both ways, without ever waiting."""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from enum import Enum

PIECE_BYTES = 65_536
PIECES_PER_TURN = 8
"""Carried for one connection before the next has its turn."""

_WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Way(Enum):
    """What one direction came to."""

    MOVED = 0
    BLOCKED = 1
    OVER = 2


class Direction:
    """From one socket to the other, a piece at a time: nothing is read before the last piece is written."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self._source = source
        self._sink = sink
        self.piece: memoryview | None = None

    def move(self) -> Way:
        try:
            if self.piece is None:
                data = self._source.recv(PIECE_BYTES)
                if not data:
                    return Way.OVER
                self.piece = memoryview(data)
            sent = self._sink.send(self.piece)
        except _WAITS:
            return Way.BLOCKED
        except OSError:
            return Way.OVER
        self.piece = self.piece[sent:] if sent < len(self.piece) else None
        return Way.MOVED


class Relay:
    """One client: `outer` is its TLS connection, `inner` the pair's end once the handshake is done."""

    def __init__(self, outer: ssl.SSLSocket, peer: str, deadline_s: float) -> None:
        self.outer = outer
        self.peer = peer
        self.deadline_s: float | None = deadline_s
        """Of the handshake."""
        self.inner: socket.socket | None = None
        self._directions: tuple[Direction, Direction] | None = None
        self._shake_wants = select.EPOLLIN

    def shake(self) -> bool:
        """Whether the handshake is done; OSError when it failed."""
        try:
            self.outer.do_handshake()
        except ssl.SSLWantReadError:
            self._shake_wants = select.EPOLLIN
            return False
        except ssl.SSLWantWriteError:
            self._shake_wants = select.EPOLLOUT
            return False
        return True

    def begin(self, inner: socket.socket) -> None:
        self.inner = inner
        self.deadline_s = None
        self._directions = Direction(self.outer, inner), Direction(inner, self.outer)

    def carry(self) -> bool:
        """As far as it goes. False when one side has ended."""
        assert self._directions is not None
        for _ in range(PIECES_PER_TURN):
            ways = [direction.move() for direction in self._directions]
            if Way.OVER in ways:
                return False
            if Way.MOVED not in ways:
                break
        return True

    @property
    def events(self) -> tuple[int, int]:
        """What to wait for on `outer` and on `inner`."""
        if self._directions is None:
            return self._shake_wants, 0
        inward, outward = self._directions
        reads = [0 if direction.piece else select.EPOLLIN for direction in (inward, outward)]
        writes = [select.EPOLLOUT if direction.piece else 0 for direction in (outward, inward)]
        return reads[0] | writes[0], reads[1] | writes[1]

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self.outer.unwrap()  # says goodbye, if that goes without waiting
        self.outer.close()
        if self.inner is not None:
            self.inner.close()
