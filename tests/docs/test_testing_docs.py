"""What testing.md says: its programs run, and the names are there."""

from __future__ import annotations

import re
from pathlib import Path

from totempole import testing
from totempole.testing.faults import VERBS
from totempole.testing.virtual_loop import LIMIT_S

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_programs_run() -> None:
    assert len(PROGRAMS) == 3
    for text in PROGRAMS:
        exec(compile(text, "testing.md", "exec"), {"__name__": "page"})


def test_the_faults_are_there() -> None:
    rows = re.findall(r"`(?:await )?c\.(\w+)\(", PAGE)
    assert all(hasattr(testing.Cluster, name) for name in rows)
    assert set(VERBS) <= set(rows)


def test_the_errors_and_the_limit_are_there() -> None:
    for name in ("Crashed", "NotSimulated", "TimeOver", "Unsettled", "Violated"):
        assert f"`{name}`" in PAGE
        assert hasattr(testing, name)
    assert f"more than {LIMIT_S:g} virtual seconds" in PAGE
