"""The properties of the durable order: COReL's, its invariants, and those of its log."""

from __future__ import annotations

from collections.abc import Callable

from totempole.checkers.corel_barriers import barriers
from totempole.checkers.corel_causal import causal
from totempole.checkers.corel_colours import colours, durable_before_acknowledged
from totempole.checkers.corel_content import integrity, no_duplication
from totempole.checkers.corel_fences import fences
from totempole.checkers.corel_history import LogHistory
from totempole.checkers.corel_keys import once_per_key
from totempole.checkers.corel_liveness import log_liveness
from totempole.checkers.corel_order import agreed_green, no_changes_in_green, one_order
from totempole.checkers.corel_primaries import one_primary, onlookers, sets
from totempole.checkers.corel_yellow import green_survives, yellow
from totempole.checkers.property import Layer, Property, Scope
from totempole.checkers.ring import RING
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings

NO_LOG = "no log in this run"

_Check = Callable[[LogHistory, Terms, Findings], None]


def _property(name: str, citation: str, scope: Scope, check: _Check, *reads: str) -> Property[LogHistory]:
    return Property(name, "corel", citation, scope, check, frozenset(reads))


_COLOUR = "colour"
_ACCEPT = "accept"
_SETS = "docs: changes of the replica set"

COREL = Layer(
    "corel",
    lambda indices: LogHistory(indices.rows, indices.of(RING)),
    frozenset(
        {
            *("restart", "crash", "leave"),
            *("log_open", "log_close", "primary", "phase", "replica_set", "fetched"),
        }
    ),
    (
        _property("corel-integrity", "COReL Property 3.1", Scope.MESSAGE, integrity, _ACCEPT, _COLOUR),
        _property("corel-no-duplication", "COReL Property 3.2", Scope.MESSAGE, no_duplication, _COLOUR),
        _property("corel-one-order", "COReL Property 3.6", Scope.PLACE, one_order, _COLOUR),
        _property("corel-causal", "COReL Property 3.7, §5.4", Scope.RUN, causal, _ACCEPT, _COLOUR),
        _property("corel-liveness", "COReL Property 3.8", Scope.RUN, log_liveness, _ACCEPT, _COLOUR),
        _property("corel-no-changes-in-green", "COReL §5.4", Scope.NODE, no_changes_in_green, _COLOUR),
        _property("corel-agreed-green", "COReL §5.4", Scope.PLACE, agreed_green, _COLOUR),
        _property("corel-yellow", "COReL §5.4", Scope.PLACE, yellow, _COLOUR),
        _property("corel-colours", "COReL §5.2.1", Scope.MESSAGE, colours, _COLOUR),
        _property("corel-one-primary", "COReL §5.5.1", Scope.RUN, one_primary),
        _property(
            "corel-durable-before-acknowledged",
            "COReL §5.1",
            Scope.NODE,
            durable_before_acknowledged,
            *(_COLOUR, "durable", "acknowledge"),
        ),
        _property("corel-green-survives", "COReL §5.5", Scope.PLACE, green_survives, _COLOUR),
        _property("corel-once-per-key", "docs: keys", Scope.RUN, once_per_key, _ACCEPT, _COLOUR),
        _property("corel-fences", "docs: fences", Scope.RUN, fences, _ACCEPT, _COLOUR),
        _property("corel-sets", _SETS, Scope.RUN, sets),
        _property("corel-onlookers", "COReL §5.5.2, step 5", Scope.RUN, onlookers),
        _property("corel-barriers", "docs: linearisable reads", Scope.RUN, barriers, _COLOUR, "barrier"),
    ),
    says=lambda log: bool(log.by_node),
    silence=NO_LOG,
)
