"""A log that pushes back makes a streaming query slow. It does not fail, and each row is there once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from replicated_logs import replicated
from sink_nodes import Records, log_nodes, rows

from daemons import LIMIT_S, Cluster, pause, resume, wait_until
from totempole.runtime.status import StatusError, read_status

pytestmark = [pytest.mark.nodes, pytest.mark.long]

WINDOW_BYTES = 65_536
BATCHES, BATCH_ROWS, ROW_BYTES = 12, 2_000, 500
STOPPED_S, RUNNING_S = 1.2, 0.4
"""Shorter than a ring of these tests takes to give up a member: nobody leaves, the log is slow."""
STOPS = 5


class SlowReplicas:
    """Stops two of three nodes again and again: nothing is ordered meanwhile."""

    def __init__(self, them: Cluster, query: StreamingQuery) -> None:
        self._them = them
        self._query = query
        self.unsent_bytes = 0
        """What the node in front has had in its window, and behind it, at most."""
        self.done: list[int] = []
        """Batches that were done during each stop."""

    def run(self) -> None:
        for _ in range(STOPS):
            if not self._query.isActive:
                return
            pause(self._them, 2, 3)
            try:
                self._watch()
            finally:
                resume(self._them, 2, 3)
            time.sleep(RUNNING_S)

    def _watch(self) -> None:
        before, end_s = batches_done(self._query), time.monotonic() + STOPPED_S
        while time.monotonic() < end_s:
            try:
                log = read_status(self._them[1].directory).get("log", {})
            except StatusError:  # the node is busy
                continue
            self.unsent_bytes = max(self.unsent_bytes, log.get("unsent_bytes", 0))
            time.sleep(0.02)
        self.done.append(batches_done(self._query) - before)


def batches_done(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return 0 if progress is None else progress.batchId + 1


def test_a_streaming_query_slows_down_with_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """A batch is many times as large as the window."""
    (tmp_path / "nodes").mkdir()
    wanted = rows(0, BATCHES * BATCH_ROWS, ROW_BYTES)
    with (
        replicated(tmp_path / "source") as source,
        log_nodes(tmp_path / "nodes", 3, f"window_bytes = {WINDOW_BYTES}\n") as them,
    ):
        for start in range(0, len(wanted), 500):
            source.append(wanted[start : start + 500])
        stream = spark.readStream.format("totem").options(**source.options, startingOffsets="earliest")
        sink = {"daemons": str(them[1].socket), "log": "copies", "timeout": "60"}
        query = (
            stream.option("maxOffsetsPerTrigger", BATCH_ROWS).load().select("payload")
            .writeStream.format("totem").options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            wait_until(lambda: batches_done(query) > 0 or not query.isActive)
            assert query.isActive, query.exception()
            slow = SlowReplicas(them, query)
            slowing = threading.Thread(target=slow.run)
            slowing.start()
            slowing.join()
            query.awaitTermination(LIMIT_S)
            assert not query.isActive
            assert query.exception() is None
        finally:
            query.stop()
        assert slow.unsent_bytes > WINDOW_BYTES, "the window was full"
        assert len(slow.done) >= 3
        # The last record of a batch may have been ordered just before a stop; none begins and ends in it.
        assert max(slow.done) <= 1
        assert min(slow.done) == 0
        assert sorted(Records(them[1].socket).of("copies")) == sorted(wanted)
