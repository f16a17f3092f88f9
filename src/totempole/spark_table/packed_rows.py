"""Rows of Arrow record batches as packed runs of their logs, without a Python object for a row.

A column's bytes are back to back already, and so are a run's: packing is a few copies for each run. Rows keep
their order in each log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from totempole.client.appending import RUN_BYTES, RUN_RECORDS_MAX, check_appended_to, check_log_name
from totempole.errors import ConfigurationError, SessionError
from totempole.groups.packing import LENGTH_BYTES, layout_of, pack_joined
from totempole.session import KEY_BYTES_MAX
from totempole.spark_table.access import STAGED
from totempole.spark_table.manifest import PackedRun

OPEN_BYTES_MAX = 32 * 1024 * 1024
"""Rows of all logs together that wait for a full run."""

Numbers = npt.NDArray[Any]


class _Cells(NamedTuple):
    """A column of binary or text."""

    offsets: Numbers
    """One more than there are cells."""
    contents: Numbers

    @classmethod
    def of(cls, column: Any) -> _Cells:
        is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        _, offsets, contents = column.buffers()
        if not len(column) or offsets is None:
            return cls(np.zeros(1, np.int64), np.empty(0, np.uint8))
        cut = np.frombuffer(offsets, np.int64 if is_large else np.int32)
        cut = cut[column.offset : column.offset + len(column) + 1].astype(np.int64)
        held = np.empty(0, np.uint8) if contents is None else np.frombuffer(contents, np.uint8)
        return cls(cut, held)

    @classmethod
    def packed(cls, body: bytes) -> _Cells:
        layout = layout_of(body)
        if layout.lengths is None:
            offsets = np.arange(layout.count + 1, dtype=np.int64) * layout.length
        else:
            offsets = np.zeros(layout.count + 1, np.int64)
            np.cumsum(np.frombuffer(layout.lengths, ">u4"), out=offsets[1:])
        return cls(offsets, np.frombuffer(layout.contents, np.uint8))

    @classmethod
    def empty(cls, count: int) -> _Cells:
        return cls(np.zeros(count + 1, np.int64), np.empty(0, np.uint8))

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> _Cells:
        return _Cells(self.offsets[start : stop + 1], self.contents)


def _pack(parts: Sequence[_Cells]) -> bytes:
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    contents = [part.contents[part.offsets[0] : part.offsets[-1]].data for part in parts]
    first = int(lengths[0])
    if (lengths == first).all():
        return pack_joined(len(lengths), first, None, contents)
    return pack_joined(len(lengths), 0, lengths.astype(">u4").tobytes(), contents)


class _OpenRun:
    """Rows of one log, until they fill a run."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._payloads: list[_Cells] = []
        self._keys: list[_Cells] = []
        self._count = 0
        self.size = 0
        """As `client.appending` counts it."""

    @property
    def is_empty(self) -> bool:
        return not self._count

    def add(self, payloads: _Cells, keys: _Cells | None) -> Iterator[PackedRun]:
        """Gives what is full."""
        sizes = payloads.offsets + 2 * LENGTH_BYTES * np.arange(payloads.count + 1)
        if keys is not None:
            sizes = sizes + keys.offsets
        start = 0
        while start < payloads.count:
            fits = int(np.searchsorted(sizes, sizes[start] + RUN_BYTES - self.size, side="right")) - 1
            stop = min(fits, start + RUN_RECORDS_MAX - self._count)
            if stop <= start and self._count:
                yield self.close()
                continue
            stop = max(stop, start + 1)  # one row may be larger than a run
            self._payloads.append(payloads.slice(start, stop))
            self._keys.append(_Cells.empty(stop - start) if keys is None else keys.slice(start, stop))
            self._count += stop - start
            self.size += int(sizes[stop] - sizes[start])
            start = stop

    def close(self) -> PackedRun:
        has_keys = any(part.offsets[0] != part.offsets[-1] for part in self._keys)
        keys = _pack(self._keys) if has_keys else b""
        run = PackedRun(self._log, self._count, _pack(self._payloads), keys)
        self._payloads, self._keys, self._count, self.size = [], [], 0, 0
        return run


class RowPacker:
    """`log`: of rows that name none."""

    def __init__(self, log: str, row_bytes_max: int) -> None:
        self._log = log
        self._row_bytes_max = row_bytes_max
        self._open: dict[str, _OpenRun] = {}
        self.rows = 0

    def add(self, batch: Any) -> Iterator[PackedRun]:
        """Takes the rows of a record batch. Gives runs that are full."""
        names = batch.schema.names
        payload = batch.column(names.index("payload"))
        key = batch.column(names.index("key")) if "key" in names else None
        self._check(payload, key)
        if "log" not in names:
            yield from self._add(self._log, payload, key)
        else:
            for log, rows in self._by_log(batch.column(names.index("log"))):
                taken = payload if rows is None else payload.filter(rows)
                keys = key if rows is None or key is None else key.filter(rows)
                yield from self._add(log, taken, keys)
        self.rows += batch.num_rows
        if sum(each.size for each in self._open.values()) > OPEN_BYTES_MAX:
            yield from self.close()

    def close(self) -> Iterator[PackedRun]:
        """Gives the rest."""
        for each in self._open.values():
            if not each.is_empty:
                yield each.close()
        self._open.clear()

    def _add(self, log: str, payload: Any, key: Any) -> Iterator[PackedRun]:
        run = self._open.get(log)
        if run is None:
            check_target(log, "column log")
            run = self._open[log] = _OpenRun(log)
        yield from run.add(_Cells.of(payload), None if key is None else _Cells.of(key.fill_null("")))

    def _by_log(self, column: Any) -> Iterator[tuple[str, Any]]:
        """Each log, and which rows are for it; None: all."""
        if column.null_count:
            if not self._log:
                raise ConfigurationError(
                    "column log is null: name a log in each row, or give the option log for those without one"
                )
            column = column.fill_null(self._log)
        logs = pc.unique(column).to_pylist()
        if len(logs) == 1:
            yield logs[0], None
            return
        for log in logs:
            yield log, pc.equal(column, log)

    def _check(self, payload: Any, key: Any) -> None:
        if payload.null_count:
            raise ConfigurationError(
                f"column payload is null in {payload.null_count} rows: a record has a payload, which may be "
                "empty; filter them, or use coalesce(payload, binary(''))"
            )
        largest = pc.max(pc.binary_length(payload)).as_py() or 0
        if largest > self._row_bytes_max:
            raise ConfigurationError(
                f"column payload: a row has {largest} bytes, and the daemon takes at most "
                f"{self._row_bytes_max}; cut it, or keep the content elsewhere and append its name"
            )
        longest = 0 if key is None else pc.max(pc.binary_length(key)).as_py() or 0
        if longest > KEY_BYTES_MAX:
            raise ConfigurationError(f"column key: a key has {longest} bytes; give at most {KEY_BYTES_MAX}")


def check_target(log: str, where: str) -> None:
    """Rows may be written to this log. `where`: what names it."""
    if log.startswith(STAGED):
        raise ConfigurationError(
            f"{where} = {log!r}: logs named {STAGED}… have rows of batches that are on their way; give "
            "another name"
        )
    try:
        check_log_name(log)
        check_appended_to(log)
    except SessionError as error:
        raise ConfigurationError(f"{where} = {log!r}: {error}") from None


def joined(runs: Iterable[PackedRun]) -> list[PackedRun]:
    """The same rows in as few runs as will do, in their order in each log."""
    found: list[PackedRun] = []
    opened: dict[str, _OpenRun] = {}
    for run in runs:
        into = opened.setdefault(run.log, _OpenRun(run.log))
        found += into.add(_Cells.packed(run.batch), _Cells.packed(run.keys) if run.keys else None)
    return found + [each.close() for each in opened.values() if not each.is_empty]
