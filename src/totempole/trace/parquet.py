"""Writes whole runs as one Parquet file: what a simulator has in memory, at once and of many runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from totempole.trace.arrow import SCHEMA, to_batch
from totempole.trace.schema import Row


def write_parquet(path: Path, runs: Iterable[Sequence[Row]]) -> None:
    """One row group for each run. The file is there when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with pq.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
        for rows in runs:
            if rows:
                writer.write_batch(to_batch(rows, path))
    os.replace(partial, path)
