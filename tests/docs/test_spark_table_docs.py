"""What spark-table.md says: columns, options and defaults are those of the source, programs are programs."""

from __future__ import annotations

import re
from pathlib import Path

from totempole.spark_table import planning
from totempole.spark_table.options import COLUMNS, OPTIONS, ReadOptions

PAGE = (Path(__file__).parents[2] / "docs/spark-table.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(title: str) -> list[str]:
    return re.findall(r"^\| (`.*?) \|", section(title), re.MULTILINE)


def test_the_programs_are_programs() -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(programs) >= 4
    for text in programs:
        compile(text, "spark-table.md", "exec")
        for name in re.findall(r'option\(\s*"(\w+)"', text):
            assert name in (*OPTIONS, "checkpointLocation", "path"), name


def test_every_column_is_told_of_once() -> None:
    assert re.findall(r"`(\w+)`", " ".join(first_cells("Columns"))) == list(COLUMNS)


def test_every_option_is_told_of_once() -> None:
    told = re.findall(r"`(\w+)`", " ".join(first_cells("Options")))
    assert sorted(told) == sorted(OPTIONS)


def test_defaults_are_true() -> None:
    defaults = ReadOptions.of({"replicas": "/run/node.sock"})
    cells = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section("Options"), re.MULTILINE))
    assert float(cells["timeout"]) == defaults.access.patience_s
    assert cells["failOnDataLoss"] == f"`{str(defaults.fails_on_data_loss).lower()}`"
    assert defaults.selection.without == "staged/"
    assert "staged/" in section("Options")
    assert f"about {planning.PART_BYTES >> 20} MiB" in section("Options")


def test_errors_are_in_the_code() -> None:
    """In the words that a reader searches for."""
    source = Path(__file__).parents[2] / "src/totempole"
    code = "".join(path.read_text() for path in (source / "spark_table").glob("*.py"))
    code += "".join(path.read_text() for path in (source / "client").glob("*log*.py"))
    joined = re.sub(r'"\s*f?"', "", re.sub(r"\s+", " ", code))
    for words in re.findall(r"`([^`]+)`", " ".join(first_cells("Errors"))):
        for part in re.split(r"…|= |\d+ s", words):
            assert part.strip() in joined, part
