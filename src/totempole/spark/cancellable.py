"""Work that Ctrl-C can call off.

It runs on a thread of its own, so that the signal finds the main thread at rest: inside a call to Java
nothing could be cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark.sql import SparkSession

CANCEL_EVERY_S = 0.3

Found = TypeVar("Found")


def run_cancellable(
    spark: SparkSession, work: Callable[[], Found], cancel: Callable[[], object] | None = None
) -> Found:
    """What the work gives. Ctrl-C calls `cancel` (or else cancels all jobs) until it has ended, and goes on
    up. More than once, as a job may be just about to start."""
    with ThreadPoolExecutor(1, "work") as pool:
        under_way = pool.submit(work)
        try:
            return under_way.result()
        except KeyboardInterrupt:
            spark.sparkContext.setLogLevel("OFF")  # what is called off complains, at length
            while not under_way.done():
                (cancel or spark.sparkContext.cancelAllJobs)()
                wait([under_way], CANCEL_EVERY_S)
            spark.sparkContext.setLogLevel("WARN")
            raise
