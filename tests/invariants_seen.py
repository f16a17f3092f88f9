"""Which assertions a package has, and which of them was seen to fail.

An assertion that nobody has seen fail may be one that cannot. tests/invariants has for each package a table
of breakages, and requires that together they make each assertion of the package fail.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

Breakage = Callable[[pytest.MonkeyPatch], object]
"""Corrupts something, or asks for the impossible."""

Assertion = tuple[str, int]
"""A module's full name, and the line on which the statement begins."""


def assertions_in(package: str) -> set[Assertion]:
    """Every `assert` statement of totempole.`package`, subpackages included."""
    spec = find_spec(f"totempole.{package}")
    assert spec is not None
    directory = Path(next(iter(spec.submodule_search_locations or ())))
    return {
        (_module(package, file.relative_to(directory)), statement.lineno)
        for file in directory.rglob("*.py")
        for statement in _asserts(file)
    }


def raised_at(excinfo: pytest.ExceptionInfo[AssertionError]) -> Assertion:
    """The statement that raised."""
    last = excinfo.traceback[-1]
    line = last.lineno + 1
    begins = [each.lineno for each in _asserts(Path(last.path)) if each.lineno <= line <= _end(each)]
    return last.frame.f_globals["__name__"], begins[0] if begins else line


def failed_at(breakage: Breakage) -> Assertion:
    """Where the breakage was noticed. What it patches is put back."""
    with pytest.MonkeyPatch.context() as patch:
        with pytest.raises(AssertionError) as excinfo:
            breakage(patch)
        return raised_at(excinfo)


def _module(package: str, path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("totempole", package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


@cache
def _asserts(file: Path) -> list[ast.Assert]:
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Assert)]


def _end(statement: ast.Assert) -> int:
    return statement.end_lineno or statement.lineno
