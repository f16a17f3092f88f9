"""A run that could not have network namespaces says so in its last lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT_TOOLS = """\
import sys
import pytest
from totempole.lab import commands
commands._PATH = "/nowhere"
options = ["-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
sys.exit(pytest.main([*options, "tests/lab/test_lab_networks.py"]))
"""


def test_what_was_skipped_for_lack_of_namespaces_is_told() -> None:
    argv = [sys.executable, "-c", WITHOUT_TOOLS]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True).stdout
    assert "tests that need network namespaces were skipped: no test met a real network" in said
