"""What a replica tells of its green prefix, to a node that has somebody who wants to know."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from corel_stage import Stage

from totempole.corel.commands import CloseLog, TellGreen
from totempole.corel.events import GreenEnded, GreenLine, GreenRuns, Placed
from totempole.corel.zones import Ordered


def told_by(stage: Stage, me: int, *kinds: type) -> list[Any]:
    return [event for who, event in stage.events if who == me and isinstance(event, kinds)]


def runs_of(stage: Stage, me: int) -> list[Ordered]:
    return [ordered for event in told_by(stage, me, GreenRuns) for ordered in event.runs]


def test_nobody_wants_to_know() -> None:
    stage = Stage()
    stage.append(1, "a")
    stage.run()
    assert stage.order == ["a"]
    assert not stage.told(GreenRuns)
    assert not stage.told(GreenLine)


def test_runs_follow_the_line_and_come_before_their_places() -> None:
    stage = Stage()
    stage.append(1, "before")
    stage.run()
    stage.world.feed(1, TellGreen(True))
    zones = stage.world.replica(1).zones
    assert told_by(stage, 1, GreenLine) == [GreenLine(zones.log, 2, 1)]
    for text in "abcdef":
        stage.append(1, text)
        stage.append(2, text)
    stage.run()
    runs = runs_of(stage, 1)
    assert [run.place for run in runs] == list(range(2, 14))
    assert [run.position for run in runs] == list(range(1, 13))
    seen: set[Any] = set()
    for event in told_by(stage, 1, GreenRuns, Placed):
        if isinstance(event, GreenRuns):
            seen |= {ordered.run.id for ordered in event.runs}
        else:
            assert event.run in seen or event.position == 0
    stage.world.feed(1, TellGreen(False))
    stage.append(1, "g")
    stage.run()
    assert len(runs_of(stage, 1)) == 12


def test_a_log_that_closes_and_opens_again_has_a_new_line() -> None:
    stage = Stage()
    stage.world.feed(1, TellGreen(True))
    stage.append(1, "a")
    stage.run()
    stage.world.feed(1, CloseLog("the disk is full"))
    assert told_by(stage, 1, GreenLine, GreenRuns, GreenEnded)[-1] == GreenEnded("the disk is full")
    stage.append(2, "b")
    stage.run(2, 3)
    stage.world.open(1)
    *_, line = told_by(stage, 1, GreenLine)
    assert line.place <= 2, "the green line is written a little later than it is told"
    before = len(runs_of(stage, 1))
    stage.calm()
    places = [run.place for run in runs_of(stage, 1)[before:]]
    assert places == list(range(line.place, line.place + len(places)))


def test_a_replica_that_begins_anew_has_a_new_line() -> None:
    stage = Stage(tiny={"recent_bytes": 300, "segment_bytes": 400})
    stage.world.crash(3)
    stage.world.change((1, 2))
    stage.run()
    for number in range(40):
        stage.append(1, f"{number}")
        stage.run()
    for me in (1, 2):
        disk = stage.world.processors[me].disk
        disk.trim(len(disk.segments) - 1)
    stage.world.start(3)
    stage.world.feed(3, TellGreen(True))
    stage.calm()
    first, *lines = told_by(stage, 3, GreenLine)
    assert lines, "it was too far behind"
    assert lines[-1].place > first.place + 1
    last: list[int] = []
    for event in told_by(stage, 3, GreenLine, GreenRuns):
        if isinstance(event, GreenLine):
            last = [event.place - 1]
        else:
            last += [ordered.place for ordered in event.runs]
    assert all(after == before + 1 for before, after in pairwise(last))
    assert last[-1] == stage.world.replica(3).zones.green_runs - 1
