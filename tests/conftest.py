"""Puts tests/ on the import path, for strategies.py; makes hypothesis repeatable; marks and spreads tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("totempole", deadline=None, derandomize=True)
settings.load_profile("totempole")

TESTS = Path(__file__).parent
MARKS = {
    "bench_net": "namespaces",
    "lab": "namespaces",
    "netns": "namespaces",
    "spark": "spark",
    "fuzz": "search",
}
"""What the tests of a directory need that `make quick` leaves out. It runs those of all other directories."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = MARKS.get(item.path.relative_to(TESTS).parts[0])
        if mark is not None:
            item.add_marker(mark)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Every test by itself, whoever is free; but all of tests/spark in one process, which has the session."""
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return OneSession(config, log)
