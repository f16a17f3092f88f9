"""The digest: the same for the same run, another for any other, whatever PYTHONHASHSEED says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from totempole.trace.digest import trace_digest
from totempole.trace.schema import Row

ROWS = [Row("run", node, 1, 1, 0, "sim", "restart", members=(1, 2)) for node in (1, 2)]

PROGRAM = """
from totempole.trace.digest import trace_digest
from totempole.trace.schema import Row
print(trace_digest([Row("run", node, 1, 1, 0, "sim", "restart", members=(1, 2)) for node in (1, 2)]))
"""


def test_golden() -> None:
    assert trace_digest(ROWS) == "b181409a60f247b57f4549c517361e434ea7da1e97eb18ac825e9363ad2cd320"


def test_order_matters() -> None:
    assert trace_digest(ROWS) != trace_digest(ROWS[::-1])


def test_every_column_matters() -> None:
    row = ROWS[0]
    others = {trace_digest([row])}
    for name in Row._fields:
        value = getattr(row, name)
        other: Any = (*value, 9) if isinstance(value, tuple) else value + type(value)("1")
        others.add(trace_digest([row._replace(**{name: other})]))
    assert len(others) == len(Row._fields) + 1


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
