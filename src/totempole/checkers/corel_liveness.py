"""Once the faults stop, a component with a quorum orders all that its members have (COReL, Property 3.8)."""

from __future__ import annotations

from collections.abc import Iterable

from totempole.checkers.corel_history import LogHistory, is_green
from totempole.checkers.corel_quorum import DYNAMIC, disks_of, is_quorum
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.corel import HANDLER, PRIMARY
from totempole.trace.schema import Row
from totempole.types import ProcessorId


def log_liveness(log: LogHistory, terms: Terms, found: Findings) -> None:
    if terms.expectation is None or not terms.complete:
        found.undecided("A complete run and an expectation are needed to tell.")
        return
    for nodes in terms.expectation.groups:
        absent = log.ring.absent(sorted(nodes))
        for node in absent:
            found.undecided(f"Node {node} left no trace.")
        members = [node for node in sorted(nodes) if log.alive(node) is not None and log.phases.get(node)]
        if members and not absent:
            _check_component(log, members, found)


def _check_component(log: LogHistory, members: list[ProcessorId], found: Findings) -> None:
    last = {node: log.phases[node][-1] for node in members}
    for node, phase in last.items():
        if phase.new_state in HANDLER:
            found.violated(f"Node {node} is still {phase.new_state} at the end.", phase)
    if not _may_order(log, last):
        return
    for node, phase in last.items():
        if phase.new_state not in (*HANDLER, PRIMARY):
            found.violated(
                f"Node {node} ended {phase.new_state}; nodes {', '.join(map(str, members))} are a quorum.",
                phase,
            )
    lengths = {node: log.by_node[node][-1] for node in members}
    longest = max(lengths.values(), key=lambda row: row.corel.green_runs)
    for node, row in lengths.items():
        if row.corel.green_runs < longest.corel.green_runs:
            found.violated(
                f"Node {node} ended with {row.corel.green_runs} green runs, and node {longest.node} with "
                f"{longest.corel.green_runs}.",
                row,
                longest,
            )
        for left in _left(log, node):
            found.violated(f"Run {left.message} of node {node} was never ordered there.", left)


def _may_order(log: LogHistory, last: dict[ProcessorId, Row]) -> bool:
    """Whether these members are a quorum of the last replica set that is known, by the disks that they have;
    with dynamic voting, of the last primary that they know and of all later attempts. No set: the log was
    never founded, which takes all its replicas."""
    sets = [row for mine in log.sets.values() for row in mine]
    if not sets:
        return False
    replicas = max(sets, key=lambda row: row.corel.place)
    right = disks_of(replicas)
    there = [node for node, phase in last.items() if right.get(node) == phase.corel.disk]
    if replicas.corel.rule != DYNAMIC:
        return is_quorum(there, replicas, ())
    known = max(phase.corel.primary for phase in last.values())
    past = [row.corel.voters for row in log.primaries if row.corel.primary >= known]
    least = min(replicas.corel.floor, len(replicas.members))
    return len(there) >= least and all(is_quorum(there, replicas, voters) for voters in past)


def _left(log: LogHistory, node: ProcessorId) -> Iterable[Row]:
    """The rows of runs that the replica has, or has accepted, in its last opening and that are not green."""
    waiting: dict[str, Row] = {}
    for row in log.by_node[node]:
        if row.kind == "log_open":
            waiting.clear()
        elif row.kind == "accept":
            waiting[row.message] = row
        elif row.kind == "colour":
            if is_green(row) or not row.new_state:
                waiting.pop(row.message, None)
            else:
                waiting[row.message] = row
    return waiting.values()
