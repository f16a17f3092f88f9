"""Checks against random right runs, and against one thing gone wrong in them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from idealrun import IdealRun
from tracebuilder import undecided, violated

from sweeps import examples
from totempole.checkers import Liveness, check


@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 7))
@settings(max_examples=examples(40), deadline=None)
def test_all_properties_hold(seed: int, nodes: int) -> None:
    run = IdealRun(seed, nodes)
    trace = run.rows_of(changes=6, messages=5)
    report = check(trace.rows, True, expectation=Liveness(trace.at_us, tuple(run.components), 0))
    assert (violated(report), undecided(report)) == (set(), set()), str(report)


@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_no_prefix_is_violated(seed: int, data: st.DataObject) -> None:
    rows = IdealRun(seed, 5).rows_of(changes=4, messages=4).rows
    length = data.draw(st.integers(0, len(rows)))
    assert violated(check(rows[:length])) == set()


@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_a_lost_delivery_is_noticed(seed: int, data: st.DataObject) -> None:
    rows = IdealRun(seed, 5).rows_of(changes=4, messages=4).rows
    deliveries = [index for index, row in enumerate(rows) if row.kind == "deliver"]
    index = data.draw(st.sampled_from(deliveries))
    victim = rows.pop(index)
    crashed = any(row.kind == "crash" and row.node == victim.node for row in rows[index:])
    if not crashed:  # a crash may excuse it
        report = check(rows, True)
        blamed = {node for verdict in report.violated for v in verdict.violations for node in v.nodes}
        assert victim.node in blamed


@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_swapped_deliveries_are_noticed(seed: int, data: st.DataObject) -> None:
    rows = IdealRun(seed, 4).rows_of(changes=4, messages=6).rows
    node = data.draw(st.integers(1, 4))
    mine = [index for index, row in enumerate(rows) if row.kind == "deliver" and row.node == node]
    pairs = [(a, b) for a, b in pairwise(mine) if rows[a].ring == rows[b].ring]
    if pairs:
        a, b = data.draw(st.sampled_from(pairs))
        rows[a], rows[b] = (
            rows[b]._replace(step=rows[a].step, at_us=rows[a].at_us),
            rows[a]._replace(step=rows[b].step, at_us=rows[b].at_us),
        )
        assert "global-order" in violated(check(rows))
