"""Large bodies in memory that a program shares with its daemon; the socket carries where they lie.

A socket costs a large body two copies, and the kernel pages for what is on its way. So a program on the
daemon's host offers memory with its HELLO. The daemon puts bodies there as long as there is room, and writes
SHARED frames in their place; what does not fit goes through the socket as before. The order of frames is that
of the socket. The program copies a body out when it takes the frame, and says with FREED how far it is.

The memory is a ring: bodies lie behind one another, each in one piece, and are freed in their order. Where
nothing is left in it, it begins at its start again: memory that was used just now is in the caches.

Neither side believes the other. A program checks that a body lies within the memory; the daemon keeps its
own account of what is free, and only writes. This module has the daemon's side; the program's is in `codec`.
"""

from __future__ import annotations

from collections.abc import Sequence

from totempole.errors import CodecError
from totempole.session import Shared
from totempole.types import Payload

SHARED_BYTES_MAX = 16 * 1024 * 1024
"""What a daemon takes."""
SHARED_LEAST = 16_384
"""A shorter frame goes through the socket: waking the program costs more than its copies."""
LINE_BYTES = 64
"""Bodies begin at multiples of it."""


class SharedWriter:
    """The daemon's side."""

    __slots__ = ("_at", "_freed", "_memory", "_used")

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._at = 0
        """Where the next body goes, if it fits before the end."""
        self._used = self._freed = 0
        """Bytes since the beginning, with those that were passed over."""

    def put(self, kind: int, parts: Sequence[Payload]) -> Shared | None:
        """Copies a body into the memory; None if there is no room for it."""
        length = sum(map(len, parts))
        size = -(-length // LINE_BYTES) * LINE_BYTES
        if self._used == self._freed:
            self._at = 0
        start = self._at if self._at + size <= len(self._memory) else 0
        skipped = 0 if start == self._at else len(self._memory) - self._at
        if self._used - self._freed + skipped + size > len(self._memory):
            return None
        at = start
        for part in parts:
            self._memory[at : at + len(part)] = part
            at += len(part)
        self._at = start + size
        self._used += skipped + size
        return Shared(kind, start, length, self._used)

    def freed(self, total: int) -> None:
        """The program has copied out so much. What cannot be raises CodecError."""
        if not self._freed <= total <= self._used:
            raise CodecError("frame malformed", f"FREED of {total} bytes: {self._used} were used")
        self._freed = total
