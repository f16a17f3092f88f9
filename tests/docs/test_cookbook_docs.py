"""What cookbook.md shows is what examples/cookbook has, and it is short."""

from __future__ import annotations

import ast
import re
import tokenize
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/cookbook.md").read_text(encoding="utf-8")
RECIPES = sorted((ROOT / "examples/cookbook").glob("*.py"))
LINES_MAX = 40


def lines_of_code(text: str) -> int:
    """Lines that have code: no comments, docstrings or empty lines."""
    without = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
    lines = set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if tokenize.tok_name[token.type] not in without:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            if ast.get_docstring(node) is not None and first.end_lineno is not None:
                lines -= {*range(first.lineno, first.end_lineno + 1)}
    return len(lines)


def test_lines_of_code_are_counted() -> None:
    assert (
        lines_of_code('"""What\nit is."""\n\n# why\ndef f():\n    """Doc."""\n    return (1,\n    2)\n') == 3
    )


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_short(path: Path) -> None:
    assert lines_of_code(path.read_text(encoding="utf-8")) <= LINES_MAX


def test_the_stores_are_short() -> None:
    for name, most in (("key_value", 25), ("key_value_in_memory", 60)):
        lines = lines_of_code((ROOT / f"examples/{name}.py").read_text(encoding="utf-8"))
        assert lines <= most
        assert f"| `examples/{name}.py` | {lines} |" in PAGE


def test_what_the_stores_share_is_counted_apart() -> None:
    for name in ("http_store", "helping"):
        lines = lines_of_code((ROOT / f"examples/{name}.py").read_text(encoding="utf-8"))
        assert re.search(rf"`examples/{name}\.py`[^(]* \({lines} lines\)", PAGE)


def test_the_page_shows_the_files() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted(path.read_text(encoding="utf-8") for path in RECIPES)


def test_every_recipe_says_what_happens_in_a_partition() -> None:
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) == len(RECIPES)
    for section in sections:
        assert "\n**In a partition** " in section
        assert "\n**The mistake**: " in section
