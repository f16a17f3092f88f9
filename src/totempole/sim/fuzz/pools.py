"""Processes that share the work of a search."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.pool import Pool

from totempole.errors import ConfigurationError

SHARED_MEMORY = "/dev/shm"
"""Where the C library keeps the semaphores that Python's pools need."""


def open_pool(jobs: int) -> Pool:
    """Ctrl-C is for whoever shows the progress; workers end with the pool."""
    context = multiprocessing.get_context("spawn")
    try:
        return context.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    except OSError as error:
        if os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
            raise
        what = "is not writable" if os.path.isdir(SHARED_MEMORY) else "is missing"
        raise ConfigurationError(
            f"{SHARED_MEMORY} {what} ({error.strerror}), and several processes need it: as root, mount "
            f"-t tmpfs -o mode=1777 tmpfs {SHARED_MEMORY}; in a container, give it one"
        ) from error
