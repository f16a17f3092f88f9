"""The trace's columns in Arrow: the schema's types, rows to record batches and back, and what is refused.

Declared from `trace.schema`, so that there is one schema. Numbers are 64-bit, texts with few values are
dictionaries, and nothing is null. The schema's version travels in the metadata of every file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from totempole.errors import TraceError
from totempole.trace.schema import COLUMNS, COMMON, OWN, SCHEMA_VERSION, Column, Row, another_schema

VERSION_KEY = b"totempole.schema"

_TYPES = {
    int: pa.int64(),
    bool: pa.bool_(),
    str: pa.string(),
    tuple[int, ...]: pa.list_(pa.field("item", pa.int64(), nullable=False)),
    tuple[str, ...]: pa.list_(pa.field("item", pa.string(), nullable=False)),
}


def _type(column: Column) -> Any:
    return pa.dictionary(pa.int32(), pa.string()) if column.few else _TYPES[column.type]


SCHEMA = pa.schema(
    [pa.field(column.name, _type(column), nullable=False) for column in COLUMNS],
    metadata={VERSION_KEY: str(SCHEMA_VERSION)},
)


# Rows to columns


def to_batch(rows: Sequence[Row], where: Path) -> Any:
    """Column by column, which costs a few calls for all rows instead of some for each."""
    columns = list(zip(*rows, strict=True))
    arrays = [_array(field, values, where) for field, values in zip(SCHEMA, columns[:_COMMON], strict=False)]
    for layer, tuples in zip(OWN, columns[_COMMON:], strict=True):
        arrays += _own_arrays(layer, tuples, where)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_COMMON = len(COMMON)


def _own_arrays(layer: str, tuples: Sequence[Any], where: Path) -> Iterator[Any]:
    """The layer's own columns. Most rows have none of them, and many batches none of some column."""
    empty = OWN[layer]
    places = [place for place, own in enumerate(tuples) if own is not empty]
    for index, value in enumerate(empty):
        field = SCHEMA.field(f"{layer}_{empty._fields[index]}")
        used = [(place, tuples[place][index]) for place in places if tuples[place][index] != value]
        if not used:
            yield _repeated(value, len(tuples), field.name)
            continue
        column = [value] * len(tuples)
        for place, other in used:
            column[place] = other
        yield _array(field, column, where)


@lru_cache(maxsize=64)
def _repeated(value: Any, count: int, name: str) -> Any:
    type_ = SCHEMA.field(name).type
    if pa.types.is_dictionary(type_):
        return pa.array([value] * count, pa.string()).dictionary_encode()
    return pa.array([value] * count, type_)


def _array(field: Any, values: Sequence[Any], where: Path) -> Any:
    if values[0] == "" == values[-1] and values.count("") == len(values):
        return _repeated("", len(values), field.name)
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
    for name in SCHEMA.names:
        if batch.column(name).null_count:
            raise TraceError(f"{where}: column {name!r} has empty places")
    columns: list[Iterable[Any]] = [_column(batch.column(name)) for name in COMMON]
    columns += [_own(batch, layer, empty) for layer, empty in OWN.items()]
    return map(Row, *columns)


def _column(column: Any) -> Iterable[Any]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return chain.from_iterable(map(_values, chunks))


def _own(batch: Any, layer: str, empty: Any) -> Iterable[Any]:
    """The layer's own columns as tuples. Most rows have none of them, and share one."""
    names = [f"{layer}_{name}" for name in empty._fields]
    used = [_differ(batch.column(name), value) for name, value in zip(names, empty, strict=True)]
    some = reduce(pc.or_, used)
    places = pc.indices_nonzero(some).to_pylist()
    if not places:
        return repeat(empty, batch.num_rows)
    found = [empty] * batch.num_rows
    columns = [_column(batch.column(name).filter(some)) for name in names]
    known: dict[Any, Any] = {}
    for place, own in zip(places, map(type(empty), *columns), strict=True):
        found[place] = known.setdefault(own, own)
    return found


def _differ(column: Any, empty: Any) -> Any:
    if pa.types.is_list(column.type):
        return pc.greater(pc.list_value_length(column), 0)
    return pc.not_equal(column, pa.scalar(empty))


def _values(column: Any) -> Sequence[Any]:
    """As `to_pylist` gives them, several times as fast: numbers straight from memory, each text made once.
    Lists become tuples."""
    if pa.types.is_integer(column.type):
        return _numbers(column)
    if pa.types.is_list(column.type):
        return _tuples(column)
    if pa.types.is_boolean(column.type):
        return list(column.to_pylist())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = column.dictionary.to_pylist()
    if len(texts) == 1:
        return list(texts) * len(column)
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


def _tuples(column: Any) -> list[tuple[Any, ...]]:
    ends = memoryview(column.buffers()[1]).cast("b").cast("i")
    ends = ends[column.offset : column.offset + len(column) + 1]
    values = _values(column.values)
    return [tuple(values[start:stop]) for start, stop in pairwise(ends)]


def check_schema(schema: Any, where: Path) -> None:
    """Complains of another version first, because that explains all the rest."""
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is None:
        raise TraceError(f"{where}: the file does not name a schema; is this a totempole trace?")
    if version != str(SCHEMA_VERSION).encode():
        raise TraceError(f"{where}: {another_schema(version.decode('utf-8', 'replace'))}")
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
