"""Once the faults stop, every group has one view and everything that was sent to it arrives."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from totempole.checkers.group_fate import Missed, left_in_good_order, missed, was_with_sender
from totempole.checkers.group_history import GroupHistory, Membership, Process, View
from totempole.checkers.group_state import NOBODY, Transfers, transfer_of
from totempole.checkers.group_synchrony import compare_deliveries
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.types import ProcessorId


def group_liveness(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    if not groups.processes:
        return
    if terms.expectation is None or not terms.complete:
        found.undecided("A complete run and an expectation are needed to tell.")
        return
    transfers = Transfers(groups)
    lost = list(missed(groups))
    for nodes in terms.expectation.groups:
        absent = groups.ring.absent(sorted(nodes))
        for node in absent:
            found.undecided(f"Node {node} left no trace.")
        if not absent:
            alive = _alive(groups, nodes)
            _check_component(transfers, alive, found)
            for case in lost:
                _check_fate(groups, case, alive, nodes, found)


def _alive(groups: GroupHistory, nodes: Iterable[ProcessorId]) -> list[Process]:
    current = {node: groups.ring.current(node) for node in nodes}
    return [
        process
        for process in groups.processes
        if process.disconnected is None and process.life is current.get(process.node)
    ]


def _check_component(transfers: Transfers, alive: list[Process], found: Findings) -> None:
    wanted: dict[str, list[Membership]] = {}
    for process in alive:
        for group, memberships in process.memberships.items():
            if memberships[-1].left is None:
                wanted.setdefault(group, []).append(memberships[-1])
    for group, memberships in sorted(wanted.items()):
        _check_group(group, memberships, transfers, found)


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
    """A joiner that wants the state is told where it comes from, and gets it: if its donor fails, another
    member takes over (docs/groups.md "Joining with state")."""
    if not membership.wants_state or not membership.views:
        return
    name, join = membership.process.name, membership.views[0].row
    begins = [index for index, state in enumerate(membership.states) if state.stage == "begins"]
    if not begins:
        found.violated(f"Process {name} joined {group} and was never told of its state.", join)
        return
    begun, after = membership.states[begins[-1]], membership.states[begins[-1] + 1 :]
    if begun.peer == NOBODY or any(state.stage == "last" for state in after):
        return
    transfer = transfer_of(begun)
    given, asked = transfers.given.get(transfer), transfers.asked.get(transfer)
    if given is not None:
        text = f"Process {name} never got the state of {group} that {begun.peer} gave."
        found.violated(text, begun.row, given.row)
        return
    what = "was never asked for" if asked is None else "never gave"
    found.violated(
        f"Process {name} waits for the state of {group}, which {begun.peer} {what}.",
        begun.row,
        *([asked.row] if asked is not None else []),
    )


def _check_fate(
    groups: GroupHistory,
    case: Missed,
    alive: list[Process],
    nodes: Collection[ProcessorId],
    found: Findings,
) -> None:
    """What a processor has accepted reaches every member that was with it, be the sender a member or not, if
    the processor lives or has left in good order."""
    sender, membership = case.sender, case.membership
    member = membership.process
    if membership.left is not None or membership is not member.asked(membership.group) or member not in alive:
        return
    how = _how_it_is(groups, sender, nodes)
    if how and was_with_sender(groups, case):
        row = case.message.sent
        assert row is not None
        found.violated(
            f"Process {member.name}, in {membership.group} all the time, never delivered {row.message}; node "
            f"{row.node}, which had accepted it, {how}.",
            row,
            nodes=[row.node, member.node],
        )


def _how_it_is(groups: GroupHistory, sender: Process, nodes: Collection[ProcessorId]) -> str:
    """How the sender's processor did, if it owes what it has accepted."""
    if left_in_good_order(groups, sender.life):
        return "left in good order"
    alive = sender.node in nodes and sender.life is groups.ring.current(sender.node)
    return "lives" if alive else ""
