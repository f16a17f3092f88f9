"""The digest: the same for the same run, another for any other, whatever PYTHONHASHSEED says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from totempole.trace.digest import trace_digest
from totempole.trace.schema import COLUMNS, COMMON, OWN, Row

ROWS = [Row("run", node, 1, 1, 0, "sim", "restart", members=(1, 2)) for node in (1, 2)]

PROGRAM = """
from totempole.trace.digest import trace_digest
from totempole.trace.schema import COLUMNS, COMMON, OWN, Row
print(trace_digest([Row("run", node, 1, 1, 0, "sim", "restart", members=(1, 2)) for node in (1, 2)]))
"""


def test_golden() -> None:
    assert trace_digest(ROWS) == "6b4ccf824490ddddf815124e11df7808e919083e36625001f0912917da4b92a8"


def test_order_matters() -> None:
    assert trace_digest(ROWS) != trace_digest(ROWS[::-1])


def test_every_column_matters() -> None:
    row = ROWS[0]
    others = {trace_digest([row])}
    for name in COMMON:
        others.add(trace_digest([row._replace(**{name: _other(getattr(row, name))})]))
    for layer, own in OWN.items():
        for name, value in own._asdict().items():
            others.add(trace_digest([row._replace(**{layer: own._replace(**{name: _other(value)})})]))
    assert len(others) == len(COLUMNS) + 1


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return (*value, 9) if isinstance(value, tuple) else value + type(value)("1")


def test_rows_do_not_run_together() -> None:
    assert trace_digest(ROWS) != trace_digest(ROWS[:1])
    assert trace_digest([]) != trace_digest(ROWS[:1])


def test_the_hash_seed_does_not_matter() -> None:
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == trace_digest(ROWS)
