"""Writing: `df.write.format("totem")` and `df.writeStream.format("totem")`.

A writer is made on the driver, which checks all that can be checked before tasks run, and travels to the
executors. A task's rows go back to the driver with its message if they are few; otherwise it stages them.
Only what Spark gives to `commit` counts. An attempt of a task that fails, or that nobody waits for, leaves
staged runs that no manifest names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from totempole.client.appending import HEAD_BYTES, NO_LOG
from totempole.client.blocking import Session
from totempole.client.blocking_log import Log
from totempole.errors import ConfigurationError, SessionError, TlsError
from totempole.session import KEY_BYTES_MAX
from totempole.spark_table.access import OPTIONS as ACCESS_OPTIONS
from totempole.spark_table.access import REFUSALS, Access
from totempole.spark_table.committing import PAUSE_S, TaskRows, commit, not_taken, release
from totempole.spark_table.manifest import PackedRun, Producer, check_id, encode
from totempole.spark_table.options import check_known
from totempole.spark_table.packed_rows import RowPacker, check_target
from totempole.spark_table.publishing import Outcome

INLINE_BYTES = 128 * 1024
"""Rows of a task that go back to the driver with its message, at most."""
STAGE_BYTES = 8 * 1024 * 1024
"""Staged at once: more than what a session has under way."""
ROW_HEAD_BYTES = 256 + KEY_BYTES_MAX
"""More than what a staged run of one row has beside its payload."""

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties of a task, as Spark sets them."""

COLUMNS: Mapping[str, tuple[type[DataType], ...]] = {
    "payload": (BinaryType, StringType),
    "key": (StringType,),
    "log": (StringType,),
}
OF_BATCHES, OF_STREAMS = ("idempotencyKey",), ("firstBatch",)
OF_SPARK = ("checkpointLocation", "queryName")
"""Spark's own, which it hands on."""
OPTIONS = (*ACCESS_OPTIONS, "log", *OF_SPARK, *OF_BATCHES, *OF_STREAMS)

_logger = logging.getLogger("totempole.spark_table")

T = TypeVar("T")


class TaskMessage(WriterCommitMessage):
    def __init__(self, rows: TaskRows) -> None:
        self.rows = rows


def tasks_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskRows]:
    return [message.rows for message in messages if isinstance(message, TaskMessage)]


class OrderWriter(DataSourceArrowWriter):
    """A batch write: a producer of its own, or the one that `idempotencyKey` names."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('mode("overwrite"): a log only grows; use mode("append")')
        for name in OF_STREAMS:
            if name in options:
                raise ConfigurationError(f"option {name} is for streams: use writeStream, or leave it out")
        self._key = options.get("idempotencyKey", "")
        if "idempotencyKey" in options:
            check_id("idempotencyKey", self._key)
        self._producer = self._key or str(uuid4())
        self._sink = Sink(options, schema)
        self._sink.check_daemon(0.0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return TaskMessage(self._sink.write(iterator, Producer(self._producer), 0, partition))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        tasks = tasks_of(messages)
        if not self._key and not any(task.rows for task in tasks):
            return
        tasks = tasks or [TaskRows(self._producer, 0, 0)]
        if commit(self._sink.access, 0, tasks) is Outcome.REPEATED and self._key:
            _logger.warning(
                "idempotencyKey = %s: a write with this key is in the log already; nothing was written",
                self._key,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Undoes nothing. What was begun with a key is finished by the next write with it."""
        if not self._key:
            release(self._sink.access, tasks_of(messages))


class OrderStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's. Spark makes one for each batch, and another one to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('outputMode("complete"): a log only grows; use outputMode("append")')
        for name in OF_BATCHES:
            if name in options:
                raise ConfigurationError(f"option {name} is for batch writes: a streaming query has its own")
        first = options.get("firstBatch", "0")
        if not (first.isascii() and first.isdecimal()):
            raise ConfigurationError(f"option firstBatch = {first}: give the number of a batch, from 0")
        self._first_batch = int(first)
        self._sink = Sink(options, schema)
        self._sink.check_daemon(self._sink.access.patience_s)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SessionError(f"Spark has not told the task {QUERY_ID} and {BATCH_ID}")
        rows = self._sink.write(iterator, Producer(query), int(batch), context.partitionId())
        return TaskMessage(rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = tasks_of(messages)
        if not tasks:
            raise SessionError(f"batch {batchId}: no task has told which query it belongs to")
        commit(self._sink.access, batchId, tasks, self._first_batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Undoes nothing: Spark calls it also when `commit` has failed in the middle, and the same batch
        comes again."""


class Sink:
    """Where rows go, and how: what driver and executors share."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_known(options, OPTIONS)
        self.access = Access.of(options)
        self._log = options.get("log", "")
        self._row_bytes_max = 0
        self._check(schema)

    def _check(self, schema: StructType) -> None:
        if self.access.directory:
            raise ConfigurationError(
                f"save({self.access.directory!r}): rows are appended by a daemon, not in a directory; give "
                "the option daemons"
            )
        check_columns(schema)
        if self._log:
            check_target(self._log, "option log")
        elif "log" not in schema.names:
            raise ConfigurationError("option log is missing: name the log, or give a column log")
        self.access.check_daemons()

    def check_daemon(self, patience_s: float) -> None:
        """It is there, and keeps a log."""
        with opened(self.access, "spark driver", patience_s) as session:
            most = session.protocol.appending.append_bytes_max or 0
        if not most:
            raise SessionError(f"option daemons = {','.join(self.access.daemons)}: {NO_LOG}")
        self._row_bytes_max = most - HEAD_BYTES - ROW_HEAD_BYTES

    def write(
        self, batches: Iterator[pa.RecordBatch], producer: Producer, batch: int, partition: int
    ) -> TaskRows:
        """On an executor: the rows of one partition."""
        packer = RowPacker(self._log, self._row_bytes_max)
        with _Task(self.access, producer, batch, partition) as task:
            for rows in batches:
                for run in packer.add(rows):
                    task.take(run)
            for run in packer.close():
                task.take(run)
            return task.end(packer.rows)


def check_columns(schema: StructType) -> None:
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise ConfigurationError(
                f"column {field.name}: a log takes the columns payload, key and log; select these, for "
                'example with to_json(struct("*")) AS payload'
            )
        if not isinstance(field.dataType, kinds):
            names = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigurationError(
                f"column {field.name} is of type {field.dataType.simpleString()}: give {names}"
            )
    if "payload" not in schema.names:
        raise ConfigurationError(
            f"column payload is missing: the columns are {', '.join(schema.names) or 'none'}"
        )
    if len(set(schema.names)) < len(schema.names):
        raise ConfigurationError(f"columns {', '.join(schema.names)}: give each once")


@contextmanager
def opened(access: Access, name: str, patience_s: float) -> Iterator[Session]:
    """A session with a daemon; one that is away is waited for, and one that refuses a certificate is not."""
    until_s = time.monotonic() + patience_s
    refusals = 0
    while True:
        session = access.session(name)
        try:
            session.__enter__()
            break
        except SessionError as error:
            refusals += isinstance(error, TlsError)
            if refusals >= REFUSALS or time.monotonic() + PAUSE_S > until_s:
                raise
        time.sleep(PAUSE_S)
    try:
        yield session
    finally:
        session.close()


class _Task:
    """The rows of one task: kept while they are few, then staged."""

    def __init__(self, access: Access, producer: Producer, batch: int, partition: int) -> None:
        self._access = access
        self._producer = producer
        self._batch = batch
        self._partition = partition
        self._waiting: list[PackedRun] = []
        self._bytes = 0
        self._positions: list[int] = []
        self._hold = ""
        self._log: Log | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def take(self, run: PackedRun) -> None:
        self._waiting.append(run)
        self._bytes += run.size
        if self._bytes > (STAGE_BYTES if self._positions else INLINE_BYTES):
            self._stage()

    def end(self, rows: int) -> TaskRows:
        if not self._positions:
            return TaskRows(self._producer.id, self._partition, rows, inline=tuple(self._waiting))
        if self._waiting:
            self._stage()
        assert self._positions == sorted(self._positions), "rows are staged in their order"
        return TaskRows(
            self._producer.id, self._partition, rows, positions=tuple(self._positions), hold=self._hold
        )

    def _stage(self) -> None:
        """Until all of it is green. What may be there twice then is named once."""
        if self._log is None:
            name = f"spark task {self._producer.id}"
            session = self._open.enter_context(opened(self._access, name, self._access.patience_s))
            self._log = session.log(self._producer.staged_log)
        log, records = self._log, [encode(run) for run in self._waiting]
        what = f"{sum(map(len, records))} bytes to be staged"
        self._positions += self._insist(lambda limit_s: log.append_many(records, timeout=limit_s), what)
        self._waiting, self._bytes = [], 0
        if not self._hold:
            first = self._positions[0]
            self._hold = hold = self._producer.hold(self._batch, first)
            self._insist(lambda limit_s: log.hold(hold, first, timeout=limit_s), f"hold {hold!r}")

    def _insist(self, ask: Callable[[float], T], what: str) -> T:
        """Asks until it is done: a log that pushes back makes the task wait."""
        until_s = time.monotonic() + self._access.patience_s
        while True:
            try:
                return ask(max(PAUSE_S, until_s - time.monotonic()))
            except SessionError as error:
                if time.monotonic() + PAUSE_S > until_s:
                    raise not_taken(what, self._access.patience_s, error) from None
                _logger.info("%s: %s", what, error)
            time.sleep(PAUSE_S)
