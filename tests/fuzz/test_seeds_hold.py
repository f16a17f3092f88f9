"""A small search on every test run. `make fuzz` is the large one."""

from __future__ import annotations

import pytest

from sweeps import daily
from totempole.sim.fuzz.search import try_seed

SEEDS = daily(range(100), 36)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_property_holds(seed: int) -> None:
    _, verdict = try_seed(seed)
    assert not verdict.violated, verdict.text
    assert verdict.deliveries
