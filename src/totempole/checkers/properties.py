"""The properties by name, and the one call that judges a trace by them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from totempole.checkers.agreed import agreed_order
from totempole.checkers.causal import causal_order
from totempole.checkers.consensus import membership_agreement
from totempole.checkers.content import service_kept, timestamps
from totempole.checkers.group_company import honest_company
from totempole.checkers.group_content import whole_or_nothing
from totempole.checkers.group_fifo import first_in_first_out
from totempole.checkers.group_history import GroupHistory
from totempole.checkers.group_liveness import group_liveness
from totempole.checkers.group_order import one_order
from totempole.checkers.group_safe import safe_notices as group_safe_notices
from totempole.checkers.group_state import state_transfer
from totempole.checkers.group_synchrony import virtual_synchrony
from totempole.checkers.group_views import self_inclusion, view_agreement, views_first
from totempole.checkers.history import History
from totempole.checkers.liveness import liveness
from totempole.checkers.membership import (
    configuration_change_consistency,
    outsiders_break_no_ring,
    termination,
    unique_configurations,
)
from totempole.checkers.notices import justified_expulsion, safe_notices
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
from totempole.checkers.terms import Calm, Liveness, Terms
from totempole.checkers.total import global_order
from totempole.checkers.verdict import Findings, Outcome, Report, Verdict
from totempole.trace.schema import Row

NO_GROUPS = "no groups in this run"


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    citation: str
    check: Callable[[History, Terms, Findings], None]

    def judge(self, history: History, terms: Terms) -> Verdict:
        findings = Findings(self.name)
        self.check(history, terms, findings)
        return findings.verdict()


@dataclass(frozen=True, slots=True)
class GroupProperty:
    """One of what the group layer tells processes."""

    name: str
    citation: str
    check: Callable[[GroupHistory, Terms, Findings], None]

    def judge(self, groups: GroupHistory, terms: Terms) -> Verdict:
        if not groups.processes:
            return Verdict(self.name, Outcome.HOLDS, note=NO_GROUPS)
        findings = Findings(self.name)
        self.check(groups, terms, findings)
        return findings.verdict()


RING_PROPERTIES: tuple[Property, ...] = (
    Property("unique-configurations", "000 §3.4, theorem 4.1", unique_configurations),
    Property("membership-agreement", "000 §3.3, theorem 4.2", membership_agreement),
    Property("termination", "000 §3.4, theorem 4.3", termination),
    Property("configuration-change-consistency", "000 §3.4, theorem 4.4", configuration_change_consistency),
    Property("outsiders-break-no-ring", "000 §4.2", outsiders_break_no_ring),
    Property("justified-expulsion", "000 §4.1", justified_expulsion),
    Property("steady-rings", "000 §3.4, theorem 4.3", steady_rings),
    Property("written-before-used", "000 §4.2 and §5.1", written_before_used),
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
    Property("safe-notices", "000 §4.1, theorem 4.15", safe_notices),
    Property("service-kept", "000 §3.5, theorem 4.16", service_kept),
    Property("global-order", "000 §3.5, theorems 4.17 and 4.18", global_order),
    Property("timestamps", "000 §5.1", timestamps),
    Property("liveness", "000 §4.5, theorems 4.3, 4.7 and 4.8", liveness),
)

GROUP_PROPERTIES: tuple[GroupProperty, ...] = (
    GroupProperty("group-view-agreement", "003 process group interface", view_agreement),
    GroupProperty("group-self-inclusion", "003 process group interface", self_inclusion),
    GroupProperty("group-views-first", "003 virtual synchrony", views_first),
    GroupProperty("group-honest-company", "003 extended virtual synchrony", honest_company),
    GroupProperty("group-virtual-synchrony", "003 virtual synchrony", virtual_synchrony),
    GroupProperty("group-one-order", "003 process group interface", one_order),
    GroupProperty("group-first-in-first-out", "003 process group interface", first_in_first_out),
    GroupProperty("group-whole-or-nothing", "003 process group interface", whole_or_nothing),
    GroupProperty("group-safe-notices", "000 §3.5, theorem 4.15", group_safe_notices),
    GroupProperty("group-state-transfer", "docs: joining with state", state_transfer),
    GroupProperty("group-liveness", "003 process group interface", group_liveness),
)

PROPERTIES: tuple[Property | GroupProperty, ...] = RING_PROPERTIES + GROUP_PROPERTIES


def check(
    rows: Iterable[Row],
    complete: bool = False,
    *,
    expectation: Liveness | None = None,
    same_clock: bool = True,
    calm: Iterable[Calm] = (),
) -> Report:
    """Judges the rows of one run.

    `complete`: the run ended quiescent, and what has not happened by now never will. Otherwise the rows are
    a prefix, and what they cannot tell is undecided. `same_clock`: `at_us` is comparable between nodes.
    `calm`: stretches in which nothing goes wrong.
    """
    rows = list(rows)
    history = History(rows)
    groups = GroupHistory(rows, history)
    terms = Terms(complete, same_clock, expectation, tuple(calm))
    verdicts = [item.judge(history, terms) for item in RING_PROPERTIES]
    verdicts += [item.judge(groups, terms) for item in GROUP_PROPERTIES]
    return Report(tuple(verdicts))
