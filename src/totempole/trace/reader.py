"""Reads a trace, whatever it was written as: Parquet parts, spools that killed nodes left, NDJSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from totempole.errors import TraceError
from totempole.trace.arrow import open_spool, parquet_batches, to_rows
from totempole.trace.ndjson import read_ndjson
from totempole.trace.schema import Row
from totempole.trace.spool import part_of


def read_trace(path: Path | str) -> list[Row]:
    """All rows of a file, or of all files below a directory, in the order of run, node and step."""
    rows = list(chain.from_iterable(map(_read, trace_files(Path(path)))))
    rows.sort(key=attrgetter("run", "node", "step"))
    return rows


def trace_files(path: Path) -> list[Path]:
    """A spool whose Parquet file is there already is left out: it holds the same rows.

    Spools are listed first: what a running node converts meanwhile is found as one, the other or both.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TraceError(f"{path}: no such file or directory")
    spools = list(path.rglob(".part-*.arrows"))
    parts = set(path.rglob("part-*.parquet"))
    left = [spool for spool in spools if part_of(spool) not in parts]
    files = sorted([*parts, *left, *path.rglob("*.ndjson")])
    if not files:
        raise TraceError(
            f"{path}: no trace here: a trace has files part-*.parquet, .part-*.arrows or *.ndjson"
        )
    return files


def _read(path: Path) -> Iterable[Row]:
    match path.suffix:
        case ".ndjson":
            return read_ndjson(path)
        case ".parquet":
            return _rows(parquet_batches(path), path)
        case ".arrows":
            return _read_spool(path)
    raise TraceError(f"{path}: not a trace's name: it ends in .parquet, .arrows or .ndjson")


def _read_spool(path: Path) -> Iterable[Row]:
    try:
        return list(_rows(open_spool(path), path))
    except FileNotFoundError:  # a running node has just made it Parquet
        return _rows(parquet_batches(part_of(path)), path)


def _rows(batches: Iterator[Any], path: Path) -> Iterator[Row]:
    return chain.from_iterable(to_rows(batch, path) for batch in batches)
