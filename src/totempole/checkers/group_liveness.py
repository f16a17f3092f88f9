"""Once the faults stop, every group has one view and everything that was sent to it arrives."""

from __future__ import annotations

from collections.abc import Iterable

from totempole.checkers.group_history import GroupHistory, Membership, Process, View
from totempole.checkers.group_state import NOBODY, Transfers, transfer_of
from totempole.checkers.group_synchrony import compare_deliveries
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.types import Place, ProcessorId


def group_liveness(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    if not groups.processes:
        return
    if terms.expectation is None or not terms.complete:
        found.undecided("A complete run and an expectation are needed to tell.")
        return
    transfers = Transfers(groups)
    for nodes in terms.expectation.groups:
        absent = groups.ring.absent(sorted(nodes))
        for node in absent:
            found.undecided(f"Node {node} left no trace.")
        if not absent:
            _check_component(groups, transfers, _alive(groups, nodes), found)


def _alive(groups: GroupHistory, nodes: Iterable[ProcessorId]) -> list[Process]:
    current = {node: groups.ring.current(node) for node in nodes}
    return [
        process
        for process in groups.processes
        if process.disconnected is None and process.life is current.get(process.node)
    ]


def _check_component(
    groups: GroupHistory, transfers: Transfers, alive: list[Process], found: Findings
) -> None:
    wanted: dict[str, list[Membership]] = {}
    for process in alive:
        for group, memberships in process.memberships.items():
            if memberships[-1].left is None:
                wanted.setdefault(group, []).append(memberships[-1])
    earliest: dict[str, Place] = {}
    for group, memberships in sorted(wanted.items()):
        _check_group(group, memberships, transfers, found)
        places = [membership.views[0].place for membership in memberships if membership.views]
        if places:
            earliest[group] = min(places)
    for process in alive:
        _check_own(process, found)
        _check_arrival(process, earliest, found)


def _check_group(group: str, memberships: list[Membership], transfers: Transfers, found: Findings) -> None:
    members = frozenset(membership.process.name for membership in memberships)
    first: View | None = None
    for membership in memberships:
        view = _final_view(group, membership, members, found)
        _check_state(group, membership, transfers, found)
        if view is None:
            continue
        if first is None:
            first = view
        elif view.id != first.id:
            found.violated(
                f"Processes {first.owner} and {view.owner} ended in different views of {group}, "
                f"at {first.place} in {first.row.configuration} and at {view.place} in "
                f"{view.row.configuration}.",
                first.row,
                view.row,
            )
        else:
            who = f"Processes {first.owner} and {view.owner} ended in the same view of {group}"
            compare_deliveries(first, view, who, found)


def _final_view(group: str, membership: Membership, members: frozenset[str], found: Findings) -> View | None:
    """The last view of the membership, if it is the one hoped for."""
    name = membership.process.name
    if not membership.views:
        rows = [membership.join] if membership.join is not None else []
        found.violated(
            f"Process {name} asked to join {group} and never was.", *rows, nodes=[membership.process.node]
        )
        return None
    view = membership.views[-1]
    if not view.regular or view.members != members:
        found.violated(
            f"Process {name} ended in the {view.row.configuration_kind} view of {group} at {view.place} of "
            f"{', '.join(sorted(view.members))}, and not with exactly those who are in it, "
            f"{', '.join(sorted(members))}.",
            view.row,
        )
        return None
    return view


def _check_state(group: str, membership: Membership, transfers: Transfers, found: Findings) -> None:
    """A joiner that wants the state is told where it comes from, and gets what was given."""
    if "wants_state" not in membership.flags or not membership.views:
        return
    name, join = membership.process.name, membership.views[0].row
    begins = [state for state in membership.states if state.what == "begins"]
    if not begins:
        found.violated(f"Process {name} joined {group} and was never told of its state.", join)
        return
    begun = begins[-1]
    given = transfers.given.get(transfer_of(begun)) if begun.other != NOBODY else None
    if given is not None and not any(state.what == "last" for state in membership.states):
        found.violated(
            f"Process {name} never got the state of {group} that {begun.other} gave.", begun.row, given.row
        )


def _check_own(process: Process, found: Findings) -> None:
    """What a process sends to a group that it is in, it gets itself."""
    delivered = {delivery.message for delivery in process.deliveries} if process.sends else set()
    for message in process.sends:
        row = message.sent
        assert row is not None
        if message not in delivered and any(
            _was_in(process, group, row.step) for group in row.group.split(",")
        ):
            found.violated(f"Process {process.name} never delivered its own message {message.name}.", row)


def _was_in(process: Process, group: str, step: int) -> bool:
    asked = process.asked(group)
    return asked is not None and asked.left is None and bool(asked.views) and asked.views[0].row.step < step


def _check_arrival(process: Process, earliest: dict[str, Place], found: Findings) -> None:
    """What is sent in the final configuration reaches who is in the group, be the sender in it or not."""
    final = process.life.stays[-1].name if process.life.stays else ""
    for message in process.sends:
        row, floor = message.sent, message.floor
        if message.first is not None or row is None or floor is None or row.configuration != final:
            continue
        group = next(
            (name for name in row.group.split(",") if name in earliest and earliest[name] <= floor), None
        )
        if group is not None:
            found.violated(f"Nobody in {group} ever delivered {message.name}, sent in {final}.", row)
