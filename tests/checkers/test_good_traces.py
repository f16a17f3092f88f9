"""On a right trace every property holds; on a part of one nothing is violated."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from goodtraces import P, Q, R, S, T, U, V, figure_4_15, figure_4_16
from tracebuilder import TraceBuilder, undecided, violated, without

from totempole.checkers import PROPERTIES, Liveness, Outcome, check
from totempole.errors import TraceError


def test_figure_4_15_holds() -> None:
    trace = figure_4_15()
    expectation = Liveness(trace.at_us, ([P], [Q, R, S, T, U, V]), 0)
    assert {v.outcome for v in check(trace.rows, True, expectation=expectation).verdicts} == {Outcome.HOLDS}


def test_figure_4_16_holds() -> None:
    trace = figure_4_16()
    expectation = Liveness(trace.at_us, ([P, Q, R, S, T, U, V],), 0)
    report = check(trace.rows, True, expectation=expectation)
    assert {v.outcome for v in report.verdicts} == {Outcome.HOLDS}, str(report)


def test_every_property_has_a_verdict_in_order() -> None:
    assert [v.property for v in check([]).verdicts] == [item.name for item in PROPERTIES]


@pytest.mark.parametrize("make", [figure_4_15, figure_4_16])
def test_no_prefix_is_violated(make: Callable[[], TraceBuilder]) -> None:
    rows = make().rows
    for length in range(len(rows)):
        assert violated(check(rows[:length])) == set(), f"the first {length} rows"


def test_rows_in_any_order_between_nodes() -> None:
    rows = figure_4_16().rows
    random.Random(1).shuffle(rows)
    assert violated(check(rows, True)) == set()


def test_rows_of_two_runs_are_refused() -> None:
    rows = figure_4_15().rows
    with pytest.raises(TraceError, match="several runs"):
        check([*rows, rows[0]._replace(run="other")])


def test_deliveries_only_level_is_enough() -> None:
    rows = without(figure_4_16().rows, kind="receive")
    assert violated(check(rows, True)) == set()


def test_a_member_without_a_trace_leaves_its_neighbours_undecided() -> None:
    rows = without(figure_4_16().rows, node=S)
    report = check(rows, True, expectation=Liveness(10**9, ([P, Q, R, S, T, U, V],), 0))
    assert violated(report) == set(), str(report)
    assert undecided(report) == {
        "membership-agreement",
        "termination",
        "configuration-change-consistency",
        "no-spurious-delivery",
        "all-messages-absent-change",
        "same-messages-in-consecutive-configurations",
        "transitional-delivery",
        "causal-order",
        "agreed-order",
        "safe-delivery",
        "service-kept",
        "liveness",
    }


def test_clocks_that_differ_are_not_compared() -> None:
    rows = [row._replace(at_us=-row.at_us if row.node == P else row.at_us) for row in figure_4_16().rows]
    assert violated(check(rows, True, same_clock=False)) == set()
