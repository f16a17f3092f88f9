"""Parts of the order: they follow each other, are about one size, and begin with segments where they can."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.spark_table.planning import PART_BYTES, SMALL_BYTES, Sizes, cut, parts_wanted

MIB = 1024 * 1024


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(128, 100 * MIB)), max_size=8),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(0, 12),
)
def test_parts_are_the_whole(segments: list[tuple[int, int]], start: int, length: int, least: int) -> None:
    """Whatever the sizes say: they may be of a replica that is further, or has trimmed."""
    positions = sorted(position for position, _ in segments)
    sizes = [(position, size) for position, (_, size) in zip(positions, segments, strict=True)]
    parts = cut(start, start + length, Sizes(sizes, 1500), least)
    if not length:
        assert parts == []
        return
    assert parts[0][0] == start
    assert parts[-1][1] == start + length
    assert all(first[1] == second[0] for first, second in pairwise(parts))
    assert all(first < last for first, last in parts)
    assert len(parts) >= min(least, length)


@pytest.mark.parametrize(
    ("size", "least", "count"),
    [
        (0, 0, 1),
        (SMALL_BYTES - 1, 0, 1),
        (SMALL_BYTES, 0, 2),
        (2 * PART_BYTES, 0, 2),
        (2 * PART_BYTES + 1, 0, 3),
        (0, 7, 7),
        (SMALL_BYTES, 1, 1),
        (100 * PART_BYTES, 7, 100),
    ],
)
def test_how_many(size: int, least: int, count: int) -> None:
    assert parts_wanted(size, least) == count


def test_parts_have_about_one_size() -> None:
    """Where records are small there are more of them in a part."""
    sizes = Sizes([(0, 60 * MIB), (1000, 60 * MIB), (100_000, 60 * MIB), (100_500, 60 * MIB)], 101_000)
    parts = cut(0, 101_000, sizes, 12)
    assert len(parts) == 12
    found = [sizes.before(last) - sizes.before(first) for first, last in parts]
    assert max(found) < 1.6 * min(found)
    assert max(last - first for first, last in parts) > 20 * min(last - first for first, last in parts)


def test_parts_begin_with_segments_where_one_is_near() -> None:
    bounds = [0, 1000, 2100, 2900, 4000, 5100]
    sizes = Sizes([(bound, 64 * MIB) for bound in bounds], 6000)
    assert [first for first, _ in cut(0, 6000, sizes)] == bounds
    assert [first for first, _ in cut(0, 6000, sizes, 3)] == bounds
    halves = [first for first, _ in cut(0, 6000, sizes, 12)]
    assert set(bounds) <= set(halves)
    assert halves[1] == 500


def test_a_part_of_a_segment_is_not_bound_to_it() -> None:
    sizes = Sizes([(0, 10 * MIB)], 1000)
    assert cut(0, 1000, sizes) == [(0, 500), (500, 1000)]
    assert cut(990, 1000, sizes) == [(990, 1000)]


def test_segments_without_records_do_not_count() -> None:
    sizes = Sizes([(0, MIB), (0, MIB), (500, 30 * MIB), (500, MIB), (1000, MIB)], 1000)
    assert sizes.boundaries == [0, 500, 1000]
    assert sizes.before(1000) == 2 * MIB
