"""State for joiners, and what must have come true when a run has settled."""

from __future__ import annotations

from groupbuilder import GroupBuilder
from grouptests import A, B, C, broken, holds, replaced, settled, the_row, three
from tracebuilder import changed, move, undecided, violated, without

from totempole.checkers import Outcome, check

# group-state-transfer


def transferred(ending: bool = True) -> tuple[GroupBuilder, str, tuple[str, int]]:
    trace = GroupBuilder()
    trace.ring(1, 2, 3)
    for node in (1, 2):
        trace.join(trace.connect(node), "g", offers_state=True)
    joiner = trace.connect(3)
    trace.join(joiner, "g", wants_state=True)
    place = trace.last_view(joiner)
    trace.state(A, "g", "asked", place, joiner)
    trace.state(A, "g", "prefix", place, digest=0xCAFE)
    trace.state(joiner, "g", "begins", place, A)
    if ending:
        trace.say(B, "g")
        trace.state(A, "g", "given", place, joiner, 0x0123ABCD)
        later = trace._packet(A)
        trace.state(joiner, "g", "last", later, A, 0x0123ABCD)
        trace.state(joiner, "g", "state", place, digest=0xCAFE)
    return trace, joiner, place


def test_state_is_transferred() -> None:
    trace, _, _ = transferred()
    report = check(trace.rows, complete=True, expectation=settled(trace))
    assert report["group-state-transfer"].outcome is Outcome.HOLDS, str(report)
    holds(trace.rows, expectation=settled(trace))


def test_another_donor_takes_over() -> None:
    trace, joiner, _ = transferred(ending=False)
    trace.disconnect(A)
    place = trace.last_view(joiner)
    trace.state(B, "g", "asked", place, joiner)
    trace.state(B, "g", "prefix", place, digest=0xBEEF)
    trace.state(joiner, "g", "begins", place, B)
    trace.state(B, "g", "given", place, joiner, 0x77777777)
    trace.state(joiner, "g", "last", trace._packet(B), B, 0x77777777)
    trace.state(joiner, "g", "state", place, digest=0xBEEF)
    holds(trace.rows, expectation=settled(trace))


def test_there_is_no_state() -> None:
    trace = GroupBuilder()
    trace.ring(1)
    process = trace.connect(1)
    trace.join(process, "g", wants_state=True)
    trace.state(process, "g", "begins", trace.last_view(process))
    holds(trace.rows, expectation=settled(trace, 1))


def test_another_state_than_was_given() -> None:
    trace, _, _ = transferred()
    old = the_row(trace.rows, kind="group_state", process=C, stage="last")
    broken(replaced(trace.rows, old, digest=0x99999999), "group-state-transfer", [1, 3])
    unknown = replaced(trace.rows, old, digest=0)
    assert "group-state-transfer" in undecided(check(unknown, complete=True))


def test_another_state_than_the_prefix() -> None:
    trace, _, _ = transferred()
    broken(changed(trace.rows, {"stage": "state"}, digest=0xF00D), "group-state-transfer", [1, 3])


def test_state_that_nobody_gave() -> None:
    trace, _, _ = transferred()
    rows = without(trace.rows, stage="given")
    broken(rows, "group-state-transfer", [1, 3])
    assert "group-state-transfer" in undecided(check(rows, same_clock=False))
    assert "group-state-transfer" in undecided(check(without(rows, node=1), complete=True))


def test_state_from_someone_else() -> None:
    trace, _, _ = transferred()
    rows = changed(trace.rows, {"stage": "last"}, peer=B)
    broken(rows, "group-state-transfer", [3])


def test_state_that_never_began() -> None:
    trace, _, _ = transferred()
    rows = without(trace.rows, stage="begins")
    broken(rows, "group-state-transfer", [3])


def test_state_twice() -> None:
    trace, joiner, _ = transferred()
    trace.state(joiner, "g", "last", trace._packet(A), A, 0x0123ABCD)
    broken(trace.rows, "group-state-transfer", [3])


def test_state_that_was_not_wanted() -> None:
    trace, _, _ = transferred()
    broken(changed(trace.rows, {"wants_state": True}, wants_state=False), "group-state-transfer", [3])


def test_state_from_one_who_has_none() -> None:
    trace, _, _ = transferred()
    rows = changed(trace.rows, {"offers_state": True, "process": A}, offers_state=False)
    broken(rows, "group-state-transfer", [1])


def test_state_given_unasked() -> None:
    trace, _, _ = transferred()
    rows = without(trace.rows, stage="asked")
    broken(rows, "group-state-transfer", [1])


def test_state_from_another_than_the_first() -> None:
    trace = GroupBuilder()
    trace.ring(1, 2, 3)
    for node in (1, 2):
        trace.join(trace.connect(node), "g", offers_state=True)
    joiner = trace.connect(3)
    trace.join(joiner, "g", wants_state=True)
    place = trace.last_view(joiner)
    trace.state(B, "g", "asked", place, joiner)
    trace.state(joiner, "g", "begins", place, B)
    broken(trace.rows, "group-state-transfer", [3])
    nobody = changed(trace.rows, {"kind": "group_state", "process": C}, peer="")
    broken(nobody, "group-state-transfer", [3])
    waiting = changed(trace.rows, {"kind": "group_join", "process": A}, wants_state=True)
    holds(waiting)


# group-liveness


def test_never_joined() -> None:
    trace = three()
    trace.tell("group_join", B, group="h")
    broken(trace.rows, "group-liveness", [2], expectation=settled(trace))
    assert "group-liveness" in undecided(check(trace.rows, expectation=settled(trace)))
    assert "group-liveness" in undecided(check(trace.rows, complete=True))


def test_someone_who_left_is_still_there() -> None:
    trace = three()
    trace.tell("group_leave", B, group="g")
    broken(trace.rows, "group-liveness", [1], expectation=settled(trace))


def test_someone_who_is_gone_is_still_there() -> None:
    trace = three()
    trace.tell("process", B, reason="disconnect")
    broken(trace.rows, "group-liveness", [1], expectation=settled(trace))


def test_connected_but_in_different_views() -> None:
    trace = three()
    trace.move(1, 2, 3, seq=12)
    old = the_row(trace.rows, kind="group_view", process=C)
    rows = [row for row in trace.rows if row is not old]
    broken(rows, "group-liveness", [1, 3], expectation=settled(trace))


def test_a_group_left_in_a_transitional_view() -> None:
    trace = three()
    trace.cut(1, 2, seq=12)
    trace.merge(1, 2, seq=12)
    rows = [row for row in trace.rows if not (row.kind == "group_view" and row.configuration == "12@1")]
    rows = [row for row in rows if row.node != 3]
    report = check(rows, complete=True, expectation=settled(trace, 1, 2))
    assert "group-liveness" in violated(report)
    assert report["group-liveness"].violations[0].nodes == (1,)


def test_a_message_that_does_not_come_back() -> None:
    trace = three()
    name, _ = trace.ask(A, "g")
    broken(trace.rows, "group-liveness", [1], [name], expectation=settled(trace))


def test_a_message_of_an_outsider_that_reaches_nobody() -> None:
    trace = three()
    outsider = trace.connect(2)
    name, _ = trace.ask(outsider, "g")
    broken(trace.rows, "group-liveness", [2], [name], expectation=settled(trace))
    trace = three()
    trace.ask(trace.connect(2), "elsewhere")
    holds(trace.rows, expectation=settled(trace))


def test_not_everyone_has_the_last_message() -> None:
    trace = three()
    sent = trace.offer(A, "g")
    trace.bring(sent, 1, 2, 3, only=[A, B])
    broken(trace.rows, "group-liveness", [1, 3], [sent.name], expectation=settled(trace))


def test_a_joiner_that_is_never_told_of_its_state() -> None:
    trace = three()
    trace.join(trace.connect(1), "g", wants_state=True)
    broken(trace.rows, "group-liveness", [1], expectation=settled(trace))


def test_a_state_that_never_arrives() -> None:
    trace, _, _ = transferred()
    rows = without(without(trace.rows, stage="last"), stage="state")
    broken(rows, "group-liveness", [1, 3], expectation=settled(trace))


def test_a_joiner_that_waits_for_ever() -> None:
    trace, _, _ = transferred(ending=False)
    verdict = broken(trace.rows, "group-liveness", [1, 3], expectation=settled(trace))
    assert "never gave" in verdict.violations[0].text
    rows = without(trace.rows, stage="asked")
    verdict = broken(rows, "group-liveness", [3], expectation=settled(trace))
    assert "never asked" in verdict.violations[0].text


def test_a_state_that_began_again_and_never_came() -> None:
    trace, joiner, _ = transferred()
    place = trace._packet(B)
    trace.state(joiner, "g", "begins", place, B)
    only = ["group-state-transfer"]
    broken(trace.rows, "group-liveness", [3], only=only, expectation=settled(trace))


def test_a_message_of_an_outsider_lost_at_a_change() -> None:
    trace = three()
    name, _ = trace.ask(trace.connect(2), "g")
    trace.move(1, 2, 3, seq=12)
    broken(trace.rows, "group-liveness", [2, 3], [name], expectation=settled(trace))


def test_a_message_from_a_processor_that_has_no_members() -> None:
    """What its processor had seen when it accepted the message is known from the packets it delivered."""
    trace = GroupBuilder()
    trace.ring(1, 2, 3)
    outsider = trace.connect(1)
    trace.join(trace.connect(2), "g")
    name, _ = trace.ask(outsider, "g")
    trace.join(trace.connect(3), "g")
    verdict = broken(trace.rows, "group-liveness", [1, 2], [name], expectation=settled(trace))
    assert verdict.count == 1, "who joined later is not entitled to it"


def test_what_was_accepted_before_a_graceful_leave() -> None:
    trace = three()
    trace.leave_group(A, "g")
    name, _ = trace.ask(A, "g")
    trace.leave(1)
    trace.move(2, 3, seq=12)
    broken(trace.rows, "group-liveness", [1, 3], [name], expectation=settled(trace, 2, 3))
    crashed = changed(trace.rows, {"kind": "leave"}, kind="crash")
    holds(crashed, expectation=settled(trace, 2, 3))
    old = the_row(trace.rows, kind="leave")
    hurried = old._replace(kind="state", **move("gather>left leave timeout"))
    late = old._replace(step=old.step + 1)
    rows = [one for row in trace.rows for one in ((hurried, late) if row is old else (row,))]
    holds(rows, expectation=settled(trace, 2, 3))


def test_who_was_elsewhere_is_not_entitled() -> None:
    """c is away when the message is accepted; b goes away before it is sent; d joins too late."""
    trace = GroupBuilder()
    trace.ring(1, 2, 3)
    outsider = trace.connect(1)
    for node in (2, 3):
        trace.join(trace.connect(node), "g")
    trace.move(1, 2, seq=12)
    trace.move(3, seq=12)
    trace.ask(outsider, "g")
    trace.move(1, seq=16)
    trace.move(2, seq=16)
    for node in (1, 2, 3):
        trace.cut(node, seq=20)
    trace.merge(1, 2, 3, seq=20)
    trace.join(trace.connect(2), "g")
    holds(trace.rows, expectation=settled(trace))


def test_who_died_is_not_waited_for() -> None:
    trace = three()
    trace.ask(A, "g")
    trace.crash(1)
    trace.move(2, 3, seq=12)
    holds(trace.rows, expectation=settled(trace))
