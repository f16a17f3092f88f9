"""The tentative state: a copy of the green one with this host's own calls on top."""

from __future__ import annotations

import pytest
from test_object_host import Scripted, Tally, counts, opened

from totempole.client.appending import RecordName
from totempole.errors import ObjectError
from totempole.objects import tentative
from totempole.objects.tentative import Tentative


def state_of(it: Scripted) -> dict[str, int]:
    found: Tally = Tentative(it.type).state(it.host)
    return found.counts


def test_it_has_the_green_state_and_own_calls_in_every_stage() -> None:
    it = opened()
    it.call("add", "green")
    it.place_all()
    it.call("add", "red", red=True)
    (record,) = it.appended
    it.host.durable(record, RecordName((1, 2, 3), 0, 0))
    for number in range(6):
        it.call("add", str(number))
    given_up = it.call("add", "given up")
    it.host.give_up(given_up)
    assert list(state_of(it)) == ["green", "red", *"012345"]
    assert list(counts(it)) == ["green"], "the object itself is as it was"


def test_what_is_done_to_it_reaches_nobody() -> None:
    it = opened()
    it.call("add", "green")
    it.place_all()
    shown: Tentative[Tally] = Tentative(it.type)
    shown.state(it.host).counts["mine"] = 1
    assert shown.state(it.host).counts == counts(it) == {"green": 1}


def test_an_object_that_nobody_has_opened_has_one() -> None:
    it = Scripted()
    it.call("add", "first", red=True)
    assert state_of(it) == {"first": 1}


def test_commands_that_refuse_or_raise_change_nothing() -> None:
    it = opened()
    it.call("refuse")
    it.call("add", "a")
    assert state_of(it) == {"a": 1}


def test_a_large_state_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tentative, "STATE_BYTES_MAX", 1_000)
    it = opened()
    shown: Tentative[Tally] = Tentative(it.type)
    assert shown.state(it.host).counts == {}
    it.call("add", "x" * 2_000)
    assert shown.state(it.host).counts, "the green state is small"
    it.place_all()
    for _ in range(2):
        with pytest.raises(ObjectError, match=r"at most 1000 .* use peek"):
            shown.state(it.host)
