"""The study's directory: the tables in Parquet, the figures in SVG, and a page with all of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from totempole.spark.topology.drawing import save_figures
from totempole.spark.topology.page import write_page
from totempole.spark.topology.published import applies_to, comparisons
from totempole.spark.topology.results import Results

PAGE = "index.html"


def save(directory: Path, tables: Mapping[str, pa.Table], results: Results) -> Path:
    """Over what an earlier study left there. Gives the page."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        _save_table(directory / f"{name}.parquet", table)
    compared = directory / "comparison.parquet"
    if applies_to(results.study):
        rows = [asdict(each) | {"ratio": each.ratio} for each in comparisons(results)]
        _save_table(compared, pa.Table.from_pylist(rows))
    else:
        compared.unlink(missing_ok=True)
    save_figures(results, directory)
    return write_page(results, directory / PAGE)


def _save_table(path: Path, table: pa.Table) -> None:
    """In one step, so that a file of that name is whole."""
    partial = path.with_name(path.name + ".partial")
    pq.write_table(table, partial, compression="zstd")
    os.replace(partial, path)
