"""Each assertion of `corel` fails when what it says is broken."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from invariants_seen import Breakage, assertions_in, failed_at
from totempole.core.inputs import Recalled
from totempole.corel.fences import FenceMark
from totempole.corel.frames import Agreed, Attempted, Colour, Committed, Identified, Placed, encode
from totempole.corel.layer import Replica
from totempole.corel.messages import GROUP, NO_ROUND, Fetch, Priority
from totempole.corel.outbox import Outbox
from totempole.corel.quorum import NO_FORMATION, Formation
from totempole.corel.run import Run, RunId, RunKind, Stamp, primary_run
from totempole.corel.tally import Tally
from totempole.corel.zones import Ordered, Zones
from totempole.groups.events import GroupView
from totempole.types import NO_RING, ConfigurationKind, OrderKey, Place, ProcessId

sys.path.append(str(Path(__file__).parents[1] / "corel"))

from corel_stage import Stage


def run(number: int, origin: int = 1) -> Run:
    return Run(RunId(origin, 1, number), Stamp(4, 1, number, 0), 0, RunKind.HOLD, 0, b"\x92\xa1r\x01")


def a_primary() -> Replica:
    return Stage(3).world.replica(1)


# The layer


def a_log_opened_twice(patch: pytest.MonkeyPatch) -> None:
    Stage(3).world.open(1)


def an_acknowledgement_without_a_plan(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    replica.member.plan = None
    replica.tally.durable = replica.tally.told + 1
    replica.settle()


def a_view_of_others(patch: pytest.MonkeyPatch) -> None:
    members = (ProcessId(9, 1, 1),)
    place = Place(OrderKey(NO_RING, 1, NO_RING), 0)
    a_primary().handler.begin_view(GroupView(GROUP, ConfigurationKind.REGULAR, members, (), place, "join"))


def an_agreement_on_less(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    assert replica.plan is not None
    green = replica.zones.green_runs
    replica.handler._parts = [Priority(replica.plan.log, NO_ROUND, (), (), True)]
    plan = replace(replica.plan, log=replica.zones.log, base=green, green=green, length=99)
    replica.handler._agree(plan)


def a_primary_with_yellow_runs(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    assert replica.plan is not None
    patch.setattr(replica.journal, "step", lambda frame: [])
    replica.zones.yellow.append(run(1))
    replica.handler._establish(replica.plan)


def durability_without_a_plan(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    replica.member.plan = None
    replica.ordering._is_durable(set())


def an_acknowledgement_of_no_plan(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    replica.member.plan = None
    replica.ordering._acknowledgement()


def barriers_without_a_plan(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    replica.member.plan = None
    replica.ordering._tend_barriers()


def an_answer_to_what_nobody_asked(patch: pytest.MonkeyPatch) -> None:
    a_primary().barriers.answered(2, 1, 0)


def an_onlooker_without_a_plan(patch: pytest.MonkeyPatch) -> None:
    a_primary().catch_up.fetch_more()


def a_segment_that_begins_with_something_else(patch: pytest.MonkeyPatch) -> None:
    replica = a_primary()
    replica.catch_up._recalls[1] = (2, Fetch(0, NO_ROUND, 1, 0, 1))
    replica.recalled(Recalled(1, (), encode(Identified(1))))


# Outbox and tally


def our_runs_out_of_order(patch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(1, 1_000)
    outbox.open(1)
    outbox.add(RunKind.HOLD, 0, b"", 0)
    outbox.delivered(outbox.add(RunKind.HOLD, 0, b"", 0).id, True)


def an_acknowledgement_of_what_nobody_has(patch: pytest.MonkeyPatch) -> None:
    Tally().acknowledge(2, 1)


# Zones


def with_red(*runs: Run) -> Zones:
    zones = Zones()
    for each in runs:
        zones.apply(Placed(each, Colour.RED))
    return zones


def green_runs_that_are_not_there(patch: pytest.MonkeyPatch) -> None:
    Zones().recent_runs(1)


def an_attempt_numbered_down(patch: pytest.MonkeyPatch) -> None:
    Zones().apply(Attempted(Formation(0, ())))


def a_commit_that_was_not_attempted(patch: pytest.MonkeyPatch) -> None:
    formation = Formation(1, (1,))
    Zones().apply(Committed(formation, primary_run(formation, {}), ()))


def a_run_placed_twice(patch: pytest.MonkeyPatch) -> None:
    with_red(run(1), run(1))


def an_order_that_begins_past_the_green_line(patch: pytest.MonkeyPatch) -> None:
    Zones().apply(Agreed(1, (), 1, NO_FORMATION, 0))


def another_log(patch: pytest.MonkeyPatch) -> None:
    zones = Zones()
    zones.apply(Agreed(0, (), 0, NO_FORMATION, 7))
    zones.apply(Agreed(0, (), 0, NO_FORMATION, 8))


def a_change_in_green(patch: pytest.MonkeyPatch) -> None:
    zones = Zones()
    zones.apply(Placed(run(1), Colour.GREEN))
    zones.apply(Agreed(0, (run(2).id,), 1, NO_FORMATION, 0))


def a_mark_of_less(patch: pytest.MonkeyPatch) -> None:
    Zones()._begin(Zones().mark())


def a_mark_with_pending_runs(patch: pytest.MonkeyPatch) -> None:
    donor = Zones()
    donor.apply(Placed(run(1), Colour.GREEN))
    donor.apply(Placed(run(2), Colour.RED))
    Zones()._begin(donor.mark())


def a_run_lost_at_a_mark(patch: pytest.MonkeyPatch) -> None:
    donor, zones = Zones(), Zones()
    donor.apply(Placed(run(1), Colour.GREEN))
    zones.vector[2, 1] = 1
    zones._begin(donor.mark())


def a_run_before_the_one_before_it(patch: pytest.MonkeyPatch) -> None:
    with_red(run(2))


def a_promotion_of_what_is_not_red(patch: pytest.MonkeyPatch) -> None:
    with_red(run(1))._take_red([run(2).id])


def a_position_of_what_a_fence_kept_out(patch: pytest.MonkeyPatch) -> None:
    Ordered(run(1), 0, 0, (), 0, FenceMark(1, 0)).position_of(0)


BREAKAGES: tuple[Breakage, ...] = (
    a_log_opened_twice,
    an_acknowledgement_without_a_plan,
    a_view_of_others,
    an_agreement_on_less,
    a_primary_with_yellow_runs,
    durability_without_a_plan,
    an_acknowledgement_of_no_plan,
    barriers_without_a_plan,
    an_answer_to_what_nobody_asked,
    an_onlooker_without_a_plan,
    a_segment_that_begins_with_something_else,
    our_runs_out_of_order,
    an_acknowledgement_of_what_nobody_has,
    green_runs_that_are_not_there,
    an_attempt_numbered_down,
    a_commit_that_was_not_attempted,
    a_run_placed_twice,
    an_order_that_begins_past_the_green_line,
    another_log,
    a_change_in_green,
    a_mark_of_less,
    a_mark_with_pending_runs,
    a_run_lost_at_a_mark,
    a_run_before_the_one_before_it,
    a_promotion_of_what_is_not_red,
    a_position_of_what_a_fence_kept_out,
)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_what_is_broken_is_noticed(breakage: Breakage) -> None:
    assert failed_at(breakage) in assertions_in("corel")


def test_every_assertion_was_seen_to_fail() -> None:
    assert {failed_at(breakage) for breakage in BREAKAGES} == assertions_in("corel")
