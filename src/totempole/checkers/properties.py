"""The properties by name, and the one call that judges a trace by them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from totempole.checkers.agreed import agreed_order
from totempole.checkers.causal import causal_order
from totempole.checkers.content import service_kept, timestamps
from totempole.checkers.history import History
from totempole.checkers.liveness import liveness
from totempole.checkers.membership import (
    configuration_change_consistency,
    outsiders_break_no_ring,
    termination,
    unique_configurations,
)
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
from totempole.checkers.terms import Liveness, Terms
from totempole.checkers.total import global_order
from totempole.checkers.verdict import Findings, Report, Verdict
from totempole.trace.schema import Row


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    citation: str
    check: Callable[[History, Terms, Findings], None]

    def judge(self, history: History, terms: Terms) -> Verdict:
        findings = Findings(self.name)
        self.check(history, terms, findings)
        return findings.verdict()


PROPERTIES: tuple[Property, ...] = (
    Property("unique-configurations", "000 §3.4, theorem 4.1", unique_configurations),
    Property("termination", "000 §3.4, theorem 4.3", termination),
    Property("configuration-change-consistency", "000 §3.4, theorem 4.4", configuration_change_consistency),
    Property("outsiders-break-no-ring", "000 §4.2", outsiders_break_no_ring),
    Property("unique-messages", "000 §3.5, theorem 4.5", unique_messages),
    Property("single-delivery", "000 §3.5, theorem 4.6", single_delivery),
    Property("no-spurious-delivery", "000 §3.5", no_spurious_delivery),
    Property("self-delivery", "000 §3.5, theorem 4.7", self_delivery),
    Property("all-messages-absent-change", "000 §3.5, theorem 4.8", all_messages_absent_change),
    Property("delivery-in-origin-configuration", "000 theorem 4.9", delivery_in_origin_configuration),
    Property(
        "same-messages-in-consecutive-configurations",
        "000 §3.5, theorem 4.10",
        same_messages_in_consecutive_configurations,
    ),
    Property("transitional-delivery", "000 §4.3, figure 4.15", transitional_delivery),
    Property("causal-order", "000 §3.5, theorems 4.11 and 4.12", causal_order),
    Property("agreed-order", "000 §3.5, theorems 4.13 and 4.14", agreed_order),
    Property("safe-delivery", "000 §3.5, theorem 4.15", safe_delivery),
    Property("service-kept", "000 §3.5, theorem 4.16", service_kept),
    Property("global-order", "000 §3.5, theorems 4.17 and 4.18", global_order),
    Property("timestamps", "000 §5.1", timestamps),
    Property("liveness", "000 §4.5, theorems 4.3, 4.7 and 4.8", liveness),
)


def check(
    rows: Iterable[Row],
    complete: bool = False,
    *,
    expectation: Liveness | None = None,
    same_clock: bool = True,
) -> Report:
    """Judges the rows of one run.

    `complete`: the run ended quiescent, and what has not happened by now never will. Otherwise the rows are
    a prefix, and what they cannot tell is undecided. `same_clock`: `at_us` is comparable between nodes.
    """
    history = History(rows)
    terms = Terms(complete, same_clock, expectation)
    return Report(tuple(item.judge(history, terms) for item in PROPERTIES))
