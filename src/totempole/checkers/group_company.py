"""Honest company: who a view says is there, and who came along (Totem CACM "Virtual Synchrony…")."""

from __future__ import annotations

from totempole.checkers.group_history import GroupHistory, View, incarnation_of, processor_of
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings


def honest_company(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    seen: set[tuple[object, frozenset[str]]] = set()
    asked: set[tuple[str, str]] = set()
    told: set[tuple[str, str, str]] = set()
    for process in groups.processes:
        for view in process.views:
            if (view.id, view.members) not in seen:
                seen.add((view.id, view.members))
                _check_configuration(groups, view, found)
                for name in sorted(view.members):
                    if (view.group, name) not in asked:
                        asked.add((view.group, name))
                        _check_request(groups, terms, view, name, found)
            _check_change(groups, view, found)
            gone = _gone(view)
            if gone is not None and (view.group, gone, view.changed) not in told:
                told.add((view.group, gone, view.changed))
                _check_reason(groups, terms, view, gone, found)


def _check_configuration(groups: GroupHistory, view: View, found: Findings) -> None:
    row = view.row
    change = groups.ring.configurations.get(row.configuration)
    if change is None:
        found.violated(f"{_who(view)} in no configuration.", row)
        return
    if change.configuration_kind != row.configuration_kind:
        found.violated(
            f"{_who(view)}, a {row.configuration_kind} one, in the {change.configuration_kind} configuration "
            f"{row.configuration}.",
            row,
            change,
        )
    installers = groups.ring.installers.get(row.configuration, {})
    for name in sorted(view.members):
        processor = processor_of(name)
        if processor not in change.members:
            found.violated(
                f"{_who(view)} with {name}, whose processor is not in configuration {row.configuration}.",
                row,
                nodes=[row.node, processor],
            )
        elif processor in installers and installers[processor][0].incarnation != incarnation_of(name):
            found.violated(
                f"{_who(view)} with {name}, but node {processor} was in {row.configuration} in its life "
                f"{installers[processor][0].incarnation}.",
                row,
                nodes=[row.node, processor],
            )


def _check_request(groups: GroupHistory, terms: Terms, view: View, name: str, found: Findings) -> None:
    process = groups.by_name.get(name)
    mine = process.memberships.get(view.group, []) if process is not None else []
    if any(membership.join is not None for membership in mine):
        return
    processor = processor_of(name)
    if processor not in groups.ring.by_node:
        found.undecided(f"Node {processor}, of which {name} is in a view of {view.group}, left no trace.")
        return
    found.overdue(
        groups.must_tell(terms, name, view.row),
        f"{_who(view)} with {name}, which never asked to join.",
        view.row,
        nodes=[view.row.node, processor],
    )


def _gone(view: View) -> str | None:
    """Who left with this view, if one process did, of its own will."""
    if view.before is None or view.changed not in ("leave", "disconnect"):
        return None
    gone = view.before.members - view.members
    return next(iter(gone)) if len(gone) == 1 else None


def _check_reason(groups: GroupHistory, terms: Terms, view: View, name: str, found: Findings) -> None:
    """Whoever is gone by a leave asked for it, and whoever is gone by a disconnect has disconnected."""
    process, processor = groups.by_name.get(name), processor_of(name)
    if process is not None:
        memberships = process.memberships.get(view.group, [])
        left = any(membership.left is not None for membership in memberships)
        if left if view.changed == "leave" else process.disconnected is not None:
            return
    if processor not in groups.ring.by_node:
        found.undecided(f"Node {processor}, of which {name} was in {view.group}, left no trace.")
        return
    never = "asked to leave" if view.changed == "leave" else "disconnected"
    found.overdue(
        groups.must_tell(terms, name, view.row),
        f"{_who(view)} by {view.changed} of {name}, which never {never}.",
        view.row,
        nodes=[view.row.node, processor],
    )


def _check_change(groups: GroupHistory, view: View, found: Findings) -> None:
    """From the view before, if there is one, to this one."""
    before, together = view.before, view.together
    strangers = together - (view.members if before is None else view.members & before.members)
    if strangers:
        _report(view, f"as come along with {_listed(strangers)}, which it cannot have", found)
    if before is None:
        if view.owner in together:
            _report(view, "as come along itself, from a view that it did not have", found)
        return
    if view.owner not in together:
        _report(view, "as if it had not come along itself", found)
    elif (fault := _fault(groups, view, before)) is not None:
        _report(view, fault, found)


def _fault(groups: GroupHistory, view: View, before: View) -> str | None:
    """A change of configuration may bring many and cost many, but a transitional one brings nobody. Any other
    change brings or costs one process, and all the rest come along."""
    come, gone = view.members - before.members, before.members - view.members
    if view.changed == "configuration":
        if not view.regular and view.members != view.together:
            return f"transitional, and with {_listed(view.members - view.together)} more than came along"
        return _fault_of_company(view, companions(groups, view, before))
    expected = (1, 0) if view.changed == "join" else (0, 1)
    if (len(come), len(gone)) != expected:
        return (
            f"by {view.changed}, with {_listed(come) or 'nobody'} come and {_listed(gone) or 'nobody'} gone"
        )
    left_out = (view.members & before.members) - view.together
    if left_out:
        return f"by {view.changed}, as if {_listed(left_out)} had not come along"
    return None


def companions(groups: GroupHistory, view: View, before: View) -> frozenset[str]:
    """Who came along: the members of the view before whose processors were with this one in all transitional
    configurations since (Totem §3.4). Each of them has had the same of the old configuration."""
    since, until = before.row.step, view.row.step
    kept = before.members
    for life in groups.ring.by_node.get(view.row.node, ()):
        for stay in life.stays:
            if not stay.regular and since < stay.change.step <= until:
                kept = frozenset(name for name in kept if processor_of(name) in stay.members)
    return kept


def _fault_of_company(view: View, expected: frozenset[str]) -> str | None:
    if view.together == expected:
        return None
    return f"as come along with {_listed(view.together)}, when {_listed(expected)} did"


def _report(view: View, fault: str, found: Findings) -> None:
    rows = [view.row] if view.before is None else [view.before.row, view.row]
    found.violated(f"{_who(view)} {fault}.", *rows)


def _who(view: View) -> str:
    return f"Process {view.owner} was told of the view of {view.group} at {view.place}"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
