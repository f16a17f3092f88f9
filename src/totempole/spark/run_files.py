"""Which files belong together: those that have a run in common, which one task then reads."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from totempole.trace.arrow import open_parquet
from totempole.trace.reader import read_trace

OPENED_AT_ONCE = 8
BYTES_OF_A_ROW = 100
"""About, in files that do not tell how many they have."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Some runs, and all files that have rows of them."""

    runs: frozenset[str]
    files: tuple[Path, ...]
    rows: int
    """About."""


def group_by_run(files: Iterable[Path]) -> list[RunFiles]:
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        looked_at = list(pool.map(_look, files))
    found: dict[str, RunFiles] = {}
    for one in looked_at:
        together = {found[run] for run in one.runs if run in found} | {one}
        whole = RunFiles(
            frozenset().union(*(part.runs for part in together)),
            tuple(sorted(file for part in together for file in part.files)),
            sum(part.rows for part in together),
        )
        found |= dict.fromkeys(whole.runs, whole)
    return sorted(set(found.values()), key=lambda group: group.files)


def _look(file: Path) -> RunFiles:
    return RunFiles(frozenset(runs_of(file)), (file,), rows_of(file))


def rows_of(file: Path) -> int:
    if file.suffix == ".parquet":
        with open_parquet(file) as parquet:
            return int(parquet.metadata.num_rows)
    return file.stat().st_size // BYTES_OF_A_ROW


def runs_of(file: Path) -> set[str]:
    """A directory of a node says it: run=R/node=N."""
    place = file.parent.parent.name
    if file.parent.name.startswith("node=") and place.startswith("run="):
        return {unquote(place.removeprefix("run="))}
    if file.suffix == ".parquet":
        column = pq.read_table(file, columns=["run"], partitioning=None).column("run")
        return set(column.unique().to_pylist())
    return {row.run for row in read_trace(file)}
