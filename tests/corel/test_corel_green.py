"""When a run becomes green, and who says what its disk has: a replica counts its own disk at once, tells the
others past the order, and in it when it has something else to say or a little later."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from corel_model import Hint
from corel_mutants import BROKEN, MUTANTS, broken
from corel_properties import part_of
from corel_stage import Stage

from sweeps import first_row_of
from totempole.core.effects import TimerName
from totempole.core.inputs import Expired
from totempole.corel.layer import LAYER, Replica
from totempole.corel.member import Timer
from totempole.corel.messages import Acknowledge, Round, decode, encode


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


def hints(stage: Stage, me: int) -> list[Hint]:
    """What it has said past the order about the last primary component."""
    return [hint for hint in stage.world.hints if hint.sender == me]


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
    assert not hints(stage, 1)
    for me in (2, 3):
        stage.sync(me)
        assert len(hints(stage, me)) == 1, "the origin's program waits for it"
    stage.world.hint_all()
    assert not any(stage.yellow(me) for me in (1, 2, 3))
    assert not any(stage.world.processors[me].order.queue for me in (1, 2, 3)), "nothing needs the token"


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
    stage.world.originate(1)
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
    assert len(hints(stage, 1)) == 1


def test_it_is_said_at_once_where_the_others_are_no_quorum() -> None:
    stage = Stage(3)
    stage.world.crash(3)
    stage.world.change((1, 2))
    stage.run()
    stage.append(1, "a run")
    stage.send(1)
    stage.deliver(1, 2)
    stage.sync(1)
    assert len(hints(stage, 1)) == 1


# Acknowledgements past the order


def a_run_that_all_were_delivered(base: type[Replica] = Replica) -> Stage:
    stage = Stage(3, base=base)
    stage.append(1, "a run")
    stage.send(1)
    stage.deliver(1, 2, 3)
    return stage


def test_a_lost_hint_is_made_good_in_the_order() -> None:
    stage = a_run_that_all_were_delivered()
    stage.sync(1, 2, 3)
    stage.world.lose_hints()
    assert stage.order == []
    for me in (2, 3):
        assert is_acknowledging(stage, me)
        stage.send(me)  # the timer expires
    stage.deliver(1, 2, 3)
    assert stage.order == ["a run"]
    assert not any(stage.yellow(me) for me in (1, 2, 3))


def test_what_was_hinted_goes_into_the_order_once() -> None:
    stage = a_run_that_all_were_delivered()
    stage.sync(1, 2, 3)
    stage.run(timers=True)
    said = [len(each.ring.log) for each in stage.world.processors.values()]
    stage.run(timers=True)
    assert said == [len(each.ring.log) for each in stage.world.processors.values()]


def hint(stage: Stage, sender: int, acknowledged: int, **other: Any) -> Hint:
    """As the replica would say it now, but for what is given."""
    replica = stage.world.replica(sender)
    said = {"log": replica.plan.log, "round": replica.member.round, "frames": 9, **other}
    payload = encode(Acknowledge(acknowledged=acknowledged, **said))
    return Hint(stage.world.processors[sender].ring, sender, payload)


def a_hint_of_more_than_has_come(base: type[Replica]) -> None:
    """It counts for what has come, and not for what comes later."""
    stage = Stage(3, base=base)
    stage.append(1, "first")
    stage.send(1)
    stage.deliver(1)
    stage.append(2, "second")
    stage.send(2)
    stage.deliver(2)
    stage.sync(2)
    stage.world.hint(1, hint(stage, 2, 2))
    stage.sync(1)
    assert stage.order == ["first"]
    stage.deliver(1)
    stage.sync(1)
    assert stage.order == ["first"], "it has heard of one run of the other, and will be told again"
    stage.calm()


def a_hint_of_an_earlier_primary(base: type[Replica]) -> None:
    """The same replicas have formed another one, in which nothing is on a second disk yet."""
    stage = Stage(3, base=base)
    stage.world.change((1, 2), (3,))  # from the second one on, the log has its name
    stage.run()
    stage.world.change((1, 2, 3))
    stage.run()
    stage.append(1, "first")
    stage.run()
    said = hints(stage, 2)[-1]
    stage.world.change((1, 2), (3,))
    stage.run()
    stage.append(1, "second")
    stage.send(1)
    stage.deliver(1)
    stage.world.hint(1, said)
    stage.sync(1)
    assert stage.order == ["first"]
    stage.calm()


def a_hint_of_an_earlier_round(base: type[Replica]) -> None:
    """The handler has run again in the same view."""
    stage = a_run_that_all_were_delivered(base)
    view, number = stage.world.replica(2).member.round
    stage.world.hint(1, hint(stage, 2, 1, round=Round(view, number - 1)))
    stage.sync(1)
    assert stage.order == []
    stage.calm()


def a_hint_of_another_log(base: type[Replica]) -> None:
    stage = a_run_that_all_were_delivered(base)
    stage.world.hint(1, hint(stage, 2, 1, log=stage.world.replica(2).zones.log + 1))
    stage.sync(1)
    assert stage.order == []
    stage.calm()


def a_hint_that_comes_after_a_transitional_view(base: type[Replica]) -> None:
    """What has come by then is decided by the next handler: others may have lost what comes before it."""
    stage = a_run_that_all_were_delivered(base)
    stage.sync(2)
    (said,) = hints(stage, 2)
    stage.sync(1)
    replica = stage.world.replica(1)
    replica.handler.cut_off()
    stage.world.hint(1, said)
    assert stage.order == []
    stage.world.change((1,), (2, 3))
    stage.run()
    stage.calm()


def test_a_hint_of_one_that_looks_on_does_not_count() -> None:
    """It is a member of the group, and not of the primary component."""
    stage = Stage(4, tiny={"recent_bytes": 400})
    world = stage.world
    world.change((1, 2, 3), (4,))
    for number in range(12):
        stage.append(1, f"run {number}")
    stage.run()
    world.change((1, 2, 3, 4))
    stage.until(lambda: stage.phase(4) == "looking on")
    stage.until(lambda: stage.phase(1) == "primary", who=(1, 2, 3))
    before = len(stage.order)
    stage.append(1, "a run")
    stage.send(1)
    stage.deliver(1)
    stage.sync(1)
    world.hint(1, hint(stage, 4, 1))
    assert len(stage.order) == before, "half of them, and the first among these, would be enough"
    stage.calm()


def test_a_hint_from_outside_means_nothing() -> None:
    stage = a_run_that_all_were_delivered()
    world = stage.world
    said = hint(stage, 2, 1)
    for hostile in (said._replace(sender=99), said._replace(payload=b"nothing that can be read")):
        world.hint(1, hostile)
    world.hint(1, said._replace(payload=encode(decode(said.payload))[:-1]))
    stage.sync(1)
    assert stage.order == []
    assert len(world.alarms) == 2
    stage.calm()


def test_a_hint_that_is_repeated_means_nothing_new() -> None:
    stage = a_run_that_all_were_delivered()
    stage.sync(2)
    (said,) = hints(stage, 2)
    for _ in range(3):
        stage.world.hint(1, said)
        stage.world.hint(3, said)
    assert stage.order == []
    stage.sync(1)
    assert stage.order == ["a run"]
    stage.append(1, "another")
    stage.send(1)
    stage.deliver(1)
    stage.world.hint(1, said)
    stage.sync(1)
    assert stage.order == ["a run"]
    stage.calm()


def test_a_crash_of_all_after_a_hint_loses_nothing() -> None:
    """Green at its origin by a hint that nobody else has got; then the origin's disk is not there."""
    stage = a_run_that_all_were_delivered()
    stage.sync(2)
    stage.world.hint(1, hints(stage, 2)[0])
    stage.sync(1)
    assert stage.order == ["a run"]
    for me in (1, 2, 3):
        stage.world.crash(me)
    for me in (2, 3):
        stage.world.start(me)
    stage.world.change((2, 3))
    stage.run(2, 3)
    assert stage.phase(2) == "primary"
    assert not stage.yellow(2)
    stage.calm()
    assert stage.order == ["a run"]


def one_who_does_not_take_hints(base: type[Replica]) -> None:
    """It is of an older version, and would ask barriers by what it is delivered: all say it in the order."""
    member = part_of(base, "Member")
    say = member.send_when_durable

    def as_before(self: Any, message: Any) -> None:
        if self.me == 3 and type(message).__name__ == "State":
            message = msgspec.structs.replace(message, takes_hints=False)
        say(self, message)

    with patch.object(member, "send_when_durable", as_before):
        stage = a_run_that_all_were_delivered(base)
        stage.sync(1, 2)
        assert not stage.world.hints
        assert stage.world.processors[2].order.queue, "at once"
        stage.world.originate(2)
        stage.deliver(1, 2, 3)
        assert stage.order == ["a run"]
    stage.calm()


TRAPS = (
    (one_who_does_not_take_hints, "hints in a view with one who does not take them"),
    (a_hint_of_more_than_has_come, "a hint counts for runs that have not come"),
    (a_hint_of_an_earlier_primary, "a hint of any round counts"),
    (a_hint_of_an_earlier_round, "a hint of any round counts"),
    (a_hint_of_another_log, "a hint of any log counts"),
    (a_hint_that_comes_after_a_transitional_view, "a hint counts after a transitional view"),
)
BY_NAME = {each.name: each for each in MUTANTS}


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
