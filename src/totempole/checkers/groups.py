"""The properties of process groups: Totem CACM's, and those of state for joiners."""

from __future__ import annotations

from collections.abc import Callable

from totempole.checkers.group_company import honest_company
from totempole.checkers.group_content import whole_or_nothing
from totempole.checkers.group_fifo import first_in_first_out
from totempole.checkers.group_history import GroupHistory
from totempole.checkers.group_liveness import group_liveness
from totempole.checkers.group_order import one_order
from totempole.checkers.group_safe import safe_notices
from totempole.checkers.group_state import state_transfer
from totempole.checkers.group_synchrony import virtual_synchrony
from totempole.checkers.group_views import self_inclusion, view_agreement, views_first
from totempole.checkers.property import Layer, Property, Scope
from totempole.checkers.ring import RING
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings

NO_GROUPS = "no groups in this run"

_Check = Callable[[GroupHistory, Terms, Findings], None]


def _property(name: str, citation: str, scope: Scope, check: _Check, *reads: str) -> Property[GroupHistory]:
    return Property(name, "groups", citation, scope, check, frozenset(reads))


_VIEW = "group_view"
_GAVE = "group_deliver"
_INTERFACE = "Totem CACM process group interface"

GROUPS = Layer(
    "groups",
    lambda indices: GroupHistory(indices.rows, indices.of(RING)),
    RING.context | {"process", "group_join", "group_leave"},
    (
        _property("group-view-agreement", _INTERFACE, Scope.GROUP, view_agreement, _VIEW),
        _property("group-self-inclusion", _INTERFACE, Scope.RUN, self_inclusion, _VIEW, _GAVE),
        _property("group-views-first", "Totem CACM virtual synchrony", Scope.RUN, views_first, _VIEW, _GAVE),
        _property(
            "group-honest-company",
            "Totem CACM extended virtual synchrony",
            Scope.GROUP,
            honest_company,
            _VIEW,
        ),
        _property(
            "group-virtual-synchrony",
            "Totem CACM virtual synchrony",
            Scope.GROUP,
            virtual_synchrony,
            _VIEW,
            _GAVE,
        ),
        _property("group-one-order", _INTERFACE, Scope.RUN, one_order, _VIEW, _GAVE),
        _property(
            "group-first-in-first-out",
            _INTERFACE,
            Scope.RUN,
            first_in_first_out,
            *(_VIEW, _GAVE, "group_send", "deliver"),
        ),
        _property("group-whole-or-nothing", _INTERFACE, Scope.MESSAGE, whole_or_nothing, "group_send", _GAVE),
        _property(
            "group-safe-notices",
            "Totem §3.5, theorem 4.15",
            Scope.RUN,
            safe_notices,
            *("group_safe", _GAVE, "originate", "receive"),
        ),
        _property(
            "group-state-transfer",
            "docs: joining with state",
            Scope.GROUP,
            state_transfer,
            _VIEW,
            "group_state",
        ),
        _property(
            "group-liveness",
            _INTERFACE,
            Scope.RUN,
            group_liveness,
            *(_VIEW, _GAVE, "group_send", "group_state", "deliver"),
        ),
    ),
    says=lambda groups: bool(groups.processes),
    silence=NO_GROUPS,
)
