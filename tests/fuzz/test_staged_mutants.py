"""Scenarios that are made for mutants which random runs hardly ever notice.

Each holds of the true protocol. A line `# catches: NAME` says that it does not hold of that mutant
(`STAGED`, `GROUP_STAGED` and `NETWORK_STAGED` in totempole.sim.fuzz).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.sim.fuzz.group_mutants import GROUP_STAGED
from totempole.sim.fuzz.mutants import STAGED, mutated_stack
from totempole.sim.fuzz.network_mutants import NETWORK_STAGED
from totempole.sim.scenario import Scenario, parse, run

FILES = sorted((Path(__file__).parent / "staged").glob("*.scenario"))
CATCHES = "# catches: "
MUTANTS = {mutant.name: mutant for mutant in (*STAGED, *GROUP_STAGED, *NETWORK_STAGED)}


def scenario(file: Path) -> Scenario:
    return parse(file.read_text(), file.name)


def catches(file: Path) -> list[str]:
    lines = file.read_text().splitlines()
    return [name for line in lines if (name := line.removeprefix(CATCHES)) != line and name in MUTANTS]


def test_there_is_a_scenario_for_each() -> None:
    assert {name for file in FILES for name in catches(file)} == set(MUTANTS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_holds_of_the_true_protocol(file: Path) -> None:
    assert run(scenario(file), level="checked").failures == []


@pytest.mark.parametrize(
    ("file", "name"),
    [(file, name) for file in FILES for name in catches(file)],
    ids=lambda value: value.stem if isinstance(value, Path) else value.replace(" ", "-"),
)
def test_it_catches_the_mutants_it_names(file: Path, name: str) -> None:
    """By what is expected, not by an exception: that would be an error here."""
    assert run(scenario(file), level="checked", stack=mutated_stack(MUTANTS[name])).failures
