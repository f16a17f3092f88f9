"""A fence is known as long as the layer remembers it, and then as one that was never moved."""

from __future__ import annotations

import pytest
from logbuilder import three
from test_broken_logs import broken, fine, step

from totempole.checkers import corel_fences
from totempole.types import Fence


def test_marks_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corel_fences, "FENCES_MAX", 2)
    trace = three()
    for name in "abac":
        trace.send(1, 2, 3, fence=Fence(name, 9 if name == "a" and "a" in trace.queues[1].marks else 1, 0, 1))
    for node in (1, 2, 3):
        del trace.queues[node].marks["b"]
    trace.send(1, 2, 3, fence=step(1, "b"))
    fine(trace.rows)
    for node in (1, 2, 3):
        del trace.queues[node].marks["c"]
    trace.send(1, 2, 3, fence=step(1, "c"))
    broken(trace.rows, "fences", [1])
