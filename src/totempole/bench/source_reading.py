"""Reads synthetic logs with Spark: from a directory, from log services, and the same rows from Parquet."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from totempole.bench.source import (
    AS_PLANNED,
    DIRECTORY,
    ONE,
    PARQUET,
    SMALL,
    THREE,
    Batches,
    Cell,
    Plan,
    Reading,
    StreamCell,
)
from totempole.bench.spark_processes import CpuMeter, Memory, sampled_memory
from totempole.bench.synthetic_log import CLUSTER_ID, LOG, REPLICAS, write_log
from totempole.client.blocking_log_reader import LogReader
from totempole.client.endpoint import Reconnect
from totempole.client.log_endpoints import log_endpoints
from totempole.log_service.settings import ServiceSettings, encode_settings

COMPARED_ROWS = 1_000_000
"""Of each log, that are compared with those of Parquet. They warm Java up, too."""
SERVED = {ONE: 1, THREE: 3}
READY_S = 60.0


class Services:
    """A log service for each replica, as nodes start them. They share one directory: that saves disk, and the
    pages of files are in memory once, as they would be on each host."""

    def __init__(self, log: Path, sockets: Path) -> None:
        self._log = log
        self.sockets = [sockets / f"{log.name}-{number}-log.sock" for number in REPLICAS]
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for number, path in zip(REPLICAS, self.sockets, strict=True):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "totempole.runtime.log_child"], stdin=subprocess.PIPE
            )
            self.processes.append(process)
            assert process.stdin is not None
            process.stdin.write(
                encode_settings(ServiceSettings(str(self._log), CLUSTER_ID, number, socket=str(path)))
            )
            process.stdin.flush()
        for path in self.sockets:
            self.reader(path).status()

    def reader(self, path: Path) -> LogReader:
        return LogReader(log_endpoints(path), reconnect=Reconnect(most_s=0.2, give_up_s=READY_S))

    def addresses(self, count: int) -> str:
        return ",".join(map(str, self.sockets[:count]))

    def close(self) -> None:
        """They end with their input."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait()


class Logs:
    """Synthetic logs, by the size of their records, each with its log services and a copy as Parquet."""

    def __init__(self, spark: SparkSession, directory: Path, plan: Plan) -> None:
        self.spark = spark
        self._directory = directory
        self._plan = plan
        self._services: dict[int, Services] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def write(self, size: int) -> None:
        write_log(self._log(size), self._plan.rows_of(size), size)
        services = self._services[size] = Services(self._log(size), self._directory)
        self._open.callback(services.close)
        services.start()

    def write_parquet(self, size: int) -> None:
        """As Spark writes what it reads from the log."""
        rows = self._totem(size, DIRECTORY, self._plan.read_rows(size))
        rows.write.option("compression", "none").parquet(self._parquet(size))

    def differences(self, size: int) -> list[str]:
        """Between what all ways to read give."""
        rows = min(COMPARED_ROWS, self._plan.read_rows(size))
        found = {
            origin: _digest(self._totem(size, origin, rows).where(F.col("log") == LOG))
            for origin in (DIRECTORY, ONE, THREE)
        }
        found[PARQUET] = _digest(self.spark.read.parquet(self._parquet(size)).where(F.col("position") < rows))
        wanted = found[PARQUET]
        assert wanted[0] == rows, f"{wanted[0]} rows of {rows} are there as Parquet"
        return [
            f"{size} bytes from {origin}: {digest} instead of {wanted}"
            for origin, digest in found.items()
            if digest != wanted
        ]

    # Measurements

    def read(self, cell: Cell) -> Reading:
        rows = cell.rows or self._plan.read_rows(cell.size)
        frame = self._frame(cell, rows)
        if cell.tasks != AS_PLANNED:
            frame = frame.coalesce(cell.tasks)
        return self._timed(lambda: _drain(frame), rows, cell.size)

    def read_all(self, cell: Cell) -> tuple[Reading, Memory]:
        """All rows of the longest log, and what memory that takes."""
        with sampled_memory() as memory:
            reading = self.read(cell)
        return reading, memory

    def count(self, origin: str) -> int:
        """All rows of the longest log."""
        return self._frame(Cell(SMALL, origin, columns="position"), self._plan.rows).count()

    def stream(self, cell: StreamCell) -> tuple[Reading, Batches]:
        """The last rows of a log, as a stream that ends with it."""
        size, origin, tasks, batches = cell
        rows = self._plan.read_rows(size)
        stream = self.stream_of(size, origin, rows, 0 if batches == 1 else -(-rows // batches))
        if tasks != AS_PLANNED:
            stream = stream.coalesce(tasks)
        done: list[Batches] = []
        reading = self._timed(lambda: done.append(run_to_end(stream.writeStream.format("noop"))), rows, size)
        return reading, done[0]

    def stream_of(self, size: int, origin: str, rows: int, rows_max: int = 0, columns: str = "") -> DataFrame:
        """The last rows of a log."""
        stream = self.spark.readStream.format("totem")
        stream = stream.option("startingOffsets", str(self._plan.rows_of(size) - rows))
        if rows_max:
            stream = stream.option("maxOffsetsPerTrigger", str(rows_max))
        if columns:
            stream = stream.option("columns", columns)
        if origin == DIRECTORY:
            return stream.load(str(self._log(size)))
        return stream.option("replicas", self._services[size].addresses(SERVED[origin])).load()

    def payloads(self, size: int, rows: int) -> DataFrame:
        """From Parquet: to be written somewhere."""
        return self.spark.read.parquet(self._parquet(size)).where(F.col("position") < rows).select("payload")

    def client_rates(self, rows: int) -> dict[str, float]:
        """Rows per second that a program without Spark reads from one log service."""
        services = self._services[SMALL]

        def per_s(read: Callable[[LogReader], int]) -> float:
            reader = services.reader(services.sockets[0])
            start_s = time.perf_counter()
            count = read(reader)
            assert count == rows, f"{count} rows were read of {rows}"
            return rows / (time.perf_counter() - start_s)

        return {
            "log_reader().read": per_s(lambda reader: sum(1 for _ in reader.read(0, rows))),
            "log_reader().batches": per_s(lambda reader: sum(map(len, reader.batches(0, rows)))),
        }

    # Within

    def _timed(self, run: Callable[[], object], rows: int, size: int) -> Reading:
        meter = CpuMeter(process.pid for process in self._services[size].processes)
        start_s = time.perf_counter()
        run()
        seconds = time.perf_counter() - start_s
        spent = meter.spent()
        return Reading(rows, seconds, spent.java_s, spent.workers_s, spent.others_s)

    def _frame(self, cell: Cell, rows: int) -> DataFrame:
        if cell.origin != PARQUET:
            return self._totem(cell.size, cell.origin, rows, cell.columns)
        frame = self.spark.read.parquet(self._parquet(cell.size))
        return frame.select(*cell.columns.split(",")) if cell.columns else frame

    def _totem(self, size: int, origin: str, rows: int, columns: str = "") -> DataFrame:
        """The first rows of a log."""
        reader = self.spark.read.format("totem").option("endingOffsets", str(rows))
        if columns:
            reader = reader.option("columns", columns)
        if origin == DIRECTORY:
            return reader.load(str(self._log(size)))
        return reader.option("replicas", self._services[size].addresses(SERVED[origin])).load()

    def _log(self, size: int) -> Path:
        return self._directory / f"log-{size}"

    def _parquet(self, size: int) -> str:
        return str(self._directory / f"parquet-{size}")


def run_to_end(stream: DataStreamWriter) -> Batches:
    """A stream that ends with what is there now."""
    start_s = time.perf_counter()
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - start_s
    batches = [
        (int(progress["numInputRows"]), progress["durationMs"]["triggerExecution"] / 1e3)
        for progress in query.recentProgress
    ]
    return Batches(seconds, tuple(batches))


def _drain(frame: DataFrame) -> None:
    """Every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def _digest(frame: DataFrame) -> tuple[int, ...]:
    """Of all columns of all rows: how many, and a sum of their hashes."""
    hashed = F.xxhash64(*[F.col(name) for name in sorted(frame.columns)])
    row = frame.select(hashed.alias("hash")).agg(F.count("*"), F.bit_xor("hash")).first()
    assert row is not None, "an aggregate has a row"
    return tuple(row)
