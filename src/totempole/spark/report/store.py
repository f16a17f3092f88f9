"""Where a report keeps its tables: Parquet files on this machine, which executors need not see.

    DIRECTORY/TABLE/run=R/TABLE.parquet

They are small, however large the trace: a run's table has a row for each bin or percentile, and one for each
configuration. No file is named like a part of a trace, so that a report may lie among traces.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from totempole.spark.report.figures import Record, RunFigures, in_order, limited


class Store:
    """All tables of one report. They take an earlier report's place when all of them are written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tables: dict[str, Any] = {}
        """Arrow tables, by name."""
        self._partial = directory.with_name(f".{directory.name}.{os.getpid()}")

    def __enter__(self) -> Self:
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            shutil.rmtree(self.directory, ignore_errors=True)
            os.replace(self._partial, self.directory)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Makes the table, writes it, and gives it back as one that is there already."""
        found = table.toArrow()
        self.tables[name] = found
        for run in _runs(found):
            self._write(name, run, _of_run(found, run))
        return table.sparkSession.createDataFrame(found, table.schema)

    def rows(self, name: str) -> list[Record]:
        rows: list[Record] = self.tables[name].to_pylist()
        return rows

    def figures(self, runs: Sequence[Record]) -> list[RunFigures]:
        """Of those runs, rows of the table `runs`."""
        return [
            RunFigures(
                row["run"],
                row,
                {
                    name: limited(name, _of_run(table, row["run"]).to_pylist())
                    for name, table in self.tables.items()
                    if name != "runs"
                },
            )
            for row in runs
        ]

    def _write(self, name: str, run: str, table: Any) -> None:
        place = self._partial / name / f"run={quote(run, safe='')}"
        place.mkdir(parents=True)
        columns = table.drop_columns(["run"])
        ordered = pa.Table.from_pylist(in_order(columns.to_pylist()), columns.schema)
        pq.write_table(ordered, place / f"{name}.parquet", compression="zstd")


def _runs(table: Any) -> list[str]:
    return sorted(pc.unique(table["run"]).to_pylist())


def _of_run(table: Any, run: str) -> Any:
    return table.filter(pc.equal(table["run"], run))
