"""Scenarios of bugs that somebody once had, this project or another: they stay fixed.

A file here is run as it stands. A line `# catches: NAME` says that the scenario must give away that mutant of
the protocol (totempole.sim.fuzz.mutants), so that it is known to be able to fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.sim.contract import SimulationError
from totempole.sim.fuzz.mutants import MUTANTS, mutated_stack
from totempole.sim.scenario import Scenario, parse, run

FILES = sorted(Path(__file__).parent.glob("*.scenario"))
CATCHES = "# catches: "


def scenario(file: Path) -> Scenario:
    return parse(file.read_text(), file.name)


def catches(file: Path) -> list[str]:
    return [line.removeprefix(CATCHES) for line in file.read_text().splitlines() if line.startswith(CATCHES)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_regression_scenario_holds(file: Path) -> None:
    assert run(scenario(file), level="protocol").failures == []


@pytest.mark.search
@pytest.mark.parametrize(
    ("file", "name"),
    [(file, name) for file in FILES for name in catches(file)],
    ids=lambda value: value.stem if isinstance(value, Path) else value.replace(" ", "-"),
)
def test_it_catches_the_mutants_it_names(file: Path, name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    try:
        failures = run(scenario(file), level="protocol", stack=mutated_stack(mutant)).failures
    except SimulationError as error:
        failures = [str(error)]
    assert failures
