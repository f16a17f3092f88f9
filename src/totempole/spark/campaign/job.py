"""Sends cases out in waves. Several are under way at a time, so that no core waits for the last run of one.

What a wave found comes to the driver, which alone needs to see the campaign's directory: a run is a few
kilobytes. A wave that Spark gives up, as when a worker has died and tasks have no second attempt, is sent out
once more with each case in a process of its own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from totempole.errors import TotemError
from totempole.spark.campaign.attempt import Trial, run_all
from totempole.spark.campaign.cases import Case, Wave, size_of, try_case, waves
from totempole.spark.campaign.tables import RUNS, RUNS_SQL, batch_of
from totempole.spark.progress import watching
from totempole.spark.session import cores_of

IN_FLIGHT = 3
"""Waves under way: one that ends, one that runs, and one more when a run goes on and on."""
INTERRUPT_EVERY_S = 0.5
REASON_MAX = 400
"""Characters."""

Keep = Callable[[Any], None]
"""Takes the runs of a wave, a table."""
Tell = Callable[[int], None]
"""Takes how many cases are done, about."""
Send = Callable[[Wave, bool], Any]
"""Has a wave run, each case in a process of its own or not, and brings back the runs."""


def search_cases(
    spark: SparkSession,
    cases: Sequence[Case],
    limit_s: float,
    keep: Keep,
    *,
    tell: Tell = lambda _done: None,
    trial: Trial = try_case,
) -> None:
    """Runs the cases, and hands over what came of them wave by wave, in any order."""
    mine = spark.newSession()  # so that what is interrupted is this search and nothing else

    def send(wave: Wave, apart: bool) -> Any:
        tasks = mine.range(0, len(wave), 1, len(wave))
        return tasks.mapInArrow(_runner(wave, trial, limit_s, apart), RUNS_SQL).toArrow().cast(RUNS)

    sender = Sender(send)
    with watching(spark, lambda tasks, _note, _known: tell(sender.done_after(tasks))):
        try:
            for runs in sender.runs(waves(cases, lambda: cores_of(spark))):
                keep(runs)
                tell(sender.kept)
        finally:
            sender.close(mine.interruptAll)


class Sender:
    """Keeps several waves under way, each on a thread of its own."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "wave")
        self._under_way: set[Future[Any]] = set()
        self._stopping = threading.Event()
        self.kept = 0
        self._sent = 0
        self._tasks = 0

    def close(self, interrupt: Callable[[], object] = lambda: None) -> None:
        """Calls off what is under way; more than once, as a wave may be just about to start."""
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        while self._under_way:
            interrupt()
            self._under_way = wait(self._under_way, INTERRUPT_EVERY_S).not_done

    def done_after(self, tasks: int) -> int:
        """How many cases so many tasks are, about."""
        return max(self.kept, min(self._sent, tasks * self._sent // max(1, self._tasks)))

    def runs(self, some: Iterable[Wave]) -> Iterator[Any]:
        for wave in some:
            self._sent += size_of(wave)
            self._tasks += len(wave)
            self._under_way.add(self._pool.submit(self._try, wave))
            if len(self._under_way) == IN_FLIGHT:
                yield from self._ended()
        while self._under_way:
            yield from self._ended()

    def _ended(self) -> Iterator[Any]:
        done, self._under_way = wait(self._under_way, return_when=FIRST_COMPLETED)
        for future in done:
            runs = future.result()
            self.kept += runs.num_rows
            yield runs

    def _try(self, wave: Wave) -> Any:
        try:
            runs = self._send(wave, False)
        except Exception as error:
            if self._stopping.is_set() or "JOB_CANCELLED" in str(error):
                raise
            runs = self._try_apart(wave)
        if runs.num_rows != size_of(wave):
            raise TotemError(f"Spark brought back {runs.num_rows} runs of {size_of(wave)}: try again")
        return runs

    def _try_apart(self, wave: Wave) -> Any:
        try:
            return self._send(wave, True)
        except Exception as error:
            raise TotemError(f"Spark gave up: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """The telling line of what is mostly a stack of Java: what Python said, or why Spark stopped."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)]
    spark = [line for line in lines if "Job aborted" in line]
    found = next(iter([*python, *spark, *lines]), type(error).__name__)
    return found[:REASON_MAX]


def _runner(
    wave: Wave, trial: Trial, limit_s: float, apart: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: the chunk whose number it is given."""

    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield batch_of(run_all(wave[number], trial, limit_s, apart or again))

    return run
