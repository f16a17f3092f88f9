"""Agreement on the membership: Totem §3.3 and theorem 4.2.

A processor installs a ring after it has forwarded the Commit token twice. At the second visit, when it shifts
from Commit to Recover, the token shows that every member has accepted this membership. So of an installed
configuration every member has gone from Commit to Recover, whatever became of it later.
"""

from __future__ import annotations

from totempole.checkers.history import History, transition
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.srp import FORMING
from totempole.trace.lives import Life, Stay
from totempole.trace.schema import Row
from totempole.types import ProcessorId

Sets = tuple[tuple[ProcessorId, ...], tuple[ProcessorId, ...]]
"""my_proc_set and my_fail_set."""


def membership_agreement(history: History, terms: Terms, found: Findings) -> None:
    for installers in history.installers.values():
        life, stay = min(installers.values(), key=lambda entry: (entry[1].change.at_us, entry[0].node))
        if stay.place == 0 and stay.members == (life.node,):
            continue  # a life begins alone, without asking anyone
        for member in stay.members:
            _check_member(history, terms, stay, member, found)
    _check_consensus(history, terms, found)


def _check_member(history: History, terms: Terms, stay: Stay, member: ProcessorId, found: Findings) -> None:
    change = stay.change
    if member not in history.by_node:
        found.undecided(f"Node {member} of configuration {stay.name} left no trace.")
        return
    agreed = history.committed.get(stay.name, {}).get(member)
    if agreed is None:
        found.overdue(
            _told(history, terms, member, change.at_us),
            f"Node {change.node} installed {stay.name}, to which its member {member} never agreed.",
            change,
            nodes=[change.node, member],
        )
        return
    row = agreed[1]
    if row.members != stay.members:
        found.violated(
            f"Node {change.node} installed {stay.name} with members {_listed(stay.members)}, and its member "
            f"{member} had agreed to {_listed(row.members)}.",
            row,
            change,
        )
    if terms.same_clock and row.at_us > change.at_us:
        found.violated(
            f"Node {change.node} installed {stay.name} before its member {member} agreed to it.", row, change
        )


def _told(history: History, terms: Terms, node: ProcessorId, at_us: int) -> bool:
    """Whether the node's trace would show what it did by then: that of a killed life ends too early."""
    if history.was_killed(node):
        return False
    return terms.complete or (terms.same_clock and history.last_at.get(node, -1) >= at_us)


def _check_consensus(history: History, terms: Terms, found: Findings) -> None:
    """The representative makes a Commit token when all members propose what it does (figure 4.7)."""
    proposals = _proposals(history)
    for life in history.lives:
        for row in life.states:
            if transition(row) != FORMING:
                continue
            both = sorted(set(row.members) & set(row.srp.failed))
            if both:
                found.violated(
                    f"Node {row.node} agreed to {row.ring} with {_listed(both)}, which it regards as failed.",
                    row,
                )
            if proposals and history.ring(row.ring).representative == life.node:
                _check_proposals(history, terms, life, row, proposals, found)


def _check_proposals(
    history: History,
    terms: Terms,
    life: Life,
    row: Row,
    proposals: dict[ProcessorId, dict[Sets, Row]],
    found: Findings,
) -> None:
    wanted: Sets = (tuple(sorted({*row.members, *row.srp.failed})), row.srp.failed)
    for member in row.members:
        if member == life.node:
            continue
        join = proposals.get(member, {}).get(wanted)
        if join is not None and (not terms.same_clock or join.at_us <= row.at_us):
            continue
        if member not in history.by_node:
            found.undecided(f"Node {member} of ring {row.ring} left no trace.")
            continue
        # A later Join shows nothing where a life was killed: the rows of an earlier one may be lost.
        late = join is not None and not history.was_killed(member)
        found.overdue(
            late or _told(history, terms, member, row.at_us),
            f"Node {row.node} formed {row.ring} before its member {member} had proposed "
            f"{_listed(wanted[0])} without {_listed(row.srp.failed) or 'exception'}.",
            row,
            *([join] if join is not None else []),
            nodes=[row.node, member],
        )


def _proposals(history: History) -> dict[ProcessorId, dict[Sets, Row]]:
    """What each node has proposed in its Joins, with the first of them. Empty below the level `checked`."""
    proposals: dict[ProcessorId, dict[Sets, Row]] = {}
    for life in history.lives:
        for row in life.joins:
            proposals.setdefault(life.node, {}).setdefault((row.members, row.srp.failed), row)
    return proposals


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, (tuple, list)) else str(values)
