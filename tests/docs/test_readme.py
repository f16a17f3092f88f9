"""The README's first program and its test, as a reader would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daemons import LIMIT_S, PATIENT, cluster

PAGE = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PROGRAM, TEST = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2]
LOG = "[log]\nenabled = true\nreplicas = [1]\n"


def typed(directory: Path, *words: str, **environment: str) -> str:
    (directory / "store.py").write_text(PROGRAM)
    (directory / "test_store.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.mark.nodes
def test_the_program_runs(tmp_path: Path) -> None:
    with cluster(1, tmp_path, PATIENT + LOG) as alone:
        assert typed(tmp_path, "store.py", TOTEMPOLE_SOCKET=str(alone[1].socket)) == "red\n"


def test_its_test_passes(tmp_path: Path) -> None:
    assert "1 passed" in typed(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_store.py")
