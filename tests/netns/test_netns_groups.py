"""Process groups through real daemons: programs that join, send and fail, on hosts that do the same."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

import pytest
from group_stage import STEADY, GroupStage, GroupStageMaker

from totempole.lab.cluster import Setup
from totempole.runtime import keyring

MIB = 1024 * 1024
UNREAD_MAX = 16 * MIB
"""What a program may leave unread. What its socket holds, some MiB, does not count."""
REPAIRED = "hole in a burst repaired"


def test_intersecting_groups_see_one_order(groups: GroupStageMaker) -> None:
    members = {"p1": "abc", "p2": "ab", "p3": "bc", "p4": "ac", "q1": "c", "q4": "abc"}
    with groups(hosts=4, setup=Setup(ring=STEADY)) as stage:
        for name, letters in members.items():
            stage.program(name, int(name[1]), *letters)
        for group in "abc":
            stage.wait_members(group, *(name for name, letters in members.items() if group in letters))
        for number in (2, 3):
            stage.program(f"x{number}", number)
        stage.pace("p1", "a", 30)
        stage.pace("p2", "b", 30, how="safe")
        stage.pace("p3", "b,c", 30)
        stage.pace("p4", "a,c", 20, how="agreed notice")
        stage.pace("q4", "a,b,c", 20, how="safe notice")
        stage.pace("x2", "c", 30)
        stage.pace("x3", "a,b", 30, how="safe")
        stage.send("q1", "c", 4 * MIB, 2)
        stage.send("x2", "a,b", 3 * MIB, how="safe")
        stage.send("p1", "b", 2 * MIB, how="agreed notice")
        stage.deliver(150)
    stage.assert_nothing_lost(members)
    with_notice = {"p1:b", "p4:a,c", "q4:a,b,c"}
    for name in members:
        received = stage.last[name]["received"]
        noticed = sum(event[4] for event in stage.seen[name].of("safe"))
        assert noticed == sum(count for what, count in received.items() if what in with_notice)


def test_a_killed_daemon_costs_its_programs_and_they_come_back(groups: GroupStageMaker) -> None:
    everybody = ("p1", "p2", "p3", "p4")
    others = ("p1", "p2", "p4")
    with groups(hosts=4, setup=Setup(inputs=True)) as stage:
        in_two_groups(stage)
        stage.deliver(50)
        stage.send("p3", "a", 8 * MIB)
        stage.kill(3)
        stage.wait_for([1, 2, 4])
        stage.wait_members("a", *others)
        stage.deliver(30, others)
        stage.restart(3)
        stage.wait_members("a", *everybody)
        stage.wait_members("b", "p1", "p3")
        stage.deliver(30)
    assert stage.seen["p3"].of("reconnected")
    for name in others:
        kinds = [
            event[2]
            for event in stage.seen[name].of("view")
            if event[3] == "a" and event[6] == "configuration"
        ]
        assert ("transitional", "regular") in pairwise(kinds), name
    stage.assert_replays()


def in_two_groups(stage: GroupStage) -> None:
    """All in a, two in b, and everybody sends; one to both groups, one of them large messages."""
    for number in stage.daemons.numbers:
        stage.program(f"p{number}", number, "a", *(["b"] if number in (1, 3) else []))
    stage.wait_members("a", *(f"p{number}" for number in stage.daemons.numbers))
    stage.pace("p1", "a", 20, how="safe")
    stage.pace("p2", "a,b", 20)
    stage.pace("p3", "b", 20, how="agreed notice")
    stage.pace("p4", "a", 20)
    stage.pace("p4", "a,b", 2, 2 * MIB)


def test_partitions_cascade_and_one_view_is_left(groups: GroupStageMaker) -> None:
    with groups(hosts=4) as stage:
        in_two_groups(stage)
        stage.deliver(30)
        stage.partition([1, 2], [3, 4])
        stage.wait_members("a", "p1", "p2")
        stage.wait_members("a", "p3", "p4")
        stage.deliver(30)
        # These do not wait: the next comes while the ring is formed, or tables are exchanged.
        for parts in 2 * (([1, 2, 3, 4],), ([1, 3], [2, 4]), ([1, 2, 3], [4])):
            before = stage.configuration_changes()
            stage.lab.partition(parts)
            stage.wait(
                lambda before=before, parts=parts: (
                    stage.configuration_changes() != before or stage.are_rings(parts)
                ),
                "a configuration",
            )
        stage.heal()
        stage.wait_members("a", "p1", "p2", "p3", "p4")
        stage.wait_members("b", "p1", "p3")
        stage.deliver(30)
    for name, report in stage.last.items():
        own = sum(count for what, count in report["received"].items() if what.startswith(f"{name}:"))
        to_itself = sum(count for target, count in report["sent"].items() if "a" in target or name == "p3")
        assert own == to_itself, name


def test_joiners_get_the_state_of_their_place(groups: GroupStageMaker) -> None:
    with groups(hosts=3, setup=Setup(inputs=True)) as stage:
        for number in (1, 2):
            stage.program(f"p{number}", number)
            stage.join(f"p{number}", "s", "disconnect", f"donor={2 * MIB}", "state")
            stage.pace(f"p{number}", "s", 50)
        stage.deliver(20)
        for name, host in (("p3", 3), ("q3", 3), ("q1", 1)):
            stage.program(name, host)
            stage.join(name, "s", "disconnect", f"donor={2 * MIB}", "state")
            stage.pace(name, "s", 20)
        stage.deliver(20)
    assert_same_state(stage, "p1", "p2", "p3", "q3", "q1")
    assert all(stage.seen[name].of("state")[0][3] != "None" for name in ("p3", "q3", "q1"))
    stage.assert_replays()


def test_another_donor_takes_over(groups: GroupStageMaker) -> None:
    donors = {"p1": 1, "p2": 2}
    with groups(hosts=3) as stage:
        for name, number in donors.items():
            stage.program(name, number)
            stage.join(name, "s", "disconnect", f"donor={2 * MIB}", "state")
            stage.pace(name, "s", 50)
        stage.deliver(20)
        before = stage.reports()
        for name in donors:
            stage.tell(name, "hold", name)
        stage.program("p3", 3)
        stage.pace("p3", "s", 20)
        stage.join("p3", "s", "disconnect", "state")
        victim = who_is_asked(stage, before, *donors)
        other = next(name for name in donors if name != victim)
        stage.kill(donors[victim])
        assert who_is_asked(stage, before, other) == other
        stage.tell(other, "go", other)
        stage.deliver(20, [other, "p3"])
        stage.forget(victim)
    assert_same_state(stage, other, "p3")
    assert len(stage.seen["p3"].of("state")) == 1
    joiner, _ = stage.seen["p3"].lives[0]
    rows = [row.groups for row in stage.of_kind("group_state") if row.process == joiner]
    begun = [own.peer for own in rows if own.stage == "begins"]
    assert [processor.partition(".")[0] for processor in begun] == [str(donors[victim]), str(donors[other])]


def who_is_asked(stage: GroupStage, before: dict[str, dict[str, int]], *names: str) -> str:
    """Which of these is asked for its state from here on."""
    asked: list[str] = []

    def one_is() -> bool:
        reports = stage.reports(names)
        asked.extend(name for name in names if reports[name]["asked"] > before[name]["asked"])
        return bool(asked)

    stage.wait(one_is, f"one of {names} to be asked")
    return asked[0]


def assert_same_state(stage: GroupStage, *names: str) -> None:
    tallies = {name: stage.last[name]["tallies"]["s"] for name in names}
    assert len(set(map(tuple, tallies.values()))) == 1, tallies
    assert tallies[names[0]][0] > 0


@pytest.mark.parametrize("in_pieces", [False, True])
def test_loss_under_the_seal(groups: GroupStageMaker, tmp_path: Path, in_pieces: bool) -> None:
    key_file = tmp_path / "ring.key"
    keyring.create(key_file)
    setup = Setup(key_file=key_file, inputs=in_pieces)
    with groups(hosts=4, setup=setup, prepare=lambda lab: lab.holes(in_pieces)) as stage:
        in_two_groups(stage)
        with stage.loss(5):
            stage.deliver(150)
    branches = {row.reason for row in stage.of_kind("branch")}
    assert REPAIRED in branches or not in_pieces
    if in_pieces:
        stage.assert_replays("--key-file", str(key_file))


def test_programs_that_fall_behind_and_that_are_killed(groups: GroupStageMaker) -> None:
    """Each has a process of its own. The others, on the same daemon and on another, notice only the views."""
    slow = {"d": "disconnect", "s": "shed", "b": "block"}
    settings = [f"clients.client_receive_bytes_max={UNREAD_MAX}"]
    with groups(hosts=2, setup=Setup(ring=STEADY), settings=settings) as stage:
        for name in ("p1", "p2"):
            stage.program(name, int(name[1]), "a", *slow)
        for name, policy in slow.items():
            stage.program(name, 1, apart=True)
            stage.join(name, name, policy)
        stage.program("dead", 1, "a", apart=True)
        stage.wait_members("a", "p1", "p2", "dead")
        for name in slow:
            stage.wait_members(name, "p1", "p2", name)
        stage.pace("dead", "a", 50)
        stage.pace("p1", "a", 50)
        stage.deliver(20, ["p1", "p2"])
        stage.kill_program("dead")
        for name in slow:
            stage.signal_program(name, signal.SIGSTOP)
        stage.wait_members("a", "p1", "p2")
        # Less than what would end it, with what may lie in the memory that it shares: a quarter of that.
        stage.send("p1", "b", 50_000, UNREAD_MAX * 9 // 8 // 50_000)
        stage.send("p2", "d,s", 50_000, 2 * UNREAD_MAX // 50_000)
        stage.wait(lambda: "too slow" in stage.status(1)["clients"]["disconnected"], "a disconnected program")
        stage.wait(lambda: stage.status(1)["clients"]["shed_messages"] > 0, "messages to be shed")
        stage.wait_members("d", "p1", "p2")
        stage.wait(lambda: unread(stage, "b") > UNREAD_MAX // 2, "a program to be made wait")
        stage.deliver(20, ["p1", "p2"])
        for name in slow:
            stage.signal_program(name, signal.SIGCONT)
        stage.wait(lambda: "reconnected" in stage.reports(["d"])["d"]["seen"], "a program to come back")
        stage.wait_members("d", "p1", "p2", "d")
        for name in slow:
            stage.send(name, name, 20_000, 20)
    stage.last = {**stage.last, "dead": {"sent": {"a": stage.last["p1"]["received"]["dead:a"]}}}
    stage.assert_nothing_lost({"p1": ("a", *slow), "p2": ("a", *slow), "b": "b"})
    shed = sum(event[2] for event in stage.seen["s"].of("gap"))
    sent = stage.last["p2"]["sent"]["d,s"] + stage.last["s"]["sent"]["s"]
    assert shed > 0
    assert shed + sum(stage.last["s"]["received"].values()) == sent
    assert "too slow" in stage.daemons.log(1)


def unread(stage: GroupStage, name: str) -> int:
    """What waits for a program at the daemon of host 1."""
    return sum(each["bytes"] for each in stage.status(1)["clients"]["most_unread"] if each["name"] == name)
