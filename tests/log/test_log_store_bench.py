"""bench.log_store: both stores are measured, and what is written is read."""

from __future__ import annotations

from pathlib import Path

from totempole.bench.log_store import LOADS, WINDOWS, compare_stores, measure_reading


def test_stores_in_turns(tmp_path: Path) -> None:
    results = compare_stores(tmp_path, loads=LOADS[:1], rounds=1, seconds=0.05)
    assert {(each.store, each.window) for each in results} == {
        (store, window) for store in ("segments", "SQLite") for window in WINDOWS
    }
    assert all(each.records_per_s > 0 and each.p50_ms <= each.p99_ms for each in results)
    assert list(tmp_path.iterdir()) == []


def test_reading(tmp_path: Path) -> None:
    result = measure_reading(tmp_path / "rows", rows=20_000, rounds=1)
    assert result.rows_per_s > 0
    assert list(tmp_path.iterdir()) == []
