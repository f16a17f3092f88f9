"""Process groups while processors move, and while two nodes use one number: what runs, what is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from totempole.checkers import check
from totempole.cli.mutants import find_mutant
from totempole.sim.doubles import doubled_numbers, rows_of_others
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.mutants import mutated_stack
from totempole.sim.fuzz.profiles import PROFILES
from totempole.sim.fuzz.trial import RAISED, try_scenario
from totempole.sim.scenario import Outcome, parse, run
from totempole.sim.world import World
from totempole.stack import ProcessorStack
from totempole.trace.layers.groups import GroupColumns
from totempole.trace.schema import Row

FOUR = """
processors 1 2 3 4
seed 3
groups
set timeout_stretch_max_percent 100
set readmission_us 400000
"""
PROGRAMS = """
at 300ms join 1.a orders donor
at 300ms join 2.a orders donor
at 400ms join 3.a orders state
at 600ms multicast 1.a orders,stock units=5
at 600ms multicast 2.a orders units=5 notice
at 1700ms multicast 2.a orders units=5 notice
at 1700ms multicast 3.a orders units=5 notice
at 1800ms join 4.a orders state
at 3s multicast 2.a orders units=5
at 3s join 2.a stock
"""
SETTLED = "end 7s\nexpect settled 2s"
FIGHT = "at 1s pause 2\nat 1.1s double 2\nat 2.5s resume 2"
SUCCESSION = "at 1s crash 2\nat 1.1s double 2\nat 2.5s restart 2"


def play(steps: str) -> Outcome:
    scenario = parse("\n".join([FOUR, PROGRAMS, SETTLED]))
    faults = parse("\n".join([FOUR, steps, "end 7s"])).steps
    together = sorted((*scenario.steps, *faults), key=lambda step: step.at_us)
    return run(replace(scenario, steps=tuple(together)), level="checked")


def tables(outcome: Outcome) -> list[dict[str, tuple[str, ...]]]:
    found = []
    for host in outcome.world.hosts.values():
        layer = cast(ProcessorStack, host.stack).groups
        assert layer is not None
        found.append({group: tuple(map(str, names)) for group, names in layer.groups.items()})
    return found


@pytest.mark.parametrize("steps", [FIGHT, SUCCESSION], ids=["fight", "succession"])
def test_both_nodes_of_a_number_have_programs_and_one_of_them_stays(steps: str) -> None:
    outcome = play(steps)
    assert not outcome.failures, "\n".join(outcome.failures)
    lives = {row.incarnation for row in outcome.rows if row.kind == "group_send" and row.node == 2}
    assert len(lives) > 1, "both have sent"
    (table,) = {str(each): each for each in tables(outcome)}.values()
    survivor = outcome.world.hosts[2].recorder.incarnation
    assert [name for name in table["stock"] if name.startswith("2.")] == [f"2.{survivor}.1"]
    assert {name.partition(".")[0] for name in table["orders"]} == {"1", "3", "4"}


def test_programs_go_on_at_a_processor_that_has_moved() -> None:
    outcome = play("at 1s move 2\nat 2s crash 3\nat 2s move 3\nat 2.2s restart 3")
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.world.faults["move"] == 2
    assert tables(outcome)[0] == {"orders": ("1.1.1", "2.1.1", "4.1.1"), "stock": ("2.1.1",)}


def test_what_a_scenario_doubles_is_known_before_it_runs() -> None:
    scenario = parse('processors 1 2 3\nat 1s double 2\nat 1s when "promise given" double 3\nend 2s\n')
    assert doubled_numbers(scenario) == {2, 3}


@pytest.mark.search
@pytest.mark.parametrize(
    "mutant",
    [
        "the exchange ends one part early",
        "no transitional view",
        "a lane not first in, first out",
        "messages to those who left",
        "a joiner that has its state waits on",
        "notices before safe",
    ],
)
def test_a_broken_layer_is_noticed_among_the_others(mutant: str) -> None:
    """What two nodes say in one name is left out, and nothing else."""
    scenario = group_plan(0, PROFILES["doubles"])
    assert doubled_numbers(scenario)
    verdict, _ = try_scenario(scenario, mutated_stack(find_mutant(mutant)))
    assert verdict.violated
    assert RAISED not in verdict.violated


# Which views are left


def judged(*views: Row) -> list[str]:
    world = World(1, 3)
    world.doubles[2] = world.hosts[2]
    world.rows.extend(views)
    return [text(row) for row in rows_of_others(world)]


def view(words: str, kind: str = "regular", node: int = 1) -> Row:
    """`index reason members=… together=…`, as short as a test wants it."""
    index, reason, members, together = words.split(" ")
    columns = GroupColumns(index=int(index), processes=names(members), together=names(together))
    return Row("run", node, 1, 1, 1, "groups", "group_view", group="g", process=f"{node}.1.1",
               configuration_kind=kind, reason=reason, groups=columns)  # fmt: skip


def names(words: str) -> tuple[str, ...]:
    return tuple(filter(None, words.partition("=")[2].split(",")))


def text(row: Row) -> str:
    members, together = (",".join(each) for each in (row.groups.processes, row.groups.together))
    return f"{row.groups.index} {row.reason} members={members} together={together}"


ALONE = view("0 join members=1.1.1 together=")
BOTH = view("0 join members=1.1.1,3.1.1 together=1.1.1")


def test_names_of_the_number_are_struck_and_views_of_nothing_else_left_out() -> None:
    left = judged(
        ALONE,
        view("0 join members=1.1.1,2.1.1 together=1.1.1"),
        view("0 join members=1.1.1,2.1.1,3.1.1 together=1.1.1,2.1.1"),
        view("1 leave members=1.1.1,3.1.1 together=1.1.1,3.1.1"),
        view("1 disconnect members=1.1.1 together=1.1.1"),
    )
    assert left == [text(ALONE), text(BOTH), "1 disconnect members=1.1.1 together=1.1.1"]


def test_a_transitional_view_without_the_number_alone_is_left_out_with_what_follows() -> None:
    lost = "0 configuration members=1.1.1,3.1.1 together=1.1.1,3.1.1"
    assert judged(BOTH, view(lost, "transitional"), view(lost)) == [text(BOTH)]


def test_a_join_of_the_number_in_a_transitional_configuration_is_left_out() -> None:
    """Group seed 210: the view is transitional, and the one before it regular."""
    joined = "0 join members=1.1.1,2.1.1,3.1.1 together=1.1.1,3.1.1"
    settled = "0 configuration members=1.1.1,2.1.1,3.1.1 together=1.1.1,2.1.1,3.1.1"
    assert judged(BOTH, view(joined, "transitional"), view(settled)) == [text(BOTH)]


def test_a_regular_view_after_a_transitional_one_of_others_stays() -> None:
    lost = "0 configuration members=1.1.1,2.1.1 together=1.1.1,2.1.1"
    assert len(judged(BOTH, view(lost, "transitional"), view(lost))) == 3


def test_who_did_not_come_along_is_told_of_though_all_are_there() -> None:
    merged = "0 configuration members=1.1.1,3.1.1 together=1.1.1"
    assert judged(BOTH, view(merged)) == [text(BOTH), merged]


def test_the_rows_of_a_doubled_number_are_of_no_account_to_the_checkers() -> None:
    outcome = play(FIGHT)
    assert not check(outcome.judged_rows).violated
    assert not any(row.node == 2 or "2." in row.message[:2] for row in outcome.judged_rows)
    views = [row.groups for row in outcome.judged_rows if row.kind == "group_view"]
    assert views
    assert not any(name.startswith("2.") for own in views for name in own.processes + own.together)
