"""Simulated programs: they do what a scenario says, wait as programs do, and notice a wrong state."""

from __future__ import annotations

import pytest

from totempole.errors import ScenarioError
from totempole.sim.replica import GENESIS, Ledger, Mark, Replica
from totempole.sim.scenario import Outcome, parse, render_story, run
from totempole.sim.script import JoinGroup, Multicast, OnProcess, QuitGroup, When
from totempole.trace.schema import Row
from totempole.types import NO_RING, OrderKey, Place, ProcessId, RingId, Service

HEAD = """
processors 1 2
groups {groups}
{more}
"""
SETTLED = "end 3s\nexpect settled 2s\n"


def play(steps: str, groups: str = "", more: str = "") -> Outcome:
    text = HEAD.format(groups=groups, more=more) + steps + SETTLED
    outcome = run(parse(text), level="checked")
    assert not outcome.failures, "\n".join(outcome.failures)
    return outcome


def told_to(outcome: Outcome, kind: str, process: str) -> list[Row]:
    return [row for row in outcome.rows if row.kind == kind and row.process == process]


def reasons(outcome: Outcome, kind: str, process: str) -> list[str]:
    return [row.reason for row in told_to(outcome, kind, process)]


def test_the_language_has_processes() -> None:
    text = """processors p=1 q=2
seed 1
groups lane_bytes_max=500

at 1s process p.a connect
at 1s join p.a orders donor state
at 1s multicast q.b orders,stock units=3 count=2 size=0 safe notice
at 1s quit p.a orders
at 1s when "exchange begins" process p.a crash
end 2s
"""
    scenario = parse(text)
    assert scenario.to_text() == text
    assert [step.action for step in scenario.steps] == [
        OnProcess("connect", 1, "a"),
        JoinGroup(1, "a", "orders", True, True),
        Multicast(2, "b", ("orders", "stock"), 3, 2, 0, Service.SAFE, True),
        QuitGroup(1, "a", "orders"),
        When("exchange begins", OnProcess("crash", 1, "a")),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("process p connect", "write `process p.a connect`"),
        ("process p.a sleep", "give one of connect, disconnect, crash, stall, wake"),
        ("join p.a", "write `join p.a orders"),
        ("join x.a orders", "unknown processor 'x'"),
        ("multicast p.a orders units=0", "of at least 1"),
    ],
)
def test_mistakes_are_named(line: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        parse(f"processors p=1\ngroups\nat 1s {line}\nend 2s\n")


def test_without_groups_there_are_no_processes() -> None:
    with pytest.raises(ScenarioError, match="give the line `groups`"):
        parse("processors p=1\nat 1s join p.a orders\nend 2s\n")


def test_whatever_a_program_is_asked_for_starts_it() -> None:
    outcome = play("at 1s join 1.a orders\nat 1100ms multicast 2.b orders\n")
    assert reasons(outcome, "process", "1.1.1") == ["connect"]
    assert reasons(outcome, "process", "2.1.1") == ["connect"]
    assert len(told_to(outcome, "group_deliver", "1.1.1")) == 1
    assert "tells 1.1.1 of orders {1.1.1} by join" in render_story(outcome.rows)


def test_a_joiner_ends_with_the_donors_state() -> None:
    outcome = play(
        """
at 1s join 1.a orders donor
at 1100ms multicast 1.a orders units=5
at 1200ms join 2.b orders state
at 1200ms multicast 1.a orders units=5
"""
    )
    given, got = (told_to(outcome, "group_state", process) for process in ("1.1.1", "2.1.1"))
    (prefix,) = [row for row in given if row.groups.stage == "prefix"]
    (state,) = [row for row in got if row.groups.stage == "state"]
    places = [(row.ring, row.seq, row.groups.index, row.digest) for row in (prefix, state)]
    assert places[0] == places[1]
    assert prefix.digest
    assert outcome.programs is not None
    digests = {process.replicas["orders"].digest for process in outcome.programs.running}
    assert len(digests) == 1
    assert digests.isdisjoint({None, GENESIS})


def test_a_program_waits_while_its_lane_is_full_or_its_processor_frozen() -> None:
    outcome = play(
        """
at 1s join 1.a orders
at 1100ms multicast 2.b orders units=30 size=400
at 1200ms pause 1
at 1210ms multicast 1.a orders
at 1230ms resume 1
""",
        groups="lane_bytes_max=500",
        more="set each_time_packets 1\nset window_packets 2",
    )
    assert outcome.programs is not None
    assert outcome.programs.acts["waited for room"]
    assert len(told_to(outcome, "group_deliver", "1.1.1")) == 31


def test_a_stalled_program_catches_up_and_one_that_stalls_too_long_is_cut_off() -> None:
    outcome = play(
        """
at 900ms join 1.a orders
at 900ms join 1.b orders
at 1s process 1.a stall
at 1s multicast 2.c orders units=20
at 1500ms process 1.a wake
at 1600ms process 1.b stall
at 1600ms multicast 2.c orders units=80
"""
    )
    assert outcome.programs is not None
    assert outcome.programs.acts["caught up"] == 1
    assert outcome.programs.acts["disconnected as too slow"] == 1
    assert reasons(outcome, "process", "1.1.2") == ["connect", "disconnect"]
    assert len(told_to(outcome, "group_deliver", "1.1.1")) == 100


def test_a_processor_takes_its_processes_with_it_and_new_ones_come() -> None:
    outcome = play(
        """
at 900ms join 1.a orders
at 900ms join 2.b orders
at 1s crash 1
at 1010ms multicast 1.a orders
at 1100ms restart 1
at 1500ms join 1.a orders
"""
    )
    assert outcome.programs is not None
    assert [str(process.id) for process in outcome.programs.running] == ["2.1.1", "1.2.1"]


# The application, by hand


ME, YOU = ProcessId(1, 1, 1), ProcessId(2, 1, 1)


def place(seq: int) -> Place:
    return Place(OrderKey(RingId(4, 1), seq, NO_RING), 0)


def member(process: ProcessId, ledger: Ledger, *, wants_state: bool = False) -> Replica:
    replica = Replica("orders", process, ledger, wants_state)
    replica.joined()
    return replica


def both(replicas: tuple[Replica, Replica], seq: int) -> None:
    for replica in replicas:
        replica.hear(Mark(place(seq), (ME, YOU)))


def test_those_who_heard_different_messages_between_views_are_found() -> None:
    ledger = Ledger()
    mine, yours = member(ME, ledger), member(YOU, ledger)
    both((mine, yours), 1)
    mine.hear(b"x")
    yours.hear(b"x")
    both((mine, yours), 2)
    assert not ledger.problems
    mine.hear(b"y")
    both((mine, yours), 3)
    assert len(ledger.problems) == 1
    both((mine, yours), 4)
    assert len(ledger.problems) == 1, "they were of different minds before"


def test_a_new_source_voids_what_came_before_and_none_at_all_gives_it_back() -> None:
    ledger = Ledger()
    donor, joiner = member(ME, ledger), member(YOU, ledger, wants_state=True)
    joiner.begin(place(1), from_donor=True)
    joiner.chunks.append(b"half of a st")
    joiner.hear(b"x")
    donor.hear(b"x")
    joiner.begin(place(2), from_donor=True)
    assert donor.digest is not None
    joiner.chunks += [donor.digest[:3], donor.digest[3:]]
    joiner.finish()
    assert joiner.digest == donor.digest
    alone = member(YOU, ledger, wants_state=True)
    alone.begin(place(1), from_donor=True)
    alone.hear(b"x")
    alone.begin(place(2), from_donor=False)
    assert alone.digest == donor.digest
