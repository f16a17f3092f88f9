"""Each property has traces that break it. The check must say so, name who and what, and blame no other.

`only` lists what else must fall with it: some properties contain parts of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from goodtraces import P, Q, R, S, T, U, V, figure_4_15, figure_4_16
from tracebuilder import TraceBuilder, changed, move, violated, without

from totempole.checkers import PROPERTIES, Liveness, Outcome, Report, Verdict, Violation, check
from totempole.checkers.verdict import LISTED_MAX
from totempole.trace.schema import Row


def ring(*nodes: int) -> TraceBuilder:
    trace = TraceBuilder()
    trace.form(*(nodes or (1, 2, 3)))
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
    assert any(_names(item, nodes, messages) for item in verdict.violations), str(verdict)
    return verdict


def _names(violation: Violation, nodes: Iterable[int], messages: Iterable[str]) -> bool:
    return violation.nodes == tuple(nodes) and set(violation.messages) == set(messages)


# unique-configurations


def test_one_name_for_two_memberships() -> None:
    rows = changed(ring().rows, {"node": 3, "configuration": "8@1"}, members=(1, 3))
    broken(rows, "unique-configurations", [1, 3], only=["configuration-change-consistency"])


def test_one_name_for_two_kinds() -> None:
    trace = ring(1, 2)
    trace.transitional("16@9", [1])
    trace.regular("20@1", [1])
    trace.transitional("14@2", [2])
    trace.regular("16@9", [2], by=[2])
    report = check(trace.rows, complete=True)
    assert "unique-configurations" in violated(report)


def test_a_ring_number_forgotten_in_a_crash() -> None:
    trace = ring(1, 2)
    trace.crash(1, 2)
    trace.start(1, seq=4)
    broken(trace.rows, "unique-configurations", [1])


def test_a_life_that_does_not_begin_alone() -> None:
    trace = ring(1, 2)
    rows = without(trace.rows, configuration="4@2", kind="configuration")
    rows = without(rows, configuration="6@2", kind="configuration")
    rows = changed(rows, {"node": 2, "configuration": "8@1"}, previous="0@0")
    broken(rows, "unique-configurations", [2])


def test_installing_a_configuration_of_others() -> None:
    trace = ring(1, 2)
    trace.move(1, 2, seq=12)
    trace.rows = [row._replace(members=(2,)) if row.configuration == "12@1" else row for row in trace.rows]
    trace.rows = [row._replace(members=(2,)) if row.configuration == "10@1" else row for row in trace.rows]
    broken(trace.rows, "unique-configurations", [1])


def _accept(trace: TraceBuilder, node: int, *names: str) -> None:
    """The node accepts these Commit tokens, one after the other, and none of the rings comes about."""
    for name in names:
        trace.row(node, "state", ring=name, members=(1, 2), **move("gather>commit consensus"))
        trace.row(node, "state", ring=name, members=(1, 2), **move("commit>gather token loss"))


@pytest.mark.parametrize("old", ["16@1", "12@1"])
def test_an_old_commit_token_accepted(old: str) -> None:
    trace = ring(1, 2)
    _accept(trace, 2, "16@1", old)
    broken(trace.rows, "unique-configurations", [2])


def test_commit_tokens_accepted_in_the_order_of_their_numbers() -> None:
    trace = ring(1, 2)
    _accept(trace, 2, "12@1", "16@1", "20@1")
    assert violated(check(trace.rows, complete=True)) == set()


def test_a_commit_token_that_a_life_accepted_before_it_wrote_its_number() -> None:
    """The next life does not know of it."""
    trace = ring(1, 2)
    _accept(trace, 2, "16@1")
    trace.crash(2)
    trace.start(2, seq=12)
    _accept(trace, 2, "16@1")
    assert violated(check(trace.rows)) == set()


# termination


def test_left_behind_by_a_member_that_moved_on() -> None:
    trace = ring()
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2])
    broken(trace.rows, "termination", [2, 3])


def test_left_behind_by_a_member_that_crashed() -> None:
    trace = ring(1, 2)
    trace.crash(2)
    broken(trace.rows, "termination", [1, 2])
    assert check(trace.rows)["termination"].outcome is Outcome.UNDECIDED


def test_left_behind_by_a_member_that_left() -> None:
    trace = ring(1, 2)
    trace.leave(1)
    broken(trace.rows, "termination", [1, 2])


def test_stuck_in_a_transitional_configuration() -> None:
    trace = ring(1, 2)
    trace.transitional("10@1", [1, 2])
    broken(trace.rows, "termination", [1])


# configuration-change-consistency


def test_two_ends_of_one_configuration() -> None:
    trace = ring(1, 2)
    trace.move(1, 2, seq=12)
    rows = changed(trace.rows, {"node": 2, "configuration": "10@1", "kind": "configuration"}, seq=5)
    broken(rows, "configuration-change-consistency", [1, 2])


def test_a_transitional_configuration_wider_than_the_next() -> None:
    trace = ring(1, 2)
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1])
    trace.regular("12@2", [2])
    broken(trace.rows, "configuration-change-consistency", [1])


def test_a_transitional_configuration_from_two_rings() -> None:
    trace = TraceBuilder()
    trace.start(1, 2)
    trace.transitional("6@1", [1, 2])
    trace.regular("8@1", [1, 2])
    broken(trace.rows, "configuration-change-consistency", [1, 2])


def test_a_ring_without_a_transition() -> None:
    trace = TraceBuilder()
    trace.start(1)
    trace.regular("8@1", [1])
    broken(trace.rows, "configuration-change-consistency", [1])


def test_the_wrong_configuration_terminated() -> None:
    rows = changed(
        ring(1, 2).rows, {"node": 2, "configuration": "6@2", "kind": "configuration"}, previous="4@1"
    )
    broken(rows, "configuration-change-consistency", [2])


# unique-messages


def test_one_place_for_two_messages() -> None:
    trace = ring(1, 2)
    first = trace.send(1, 2)
    second = trace.originate(2, seq=1)
    report = check(trace.rows)
    assert violated(report) == {"unique-messages", "causal-order"}
    assert _names(report["unique-messages"].violations[0], [1, 2], [first, second])


def test_one_message_in_two_places() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "receive", "message": message}, seq=7)
    broken(rows, "unique-messages", [1, 2], [message])


def test_a_message_originated_twice() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    original = next(row for row in trace.rows if row.kind == "originate")
    rows = [*trace.rows, original._replace(step=original.step + 100)]
    broken(rows, "unique-messages", [1], [message], only=["causal-order", "timestamps"])


# single-delivery


def test_delivered_twice() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    trace.deliver(message, 2)
    broken(trace.rows, "single-delivery", [2], [message], only=["agreed-order", "global-order"])


def test_delivered_in_both_the_regular_and_the_transitional_configuration() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    trace.transitional("10@1", [1, 2])
    trace.deliver(message, 1, 2)
    trace.regular("12@1", [1, 2])
    broken(trace.rows, "single-delivery", [1], [message], only=["agreed-order", "global-order"])


def test_delivered_again_in_another_life() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    trace.crash(2)
    trace.move(1, seq=12)
    trace.start(2, seq=16)
    trace.deliver(message, 2)
    broken(
        trace.rows,
        "single-delivery",
        [2],
        [message],
        only=["delivery-in-origin-configuration", "global-order"],
    )


# no-spurious-delivery


def test_delivered_but_never_originated() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = without(trace.rows, kind="originate", message=message)
    broken(rows, "no-spurious-delivery", [1], [message])


def test_delivered_before_it_was_originated() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "deliver", "node": 2}, at_us=1)
    broken(rows, "no-spurious-delivery", [1, 2], [message])
    assert violated(check(rows, same_clock=False)) == set()


def test_delivered_as_from_another() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "deliver", "node": 2}, origin=2)
    broken(rows, "no-spurious-delivery", [1, 2], [message])


def test_originated_on_a_ring_of_others() -> None:
    trace = ring(1, 2)
    trace.start(3)
    message = trace.originate(3)
    trace.deliver(message, 1, 2, 3)
    rows = [row._replace(ring="8@1") if row.message == message else row for row in trace.rows]
    broken(
        rows,
        "no-spurious-delivery",
        [1, 2, 3],
        [message],
        only=["delivery-in-origin-configuration"],
    )


# self-delivery


def test_own_message_lost_in_a_change() -> None:
    trace = ring(1, 2)
    message = trace.originate(1)
    trace.move(1, 2, seq=12)
    broken(trace.rows, "self-delivery", [1], [message], only=["transitional-delivery"], complete=False)


def test_own_message_never_delivered() -> None:
    trace = ring(1)
    message = trace.originate(1)
    broken(trace.rows, "self-delivery", [1], [message], only=["all-messages-absent-change"])
    assert check(trace.rows)["self-delivery"].outcome is Outcome.UNDECIDED


def test_a_crash_excuses_from_self_delivery() -> None:
    trace = ring(1)
    trace.originate(1)
    trace.crash(1)
    assert check(trace.rows, complete=True)["self-delivery"].outcome is Outcome.HOLDS


# all-messages-absent-change


def test_a_message_missed_in_a_lasting_configuration() -> None:
    trace = ring()
    message = trace.send(1, 2)
    broken(trace.rows, "all-messages-absent-change", [3], [message])
    assert check(trace.rows)["all-messages-absent-change"].outcome is Outcome.UNDECIDED


# delivery-in-origin-configuration


def test_delivered_in_a_later_configuration() -> None:
    trace = ring(1, 2)
    message = trace.originate(1)
    trace.receive(message, 2)
    trace.deliver(message, 1)
    trace.transitional("10@1", [1])
    trace.regular("12@1", [1])
    trace.transitional("10@2", [2])
    trace.regular("12@2", [2])
    trace.deliver(message, 2)
    broken(
        trace.rows,
        "delivery-in-origin-configuration",
        [2],
        [message],
        only=["global-order", "transitional-delivery"],
    )


def test_delivered_in_no_configuration() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    trace.crash(2)
    trace.move(1, seq=12)
    trace.start(2, seq=16)
    rows = without(trace.rows, configuration="16@2", kind="configuration")
    trace.rows = rows
    trace.deliver(message, 2)
    report = check(trace.rows)
    assert violated(report) == {"delivery-in-origin-configuration", "single-delivery"}


def test_delivered_in_a_configuration_not_in_force() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "deliver", "node": 2}, configuration="6@2")
    broken(rows, "delivery-in-origin-configuration", [2], [message])


# same-messages-in-consecutive-configurations


def test_different_messages_on_the_way_to_the_same_configuration() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(3)
    trace.receive(message, 1, 2)
    trace.deliver(message, 1)
    trace.crash(3)
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2])
    broken(
        trace.rows,
        "same-messages-in-consecutive-configurations",
        [1, 2],
        [message],
        only=["configuration-change-consistency", "transitional-delivery"],
    )


def test_who_has_not_moved_yet_leaves_it_undecided() -> None:
    trace = ring(1, 2)
    trace.transitional("10@1", [1, 2], by=[1])
    name = "same-messages-in-consecutive-configurations"
    assert check(trace.rows)[name].outcome is Outcome.UNDECIDED


# transitional-delivery


def test_a_members_message_missed_in_the_transitional_configuration() -> None:
    trace = ring(1, 2)
    message = trace.originate(2)
    trace.receive(message, 1)
    trace.transitional("10@1", [1, 2])
    trace.deliver(message, 2)
    trace.regular("12@1", [1, 2])
    broken(
        trace.rows,
        "transitional-delivery",
        [1],
        [message],
        only=["same-messages-in-consecutive-configurations"],
    )


# causal-order


def test_an_effect_without_its_cause() -> None:
    trace = ring(1, 2, 3)
    cause = trace.send(3, 1)
    effect = trace.send(1, 3)
    trace.receive(effect, 2)
    trace.transitional("10@2", [2])
    trace.deliver(effect, 2)  # behind a gap, and of no member of {2}
    trace.regular("12@2", [2])
    trace.move(1, 3, seq=12)
    broken(trace.rows, "causal-order", [2], [cause, effect])


def test_an_effect_without_its_originators_earlier_message() -> None:
    trace = ring(1, 2)
    cause = trace.originate(1)
    effect = trace.originate(1)
    trace.receive(effect, 2)
    trace.deliver(cause, 1)
    trace.deliver(effect, 1)
    trace.transitional("10@1", [1])
    trace.regular("12@1", [1])
    trace.transitional("10@2", [2])
    trace.deliver(effect, 2)
    trace.regular("12@2", [2])
    broken(trace.rows, "causal-order", [2], [cause, effect])


def test_originated_below_what_was_delivered() -> None:
    trace = ring(1, 2)
    first = trace.send(1, 2, seq=5)
    second = trace.originate(2, seq=4)
    report = check(trace.rows)
    assert violated(report) == {"causal-order", "agreed-order", "timestamps"}
    assert _names(report["causal-order"].violations[0], [2], [first, second])


def test_originated_below_what_another_life_delivered() -> None:
    trace = ring(1, 2)
    first = trace.send(1, 2)
    trace.crash(2)
    trace.start(2, seq=7)
    second = trace.send(2)
    report = check(trace.rows)
    assert violated(report) == {"causal-order", "unique-configurations"}
    assert _names(report["causal-order"].violations[0], [2], [first, second])


# agreed-order


def test_out_of_order() -> None:
    trace = ring(1, 2)
    first, second = trace.originate(1), trace.originate(2)
    trace.receive(first, 2)
    trace.receive(second, 1)
    trace.deliver(first, 1)
    trace.deliver(second, 1)
    trace.deliver(second, 2)
    trace.deliver(first, 2)
    broken(trace.rows, "agreed-order", [2], [first, second], only=["global-order"])


def test_skipped_in_a_regular_configuration() -> None:
    trace = ring(1, 2, 3)
    lost, kept = trace.originate(3), trace.originate(1)
    trace.receive(kept, 2)
    trace.deliver(kept, 1, 2)
    trace.crash(3)
    trace.move(1, 2, seq=12)
    broken(trace.rows, "agreed-order", [2], [lost, kept])


def test_skipped_in_a_transitional_configuration_that_has_its_originator() -> None:
    trace = ring(1, 2)
    first, second = trace.originate(1), trace.originate(2)
    trace.transitional("10@1", [1, 2])
    trace.deliver(second, 1, 2)
    broken(trace.rows, "agreed-order", [1], [first, second], complete=False)


def test_a_gap_is_legal_when_its_originator_was_left_behind() -> None:
    trace = ring(1, 2, 3)
    trace.originate(3)
    kept = trace.originate(1)
    trace.receive(kept, 2)
    trace.crash(3)
    trace.transitional("10@1", [1, 2])
    trace.deliver(kept, 1, 2)
    trace.regular("12@1", [1, 2])
    assert violated(check(trace.rows, complete=True)) == set()


def test_slots_of_recovery_are_no_gaps() -> None:
    trace = ring(1, 2)
    trace.send(1, 2, seq=3)
    trace.send(2, 1, seq=8)
    assert violated(check(trace.rows, complete=True)) == set()


def test_skipped_what_another_delivered_in_the_same_transitional_configuration() -> None:
    trace = ring(1, 2, 3)
    early, late = trace.originate(3), trace.originate(1)
    trace.receive(early, 1, 2)
    trace.receive(late, 2)
    trace.crash(3)
    trace.transitional("10@1", [1, 2])
    trace.deliver(early, 1)
    trace.deliver(late, 1)
    trace.deliver(late, 2)
    trace.crash(1, 2)
    broken(trace.rows, "agreed-order", [1, 2], [early, late])


# safe-delivery


def test_safe_but_a_member_moved_on_without_it() -> None:
    trace = ring(1, 2)
    message = trace.originate(1, "safe")
    trace.receive(message, 2)
    trace.deliver(message, 1)
    trace.transitional("10@1", [1])
    trace.regular("12@1", [1])
    trace.transitional("10@2", [2])
    trace.regular("12@2", [2])
    broken(trace.rows, "safe-delivery", [1, 2], [message], only=["transitional-delivery"])


def test_safe_but_a_member_never_installed_its_ring() -> None:
    trace = ring(1, 2)
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2], by=[1])
    message = trace.originate(1, "safe")
    trace.deliver(message, 1)
    trace.regular("16@2", [1, 2], by=[2])
    report = check(trace.rows)
    assert violated(report) == {"safe-delivery"}
    assert report["safe-delivery"].violations[0].nodes == (1, 2)


def test_safe_in_a_transitional_configuration() -> None:
    trace = figure_4_16()
    promised = "4.1.1"  # s delivers it as safe in {q, r, s, t}; q owes it in {q}
    rows = [
        row for row in trace.rows if not (row.kind == "deliver" and row.node == Q and row.message == promised)
    ]
    broken(rows, "safe-delivery", [Q, S], [promised])


def test_safe_and_a_member_not_done_yet_is_undecided() -> None:
    trace = ring(1, 2)
    message = trace.originate(1, "safe")
    trace.receive(message, 2)
    trace.deliver(message, 1)
    assert check(trace.rows)["safe-delivery"].outcome is Outcome.UNDECIDED
    trace.crash(2)
    assert check(trace.rows)["safe-delivery"].outcome is Outcome.HOLDS


def test_safe_before_a_member_received_it() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(1, "safe")
    trace.receive(message, 2)
    trace.deliver(message, 1)
    trace.receive(message, 3)
    trace.deliver(message, 2, 3)
    broken(trace.rows, "safe-delivery", [1, 3], [message])
    assert violated(check(trace.rows, complete=True, same_clock=False)) == set()


# service-kept


@pytest.mark.parametrize("wrong", [{"service": "safe"}, {"bytes": 7}])
def test_not_delivered_as_asked(wrong: dict[str, Any]) -> None:
    trace = ring(1, 2)
    message = trace.originate(1)
    trace.receive(message, 2)
    trace.deliver(message, 1)
    trace.deliver(message, 2, **wrong)
    broken(trace.rows, "service-kept", [1, 2], [message])


# global-order


def test_nodes_disagree_whatever_the_numbers_say() -> None:
    trace = ring(1, 2)
    first, second = trace.originate(1), trace.originate(2)
    trace.receive(first, 2)
    trace.receive(second, 1)
    trace.deliver(first, 1)
    trace.deliver(second, 1)
    trace.deliver(second, 2, seq=1)
    trace.deliver(first, 2, seq=2)
    broken(trace.rows, "global-order", [1, 2], [first, second], only=["unique-messages"])


def test_a_change_out_of_place() -> None:
    trace = ring(1, 2)
    trace.send(1, 2)
    message = trace.send(2, 1)
    trace.move(1, 2, seq=12)
    rows = changed(trace.rows, {"configuration": "10@1", "kind": "configuration"}, seq=1)
    broken(rows, "global-order", [1], [message])


# timestamps


def test_a_timestamp_that_does_not_grow_along_the_ring() -> None:
    trace = ring(1, 2)
    first, second = trace.send(1, 2), trace.send(2, 1)
    rows = [row._replace(timestamp=1) if row.message == second else row for row in trace.rows]
    broken(rows, "timestamps", [1, 2], [first, second])


def test_a_timestamp_forgotten_in_a_crash() -> None:
    trace = ring(1)
    first = trace.send(1)
    trace.crash(1)
    trace.start(1, seq=12)
    second = trace.send(1)
    rows = [row._replace(timestamp=1) if row.message == second else row for row in trace.rows]
    broken(rows, "timestamps", [1], [first, second])


def test_a_timestamp_changed_on_the_way() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "deliver", "node": 2}, timestamp=99)
    broken(rows, "timestamps", [1, 2], [message])


def _cause_and_effect(cause_timestamp: int, new_life: bool = False) -> tuple[list[Row], str, str]:
    """2 delivers a message of 1, and sends another one on the next ring."""
    trace = ring(1, 2)
    cause = trace.send(1, 2)
    trace.crash(1)
    if new_life:
        trace.crash(2)
        trace.start(2, seq=12)
    else:
        trace.move(2, seq=12)
    effect = trace.send(2)
    return changed(trace.rows, {"message": cause}, timestamp=cause_timestamp), cause, effect


@pytest.mark.parametrize("cause_timestamp", [2, 50])
def test_a_timestamp_no_later_than_what_was_delivered_on_the_ring_before(cause_timestamp: int) -> None:
    rows, cause, effect = _cause_and_effect(cause_timestamp)
    broken(rows, "timestamps", [2], [cause, effect])


def test_a_timestamp_later_than_what_was_delivered_on_the_ring_before() -> None:
    rows, _, _ = _cause_and_effect(1)
    assert violated(check(rows, complete=True)) == set()


def test_a_timestamp_that_a_life_delivered_last_may_be_lost_with_it() -> None:
    rows, _, _ = _cause_and_effect(50, new_life=True)
    assert violated(check(rows, complete=True)) == set()


# liveness


def test_settled_too_late() -> None:
    trace = figure_4_15()
    at_us = max(
        row.at_us for row in trace.rows if row.configuration == "20@2" and row.kind == "configuration"
    )
    expectation = Liveness(at_us - 100, ([P], [Q, R, S, T, U, V]), 99)
    broken(trace.rows, "liveness", [V], expectation=expectation)


def test_connected_but_apart() -> None:
    trace = figure_4_15()
    everyone = Liveness(trace.at_us, ([P, Q, R, S, T, U, V],), 0)
    broken(trace.rows, "liveness", [P], expectation=everyone)


def test_the_connected_end_in_configurations_of_the_same_members_but_not_the_same() -> None:
    trace = ring(1, 2)
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2], by=[1])
    trace.regular("16@2", [1, 2], by=[2])
    broken(trace.rows, "liveness", [1, 2], only=["termination"], expectation=Liveness(0, ([1, 2],), 10**6))


def test_submitted_and_forgotten() -> None:
    trace = ring(1, 2)
    trace.row(1, "submit", message="1.1.1", origin=1)
    broken(trace.rows, "liveness", [1], ["1.1.1"], expectation=Liveness(0, ([1, 2],), 10**6))


def test_not_everyone_delivers_in_the_final_configuration() -> None:
    trace = ring(1, 2)
    message = trace.originate(1)
    trace.deliver(message, 1)
    broken(
        trace.rows,
        "liveness",
        [2],
        [message],
        only=["all-messages-absent-change"],
        expectation=Liveness(0, ([1, 2],), 10**6),
    )


def test_liveness_is_undecided_without_an_expectation() -> None:
    rows = ring(1, 2).rows
    assert check(rows, complete=True)["liveness"].outcome is Outcome.UNDECIDED
    assert check(rows, expectation=Liveness(0, ([1, 2],), 1))["liveness"].outcome is Outcome.UNDECIDED


def test_a_node_that_never_started_is_not_waited_for() -> None:
    trace = ring(1, 2)
    trace.row(3, "fault", reason="never started")
    report = check(trace.rows, complete=True, expectation=Liveness(0, ([1, 2, 3],), 10**6))
    assert report["liveness"].outcome is Outcome.HOLDS


# how it is said


def test_a_violation_prints_all_there_is_to_know() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    trace.deliver(message, 2)
    text = str(check(trace.rows)["single-delivery"].violations[0])
    assert text == (
        "single-delivery violated; nodes 2; messages 1.1.1; steps (2, 13), (2, 14): "
        "Node 2 delivered message 1.1.1 twice."
    )


def test_many_violations_are_counted_and_few_listed() -> None:
    trace = ring(1, 2)
    for _ in range(LISTED_MAX + 5):
        trace.deliver(trace.send(1, 2), 1)
    verdict = check(trace.rows)["single-delivery"]
    assert (len(verdict.violations), verdict.count) == (LISTED_MAX, LISTED_MAX + 5)
    assert str(verdict).endswith("… and 5 more")


def test_a_report_prints_every_property() -> None:
    report: Report = check(ring(1, 2).rows)
    lines = str(report).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        f"{item.name}: {report[item.name].told()}" for item in PROPERTIES
    ]


def test_a_run_without_groups_says_nothing_of_groups() -> None:
    verdict = check(ring(1, 2).rows)["group-liveness"]
    assert (verdict.outcome, verdict.told()) == (Outcome.HOLDS, "no groups in this run")


# outsiders-break-no-ring


def test_an_outsider_talks_a_member_into_giving_up_on_another() -> None:
    trace = ring(1, 2)
    trace.row(1, "suspect", origin=9, members=(2, 9))
    broken(trace.rows, "outsiders-break-no-ring", [1])


def test_a_companion_may_say_so() -> None:
    trace = ring(1, 2, 3)
    trace.row(1, "suspect", origin=3, members=(2,))
    assert not violated(check(trace.rows, complete=True))
