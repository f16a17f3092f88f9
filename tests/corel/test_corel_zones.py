"""What a replica keeps: colours, positions, marks, and that a mark and the frames after it are the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random

import pytest

from totempole.corel.frames import (
    Agreed,
    Attempted,
    Begun,
    Colour,
    Committed,
    Frame,
    Greened,
    Heard,
    Identified,
    Opened,
    Opening,
    Placed,
    Promoted,
    Shown,
    decode,
    encode,
)
from totempole.corel.outbox import Outbox
from totempole.corel.quorum import NO_FORMATION, Formation, ReplicaSet, Voter
from totempole.corel.run import Hold, Run, RunId, RunKind, Stamp, pack_body, pack_records, primary_run
from totempole.corel.zones import Ordered, replay, without_pending

SET = ReplicaSet({1: Voter(11), 2: Voter(12), 3: Voter(13)})
FIRST = Formation(1, (1, 2, 3))


def run(number: int, keys: tuple[str, ...] = (), origin: int = 1, count: int = 1, time_us: int = 0) -> Run:
    body = pack_records("log", [b"x"] * count, keys)
    return Run(RunId(origin, 1, number), Stamp(4, origin, number, 0), time_us, RunKind.RECORDS, count, body)


def founded() -> list[Frame]:
    return [
        Identified(11),
        Agreed(0, (), 0, NO_FORMATION, 7),
        Attempted(FIRST),
        Committed(FIRST, primary_run(FIRST, {1: 11, 2: 12, 3: 13}, SET), ()),
        Greened(1),
    ]


def test_a_log_is_founded() -> None:
    zones = replay(founded())
    assert (zones.log, zones.green_runs, zones.position) == (7, 1, 0)
    assert zones.replicas == SET
    assert zones.established == zones.committed == FIRST


def test_colours() -> None:
    zones = replay([*founded(), Placed(run(1, origin=2), Colour.RED), Placed(run(1), Colour.YELLOW)])
    assert zones.apply(Promoted((RunId(2, 1, 1),))) == []
    assert [each.id.origin for each in zones.yellow] == [1, 2]
    assert zones.pending_bytes
    assert not zones.red_bytes
    ordered = zones.apply(Greened(3))
    assert [(each.run.id.origin, each.place, each.position) for each in ordered] == [(1, 1, 0), (2, 2, 1)]
    assert not zones.pending_bytes


class _UnwalkedList(list[Run]):
    def __iter__(self) -> Iterator[Run]:
        raise AssertionError("all that is pending is looked at")


class _UnwalkedDeque(deque[Run]):
    def __iter__(self) -> Iterator[Run]:
        raise AssertionError("all that is pending is looked at")


def test_what_is_pending_is_known_without_a_look_at_all_of_it() -> None:
    """Any program may ask, and 64 MiB of small runs may be pending."""
    zones = replay([*founded(), Placed(run(1), Colour.YELLOW), Placed(run(2), Colour.YELLOW)])
    zones.apply(Placed(run(1, origin=2), Colour.RED))
    zones.apply(Greened(2))
    asked = [RunId(1, 1, 1), RunId(1, 1, 2), RunId(2, 1, 1), RunId(2, 1, 2)]
    again = replay([zones.mark()])
    assert [again.is_pending(each) for each in asked] == [False, True, True, False]
    zones.red, zones.yellow = _UnwalkedList(zones.red), _UnwalkedDeque(zones.yellow)
    assert [zones.is_pending(each) for each in asked] == [False, True, True, False]
    zones.apply(Promoted((RunId(2, 1, 1),)))
    zones.apply(Greened(3))
    assert [zones.is_pending(each) for each in asked] == [False, False, True, False]
    outbox = Outbox(1, 1_000)
    outbox.open(7)
    assert not outbox.holds(RunId(1, 7, 1))
    for _ in range(4):
        outbox.add(RunKind.RECORDS, 1, b"", 0)
    outbox.delivered(RunId(1, 7, 1), is_ordering=True)
    outbox._own = _UnwalkedDeque(outbox._own)
    names = [*(RunId(1, 7, number) for number in range(1, 6)), RunId(1, 6, 2), RunId(2, 7, 2)]
    assert [outbox.holds(each) for each in names] == [False, True, True, True, False, False, False]


def test_time_never_runs_backwards() -> None:
    frames = [*founded(), Placed(run(1, time_us=9), Colour.YELLOW), Placed(run(2, time_us=5), Colour.YELLOW)]
    assert [each.time_us for each in replay(frames).apply(Greened(3))] == [9, 9]


def test_repeated_keys_take_no_position() -> None:
    zones = replay(founded())
    zones.apply(Placed(run(1, ("a", "b", "a", ""), count=4), Colour.YELLOW))
    zones.apply(Placed(run(2, ("b", "c"), count=2), Colour.YELLOW))
    first, second = zones.apply(Greened(3))
    assert (first.position, first.positions, first.repeats) == (0, 3, ((2, 0),))
    assert [first.position_of(index) for index in range(4)] == [0, 1, 0, 2]
    assert (second.position, second.positions, second.repeats) == (3, 1, ((0, 1),))
    assert [second.position_of(index) for index in range(2)] == [1, 3]
    assert zones.position == 4


def test_the_oldest_keys_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.corel.zones.KEYS_MAX", 2)
    zones = replay(founded())
    for number, key in enumerate("abca", start=1):
        zones.apply(Placed(run(number, (key,)), Colour.YELLOW))
    ordered = zones.apply(Greened(5))
    assert [each.positions for each in ordered] == [1, 1, 1, 1]
    assert list(zones.keys) == [("log", "c"), ("log", "a")]


def test_holds() -> None:
    zones = replay(founded())
    for number, position in enumerate((5, 7, -1), start=1):
        body = pack_body(Hold("spark", position))
        zones.apply(
            Placed(Run(RunId(1, 1, number), Stamp(4, 1, number, 0), 0, RunKind.HOLD, 0, body), Colour.YELLOW)
        )
    zones.apply(Greened(3))
    assert zones.holds == {"spark": 7}
    zones.apply(Greened(4))
    assert not zones.holds
    assert zones.position == 0


def test_the_record_of_a_primary_that_falls_back_is_dropped() -> None:
    zones = replay([*founded(), Placed(run(1), Colour.RED)])
    second = Formation(2, (1, 2))
    zones.apply(Attempted(second))
    zones.apply(Committed(second, primary_run(second, {1: 11, 2: 12}), (run(1).id,)))
    assert len(zones.yellow) == 2
    assert len(zones.sets) == 2
    zones.apply(Agreed(1, (), 1, Formation(3, (2, 3)), 7))
    assert not zones.yellow
    assert [each.id for each in zones.red] == [run(1).id]
    assert zones.attempts == []


def test_fetched_runs_take_the_place_of_yellow_ones() -> None:
    zones = replay([*founded(), Placed(run(1), Colour.YELLOW), Placed(run(2), Colour.YELLOW)])
    zones.apply(Placed(run(1, origin=2), Colour.GREEN))
    assert [each.id.origin for each in zones.red] == [1, 1]
    zones.apply(Placed(run(1), Colour.GREEN))
    assert [each.id.number for each in zones.red] == [2]
    assert zones.green_runs == 3


def test_a_mark_begins_a_replica_that_lacks_much() -> None:
    """It has what is green there, its own reds, and nothing that the donor had as yellow or red."""
    donor = replay(founded())
    for number in range(1, 6):
        donor.apply(Placed(run(number, (f"k{number}",)), Colour.YELLOW))
    donor.apply(Greened(4))
    second = Formation(2, (1, 2))
    donor.apply(Attempted(second))
    donor.apply(Committed(second, primary_run(second, {1: 11, 2: 12}), ()))
    zones = replay([Identified(13), Placed(run(1), Colour.RED), Placed(run(1, origin=3), Colour.RED)])
    zones.apply(Heard((Shown(1, 11, 1, 5),)))
    zones.apply(Opened(Opening(3, 4)))
    zones.apply(Begun(without_pending(donor.mark())))
    assert (zones.green_runs, zones.position, zones.disk) == (4, 3, 13)
    assert zones.heard == {1: Shown(1, 11, 1, 5)}
    assert zones.openings == [Opening(3, 4)]
    assert (zones.committed, zones.established) == (FIRST, FIRST)
    assert not zones.yellow
    assert [each.id.origin for each in zones.red] == [3]
    assert zones.vector == {(1, 1): 3, (3, 1): 1}
    assert len(zones.keys) == 3


def test_only_the_last_runs_are_at_hand() -> None:
    zones = replay(founded(), recent_bytes=200)
    for number in range(1, 9):
        zones.apply(Placed(run(number), Colour.YELLOW))
        zones.apply(Greened(1 + number))
    assert 0 < zones.recent_from < zones.green_runs
    assert [each.id.number for each in zones.recent_runs(zones.green_runs - 1)] == [8]


@pytest.mark.parametrize("seed", range(50))
def test_a_mark_and_what_follows_it_are_the_whole(seed: int) -> None:
    rng = Random(seed)
    frames = list(founded())
    zones = replay(frames)
    numbers = {1: 0, 2: 0}
    for _ in range(60):
        origin = rng.choice((1, 2))
        numbers[origin] += 1
        key = rng.choice(("", "a", "b", "c"))
        colour = rng.choice((Colour.RED, Colour.YELLOW))
        step: Frame = Placed(run(numbers[origin], (key,), origin), colour)
        if rng.random() < 0.3 and zones.yellow:
            step, numbers[origin] = (
                Greened(zones.green_runs + rng.randint(1, len(zones.yellow))),
                numbers[origin] - 1,
            )
        frames.append(step)
        zones.apply(step)
        if rng.random() < 0.1:
            frames.append(zones.mark())
            zones.frames += 1
    encoded = [encode(frame) for frame in frames]
    last = max((at for at, frame in enumerate(frames) if type(frame).__name__ == "Mark"), default=0)
    assert encode(replay(map(decode, encoded)).mark()) == encode(zones.mark())
    assert encode(replay(map(decode, encoded[last:])).mark()) == encode(zones.mark())


def test_an_ordered_run_of_the_logs_own_takes_no_position() -> None:
    record = primary_run(FIRST, {1: 11})
    assert Ordered(record, 0, 5, (), 0).positions == 0
