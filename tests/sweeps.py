"""Tests that do one thing again and again: for every link, every style, every seed, every example."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def first_of(values: Iterable[Any]) -> list[Any]:
    """For `parametrize` with one name: the first value always, the others where searches run too."""
    return first_row_of((value,) for value in values)


def first_row_of(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The same with several names."""
    first, *others = rows
    return [pytest.param(*first), *(pytest.param(*row, marks=pytest.mark.search) for row in others)]


def daily(values: Iterable[Any], count: int) -> list[Any]:
    """For `parametrize`: so many of them on every test run, the others with `make long`."""
    return [
        pytest.param(value, marks=pytest.mark.long if number >= count else ())
        for number, value in enumerate(values)
    ]


def examples(count: int) -> int:
    """For `settings(max_examples=…)`: so many; where `make quick` runs, no more than of other properties."""
    is_quick = settings.get_current_profile_name() == "quick"
    return min(count, settings.default.max_examples) if is_quick else count
