"""The properties of logs on disk, by themselves and beside the traces of the replicas that wrote them."""

from __future__ import annotations

from collections.abc import Callable

from totempole.checkers.property import Property, Scope
from totempole.checkers.stored_logs import StoredLogs
from totempole.checkers.stored_order import fences, intact, once_per_key, positions, replicas_agree, time
from totempole.checkers.stored_traces import keeps_told, matches_trace
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import LISTED_MAX, Findings, Report


def _property(
    name: str, citation: str, check: Callable[[StoredLogs, Terms, Findings], None], *reads: str
) -> Property[StoredLogs]:
    return Property(name, "stored", citation, Scope.PLACE, check, frozenset(reads))


STORED: tuple[Property[StoredLogs], ...] = (
    _property("log-intact", "docs: durable", intact),
    _property("log-positions", "COReL §5.4", positions),
    _property("log-time", "docs: in order", time),
    _property("log-once-per-key", "docs: keys", once_per_key),
    _property("log-fences", "docs: fences", fences),
    _property("log-replicas-agree", "COReL Property 3.6", replicas_agree),
    _property("log-matches-trace", "COReL Property 3.1, §5.4", matches_trace, "colour"),
    _property("log-keeps-told", "docs: green stays", keeps_told, "colour"),
)
"""Each may be judged range by range of places: what it needs of other ranges is in the marks."""


def judge_stored(logs: StoredLogs, terms: Terms, listed_max: int = LISTED_MAX) -> Report:
    return Report(tuple(item.judge(logs, terms, listed_max) for item in STORED))
