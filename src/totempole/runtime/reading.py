"""Datagrams read one by one, put together as receive offload would have: most networks do not do it for us.

A packet of 60 KB is 44 datagrams. Taken one at a time they would cost 44 passes through segment and wire;
taken together, one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

from totempole.runtime.sockets import Read


def coalesced(
    read: Callable[[socket.socket], Read | None], sock: socket.socket, reads: int
) -> Iterator[Read]:
    """What up to so many reads give. Neighbours of one source and one size come in one piece; the last one
    may be shorter."""
    run: list[bytes] = []
    source = ("", 0)
    size = 0
    for _ in range(reads):
        arrived = read(sock)
        if arrived is None:
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
