"""Memory that a program on this host has offered for large frames (`session.shared`).

The program made it, so the daemon takes care: it must be a memfd of ordinary pages, which cannot shrink, and
nobody may punch holes into it any more. The daemon has all of its pages allocated before it writes: a page
that is missing then would end the daemon. All of that is done with the first frame that is large enough:
most programs never get one, and their memory costs nothing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from functools import cache

from totempole.daemon.queue import Outgoing
from totempole.session import HEAD
from totempole.session.codec import encode
from totempole.session.shared import SHARED_BYTES_MAX, SHARED_LEAST, SharedWriter

_FUTURE_WRITE = 0x10
"""F_SEAL_FUTURE_WRITE: nobody maps it to write, or punches holes, from here on. Since Linux 5.1."""
_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Sharing:
    """One program's memory. `exchange` never fails: without room or memory, frames stay as they are."""

    def __init__(self, descriptor: int, bytes_max: int) -> None:
        """The descriptor is closed here. Memory of more than `bytes_max` is not used."""
        self._descriptor = descriptor
        self._bytes_max = bytes_max
        self._writer: SharedWriter | None = None

    def exchange(self, frame: Outgoing) -> Outgoing | None:
        """The frame to write in place of this one, whose body is in the memory now."""
        if self._descriptor >= 0:
            self._open()
        if self._writer is None:
            return None
        first, *rest = frame.buffers
        shared = self._writer.put(first[4], (memoryview(first)[HEAD.size :], *rest))
        return None if shared is None else Outgoing((encode(shared),), weight=0)

    def freed(self, total: int) -> None:
        """Raises CodecError for what cannot be."""
        if self._writer is not None:
            self._writer.freed(total)

    def close(self) -> None:
        self._writer = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        with suppress(OSError, ValueError):
            self._writer = SharedWriter(_mapped(self._descriptor, min(self._bytes_max, SHARED_BYTES_MAX)))
        os.close(self._descriptor)
        self._descriptor = -1


def _mapped(descriptor: int, bytes_max: int) -> memoryview:
    """Raises OSError or ValueError for what cannot be written to safely."""
    about = os.fstat(descriptor)
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    is_fit = about.st_dev == _memfd_device() and seals & _FIXED_SIZE == _FIXED_SIZE
    if not is_fit or not SHARED_LEAST <= about.st_size <= bytes_max:
        raise ValueError("not memory that can be shared")
    memory = mmap.mmap(descriptor, about.st_size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
    os.posix_fallocate(descriptor, 0, about.st_size)
    return memoryview(memory)


@cache
def _memfd_device() -> int:
    """All memfds of ordinary pages are on one device; those of huge pages, which may run out, are not."""
    descriptor = os.memfd_create("totempole", os.MFD_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
