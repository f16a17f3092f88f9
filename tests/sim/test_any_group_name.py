"""Groups with any name through a whole run, and through every way to write a trace down."""

from __future__ import annotations

from pathlib import Path

from oddnames import NAMES, odd_run
from totempole.checkers import check
from totempole.trace.ndjson import read_ndjson, write_ndjson
from totempole.trace.parquet import write_parquet
from totempole.trace.reader import read_trace


def test_names_with_commas_spaces_and_line_breaks(tmp_path: Path) -> None:
    outcome = odd_run()
    assert not outcome.failures, "\n".join(outcome.failures)
    seen = {group for row in outcome.rows for group in (row.group, *row.groups.to) if group}
    assert seen == set(NAMES.values())
    joined = [row for row in outcome.rows if row.kind == "group_deliver" and len(row.groups.to) == 3]
    assert {row.process for row in joined} == {"1.1.1", "2.1.1"}
    report = check(outcome.rows, complete=True)
    assert not report.violated, str(report)
    write_parquet(tmp_path / "part-00000.parquet", [outcome.rows])
    write_ndjson(tmp_path / "run.ndjson", outcome.rows)
    ordered = sorted(outcome.rows, key=lambda row: (row.node, row.step))
    assert read_trace(tmp_path / "part-00000.parquet") == ordered
    assert read_ndjson(tmp_path / "run.ndjson") == outcome.rows
