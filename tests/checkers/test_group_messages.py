"""Messages to groups: lost, changed, in the wrong order, called safe too early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from groupbuilder import GroupBuilder
from grouptests import A, B, C, broken, delivery_of, holds, replaced, settled, the_row, three
from tracebuilder import changed, undecided, violated, without

from totempole.checkers import Outcome, check
from totempole.errors import TraceError
from totempole.trace.schema import Row

# group-virtual-synchrony


def test_together_but_one_missed_a_message() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2, 3, only=[A, C])
    trace.move(1, 2, 3, seq=12)
    broken(trace.rows, "group-virtual-synchrony", [1, 2], [sent.name])


def test_together_but_in_another_order() -> None:
    trace = three()
    first, second = trace.offer(A, "g"), trace.offer(B, "g")
    for sent in (first, second):
        trace.bring(sent, 1, 3)
    trace.bring(second, 2)
    trace.bring(first, 2)
    trace.move(1, 2, 3, seq=12)
    report = check(trace.rows, complete=True)
    assert {"group-virtual-synchrony", "group-one-order"} <= violated(report)
    item = report["group-virtual-synchrony"].violations[0]
    assert (item.nodes, set(item.messages)) == ((1, 2), {first.name, second.name})


def test_together_but_from_different_views() -> None:
    trace = three()
    trace.move(1, 2, 3, seq=12)
    trace.leave_group(C, "g")
    skipped = next(
        row for row in trace.rows if row.kind == "group_view" and row.process == B and row.ring == "12@1"
    )
    rows = [row for row in trace.rows if row is not skipped]
    broken(rows, "group-virtual-synchrony", [1, 2])


def test_who_does_not_come_along_may_have_delivered_less() -> None:
    trace = three()
    sent = trace.offer(A, "g", service="safe")
    trace.cut(1, 2, seq=12)
    trace.bring(sent, 1, 2)
    trace.merge(1, 2, seq=12)
    trace.cut(3, seq=12)
    trace.bring(sent, 3)
    trace.merge(3, seq=12)
    holds(trace.rows)


def test_who_may_yet_follow_leaves_it_undecided() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 3)
    assert check(trace.rows)["group-virtual-synchrony"].outcome is Outcome.HOLDS
    trace.leave_group(C, "g")
    rows = without(trace.rows, kind="group_view", process=B, reason="leave")
    assert check(rows)["group-virtual-synchrony"].outcome is Outcome.UNDECIDED
    assert check(without(rows, node=2))["group-virtual-synchrony"].outcome is Outcome.UNDECIDED


def test_a_leaver_misses_what_came_before_it_left() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2, 3, only=[A, B])
    trace.leave_group(C, "g")
    broken(trace.rows, "group-virtual-synchrony", [1, 3], [sent.name])
    prefix = check(trace.rows)
    assert prefix["group-virtual-synchrony"].outcome is Outcome.HOLDS, str(prefix)


def test_a_leaver_that_is_cut_off_may_miss_it() -> None:
    trace = three("g", "h")
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2)
    trace.tell("group_leave", C, group="g")
    packet = trace.originate(3)
    trace.receive(packet, 1, 2)
    for node in (1, 2):
        trace.deliver(packet, node)
        trace.tables[node]["g"] = [A, B]
        trace._view(node, "g", [A, B], *trace._place(packet), 0, "leave")
    trace.move(1, 2, seq=12)
    trace.cut(3, seq=12)
    trace.merge(3, seq=12)
    assert check(trace.rows, complete=True)["group-virtual-synchrony"].outcome is Outcome.HOLDS


# group-one-order


def test_one_message_in_two_places() -> None:
    trace = three()
    message = trace.say(A, "g")
    old = the_row(trace.rows, kind="group_deliver", process=C)
    broken(replaced(trace.rows, old, seq=old.seq + 5), "group-one-order", [1, 3], [message])


def test_two_messages_in_one_place() -> None:
    trace = three()
    first, second = trace.offer(A, "g"), trace.offer(B, "g")
    trace.bring(first, 1, 2, 3)
    trace.bring(replace(second, packet=first.packet), 1)
    report = check(trace.rows)
    item = next(item for item in report["group-one-order"].violations if len(item.messages) == 2)
    assert (item.nodes, set(item.messages)) == ((1,), {first.name, second.name})


def test_across_groups_in_another_order() -> None:
    trace = three("g", "h")
    first, second = trace.offer(A, "g"), trace.offer(B, "h")
    for sent in (first, second):
        trace.bring(sent, 1, 3)
    trace.bring(second, 2)
    trace.bring(first, 2)
    report = check(trace.rows)
    assert {name for name in violated(report) if name.startswith("group")} == {"group-one-order"}
    item = report["group-one-order"].violations[0]
    assert (item.nodes, item.messages) == ((2,), (second.name, first.name))


def test_a_view_out_of_place() -> None:
    trace = three()
    trace.say(A, "g")
    trace.leave_group(C, "g")
    rows = changed(trace.rows, {"kind": "group_view", "reason": "leave"}, seq=1)
    report = check(rows)
    assert "group-one-order" in violated(report)
    assert report["group-one-order"].violations[0].nodes == (1,)


# group-first-in-first-out


def test_a_senders_messages_in_another_order() -> None:
    trace = three()
    first, second = trace.offer(A, "g"), trace.offer(A, "g")
    trace.bring(replace(second, packet=first.packet), 1, 2, 3)
    trace.bring(replace(first, packet=second.packet), 1, 2, 3)
    broken(trace.rows, "group-first-in-first-out", [1], [first.name, second.name])


def test_one_receiver_passes_over_a_message() -> None:
    trace = three()
    first, second = trace.offer(A, "g"), trace.offer(A, "g")
    trace.bring(first, 1, 2, 3, only=[A, B])
    trace.bring(second, 1, 2, 3)
    broken(trace.rows, "group-first-in-first-out", [3], [first.name, second.name])


def test_everyone_passes_over_a_message() -> None:
    trace = three()
    lost, _ = trace.ask(A, "g")
    message = trace.say(A, "g")
    broken(trace.rows, "group-first-in-first-out", [2], [lost, message])


def test_what_was_sent_to_a_group_before_one_was_in_it_is_not_missed() -> None:
    trace = GroupBuilder()
    trace.ring(1, 2)
    a, b = trace.connect(1), trace.connect(2)
    trace.say(a, "g")  # nobody is there
    trace.join(a, "g")
    trace.say(a, "g")
    trace.join(b, "g")
    trace.say(a, "g")
    trace.leave_group(b, "g")
    trace.say(a, "g")
    trace.join(b, "g")
    trace.say(a, "g", count=3)
    trace.say(a, "g")
    holds(trace.rows, expectation=settled(trace, 1, 2))


def test_what_was_sent_elsewhere_is_not_missed() -> None:
    trace = three()
    for part in ((1,), (2, 3)):
        trace.cut(*part, seq=12)
        trace.merge(*part, seq=12)
    trace.say(A, "g")
    trace.cut(1, seq=16)
    trace.cut(2, 3, seq=16)
    trace.merge(1, 2, 3, seq=16)
    trace.say(A, "g")
    holds(trace.rows, expectation=settled(trace))


def test_a_message_lost_between_two_rings() -> None:
    trace = three()
    outsider = trace.connect(2)
    lost, _ = trace.ask(outsider, "g")
    trace.move(1, 2, 3, seq=12)
    message = trace.say(outsider, "g")
    broken(trace.rows, "group-first-in-first-out", [1], [lost, message])
    broken(trace.rows, "group-first-in-first-out", [3], [lost, message])


def test_a_message_to_another_group_shows_what_was_lost() -> None:
    trace = three("g", "h")
    lost, _ = trace.ask(A, "g")
    message = trace.say(A, "h")
    broken(trace.rows, "group-first-in-first-out", [2], [lost, message])


def test_who_was_apart_or_left_passes_over_nothing() -> None:
    trace = three()
    outsider = trace.connect(1)
    sent = trace.offer(outsider, "g")
    trace.leave_group(B, "g")
    for part in ((1, 2), (3,)):
        trace.cut(*part, seq=12)
        if 1 in part:
            trace.bring(sent, *part)
        trace.merge(*part, seq=12)
    trace.cut(1, 2, seq=16)
    trace.cut(3, seq=16)
    trace.merge(1, 2, 3, seq=16)
    trace.join(B, "g")
    trace.say(outsider, "g")
    assert check(trace.rows)["group-first-in-first-out"].outcome is Outcome.HOLDS


def test_numbers_with_a_hole() -> None:
    trace = three()
    trace._numbers[A] = 5
    message = trace.say(A, "g")
    broken(trace.rows, "group-first-in-first-out", [1], [message])


# group-whole-or-nothing


@pytest.mark.parametrize(
    "wrong",
    [{"count": 2}, {"bytes": 99}, {"digest": 1}, {"service": "safe"}, {"origin": 2}],
)
def test_not_what_was_sent(wrong: dict[str, Any]) -> None:
    trace = three()
    message = trace.say(A, "g")
    old = the_row(trace.rows, kind="group_deliver", process=C)
    broken(replaced(trace.rows, old, **wrong), "group-whole-or-nothing", [1, 3], [message])


def test_delivered_twice() -> None:
    trace = three()
    message = trace.say(A, "g")
    old = the_row(trace.rows, kind="group_deliver", process=B)
    trace.tell("group_deliver", B, **delivery_of(old))
    only = ["group-one-order", "group-first-in-first-out"]
    broken(trace.rows, "group-whole-or-nothing", [2], [message], only=only)


def test_delivered_and_never_sent() -> None:
    trace = three()
    message = trace.say(A, "g")
    rows = without(trace.rows, kind="group_send")
    broken(rows, "group-whole-or-nothing", [1], [message])
    assert "group-whole-or-nothing" in undecided(check(rows, same_clock=False))
    assert "group-whole-or-nothing" in undecided(check(without(rows, node=1)))


def test_the_last_rows_of_a_killed_node_may_be_missing() -> None:
    trace = three()
    trace.say(A, "g")
    trace.crash(1)
    rows = without(trace.rows, kind="group_send")
    report = check(rows, complete=True, same_clock=False)
    assert "group-whole-or-nothing" in undecided(report)
    assert "group-whole-or-nothing" in violated(check(rows, complete=True))


def killed(trace: GroupBuilder, node: int) -> list[Row]:
    """The rows of a node that was killed after the last row that it has: another says so."""
    last = [row for row in trace.rows if row.node == node][-1]
    end = Row(last.run, node, last.incarnation, last.step + 1, last.at_us, "test", "crash", reason="killed")
    return [*trace.rows, end]


@pytest.mark.parametrize("later", [False, True])
def test_a_killed_node_need_not_tell_what_it_sent_last(later: bool) -> None:
    """On one clock, as on real machines that share one. A trace that goes on after the delivery tells all."""
    trace = three()
    message = trace.say(A, "g")
    told = [row for row in trace.rows if row.message == message or row.kind in ("originate", "receive")]
    trace.rows = [row for row in trace.rows if row.node != 1 or row not in told]
    if later:
        trace.row(1, "state", reason="later")
    outcome = check(killed(trace, 1), complete=True)["group-whole-or-nothing"].outcome
    assert outcome is (Outcome.VIOLATED if later else Outcome.UNDECIDED)


def test_sent_twice() -> None:
    trace = three()
    message = trace.say(A, "g")
    sent = the_row(trace.rows, kind="group_send")
    trace.rows.append(sent._replace(step=sent.step + 100))
    broken(trace.rows, "group-whole-or-nothing", [1], [message])


def test_delivered_before_it_was_sent() -> None:
    trace = three()
    message = trace.say(A, "g")
    old = the_row(trace.rows, kind="group_deliver", process=C)
    broken(replaced(trace.rows, old, at_us=0), "group-whole-or-nothing", [1, 3], [message])
    assert violated(check(replaced(trace.rows, old, at_us=0), same_clock=False)) == set()


def test_without_digests_contents_are_undecided() -> None:
    trace = three()
    trace.say(A, "g")
    rows = [row._replace(digest=0) if row.layer == "groups" else row for row in trace.rows]
    assert undecided(check(rows, complete=True)) >= {"group-whole-or-nothing"}


# group-safe-notices


def test_safe_and_delivered() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2, 3)
    trace.safe(sent, A, B, C)
    report = check(trace.rows, complete=True)
    assert report["group-safe-notices"].outcome is Outcome.HOLDS, str(report)
    rows = without(trace.rows, kind="receive")
    assert check(rows, complete=True)["group-safe-notices"].outcome is Outcome.UNDECIDED
    assert check(trace.rows, same_clock=False)["group-safe-notices"].outcome is Outcome.UNDECIDED


def test_safe_and_not_delivered() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.safe(sent, B)
    trace.bring(sent, 1, 2, 3)
    broken(trace.rows, "group-safe-notices", [2], [sent.name])


def test_safe_twice() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2, 3)
    trace.safe(sent, B, B)
    broken(trace.rows, "group-safe-notices", [2], [sent.name])


def test_safe_at_another_place() -> None:
    trace = three()
    sent, other = trace.offer(A, "g"), trace.offer(A, "g")
    for message in (sent, other):
        trace.bring(message, 1, 2, 3)
    trace.safe(replace(sent, packet=other.packet), B)
    broken(trace.rows, "group-safe-notices", [2], [sent.name])


def test_safe_before_a_processor_has_it() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1)
    trace.safe(sent, A)
    late = the_row(trace.rows, kind="receive", node=3)
    trace.bring(sent, 2, 3)
    rows = [row for row in trace.rows if row is not late]
    index = next(i for i, row in enumerate(rows) if row.kind == "deliver" and row.node == 3 and i > 0)
    moved = rows[index:]
    packet = the_row(moved, kind="deliver", node=3)
    rows.insert(rows.index(packet), late._replace(at_us=packet.at_us - 1, step=packet.step))
    rows = replaced(rows, packet, step=packet.step)
    broken(rows, "group-safe-notices", [1, 3], [sent.name, late.message])


def test_safe_before_a_processor_has_it_at_all() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2)
    trace.safe(sent, A)
    rows = without(trace.rows, kind="receive", node=3, message=sent.packet)
    assert "group-safe-notices" in undecided(check(rows))
    trace.row(3, "state", reason="later")
    rows = without(trace.rows, kind="receive", node=3, message=sent.packet)
    report = check(rows)
    assert violated(report) == {"group-safe-notices"}
    assert report["group-safe-notices"].violations[0].nodes == (1, 3)


def test_safe_before_one_had_it_that_was_killed() -> None:
    """The row that says so is not its own: what it received last may be missing."""
    trace = three()
    sent = trace.offer(A, "g")
    trace.rows = without(trace.rows, kind="receive", node=3, message=sent.packet)
    trace.bring(sent, 1, 2)
    trace.safe(sent, A)
    report = check(killed(trace, 3), complete=True)
    assert report["group-safe-notices"].outcome is Outcome.UNDECIDED, str(report)


@pytest.mark.parametrize("crashed", [False, True])
def test_safe_before_a_life_had_it_that_is_over(crashed: bool) -> None:
    """The last rows of a killed life are missing, among them perhaps a receipt. One that crashed in the
    simulator wrote all of them."""
    trace = three()
    sent = trace.offer(A, "g")
    trace.rows = without(trace.rows, kind="receive", node=3, message=sent.packet)
    trace.bring(sent, 1, 2)
    trace.safe(sent, A)
    if crashed:
        trace.crash(3)
    trace.start(3, seq=20)
    report = check(trace.rows, complete=True)
    expected = Outcome.VIOLATED if crashed else Outcome.UNDECIDED
    assert report["group-safe-notices"].outcome is expected, str(report)


def test_safe_within_the_transitional_configuration() -> None:
    """Whoever is left behind need not have it."""
    trace = three()
    sent = trace.offer(A, "g")
    trace.rows = without(trace.rows, kind="receive", node=3, message=sent.packet)
    trace.bring(sent, 1, 2)
    trace.cut(1, 2, seq=12)
    trace.safe(sent, A, B)
    trace.merge(1, 2, seq=12)
    assert check(trace.rows, complete=True)["group-safe-notices"].outcome is Outcome.HOLDS


# any names


def test_names_with_commas_spaces_and_line_breaks() -> None:
    odd = ("a,b", "a", "b", " c\n d", ",")
    trace = three(*odd)
    message = trace.say(A, *odd[:4])
    trace.say(B, ",")
    trace.leave_group(C, "a,b")
    trace.say(A, "a,b")
    holds(trace.rows)
    lost = the_row(trace.rows, kind="group_deliver", process=B, message=message)
    rows = [row for row in trace.rows if row is not lost]
    assert check(rows)["group-virtual-synchrony"].violations[0].messages == (message,)
    old = the_row(trace.rows, kind="group_deliver", process=C, message=message)
    wrong = replaced(trace.rows, old, to=("a", "b", "a,b", " c\n d"))
    text = check(wrong)["group-whole-or-nothing"].violations[0].text
    assert "groups a, b, a,b,  c\n d for a,b, a, b,  c\n d" in text


# what rows must look like


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "group_view", "ring": "nonsense"},
        {"kind": "group_deliver", "message": "1.1.1"},
    ],
)
def test_rows_that_cannot_be_read(wrong: dict[str, str]) -> None:
    trace = three()
    trace.say(A, "g")
    old = the_row(trace.rows, kind=wrong["kind"])
    with pytest.raises(TraceError):
        check(replaced(trace.rows, old, **wrong))


def test_a_violation_prints_all_there_is_to_know() -> None:
    trace = three()
    trace.say(A, "g")
    old = the_row(trace.rows, kind="group_deliver", process=C)
    sent = the_row(trace.rows, kind="group_send")
    text = str(check(replaced(trace.rows, old, bytes=1))["group-whole-or-nothing"].violations[0])
    assert text == (
        "group-whole-or-nothing violated; nodes 1, 3; messages 1.1.1:1; "
        f"steps (1, {sent.step}), (3, {old.step}): "
        "Process 3.1.1 delivered 1.1.1:1 not as it was sent: bytes 1 for 100."
    )
