"""Where a host begins, and how far its hold may move."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.client.appending import LOG_NAME_BYTES_MAX
from totempole.log.snapshots import StoredHead
from totempole.objects import holds
from totempole.objects.holds import (
    ObjectTrimmedError,
    hold_name,
    hold_position,
    holds_of,
    starting_point,
)


def head(position: int) -> StoredHead:
    return StoredHead("bank", position, "Bank", 1, 1, 1, 1)


def test_a_hold_is_named_by_object_and_processor() -> None:
    assert hold_name("bank", 3) == "object:bank@3"


@given(st.text("a@…😀", min_size=1, max_size=120), st.integers(1, 2**32 - 1))
def test_a_hold_has_a_name_that_a_log_takes(name: str, processor: int) -> None:
    found = hold_name(name, processor)
    assert len(found.encode()) <= LOG_NAME_BYTES_MAX
    assert holds_of(name, {found: 5}) == {processor: 5}
    assert holds_of(name + "x", {found: 5}) == {}


def test_holds_of_one_object_are_told_from_others() -> None:
    kept = {
        "object:bank@1": 5,
        "object:bank@2": 7,
        "object:bank@home@3": 9,
        "object:bank": 1,
        "object:bank@x": 1,
        "object:banks@1": 2,
        "bank@1": 3,
    }
    assert holds_of("bank", kept) == {1: 5, 2: 7}
    assert holds_of("bank@home", kept) == {3: 9}


# The hold


@given(st.lists(st.integers(1, 2**62), unique=True))
def test_the_hold_is_never_above_the_older_of_the_two_newest(kept: list[int]) -> None:
    position = hold_position(tuple(kept))
    if len(kept) < 2:
        assert position is None, "it stays at 0"
    else:
        assert position == sorted(kept, reverse=True)[1]


def whole_object_check(hold: Callable[[tuple[int, ...]], int | None]) -> None:
    """Records 1, 2, 3, … and a snapshot at every 10th, the newest two kept, the log trimmed behind the hold:
    the object is whole from the newest snapshot, and if that cannot be read, from the other."""
    kept: list[int] = []
    first = held = 0
    for stop in range(1, 200):
        if stop % 10 == 0:
            kept = [*kept, stop][-2:]
            moved = hold(tuple(kept))
            held = held if moved is None else moved
            first = held  # trimmed as far as the hold allows
        log = range(first, stop)
        for snapshots in (kept, kept[:-1]):
            start = starting_point(
                "bank", first, {hold_name("bank", 1): held}, head(snapshots[-1]) if snapshots else None
            )
            applied = [
                *range(snapshots[-1] if snapshots else 0),
                *log[log.index(start) if start in log else len(log) :],
            ]
            assert applied == list(range(stop))


def test_snapshot_and_trimmed_log_are_the_whole_object() -> None:
    whole_object_check(hold_position)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kept: max(kept),
        lambda kept: max(kept) + 1,
        lambda kept: hold_position(kept) and hold_position(kept) + 1,
        lambda kept: kept[-1] if kept else None,
    ],
)
def test_a_hold_above_the_snapshots_is_found(wrong: Callable[[tuple[int, ...]], int | None]) -> None:
    with pytest.raises((AssertionError, ObjectTrimmedError)):
        whole_object_check(wrong)


# The start


def test_a_new_object_begins_with_what_is_kept() -> None:
    assert starting_point("bank", 0, {}, None) == 0
    assert starting_point("bank", 500, {"spark-7": 500}, None) == 500


def test_an_object_without_snapshots_whose_holds_have_not_moved_is_whole() -> None:
    assert starting_point("bank", 500, {"object:bank@1": 0}, None) == 500


def test_a_snapshot_says_where_to_read_on() -> None:
    assert starting_point("bank", 500, {"object:bank@1": 600}, head(700)) == 700
    assert starting_point("bank", 700, {"object:bank@1": 700}, head(700)) == 700


def test_a_trimmed_object_without_a_snapshot_is_an_error_that_says_who_has_one() -> None:
    kept = {"object:bank@1": 600, "object:bank@2": 0, "object:bank@3": 900}
    with pytest.raises(ObjectTrimmedError, match=r"begins with position 500.*node 1 .*600.*node 3 .*900"):
        starting_point("bank", 500, kept, None)


def test_a_snapshot_before_the_log_is_an_error() -> None:
    with pytest.raises(ObjectTrimmedError, match=r"position 400.*begins with position 500"):
        starting_point("bank", 500, {}, head(400))


def test_a_start_that_ignores_the_trimmed_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "holds_of", lambda *_: {})
    with pytest.raises(pytest.fail.Exception):
        test_a_trimmed_object_without_a_snapshot_is_an_error_that_says_who_has_one()
