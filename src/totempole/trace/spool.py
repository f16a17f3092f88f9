"""A node's trace on disk: an Arrow IPC stream while it is written, Parquet when it is done.

    DIRECTORY/run=R/node=N/.part-00000.arrows     being written: one record batch each `batch_rows` rows
    DIRECTORY/run=R/node=N/part-00000.parquet     done: it takes the stream's place by atomic rename

Rows wait in memory until there are enough for a batch, which is then handed to the kernel. So a killed node
loses its last rows and no others, and the stream that it leaves is a legal prefix, readable without repair;
the node's next start makes it Parquet. A power cut may cost more: the stream is not synced, the Parquet file
is.

A trace has no holes. If rows cannot be written (the disk is full), what is on disk stays a legal prefix, the
spool raises TraceError at the next chance, and writes no more.
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Full, Queue
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from totempole.errors import TraceError
from totempole.trace.arrow import SCHEMA, open_parquet, open_spool, to_batch
from totempole.trace.schema import Row

BATCH_ROWS = 1_024
"""Rows of a batch: to make them columns takes a millisecond or two of the caller's time."""
BATCHES_MAX = 64
"""Batches that wait for the disk. One more, and the trace ends."""
PART_ROWS = 1_000_000
"""Rows of a Parquet file, about; a batch is never parted."""
GROUP_ROWS = 131_072
"""Rows of a row group within it, about."""

_log = logging.getLogger(__name__)


def node_directory(directory: Path, run: str, node: int) -> Path:
    """Where a node's parts are: names as Hive and Spark write and read them."""
    if not run:
        raise TraceError("run = '': give the run a name, which becomes a directory")
    return directory / f"run={quote(run, safe='')}" / f"node={node}"


class Spool:
    """A sink for a recorder. One spool per run and node may be open at a time.

    Its caller has the token, so it never waits for the disk: a thread writes. The rows become columns on the
    caller's thread, because another one would take Python's lock away from it again and again to do so.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        node: int,
        *,
        batch_rows: int = BATCH_ROWS,
        part_rows: int = PART_ROWS,
    ) -> None:
        """Makes what a killed node left behind Parquet, and goes on with the next part."""
        self.place = node_directory(directory, run, node)
        self.failure: TraceError | None = None
        self._batch_rows = batch_rows
        self._part_rows = part_rows
        self._rows: list[Row] = []
        self._lock: int | None = _take_lock(self.place)
        try:
            _recover(self.place)
            parts = sorted(self.place.glob("part-*.parquet"))
            number = _number(parts[-1]) + 1 if parts else 0
            self.last_step = _last_step(parts[-1]) if parts else 0
            """The greatest step on disk at opening: a recorder of a restarted node begins here."""
        except BaseException:
            self._unlock()
            raise
        # The first batch of a process takes many times as long as the others: have that behind us.
        to_batch([Row(run, node, 0, 0, 0, "", "")], self.place)
        self._stream = _Stream()
        self._writer = _Writer(self.place, number)

    def __call__(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._batch_rows:
            self.flush()

    def flush(self) -> None:
        """Has the rows written soon: they then survive this process, though not a power cut.

        Raises TraceError if some could not be, and ever after.
        """
        self._hand_over()
        self._raise_failure()

    def drain(self) -> None:
        """Flushes, and waits until the kernel has it all."""
        self._hand_over()
        self._writer.wait()
        self._raise_failure()

    def close(self) -> None:
        """Writes what there is, and makes it Parquet. Raises what no flush has raised yet."""
        if self._lock is None:
            return
        told = self.failure is not None
        try:
            self._hand_over()
            self._writer.close()
        finally:
            self._unlock()
        if not told:
            self._raise_failure()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hand_over(self) -> None:
        """Once one batch is lost all later ones are, or the trace would have a hole."""
        rows, self._rows = self._rows, []
        if not rows or self.failure is not None:
            return
        try:
            self._writer.put(self._stream.batch(rows, self.place))
            if self._stream.rows >= self._part_rows:
                self._stream = _Stream()
                self._writer.put(_NEXT_PART)
        except TraceError as error:
            self.failure = error

    def _raise_failure(self) -> None:
        self.failure = self.failure or self._writer.failure
        if self.failure is not None:
            raise self.failure

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class _Pieces(io.RawIOBase):
    """What Arrow writes to: keeps the pieces of a batch, to be written at once."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._bytes

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._bytes += len(piece)
        return len(piece)

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


class _Stream:
    """One Arrow IPC stream: rows in, bytes out. It is never ended by a marker: one without is as legal."""

    def __init__(self) -> None:
        self.rows = 0
        self._pieces = _Pieces()
        self._writer = pa.ipc.new_stream(self._pieces, SCHEMA)

    def batch(self, rows: list[Row], where: Path) -> bytes:
        self._writer.write_batch(to_batch(rows, where))
        self.rows += len(rows)
        return self._pieces.take()


_NEXT_PART = b""
"""Among the batches for the writer: what follows belongs to another part."""


class _Writer:
    """The thread that writes batches, and the parts that they are in."""

    def __init__(self, place: Path, number: int) -> None:
        self.failure: TraceError | None = None
        """Set once, when a write has failed; nothing is written after it."""
        self._place = place
        self._number = number
        self._part: _Part | None = None
        self._converter: threading.Thread | None = None
        self._queue: Queue[bytes | None] = Queue(BATCHES_MAX)
        self._thread = threading.Thread(target=self._run, name="totempole-trace", daemon=True)
        self._thread.start()

    # For the caller's thread

    def put(self, data: bytes) -> None:
        try:
            self._queue.put_nowait(data)
        except Full:
            raise TraceError(
                f"{self._place}: {BATCHES_MAX} batches wait for the disk, and no more may: it stands still "
                "or is too slow; trace less, or name another directory"
            ) from None

    def wait(self) -> None:
        self._queue.join()

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def close(self) -> None:
        self.stop()
        if self._converter is not None:
            self._converter.join()
        self._end_part()
        self._convert_finished()

    # On the thread

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                if self.failure is None:
                    self._write(data)
            except OSError as error:
                self.failure = _cannot_write(self._place, error)
            finally:
                self._queue.task_done()

    def _write(self, data: bytes) -> None:
        if data == _NEXT_PART:
            self._end_part()
            self._convert_beside()
            return
        if self._part is None:
            self._part = _Part(self._place / f".part-{self._number:05d}.arrows")
        self._part.append(data)

    def _end_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None
            self._number += 1

    def _convert_beside(self) -> None:
        """A million rows take seconds to convert, and the next batches come meanwhile."""
        if self._converter is None or not self._converter.is_alive():
            self._converter = threading.Thread(
                target=self._convert_or_leave, name="totempole-parquet", daemon=True
            )
            self._converter.start()

    def _convert_or_leave(self) -> None:
        try:
            self._convert_finished()
        except TraceError as error:
            _log.warning("the trace stays a spool until the node closes it: %s", error)

    def _convert_finished(self) -> None:
        for spool in sorted(self._place.glob(".part-*.arrows")):
            if _number(spool) < self._number:
                convert(spool)


class _Part:
    """A file of batches. After a write that failed it ends where the one before did."""

    def __init__(self, path: Path) -> None:
        self._bytes = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._bytes)
            raise
        self._bytes += len(data)

    def close(self) -> None:
        os.close(self._file)


def _recover(place: Path) -> None:
    for unfinished in place.glob(".part-*.tmp"):
        unfinished.unlink()
    for spool in sorted(place.glob(".part-*.arrows")):
        convert(spool)


def _take_lock(place: Path) -> int:
    """Keeps a second node off the spool that the first is writing."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _cannot_write(place, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise TraceError(
            f"{place}: another process is writing this trace: stop it, or give this run another name"
        ) from None
    return handle


def _number(path: Path) -> int:
    digits = path.name.partition("part-")[2].partition(".")[0]
    if not digits.isdecimal():
        raise TraceError(f"{path}: not a name of a part: move it away")
    return int(digits)


def _last_step(part: Path) -> int:
    with open_parquet(part) as file:
        step = SCHEMA.get_field_index("step")
        groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
        return max((int(group.column(step).statistics.max) for group in groups), default=0)


def _cannot_write(path: Path, error: OSError) -> TraceError:
    return TraceError(
        f"{path}: the trace cannot be written ({error}): free some space, or name another directory"
    )


# From stream to Parquet


def part_of(spool: Path) -> Path:
    """The Parquet file that takes the place of a spool."""
    return spool.with_name(f"part-{_number(spool):05d}.parquet")


def convert(spool: Path) -> None:
    """After a crash at any point of this, one of the two files is there and whole."""
    part = part_of(spool)
    try:
        if not part.exists():
            _write_parquet(open_spool(spool), part)
        spool.unlink()
    except OSError as error:
        raise _cannot_write(part, error) from error


def _write_parquet(batches: Iterator[Any], part: Path) -> None:
    """No file for no rows."""
    temporary = part.with_name(f".{part.name}.tmp")
    groups = _groups(batches)
    first = next(groups, None)
    if first is None:
        return
    # By name, not an open file: Arrow's own writes leave Python's lock to the thread that has the token.
    with pq.ParquetWriter(str(temporary), SCHEMA, compression="zstd") as writer:
        writer.write_table(first)
        for group in groups:
            writer.write_table(group)
    _sync(temporary)
    os.rename(temporary, part)
    _sync(part.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _groups(batches: Iterator[Any]) -> Iterator[Any]:
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= GROUP_ROWS:
            yield pa.Table.from_batches(held, SCHEMA).unify_dictionaries()
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held, SCHEMA).unify_dictionaries()
