"""The properties of one ring: Totem chapter 3 and §§4.1 to 4.5."""

from __future__ import annotations

from collections.abc import Callable

from totempole.checkers.agreed import agreed_order
from totempole.checkers.causal import causal_order
from totempole.checkers.consensus import membership_agreement
from totempole.checkers.content import service_kept, timestamps
from totempole.checkers.history import History
from totempole.checkers.liveness import liveness
from totempole.checkers.membership import (
    configuration_change_consistency,
    outsiders_break_no_ring,
    termination,
    unique_configurations,
)
from totempole.checkers.notices import justified_expulsion, safe_notices
from totempole.checkers.property import Layer, Property, Scope
from totempole.checkers.reliable import (
    all_messages_absent_change,
    delivery_in_origin_configuration,
    no_spurious_delivery,
    same_messages_in_consecutive_configurations,
    self_delivery,
    single_delivery,
    transitional_delivery,
    unique_messages,
)
from totempole.checkers.safe import safe_delivery
from totempole.checkers.steady import steady_rings
from totempole.checkers.storage import written_before_used
from totempole.checkers.terms import Terms
from totempole.checkers.total import global_order
from totempole.checkers.verdict import Findings

_Check = Callable[[History, Terms, Findings], None]


def _property(name: str, citation: str, scope: Scope, check: _Check, *reads: str) -> Property[History]:
    return Property(name, "srp", citation, scope, check, frozenset(reads))


_MADE = "originate"
_GOT = "receive"
_GAVE = "deliver"

RING = Layer(
    "srp",
    lambda indices: History(indices.rows, indices.facts),
    frozenset(
        {
            *("restart", "crash", "leave", "fault", "state", "configuration", "join", "suspect", "blame"),
            *("persist", "persisted"),
        }
    ),
    (
        _property("unique-configurations", "Totem §3.4, theorem 4.1", Scope.RUN, unique_configurations),
        _property("membership-agreement", "Totem §3.3, theorem 4.2", Scope.RUN, membership_agreement),
        _property("termination", "Totem §3.4, theorem 4.3", Scope.RUN, termination),
        _property(
            "configuration-change-consistency",
            "Totem §3.4, theorem 4.4",
            Scope.RUN,
            configuration_change_consistency,
        ),
        _property("outsiders-break-no-ring", "Totem §4.2", Scope.RUN, outsiders_break_no_ring),
        _property("justified-expulsion", "Totem §4.1", Scope.RING, justified_expulsion, _MADE, _GOT),
        _property("steady-rings", "Totem §3.4, theorem 4.3", Scope.RUN, steady_rings),
        _property("written-before-used", "Totem §4.2 and §5.1", Scope.NODE, written_before_used, _MADE),
        _property(
            "unique-messages", "Totem §3.5, theorem 4.5", Scope.RUN, unique_messages, _MADE, _GOT, _GAVE
        ),
        _property("single-delivery", "Totem §3.5, theorem 4.6", Scope.MESSAGE, single_delivery, _GAVE),
        _property("no-spurious-delivery", "Totem §3.5", Scope.MESSAGE, no_spurious_delivery, _MADE, _GAVE),
        _property("self-delivery", "Totem §3.5, theorem 4.7", Scope.MESSAGE, self_delivery, _MADE, _GAVE),
        _property(
            "all-messages-absent-change",
            "Totem §3.5, theorem 4.8",
            Scope.RING,
            all_messages_absent_change,
            *(_MADE, _GAVE),
        ),
        _property(
            "delivery-in-origin-configuration",
            "Totem theorem 4.9",
            Scope.MESSAGE,
            delivery_in_origin_configuration,
            _GAVE,
        ),
        _property(
            "same-messages-in-consecutive-configurations",
            "Totem §3.5, theorem 4.10",
            Scope.RING,
            same_messages_in_consecutive_configurations,
            _GAVE,
        ),
        _property(
            "transitional-delivery",
            "Totem §4.3, figure 4.15",
            Scope.RING,
            transitional_delivery,
            *(_MADE, _GOT, _GAVE),
        ),
        _property(
            "causal-order", "Totem §3.5, theorems 4.11 and 4.12", Scope.RUN, causal_order, _MADE, _GAVE
        ),
        _property(
            "agreed-order", "Totem §3.5, theorems 4.13 and 4.14", Scope.RING, agreed_order, _MADE, _GAVE
        ),
        _property("safe-delivery", "Totem §3.5, theorem 4.15", Scope.RING, safe_delivery, _MADE, _GOT, _GAVE),
        _property(
            "safe-notices", "Totem §4.1, theorem 4.15", Scope.RING, safe_notices, "safe", _MADE, _GOT, _GAVE
        ),
        _property(
            "service-kept",
            "Totem §3.5, theorem 4.16",
            Scope.MESSAGE,
            service_kept,
            *("submit", _MADE, _GOT, _GAVE),
        ),
        _property("global-order", "Totem §3.5, theorems 4.17 and 4.18", Scope.RUN, global_order, _GAVE),
        _property("timestamps", "Totem §5.1", Scope.RUN, timestamps, _MADE, _GAVE),
        _property(
            "liveness",
            "Totem §4.5, theorems 4.3, 4.7 and 4.8",
            Scope.MESSAGE,
            liveness,
            "submit",
            _MADE,
            _GAVE,
        ),
    ),
)
