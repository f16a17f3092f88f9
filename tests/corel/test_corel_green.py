"""When a run becomes green, and who says what its disk has: a replica counts its own disk at once, and lets
the others wait for what they can do without."""

from __future__ import annotations

import pytest
from corel_stage import Stage

from totempole.core.effects import TimerName
from totempole.core.inputs import Expired
from totempole.corel.layer import LAYER, Timer


def a_run_that_two_disks_have(**settings: str) -> Stage:
    """Appended at 1, delivered to all; the disk of 2 has it, and 2 has said so. The disk of 1 has not yet."""
    stage = Stage(3, **settings)
    stage.append(1, "a run")
    stage.send(1)
    stage.deliver(1, 2, 3)
    stage.sync(2)
    stage.send(2)
    stage.deliver(1)
    return stage


def test_a_replica_counts_its_own_disk_before_its_acknowledgement_is_sent() -> None:
    stage = a_run_that_two_disks_have()
    assert stage.order == []
    assert stage.positions() == []
    stage.sync(1)
    assert stage.order == ["a run"]
    assert stage.positions() == [0]
    assert not stage.yellow(1)


def test_the_others_wait_for_acknowledgements() -> None:
    stage = a_run_that_two_disks_have()
    stage.sync(1)
    assert len(stage.yellow(3)) == 1
    stage.deliver(3)
    assert len(stage.yellow(3)) == 1, "its own disk has not written"
    stage.sync(3)
    assert not stage.yellow(3)
    stage.calm()


def test_a_crash_before_the_acknowledgement_is_sent_loses_nothing() -> None:
    stage = a_run_that_two_disks_have()
    stage.sync(1)
    stage.world.crash(1)
    stage.world.change((2, 3))
    stage.run(2, 3)
    assert stage.order == ["a run"]
    stage.calm()


def test_its_own_disk_is_one_of_all() -> None:
    stage = a_run_that_two_disks_have(acknowledgements="all")
    stage.sync(1)
    assert stage.order == []
    stage.sync(3)
    stage.send(3)
    stage.deliver(1)
    assert stage.order == ["a run"]


@pytest.mark.parametrize("cut", [False, True])
def test_after_a_transitional_view_its_disk_makes_nothing_green(cut: bool) -> None:
    """What has come by then is decided by the next handler."""
    stage = a_run_that_two_disks_have()
    if cut:
        stage.world.form((1,), (2, 3))
        stage.world.install(1)
    stage.sync(1)
    assert stage.order == ([] if cut else ["a run"])
    stage.calm()
    assert stage.order == ["a run"]


# Acknowledgements that can wait


def is_acknowledging(stage: Stage, me: int) -> bool:
    return TimerName(LAYER, 0, int(Timer.ACKNOWLEDGE)) in stage.world.processors[me].timers


def a_run_on_the_disk_of_its_origin(replicas: int = 3, **settings: str) -> Stage:
    stage = Stage(replicas, **settings)
    stage.append(1, "a run")
    stage.send(1)
    stage.deliver(*stage.world.up)
    stage.sync(1)
    return stage


def test_the_others_can_do_without_its_origin() -> None:
    stage = a_run_on_the_disk_of_its_origin()
    assert is_acknowledging(stage, 1)
    assert not stage.world.processors[1].order.queue
    for me in (2, 3):
        stage.sync(me)
        assert stage.world.processors[me].order.queue, "the origin's program waits for it"
        stage.send(me)
    stage.deliver(1, 2, 3)
    assert not any(stage.yellow(me) for me in (1, 2, 3))


def test_one_of_them_cannot_while_the_third_is_slow() -> None:
    stage = a_run_on_the_disk_of_its_origin()
    stage.sync(2)
    stage.send(2)
    stage.deliver(1, 2)
    assert not stage.yellow(1)
    assert stage.yellow(2)
    stage.world.feed(1, Expired(TimerName(LAYER, 0, int(Timer.ACKNOWLEDGE))))
    stage.send(1)
    stage.deliver(2)
    assert not stage.yellow(2)
    stage.calm()


def test_it_goes_with_the_next_run() -> None:
    stage = a_run_on_the_disk_of_its_origin()
    stage.sync(2)
    stage.append(1, "another")
    stage.send(1)
    stage.deliver(2)
    assert len(stage.yellow(2)) == 1
    stage.deliver(1)
    stage.sync(1)
    stage.world.processors[1].timers.clear()
    stage.world.feed(1, Expired(TimerName(LAYER, 0, int(Timer.ACKNOWLEDGE))))
    assert not stage.world.processors[1].order.queue, "what the timer was set for is said"
    assert is_acknowledging(stage, 1), "the other run has a time of its own"
    stage.calm()


def test_it_is_said_at_once_where_all_disks_count() -> None:
    stage = a_run_on_the_disk_of_its_origin(acknowledgements="all")
    assert not is_acknowledging(stage, 1)
    assert stage.world.processors[1].order.queue


def test_it_is_said_at_once_where_the_others_are_no_quorum() -> None:
    stage = Stage(3)
    stage.world.crash(3)
    stage.world.change((1, 2))
    stage.run()
    stage.append(1, "a run")
    stage.send(1)
    stage.deliver(1, 2)
    stage.sync(1)
    assert not is_acknowledging(stage, 1)
    assert stage.world.processors[1].order.queue
