"""Traces as text for eyes: one JSON object per line, after a first line that names the schema.

The trace of a killed node is a legal prefix: a last line that was cut short is dropped. Anything else that
cannot be read raises TraceError with the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, get_args, get_type_hints

from totempole.errors import TraceError
from totempole.trace.schema import COLUMNS, COMMON, OWN, SCHEMA_VERSION, Row, another_schema

_Types = Mapping[str, Any]
_COMMON: _Types = {column.name: column.type for column in COLUMNS if column.name in COMMON}
_OWN: Mapping[str, _Types] = {layer: get_type_hints(type(empty)) for layer, empty in OWN.items()}

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class NdjsonWriter:
    """A sink for a recorder: writes the header at once and then a line for each row."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        stream.write(
            _encode({"schema": SCHEMA_VERSION, "columns": [column.name for column in COLUMNS]}) + "\n"
        )

    def __call__(self, row: Row) -> None:
        self._stream.write(_encode(_data(row)) + "\n")


def _data(row: Row) -> dict[str, Any]:
    """A layer's own columns are an object of their own, left out where the row has none of them."""
    values = row._asdict()
    for layer, empty in OWN.items():
        own = values.pop(layer)
        if own != empty:
            values[layer] = own._asdict()
    return values


def write_ndjson(path: Path | str, rows: Iterable[Row]) -> None:
    with open(path, "w", encoding="ascii", newline="\n") as stream:
        writer = NdjsonWriter(stream)
        for row in rows:
            writer(row)


def read_ndjson(path: Path | str) -> list[Row]:
    lines = Path(path).read_bytes().split(b"\n")
    rest = lines.pop()  # what follows the last newline: nothing, or a line cut short
    if not lines and not rest:
        raise TraceError(f"{path}: the file is empty; a trace begins with a line that names its schema")
    if not lines:
        raise TraceError(f"{path}:1: the first line is cut short; no row can be read")
    _check_header(_parse(lines[0], f"{path}:1"), f"{path}:1")
    rows = [_row(_parse(line, where), where) for where, line in _numbered(path, lines)]
    if rest and _is_whole(rest):
        where = f"{path}:{len(lines) + 1}"
        rows.append(_row(_parse(rest, where), where))
    return rows


def _numbered(path: Path | str, lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(lines[1:], start=2):
        yield f"{path}:{number}", line


def _is_whole(line: bytes) -> bool:
    """A proper prefix of a JSON object never parses, so a line that does lost no more than its newline."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{where}: not a line of JSON ({error})") from None
    if not isinstance(value, dict):
        raise TraceError(f"{where}: a line of a trace is a JSON object, not {type(value).__name__}")
    return value


def _check_header(header: dict[str, Any], where: str) -> None:
    if "schema" not in header:
        raise TraceError(f"{where}: the first line does not name a schema; is this a totempole trace?")
    if header["schema"] != SCHEMA_VERSION:
        raise TraceError(f"{where}: {another_schema(repr(header['schema']))}")


def _row(values: dict[str, Any], where: str) -> Row:
    own = {layer: values.pop(layer) for layer in OWN if layer in values}
    columns = _checked(values, _COMMON, where)
    for layer, of_layer in own.items():
        if type(of_layer) is not dict:
            raise TraceError(f"{where}: column {layer!r} has the value {of_layer!r}, not an object")
        columns[layer] = type(OWN[layer])(**_checked(of_layer, _OWN[layer], where))
    return Row(**columns)


def _checked(values: dict[str, Any], types: _Types, where: str) -> dict[str, Any]:
    if values.keys() != types.keys():
        _complain_of_columns(values, types, where)
    for name, wanted in types.items():
        value = values[name]
        if type(value) is list:
            value = values[name] = tuple(value)
        if not _is(value, wanted):
            raise TraceError(f"{where}: column {name!r} has the value {value!r}, not {_name(wanted)}")
    return values


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, type):
        return type(value) is wanted
    item = get_args(wanted)[0]
    return type(value) is tuple and all(type(each) is item for each in value)


def _name(wanted: Any) -> str:
    return wanted.__name__ if isinstance(wanted, type) else f"list of {get_args(wanted)[0].__name__}"


def _complain_of_columns(values: dict[str, Any], types: _Types, where: str) -> None:
    missing = [name for name in types if name not in values]
    if missing:
        raise TraceError(f"{where}: column {missing[0]!r} is missing")
    extra = sorted(values.keys() - types.keys())
    raise TraceError(f"{where}: column {extra[0]!r} is not in schema {SCHEMA_VERSION}")
