"""Bounds in time and memory for one run, in the process that runs it."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

MEMORY_MAX_BYTES = 4 << 30
"""What a run may take beyond what its process has already; one takes some 100 MB."""
AGAIN_S = 1.0
"""An alarm that comes while Python cannot raise anything comes again."""
LAST_S = 10.0
"""If the alarm is not heard for so long, as in a loop that never comes back to Python, the process ends."""


class TimeLimit(BaseException):
    """No `Exception`: what the protocol raises is caught and counted as its own fault, and this is not."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raises TimeLimit in the block when the time is up. For the main thread only, as signals are."""
    before = signal.signal(signal.SIGALRM, _time_is_up)
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(limit_s + LAST_S, exit=True, file=nowhere)
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()


def _time_is_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise TimeLimit


@contextmanager
def memory_limit(more_bytes: int = MEMORY_MAX_BYTES) -> Iterator[None]:
    """A MemoryError in the block is better than a kernel that ends the largest process it sees."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space_bytes() + more_bytes
    if soft != resource.RLIM_INFINITY:
        wanted = min(wanted, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
