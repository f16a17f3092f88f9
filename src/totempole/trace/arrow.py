"""The trace's columns in Arrow: the schema's types, rows to record batches and back, and what is refused.

Declared from `trace.schema.Row`, so that there is one schema. Numbers are 64-bit, texts with few values are
dictionaries, and nothing is null. The schema's version travels in the metadata of every file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from totempole.errors import TraceError
from totempole.trace.schema import SCHEMA_VERSION, Row

VERSION_KEY = b"totempole.schema"
DICTIONARY_COLUMNS = frozenset({"run", "layer", "kind", "service", "configuration_kind"})


def _type(name: str, hint: Any) -> Any:
    if hint is int:
        return pa.int64()
    if hint is str:
        return pa.dictionary(pa.int32(), pa.string()) if name in DICTIONARY_COLUMNS else pa.string()
    return pa.list_(pa.field("item", pa.int64(), nullable=False))


SCHEMA = pa.schema(
    [pa.field(name, _type(name, hint), nullable=False) for name, hint in get_type_hints(Row).items()],
    metadata={VERSION_KEY: str(SCHEMA_VERSION)},
)


# Rows to columns


def to_batch(rows: Sequence[Row], where: Path) -> Any:
    """Column by column, which costs a few calls for all rows instead of some for each."""
    columns = zip(*rows, strict=True)
    arrays = [_array(field, values, where) for field, values in zip(SCHEMA, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(field: Any, values: Sequence[Any], where: Path) -> Any:
    try:
        if pa.types.is_dictionary(field.type):
            return pa.array(values, pa.string()).dictionary_encode()
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise TraceError(f"{where}: column {field.name!r} cannot hold what was recorded ({error})") from None


# Columns to rows


def to_rows(batch: Any, where: Path) -> Iterator[Row]:
    """Of a record batch or a table that `check_schema` has passed."""
    if batch.num_rows == 0:
        return iter(())
    columns = []
    for name in Row._fields:
        column = batch.column(name)
        if column.null_count:
            raise TraceError(f"{where}: column {name!r} has empty places")
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        columns.append(chain.from_iterable(map(_values, chunks)))
    return map(Row, *columns)


def _values(column: Any) -> Sequence[Any]:
    """As `to_pylist` gives them, several times as fast: numbers straight from memory, each text made once.
    Lists become tuples."""
    if pa.types.is_integer(column.type):
        return _numbers(column)
    if pa.types.is_list(column.type):
        return _tuples(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = column.dictionary.to_pylist()
    return list(map(texts.__getitem__, _numbers(column.indices)))


_FORMATS = {8: "b", 16: "h", 32: "i", 64: "q"}


def _numbers(column: Any) -> list[int]:
    memory = column.buffers()[1]
    if memory is None:
        return []
    numbers: Any = memoryview(memory).cast("b")
    found: list[int] = numbers.cast(_FORMATS[column.type.bit_width])[
        column.offset : column.offset + len(column)
    ].tolist()
    return found


def _tuples(column: Any) -> list[tuple[int, ...]]:
    ends = memoryview(column.buffers()[1]).cast("b").cast("i")
    ends = ends[column.offset : column.offset + len(column) + 1]
    numbers = _numbers(column.values)
    return [tuple(numbers[start:stop]) for start, stop in pairwise(ends)]


def check_schema(schema: Any, where: Path) -> None:
    """Complains of another version first, because that explains all the rest."""
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is None:
        raise TraceError(f"{where}: the file does not name a schema; is this a totempole trace?")
    if version != str(SCHEMA_VERSION).encode():
        raise TraceError(
            f"{where}: the trace has schema {version.decode('utf-8', 'replace')} and this program reads "
            f"schema {SCHEMA_VERSION}; read it with the version that wrote it"
        )
    _check_names(schema.names, where)
    for name, wanted in zip(SCHEMA.names, SCHEMA.types, strict=True):
        found = schema.field(name).type
        if not _plain(found).equals(_plain(wanted)):
            raise TraceError(f"{where}: column {name!r} holds {found}, not {_plain(wanted)}")


def _check_names(names: Sequence[str], where: Path) -> None:
    for name in SCHEMA.names:
        if names.count(name) != 1:
            raise TraceError(f"{where}: column {name!r} is {'there twice' if name in names else 'missing'}")
    for name in names:
        if name not in SCHEMA.names:
            raise TraceError(f"{where}: column {name!r} is not in schema {SCHEMA_VERSION}")


def _plain(type_: Any) -> Any:
    """Dictionaries are a way to store text; the element's name and nullability say nothing of the values."""
    if pa.types.is_dictionary(type_):
        return type_.value_type
    return pa.list_(type_.value_type) if pa.types.is_list(type_) else type_


# Files

_CONTINUATION = b"\xff\xff\xff\xff"
"""How every message of an Arrow IPC stream begins."""


def open_spool(path: Path) -> Iterator[Any]:
    """The record batches of an Arrow IPC stream, as far as it goes.

    A stream that ends early is a legal prefix: the batch that was cut off is dropped. One that was cut off
    within its schema, or is empty, has no batches: the node was killed before it recorded a row. Bytes that
    are wrong although more follow them are damage, and raise. (The format has no checksums: a length that was
    changed to point past the end is taken for a cut. Parquet, which every spool becomes, has them.)
    """
    source = pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"")
    if not _CONTINUATION.startswith(source.read_at(len(_CONTINUATION), 0)):
        raise TraceError(f"{path}: not an Arrow IPC stream; is this a totempole trace?")
    try:
        reader = pa.ipc.open_stream(source)
    except (pa.ArrowException, OSError, EOFError, StopIteration) as error:
        _check_cut(source, path, error)
        return
    check_schema(reader.schema, path)
    yield from _batches(reader, source, path)


def _batches(reader: Any, source: Any, path: Path) -> Iterator[Any]:
    while True:
        try:
            batch = reader.read_next_batch()
            batch.validate(full=True)
        except StopIteration:
            return
        except (pa.ArrowException, OSError, EOFError) as error:
            _check_cut(source, path, error)
            return
        yield batch


def _check_cut(source: Any, path: Path, error: Exception) -> None:
    """A read that failed for want of bytes has used them all."""
    if source.tell() < source.size():
        raise TraceError(
            f"{path}: damaged before byte {source.tell()} of {source.size()} ({error}); move it away"
        ) from None


def open_parquet(path: Path) -> Any:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: not a whole Parquet file ({error}); move it away") from None
    check_schema(file.schema_arrow, path)
    return file


def parquet_batches(path: Path) -> Iterator[Any]:
    with open_parquet(path) as file:
        try:
            yield from file.iter_batches()
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{path}: damaged ({error}); move it away") from None
