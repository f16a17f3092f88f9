"""What a running job has done so far, asked for now and then on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

POLL_S = 0.3

Tell = Callable[[int, str, int], None]
"""Takes the tasks that are done, a word about those under way, and the tasks that are known so far."""


class Watch:
    """What the work itself says of where it is; shown beside the tasks."""

    def __init__(self) -> None:
        self.note = ""


@contextmanager
def watching(spark: SparkSession, tell: Tell) -> Iterator[Watch]:
    """Calls `tell` while the block runs its jobs."""
    watch, stop = Watch(), threading.Event()
    arguments = (spark, tell, watch, stop)
    watcher = threading.Thread(target=_watch, args=arguments, name="spark progress", daemon=True)
    watcher.start()
    try:
        yield watch
    finally:
        stop.set()
        watcher.join()


def _watch(spark: SparkSession, tell: Tell, watch: Watch, stop: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    while not stop.wait(POLL_S):
        running = 0
        active = set(tracker.getActiveStageIds())
        for stage in active:
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = (info.numCompletedTasks, info.numTasks)
                running += info.numActiveTasks
        done, known = count(stages, active)
        note = f"tasks, {running} running" if running else "tasks"
        tell(done, f"{note}; {watch.note}" if watch.note else note, known)


def count(stages: Mapping[int, tuple[int, int]], active: Collection[int]) -> tuple[int, int]:
    """Tasks that are done, and all that are known. A stage that is not active any more is done, whatever was
    seen of it last."""
    done = sum(completed if stage in active else tasks for stage, (completed, tasks) in stages.items())
    return done, sum(tasks for _, tasks in stages.values())
