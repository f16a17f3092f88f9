"""Datagrams read one by one, put together as receive offload would have: most networks do not do it for us.

A packet of 60 KB is 44 datagrams. Taken one at a time they would cost 44 passes through segment and wire;
taken together, one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

from totempole.runtime.sockets import Read


class Reading:
    """What up to so many reads give. Neighbours of one source and one size come in one piece; the last one
    may be shorter."""

    __slots__ = ("_read", "_reads", "_sock", "is_empty")

    def __init__(self, read: Callable[[socket.socket], Read | None], sock: socket.socket, reads: int) -> None:
        self._read = read
        self._sock = sock
        self._reads = reads
        self.is_empty = False
        """Whether the last read gave nothing: there is no more."""

    def __iter__(self) -> Iterator[Read]:
        read, sock = self._read, self._sock
        run: list[bytes] = []
        source = ("", 0)
        size = 0
        for _ in range(self._reads):
            arrived = read(sock)
            if arrived is None:
                self.is_empty = True
                break
            data, segment_bytes, came_from = arrived
            if run and (segment_bytes or came_from != source or len(data) > size):
                yield _together(run, size, source)
                run = []
            if segment_bytes:
                yield arrived
                continue
            if not run:
                source, size = came_from, len(data)
            run.append(data)
            if len(data) < size:
                yield _together(run, size, source)
                run = []
        if run:
            yield _together(run, size, source)


def _together(run: list[bytes], size: int, source: tuple[str, int]) -> Read:
    if len(run) == 1:
        return Read(run[0], 0, source)
    return Read(b"".join(run), size, source)
