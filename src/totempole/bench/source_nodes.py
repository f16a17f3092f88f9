"""What Spark does with the log of real nodes: how soon it sees a record, and how fast it writes.

Three `totem node` with a replica each, all else at their defaults, on loopback addresses. They share the
cores with Spark.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from totempole.bench.log_nodes import wait_for_primary
from totempole.bench.replicated import REPLICAS
from totempole.bench.source import DIRECTORY, Batches
from totempole.bench.source_reading import Logs, run_to_end
from totempole.client import blocking
from totempole.lab.cluster import Setup
from totempole.lab.commands import LabError
from totempole.lab.daemons import Daemons
from totempole.lab.loopback import LoopbackLab

SEEN_LOG = "seen"
RECORD_BYTES = 100
WARM_UP_APPENDS = 60
PAUSE_S = (0.02, 0.08)
"""Between two appends: they fall anywhere between two triggers."""
SEEN_S_MAX = 120.0
SERVING = 2
"""The node that a program appends at. Executors use all of them."""


class Nodes:
    def __init__(self, directory: Path, spark: SparkSession) -> None:
        lab = LoopbackLab(REPLICAS)
        settings = ["log.enabled=true", f"log.replicas={sorted(lab.hosts)}"]
        self._daemons = Daemons(lab, directory, Setup(transport="mesh"), settings=settings)
        self._directory = directory
        self._spark = spark

    def __enter__(self) -> Self:
        self._daemons.__enter__()
        try:
            wait_for_primary(self._daemons, self._daemons.numbers)
        except BaseException:
            self._daemons.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.close()

    @property
    def _replicas(self) -> str:
        return ",".join(str(self._daemons.socket(number)) for number in self._daemons.numbers)

    # How soon a record is seen

    def latencies_ms(self, appends: int, trigger_ms: int) -> list[float]:
        """From when `append` returned until the row is in the hands of a `foreachBatch`."""
        seen = _Seen()
        stream = self._spark.readStream.format("totem").options(replicas=self._replicas, subscribe=SEEN_LOG)
        query = (
            stream.load()
            .writeStream.foreachBatch(seen.take)
            .option("checkpointLocation", str(self._directory / "seen"))
            .trigger(processingTime=f"{trigger_ms} milliseconds")
            .start()
        )
        try:
            with blocking.connect(self._daemons.socket(SERVING), name="bench") as session:
                log = session.log(SEEN_LOG)
                # The query begins with what is appended after it has looked for the first time.
                while not seen.positions:
                    log.append(bytes(RECORD_BYTES))
                    self._check(query)
                    time.sleep(0.1)
                appended_ns = {}
                for _ in range(WARM_UP_APPENDS + appends):
                    position = log.append(random.randbytes(RECORD_BYTES))
                    appended_ns[position] = time.monotonic_ns()
                    time.sleep(random.uniform(*PAUSE_S))
                self._wait(query, seen, max(appended_ns))
        finally:
            query.stop()
        measured = sorted(appended_ns)[WARM_UP_APPENDS:]
        return [(seen.positions[position] - appended_ns[position]) / 1e6 for position in measured]

    def _wait(self, query: Any, seen: _Seen, position: int) -> None:
        give_up_s = time.monotonic() + SEEN_S_MAX
        while not seen.has(position):
            self._check(query)
            if time.monotonic() > give_up_s:
                raise LabError(f"after {SEEN_S_MAX:g} s the stream has not seen position {position}")
            time.sleep(0.02)

    @staticmethod
    def _check(query: Any) -> None:
        if not query.isActive:
            raise LabError(f"the stream has ended: {query.exception()}")

    # Writing

    def write(self, logs: Logs, size: int, rows: int, log: str) -> float:
        """Seconds, for so many rows that are read from Parquet."""
        frame = logs.payloads(size, rows)
        start_s = time.perf_counter()
        frame.write.format("totem").mode("append").options(replicas=self._replicas, log=log).save()
        return time.perf_counter() - start_s

    def write_stream(self, logs: Logs, size: int, rows: int, batches: int, log: str) -> Batches:
        """So many rows of a stream that come from a log's directory, in some batches."""
        stream = logs.stream_of(size, DIRECTORY, rows, -(-rows // batches), "payload")
        return run_to_end(
            stream.writeStream.format("totem")
            .options(replicas=self._replicas, log=log)
            .option("checkpointLocation", str(self._directory / f"written-{size}"))
        )

    def count(self, log: str) -> int:
        """Rows that are in the log now."""
        reader = self._spark.read.format("totem").options(
            replicas=self._replicas, subscribe=log, columns="position"
        )
        return reader.load().count()


class _Seen:
    """When which position was there."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, frame: DataFrame, batch: int) -> None:
        found = [row[0] for row in frame.select("position").collect()]
        now_ns = time.monotonic_ns()
        with self._lock:
            for position in found:
                self.positions.setdefault(position, now_ns)

    def has(self, position: int) -> bool:
        with self._lock:
            return position in self.positions
