"""Checks of groups against random right runs, and against one thing gone wrong in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from groupbuilder import GroupBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from idealgroups import IdealGroups
from tracebuilder import TraceBuilder, undecided, violated

from sweeps import examples
from totempole.checkers import Liveness, Report, check
from totempole.checkers.groups import GROUPS, NO_GROUPS
from totempole.trace.schema import Row


def judged(run: IdealGroups, rows: list[Row]) -> Report:
    return check(rows, True, expectation=Liveness(run.trace.at_us, tuple(run.components), 0))


@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 6))
@settings(max_examples=examples(40), deadline=None)
def test_all_properties_hold(seed: int, nodes: int) -> None:
    run = IdealGroups(seed, nodes)
    report = judged(run, run.rows_of(changes=5, acts=12).rows)
    assert (violated(report), undecided(report)) == (set(), set()), str(report)


@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_no_prefix_is_violated(seed: int, data: st.DataObject) -> None:
    rows = IdealGroups(seed, 4).rows_of(changes=4, acts=10).rows
    length = data.draw(st.integers(0, len(rows)))
    assert violated(check(rows[:length])) == set()


@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(20), deadline=None)
def test_rows_in_any_order_between_nodes(seed: int) -> None:
    run = IdealGroups(seed, 4)
    rows = run.rows_of(changes=4, acts=10).rows
    random.Random(seed).shuffle(rows)
    assert violated(judged(run, rows)) == set()


def test_a_node_without_a_trace_leaves_its_neighbours_undecided() -> None:
    run = IdealGroups(3, 4)
    rows = [row for row in run.rows_of(changes=4, acts=10).rows if row.node != 2]
    report = judged(run, rows)
    assert violated(report) == set(), str(report)
    assert {name for name in undecided(report) if name.startswith("group-")} == {
        "group-view-agreement",
        "group-honest-company",
        "group-virtual-synchrony",
        "group-first-in-first-out",
        "group-whole-or-nothing",
        "group-liveness",
    }


def test_clocks_that_differ_are_not_compared() -> None:
    run = IdealGroups(3, 4)
    rows = run.rows_of(changes=4, acts=10).rows
    rows = [row._replace(at_us=-row.at_us if row.node == 2 else row.at_us) for row in rows]
    assert violated(check(rows, True, same_clock=False)) == set()


def _lost(rows: list[Row], index: int) -> list[Row]:
    return rows[:index] + rows[index + 1 :]


def _again(rows: list[Row], index: int) -> list[Row]:
    """A second time, in the step of the next row of the same node."""
    later = [i for i in range(index + 1, len(rows)) if rows[i].node == rows[index].node]
    step = rows[later[0]].step if later else rows[index].step + 1
    return [*rows, rows[index]._replace(step=step)]


def _cut_short(rows: list[Row], index: int) -> list[Row]:
    return [*rows[:index], rows[index]._replace(bytes=rows[index].bytes - 1), *rows[index + 1 :]]


@pytest.mark.parametrize("damage", [_lost, _again, _cut_short])
@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_a_damaged_delivery_is_noticed(
    damage: Callable[[list[Row], int], list[Row]], seed: int, data: st.DataObject
) -> None:
    run = IdealGroups(seed, 3)
    rows = run.rows_of(changes=4, acts=10).rows
    deliveries = [index for index, row in enumerate(rows) if row.kind == "group_deliver"]
    if not deliveries:
        return
    index = data.draw(st.sampled_from(deliveries))
    victim = rows[index]
    if damage is _lost and not _missed(rows, victim):
        return
    report = judged(run, damage(rows, index))
    blamed = {node for verdict in report.violated for item in verdict.violations for node in item.nodes}
    assert victim.node in blamed, str(report)


def _missed(rows: list[Row], victim: Row) -> bool:
    """Whether the receiver goes to its next view with someone who delivered it too."""
    views = [row for row in rows if row.kind == "group_view" and row.at_us > victim.at_us]
    mine = [row for row in views if row.process == victim.process and row.group in victim.groups.to]
    if not mine:
        return False
    together = set(mine[0].groups.together)
    others = {row.process for row in rows if row.kind == "group_deliver" and row.message == victim.message}
    same = {row.process for row in views if _told(row) == _told(mine[0])}
    return victim.process in together and len(together & others & same) > 1


def _told(row: Row) -> tuple[str, str, int, str]:
    return row.group, row.ring, row.seq, row.configuration


@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_swapped_events_are_noticed(seed: int, data: st.DataObject) -> None:
    rows = IdealGroups(seed, 3).rows_of(changes=3, acts=12).rows
    processes = sorted({row.process for row in rows if row.kind == "group_deliver"})
    if not processes:
        return
    process = data.draw(st.sampled_from(processes))
    mine = [
        i
        for i, row in enumerate(rows)
        if row.kind in ("group_deliver", "group_view") and row.process == process
    ]
    pairs = list(pairwise(mine))
    if pairs:
        a, b = data.draw(st.sampled_from(pairs))
        rows[a], rows[b] = (
            rows[b]._replace(step=rows[a].step, at_us=rows[a].at_us),
            rows[a]._replace(step=rows[b].step, at_us=rows[b].at_us),
        )
        assert "group-one-order" in violated(check(rows))


def test_a_run_without_groups_has_nothing_to_judge() -> None:
    trace = TraceBuilder()
    trace.form(1, 2)
    report = check(trace.rows, complete=True)
    assert {verdict.property for verdict in report.verdicts if verdict.note == NO_GROUPS} == {
        item.name for item in GROUPS.properties
    }
    with_groups = GroupBuilder()
    with_groups.ring(1)
    with_groups.connect(1)
    assert not any(verdict.note == NO_GROUPS for verdict in check(with_groups.rows).verdicts)
