"""The properties of a ring on several networks (RRP §§3, 5, 6), and what they are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from totempole.checkers.history import History
from totempole.checkers.network_faults import (
    alarms,
    no_configuration,
    no_false_alarm,
    no_needless_retransmission,
)
from totempole.checkers.network_history import NetworkHistory, agreement
from totempole.checkers.property import Indices, Layer, Property, Scope
from totempole.checkers.ring import RING
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row

_Check = Callable[[NetworkHistory, Terms, Findings], None]


def _property(name: str, citation: str, scope: Scope, check: _Check, *reads: str) -> Property[NetworkHistory]:
    return Property(name, "networks", citation, scope, check, frozenset(reads))


def _index(indices: Indices) -> NetworkHistory:
    history: History = indices.of(RING)
    rows: Iterable[Row] = indices.rows
    return NetworkHistory(history, rows)


NETWORKS = Layer(
    "networks",
    _index,
    frozenset({"restart", "crash", "leave", "configuration"}),
    (
        _property("network-agreement", "RRP §3", Scope.RING, agreement, "network", "deliver"),
        _property("network-no-configuration", "RRP §3", Scope.RUN, no_configuration),
        _property("network-alarmed", "RRP A5, P4", Scope.RUN, alarms, "network"),
        _property("network-no-false-alarm", "RRP A6, P5", Scope.RUN, no_false_alarm, "network"),
        _property(
            "no-needless-retransmission", "RRP A2, P1", Scope.RUN, no_needless_retransmission, "retransmit"
        ),
    ),
)
