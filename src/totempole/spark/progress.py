"""What a running job has done so far, asked for now and then on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

POLL_S = 0.3

Tell = Callable[[int, str], None]
"""Takes the tasks that are done and a word about those under way."""


@contextmanager
def watching(spark: SparkSession, tell: Tell) -> Iterator[None]:
    """Calls `tell` while the block runs its jobs."""
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, tell, stop), name="spark progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(spark: SparkSession, tell: Tell, stop: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    done: dict[int, int] = {}
    while not stop.wait(POLL_S):
        running, left = 0, 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done[stage] = info.numCompletedTasks
                running += info.numActiveTasks
                left += info.numTasks - info.numCompletedTasks
        tell(sum(done.values()), f"tasks; {left} to go, {running} running" if left else "tasks")
