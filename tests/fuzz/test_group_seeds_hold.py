"""A small search with process groups on every test run. `totem fuzz --groups` is the large one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sweeps import daily
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.search import try_group_seed
from totempole.sim.script_parser import parse

SEEDS = daily(range(60), 24)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_property_holds(seed: int) -> None:
    _, verdict = try_group_seed(seed)
    assert not verdict.violated, verdict.text
    assert verdict.deliveries


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 17, 392])
def test_a_plan_survives_being_written_down_and_read_again(seed: int) -> None:
    scenario = group_plan(seed)
    assert parse(scenario.to_text(), scenario.name) == scenario


def test_a_seed_is_the_same_run_whatever_the_hash_seed() -> None:
    digests = {_digest("0"), _digest("1")}
    assert len(digests) == 1


def _digest(hash_seed: str) -> str:
    command = [sys.executable, "-m", "totempole", "fuzz", "--groups", "--seed", "5", "--trace-hash"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return found.stdout
