"""Bronze: the raw events of all trace files, each file checked before any of it is believed.

Parquet is read by Spark itself. What killed nodes left (Arrow spools) and text (NDJSON) is read on the
executors by the trace's own reader, so that a prefix is a prefix here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from totempole.errors import TraceError
from totempole.spark.schema import EVENTS
from totempole.trace.arrow import open_parquet, to_batch
from totempole.trace.reader import read_trace, trace_files
from totempole.trace.spool import part_of

OPENED_AT_ONCE = 8
ROWS_OF_A_BATCH = 20_000


def find_files(paths: Iterable[Path]) -> list[Path]:
    """All trace files of these files and directories, each looked at: another schema, a missing column, a
    file cut short and one run in two directories are refused."""
    files = sorted({file.resolve() for path in paths for file in trace_files(path)})
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        rows = sum(pool.map(_check, files))
    _check_places(files)
    if not rows:
        raise TraceError(f"{files[0]}{_others(files)}: no events at all; there is nothing to judge")
    return files


def read_events(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """One row for each event of files that `find_files` has passed."""
    parquet = [str(file) for file in files if file.suffix == ".parquet"]
    others = [str(file) for file in files if file.suffix != ".parquet"]
    frames = []
    if parquet:
        frames.append(spark.read.schema(EVENTS).parquet(*parquet))
    if others:
        names = spark.createDataFrame([(name,) for name in others], "file string")
        frames.append(names.repartition(len(others)).mapInArrow(_read_others, EVENTS))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def damage(error: Exception) -> TraceError | None:
    """What Spark says when a file turns out to be damaged, in the trace's words."""
    found = re.search(r"(?:file:)?(/[^\s,]*part-[^\s,]*\.parquet)", str(error))
    if found is None:
        return None
    return TraceError(f"{found[1]}: damaged, or changed while it was read; move it away")


def _check(file: Path) -> int:
    """How many rows a Parquet file has; of others only that there may be some."""
    if file.suffix == ".parquet":
        with open_parquet(file) as parquet:
            return int(parquet.metadata.num_rows)
    return 1 if file.stat().st_size else 0


def _check_places(files: Sequence[Path]) -> None:
    """A run's node has one directory, or two runs go by one name."""
    places: dict[tuple[str, str], Path] = {}
    for file in files:
        node, run = file.parent.name, file.parent.parent.name
        if node.startswith("node=") and run.startswith("run="):
            other = places.setdefault((run, node), file.parent)
            if other != file.parent:
                name = unquote(run.removeprefix("run="))
                raise TraceError(
                    f"{file.parent} and {other}: two runs are named {name!r}; judge them one at a time"
                )


def _others(files: Sequence[Path]) -> str:
    return f" and {len(files) - 1} more" if len(files) > 1 else ""


def _read_others(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for name in batch.column("file").to_pylist():
            yield from _plain_batches(Path(name))


def _plain_batches(file: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    if not file.exists():  # a running node has made it Parquet meanwhile
        file = part_of(file)
    rows = read_trace(file)
    schema = to_arrow_schema(EVENTS)
    for start in range(0, len(rows), ROWS_OF_A_BATCH):
        batch = to_batch(rows[start : start + ROWS_OF_A_BATCH], file)
        table = pa.Table.from_batches([batch]).replace_schema_metadata(None).cast(schema)
        yield from table.to_batches()
