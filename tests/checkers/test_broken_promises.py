"""Traces that break agreement on members, stable storage, contents, and what a processor says of others.

As in test_broken_traces: the check must say so, name who and what, and blame no other.
"""

from __future__ import annotations

from typing import Any

import pytest
from test_broken_traces import _names, ring
from tracebuilder import TraceBuilder, changed, move, violated, without

from totempole.checkers import Outcome, Report, check
from totempole.checkers.terms import Calm
from totempole.trace.schema import Row


def broken(
    rows: list[Row], name: str, nodes: list[int], *messages: str, only: tuple[str, ...] = (), **terms: Any
) -> None:
    report: Report = check(rows, **{"complete": True, **terms})
    assert violated(report) == {name, *only}, str(report)
    assert any(_names(item, nodes, messages) for item in report[name].violations), str(report[name])


# membership-agreement


def test_a_ring_with_one_who_never_heard_of_it() -> None:
    trace = TraceBuilder()
    trace.start(1, 2)
    trace.transitional("6@1", [1])
    trace.regular("8@1", [1, 2], by=[1], agreed=[1])
    trace.send(1)
    trace.transitional("10@1", [1])
    trace.regular("12@1", [1])
    broken(trace.rows, "membership-agreement", [1, 2])


def test_everyone_in_a_ring_of_its_own_with_another() -> None:
    trace = TraceBuilder()
    trace.start(1, 2, 3)
    for seq in (8, 16, 24):
        for node, partner in ((1, 2), (2, 3), (3, 1)):
            name = f"{seq + node}@{min(node, partner)}"
            trace.transitional(f"{seq + node - 2}@{node}", [node])
            trace.regular(name, [node, partner], by=[node], agreed=[node])
    for node in (1, 2, 3):
        trace.transitional(f"38@{node}", [node])
    trace.regular("40@1", [1, 2, 3])
    for node, partner in ((1, 2), (2, 3), (1, 3)):
        broken(trace.rows, "membership-agreement", [node, partner])


def test_a_ring_installed_before_a_member_agreed() -> None:
    trace = ring(1, 2)
    at_us = next(
        row.at_us for row in trace.rows if row.kind == "configuration" and row.configuration == "8@1"
    )
    rows = [
        row._replace(at_us=at_us + 1) if row.node == 2 and row.new_state == "recover" else row
        for row in trace.rows
    ]
    broken(rows, "membership-agreement", [1, 2])
    assert violated(check(rows, complete=True, same_clock=False)) == set()


def test_one_ring_number_agreed_to_with_other_members() -> None:
    rows = changed(
        ring(1, 2, 3).rows,
        {"node": 3, "kind": "state", **move("commit>recover commit token")},
        members=(1, 3),
    )
    broken(rows, "membership-agreement", [1, 3])


def test_a_ring_formed_without_the_consent_of_a_member() -> None:
    rows = changed(ring(1, 2, 3).rows, {"node": 3, "kind": "join"}, failed=(2,))
    broken(rows, "membership-agreement", [1, 3])


def test_a_ring_formed_before_a_member_proposed_it() -> None:
    rows = changed(ring(1, 2).rows, {"node": 2, "kind": "join"}, at_us=10**6)
    broken(rows, "membership-agreement", [1, 2])


def test_a_ring_with_one_who_is_regarded_as_failed() -> None:
    rows = changed(
        ring(1, 2).rows, {"node": 2, "kind": "state", **move("gather>commit consensus")}, failed=(1,)
    )
    broken(rows, "membership-agreement", [2])


def test_the_word_of_a_killed_node_may_be_lost() -> None:
    trace = TraceBuilder()
    trace.start(1, 2)
    trace.transitional("6@1", [1])
    trace.regular("8@1", [1, 2], by=[1], agreed=[1])
    trace.start(2, seq=12)  # nobody wrote down how the first life ended
    assert check(trace.rows)["membership-agreement"].outcome is Outcome.UNDECIDED


# safe-delivery


def test_safe_but_a_member_left_without_it() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(1, "safe")
    trace.receive(message, 2, 3)
    trace.deliver(message, 1, 3)
    trace.leave(2)
    trace.move(1, 3, seq=12)
    broken(trace.rows, "safe-delivery", [1, 2], message)


def test_a_leave_that_runs_out_of_time_is_a_failure() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(1, "safe")
    trace.receive(message, 2, 3)
    trace.deliver(message, 1, 3)
    trace.row(2, "state", ring="8@1", members=(1, 2, 3), **move("operational>left leave timeout"))
    trace.leave(2)
    trace.move(1, 3, seq=12)
    assert violated(check(trace.rows, complete=True)) == set()


def test_safe_by_the_receipt_of_another_life() -> None:
    trace = ring(1, 2)
    message = trace.originate(1, "safe")
    trace.crash(2)
    trace.start(2, seq=12)
    trace.receive(message, 2)
    trace.deliver(message, 1)
    broken(trace.rows, "safe-delivery", [1, 2], message, only=("termination",))


# no-spurious-delivery


def test_the_last_messages_of_a_killed_node_are_no_forgeries() -> None:
    trace = ring(1, 2)
    trace.send(2, 1)
    lost = trace.send(1, 2)
    rows = [row for row in trace.rows if row.node != 1 or row.message != lost]
    killed_us = max(row.at_us for row in rows if row.node == 1)
    trace.rows = rows
    trace.crash(1, reason="killed")
    trace.rows[-1] = trace.rows[-1]._replace(at_us=killed_us)
    trace.move(2, seq=12)
    assert check(trace.rows, complete=True)["no-spurious-delivery"].outcome is Outcome.UNDECIDED
    assert violated(check(trace.rows, complete=True)) == set()


def test_a_forgery_that_the_trace_of_a_killed_node_reaches_beyond() -> None:
    trace = ring(1, 2)
    forged = trace.send(1, 2)
    trace.send(2, 1)
    trace.rows = without(trace.rows, kind="originate", message=forged)
    trace.crash(1, reason="killed")
    trace.move(2, seq=12)
    broken(trace.rows, "no-spurious-delivery", [1], forged)


# transitional-delivery


def test_received_in_order_and_never_delivered() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(3)
    trace.receive(message, 1, 2)
    trace.crash(3)
    trace.move(1, 2, seq=12)
    broken(trace.rows, "transitional-delivery", [1], message)


def test_received_by_a_companion_and_never_delivered() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(3)
    trace.receive(message, 2)
    trace.crash(3)
    trace.move(1, 2, seq=12)
    broken(trace.rows, "transitional-delivery", [1], message)


def test_received_after_a_gap_and_never_delivered() -> None:
    trace = ring(1, 2, 3)
    trace.originate(3)
    trace.receive(trace.originate(3), 1, 2)
    trace.crash(3)
    trace.move(1, 2, seq=12)
    assert violated(check(trace.rows, complete=True)) == set()


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("more", [True, False])
def test_received_after_what_may_be_a_gap(killed: bool, more: bool) -> None:
    """The first message of the ring was that of a node whose rows are missing, all of them or the last.
    `more`: one of a companion follows, which is delivered in spite of the gap."""
    trace = ring(1, 2, 3, 4)
    lost = trace.originate(4)
    if more:
        message = trace.originate(2)
        trace.receive(message, 1)
    trace.receive(trace.originate(3), 1, 2)
    trace.crash(3)
    trace.crash(4, reason="killed")
    trace.agree("12@1", (1, 2), 1, 2)
    trace.transitional("10@1", [1, 2])
    if more:
        trace.deliver(message, 1, 2)
    trace.regular("12@1", [1, 2])
    rows = without(trace.rows, message=lost) if killed else without(trace.rows, node=4)
    assert violated(check(rows, complete=True)) == set()


def test_received_too_late_for_the_exchange() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(3)
    trace.agree("12@1", (1, 2), 1, 2)
    trace.receive(message, 2)
    trace.crash(3)
    trace.move(1, 2, seq=12)
    assert violated(check(trace.rows, complete=True)) == set()


# service-kept


@pytest.mark.parametrize("kind", ["receive", "deliver"])
def test_contents_changed_on_the_way(kind: str) -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": kind, "node": 2}, digest=7)
    broken(rows, "service-kept", [1, 2], message)


def test_contents_changed_before_they_were_sent() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "submit"}, digest=7)
    broken(rows, "service-kept", [1], message)


def test_names_of_a_life_that_never_originated_are_used_again() -> None:
    """It crashed before its first write: the next life finds the same incarnation on the disk."""
    trace = ring(1, 2)
    trace.row(1, "submit", message="1.1.1", origin=1, service="agreed", bytes=1, digest=7)
    message = trace.send(1, 2)
    assert message == "1.1.1"
    assert "service-kept" not in violated(check(trace.rows))


def test_contents_that_were_not_recorded_are_not_compared() -> None:
    trace = ring(1, 2)
    trace.send(1, 2)
    rows = changed(trace.rows, {"kind": "deliver", "node": 2}, digest=0)
    assert violated(check(rows, complete=True)) == set()


# safe-notices


def test_safe_told_before_a_member_received_it() -> None:
    trace = ring(1, 2, 3)
    message = trace.originate(1)
    trace.receive(message, 2)
    trace.row(1, "safe", ring="8@1", seq=1)
    trace.receive(message, 3)
    trace.deliver(message, 1, 2, 3)
    broken(trace.rows, "safe-notices", [1, 3], message)
    assert violated(check(trace.rows, complete=True, same_clock=False)) == set()


def test_safe_told_of_what_a_member_never_received() -> None:
    trace = ring(1, 2)
    first, second = trace.send(1, 2), trace.originate(1)
    trace.row(2, "safe", ring="8@1", seq=1)
    trace.row(1, "safe", ring="8@1", seq=2)
    trace.deliver(second, 1)
    trace.crash(2)
    trace.move(1, seq=12)
    broken(trace.rows, "safe-notices", [1, 2], second)
    assert first not in check(trace.rows, complete=True)["safe-notices"].violations[0].messages


def test_safe_told_by_the_receipt_of_another_life() -> None:
    trace = ring(1, 2)
    message = trace.originate(1)
    trace.crash(2)
    trace.start(2, seq=12)
    trace.receive(message, 2)
    trace.row(1, "safe", ring="8@1", seq=1)
    trace.deliver(message, 1)
    broken(trace.rows, "safe-notices", [1, 2], message, only=("termination",))


# justified-expulsion


def test_blamed_for_what_it_had_received() -> None:
    trace = ring(1, 2, 3)
    message = trace.send(1, 2, 3)
    trace.at_us += 1000
    trace.row(1, "blame", origin=3, ring="8@1", seq=0, count=100, reason="failure to receive")
    broken(trace.rows, "justified-expulsion", [1, 3], message)


def test_blamed_for_what_came_too_late() -> None:
    trace = ring(1, 2, 3)
    trace.send(1, 2, 3)
    trace.row(1, "blame", origin=3, ring="8@1", seq=0, count=100, reason="failure to receive")
    trace.row(1, "blame", origin=2, ring="8@1", seq=1, count=100, reason="laggard expelled")
    assert violated(check(trace.rows, complete=True)) == set()


def test_blamed_by_one_who_does_not_know_yet_that_it_has_left() -> None:
    """It acknowledged nothing more while it left."""
    trace = ring(1, 2, 3)
    message = trace.send(1, 2, 3)
    trace.at_us += 1000
    trace.row(3, "leave")
    trace.at_us += 1000
    trace.row(1, "blame", origin=3, ring="8@1", seq=0, count=100, reason="laggard expelled")
    assert "justified-expulsion" not in violated(check(trace.rows, complete=True))
    stays = [row for row in trace.rows if row.kind != "leave"]
    broken(stays, "justified-expulsion", [1, 3], message)


def test_blamed_for_a_ring_of_others() -> None:
    trace = ring(1, 2)
    trace.start(3)
    trace.row(1, "blame", origin=3, ring="8@1", seq=0, count=100, reason="failure to receive")
    broken(trace.rows, "justified-expulsion", [1, 3])


# written-before-used


def test_a_ring_number_used_before_it_was_written() -> None:
    trace = ring(1, 2)
    write = next(row for row in trace.rows if row.kind == "persist" and row.node == 2 and row.seq == 8)
    done = {"kind": "persisted", "node": 2, "count": write.count}
    broken(without(trace.rows, **done), "written-before-used", [2])


def test_the_first_ring_number_used_before_it_was_written() -> None:
    rows = without(ring(1, 2).rows, kind="persisted", node=1, step=3)
    broken(rows, "written-before-used", [1])


def test_a_timestamp_beyond_what_was_written() -> None:
    trace = ring(1, 2)
    message = trace.send(1, 2)
    rows = [row._replace(timestamp=10**6) if row.message == message else row for row in trace.rows]
    broken(rows, "written-before-used", [1], message)


def test_a_write_of_another_life_covers_nothing() -> None:
    trace = ring(1, 2)
    trace.crash(2)
    trace.start(2, seq=12)
    rows = [row for row in trace.rows if not (row.incarnation == 2 and row.kind.startswith("persist"))]
    broken(rows, "written-before-used", [2], only=("termination",))


# steady-rings


def test_a_ring_that_breaks_up_while_nothing_is_wrong() -> None:
    trace = ring(1, 2)
    trace.row(1, "state", ring="8@1", members=(1, 2), **move("recover>operational ring installed"))
    trace.row(2, "state", ring="8@1", members=(1, 2), **move("recover>operational ring installed"))
    settled_us = trace.at_us
    assert violated(check(trace.rows, complete=True, calm=[Calm(0, settled_us, 10**6)])) == set()
    trace.at_us += 1000
    trace.move(1, 2, seq=12)
    broken(trace.rows, "steady-rings", [1], calm=[Calm(0, settled_us, 10**6)])


def test_no_ring_while_nothing_is_wrong() -> None:
    trace = ring(1, 2)
    trace.row(1, "state", ring="8@1", members=(1, 2), **move("operational>gather token loss"))
    broken(trace.rows, "steady-rings", [1], calm=[Calm(0, trace.at_us, 10**6)], only=())


def test_an_expulsion_explains_a_change() -> None:
    trace = ring(1, 2)
    settled_us = trace.at_us
    trace.row(1, "blame", origin=2, ring="8@1", seq=0, count=10, reason="laggard expelled")
    trace.move(1, 2, seq=12)
    assert violated(check(trace.rows, complete=True, calm=[Calm(0, settled_us, 10**6)])) == set()
