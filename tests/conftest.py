"""Puts tests/ on the import path, for strategies.py; makes hypothesis repeatable; marks and spreads tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("totempole", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("totempole"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "totempole"))

TESTS = Path(__file__).parent
MARKS = {
    "bench_net": "namespaces",
    "lab": "namespaces",
    "netns": "namespaces",
    "spark": "spark",
    "spark_table": "spark",
    "fuzz": "search",
    "bench_sim": "search",
}
"""What the tests of a directory need that `make quick` leaves out. It runs those of all other directories."""

TOGETHER = (
    "tests/spark/",
    "tests/spark_table/",
    "tests/checkers/test_parts.py",
    "tests/cli/test_cli_figures.py",
    "tests/cli/test_cli_groups.py",
    "tests/cli/test_cli_load.py",
    "tests/cli/test_cli_network.py",
    "tests/docs/test_groups_docs.py",
    "tests/examples/",
    "tests/paper/test_determinism.py",
    "tests/paper/test_performance_claims.py",
    "tests/paper/test_replication_claims.py",
    "tests/runtime/test_local_cluster.py",
    "tests/sim/test_saturated_bad_links.py",
)
"""Tests that share a Spark session, a cluster of daemons, or a run."""


GC_THRESHOLDS = (250_000, 2, 1)
"""The rows of a run that is over lie in cycles, and wait for a full collection: one per million objects."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Keeps Python's collector away from the tests themselves.

    Some hundred thousand objects (modules, tests, their parameters) live as long as the process. Left alone,
    the collector looks through them again and again, and takes half of the time of a run in the simulator.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import what the marks leave out: Spark alone takes seconds, in every worker."""
    mark = MARKS.get(collection_path.name) if collection_path.parent == TESTS else None
    left_out = mark is not None and f"not {mark}" in config.getoption("markexpr")
    return True if left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = MARKS.get(item.nodeid.split("/", 2)[1])
        if mark is not None:
            item.add_marker(mark)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A green run on a machine without namespaces would hide that its packets never left loopback."""
    from totempole.lab.lab import missing

    skipped = [each for each in terminalreporter.stats.get("skipped", []) if "namespaces" in each.keywords]
    if skipped and missing():
        terminalreporter.write_line(
            f"{len(skipped)} tests that need network namespaces were skipped: no test met a real network",
            yellow=True,
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Every test by itself, whoever is free; but those that share something in one process."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((shared for shared in TOGETHER if nodeid.startswith(shared)), nodeid)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            # It counts what waits at a worker after each test. Thousands that are done make that slow.
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    return Together(config, log)
