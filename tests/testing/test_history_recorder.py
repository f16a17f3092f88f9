"""What is recorded of real calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from sequential_models import Lock, Register

from totempole.testing import ClassModel, History, NotLinearizable, Undecided, assert_linearizable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_calls_as_they_happen(tmp_path: Path) -> None:
    history = History(Clock())
    write = history.begin("a", "write", 5)
    read = history.begin("b", "read")
    read.returned(5)
    history.begin("c", "write", 7)  # nobody knows
    history.begin("d", "write", 9).without_effect()
    write.returned()
    assert [(call.client, call.began, call.ended, call.result) for call in history.calls()] == [
        ("a", 1, 6, None),
        ("b", 2, 3, 5),
        ("c", 4, None, None),
    ]
    assert assert_linearizable(history.calls(), ClassModel(Register)).holds
    history.save(tmp_path / "one")
    assert History.load(tmp_path / "one") == history.calls()


def test_what_the_object_raised_is_a_result(tmp_path: Path) -> None:
    history = History(Clock())
    call = history.begin("a", "release", "a")
    try:
        Lock().release("a")
    except Exception as error:
        call.raised(error)
    history.save(tmp_path / "one")
    assert_linearizable(History.load(tmp_path / "one"), ClassModel(Lock))


def test_a_bad_history_raises() -> None:
    history = History(Clock())
    history.begin("a", "write", 5).returned()
    history.begin("b", "read").returned(4)
    with pytest.raises(NotLinearizable, match=r"b: read\(\) -> 4\n.*it could have been 5"):
        assert_linearizable(history.calls(), ClassModel(Register))


def test_a_hard_history_raises_too() -> None:
    history = History(Clock())
    for number in range(12):
        history.begin(f"c{number}", "add", 1 << number)
    history.begin("r", "read").returned(-1)
    with pytest.raises(Undecided, match="undecided after"):
        assert_linearizable(history.calls(), ClassModel(Register), steps_max=500)


def test_a_call_ends_once() -> None:
    history = History(Clock())
    call = history.begin("a", "read")
    call.returned(0)
    with pytest.raises(ValueError, match="has ended already"):
        call.returned(0)


def test_another_file_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('"something"\n')
    with pytest.raises(ValueError, match="is no history"):
        History.load(tmp_path / "other")
