"""The repairs of COReL for this stack: a scenario for each, which fails when the repair is taken out.

Each scenario is a fork, or a loss, that a careless reading of the paper leads to. It is played with the true
replica, where it must end well, and with a broken one, where a property must not hold.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from corel_mutants import BROKEN, MUTANTS, broken
from corel_stage import Stage

from sweeps import first_row_of
from totempole.corel.layer import Replica

Scenario = Callable[[type[Replica]], None]


def a_view_without_new_members(base: type[Replica]) -> None:
    """F1: those who stay have not all ended the handler before. States must be exchanged."""
    stage = Stage(5, base=base)
    for number in range(4):
        stage.append(4, f"with four and five {number}")
    stage.send(4)
    stage.deliver(4, 5)
    stage.world.change((1, 2, 3), (4, 5))
    stage.append(1, "one")
    stage.append(1, "two")
    stage.run(1, 2, 3)
    stage.world.change((1,), (2,), (3, 4, 5))
    stage.run(3, 4, 5)
    stage.append(4, "three")
    stage.run(3, 4, 5)
    stage.calm()


def the_same_two_views(base: type[Replica]) -> None:
    """F2: two members of the same two views have not come along with each other: an exchange of tables was
    abandoned in between."""
    stage = Stage(3, base=base)
    stage.append(3, "for one and three")
    stage.send(3)
    world = stage.world
    world.receive(1, len(world.processors[1].ring.log))
    world.form((1, 2, 3), boundaries=False)
    world.processors[2].move = None  # it never gets there, and the ring is made anew
    world.install(1)
    world.install(3)
    world.change((1, 2, 3))
    stage.append(2, "afterwards")
    stage.run()
    stage.calm()


def a_gap(base: type[Replica]) -> None:
    """F3: what comes in a transitional view may have something before it that is green elsewhere."""
    stage = Stage(5, base=base)
    world = stage.world
    ring = world.processors[1].ring
    stage.append(1, "green")
    stage.send(1)
    for me in (1, 2, 5):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    assert stage.order == ["green"]
    for text in ("behind the gap", "again behind it"):
        stage.append(3, text)
        stage.send(3)
        world.receive(4, len(ring.log))
    world.change((1,), (2, 5), (3, 4))
    stage.run()
    world.change((1,), (2, 3, 4), (5,))
    stage.run()
    stage.calm()


def a_run_before_the_handler_ends(base: type[Replica]) -> None:
    """F4: all pass over it, and its sender sends it again."""
    stage = Stage(3, base=base)
    world = stage.world
    world.change((1, 2), (3,))
    stage.run()
    stage.append(1, "queued when the ring changes")
    stage.append(1, "and another")
    world.change((1, 2, 3))
    for _ in range(40):
        for me in (1, 2, 3):
            world.originate(me)
            world.deliver(me)
            world.sync(me)
    world.change((1,), (2, 3))
    stage.run()
    stage.calm()


def an_acknowledgement_before_the_disk(base: type[Replica]) -> None:
    """F5: two have acknowledged it, and forget it."""
    stage = Stage(3, base=base)
    stage.append(1, "green")
    stage.send(1)
    for me in (2, 3):
        stage.deliver(me)
        stage.send(me)
    stage.sync(1)
    stage.deliver(1)
    for me in (2, 3):
        stage.world.processors[me].disk.waiting.clear()
        stage.world.crash(me)
    stage.calm()


def reds_of_two_components(base: type[Replica]) -> None:
    """F6: they meet, and have one order, that of their stamps."""
    stage = Stage(5, base=base)
    world = stage.world
    world.change((1,), (2,), (3, 4, 5))
    stage.run()
    for number in range(3):
        for me in (2, 1):
            stage.append(me, f"red {number} of {me}")
            stage.run(1, 2)
    world.change((1, 2), (3, 4, 5))
    stage.run()
    world.change((1, 2, 3), (4,), (5,))
    stage.run()
    stage.calm()


def some_attempts_are_missing(base: type[Replica]) -> None:
    """F7: one has its own attempt, and the others have not attempted."""
    stage = Stage(3, base=base)
    world = stage.world
    world.change((1,), (2, 3))
    stage.append(1, "red")
    stage.run()
    world.change((1, 2, 3))
    stage.until(lambda: stage.phase(3) == "attempting", who=(1, 2, 3))
    stage.sync(3)
    stage.send(3)
    stage.deliver(3)
    world.form((3,), (1, 2), boundaries=False)
    for me in (1, 2):  # what they were about to write is lost
        world.processors[me].disk.waiting.clear()
        world.crash(me, may_lose=False)
        world.start(me)
    world.change((1, 2), (3,))
    stage.append(2, "new")
    stage.run()
    stage.calm()


def some_commits_are_missing(base: type[Replica]) -> None:
    """F7: one has its own commit, and the others have not committed."""
    stage = Stage(3, base=base)
    world = stage.world
    world.change((1,), (2, 3))
    stage.append(1, "red")
    stage.run()
    world.change((1, 2, 3))
    stage.until(lambda: stage.phase(1) == "committing", who=(2, 3, 1))
    stage.sync(1)
    stage.send(1)
    stage.deliver(1)
    world.crash(1)
    stage.append(2, "new")
    world.change((2, 3))
    stage.run()
    stage.calm()


def a_slow_logger(base: type[Replica]) -> None:
    """F9: a run is green by a quorum, and the slowest disk of the next view lacks it."""
    stage = Stage(3, base=base)
    stage.append(1, "green")
    stage.send(1)
    for me in (1, 2):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    world = stage.world
    world.processors[3].disk.waiting.clear()
    world.crash(3)
    world.crash(1)
    world.start(3)
    world.change((2, 3))
    stage.append(3, "new")
    stage.run()
    stage.calm()


def an_old_primary_with_more(base: type[Replica]) -> None:
    """Representatives are those of the last primary, however much an older one has left behind."""
    stage = Stage(5, base=base)
    world = stage.world
    for number in range(6):
        stage.append(5, f"yellow {number}")
    stage.send(5)
    stage.deliver(5)
    stage.sync(5)
    world.change((1, 2, 3), (4,), (5,))
    stage.append(1, "green in the next")
    stage.run(1, 2, 3, 4)
    world.change((1,), (2,), (3, 4, 5))
    stage.run()
    stage.calm()


def a_set_that_grows(base: type[Replica]) -> None:
    """F10: until a change of the set is green, every set from the green line on must have its quorum."""
    stage = Stage(3, spares=2, base=base)
    world = stage.world
    for processor in (4, 5):
        stage.change_set(1, processor, 1)
    stage.send(1)
    for me in (1, 2, 4, 5):
        stage.deliver(me)
        stage.sync(me)
    world.change((1, 2), (3, 4, 5))
    stage.append(1, "old set")
    stage.append(4, "new set")
    stage.run()
    stage.calm()


def all_of_a_primary_are_few(base: type[Replica]) -> None:
    """`acknowledgements = all`: the set has grown since the primary formed."""
    stage = Stage(2, spares=3, base=base, acknowledgements="all")
    for processor in (3, 4, 5):
        stage.change_set(1, processor, 1)
        stage.run()
    stage.append(1, "on few disks")
    stage.send(1)
    for me in (1, 2):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    stage.world.change((1, 2), (3, 4, 5))
    stage.append(3, "by the others")
    stage.run()
    stage.calm()


def an_attempt_that_may_have_succeeded(base: type[Replica]) -> None:
    """F11: dynamic voting. Three of five attempt; two of them may have formed, and the third cannot know."""
    stage = Stage(5, base=base, rule="dynamic")
    world = stage.world
    world.change((1, 2, 3), (4, 5))
    stage.until(lambda: stage.phase(3) == "attempting", who=(1, 2, 3))
    stage.sync(3)
    stage.send(3)
    world.receive(1, len(world.processors[3].ring.log))
    world.receive(2, len(world.processors[3].ring.log))
    for me in (1, 2):  # they have its attempt; it gets nothing more
        stage.deliver(me)
    stage.until(lambda: stage.phase(1) == stage.phase(2) == "committing", who=(1, 2))
    world.change((1, 2), (3, 4, 5))
    stage.append(1, "by two")
    stage.append(4, "by three")
    stage.run()
    assert stage.order
    stage.calm()


def _old_runs(base: type[Replica]) -> Stage:
    """A primary of 1, 2 and 3. Red are "first" at 1 and 2, and "second", which depends on it, at 2. Nobody
    has sent these again yet."""
    stage = Stage(5, base=base)
    world = stage.world
    world.change((1, 2), (3,), (4,), (5,))
    stage.run()
    stage.append(1, "first")
    stage.run()
    world.change((1,), (2,), (3,), (4,), (5,))
    stage.run()
    stage.append(2, "second")
    stage.run()
    world.change((1, 2, 3), (4,), (5,))
    stage.until(lambda: all(stage.phase(me) == "primary" for me in (1, 2, 3)), who=(2, 3, 1))
    return stage


def figure_3_7(base: type[Replica]) -> None:
    """F12: a run is not sent again before those that it may depend on."""
    stage = _old_runs(base)
    stage.send(2)
    stage.send(1)
    stage.deliver(3)
    stage.run()
    stage.calm()


def a_new_run_depends_on_old_ones(base: type[Replica]) -> None:
    """F12: what a replica sends anew comes after the reds that it has, and that others lack."""
    stage = _old_runs(base)
    stage.append(2, "new")
    stage.send(2)
    stage.send(1)
    stage.deliver(3)
    stage.run()
    stage.calm()


REPAIRS: tuple[tuple[Scenario, str], ...] = (
    (a_view_without_new_members, "no states without new members"),
    (the_same_two_views, "no states where members are the same"),
    (a_gap, "yellow in a transitional view"),
    (a_run_before_the_handler_ends, "runs are taken before the handler ends"),
    (an_acknowledgement_before_the_disk, "acknowledges what is queued"),
    (reds_of_two_components, "red in the order of arrival"),
    (some_attempts_are_missing, "commits at the first attempt"),
    (some_commits_are_missing, "establishes at the first commit"),
    (a_slow_logger, "the shortest yellow zone wins"),
    (an_old_primary_with_more, "the longest zone wins, whoever has it"),
    (a_set_that_grows, "the green set alone"),
    (all_of_a_primary_are_few, "all of the primary, whatever the set"),
    (an_attempt_that_may_have_succeeded, "attempts do not count in dynamic voting"),
    (figure_3_7, "figure 3.7 is ignored"),
    (a_new_run_depends_on_old_ones, "new runs do not wait for old ones"),
)

BY_NAME = {each.name: each for each in MUTANTS}


@pytest.mark.parametrize("scenario", [each for each, _ in REPAIRS], ids=lambda each: each.__name__)
def test_it_holds(scenario: Scenario) -> None:
    scenario(Replica)


@pytest.mark.parametrize(
    ("scenario", "without"), first_row_of(REPAIRS), ids=lambda each: getattr(each, "__name__", None)
)
def test_it_fails_without_the_repair(scenario: Scenario, without: str) -> None:
    replica = broken(BY_NAME[without])
    with pytest.raises(BROKEN):
        scenario(replica)
