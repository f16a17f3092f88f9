"""Traces in which the durable order breaks a promise, and a good one for each."""

from __future__ import annotations

from typing import Any

import pytest
from logbuilder import LogBuilder, Queue, three
from tracebuilder import TraceBuilder, changed, violated, without

from totempole.checkers import Liveness, Report, check, corel_fences
from totempole.checkers.corel import COREL
from totempole.checkers.corel_keys import KEYS_MAX
from totempole.trace.schema import Row
from totempole.types import Fence


def broken(rows: list[Row], name: str, nodes: list[int], only: tuple[str, ...] = (), **terms: Any) -> None:
    report: Report = check(rows, **{"complete": True, **terms})
    assert of_log(report) == {f"corel-{each}" for each in (name, *only)}, str(report)
    verdict = report[f"corel-{name}"]
    assert any(set(item.nodes) == set(nodes) for item in verdict.violations), str(verdict)
    assert all(item.steps for item in verdict.violations), str(verdict)


def fine(rows: list[Row], **terms: Any) -> Report:
    report: Report = check(rows, **{"complete": True, **terms})
    assert of_log(report) == set(), str(report)
    return report


def of_log(report: Report) -> set[str]:
    """The properties of the log that are violated: these traces say little of a ring."""
    return {name for name in violated(report) if name.startswith("corel-")}


def good(awaits: str = "quorum") -> LogBuilder:
    """Runs are ordered, one of them red at first; a replica crashes, and looks on until it has caught up."""
    trace = three(awaits)
    trace.send(1, 2, 3, keys=("a", "b"))
    trace.send(2, 1, 3, keys=("b", "c"))
    trace.send(1, 2, 3, fence=step(1))
    trace.send(2, 1, 3, fence=step(1))
    trace.establish(1, 2)
    trace.minority(3)
    alone = trace.accept(3)
    trace.take(3, alone, "red")
    trace.sync(3)
    trace.send(1, 2)
    trace.meet(1, 2, 3)
    for node in (1, 2):
        trace.take(node, alone, "red")
    trace.number += 1
    for node in (1, 2, 3):
        trace.attempt(node, (1, 2, 3))
    record = trace.record(trace.number)
    for node in (1, 2, 3):
        trace.commit(node, (1, 2, 3), record)
    for node in (1, 2, 3):
        trace.finish(node, (1, 2, 3))
    trace.crash(3)
    trace.establish(1, 2)
    trace.send(2, 1)
    trace.send(2, 1, fence=step(2))
    trace.reopen(3)
    trace.establish(1, 2, onlookers=(3,))
    trace.fetch(3, 1)
    trace.establish(1, 2, 3)
    trace.send(3, 1, 2)
    trace.send(3, 1, 2, fence=step(1))
    return trace


def step(number: int, name: str = "q") -> Fence:
    return Fence(name, number, number - 1, number - 1)


def settled(trace: LogBuilder, *nodes: int) -> dict[str, Any]:
    return {"expectation": Liveness(trace.at_us, (nodes or (1, 2, 3),), 0)}


def own(rows: list[Row], **terms: Any) -> set[str]:
    return of_log(check(rows, complete=True, **terms))


@pytest.mark.parametrize("awaits", ["quorum", "all"])
def test_a_good_trace(awaits: str) -> None:
    trace = good(awaits)
    fine(trace.rows)
    assert own(trace.rows, **settled(trace)) == set()
    fine(trace.rows, same_clock=False)
    for length in range(0, len(trace.rows), 7):
        assert of_log(check(trace.rows[:length])) == set()


def test_a_run_without_a_log() -> None:
    trace = TraceBuilder()
    trace.form(1, 2)
    report = fine(trace.rows)
    assert {report[item.name].note for item in COREL.properties} == {"no log in this run"}


# corel-integrity


def test_a_run_that_nobody_accepted() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    broken(without(trace.rows, kind="accept", message=run.name), "integrity", [1])


def test_the_origin_left_no_trace_or_was_killed() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    rows = without(trace.rows, node=1)
    report = check(rows, complete=True)
    assert report["corel-integrity"].reasons == ("Node 1 left no trace.",)
    trace.crash(1, reason="killed")
    fine(without(trace.rows, kind="accept", message=run.name))


def test_a_run_with_another_content() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    where = {"kind": "colour", "node": 3, "message": run.name}
    broken(changed(trace.rows, where, digest=7), "integrity", [1, 3])


def test_a_run_with_two_stamps() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    where = {"kind": "colour", "node": 2, "message": run.name}
    broken(changed(trace.rows, where, stamp="9@1:1:0"), "integrity", [1, 2])


def test_the_record_of_a_primary_that_nobody_committed() -> None:
    trace = three()
    rows = changed(trace.rows, {"kind": "colour", "message": "0.1.1"}, message="0.7.1")
    broken(rows, "integrity", [1])


# corel-no-duplication


def test_a_run_that_is_taken_twice() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    trace.take(2, run, "yellow")
    broken(trace.rows, "no-duplication", [2], only=("colours",))


def test_a_run_that_is_in_the_prefix_that_came_whole() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    rows = [row for row in trace.rows if row.node != 3 or row.kind != "colour" or row.message != run.name]
    before = [row for row in rows if row.kind == "colour" and row.node == 3]
    again = before[-1]._replace(step=10_000, message=run.name, old_state="", new_state="red", reason="placed")
    again = again._replace(corel=again.corel._replace(green_runs=2, place=-1, frames=99))
    assert "corel-no-duplication" in violated(check([*rows, again], complete=True))


def test_a_run_with_two_places() -> None:
    trace = three()
    first, second = trace.send(1, 2, 3), trace.send(2, 1, 3)
    where = {"kind": "colour", "node": 3, "message": second.name}
    rows = changed(
        trace.rows,
        where,
        message=first.name,
        digest=first.columns["digest"],
        stamp=first.columns["stamp"],
        origin=1,
    )
    found = violated(check(rows, complete=True))
    assert {"corel-no-duplication", "corel-one-order"} <= found


# corel-one-order, corel-agreed-green, corel-no-changes-in-green


def swapped(trace: LogBuilder, node: int, first: str, second: str) -> list[Row]:
    """The node has the two runs in each other's places."""
    columns = {
        row.message: {name: getattr(row, name) for name in ("message", "origin", "count", "digest", "bytes")}
        for row in trace.rows
        if row.kind == "colour"
    }
    stamps = {row.message: row.corel.stamp for row in trace.rows if row.kind == "colour"}
    other = {first: second, second: first}
    rows = []
    for row in trace.rows:
        if row.node == node and row.kind == "colour" and row.message in other:
            name = other[row.message]
            row = row._replace(**columns[name], corel=row.corel._replace(stamp=stamps[name]))
        rows.append(row)
    return rows


def test_two_orders() -> None:
    trace = three()
    first, second = trace.send(1, 2, 3), trace.send(2, 1, 3)
    rows = swapped(trace, 3, first.name, second.name)
    broken(rows, "one-order", [1, 3], only=("no-duplication", "yellow", "causal"))


def test_two_positions_of_one_run() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    rows = changed(trace.rows, {"node": 2, "message": run.name, "new_state": "green"}, position=5)
    broken(rows, "agreed-green", [1, 2], only=("no-changes-in-green",))


def test_another_repetition() -> None:
    trace = three()
    trace.send(1, 2, 3, keys=("a",))
    run = trace.send(2, 1, 3, keys=("a",))
    rows = changed(trace.rows, {"node": 3, "message": run.name, "new_state": "green"}, repeats=(), firsts=())
    broken(rows, "agreed-green", [1, 3])


def test_a_disk_with_another_position() -> None:
    trace = good()
    incarnation = {"node": 3, "kind": "log_open", "incarnation": 2}
    broken(
        changed(trace.rows, incarnation, position=9), "agreed-green", [1, 3], only=("no-changes-in-green",)
    )


def test_a_place_that_is_left_out() -> None:
    trace = three()
    first = trace.send(1, 2, 3)
    trace.send(2, 1, 3)
    rows = without(trace.rows, node=3, message=first.name, new_state="green")
    broken(rows, "no-changes-in-green", [3])


def test_a_green_run_that_another_replaces() -> None:
    trace = three()
    trace.send(1, 2, 3)
    trace.crash(3)
    trace.queues[3].green.pop()
    trace.queues[3].position -= 1
    trace.establish(1, 2)
    other = trace.accept(1)
    trace.reopen(3)
    trace.queues[3].yellow.append(other)
    trace.phase(3, "primary")
    trace.order(3)
    found = violated(check(trace.rows, complete=True))
    assert {"corel-no-changes-in-green", "corel-one-order"} <= found


# corel-causal


def test_a_run_without_the_one_before() -> None:
    trace = three()
    first = trace.accept(1)
    second = trace.accept(1)
    for node in (1, 2):
        trace.take(node, first, "yellow")
    for node in (1, 2, 3):
        trace.take(node, second, "yellow")
    broken(trace.rows, "causal", [3])


def test_a_run_without_what_its_origin_had() -> None:
    trace = three()
    first = trace.accept(1)
    for node in (1, 2):
        trace.take(node, first, "yellow")
    second = trace.accept(2)
    for node in (1, 2, 3):
        trace.take(node, second, "yellow")
    broken(trace.rows, "causal", [3])


def test_an_order_against_causality() -> None:
    trace = three()
    first = trace.accept(1)
    for node in (1, 2, 3):
        trace.take(node, first, "yellow")
    second = trace.accept(2)
    for node in (1, 2, 3):
        trace.take(node, second, "yellow")
        trace.queues[node].yellow.reverse()
    trace.acknowledge(1, 2, 3)
    trace.order(1, 2, 3)
    assert "corel-causal" in violated(check(trace.rows, complete=True))


def test_what_a_crash_made_the_origin_forget() -> None:
    """It has not what it runs depend on, and need not: nothing of its new life does."""
    trace = three()
    lost = trace.accept(1)
    trace.take(3, lost, "yellow")
    trace.crash(3)
    trace.queues[3].yellow.clear()
    trace.queues[3].vector.clear()
    trace.reopen(3)
    trace.crash(1)
    trace.establish(2, 3)
    trace.send(3, 2)
    fine(trace.rows)


# corel-yellow


def test_green_without_a_quorum() -> None:
    trace = three()
    run = trace.accept(1)
    trace.take(1, run, "yellow")
    trace.acknowledge(1)
    trace.order(1)
    broken(trace.rows, "yellow", [1])
    fine(trace.rows[:-1])


def test_green_without_all_where_all_are_awaited() -> None:
    for awaits in ("quorum", "all"):
        trace = three(awaits)
        run = trace.accept(1)
        for node in (1, 2):
            trace.take(node, run, "yellow")
        trace.acknowledge(1, 2)
        trace.order(1, 2)
        if awaits == "quorum":
            fine(trace.rows)
        else:
            broken(trace.rows, "yellow", [1])


def test_green_too_early() -> None:
    """A quorum has it, but only later. Without one clock nobody can tell."""
    trace = three()
    run = trace.accept(1)
    trace.take(1, run, "yellow")
    trace.order(1)
    trace.take(2, run, "yellow")
    broken(trace.rows, "yellow", [1])
    fine(trace.rows, same_clock=False)


def test_a_later_primary_without_a_green_run() -> None:
    trace = three()
    run = trace.accept(1)
    for node in (1, 2):
        trace.take(node, run, "yellow")
    trace.acknowledge(1, 2)
    trace.order(1, 2)
    trace.crash(1)
    trace.queues[2].green.pop()
    trace.queues[2].position -= 1
    trace.establish(2, 3)
    assert {"corel-yellow", "corel-one-order"} <= violated(check(trace.rows, complete=True))


def test_another_run_in_the_place_of_a_green_one() -> None:
    trace = three()
    first, second = trace.accept(1), trace.accept(2)
    for node in (1, 2):
        trace.take(node, first, "yellow")
    trace.take(3, second, "yellow")
    trace.acknowledge(1, 2)
    trace.order(1, 2)
    broken(trace.rows, "yellow", [1, 3])


# corel-green-survives


def test_a_primary_that_is_established_with_less() -> None:
    trace = good()
    last = max(row.corel.primary for row in trace.rows if row.reason == "established")
    rows = changed(trace.rows, {"node": 2, "reason": "established", "primary": last}, green_runs=1)
    broken(rows, "green-survives", [1, 2])


# corel-colours


@pytest.mark.parametrize(
    "change",
    [
        ("green", "red", "agreed"),
        ("yellow", "red", "placed"),
        ("red", "green", "greened"),
        ("yellow", "", "agreed"),
    ],
)
def test_a_change_of_colour_that_no_step_brings(change: tuple[str, str, str]) -> None:
    old, new, reason = change
    trace = three()
    run = trace.accept(1)
    trace.take(1, run, "yellow" if old == "yellow" else "red")
    trace.colour(1, run, old, new, -1, reason)
    assert "corel-colours" in violated(check(trace.rows, complete=True))


def test_yellow_that_falls_back_outside_a_handler() -> None:
    trace = three()
    run = trace.accept(1)
    trace.take(1, run, "yellow")
    trace.colour(1, run, "yellow", "red", 1, "agreed")
    broken(trace.rows, "colours", [1])


def test_red_in_a_primary_and_yellow_after_a_transitional_view() -> None:
    trace = three()
    run = trace.accept(1)
    trace.take(1, run, "red")
    broken(trace.rows, "colours", [1])
    trace = three()
    trace.phase(1, "cut off")
    trace.take(1, trace.accept(1), "yellow")
    broken(trace.rows, "colours", [1])
    trace = three()
    trace.phase(1, "cut off")
    trace.take(1, trace.accept(1), "red")
    fine(trace.rows)


def test_a_run_that_is_taken_before_the_handler_has_ended() -> None:
    trace = three()
    run = trace.accept(1)
    trace.meet(1, 2, 3)
    trace.phase(1, "attempting")
    trace.phase(1, "cut off")
    trace.take(1, run, "red")
    broken(trace.rows, "colours", [1])


# corel-one-primary


def test_one_number_of_two_primaries() -> None:
    trace = LogBuilder(1, 2, 3)
    trace.found(1, 2, 3)
    trace.establish(1, 2)
    trace.number -= 1
    trace.establish(3)
    found = violated(check(trace.rows, complete=True))
    assert {"corel-one-primary", "corel-sets"} <= found


def test_primaries_without_a_common_member() -> None:
    trace = LogBuilder(1, 2, 3, 4)
    trace.found(1, 2, 3, 4)
    trace.establish(1, 2)
    trace.establish(3, 4)
    found = violated(check(trace.rows, complete=True))
    assert {"corel-one-primary", "corel-sets"} <= found


def test_a_number_that_is_used_again() -> None:
    trace = three()
    trace.establish(1, 2, 3)
    trace.number = 0
    trace.establish(1, 2, 3, until="attempted")
    broken(trace.rows, "one-primary", [1])


@pytest.mark.parametrize("stage", ["attempted", "committed"])
def test_a_stage_that_does_not_wait(stage: str) -> None:
    trace = three()
    rows = without(trace.rows, node=3, reason=stage)
    assert "corel-one-primary" in violated(check(rows, complete=True))


# corel-durable-before-acknowledged


def test_an_acknowledgement_before_the_disk() -> None:
    trace = three()
    run = trace.accept(1)
    for node in (1, 2, 3):
        trace.take(node, run, "yellow")
    trace.say(2, "runs", count=1, frames=trace.queues[2].durable)
    broken(trace.rows, "durable-before-acknowledged", [2])


def test_an_acknowledgement_of_more_than_was_taken() -> None:
    trace = three()
    trace.say(2, "runs", count=1, frames=trace.queues[2].durable)
    broken(trace.rows, "durable-before-acknowledged", [2])


@pytest.mark.parametrize("reason", ["attempt", "commit"])
def test_a_stage_that_is_said_before_the_disk_has_it(reason: str) -> None:
    trace = three()
    said = next(row for row in trace.rows if row.node == 2 and row.reason == reason)
    synced = [row for row in trace.rows if row.node == 2 and row.kind == "durable" and row.step < said.step]
    rows = [row for row in trace.rows if row is not synced[-1]]
    broken(rows, "durable-before-acknowledged", [2])


def test_a_state_that_is_said_before_the_disk_has_it() -> None:
    trace = three()
    rows = changed(trace.rows, {"node": 1, "reason": "state"}, frames=9)
    broken(rows, "durable-before-acknowledged", [1])


# corel-once-per-key


def test_a_key_that_takes_two_positions() -> None:
    trace = three()
    trace.send(1, 2, 3, keys=("a",))
    for node in (1, 2, 3):
        trace.queues[node].keys.clear()
    trace.send(2, 1, 3, keys=("a",))
    broken(trace.rows, "once-per-key", [1])


def test_a_repetition_of_another_record() -> None:
    trace = three()
    trace.send(1, 2, 3, keys=("a",))
    for node in (1, 2, 3):
        trace.queues[node].keys["b"] = 0
    trace.send(2, 1, 3, keys=("b",))
    broken(trace.rows, "once-per-key", [1])


def test_a_repetition_of_the_wrong_position() -> None:
    trace = three()
    trace.send(1, 2, 3, keys=("a",))
    trace.send(1, 2, 3, keys=("b",))
    for node in (1, 2, 3):
        trace.queues[node].keys["a"] = 1
    trace.send(2, 1, 3, keys=("a",))
    broken(trace.rows, "once-per-key", [1])


def test_a_run_whose_keys_nobody_knows() -> None:
    trace = three()
    trace.send(1, 2, 3, keys=("a",))
    trace.send(2, 1, 3, keys=("a",))
    trace.crash(1, reason="killed")
    fine(without(trace.rows, kind="accept", node=1))


def test_keys_are_remembered_as_long_as_the_layer_remembers_them() -> None:
    from totempole.corel.zones import KEYS_MAX as REMEMBERED

    assert KEYS_MAX == REMEMBERED


# corel-fences


def test_a_run_that_its_fence_should_have_kept_out() -> None:
    trace = three()
    trace.send(1, 2, 3, fence=step(1))
    for node in (1, 2, 3):
        trace.queues[node].marks.clear()
    trace.send(2, 1, 3, fence=step(1))
    broken(trace.rows, "fences", [1])


@pytest.mark.parametrize("mark", [(0, 0), (2, 0), (1, 1)])
def test_a_mark_that_is_another_one(mark: tuple[int, int]) -> None:
    trace = three()
    trace.send(1, 2, 3, fence=step(1))
    for node in (1, 2, 3):
        trace.queues[node].marks["q"] = mark
    trace.send(2, 1, 3, fence=step(3 if mark == (0, 0) else 5))
    broken(trace.rows, "fences", [1])


def test_a_run_that_its_fence_should_have_let_in() -> None:
    trace = three()
    for node in (1, 2, 3):
        trace.queues[node].marks["q"] = 5, 0
    trace.send(1, 2, 3, fence=step(1))
    broken(trace.rows, "fences", [1])


def test_a_bound_is_within() -> None:
    trace = three()
    for number, fence in enumerate((Fence("q", 5, 0, 4), Fence("q", 9, 5, 8), Fence("q", 12, 3, 9))):
        run = trace.send(1, 2, 3, fence=fence)
        assert len(trace.queues[1].green) == number + 2, run
    assert trace.queues[1].position == 3
    fine(trace.rows)


def test_a_run_without_a_fence_that_is_kept_out() -> None:
    trace = three()
    run = trace.send(1, 2, 3)
    rows = changed(trace.rows, {"message": run.name, "new_state": "green"}, kept_out=(1, 0))
    broken(rows, "fences", [1])


def test_a_run_that_is_kept_out_and_takes_positions() -> None:
    trace = three()
    trace.send(1, 2, 3, fence=step(1))
    trace.send(2, 1, 3, fence=step(1))
    for node in (1, 2, 3):
        trace.queues[node].position += 1
    trace.send(1, 2, 3)
    broken(trace.rows, "no-changes-in-green", [1])


def test_a_run_that_one_replica_lets_in() -> None:
    trace = three()
    trace.send(1, 2, 3, fence=step(1))
    run = trace.send(2, 1, 3, fence=step(1))
    rows = changed(trace.rows, {"node": 3, "message": run.name, "new_state": "green"}, kept_out=())
    broken(rows, "agreed-green", [1, 3])


def test_a_run_whose_fence_nobody_knows() -> None:
    """It may have moved any mark. What follows is judged again from where a mark is moved."""
    trace = three()
    trace.send(1, 2, 3, fence=step(1))
    trace.send(2, 1, 3, fence=step(2))
    trace.send(3, 1, 2, fence=step(2))
    trace.crash(1, reason="killed")
    rows = without(trace.rows, kind="accept", node=1)
    fine(rows)
    last = [row.message for row in rows if row.kind == "accept" and row.node == 3][-1]
    broken(changed(rows, {"message": last, "new_state": "green"}, kept_out=(7, 1)), "fences", [1])


def test_fences_are_remembered_as_long_as_the_layer_remembers_them() -> None:
    from totempole.corel.fences import FENCES_MAX as REMEMBERED

    assert corel_fences.FENCES_MAX == REMEMBERED


# corel-sets


def test_two_sets_at_one_place() -> None:
    rows = changed(three().rows, {"node": 3, "kind": "replica_set"}, weights=(1, 1, 2))
    broken(rows, "sets", [1, 3])


def test_a_change_of_two_replicas_at_once() -> None:
    trace = three()
    for node in (1, 2, 3):
        trace.replicas = (1,)
        trace._set(node, "change", 1)
    broken(trace.rows, "sets", [1])


def test_a_primary_of_a_minority() -> None:
    trace = LogBuilder(1, 2, 3)
    trace.found(1, 2, 3)
    trace.establish(3)
    broken(trace.rows, "sets", [3], only=("yellow",))


def test_a_disk_that_does_not_count() -> None:
    trace = three()
    trace.queues[2].disk = 555
    trace.establish(1, 2)
    broken(trace.rows, "sets", [1])


def test_an_emptied_disk_knows_of_no_set() -> None:
    trace = three()
    trace.replicas = (1, 2)
    for node in (1, 2, 3):
        trace._set(node, "change", 1)
    trace.replicas = (1, 2, 3)
    trace.crash(3)
    trace.queues[3] = Queue(999)
    trace.is_founded = False
    trace.reopen(3)
    trace._set(3, "primary", 0)
    rows = changed(trace.rows, {"node": 3, "place": 0, "kind": "replica_set"}, disks=(101, 102, 103))
    assert own(rows) == set()


def test_dynamic_voting_goes_by_the_last_primary() -> None:
    trace = LogBuilder(1, 2, 3, 4, 5, rule="dynamic")
    trace.found(1, 2, 3, 4, 5)
    trace.establish(1, 2, 3)
    trace.establish(1, 2)
    fine(trace.rows)
    trace.establish(2, 4, 5)
    assert "corel-sets" in violated(check(trace.rows, complete=True))


# corel-onlookers


def test_a_primary_with_one_that_looks_on() -> None:
    trace = three()
    trace.establish(1, 2, onlookers=(3,))
    fine(trace.rows)
    rows = changed(
        trace.rows, {"reason": "established", "primary": 2}, members=(1, 2, 3), disks=(101, 102, 103)
    )
    assert "corel-onlookers" in violated(check(rows, complete=True))


def test_a_handler_that_waits_for_one_that_looks_on() -> None:
    trace = three()
    trace.meet(1, 2, onlookers=(3,))
    broken(trace.rows, "onlookers", [1, 3])
    assert violated(check(trace.rows)) == set()


# corel-liveness


def live(trace: LogBuilder, *nodes: int) -> set[str]:
    return own(trace.rows, **settled(trace, *nodes))


def test_a_quorum_that_orders_nothing() -> None:
    trace = three()
    trace.minority(1, 2)
    assert live(trace, 1, 2) == {"corel-liveness"}
    assert live(trace, 1, 2, 3) == {"corel-liveness"}
    trace = three()
    trace.establish(1, 2)
    trace.minority(3)
    assert own(trace.rows, expectation=Liveness(trace.at_us, ((1, 2), (3,)), 0)) == set()


def test_a_handler_that_never_ends() -> None:
    trace = three()
    trace.meet(1, 2, 3)
    assert live(trace) == {"corel-liveness"}


def test_a_run_that_is_never_ordered() -> None:
    trace = three()
    trace.accept(1)
    assert live(trace) == {"corel-liveness"}
    trace = three()
    run = trace.accept(1)
    for node in (1, 2, 3):
        trace.take(node, run, "yellow")
    assert live(trace) == {"corel-liveness"}
    trace.order(1, 2)
    assert live(trace) == {"corel-liveness"}
    trace.order(3)
    assert live(trace) == set()


def test_without_an_expectation_nobody_can_tell() -> None:
    report = check(three().rows, complete=True)
    assert report["corel-liveness"].reasons == ("A complete run and an expectation are needed to tell.",)


# corel-barriers


def read() -> LogBuilder:
    """Three runs are green at all, and one asks for a barrier, which passes behind them."""
    trace = three()
    trace.send(1, 2, 3)
    trace.send(2, 1, 3)
    number = trace.ask(3)
    trace.let_pass(3, number)
    return trace


def test_barriers_that_pass() -> None:
    trace = good()
    numbers = [trace.ask(2), trace.ask(2)]
    trace.let_pass(2, numbers[-1])
    last = trace.ask(2)
    trace.send(1, 2, 3)
    trace.let_pass(2, last)
    fine(trace.rows, **settled(trace))
    fine(read().rows)


def test_a_barrier_at_a_place_before_what_another_had() -> None:
    trace = three()
    trace.send(1, 2, 3)
    run = trace.accept(1)
    for node in (1, 2, 3):
        trace.take(node, run, "yellow")
    trace.acknowledge(1, 2)
    trace.order(1)
    number = trace.ask(3)
    trace.let_pass(3, number)
    broken(trace.rows, "barriers", [1, 3])
    fine(trace.rows, same_clock=False)
    trace.order(2, 3)
    fine(changed(trace.rows, {"kind": "barrier", "reason": "passed"}, place=3, green_runs=3))


def test_what_became_green_after_the_question_need_not_be_passed() -> None:
    trace = three()
    run = trace.accept(1)
    for node in (1, 2, 3):
        trace.take(node, run, "yellow")
    trace.acknowledge(1, 2)
    number = trace.ask(3)
    trace.order(1, 2)
    trace.let_pass(3, number)
    fine(trace.rows)


def test_a_paused_replica_reads_its_own_past() -> None:
    """The others have formed a primary without it, and it does not know."""
    trace = three()
    trace.establish(1, 2)
    trace.send(1, 2)
    trace.let_pass(3, trace.ask(3))
    broken(trace.rows, "barriers", [1, 3])


def test_a_barrier_behind_the_own_place() -> None:
    trace = read()
    broken(
        changed(trace.rows, {"kind": "barrier", "reason": "passed"}, place=1),
        "barriers",
        [3],
        same_clock=False,
    )


def test_who_joins_a_barrier_that_was_asked_for_before() -> None:
    """The second asks when the question of the first has left, and there is more by then."""
    trace = three()
    trace.ask(3)
    run = trace.accept(1)
    for node in (1, 2, 3):
        trace.take(node, run, "yellow")
    trace.acknowledge(1, 2)
    trace.order(1)
    second = trace.ask(3)
    trace.let_pass(3, second)
    broken(trace.rows, "barriers", [1, 3])


def test_a_barrier_that_nobody_asked_for() -> None:
    trace = read()
    trace.let_pass(3, 2)
    trace.ask(3)
    broken(trace.rows, "barriers", [3])


def test_a_barrier_passes_in_a_minority() -> None:
    trace = three()
    trace.minority(3)
    trace.let_pass(3, trace.ask(3))
    broken(trace.rows, "barriers", [3])


def test_a_barrier_passes_at_a_place_that_is_not_green() -> None:
    trace = read()
    broken(changed(trace.rows, {"kind": "barrier", "reason": "passed"}, place=9), "barriers", [3])


def test_a_barrier_never_passes() -> None:
    trace = read()
    trace.ask(3)
    fine(trace.rows)  # it may yet
    broken(trace.rows, "barriers", [3], **settled(trace))
    trace.tell(3, "barrier", reason="forgotten", count=2)
    fine(trace.rows, **settled(trace))


def test_a_life_that_ended_owes_nothing() -> None:
    trace = three()
    trace.ask(3)
    trace.crash(3)
    trace.reopen(3)
    trace.establish(1, 2, 3)
    trace.let_pass(3, trace.ask(3))
    fine(trace.rows, **settled(trace))
    fine(without(trace.rows, kind="barrier"), **settled(trace))
