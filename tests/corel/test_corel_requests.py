"""Programs that wait for runs are told what becomes of them: once, and only while they are there."""

from __future__ import annotations

from typing import Any, cast

import pytest

from totempole.core.io import Scope
from totempole.corel import requests as module
from totempole.corel.events import Accepted, Durable, Fenced, Lost, Placed, Unknown
from totempole.corel.fences import FenceMark
from totempole.corel.requests import Requests
from totempole.corel.run import Run, RunId, RunKind, Stamp
from totempole.corel.zones import Ordered


class Told:
    """The one thing of a scope that requests use."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def tell(self, event: Any) -> None:
        self.events.append(event)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def requests(told: Told) -> Requests:
    return Requests(cast(Scope, told))


def run_id(number: int) -> RunId:
    return RunId(1, 1, number)


def ordered(number: int, position: int = 0) -> Ordered:
    run = Run(run_id(number), Stamp(4, 1, number, 0), 0, RunKind.HOLD, 0, b"")
    return Ordered(run, 0, position, (), 0)


def held(_run: RunId) -> bool:
    return True


def unheld(_run: RunId) -> bool:
    return False


def test_a_run_is_accepted_becomes_durable_and_gets_its_place(told: Told, requests: Requests) -> None:
    requests.accept(7, 1, run_id(1))
    requests.logged(run_id(1), 5)
    requests.logged(run_id(2), 5)  # nobody waits for it
    requests.became_durable(4)
    assert told.events == [Accepted(7, 1, run_id(1))]
    requests.became_durable(5)
    requests.ordered(ordered(1, 9))
    requests.ordered(ordered(1, 9))
    placed = Placed(7, 1, run_id(1), 9, ordered(1).positions, ())
    assert told.events[1:] == [Durable(7, 1, run_id(1)), placed]


def test_a_run_that_its_fence_has_kept_out(told: Told, requests: Requests) -> None:
    requests.accept(7, 1, run_id(1))
    requests.ordered(ordered(1, 9)._replace(fenced=FenceMark(4, -1)))
    requests.find(7, 2, run_id(1), unheld)
    assert told.events[1:] == [Fenced(7, 1, run_id(1), 4, -1), Fenced(7, 2, run_id(1), 4, -1)]


def test_a_run_that_has_its_place_is_found_at_once(told: Told, requests: Requests) -> None:
    requests.ordered(ordered(1, 9))
    requests.find(7, 2, run_id(1), unheld)
    assert told.events == [Placed(7, 2, run_id(1), 9, ordered(1).positions, ())]


def test_a_run_that_is_held_is_found_when_it_gets_its_place(told: Told, requests: Requests) -> None:
    requests.find(7, 2, run_id(1), held)
    requests.find(8, 3, run_id(1), held)
    requests.find(9, 4, run_id(2), unheld)
    assert told.events == [
        Unknown(7, 2, run_id(1), True),
        Unknown(8, 3, run_id(1), True),
        Unknown(9, 4, run_id(2), False),
    ]
    del told.events[:]
    requests.ordered(ordered(1))
    requests.ordered(ordered(2))
    assert [(event.process, event.request) for event in told.events] == [(7, 2), (8, 3)]


def test_who_is_gone_is_told_nothing(told: Told, requests: Requests) -> None:
    requests.accept(7, 1, run_id(1))
    requests.accept(8, 1, run_id(2))
    requests.find(8, 2, run_id(1), held)
    requests.logged(run_id(2), 1)
    requests.forget(8)
    del told.events[:]
    requests.became_durable(1)
    requests.ordered(ordered(1))
    requests.ordered(ordered(2))
    assert [event.process for event in told.events] == [7]


def test_what_nobody_will_know_is_told_as_lost(told: Told, requests: Requests) -> None:
    for number in (1, 2):
        requests.accept(7, number, run_id(number))
    del told.events[:]
    requests.give_up("the log is closed", lambda run: run == run_id(1))
    assert told.events == [Lost(7, 1, run_id(1), "the log is closed")]
    requests.give_up("the log has failed")
    requests.give_up("the log has failed")
    assert told.events[1:] == [Lost(7, 2, run_id(2), "the log has failed")]


def test_the_oldest_places_are_forgotten(
    told: Told, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 2)
    for number in (1, 2, 3):
        requests.ordered(ordered(number, number))
    for number in (1, 2, 3):
        requests.find(7, number, run_id(number), unheld)
    assert [type(event) for event in told.events] == [Unknown, Placed, Placed]
