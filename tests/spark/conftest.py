"""One Spark session for the whole test run: all tests of this directory run in one process."""

from __future__ import annotations

import sys
from pathlib import Path

from spark_session import spark

sys.path.insert(0, str(Path(__file__).parent.parent / "checkers"))  # for its traces

__all__ = ["spark"]
