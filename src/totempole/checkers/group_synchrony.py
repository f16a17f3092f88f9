"""Virtual synchrony of process groups (Totem CACM "Virtual Synchrony and Extended Virtual Synchrony")."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from totempole.checkers.group_history import GroupHistory, Process, View, ViewId
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings

_Move = tuple[ViewId, frozenset[str]]


def virtual_synchrony(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    """Who goes together from one view to the next has delivered the same in it, in the same order."""
    moves: dict[_Move, View] = {}
    for process in groups.processes:
        for view in process.views:
            if view.before is not None and view.owner in view.together:
                first = moves.setdefault((view.id, view.together), view)
                if first is not view:
                    _compare(first, view, found)
    _check_open_moves(groups, terms, moves, found)
    if terms.complete:
        _check_leavers(groups, found)


def _compare(first: View, second: View, found: Findings) -> None:
    old, other = first.before, second.before
    assert old is not None
    assert other is not None
    who = f"Processes {first.owner} and {second.owner} went together to the view of {first.group}"
    who += f" at {first.place}"
    if old.id != other.id:
        found.violated(
            f"{who}, but came from different views, at {old.place} and {other.place}.", old.row, other.row
        )
        return
    compare_deliveries(old, other, who, found)


def compare_deliveries(mine: View, yours: View, who: str, found: Findings) -> None:
    """Whether two processes have delivered the same in the same view."""
    ours = [delivery.message for delivery in mine.deliveries]
    theirs = [delivery.message for delivery in yours.deliveries]
    if ours == theirs:
        return
    odd = set(ours) ^ set(theirs)
    if odd:
        rows = [d.row for d in chain(mine.deliveries, yours.deliveries) if d.message in odd]
        text = f"{who}, but only {rows[0].process} delivered {rows[0].message} in the one at {mine.place}."
    else:
        pairs = zip(mine.deliveries, yours.deliveries, strict=False)
        rows = next(([a.row, b.row] for a, b in pairs if a.message is not b.message), [mine.row, yours.row])
        text = f"{who}, but delivered in different orders in the one at {mine.place}."
    found.violated(text, *rows[:10], nodes=[mine.row.node, yours.row.node])


def _check_leavers(groups: GroupHistory, found: Findings) -> None:
    """Who leaves a group is in it until the order says so. It is told of no view after that, and is compared
    with one that was, if their processors went on together."""
    known: set[tuple[ViewId, str]] = set()
    for process in groups.processes:
        for view in process.views:
            gone = view.before.members - view.members if view.before is not None else frozenset()
            if view.changed != "leave" or len(gone) != 1:
                continue
            name = next(iter(gone))
            if (view.id, name) not in known:
                known.add((view.id, name))
                _check_leaver(groups, process, view, name, found)


def _check_leaver(groups: GroupHistory, process: Process, view: View, name: str, found: Findings) -> None:
    leaver, before = groups.by_name.get(name), view.before
    assert before is not None
    if leaver is None or leaver.disconnected is not None or not _goes_on_with(groups, process, view, leaver):
        return
    for membership in leaver.memberships.get(view.group, []):
        last = membership.views[-1] if membership.views else None
        if membership.left is not None and last is not None and last.id == before.id:
            told = [delivery for delivery in last.deliveries if delivery.place < view.place]
            who = f"Processes {view.owner} and {name} were in {view.group} until {name} left at {view.place}"
            compare_deliveries(before, replace(last, deliveries=told), who, found)


def _goes_on_with(groups: GroupHistory, process: Process, view: View, other: Process) -> bool:
    """Whether the other one's processor lives, and came along at the next change of configuration."""
    if other.life is not groups.ring.current(other.node):
        return False
    later = (s for s in process.life.stays if not s.regular and s.change.step > view.row.step)
    following = next(later, None)
    return following is None or other.node in following.members


def _check_open_moves(groups: GroupHistory, terms: Terms, moves: dict[_Move, View], found: Findings) -> None:
    for node in groups.absent(name for _, together in moves for name in together):
        found.undecided(f"Node {node}, whose processes came along to views, left no trace.")
    if terms.complete:
        return
    for (_, together), view in moves.items():
        assert view.before is not None
        for name in sorted(together):
            process = groups.by_name.get(name)
            if process is None or process.ended:
                continue
            active = process.active.get(view.group)
            if active is not None and active.views[-1].id == view.before.id:
                found.undecided(f"Process {name} may yet follow to the view of {view.group} at {view.place}.")
