"""Read barriers: nothing that was green anywhere is missed, nobody waits for a disk, and nobody hangs."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from corel_mutants import BROKEN, broken
from corel_read_mutants import READ_MUTANTS, gives_away
from corel_stage import Stage
from corel_walk import Walk, weather_with_reads

from sweeps import first_row_of
from totempole.corel import barriers
from totempole.corel.commands import CloseLog, Forget, ReadBarrier
from totempole.corel.events import BarrierPassed
from totempole.corel.layer import Replica
from totempole.corel.member import Member
from totempole.corel.messages import AskBarrier
from totempole.errors import SessionError
from totempole.sim.fuzz.mutation import Mutant

_requests = count(1)


def read(stage: Stage, me: int, process: int = 1) -> int:
    request = next(_requests)
    stage.properties.reads_at(me, process, request)
    stage.world.feed(me, ReadBarrier(process, request))
    return request


def passed(stage: Stage) -> list[int]:
    return [event.request for event in stage.told(BarrierPassed)]


def asked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who sends questions from now on."""
    senders: list[int] = []
    true = Member.send

    def send(member: Member, message: Any, *group: str) -> None:
        if isinstance(message, AskBarrier):
            senders.append(member.me)
        true(member, message, *group)

    monkeypatch.setattr(Member, "send", send)
    return senders


# What a barrier costs


def test_it_waits_for_no_disk() -> None:
    stage = Stage(3)
    stage.append(1, "green")
    stage.run()
    stage.append(2, "on no disk yet")
    stage.world.run(disks=(), timers=False)
    assert len(stage.yellow(1)) == 1
    request = read(stage, 1)
    stage.world.run(disks=(), timers=False)
    assert passed(stage) == [request]
    assert stage.order == ["green"]
    stage.calm()


def test_many_share_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(3)
    senders = asked(stage, monkeypatch)
    requests = [read(stage, 2, process) for process in range(100)]
    stage.run()
    assert passed(stage) == requests
    assert senders == [2, 2], "the first left at once, the others wait for the second"


def test_a_replica_alone_asks_itself() -> None:
    stage = Stage(1)
    request = read(stage, 1)
    stage.run()
    assert passed(stage) == [request]


def test_so_many_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barriers, "ASKERS_MAX", 2)
    stage = Stage(3)
    requests = [read(stage, 1), read(stage, 1)]
    with pytest.raises(SessionError, match="2 reads wait"):
        stage.world.feed(1, ReadBarrier(1, next(_requests)))
    stage.run()
    assert passed(stage) == requests
    read(stage, 1)
    stage.calm()


# Who is not in a primary component


def paused_with_the_token_in_hand(base: type[Replica]) -> None:
    """The others have gone on without it. Its question has a place in its own ring, and nobody answers."""
    stage = Stage(3, base=base)
    world = stage.world
    world.form((2, 3))
    for me in (2, 3):
        world.install(me)
    stage.run(2, 3)
    stage.append(2, "without the first")
    stage.run(2, 3)
    assert stage.order == ["without the first"]
    request = read(stage, 1)
    stage.send(1)
    stage.deliver(1)
    stage.run(1)
    if base is Replica:
        assert stage.phase(1) == "primary", "so it believes"
    assert passed(stage) == []
    stage.calm()
    assert passed(stage) == [request]


def test_a_minority_waits() -> None:
    stage = Stage(3)
    stage.world.change((1,), (2, 3))
    request = read(stage, 1)
    stage.append(3, "meanwhile")
    stage.run()
    assert passed(stage) == []
    stage.world.change((1, 2, 3))
    stage.run()
    assert passed(stage) == [request]


def test_a_question_that_a_change_of_view_ends_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(5)
    senders = asked(stage, monkeypatch)
    first = read(stage, 1)
    stage.send(1)
    stage.deliver(1, 2)  # two of five
    second = read(stage, 1)
    stage.world.change((1, 2, 3), (4, 5))
    stage.append(3, "in the new primary")
    stage.run()
    assert passed(stage) == [first, second]
    assert senders == [1, 1], "once in each primary, for both"
    stage.calm()


def test_who_is_far_behind_waits_until_it_has_caught_up() -> None:
    stage = Stage(4, tiny={"recent_bytes": 400})
    world = stage.world
    world.change((1, 2, 3), (4,))
    for number in range(12):
        stage.append(1, f"run {number}")
    stage.run()
    world.change((1, 2, 3, 4))
    stage.until(lambda: stage.phase(4) == "looking on")
    request = read(stage, 4)
    others = read(stage, 1)
    stage.until(lambda: others in passed(stage), who=(1, 2, 3))
    assert passed(stage) == [others]
    stage.run()
    assert passed(stage) == [others, request]
    stage.calm()


def test_a_closed_log_keeps_who_waits() -> None:
    stage = Stage(3)
    request = read(stage, 1)
    stage.world.feed(1, CloseLog("for a while"))
    later = read(stage, 1)
    stage.run()
    assert passed(stage) == []
    stage.world.processors[1].disk.crash(stage.world.rng)
    stage.calm()
    assert passed(stage) == [request, later]


def test_who_is_gone_is_told_nothing() -> None:
    stage = Stage(3)
    under_way, waiting = read(stage, 1, process=1), read(stage, 1, process=1)
    kept = read(stage, 1, process=2)
    stage.world.feed(1, Forget(1))
    stage.properties.forgets(1, 1)
    stage.run()
    assert passed(stage) == [kept]
    assert under_way != waiting
    stage.calm()


# Who counts


def two_of_a_view_of_three(base: type[Replica]) -> None:
    """The replicas are five: the third has formed a primary component with the other two."""
    stage = Stage(5, base=base)
    world = stage.world
    world.change((1, 2, 3), (4, 5))
    stage.run()
    world.form((3, 4, 5))
    for me in (3, 4, 5):
        world.install(me)
    stage.run(3, 4, 5)
    stage.append(4, "by three others")
    stage.run(3, 4, 5)
    request = read(stage, 1)
    stage.run(1, 2)
    assert passed(stage) == []
    stage.calm()
    assert passed(stage) == [request]


def test_a_replica_without_a_vote_asks_those_with_one() -> None:
    stage = Stage(3, spares=1)
    request = read(stage, 4)
    stage.run()
    assert passed(stage) == [request]


def a_vote_that_comes_while_a_question_is_under_way(base: type[Replica]) -> None:
    """With the change nothing is decided without it: it answers what it was delivered before."""
    stage = Stage(2, spares=1, base=base)
    request = read(stage, 2)
    stage.change_set(1, 3, 5)
    stage.send(2)
    stage.send(1)
    stage.deliver(1, 2, 3)
    stage.world.run(disks=(), timers=False)
    assert passed(stage) == [request]
    stage.calm()


def replicas_that_wait_for_different_disks(base: type[Replica]) -> None:
    """The setting is being changed, one node after the other. A run is green at the one that waits for a
    quorum, and yellow at those that wait for all."""
    stage = Stage(3, base=base, acknowledgements="all")
    world = stage.world
    object.__setattr__(world.processors[3].config, "acknowledgements", "quorum")
    stage.append(3, "green at the third")
    world.run(disks=(2, 3), timers=False)
    assert stage.order == ["green at the third"]
    assert len(stage.yellow(1)) == 1
    request = read(stage, 1)
    world.run(disks=(2, 3), timers=False)
    assert passed(stage) == []
    stage.run(timers=True)
    assert passed(stage) == [request]
    stage.calm()


def a_run_that_is_green_by_its_origins_own_disk(base: type[Replica]) -> None:
    """The origin has the other's acknowledgement, and counts its own disk. Nobody has heard of that yet."""
    stage = Stage(3, base=base)
    stage.append(1, "green at the first")
    stage.send(1)
    stage.deliver(1, 2, 3)
    stage.sync(2)
    stage.send(2)
    stage.deliver(1, 2, 3)
    stage.sync(1)
    assert stage.order == ["green at the first"]
    assert len(stage.yellow(3)) == 1
    request = read(stage, 3)
    stage.world.run(disks=(1, 2), timers=False)
    assert passed(stage) == []
    stage.sync(3)
    assert passed(stage) == [request]
    stage.calm()


def a_change_that_is_green_by_its_origins_own_disk(base: type[Replica]) -> None:
    """There the next run needs two of four. Where the change is yellow it needs three of five, too."""
    stage = Stage(5, base=base)
    stage.change_set(1, 5, 0)
    stage.send(1)
    stage.deliver(1, 2, 3, 4, 5)
    stage.sync(2, 3)
    stage.send(2)
    stage.send(3)
    stage.append(1, "behind the change")
    stage.send(1)
    stage.deliver(1, 2, 3, 4, 5)
    stage.sync(2)
    stage.send(2)
    stage.deliver(1, 4)
    while stage.world.processors[1].disk.waiting:
        stage.sync(1)
    assert stage.order == ["behind the change"]
    request = read(stage, 4)
    stage.world.run(disks=(), timers=False)
    assert len(stage.yellow(4)) == 2
    stage.world.run(disks=(4,), timers=False)
    assert len(stage.yellow(4)) == 1
    assert passed(stage) == []
    stage.run(timers=True)
    assert passed(stage) == [request]
    stage.calm()


def a_run_that_is_green_by_a_hint(base: type[Replica]) -> None:
    """The origin has counted its own disk, and another's of which nobody else has heard."""
    stage = Stage(3, base=base)
    stage.append(1, "green at the first")
    stage.send(1)
    stage.deliver(1, 2, 3)
    stage.sync(1, 2)
    stage.world.hint(1, stage.world.hints[-1])
    stage.world.lose_hints()
    assert stage.order == ["green at the first"]
    assert len(stage.yellow(3)) == 1
    request = read(stage, 3)
    stage.world.run(disks=(), timers=False)
    assert passed(stage) == []
    stage.sync(3)
    stage.run(timers=True)
    assert passed(stage) == [request]
    stage.calm()


def a_run_that_is_green_at_one_who_does_not_answer(base: type[Replica]) -> None:
    """It is paused since. The other whose disk has the run answers."""
    stage = Stage(3, base=base)
    stage.append(1, "green at the first")
    stage.send(1)
    stage.deliver(1, 2, 3)
    stage.sync(1, 2)
    stage.world.hint(1, stage.world.hints[-1])
    stage.world.lose_hints()
    assert stage.order == ["green at the first"]
    request = read(stage, 3)
    stage.world.processors[1].is_up = False
    stage.world.run(disks=(), timers=False)
    stage.world.processors[1].is_up = True
    assert passed(stage) == []
    stage.run(timers=True)
    assert passed(stage) == [request]
    stage.calm()


TRAPS = (
    (paused_with_the_token_in_hand, "a barrier passes when the own question is delivered"),
    (two_of_a_view_of_three, "a majority of the view"),
    (a_vote_that_comes_while_a_question_is_under_way, "who gets a vote later owes nothing"),
    (replicas_that_wait_for_different_disks, "passes before all of it is green"),
    (
        replicas_that_wait_for_different_disks,
        "yellow runs do not count where another waits for fewer disks",
    ),
    (
        a_run_that_is_green_by_its_origins_own_disk,
        "yellow runs do not count where another has counted its own disk",
    ),
    (a_run_that_is_green_by_a_hint, "answers say nothing of disks"),
    (a_run_that_is_green_by_a_hint, "answers say what was acknowledged in the order"),
    (a_run_that_is_green_at_one_who_does_not_answer, "who has not answered has nothing on its disk"),
    (
        a_change_that_is_green_by_its_origins_own_disk,
        "yellow runs do not count where another has a change of the set as green",
    ),
)
BY_NAME = {each.name: each for each in READ_MUTANTS}


@pytest.mark.parametrize("scenario", list(dict(TRAPS)), ids=lambda each: each.__name__)
def test_it_holds(scenario: Any) -> None:
    scenario(Replica)


@pytest.mark.parametrize(
    ("scenario", "without"), first_row_of(TRAPS), ids=lambda each: getattr(each, "__name__", None)
)
def test_it_fails_when_broken(scenario: Any, without: str) -> None:
    replica = broken(BY_NAME[without])
    with pytest.raises(BROKEN):
        scenario(replica)


# Walks


@pytest.mark.search
@pytest.mark.parametrize("seed", range(20))
def test_a_walk_with_reads(seed: int) -> None:
    Walk(seed, weather=weather_with_reads(seed)).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 2_000))
def test_many_walks_with_reads(seed: int) -> None:
    Walk(seed, weather=weather_with_reads(seed)).run()


@pytest.mark.search
@pytest.mark.parametrize("mutant", [each for each in READ_MUTANTS if each.seed], ids=lambda each: each.name)
def test_a_walk_gives_a_broken_barrier_away(mutant: Mutant) -> None:
    assert gives_away(mutant, mutant.seed)
