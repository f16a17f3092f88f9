"""Green runs as Arrow record batches, without a Python object for a record.

A run's payloads are in one piece already (`groups.packing`): its bytes become the column's bytes, its lengths
the column's offsets. Keys are the exception: a run has them as strings. Runs come from a log's directory
(`corel.zones.Ordered`) or from a log service (`session.log_frames.OrderedRun`). Needs pyarrow and numpy,
which come with `totempole[trace]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from totempole.corel.fences import FenceMark
from totempole.corel.run import RecordsHead, Run, RunKind, head_of
from totempole.errors import CodecError
from totempole.groups.packing import MESSAGES_MAX, BatchLayout, layout_of
from totempole.log.blocks import Blocks
from totempole.log.selection import ALL_LOGS, LogSelection

ROWS_MAX = 65_536
BYTES_MAX = 3 * 1024 * 1024
"""A batch is full when it has so many rows, or so many bytes of payloads. With the run that fills it, it is
not larger than a block (`log.blocks`)."""

GREEN = "green"

FIELDS = {
    field.name: field
    for field in (
        pa.field("position", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("log", pa.string(), nullable=False),
        pa.field("origin", pa.int64(), nullable=False),
        pa.field("life", pa.int64(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("colour", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("payload", pa.binary(), nullable=False),
    )
}
"""Columns that there are. `origin`, `life` and `number` name the run, `index` is the record's in it: together
the message's id, which `message` has as text ("origin.life.number.index", as a receipt begins)."""

SCHEMA = pa.schema([field for name, field in FIELDS.items() if name not in ("message", "colour")])


class GreenRun(Protocol):
    """What `Ordered` and `OrderedRun` have in common."""

    @property
    def run(self) -> Run: ...
    @property
    def position(self) -> int: ...
    @property
    def repeats(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def time_us(self) -> int: ...
    @property
    def fenced(self) -> FenceMark | None: ...


def to_batches(
    runs: Iterable[GreenRun],
    start: int = 0,
    stop: int | None = None,
    log: str | None = None,
    *,
    selection: LogSelection = ALL_LOGS,
    schema: Any = SCHEMA,
    blocks: Blocks | None = None,
) -> Iterator[Any]:
    """Record batches of the records at these positions, with the columns of a schema.

    Of one log, of a selection, or of all. Runs need no payloads, or keys, if the schema has none."""
    wanted = LogSelection((log,)) if log is not None else selection
    columns = _Columns(schema, blocks)
    for ordered in runs:
        if stop is not None and ordered.position >= stop:
            break
        if ordered.run.kind is not RunKind.RECORDS or ordered.fenced is not None:
            continue
        head = head_of(ordered.run)
        if not wanted.has(head.log):
            continue
        columns.add(ordered, head)
        if columns.rows >= ROWS_MAX or columns.bytes >= BYTES_MAX:
            yield from _cut(columns, start, stop)
            columns = _Columns(schema, blocks)
    if columns.rows:
        yield from _cut(columns, start, stop)


def _cut(columns: _Columns, start: int, stop: int | None) -> Iterator[Any]:
    batch, positions = columns.batch()
    first = int(np.searchsorted(positions, start))
    last = len(positions) if stop is None else int(np.searchsorted(positions, stop))
    if first < last:
        yield batch.slice(first, last - first)


class _Columns:
    """Runs that become one batch."""

    def __init__(self, schema: Any, blocks: Blocks | None) -> None:
        self._blocks = blocks
        self.rows = 0
        self.bytes = 0
        self._schema = schema
        self._has_payload = "payload" in schema.names
        self._has_key = "key" in schema.names
        self._runs: list[tuple[int, int, int, int, int, int, int]] = []
        """Of each: position, time, origin, life, number, log, records."""
        self._logs: dict[str, int] = {}
        self._keys: list[tuple[str, ...] | int] = []
        self._layouts: list[BatchLayout] = []
        self._repeats: list[int] = []
        """Rows that take no position."""

    def add(self, ordered: GreenRun, head: RecordsHead) -> None:
        run = ordered.run
        id, count = run.id, run.count
        log = self._logs.setdefault(head.log, len(self._logs))
        self._runs.append((ordered.position, ordered.time_us, id.origin, id.life, id.number, log, count))
        if self._has_key:
            self._keys.append(head.keys or count)
        if self._has_payload:
            layout = layout_of(head.batch)
            if layout.count != count:
                raise CodecError("batch malformed", f"run {id} has {layout.count} records instead of {count}")
            self._layouts.append(layout)
            self.bytes += len(layout.contents)
        if ordered.repeats:
            self._repeats += [self.rows + index for index, _ in ordered.repeats]
        self.rows += count

    def batch(self) -> tuple[Any, Any]:
        """The batch, and its positions."""
        rows = _Rows(self._runs, self.rows)
        keep = None
        if self._repeats:
            keep = np.ones(self.rows, dtype=bool)
            keep[self._repeats] = False
            rows.positions -= rows.repeated_before(keep)
        build: dict[str, Callable[[], Any]] = {
            "position": lambda: _numbers(rows.positions, pa.int64()),
            "time": lambda: rows.column(1).view(FIELDS["time"].type),
            "log": lambda: self._log_column(rows),
            "origin": lambda: rows.column(2),
            "life": lambda: rows.column(3),
            "number": lambda: rows.column(4),
            "index": lambda: _numbers(rows.index.astype(np.int32), pa.int32()),
            "message": rows.messages,
            "colour": lambda: pa.repeat(_string(GREEN), self.rows),
            "key": self._key_column,
            "payload": self._payload_column,
        }
        arrays = [build[name]() for name in self._schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if keep is None:
            return batch, rows.positions
        return batch.filter(_flags(keep)), rows.positions[keep]

    def _log_column(self, rows: _Rows) -> Any:
        logs = _strings(list(self._logs))
        return pa.repeat(logs[0], self.rows) if len(logs) == 1 else logs.take(rows.column(5))

    def _key_column(self) -> Any:
        if all(isinstance(keys, int) for keys in self._keys):
            return pa.nulls(self.rows, pa.string())
        return pa.concat_arrays(
            [
                pa.nulls(keys, pa.string()) if isinstance(keys, int) else _strings(keys, empty_is_null=True)
                for keys in self._keys
            ]
        )

    def _payload_column(self) -> Any:
        layouts = self._layouts
        uniform = {layout.length if layout.lengths is None else -1 for layout in layouts}
        if len(uniform) == 1 and -1 not in uniform:
            offsets = np.arange(self.rows + 1, dtype=np.int32) * np.int32(*uniform)
        else:
            offsets = _offsets(np.concatenate([_lengths(layout) for layout in layouts]))
        contents = self._joined([layout.contents for layout in layouts])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(contents)]
        return pa.BinaryArray.from_buffers(pa.binary(), self.rows, buffers)

    def _joined(self, parts: list[memoryview]) -> bytes | memoryview:
        if self._blocks is None:
            return b"".join(parts)
        joined = self._blocks.take(self.bytes)
        at = 0
        for part in parts:
            joined[at : at + len(part)] = part
            at += len(part)
        return joined


class _Rows:
    """What the runs say of each of their rows."""

    def __init__(self, runs: list[tuple[int, int, int, int, int, int, int]], rows: int) -> None:
        self._per_run = np.array(runs, dtype=np.int64)
        self._counts = self._per_run[:, 6]
        self._starts = np.cumsum(self._counts) - self._counts
        self.index = np.arange(rows) - np.repeat(self._starts, self._counts)
        """In the run."""
        self.positions = np.repeat(self._per_run[:, 0], self._counts) + self.index

    def column(self, number: int) -> Any:
        return _numbers(np.repeat(self._per_run[:, number], self._counts), pa.int64())

    def messages(self) -> Any:
        per_run = self._per_run
        names = [b"%d.%d.%d." % (origin, life, number) for origin, life, number in per_run[:, 2:5].tolist()]
        numerals = _numerals()
        counts = self._counts.tolist()
        # A separator comes before every element but the first, so the first one is empty.
        parts = [name.join(numerals.texts[: count + 1]) for name, count in zip(names, counts, strict=True)]
        lengths = numerals.lengths[self.index]
        lengths += np.repeat(np.array([len(name) for name in names], dtype=np.int32), self._counts)
        return _texts(lengths, b"".join(parts))

    def repeated_before(self, keep: Any) -> Any:
        """For each row: rows of its run before it that take no position."""
        before = np.cumsum(~keep) - ~keep
        return before - np.repeat(before[self._starts], self._counts)


class _Numerals(NamedTuple):
    """The index of a record in its run, as text."""

    texts: list[bytes]
    """Behind an empty one."""
    lengths: Any


@cache
def _numerals() -> _Numerals:
    texts = [b"%d" % index for index in range(MESSAGES_MAX)]
    return _Numerals([b"", *texts], np.array([len(text) for text in texts], dtype=np.int32))


# Arrays of Arrow. `pyarrow.array` and `pyarrow.scalar` import pandas, to see whether that is what they are
# given: each of Spark's workers would take a quarter of a second for it.


def _numbers(values: Any, type: Any) -> Any:
    assert values.itemsize * 8 == type.bit_width, "the array's memory becomes the column's"
    return pa.Array.from_buffers(type, len(values), [None, pa.py_buffer(values)])


def _flags(values: Any) -> Any:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def _strings(texts: Sequence[str], *, empty_is_null: bool = False) -> Any:
    contents = [text.encode() for text in texts]
    lengths = np.array([len(content) for content in contents], dtype=np.int32)
    valid = pa.py_buffer(np.packbits(lengths > 0, bitorder="little")) if empty_is_null else None
    return _texts(lengths, b"".join(contents), valid)


def _texts(lengths: Any, contents: bytes, valid: Any = None) -> Any:
    buffers = [valid, pa.py_buffer(_offsets(lengths)), pa.py_buffer(contents)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def _offsets(lengths: Any) -> Any:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@cache
def _string(text: str) -> Any:
    return _strings([text])[0]


def _lengths(layout: BatchLayout) -> Any:
    if layout.lengths is None:
        return np.full(layout.count, layout.length, dtype=np.int32)
    return np.frombuffer(layout.lengths, dtype=">u4").astype(np.int32)
