"""Primary components follow each other (COReL §5.5.1), the replica set changes by the order alone, and nobody
waits for replicas that look on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from totempole.checkers.corel_history import LogHistory
from totempole.checkers.corel_quorum import DYNAMIC, disks_of, is_quorum, weights_of
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.corel import (
    ATTEMPTED,
    COMMITTED,
    ESTABLISHED,
    HANDLER,
    LEARNED,
    LOOKING_ON,
)
from totempole.trace.schema import Row
from totempole.types import ProcessorId

# corel-one-primary


def one_primary(log: LogHistory, terms: Terms, found: Findings) -> None:
    _check_numbers(log, found)
    _check_members(log, found)
    _check_stages(log, found)


def _check_numbers(log: LogHistory, found: Findings) -> None:
    """A replica's attempts are numbered upwards, restarts included: an attempt is on disk before it is said,
    and one that was not is nobody's."""
    for node, mine in sorted(log.by_node.items()):
        known: Row | None = None
        for row in mine:
            if row.kind != "primary":
                continue
            if row.reason == COMMITTED:
                if known is not None and row.corel.primary < known.corel.primary:
                    found.violated(
                        f"Node {node} committed primary {row.corel.primary} after primary "
                        f"{known.corel.primary}.",
                        known,
                        row,
                    )
                known = row
            elif row.reason == ATTEMPTED and known is not None and row.corel.primary <= known.corel.primary:
                found.violated(
                    f"Node {node} attempted primary {row.corel.primary}, and had committed primary "
                    f"{known.corel.primary}.",
                    known,
                    row,
                )


def _check_members(log: LogHistory, found: Findings) -> None:
    """What is committed under one number has one membership, and shares a member with the one before."""
    first: dict[int, Row] = {}
    for row in log.primaries:
        if row.reason not in (COMMITTED, ESTABLISHED):
            continue
        other = first.setdefault(row.corel.primary, row)
        if (other.members, other.corel.voters) != (row.members, row.corel.voters):
            found.violated(
                f"Primary {row.corel.primary} has two memberships: {_members(other)} at node {other.node}, "
                f"and {_members(row)} at node {row.node}.",
                other,
                row,
            )
    numbered = [row for _, row in sorted(first.items())]
    for before, after in pairwise(numbered):
        if not {*before.members} & {*after.corel.voters}:
            found.violated(
                f"Primary {before.corel.primary} of {_members(before)} and primary {after.corel.primary} of "
                f"{_members(after)} have no member in common.",
                before,
                after,
            )


def _members(row: Row) -> str:
    return ", ".join(map(str, row.members))


def _check_stages(log: LogHistory, found: Findings) -> None:
    """Figure 3.6: all voters attempt before one commits, and commit before one establishes. Of a node whose
    trace is not whole, nobody knows."""
    done: dict[tuple[str, int], set[ProcessorId]] = {}
    for row in log.primaries:
        done.setdefault((row.reason, row.corel.primary), set()).add(row.node)
    for row in log.primaries:
        stage = {COMMITTED: ATTEMPTED, ESTABLISHED: COMMITTED}.get(row.reason)
        if stage is None:
            continue
        there = done.get((stage, row.corel.primary), set())
        missing = [
            who
            for who in row.corel.voters
            if who not in there and who in log.by_node and not log.ring.was_killed(who)
        ]
        if missing:
            found.violated(
                f"Node {row.node} has {row.reason} primary {row.corel.primary}, which node {missing[0]} has "
                f"not {stage}.",
                row,
                nodes=(row.node, missing[0]),
            )


# corel-sets


def sets(log: LogHistory, terms: Terms, found: Findings) -> None:
    _check_same(log, found)
    for node, mine in sorted(log.sets.items()):
        for _, told in log.openings_of(node, mine):
            for before, after in pairwise(told):
                _check_change(node, before, after, found)
    for row in log.primaries:
        if row.reason == COMMITTED:
            _check_quorum(log, row, found)


def _check_same(log: LogHistory, found: Findings) -> None:
    """The set after a green run is the same for all."""
    there: dict[int, Row] = {}
    for mine in log.sets.values():
        for row in mine:
            other = there.setdefault(row.corel.place, row)
            if _set(other) != _set(row):
                found.violated(
                    f"After place {row.corel.place} the replicas are {_text(other)} by node {other.node}, "
                    f"and {_text(row)} by node {row.node}.",
                    other,
                    row,
                )


def _set(row: Row) -> tuple[object, ...]:
    corel = row.corel
    return row.members, corel.disks, corel.weights, corel.rule, corel.floor


def _text(row: Row) -> str:
    each = zip(row.members, row.corel.weights, row.corel.disks, strict=False)
    return ", ".join(f"{who} (weight {weight}, disk {disk})" for who, weight, disk in each)


def _check_change(node: ProcessorId, before: Row, after: Row, found: Findings) -> None:
    """A change concerns one replica; the record of a primary, only the disks."""
    if after.reason not in ("change", "primary"):
        return  # an opening, or a prefix that came whole
    old, new = weights_of(before), weights_of(after)
    changed = {who for who in {*old, *new} if old.get(who) != new.get(who)}
    if len(changed) > (after.reason == "change"):
        found.violated(
            f"The replicas went from {_text(before)} to {_text(after)} at node {node} by one {after.reason}.",
            before,
            after,
        )


def _check_quorum(log: LogHistory, row: Row, found: Findings) -> None:
    """A primary is formed by a quorum of the set at the green line, with the disks that count."""
    replicas = log.set_before(row)
    if replicas is None:
        return  # it founds the log
    right = disks_of(replicas)
    there = [who for who, disk in disks_of(row).items() if right.get(who) == disk]
    voters: tuple[ProcessorId, ...] = ()
    if replicas.corel.rule == DYNAMIC:
        before = _known_before(log, row)
        if before is None:
            return
        voters = before.corel.voters
    # A set that has shrunk below the floor needs all that are left.
    least = min(replicas.corel.floor, len(replicas.members))
    is_small = replicas.corel.rule == DYNAMIC and len(there) < least
    if is_small or not is_quorum(there, replicas, voters):
        found.violated(
            f"Node {row.node} committed primary {row.corel.primary} of {_members(row)}, and of the replicas "
            f"{_text(replicas)} only {', '.join(map(str, there)) or 'none'} are there.",
            replicas,
            row,
        )


def _known_before(log: LogHistory, row: Row) -> Row | None:
    """The primary that the replica knew of last."""
    earlier = [
        other
        for other in log.by_node[row.node]
        if other.step < row.step
        and (other.kind == "log_open" or (other.kind == "primary" and other.reason in (COMMITTED, LEARNED)))
    ]
    return earlier[-1] if earlier and earlier[-1].corel.voters else None


# corel-onlookers


def onlookers(log: LogHistory, terms: Terms, found: Findings) -> None:
    """A replica that is far behind looks on: no primary of its round counts on it, and at the end of a run
    no handler waits with it."""
    looking = {
        (row.corel.view, row.corel.round, row.node): row
        for row in log.of_kind("phase")
        if row.new_state == LOOKING_ON
    }
    if not looking:
        return
    for phase, row in _primaries_in_rounds(log):
        for who in row.members:
            seen = looking.get((phase.corel.view, phase.corel.round, who))
            if seen is not None:
                found.violated(
                    f"Node {row.node} has {row.reason} primary {row.corel.primary} with node {who}, which "
                    f"only looks on in that round.",
                    row,
                    seen,
                )
    if terms.complete:
        _check_waiting(log, list(looking.values()), found)


def _primaries_in_rounds(log: LogHistory) -> Iterator[tuple[Row, Row]]:
    for row in log.primaries:
        phase = log.phase_before(row)
        if phase is not None and row.reason != LEARNED:
            yield phase, row


def _check_waiting(log: LogHistory, looking: list[Row], found: Findings) -> None:
    for node, phases in sorted(log.phases.items()):
        if not phases or log.alive(node) is None or phases[-1].new_state not in HANDLER:
            continue
        last = phases[-1]
        for seen in looking:
            same = (seen.corel.view, seen.corel.round) == (last.corel.view, last.corel.round)
            if same and seen.node != node and last.new_state != "exchanging":
                found.violated(
                    f"Node {node} is still {last.new_state} in a round in which node {seen.node} looks on.",
                    last,
                    seen,
                )
                break
