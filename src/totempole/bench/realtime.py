"""Realtime priority for programs that are measured: corosync gives itself one unless told not to.

Ours get theirs as their users would give it to them, from outside (docs/tuning.md, "CPU and priority").
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIORITY = 10


@contextmanager
def realtime(processes: Iterable[int]) -> Iterator[None]:
    """All threads that these have now, for as long as it lasts."""
    threads = [int(task.name) for process in processes for task in Path(f"/proc/{process}/task").iterdir()]
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(PRIORITY))
    try:
        yield
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
