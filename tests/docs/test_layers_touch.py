"""What docs/architecture.md says about the places that a layer touches is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from totempole.core.effects import Effect
from totempole.core.inputs import Command, Input

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "totempole"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
COMPARED = TEXT.split("<!-- compared with the imports by tests/docs/test_layers_touch.py -->\n")[1]
ROWS = {
    cells[1].strip(" `"): cells[2:-1]
    for cells in (line.split("|") for line in COMPARED.split("<!--")[0].splitlines()[2:])
}
PLACES = (("core", "runtime"), ("daemon",), ("sim",))
"""Of the columns: the modules of these directories, but not of those within them."""
CONTRACT = [*get_args(Effect), *(each for each in get_args(Input) if each is not Command)]


def modules_of(column: int) -> list[Path]:
    here = [SOURCE / "stack.py"] if column == 0 else []
    return here + [file for place in PLACES[column] for file in sorted((SOURCE / place).glob("*.py"))]


def imported_packages(file: Path) -> set[str]:
    """Of ours, those that only a type checker sees included."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names += [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names += [each.name for each in node.names]
    return {name.split(".")[1] for name in names if name.startswith("totempole.")}


def test_the_layers_are_those_above_and_below_the_ring() -> None:
    assert [*ROWS] == ["groups", "corel", "networks", "rrp"]


@pytest.mark.parametrize("column", range(len(PLACES)))
def test_the_table_names_all_modules_that_import_a_layer(column: int) -> None:
    said = {layer: re.findall(r"`([\w/.]+)`", cells[column]) for layer, cells in ROWS.items()}
    imported = {str(file.relative_to(SOURCE)): imported_packages(file) for file in modules_of(column)}
    assert said == {layer: [file for file, layers in imported.items() if layer in layers] for layer in ROWS}


def test_every_file_that_a_new_layer_touches_is_there() -> None:
    table = TEXT.split("## What a new layer touches\n")[1].split("\n\n")[0]
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", table)
    assert len(named) > 12
    for name in named:
        assert (SOURCE / name).exists(), name


@pytest.mark.parametrize("kind", CONTRACT)
def test_every_effect_and_input_of_the_contract_stands_in_its_table(kind: type) -> None:
    cells = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    (found,) = [said for cell in cells if (said := re.search(rf"`{kind.__name__}(?:\((.*?)\))?`", cell))]
    if found[1]:
        fields = found[1].split(", ")
        assert tuple(fields) == kind._fields[: len(fields)]  # type: ignore[attr-defined]
