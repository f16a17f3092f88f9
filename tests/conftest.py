"""Puts tests/ on the import path, for strategies.py; makes hypothesis repeatable; spreads tests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("totempole", deadline=None, derandomize=True)
settings.load_profile("totempole")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Every test by itself, whoever is free; but all of tests/spark in one process, which has the session."""
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return OneSession(config, log)
