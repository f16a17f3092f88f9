"""Nodes with a log for tests of the sink, what is in it, and writers used as Spark uses them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StringType, StructType

from daemons import PATIENT, Cluster, Daemon, cluster, wait_until
from totempole.client import blocking
from totempole.client.log_records import Record
from totempole.runtime.status import StatusError, read_status
from totempole.spark_table.committing import TaskRows
from totempole.spark_table.manifest import Producer
from totempole.spark_table.staging import Sink

PAYLOAD = StructType().add("payload", BinaryType())
KEYED = StructType().add("payload", BinaryType()).add("key", StringType())
ROUTED = StructType().add("payload", BinaryType()).add("log", StringType())


def is_primary(daemon: Daemon) -> bool:
    try:
        log: dict[str, Any] = read_status(daemon.directory).get("log", {})
    except StatusError:
        return False
    return log.get("standing") == "primary"


@contextmanager
def log_nodes(directory: Path, count: int = 1, settings: str = "") -> Iterator[Cluster]:
    """`settings`: more of those of the log."""
    log = f"[log]\nenabled = true\nreplicas = {list(range(1, count + 1))}\n{settings}"
    with cluster(count, directory, PATIENT + log) as them:
        wait_until(lambda: all(map(is_primary, them.daemons.values())), lambda: them[1].log())
        yield them


class Records:
    """What a node's log has, by its service."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.start = 0

    def skip(self) -> None:
        """Only what comes from here on."""
        self.start = self._end()

    def of(self, log: str) -> list[bytes]:
        return [bytes(record.payload) for record in self._read(log)]

    def keyed(self, log: str) -> list[tuple[str, bytes]]:
        return [(record.key, bytes(record.payload)) for record in self._read(log)]

    def staged(self) -> int:
        return sum(record.log.startswith("staged/") for record in self._read(""))

    def _read(self, log: str) -> Iterator[Record]:
        end = self._end()
        return blocking.log_reader(log, path=self.socket).read(self.start, end, known=end)

    def _end(self) -> int:
        """All that was green when this was called is before it: the service learns that a moment later."""
        with blocking.connect(self.socket) as session, session.log("tests") as log:
            return log.append(b"read up to here") + 1

    def first(self) -> int:
        """The first position that is kept."""
        return blocking.log_reader(path=self.socket).status().first

    def holds(self) -> dict[str, int]:
        return blocking.log_reader(path=self.socket).status().holds

    def wait_for_no_holds(self) -> None:
        wait_until(lambda: not self.holds(), lambda: f"holds: {self.holds()}")


def options_of(daemons: Sequence[Path], log: str = "orders", **more: str) -> CaseInsensitiveDict:
    given = {"daemons": ",".join(map(str, daemons)), "log": log, "timeout": "20"} | more
    return CaseInsensitiveDict({name: value for name, value in given.items() if value})


def rows(start: int, stop: int, size: int = 100) -> list[bytes]:
    return [f"{number}.".encode().ljust(size, b"x") for number in range(start, stop)]


def batch_of(payloads: Sequence[bytes], **columns: Sequence[str | None]) -> Any:
    more = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), **more})


def tasks_of(
    options: Mapping[str, str],
    query: str,
    batch: int,
    *partitions: Sequence[Any],
    schema: StructType = PAYLOAD,
) -> list[TaskRows]:
    """What the tasks of a batch give back, as it comes to the driver. Of each partition: record batches."""
    sink = Sink(options, schema)
    sink.check_daemon(0.0)
    sent = pickle.dumps(sink)
    found = [
        pickle.loads(sent).write(iter(batches), Producer(query), batch, partition)
        for partition, batches in enumerate(partitions)
    ]
    tasks: list[TaskRows] = pickle.loads(pickle.dumps(found))
    return tasks
