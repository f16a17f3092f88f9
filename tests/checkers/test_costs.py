"""What changes of configuration cost, counted by hand and in runs under faults."""

from __future__ import annotations

from typing import Any

import pytest
from test_broken_traces import ring
from tracebuilder import TraceBuilder, move

from sweeps import first_of
from totempole.checkers.costs import Costs, costs_of
from totempole.sim.fuzz.plan import plan
from totempole.sim.script_runner import run


def state(trace: TraceBuilder, node: int, text: str) -> None:
    columns: dict[str, Any] = {"ring": "12@1", "members": (1, 2), **move(text)}
    trace.row(node, "state", **columns)


def test_counted_by_hand() -> None:
    trace = ring(1, 2)
    state(trace, 1, "recover>operational ring installed")
    state(trace, 1, "operational>gather token loss")
    for _ in range(3):
        state(trace, 1, "gather>commit consensus")
        state(trace, 1, "commit>gather token loss")
    state(trace, 1, "gather>commit consensus")
    state(trace, 1, "recover>operational ring installed")
    trace.row(2, "retransmit", ring="8@1", seq=1)
    assert costs_of(trace.rows) == Costs(
        configurations=2, without_ring_us=80, attempts=4, attempts_max=6, retransmissions=1
    )


@pytest.mark.parametrize("seed", first_of([3, 5]))
def test_the_bound_on_attempts_holds_under_faults(seed: int) -> None:
    costs = costs_of(run(plan(seed), level="checked").rows)
    assert 0 < costs.attempts <= costs.attempts_max
