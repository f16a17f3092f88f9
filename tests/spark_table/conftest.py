"""The same Spark session as for the other tests of Spark: all tests of this directory run in one process."""

from __future__ import annotations

import sys
from pathlib import Path

from spark_session import spark

sys.path.insert(0, str(Path(__file__).parent.parent / "spark"))  # for its cluster
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))  # for its loop
sys.path.insert(0, str(Path(__file__).parent.parent / "log"))  # for its power cuts

__all__ = ["spark"]
