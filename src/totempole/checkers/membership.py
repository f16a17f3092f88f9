"""The membership services: Totem §3.4, theorems 4.1, 4.3 and 4.4."""

from __future__ import annotations

from totempole.checkers.history import History, transition
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.srp import FORMING
from totempole.trace.lives import Life, Stay
from totempole.trace.schema import Row


def unique_configurations(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.1. An identifier is never used again, not even after a crash: it is kept on disk. It rests on
    ring numbers that only grow, also those of rings that are agreed to and never installed (Totem §4.2)."""
    names: dict[str, Row] = {}
    for lives in history.by_node.values():
        mine: dict[str, Row] = {}
        highest: Stay | None = None
        for life in lives:
            _check_first(life, found)
            _check_commit_tokens(history, life, found)
            for stay in life.stays:
                _check_meaning(stay, names, found)
                _check_reuse(stay, mine, found)
                if stay.regular:
                    _check_increase(highest, stay, found)
                    highest = stay if highest is None or stay.id > highest.id else highest


def _check_first(life: Life, found: Findings) -> None:
    if life.stays and not (life.stays[0].regular and life.stays[0].members == (life.node,)):
        change = life.stays[0].change
        found.violated(
            f"Node {life.node} began life {life.incarnation} in {_named(change)} and not alone.", change
        )


def _check_commit_tokens(history: History, life: Life, found: Findings) -> None:
    """Totem §4.2: a Commit token is accepted only if its ring number is above the last one accepted."""
    highest: Row | None = None
    for row in life.states:
        if transition(row) != FORMING:
            continue
        if highest is None or history.ring(row.ring).seq > history.ring(highest.ring).seq:
            highest = row
            continue
        found.violated(
            f"Node {row.node} accepted a Commit token of ring {row.ring} after one of ring {highest.ring}.",
            highest,
            row,
        )


def _check_meaning(stay: Stay, names: dict[str, Row], found: Findings) -> None:
    change = stay.change
    first = names.setdefault(stay.name, change)
    if (first.configuration_kind, first.members) != (change.configuration_kind, change.members):
        found.violated(
            f"Nodes {first.node} and {change.node} mean different configurations by {stay.name}: "
            f"{_named(first)} and {_named(change)}.",
            first,
            change,
        )
    if change.node not in change.members:
        found.violated(f"Node {change.node} installed {_named(change)} and is not in it.", change)


def _check_reuse(stay: Stay, mine: dict[str, Row], found: Findings) -> None:
    earlier = mine.setdefault(stay.name, stay.change)
    if earlier is not stay.change:
        found.violated(
            f"Node {earlier.node} installed configuration {stay.name} twice.", earlier, stay.change
        )


def _check_increase(highest: Stay | None, stay: Stay, found: Findings) -> None:
    if highest is not None and stay.id < highest.id:
        found.violated(
            f"Node {stay.change.node} installed ring {stay.name} after the higher ring {highest.name}.",
            highest.change,
            stay.change,
        )


def termination(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.3. Nobody stays behind in a configuration that another member has left."""
    for life, stay in history.open_stays():
        if not stay.regular:
            found.overdue(
                terms.complete,
                f"Node {life.node} is still in the transitional configuration {stay.name}.",
                stay.change,
            )
            continue
        for member in stay.members:
            _check_member(history, terms, stay, member, found)


def _check_member(history: History, terms: Terms, stay: Stay, member: int, found: Findings) -> None:
    if member not in history.by_node:
        found.undecided(f"Node {member} of configuration {stay.name} left no trace.")
        return
    life = history.current(member)
    if life is not None and life.stays and life.stays[-1].name == stay.name:
        return
    where = f"is in {life.stays[-1].name}" if life is not None and life.stays else "is down"
    found.overdue(
        terms.complete,
        f"Node {stay.change.node} is still in configuration {stay.name}, while its member {member} {where}.",
        stay.change,
        nodes=[stay.change.node, member],
    )


def configuration_change_consistency(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.4. Who moves from C1 to C2 is told so in the same words as all others who do."""
    members: dict[str, Row] = {}
    changes: dict[tuple[str, str], Row] = {}
    origins: dict[str, tuple[str, Row]] = {}
    for life in history.lives:
        for stay in life.stays:
            first = members.setdefault(stay.name, stay.change)
            if first.members != stay.change.members:
                _disagree("the members of", first, stay.change, found)
            _check_link(life, stay, found)
            before = life.before(stay)
            if before is not None:
                _check_change(before, stay, changes, found)
                _check_shape(before, stay, origins, found)
    for name, row in members.items():
        for node in history.absent(row.members):
            found.undecided(f"Node {node} of configuration {name} left no trace.")


def _check_link(life: Life, stay: Stay, found: Findings) -> None:
    before = life.before(stay)
    name = before.name if before is not None else "0@0"
    if stay.change.previous != name:
        found.violated(
            f"Node {life.node} was told that {stay.name} terminates {stay.change.previous}, but was in "
            f"{name}.",
            stay.change,
        )
    old_ring = name if before is not None and not stay.regular else stay.name
    if stay.change.ring != old_ring:
        found.violated(
            f"Node {life.node} was told of {stay.name} on ring {stay.change.ring} and not on {old_ring}.",
            stay.change,
        )


def _check_change(before: Stay, stay: Stay, changes: dict[tuple[str, str], Row], found: Findings) -> None:
    change = stay.change
    first = changes.setdefault((before.name, stay.name), change)
    if (first.configuration_kind, first.ring, first.seq) != (
        change.configuration_kind,
        change.ring,
        change.seq,
    ):
        _disagree(f"the change from {before.name} to", first, change, found)


def _check_shape(before: Stay, stay: Stay, origins: dict[str, tuple[str, Row]], found: Findings) -> None:
    """A transitional configuration stands between two regular ones and is a part of both (Totem §4.2)."""
    if before.regular == stay.regular:
        found.violated(
            f"Node {stay.change.node} moved from {_named(before.change)} straight to {_named(stay.change)}.",
            before.change,
            stay.change,
        )
        return
    part, whole = (before, stay) if stay.regular else (stay, before)
    if not set(part.members) <= set(whole.members):
        found.violated(
            f"Node {stay.change.node} installed {_named(part.change)}, which is no part of "
            f"{_named(whole.change)}.",
            before.change,
            stay.change,
        )
    if not stay.regular:
        name, row = origins.setdefault(stay.name, (before.name, stay.change))
        if name != before.name:
            found.violated(
                f"Nodes {row.node} and {stay.change.node} came to the transitional configuration "
                f"{stay.name} from different rings, {name} and {before.name}.",
                row,
                stay.change,
            )


def outsiders_break_no_ring(history: History, terms: Terms, found: Findings) -> None:
    """Totem §4.2: a Join from outside cannot make a processor give up on a member of its own ring."""
    for row in history.suspicions:
        ring = history.configurations.get(row.configuration)
        if ring is None or row.origin in ring.members:
            continue
        given_up = sorted(set(row.members) & set(ring.members))
        if given_up:
            found.violated(
                f"Node {row.node} gave up on {', '.join(map(str, given_up))} of its own configuration "
                f"{row.configuration} because node {row.origin}, which is not in it, said so.",
                row,
            )


def _disagree(what: str, first: Row, second: Row, found: Findings) -> None:
    found.violated(
        f"Nodes {first.node} and {second.node} were told differently of {what} {second.configuration}: "
        f"{_named(first)} on {first.ring} at {first.seq}, {_named(second)} on {second.ring} at {second.seq}.",
        first,
        second,
    )


def _named(change: Row) -> str:
    members = ", ".join(map(str, change.members))
    return f"{change.configuration_kind} {change.configuration} {{{members}}}"
