"""The traces that tests/checkers breaks by hand, each with the terms under which it judges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import ModuleType
from typing import Any

from totempole.checkers import Report, check
from totempole.checkers.terms import Terms
from totempole.trace.schema import Row

Runs = Mapping[str, tuple[Sequence[Row], Terms]]


def runs_of(module: ModuleType) -> Runs:
    """All that the tests of this module give to `check`, as test-1, test-2, …"""
    runs: dict[str, tuple[list[Row], Terms]] = {}
    for name, test in vars(module).copy().items():
        if name.startswith("test_"):
            for number, judged in enumerate(_judged(module, test), 1):
                runs[f"{name}-{number}"] = judged
    return runs


def _judged(module: ModuleType, test: Callable[..., None]) -> Iterator[tuple[list[Row], Terms]]:
    seen: list[tuple[list[Row], Terms]] = []

    def listening(rows: list[Row], complete: bool = False, **known: Any) -> Report:
        told = [tuple(known.get(name, ())) for name in ("calm", "shared", "lossless", "alarmed")]
        terms = Terms(complete, known.get("same_clock", True), known.get("expectation"), *told)
        seen.append((list(rows), terms))
        return check(rows, complete, **known)

    true_check = vars(module)["check"]
    vars(module)["check"] = listening
    try:
        for arguments in _cases(test):
            test(**arguments)
    finally:
        vars(module)["check"] = true_check
    yield from seen


def _cases(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """One for each combination of the values that the test takes; most take none."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for values in product(*(mark.args[1] for mark in marks)):
        yield {mark.args[0]: value for mark, value in zip(marks, values, strict=True)}
