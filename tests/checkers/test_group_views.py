"""Broken views. The check must say so, name who and what, and blame no other property but `only`."""

from __future__ import annotations

from groupbuilder import GroupBuilder
from grouptests import A, B, C, broken, delivery_of, holds, replaced, settled, the_row, three, view_of
from tracebuilder import changed, undecided, violated, with_columns, without

from totempole.checkers import Outcome, check

# group-view-agreement


def test_told_of_different_members() -> None:
    trace = three()
    old = the_row(trace.rows, kind="group_view", process=A)
    rows = replaced(trace.rows, old, processes=(A, C))
    broken(rows, "group-view-agreement", [1, 2], only=["group-honest-company"])


def test_told_of_different_reasons() -> None:
    trace = three()
    trace.leave_group(C, "g")
    old = the_row(trace.rows, kind="group_view", process=B)
    rows = replaced(trace.rows, old, reason="disconnect")
    broken(rows, "group-view-agreement", [1, 2], only=["group-honest-company"])


def test_told_of_different_company() -> None:
    trace = three()
    trace.cut(1, 2, 3, seq=12)
    trace.merge(1, 2, 3, seq=12)
    old = the_row(trace.rows, kind="group_view", process=B)
    rows = replaced(trace.rows, old, together=(B, C))
    broken(rows, "group-view-agreement", [1, 2], only=["group-honest-company"])


def test_each_part_of_a_merger_has_its_own_company() -> None:
    trace = three()
    trace.cut(1, seq=12)
    trace.merge(1, seq=12)
    trace.cut(2, 3, seq=12)
    trace.merge(2, 3, seq=12)
    trace.cut(1, seq=16)
    trace.cut(2, 3, seq=16)
    trace.merge(1, 2, 3, seq=16)
    assert the_row(trace.rows, kind="group_view", process=B).groups.together == (B, C)
    holds(trace.rows, expectation=settled(trace))


def test_one_packet_in_two_configurations_makes_two_views() -> None:
    """b joins; a, cut off, has it in its transitional configuration, where c is out already."""
    trace = GroupBuilder()
    trace.ring(1, 2, 3)
    for node in (1, 3):
        trace.join(trace.connect(node), "g")
    process = trace.connect(2)
    trace.tell("group_join", process, group="g")
    packet = trace.originate(2)
    trace.receive(packet, 1, 3)
    place = trace._place(packet)
    trace.deliver(packet, 3)
    trace.tables[3]["g"] = sorted([A, C, B])
    trace._view(3, "g", [A, C], *place, 0, "join")
    trace.cut(1, 2, seq=12)
    for node in (1, 2):
        trace.deliver(packet, node)
        trace.tables[node]["g"] = [A, B]
        trace._view(node, "g", [A], *place, 0, "join")
    trace.merge(1, 2, seq=12)
    trace.cut(3, seq=12)
    trace.merge(3, seq=12)
    assert check(trace.rows)["group-view-agreement"].outcome is Outcome.HOLDS
    assert check(trace.rows)["group-honest-company"].outcome is Outcome.HOLDS


# group-self-inclusion


def test_in_a_view_without_oneself() -> None:
    trace = three()
    trace.leave_group(B, "g")
    told = the_row(trace.rows, kind="group_view", process=A)
    trace.tell("group_view", B, **view_of(told))
    report = check(trace.rows)
    assert "group-self-inclusion" in violated(report)
    assert report["group-self-inclusion"].violations[0].nodes == (2,)


def test_a_message_of_a_group_that_one_is_not_in() -> None:
    trace = three()
    outsider = trace.connect(2)
    message = trace.say(A, "g")
    stolen = the_row(trace.rows, kind="group_deliver", process=B)
    trace.rows.append(stolen._replace(process=outsider, step=stolen.step + 1))
    broken(trace.rows, "group-self-inclusion", [2], [message])


def test_a_message_of_a_group_that_one_has_left() -> None:
    trace = three()
    trace.leave_group(B, "g")
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 3)
    trace.deliver(sent.packet, 2)
    delivered = the_row(trace.rows, kind="group_deliver", process=A)
    trace.tell("group_deliver", B, **delivery_of(delivered))
    broken(trace.rows, "group-self-inclusion", [2, 3], [sent.name])


def test_one_of_a_messages_groups_is_enough() -> None:
    trace = three("g", "h")
    trace.leave_group(B, "g")
    trace.say(A, "g", "h")
    trace.say(C, "g", "x")
    holds(trace.rows, expectation=settled(trace))


def test_joining_again_before_the_leave_is_in_the_order() -> None:
    """What is delivered in between belongs to the old membership."""
    trace = three()
    trace.tell("group_leave", B, group="g")
    trace.tell("group_join", B, group="g")
    trace.say(A, "g")
    trace._out(B, "g", "leave")
    trace.say(C, "g")
    ring, seq = trace._packet(B)
    for node in (1, 2, 3):
        before = trace.tables[node]["g"]
        trace.tables[node]["g"] = sorted([*before, B])
        trace._view(node, "g", before, ring, seq, 0, "join")
    trace.say(C, "g")
    trace.move(1, 2, 3, seq=12)
    holds(trace.rows, expectation=settled(trace))


# group-views-first


def test_delivered_before_the_exchange_is_over() -> None:
    trace = three()
    trace.cut(1, 2, 3, seq=12)
    trace.regular("12@1", [1, 2, 3])
    message = trace.say(A, "g")
    trace.exchange(1, 2, 3)
    broken(trace.rows, "group-views-first", [1, 2], [message])


def test_a_transitional_view_that_outlives_its_configuration() -> None:
    trace = three()
    trace.cut(1, 2, seq=12)
    trace.merge(1, 2, seq=12)
    told = the_row(trace.rows, kind="group_view", process=A)
    message = trace.say(B, "g")
    rows = [row for row in trace.rows if row is not told]
    broken(rows, "group-views-first", [1], [message], only=["termination"])


# group-honest-company


def merged() -> GroupBuilder:
    trace = three()
    trace.cut(1, seq=12)
    trace.merge(1, seq=12)
    trace.cut(2, 3, seq=12)
    trace.merge(2, 3, seq=12)
    trace.cut(1, seq=16)
    trace.cut(2, 3, seq=16)
    trace.merge(1, 2, 3, seq=16)
    return trace


def test_company_that_was_not_there() -> None:
    trace = merged()
    rows = trace.rows
    for process in (A, B, C):
        old = the_row(rows, kind="group_view", process=process)
        rows = replaced(rows, old, together=(A, B, C))
    broken(rows, "group-honest-company", [1], only=["group-virtual-synchrony"])


def test_not_come_along_with_oneself() -> None:
    trace = merged()
    old = the_row(trace.rows, kind="group_view", process=A)
    broken(replaced(trace.rows, old, together=()), "group-honest-company", [1])


def test_someone_left_out_of_the_company() -> None:
    trace = three()
    trace.leave_group(C, "g")
    rows = [
        with_columns(row, together=(row.process,))
        if row.kind == "group_view" and row.reason == "leave"
        else row
        for row in trace.rows
    ]
    broken(rows, "group-honest-company", [1])


def test_company_that_each_has_alone() -> None:
    """All are told less than the truth, and no two of them the same: nothing to compare."""
    trace = three()
    trace.move(1, 2, 3, seq=12)
    rows = [
        with_columns(row, together=(row.process,))
        if row.kind == "group_view" and row.configuration == "12@1"
        else row
        for row in trace.rows
    ]
    broken(rows, "group-honest-company", [2])


def test_a_transitional_view_without_someone_who_came_along() -> None:
    trace = three()
    trace.cut(1, 2, seq=12)
    rows = [
        with_columns(row, processes=(row.process,), together=(row.process,))
        if row.kind == "group_view" and row.configuration == "10@1"
        else row
        for row in trace.rows
    ]
    broken(rows, "group-honest-company", [1], only=["group-view-agreement", "termination"])


def test_company_of_a_configuration_between() -> None:
    """b was away between two exchanges of tables, though it was there before and is there again."""
    trace = three()
    trace.cut(1, 3, seq=12)
    trace.regular("12@1", [1, 3])
    trace.cut(2, seq=12)
    trace.merge(2, seq=12)
    for part in ((1, 3), (2,)):
        trace.transitional(f"14@{min(part)}", part)
    trace.merge(1, 2, 3, seq=16)
    report = check(trace.rows)
    assert report["group-honest-company"].outcome is Outcome.HOLDS, str(report)
    old = the_row(trace.rows, kind="group_view", process=A)
    rows = replaced(trace.rows, old, together=(A,))
    assert "group-honest-company" in violated(check(rows))


def test_a_leave_that_nobody_asked_for() -> None:
    trace = three()
    trace.disconnect(C)
    rows = changed(trace.rows, {"kind": "group_view", "reason": "disconnect"}, reason="leave")
    broken(rows, "group-honest-company", [1, 3])
    assert "group-honest-company" in undecided(check(rows, same_clock=False))
    assert "group-honest-company" in undecided(check(without(rows, node=3), complete=True))


def test_a_disconnect_of_one_that_only_left() -> None:
    trace = three()
    trace.leave_group(C, "g")
    rows = changed(trace.rows, {"kind": "group_view", "reason": "leave"}, reason="disconnect")
    broken(rows, "group-honest-company", [1, 3])


def test_a_newcomer_that_says_it_was_there() -> None:
    trace = three()
    rows = changed(trace.rows, {"processes": (A, B, C)}, together=(A, B, C))
    broken(rows, "group-honest-company", [3])


def test_a_transitional_view_with_someone_new() -> None:
    trace = three()
    trace.cut(1, 2, seq=12)
    rows = [
        with_columns(row, processes=(A, B, "2.1.2"))
        if row.kind == "group_view" and row.configuration == "10@1"
        else row
        for row in trace.rows
    ]
    broken(rows, "group-honest-company", [1], only=["termination"])


def test_a_join_that_brings_two() -> None:
    trace = three()
    rows = without(trace.rows, kind="group_view", processes=(A, B))
    report = check(rows)
    assert violated(report) == {"group-honest-company"}, str(report)


def test_a_member_from_outside_the_configuration() -> None:
    trace = three()
    trace.cut(1, 2, seq=12)
    trace.regular("12@1", [1, 2])
    trace.tables[1]["g"].append(C)
    trace.tables[2]["g"].append(C)
    trace._lineage[1] = trace._lineage[2] = {1, 2}
    packets = [trace._packet(process) for process in (A, B)]
    for node in (1, 2):
        trace._view(node, "g", [A, B], *packets[-1], 0, "configuration")
    broken(trace.rows, "group-honest-company", [1, 3], only=["termination"])


def test_a_process_of_a_life_that_is_over() -> None:
    trace = three()
    trace.crash(3)
    trace.move(1, 2, seq=12)
    trace.start(3, seq=14)
    trace.cut(3, seq=18)
    trace.cut(1, 2, seq=18)
    trace.tables[3]["g"] = [C]
    trace.gone.add(C)
    trace.merge(1, 2, 3, seq=18)
    broken(trace.rows, "group-honest-company", [1, 3])


def test_a_member_that_never_asked() -> None:
    rows = without(three().rows, kind="group_join", process=C)
    broken(rows, "group-honest-company", [1, 3])
    assert "group-honest-company" in undecided(check(rows, same_clock=False))


def test_a_view_of_another_kind_than_its_configuration() -> None:
    trace = three()
    trace.cut(1, 2, 3, seq=12)
    trace.merge(1, 2, 3, seq=12)
    rows = changed(
        trace.rows, {"kind": "group_view", "configuration": "12@1"}, configuration_kind="transitional"
    )
    report = check(rows, complete=True)
    assert "group-honest-company" in violated(report)
