"""Tests that do one thing again and again: for every link, every style, every seed, every example."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def first_of(values: Iterable[Any], count: int = 1) -> list[Any]:
    """For `parametrize` with one name: the first values always, the others where searches run too."""
    return first_row_of(((value,) for value in values), count)


def first_row_of(rows: Iterable[tuple[Any, ...]], count: int = 1) -> list[Any]:
    """The same with several names."""
    return [
        pytest.param(*row, marks=pytest.mark.search if number >= count else ())
        for number, row in enumerate(rows)
    ]


def daily(values: Iterable[Any], count: int) -> list[Any]:
    """For `parametrize`: the first `count` on every test run, the others with `make long`.

    `make quick` does not even collect the others: there are more of them than of all other tests together.
    """
    return [
        pytest.param(value, marks=pytest.mark.long if number >= count else ())
        for number, value in enumerate(values)
        if number < count or not _is_quick()
    ]


def examples(count: int) -> int:
    """For `settings(max_examples=…)`: so many; where `make quick` runs, no more than of other properties."""
    return min(count, settings.default.max_examples) if _is_quick() else count


def _is_quick() -> bool:
    return settings.get_current_profile_name() == "quick"
