"""`spark.readStream.format("totem")`: every row of the log once, over restarts, and with other replicas."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from replicated_logs import Replicas, replicated

from daemons import PATIENT, cluster, wait_until
from totempole.client import blocking
from totempole.client.blocking_log import Log
from totempole.errors import SessionError
from totempole.session.log_frames import ReplicaStatus
from written_logs import LOG

LIMIT_S = 60.0


class Query:
    """A query whose batches a test sees."""

    def __init__(self, spark: SparkSession, replicas: Replicas, checkpoint: Path) -> None:
        self._spark = spark
        self._options = replicas.options | {"startingOffsets": "earliest"}
        self._checkpoint = checkpoint
        self.batches: list[list[tuple[int, bytes]]] = []
        """Positions and payloads of each that has rows."""

    @property
    def rows(self) -> list[tuple[int, bytes]]:
        return [row for batch in self.batches for row in batch]

    def start(self, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        frame = self._spark.readStream.format("totem").options(**self._options | options).load()
        writer = frame.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(self._checkpoint)
        )
        return writer.trigger(**trigger).start()

    def run(self, **options: str) -> StreamingQuery:
        """As far as the log has got."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination(LIMIT_S)
        return query

    @contextmanager
    def running(self, **options: str) -> Iterator[StreamingQuery]:
        query = self.start({"processingTime": "100 milliseconds"}, **options)
        try:
            yield query
        finally:
            query.stop()

    def wait_for(self, query: StreamingQuery, count: int) -> None:
        """Until so many rows have come."""
        end_s = time.monotonic() + LIMIT_S
        while len(self.rows) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < end_s, f"{len(self.rows)} rows have come"
            time.sleep(0.02)

    def _take(self, frame: DataFrame, _: int) -> None:
        rows = [(row.position, bytes(row.payload)) for row in frame.select("position", "payload").collect()]
        if rows:
            self.batches.append(rows)


def expected(replicas: Replicas, start: int = 0) -> list[tuple[int, bytes]]:
    return [(row.position, row.payload) for row in replicas.rows(start)]


def fill(replicas: Replicas, runs: int) -> None:
    for number in range(runs):
        replicas.append([f"{number}-{index}".encode() for index in range(10)])


def test_a_query_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """In bounded batches, up to where the log ended when it was started. A batch that was not committed (the
    driver was killed) has the same rows again, though the log has grown since."""
    with replicated(tmp_path, 2) as replicas:
        fill(replicas, 20)
        query = Query(spark, replicas, tmp_path / "checkpoint")
        query.run(maxOffsetsPerTrigger="70")
        assert [len(batch) for batch in query.batches] == [70, 70, 60]
        assert query.rows == expected(replicas)
        for name in ("2", ".2.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        fill(replicas, 5)
        query.run(maxOffsetsPerTrigger="70", minPartitions="3")
        assert query.batches.pop(3) == query.batches[2]
        assert query.rows == expected(replicas)
        offsets = (tmp_path / "checkpoint" / "offsets" / "3").read_text().splitlines()
        assert json.loads(offsets[-1]) == {"position": 250, "log": f"{LOG:x}"}


def test_a_query_follows_the_log_while_replicas_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    with replicated(tmp_path, 3) as replicas:
        query = Query(spark, replicas, tmp_path / "checkpoint")
        with query.running() as running:
            for number in (1, 2, 3):
                fill(replicas, 10)
                query.wait_for(running, number * 100)
                replicas.services[number].kill()
                fill(replicas, 1)
                query.wait_for(running, number * 100)
                replicas.services[number].start()
            query.wait_for(running, 330)
            (progress,) = [each for each in running.recentProgress if each.batchId == 0]
            latest = json.loads(progress.sources[0].latestOffset or "")
            end = json.loads(progress.sources[0].endOffset or "")
            assert latest["behind"] == latest["position"] - end["position"]
            assert not progress.sources[0].metrics  # Spark takes none from a Python source
        assert query.rows == expected(replicas)


def failure(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as found:
        query.awaitTermination(LIMIT_S)
    return str(found.value)


def test_logs_that_do_not_fit_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """One that was trimmed, and that of another cluster."""
    with replicated(tmp_path / "a") as replicas, replicated(tmp_path / "b", log=LOG + 1) as other:
        fill(replicas, 5)
        query = Query(spark, replicas, tmp_path / "checkpoint")
        query.run()
        for _ in range(2):
            replicas.begin_segment()
            fill(replicas, 5)
        replicas.begin_segment()
        replicas.trim(3)
        told = failure(query.start({"availableNow": True}))
        assert "Some data may have been lost: positions 50 to 99 are not in the log any more" in told
        assert "failOnDataLoss" in told
        query.run(failOnDataLoss="false")
        assert [position for position, _ in query.rows] == [*range(50), *range(100, 150)]
        fill(other, 20)
        elsewhere = Query(spark, other, tmp_path / "checkpoint")
        told = failure(elsewhere.start({"availableNow": True}))
        assert f"the checkpoint is of log {LOG:x}, and the replicas have log {LOG + 1:x}" in told
        assert not elsewhere.rows


def test_mistakes_end_a_query_at_once(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, Replicas(tmp_path, 1), tmp_path / "checkpoint")
    assert "option endingOffsets is for batches" in failure(
        query.start({"availableNow": True}, endingOffsets="5")
    )


HOLDING_LOG = "[log]\nenabled = true\nreplicas = [1]\n"


@pytest.mark.nodes
def test_a_hold_goes_behind_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """With a node of one replica; then without its daemon, which does not stop the query."""
    with (
        cluster(1, tmp_path, PATIENT + HOLDING_LOG) as them,
        blocking.connect(them[1].socket) as session,
        session.log("orders") as log,
    ):
        _append(log, 100)
        options = {"replicas": str(them[1].socket), "hold": "spark-7", "timeout": "20"}
        query = Query(spark, Replicas(tmp_path, 0), tmp_path / "checkpoint")
        query.run(maxOffsetsPerTrigger="40", **options)
        assert len(query.rows) == 100
        assert log.reader.status().holds == {"spark-7": 80}
        _append(log, 50)
        query.run(**options | {"daemons": "/nowhere/clients.sock"})
        assert len(query.rows) == 150
        assert log.reader.status().holds == {"spark-7": 80}


TRIMMED_LOG = HOLDING_LOG + "segment_bytes = 65536\nretention_bytes = 65536\n"


@pytest.mark.long
@pytest.mark.nodes
def test_a_log_is_trimmed_behind_the_query_and_no_further(spark: SparkSession, tmp_path: Path) -> None:
    """However much is appended: what the query has not committed stays, and what it has goes."""
    with (
        cluster(1, tmp_path, PATIENT + TRIMMED_LOG) as them,
        blocking.connect(them[1].socket) as session,
        session.log("orders") as log,
    ):
        options = {"replicas": str(them[1].socket), "hold": "spark-7", "timeout": "20"}
        query = Query(spark, Replicas(tmp_path, 0), tmp_path / "checkpoint")
        _append(log, 100, 1_000)
        query.run(**options)
        for _ in range(2):
            held = log.reader.status().holds["spark-7"]
            for _ in range(5):  # a segment of each
                _append(log, 100, 1_000)
            # Half a megabyte more than is kept without a hold: all before the hold may go, and nothing else.
            wait_until(lambda held=held: _is_trimmed(log.reader.status(), held))  # type: ignore[misc]
            status = log.reader.status()
            assert status.holds["spark-7"] == held
            assert status.first <= held
            query.run(**options, maxOffsetsPerTrigger="100")
            assert log.reader.status().holds["spark-7"] == held + 500
        assert query.rows == [(position, b"x" * 1_000) for position in range(1_100)]


def _is_trimmed(status: ReplicaStatus, held: int) -> bool:
    """The service has got to the end of what was appended, and all segments before the held one are gone."""
    return status.position == held + 600 and status.first >= held - 200


def _append(log: Log, count: int, size: int = 1) -> None:
    """The log is founded a moment after its node has started."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            log.append_many([b"x" * size] * count)
            return
        except SessionError:
            assert time.monotonic() < end_s
            time.sleep(0.1)
