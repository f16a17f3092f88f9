"""PySpark's daemon, which forks the Python workers, without one of its tracebacks.

A worker that waits for more work when the session ends writes to a connection that Java has closed, and
PySpark prints a BrokenPipeError after the results, or a part of it in the middle of them. Here such a worker
ends without a word. Java sees that it has ended, whenever that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import daemon

CLOSED = 1
"""What a worker returns that is not to be used again."""


def quiet(worker: Callable[..., int]) -> Callable[..., int]:
    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return CLOSED

    return run


if __name__ == "__main__":
    daemon.worker = quiet(daemon.worker)
    daemon.manager()
