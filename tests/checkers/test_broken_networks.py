"""Traces in which a ring's networks are not told of as they should be, or disturb the ring."""

from __future__ import annotations

from typing import Any

from test_broken_promises import _names
from test_broken_traces import ring
from tracebuilder import TraceBuilder, changed, violated, without

from totempole.checkers import Report, check
from totempole.checkers.terms import Alarmed, Calm
from totempole.trace.schema import Row

RING = "8@1"
DEAD = "nobody hears anybody"


def broken(rows: list[Row], name: str, nodes: list[int], **terms: Any) -> None:
    report: Report = check(rows, **{"complete": True, **terms})
    assert violated(report) == {name}, str(report)
    assert any(_names(item, nodes, ()) for item in report[name].violations), str(report[name])


def fine(rows: list[Row], **terms: Any) -> None:
    report: Report = check(rows, **{"complete": True, **terms})
    assert violated(report) == set(), str(report)


def tell(
    trace: TraceBuilder,
    seq: int,
    old: str,
    new: str,
    reason: str = "",
    network: int = 1,
    nodes: tuple[int, ...] = (1, 2, 3),
    ring: str = RING,
) -> None:
    for node in nodes:
        columns = {"network": network, "old_state": old, "new_state": new, "reason": reason}
        trace.row(node, "network", layer="networks", ring=ring, seq=seq, **columns)


def told() -> TraceBuilder:
    """Two networks fail, one after the other, and the first comes back."""
    trace = ring(1, 2, 3)
    trace.send(1, 2, 3)
    tell(trace, 2, "in_service", "faulty", "2 cannot send")
    tell(trace, 3, "faulty", "faulty", DEAD)
    trace.send(2, 1, 3, seq=4)
    tell(trace, 5, "faulty", "probation")
    tell(trace, 6, "in_service", "sick", "3 does not hear 1 in part: packets are lost", 2)
    tell(trace, 7, "probation", "in_service")
    trace.send(3, 1, 2, seq=8)
    return trace


# network-agreement


def test_all_are_told_the_same() -> None:
    fine(told().rows)


def test_a_change_that_one_is_not_told_of() -> None:
    rows = without(told().rows, node=2, kind="network", seq=5)
    broken(rows, "network-agreement", [1, 2])


def test_a_change_that_only_one_is_told_of() -> None:
    trace = told()
    tell(trace, 9, "in_service", "faulty", DEAD, nodes=(3,))
    trace.send(1, 2, 3, seq=10)
    broken(trace.rows, "network-agreement", [1, 3])


def test_a_change_at_another_place() -> None:
    broken(changed(told().rows, {"node": 3, "kind": "network", "seq": 5}, seq=6), "network-agreement", [1, 3])


def test_another_state() -> None:
    rows = changed(told().rows, {"node": 3, "kind": "network", "seq": 6}, new_state="faulty")
    broken(rows, "network-agreement", [1, 3])


def test_another_reason() -> None:
    rows = changed(told().rows, {"node": 2, "kind": "network", "seq": 3}, reason="2 cannot send")
    broken(rows, "network-agreement", [1, 2])


def test_another_network() -> None:
    broken(
        changed(told().rows, {"node": 2, "kind": "network", "seq": 6}, network=3), "network-agreement", [1, 2]
    )


def test_another_order() -> None:
    rows = told().rows
    places = [index for index, row in enumerate(rows) if row.node == 2 and row.kind == "network"]
    first, second = places[2], places[3]
    rows[first], rows[second] = (
        rows[first]._replace(network=2, old_state="in_service", new_state="sick", reason="?"),
        rows[second],
    )
    broken(rows, "network-agreement", [1, 2])


def test_members_with_another_past_are_told_what_is_new_to_them() -> None:
    """At the first place of a configuration their states become the same."""
    trace = ring(1, 2, 3)
    tell(trace, 1, "in_service", "drained", nodes=(1,))
    tell(trace, 1, "faulty", "drained", nodes=(2,))
    tell(trace, 5, "drained", "in_service")
    trace.send(1, 2, 3, seq=6)
    fine(trace.rows)


def test_members_whose_states_do_not_become_the_same() -> None:
    trace = ring(1, 2, 3)
    tell(trace, 1, "in_service", "drained", nodes=(1,))
    tell(trace, 1, "faulty", "probation", nodes=(2,))
    trace.send(1, 2, 3, seq=6)
    broken(trace.rows, "network-agreement", [1, 2])


def test_one_that_crashed_before_need_not_be_told() -> None:
    trace = ring(1, 2, 3)
    trace.send(1, 2, 3)
    trace.crash(3)
    tell(trace, 2, "in_service", "faulty", DEAD, nodes=(1, 2))
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2])
    fine(trace.rows)


def test_one_that_crashed_in_the_middle_need_not_be_told() -> None:
    trace = ring(1, 2, 3)
    tell(trace, 1, "in_service", "sick", "?")
    message = trace.originate(1, seq=2)
    trace.receive(message, 2, 3)
    trace.deliver(message, 1, 2, 3)
    tell(trace, 2, "sick", "faulty", DEAD, nodes=(1, 2))
    trace.crash(3)
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2])
    fine(trace.rows)


# network-no-configuration


def changes() -> TraceBuilder:
    trace = ring(1, 2, 3)
    trace.send(1, 2, 3)
    return trace


def test_a_configuration_though_every_two_share_a_network() -> None:
    trace = changes()
    settled_us = trace.at_us
    trace.move(1, 2, 3, seq=12)
    shared = (Calm(0, settled_us, trace.at_us),)
    broken(trace.rows, "network-no-configuration", [2], shared=shared)
    fine(trace.rows, shared=(Calm(0, trace.at_us, trace.at_us + 1),))
    fine(trace.rows, shared=(Calm(0, 1, 2),))
    fine(trace.rows)


# no-needless-retransmission


def test_a_retransmission_though_nothing_was_lost() -> None:
    trace = changes()
    since_us = trace.at_us
    trace.row(2, "retransmit", ring=RING, seq=1, count=1)
    broken(trace.rows, "no-needless-retransmission", [2], lossless=(Calm(0, since_us, trace.at_us),))
    fine(trace.rows, lossless=(Calm(0, trace.at_us, trace.at_us + 1), Calm(0, 1, since_us)))


# network-no-false-alarm


def test_a_network_that_fails_though_nothing_was_lost() -> None:
    trace = told()
    broken(trace.rows, "network-no-false-alarm", [2], lossless=(Calm(0, 1, trace.at_us),))
    fine(trace.rows, lossless=(Calm(0, trace.at_us, trace.at_us + 1),))


# network-alarmed


def alarmed(trace: TraceBuilder, **other: Any) -> tuple[Alarmed, ...]:
    fault = {"network": 1, "from_us": 0, "told_us": trace.at_us, "why": DEAD}
    return (Alarmed(**{**fault, **other}),)


def test_a_fault_that_nobody_is_told_of() -> None:
    trace = changes()
    broken(trace.rows, "network-alarmed", [2], alarmed=alarmed(trace))


def test_a_fault_that_one_is_not_told_of() -> None:
    trace = changes()
    tell(trace, 2, "in_service", "faulty", DEAD)
    fine(trace.rows, alarmed=alarmed(trace))
    broken(trace.rows, "network-alarmed", [1], alarmed=alarmed(trace, network=2))


def test_a_fault_that_is_told_of_too_late() -> None:
    trace = changes()
    before_us = trace.at_us
    tell(trace, 2, "in_service", "faulty", DEAD)
    broken(trace.rows, "network-alarmed", [3], alarmed=alarmed(trace, told_us=before_us))


def test_a_fault_that_is_not_named_rightly_at_last() -> None:
    trace = changes()
    tell(trace, 2, "in_service", "faulty", DEAD)
    fine(trace.rows, alarmed=alarmed(trace))
    tell(trace, 3, "faulty", "faulty", "2 cannot send")
    broken(trace.rows, "network-alarmed", [1], alarmed=alarmed(trace))


def test_whoever_is_down_need_not_be_told() -> None:
    trace = ring(1, 2, 3)
    trace.crash(3)
    trace.transitional("10@1", [1, 2])
    trace.regular("12@1", [1, 2])
    tell(trace, 1, "in_service", "faulty", DEAD, nodes=(1, 2), ring="12@1")
    fine(trace.rows, alarmed=alarmed(trace))
