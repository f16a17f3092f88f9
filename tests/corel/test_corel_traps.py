"""What a durable order stumbles over: founding, lost disks, other logs, catching up, slow disks, new sets.

Scenarios that name a mutant are played with it, too, and must not end well.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from corel_model import World
from corel_mutants import BROKEN, MUTANTS, broken
from corel_stage import Stage

from sweeps import first_row_of
from totempole.core.effects import TimerName
from totempole.core.inputs import Expired
from totempole.corel import frames, messages
from totempole.corel.commands import AppendRecords
from totempole.corel.config import LogConfig
from totempole.corel.events import Placed
from totempole.corel.layer import LAYER, Replica
from totempole.corel.member import Timer
from totempole.groups import pack

Scenario = Callable[[type[Replica]], None]


# Disks that have lost something


def an_emptied_disk(base: type[Replica]) -> None:
    """It comes back as another disk. It does not vote until a primary has taken it in."""
    stage = Stage(3, base=base)
    world = stage.world
    stage.append(1, "on the disks of one and three")
    stage.send(1)
    for me in (1, 3):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    assert stage.order == ["on the disks of one and three"]
    world.processors[2].disk.waiting.clear()
    world.crash(2)
    world.crash(3)
    world.processors[3].disk.empty()
    world.start(2)
    world.start(3)
    world.change((1,), (2, 3))
    stage.append(2, "new")
    stage.run(2, 3)
    if base is Replica:
        assert (stage.phase(2), stage.phase(3)) == ("minority", "minority")
    world.change((1, 2, 3))
    stage.run()
    world.change((1,), (2, 3))
    stage.append(3, "newer")
    stage.run()
    if base is Replica:
        assert stage.phases() == {1: "minority", 2: "primary", 3: "primary"}
    stage.calm()


def a_machine_that_was_replaced(base: type[Replica]) -> None:
    """Its log is lost, and the numbers of its processor, too. Neither its disk nor its runs may be taken for
    those of before."""
    stage = Stage(3, base=base)
    stage.append(3, "old")
    stage.run(timers=True)
    each = stage.world.processors[3]
    name = each.disk.zones.disk
    stage.world.crash(3)
    each.disk.empty()
    each.incarnation = 0
    stage.world.start(3)
    stage.append(3, "new")
    stage.calm()
    assert each.disk.zones.disk != name
    assert stage.order == ["old", "new"]


def a_disk_that_was_rolled_back(base: type[Replica]) -> None:
    """Another has seen more of it: it is not counted, and counts as a new disk when it is taken in."""
    stage = Stage(3, base=base)
    world = stage.world
    before = len(world.processors[3].disk.frames)
    for number in range(3):
        stage.append(2, f"seen {number}")
        stage.run()
    stage.append(1, "on the disks of one and three")
    stage.send(1)
    for me in (1, 3):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    world.crash(3)
    world.processors[3].disk.roll_back(before)
    world.start(3)
    world.change((1,), (2, 3))
    stage.append(2, "new")
    stage.run(2, 3)
    if base is Replica:
        assert (stage.phase(2), stage.phase(3)) == ("minority", "minority")
        assert {alarm.kind for _, alarm in world.alarms} == {"rolled-back"}
    stage.calm()


def a_disk_that_lost_a_little(base: type[Replica]) -> None:
    """It did not keep what it had synced, and has written as much since it was opened, twice, alone."""
    stage = Stage(3, base=base)
    world = stage.world
    disk = world.processors[3].disk
    stage.append(2, "on all disks")
    stage.run(timers=True)
    before = len(disk.frames)
    stage.append(1, "on the disks of one and three")
    stage.send(1)
    for me in (1, 3):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    world.deliver(2, 2)  # it sees that three has more, and its own disk is slow
    world.replica(2).member.note_disk(  # as an acknowledgement that comes before the crash would say
        frames.Shown(3, disk.zones.disk, disk.zones.openings[-1].life, len(disk.frames))
    )
    world.crash(3)
    disk.roll_back(before)
    for _ in range(2):
        world.start(3)
        stage.append(3, "alone")
        stage.run(3)
        world.crash(3, may_lose=False)
    assert len(disk.frames) > before + 5
    world.start(3)
    world.change((1,), (2, 3))
    stage.run(2, 3)
    if base is Replica:
        assert (stage.phase(2), stage.phase(3)) == ("minority", "minority")
        assert {alarm.kind for _, alarm in world.alarms} == {"rolled-back"}
    assert stage.phase(2) != "primary", "a replica votes that has forgotten something"
    stage.properties.unsafe.add(3)
    stage.calm()


def test_a_damaged_disk_is_another_one() -> None:
    stage = Stage(3)
    world = stage.world
    stage.append(1, "before")
    stage.run(timers=True)
    disk = world.processors[3].disk
    name = disk.zones.disk
    world.crash(3)
    disk.roll_back(len(disk.frames) - 2)
    world.start(3, opens=False)
    world.open(3, is_damaged=True)
    world.change((1,), (2, 3))
    stage.run()
    assert (stage.phase(2), stage.phase(3)) == ("minority", "minority")
    assert world.replica(3).zones.disk != name
    world.change((1, 2, 3))
    stage.run()
    assert set(stage.phases().values()) == {"primary"}
    assert world.replica(1).zones.replicas.voters[3].disk == world.replica(3).zones.disk
    world.change((1,), (2, 3))
    stage.append(3, "after")
    stage.run()
    assert stage.order == ["before", "after"]
    stage.calm()


def test_a_green_line_that_was_lost_is_found_again() -> None:
    """`Greened` is written lazily. All crash before it is: the same runs turn green at the same places."""
    stage = Stage(3)
    texts = [f"run {number}" for number in range(5)]
    for text in texts:
        stage.append(1, text)
        stage.run()
    assert stage.order == texts
    for me in (1, 2, 3):
        stage.world.crash(me)
    assert all(each.disk.zones.yellow for each in stage.world.processors.values())
    for me in (1, 2, 3):
        stage.world.start(me)
    stage.world.change((2, 3), (1,))
    stage.append(3, "later")
    stage.run()
    stage.calm()
    assert stage.order == [*texts, "later"]


def test_keys_outlive_restarts_and_are_forgotten_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.corel.zones.KEYS_MAX", 2)
    stage = Stage(3, tiny={"segment_bytes": 200})
    stage.properties._keys_max = 2
    for text, key in (("a", "ka"), ("b", "kb"), ("a again", "ka")):
        stage.append(1, text, key)
        stage.run()
    assert [(event.position, event.repeats) for event in stage.told(Placed)] == [
        (0, ()),
        (1, ()),
        (2, ((0, 0),)),
    ]
    for me in (1, 2, 3):
        stage.world.crash(me)
        stage.world.start(me)
    stage.world.change((1, 2, 3))
    for text, key in (("b again", "kb"), ("c", "kc"), ("d", "kd"), ("a anew", "ka")):
        stage.append(2, text, key)
        stage.run()
    assert [(event.position, event.repeats) for event in stage.told(Placed)[3:]] == [
        (2, ((0, 1),)),
        (2, ()),
        (3, ()),
        (4, ()),  # its key was forgotten
    ]
    stage.calm()


# Other logs


def test_two_clusters_meet() -> None:
    """Each log goes on by itself; nobody's replica gets the other's runs. A replica that catches up begins a
    round for both."""
    first, second = LogConfig(replicas=(1, 2, 3)), LogConfig(replicas=(4, 5))
    for config in (first, second):
        object.__setattr__(config, "recent_bytes", 400)
    world = World({1: first, 2: first, 3: first, 4: second, 5: second})
    for me in world.processors:
        world.start(me)
    world.change((1, 2, 3), (4, 5))
    world.run()
    world.change((1, 2), (3,), (4, 5))
    world.run()
    for number in range(10):
        for me in (1, 4):
            world.feed(me, AppendRecords(1, number, "log", pack([b"x"]), (), 0))
    world.run()
    world.change((1, 2, 3, 4, 5))
    for number in range(10):
        for me in (2, 5):
            world.feed(me, AppendRecords(1, number, "log", pack([b"y"]), (), 0))
    world.run()
    assert {world.replica(me).phase.value for me in world.up} == {"primary"}
    assert {alarm.kind for _, alarm in world.alarms} == {"another-log"}
    positions = {me: world.replica(me).zones.position for me in world.up}
    assert positions == dict.fromkeys(world.up, 20)
    assert len({world.replica(me).zones.log for me in (1, 2, 3)}) == 1
    assert world.replica(1).zones.log != world.replica(4).zones.log


# Catching up


def yellow_of_one_who_fetches(base: type[Replica]) -> None:
    """It was cut off with yellow runs, and a later primary has decided without it."""
    stage = Stage(4, base=base, tiny={"recent_bytes": 400})
    world = stage.world
    for number in range(9):
        stage.append(4, f"yellow {number}")
        stage.send(4)
        stage.deliver(4)
    assert len(stage.yellow(4)) == 9
    world.change((1, 2, 3), (4,))
    for number in range(9):
        stage.append(1, f"green {number}")
    stage.run()
    assert len(stage.order) == 9
    world.change((1, 2, 3, 4))
    stage.until(lambda: stage.phase(4) == "looking on")
    stage.run(1, 2, 3)
    stage.until(lambda: world.replica(4).zones.green_runs > 9)
    for number in range(3):  # before its disk has what it has fetched
        stage.append(2, f"later {number}")
        world.run(disks=(1, 2, 3), timers=False)
    assert len(stage.order) == 12
    stage.run()
    stage.calm()


def a_donor_that_has_committed_more(base: type[Replica]) -> None:
    """It has trimmed its log, and was the only one to commit the last primary. Who begins with its mark has
    the green prefix, and not what that primary would have ordered."""
    stage = Stage(5, base=base, tiny={"recent_bytes": 400})
    world = stage.world
    world.change((1, 2, 3, 5), (4,))
    for number in range(5):
        stage.append(1, f"early {number}")
    stage.run()
    stage.append(1, "green at five")
    stage.send(1)
    for me in (1, 2, 3, 5):
        stage.deliver(me)
        stage.sync(me)
    for me in (1, 2, 3, 5):
        stage.send(me)
    stage.deliver(5)
    assert stage.order[-1] == "green at five"
    ring = world.processors[5].ring
    for me in (1, 2, 3):
        ring.received[me] = set(range(1, ring.delivered[me] + 1))
    world.change((1, 2, 3), (4,), (5,))
    stage.until(lambda: stage.phase(1) == "attempting", who=(1, 2, 3))
    for me in (2, 3, 1):  # nobody but 1 gets its attempt, which is the last
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(1)
    assert [stage.phase(me) for me in (1, 2, 3)] == ["committing", "attempting", "attempting"]
    stage.sync(1)
    world.crash(1)
    world.start(1)
    world.change((1, 4), (2, 3), (5,))
    stage.until(lambda: len(world.processors[1].disk.segments) > 1, who=(1, 4))
    world.processors[1].disk.trim(len(world.processors[1].disk.segments) - 1)
    stage.until(lambda: world.processors[4].disk.kept_from > 0, who=(1, 4))
    world.change((2, 3, 4), (1,), (5,))
    stage.append(2, "later")
    stage.run()
    stage.calm()


def own_reds_of_one_who_begins_anew(base: type[Replica]) -> None:
    """It keeps them. What the donor had as red or yellow at its mark it does not have."""
    stage = Stage(4, base=base, tiny={"recent_bytes": 400})
    world = stage.world
    world.change((1, 2, 3), (4,))
    for number in range(9):
        stage.append(1, f"green {number}")
    stage.append(4, "red of four")
    stage.run()
    world.change((1,), (2, 3), (4,))
    stage.run()
    for number in range(3):
        stage.append(1, f"red of one {number}")
    stage.run()
    disk = world.processors[1].disk
    world.crash(1)
    world.start(1)
    world.change((1, 4), (2, 3))
    stage.until(lambda: len(disk.segments) > 1, who=(1, 4))
    disk.trim(len(disk.segments) - 1)
    stage.until(lambda: world.processors[4].disk.kept_from > 0, who=(1, 4))
    world.change((2, 3, 4), (1,))
    stage.run()
    stage.calm()
    assert sorted(stage.order)[-4:] == ["red of four", *(f"red of one {number}" for number in range(3))]


# Slow disks, weights, sets


def a_replica_steps_aside(base: type[Replica]) -> None:
    """Its own runs are under way. They must not be there with the others, and come again as new ones."""
    stage = Stage(3, base=base)
    world = stage.world
    object.__setattr__(world.processors[2].config, "queue_bytes_max", 300)
    for number in range(12):
        stage.append(2, f"of two {number}" + 600 * " ")
        stage.append(1, f"of one {number}" + 600 * " ")
    world.run(disks=(1, 3), timers=False)
    assert ("slow-disk", 2) in {(alarm.kind, alarm.processor) for _, alarm in world.alarms}
    object.__setattr__(world.processors[2].config, "queue_bytes_max", 1 << 20)
    stage.run()
    stage.append(2, "after all")
    stage.run()
    stage.calm()
    assert stage.order[-1] == "after all"
    assert len(stage.order) == 25


def a_replica_steps_aside_as_a_round_begins(base: type[Replica]) -> None:
    """Model seed 712283: the others pass over what comes until the new round's handler has ended, and its
    sender sends it again. If the one that leaves took it, it would have two stamps."""
    stage = Stage(3, base=base, tiny={"recent_bytes": 400})
    world = stage.world
    world.change((1, 2), (3,))
    for number in range(20):
        stage.append(1, f"three lacks {number}")
    stage.run()
    world.change((1, 2, 3))
    stage.until(lambda: world.replica(3).catch_up._said_caught_up)
    stage.run(1, 2)
    stage.append(2, "something for the disk")
    stage.until(lambda: not world.replica(2).journal.is_idle, who=(1, 2))
    stage.sync(3)
    stage.send(3)
    stage.append(1, "passed over")
    stage.send(1)
    world.feed(2, Expired(TimerName(LAYER, 0, int(Timer.DISK))))
    assert stage.phase(2) == "leaving"
    stage.deliver(2, 1)
    assert stage.phase(1) == "exchanging"
    stage.run()
    stage.calm()
    assert stage.order[-1] == "passed over"


def a_replica_comes_back_in_a_transitional_view(base: type[Replica]) -> None:
    """Model seed 722668: nobody tells it that it has left. It has missed the first of two runs that are sent
    again, and must not take the second."""
    stage = Stage(3, base=base)
    world = stage.world
    world.change((1,), (2, 3))
    stage.run()
    for text in "ab":
        stage.append(1, text + 1_000 * " ")
    stage.run()
    world.change((1, 2, 3))
    stage.until(lambda: bool(world.processors[1].order.queue) and set(stage.phases().values()) == {"primary"})
    ring = world.processors[1].ring
    stage.append(2, "something for the disk")
    stage.until(lambda: not world.replica(2).journal.is_idle, who=(2,))
    stage.deliver(1, 2, 3)
    world.feed(2, Expired(TimerName(LAYER, 0, int(Timer.DISK))))
    stage.send(2)
    has_left = len(ring.log)
    world.originate(1)
    stage.sync(2)
    stage.send(2)
    stage.send(1)
    for seq in range(1, len(ring.log) + 1):
        world.receive(3, seq)
    world.form((1,), (2, 3), boundaries=False)
    for me in (2, 3):
        move = world.processors[me].move
        assert move is not None
        world.processors[me].move = move._replace(boundary=has_left)
    world.install_all()
    stage.run()
    stage.calm()
    assert len(stage.order) == 3


def a_run_that_others_pass_over(base: type[Replica]) -> None:
    """Model seed 732581: one leaves the log, and the others begin a view. Processor 2 gets that and what
    follows in a transitional configuration that the one who leaves is not in, and sees no view begin."""
    stage = Stage(3, base=base)
    world = stage.world
    ring = world.processors[2].ring
    delivered = ring.delivered[2]
    world.close(3)
    stage.send(3)
    stage.append(1, "passed over")
    stage.send(1)
    for seq in range(delivered + 1, len(ring.log) + 1):
        world.receive(1, seq)
        world.receive(2, seq)
    world.form((1, 3), (2,), boundaries=False)
    move = world.processors[2].move
    assert move is not None
    world.processors[2].move = move._replace(boundary=delivered)
    world.install_all()
    stage.run()
    stage.calm()
    assert stage.order == ["passed over"]


def light_votes(base: type[Replica]) -> None:
    """Two of three, with two votes of five."""
    stage = Stage(3, base=base, weights=(3, 1, 1))
    stage.append(2, "light")
    stage.send(2)
    for me in (2, 3):
        stage.deliver(me)
        stage.sync(me)
        stage.send(me)
    stage.deliver(2, 3)
    stage.calm()


def a_change_that_a_new_primary_takes_in(base: type[Replica]) -> None:
    """Model seed 723363: three of five are no quorum of the set that a red change makes. What comes behind
    the change is green when a quorum of that set has it: another one could form a primary without it."""
    stage = Stage(5, base=base)
    world = stage.world
    delivered = world.processors[1].ring.delivered[1]
    stage.change_set(1, 5, 4)
    stage.append(1, "behind the change")
    stage.send(1)
    world.form((1,), (2,), (3,), (4, 5), boundaries=False)
    move = world.processors[1].move
    assert move is not None
    world.processors[1].move = move._replace(boundary=delivered)
    world.install_all()
    stage.run()
    for minority in ((1, 2), (2, 3)):
        world.change(minority)
        stage.run()
    world.change((1, 2, 3))
    stage.run()
    assert stage.phases() == {1: "primary", 2: "primary", 3: "primary", 4: "minority", 5: "minority"}
    assert stage.order == []
    world.change((1, 2, 3, 4, 5))
    stage.run()
    assert stage.order == ["behind the change"]
    stage.calm()


def the_last_member_of_a_primary_is_removed(base: type[Replica]) -> None:
    """Dynamic voting, model seed 5248: nobody may wait for a member that the set no longer counts."""
    stage = Stage(3, base=base, rule="dynamic", floor=1)
    world = stage.world
    world.change((1, 2), (3,))
    stage.run()
    world.change((1,), (2,), (3,))
    stage.run()
    assert world.replica(1).zones.committed.members == (1,)
    stage.change_set(1, 1, 0)
    stage.run()
    world.change((1, 2, 3))
    stage.run()
    assert set(stage.phases().values()) == {"primary"}
    assert sorted(world.replica(2).zones.replicas.voters) == [2, 3]
    stage.calm()


def two_attempts_of_one_number(base: type[Replica]) -> None:
    """Dynamic voting: 7 alone remembers an attempt of four, 4 and 5 remember one of five with that number,
    and that one has succeeded."""
    stage = Stage(7, base=base, rule="dynamic")
    world = stage.world
    world.change((1,), (2,), (3,), (4, 5, 6, 7))
    stage.until(lambda: stage.phase(7) == "attempting", who=(7, 6, 5, 4))
    stage.sync(7)
    for me in (4, 5, 6):
        world.processors[me].disk.waiting.clear()
        world.crash(me)
        world.start(me)
    world.change((1, 2, 3, 4, 5), (6,), (7,))
    stage.until(lambda: all(stage.phase(me) == "attempting" for me in (1, 2, 3, 4, 5)), who=(1, 2, 3, 4, 5))
    for me in (4, 5):
        stage.sync(me)
        stage.send(me)
    stage.until(lambda: all(stage.phase(me) == "committing" for me in (1, 2, 3)), who=(1, 2, 3))
    world.change((1, 2, 3), (4, 5, 6, 7))
    stage.append(1, "by three")
    stage.append(4, "by four")
    stage.run()
    assert stage.order == ["by three"]
    stage.calm()


def a_green_line_that_is_not_on_disk(base: type[Replica]) -> None:
    """What is no longer at hand is read from the disk, which does not know yet that it is green."""
    stage = Stage(3, base=base, tiny={"recent_bytes": 400})
    for number in range(9):
        stage.append(1, f"run {number}")
    stage.run()
    replica, disk = stage.world.replica(1), stage.world.processors[1].disk
    start = disk.zones.green_runs
    assert start < replica.zones.recent_from
    assert replica.plan is not None
    replica.catch_up.answer(2, messages.Fetch(replica.plan.log, replica.member.round, 1, start, 1_000))
    stage.append(1, "more")
    stage.sync(1)
    assert disk.recall().runs, "at least one"
    stage.calm()


def test_a_set_changes_under_partition() -> None:
    """Neither side of {1, 2} and {3, 4} may go on while it is open whether 4 counts."""
    stage = Stage(3, spares=1)
    world = stage.world
    stage.change_set(1, 4, 1)
    stage.send(1)
    for me in (1, 4):
        stage.deliver(me)
        stage.sync(me)
    world.change((1, 4), (2, 3))
    stage.run()
    assert stage.phases() == {1: "minority", 2: "primary", 3: "primary", 4: "minority"}
    world.change((1, 2), (3, 4))
    stage.run()
    assert stage.phases()[3] == "minority"
    stage.calm()
    assert sorted(world.replica(1).zones.replicas.voters) == [1, 2, 3, 4]


TRAPS: tuple[tuple[Scenario, str], ...] = (
    (an_emptied_disk, "disks do not count"),
    (a_machine_that_was_replaced, "a life is named by numbers"),
    (a_machine_that_was_replaced, "a disk is named by numbers"),
    (a_disk_that_lost_a_little, "the disk is rolled back and votes"),
    (a_disk_that_was_rolled_back, "nobody has seen anything of a disk"),
    (yellow_of_one_who_fetches, "fetched runs leave yellow ones where they are"),
    (a_donor_that_has_committed_more, "begins with what the donor had committed"),
    (own_reds_of_one_who_begins_anew, "begins with all that the donor had"),
    (a_replica_steps_aside, "who steps aside does not listen"),
    (a_replica_steps_aside_as_a_round_begins, "who steps aside does not hear of rounds"),
    (a_replica_comes_back_in_a_transitional_view, "who comes back has not left"),
    (a_run_that_others_pass_over, "a run behind a cut is taken"),
    (light_votes, "weights do not count"),
    (a_change_that_a_new_primary_takes_in, "all that a primary takes in is green"),
    (the_last_member_of_a_primary_is_removed, "removed members are waited for"),
    (two_attempts_of_one_number, "attempts of one number are one"),
    (a_green_line_that_is_not_on_disk, "a recall does not wait for the green line"),
)

BY_NAME = {each.name: each for each in MUTANTS}


@pytest.mark.parametrize("scenario", list(dict(TRAPS)), ids=lambda each: each.__name__)
def test_it_holds(scenario: Scenario) -> None:
    scenario(Replica)


@pytest.mark.parametrize(
    ("scenario", "without"), first_row_of(TRAPS), ids=lambda each: getattr(each, "__name__", None)
)
def test_it_fails_when_broken(scenario: Scenario, without: str) -> None:
    replica = broken(BY_NAME[without])
    with pytest.raises(BROKEN):
        scenario(replica)
