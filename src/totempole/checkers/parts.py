"""A long run judged in parts by the same checks.

A part has the rows of some messages, rings, nodes or groups, as the property's scope says, and the context:
what tells of lives and configurations, which every check asks for. Where a life's last row is not in a part,
a mark stands for it, because checks ask how far a node's trace goes.

What a check finds in the context it finds in every part, so equal findings of several parts are one.

A trace in which one place holds two messages, or one message has two places, does not fall into such parts;
`unique-messages`, which is never split, says so of it, and other properties may say more or less than of the
whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from zlib import crc32

from totempole.checkers.property import Indices, Layer, Property, Scope, facts_of
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import LISTED_MAX, Outcome, Verdict, Violation
from totempole.trace.schema import Row

PART_LISTED_MAX = 10_000
"""Findings that the verdict on one part lists, so that those of several parts can be told apart."""

_KEYS: Mapping[Scope, Callable[[Row], tuple[str, ...]]] = {
    Scope.MESSAGE: lambda row: (row.message,),
    Scope.RING: lambda row: (row.ring,),
    Scope.NODE: lambda row: (str(row.node),),
    Scope.GROUP: lambda row: row.groups.to or (row.group,),
    Scope.PLACE: lambda row: (str(row.corel.place),),
    Scope.RUN: lambda row: ("",),
}
"""What a row is of, in each scope. A row may be of several groups."""


def parts_of(row: Row, scope: Scope, parts: int) -> set[int]:
    """The numbers of the parts that a row belongs to."""
    return {crc32(key.encode("utf-8", "surrogatepass")) % parts for key in _KEYS[scope](row)}


def split(
    rows: Iterable[Row], layer: Layer[Any], scope: Scope, reads: frozenset[str], parts: int
) -> list[list[Row]]:
    """The rows of each part, in the order of the run's."""
    found: list[list[Row]] = [[] for _ in range(parts)]
    rows = list(rows)
    marks = marks_of(rows, layer)
    for row in rows:
        mark = marks.get((row.node, row.step))
        mine = parts_of(row, scope, parts) if row.kind in reads else set()
        for number, part in enumerate(found):
            if number in mine or row.kind in layer.context:
                part.append(row)
            elif mark is not None:
                part.append(mark)
    return found


def marks_of(rows: Iterable[Row], layer: Layer[Any]) -> dict[tuple[int, int], Row]:
    """What stands for the last row of each incarnation of a node, and for the first of each process, where
    the row itself is not there. By node and step."""
    last: dict[tuple[int, int], Row] = {}
    first: dict[str, Row] = {}
    for row in rows:
        if row.kind != "fault":
            known = last.setdefault((row.node, row.incarnation), row)
            if row.step > known.step:
                last[row.node, row.incarnation] = row
        if row.process:
            known = first.setdefault(row.process, row)
            if (row.node, row.step) < (known.node, known.step):
                first[row.process] = row
    marks = {(row.node, row.step): mark(row) for row in last.values()}
    if "process" in layer.context:
        marks |= {(row.node, row.step): mark(row, row.process) for row in first.values()}
    return marks


def mark(row: Row, process: str = "") -> Row:
    kind = "process" if process else "branch"
    return Row(*row[:6], kind, process=process)


def judge_in_parts(
    rows: Iterable[Row], layer: Layer[Any], item: Property[Any], terms: Terms, parts: int
) -> Verdict:
    """The same as of the whole run, but for the order of findings."""
    rows = list(rows)
    facts = facts_of(rows)
    divided = split(rows, layer, item.scope, item.reads, 1 if item.scope is Scope.RUN else parts)
    return merged([layer.judge(item, Indices(part, facts), terms, PART_LISTED_MAX) for part in divided])


def merged(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict of those on the parts of a run."""
    verdicts = list(verdicts)
    violations: Counter[Violation] = Counter()
    for verdict in verdicts:
        violations |= Counter(verdict.violations)
    reasons = tuple(dict.fromkeys(reason for verdict in verdicts for reason in verdict.reasons))
    unlisted = sum(verdict.count - len(verdict.violations) for verdict in verdicts)
    count = violations.total() + unlisted
    outcome = Outcome.VIOLATED if count else Outcome.UNDECIDED if reasons else Outcome.HOLDS
    notes = {verdict.note for verdict in verdicts}
    return Verdict(
        verdicts[0].property,
        outcome,
        tuple(violations.elements())[:LISTED_MAX],
        count,
        reasons[:LISTED_MAX],
        notes.pop() if len(notes) == 1 else "",
    )
