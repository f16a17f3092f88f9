"""A program with many open files, as a server for a thousand others is."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

SET_SIZE = 1_024
"""What `select` can wait for has a lower descriptor (FD_SETSIZE)."""


@contextmanager
def crowded() -> Iterator[None]:
    """Whatever is opened meanwhile has a descriptor that `select` cannot take."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, min(2 * SET_SIZE, most)), most))
    files = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    try:
        while files[-1] < SET_SIZE:
            files.append(os.dup(files[0]))
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
