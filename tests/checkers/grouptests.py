"""What the tests of the properties of groups share: a small trace, and ways to break it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from groupbuilder import GroupBuilder
from tracebuilder import column, matches, violated, with_columns

from totempole.checkers import Liveness, Verdict, check
from totempole.trace.schema import Row

A, B, C = "1.1.1", "2.1.1", "3.1.1"


def three(*groups: str) -> GroupBuilder:
    """Three nodes with a process each, all in these groups."""
    trace = GroupBuilder()
    trace.ring(1, 2, 3)
    for node in (1, 2, 3):
        process = trace.connect(node)
        trace.join(process, *(groups or ("g",)))
    return trace


def broken(
    rows: list[Row],
    name: str,
    nodes: Iterable[int],
    messages: Iterable[str] = (),
    only: Iterable[str] = (),
    **terms: Any,
) -> Verdict:
    """Checks that the property is violated, by these nodes over these messages, and nothing but `only`."""
    report = check(rows, **{"complete": True, **terms})
    assert violated(report) == {name, *only}, str(report)
    verdict = report[name]
    wanted = (tuple(nodes), set(messages))
    assert any((item.nodes, set(item.messages)) == wanted for item in verdict.violations), str(verdict)
    assert all(item.steps for item in verdict.violations), str(verdict)
    return verdict


def holds(rows: list[Row], **terms: Any) -> None:
    report = check(rows, **{"complete": True, **terms})
    assert violated(report) == set(), str(report)


def settled(trace: GroupBuilder, *nodes: int) -> Liveness:
    return Liveness(trace.at_us, (nodes or (1, 2, 3),), 0)


def the_row(rows: list[Row], **where: Any) -> Row:
    found = [row for row in rows if matches(row, where)]
    assert found, f"no row has {where}"
    return found[-1]


def replaced(rows: list[Row], old: Row, **columns: Any) -> list[Row]:
    return [with_columns(row, **columns) if row is old else row for row in rows]


def view_of(row: Row) -> dict[str, Any]:
    names = ("group", "configuration_kind", "ring", "seq", "members", "count", "reason")
    own = ("index", "processes", "together")
    return {name: column(row, name) for name in (*names, *own)}


def delivery_of(row: Row) -> dict[str, Any]:
    names = ("message", "origin", "service", "count", "bytes", "ring", "seq", "digest", "to", "index")
    return {name: column(row, name) for name in names}
