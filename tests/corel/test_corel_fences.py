"""Fences: which of several runs takes positions, decided alike by every replica and outliving marks."""

from __future__ import annotations

from random import Random

import pytest
from corel_fence_mutants import FENCE_MUTANTS, gives_away
from corel_walk import Walk, weather_with_fences

from totempole.corel import fences
from totempole.corel.fences import FENCES_MAX, NO_MARK, FenceMark, Fences
from totempole.corel.frames import (
    Agreed,
    Attempted,
    Begun,
    Colour,
    Committed,
    Frame,
    Greened,
    Identified,
    Placed,
    decode,
    encode,
)
from totempole.corel.quorum import NO_FORMATION, Formation, ReplicaSet, Voter
from totempole.corel.run import Run, RunId, RunKind, Stamp, is_sound, pack_records, primary_run
from totempole.corel.zones import Ordered, Zones, replay, without_pending
from totempole.sim.fuzz.mutation import Mutant
from totempole.types import Fence

SET = ReplicaSet({1: Voter(11)})
FIRST = Formation(1, (1,))


def run(
    number: int,
    fence: Fence | None = None,
    keys: tuple[str, ...] = (),
    count: int = 1,
    origin: int = 1,
    time_us: int = 0,
) -> Run:
    body = pack_records("log", [b"x"] * count, keys, fence)
    return Run(RunId(origin, 1, number), Stamp(4, origin, number, 0), time_us, RunKind.RECORDS, count, body)


def founded() -> Zones:
    return replay(
        [
            Identified(11),
            Agreed(0, (), 0, NO_FORMATION, 7),
            Attempted(FIRST),
            Committed(FIRST, primary_run(FIRST, {1: 11}, SET), ()),
            Greened(1),
        ]
    )


def green(zones: Zones, *runs: Run) -> list[Ordered]:
    for each in runs:
        zones.apply(Placed(each, Colour.YELLOW))
    return zones.apply(Greened(zones.green_runs + len(runs)))


def step(number: int, name: str = "q") -> Fence:
    return Fence(name, number, number - 1, number - 1)


def test_of_rivals_the_first_is_let_in_and_the_others_are_passed_over() -> None:
    zones = founded()
    first, second, third = green(
        zones, run(1, step(1), count=3), run(1, step(1), count=2, origin=2), run(2, count=1)
    )
    assert (first.position, first.positions, first.fenced) == (0, 3, None)
    assert (second.position, second.positions, second.fenced) == (3, 0, FenceMark(1, 0))
    assert (third.position, third.place) == (3, 3), "it costs a place in the order, and no position"
    assert zones.fences.mark("q") == FenceMark(1, 0)


def test_low_and_high_are_let_in_and_nothing_beside_them() -> None:
    for mark, is_let_in in ((4, False), (5, True), (7, True), (8, False)):
        zones = founded()
        green(zones, run(1, Fence("q", mark, 0, mark - 1)))
        (ordered,) = green(zones, run(2, Fence("q", 100, 5, 7)))
        assert (ordered.fenced is None) == is_let_in, mark
        assert zones.fences.mark("q").number == (100 if is_let_in else mark)


def test_a_name_that_nobody_has_moved_has_mark_0() -> None:
    zones = founded()
    early, let_in = green(zones, run(1, step(2)), run(2, Fence("other", 9, 0, 5)))
    assert early.fenced == NO_MARK == FenceMark(0, -1)
    assert let_in.fenced is None
    assert zones.fences.mark("q") == NO_MARK


def test_a_mark_names_the_first_record_of_the_run_that_has_set_it() -> None:
    zones = founded()
    green(zones, run(1, keys=("a", "b"), count=2), run(2, step(1), keys=("b", "c"), count=2))
    assert zones.fences.mark("q") == FenceMark(1, 1), "its first record repeats a key: there it is"
    green(zones, run(3, step(2), count=2))
    assert zones.fences.mark("q") == FenceMark(2, 3)


def test_a_run_that_is_passed_over_leaves_no_keys_and_no_time() -> None:
    zones = founded()
    green(zones, run(1, step(1), time_us=5))
    (passed,) = green(zones, run(2, step(1), keys=("k",), time_us=9))
    assert (passed.time_us, zones.time_us) == (5, 5)
    (ordered,) = green(zones, run(3, keys=("k",)))
    assert (ordered.position, ordered.repeats) == (1, ())


def test_records_that_were_passed_over_have_no_positions() -> None:
    zones = founded()
    _, passed = green(zones, run(1, step(1)), run(2, step(1)))
    with pytest.raises(AssertionError, match="no positions"):
        passed.position_of(0)


def test_the_mark_that_was_moved_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "FENCES_MAX", 2)
    zones = founded()
    moves = [step(1, "a"), step(1, "b"), step(2, "a"), step(1, "c")]
    green(zones, *(run(number, fence) for number, fence in enumerate(moves, 1)))
    assert zones.fences.rows == (("a", 2, 2), ("c", 1, 3)), "b was moved before a"
    (again,) = green(zones, run(5, step(1, "b")))
    assert again.fenced is None, "a mark that is forgotten counts as 0"


def test_a_run_that_is_passed_over_moves_nothing_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "FENCES_MAX", 2)
    zones = founded()
    moves = [step(1, "a"), step(1, "b"), step(1, "a"), step(1, "c")]
    green(zones, *(run(number, fence) for number, fence in enumerate(moves, 1)))
    assert [name for name, _, _ in zones.fences.rows] == ["b", "c"]


def test_as_many_names_are_remembered_as_is_promised() -> None:
    table = Fences()
    for number in range(FENCES_MAX + 1):
        table.move(Fence(f"n{number}", 1, 0, 0), number)
    assert len(table) == FENCES_MAX == 4_096
    assert table.mark("n0") == NO_MARK
    assert table.mark("n1") == FenceMark(1, 1)


def test_a_replica_that_begins_at_another_ones_mark_has_its_fences() -> None:
    donor = founded()
    green(donor, run(1, step(1, "b")), run(2, step(1, "a")))
    zones = replay([Identified(13), Placed(run(1, step(1, "c"), origin=3), Colour.RED)])
    mark = decode(encode(Begun(without_pending(donor.mark()))))
    zones.apply(mark)
    assert zones.fences.rows == donor.fences.rows == (("b", 1, 0), ("a", 1, 1))
    (passed,) = zones.apply(Placed(run(3, step(1, "b")), Colour.GREEN))
    assert passed.fenced == FenceMark(1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_mark_and_what_follows_it_are_the_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "FENCES_MAX", 3)
    rng = Random(seed)
    zones = founded()
    frames: list[Frame] = [zones.mark()]
    zones.frames += 1
    starts, passed = [0], 0
    for number in range(1, 80):
        low = rng.randint(0, 3)
        fence = Fence(rng.choice("abcde"), rng.randint(low + 2, 6), low, low + 1)
        frames += [
            Placed(run(number, fence if rng.random() < 0.8 else None), Colour.YELLOW),
            Greened(number + 1),
        ]
        zones.apply(frames[-2])
        passed += sum(each.fenced is not None for each in zones.apply(frames[-1]))
        if rng.random() < 0.1:
            starts.append(len(frames))
            frames.append(zones.mark())
            zones.frames += 1
    assert passed
    encoded = [encode(frame) for frame in frames]
    for start in starts:
        assert encode(replay(map(decode, encoded[start:])).mark()) == encode(zones.mark())


@pytest.mark.parametrize(
    ("fence", "problem"),
    [
        (Fence("", 1, 0, 0), "1 to 255 bytes"),
        (Fence("x" * 256, 1, 0, 0), "1 to 255 bytes"),
        (Fence("\ud800", 1, 0, 0), "UTF-8"),
        (Fence(b"q", 1, 0, 0), "give a name"),  # type: ignore[arg-type]
        (Fence("q", 1.0, 0, 0), "whole numbers"),  # type: ignore[arg-type]
        (Fence("q", 1, 0, 1), "high < number"),
        (Fence("q", 5, 3, 2), "low <= high"),
        (Fence("q", 5, -1, 2), "0 <= low"),
        (Fence("q", 2**63, 0, 0), "number < 2**63"),
    ],
)
def test_fences_that_cannot_be(fence: Fence, problem: str) -> None:
    assert problem in fence.problem


def test_a_run_with_a_fence_that_cannot_be_is_not_sound() -> None:
    assert is_sound(run(1, Fence("q", 2**63 - 1, 0, 2**63 - 2)))
    assert not is_sound(run(1, Fence("q", 1, 0, 1)))


def test_the_latest_marks_come_first() -> None:
    table = Fences()
    for number, name in enumerate(("a", "b", "c", "a"), 1):
        table.move(Fence(name, number, 0, 0), 10 * number)
    assert table.latest(2) == [("a", 4, 40), ("c", 3, 30)]
    assert len(table.latest(10)) == 3


# Walks


@pytest.mark.search
@pytest.mark.parametrize("seed", range(20))
def test_a_walk_with_fences(seed: int) -> None:
    Walk(seed, weather=weather_with_fences(seed)).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 2_000))
def test_many_walks_with_fences(seed: int) -> None:
    Walk(seed, weather=weather_with_fences(seed)).run()


def test_walks_race() -> None:
    walk = Walk(3, weather=weather_with_fences(3))
    walk.run()
    kept_out = [green.fenced is not None for green in walk.properties.order]
    assert 10 < sum(kept_out) < len(kept_out) - 10


@pytest.mark.search
@pytest.mark.parametrize("mutant", FENCE_MUTANTS, ids=lambda each: each.name)
def test_a_walk_gives_a_broken_fence_away(mutant: Mutant) -> None:
    assert gives_away(mutant, mutant.seed)
