"""State for a joiner: whole, from one donor, once, and the state as of its place in the order."""

from __future__ import annotations

from typing import NamedTuple

from totempole.checkers.group_history import (
    NO_DIGEST,
    GroupHistory,
    Membership,
    StateRow,
    order_of,
    processor_of,
)
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.types import Place

NOBODY = ""


class Transfer(NamedTuple):
    group: str
    place: Place
    """As of which the state is."""
    donor: str
    joiner: str


class Transfers:
    """What donors were asked for and gave."""

    def __init__(self, groups: GroupHistory) -> None:
        self.asked: dict[Transfer, StateRow] = {}
        self.given: dict[Transfer, StateRow] = {}
        for state in groups.states:
            known = {"asked": self.asked, "given": self.given}.get(state.stage)
            if known is not None:
                transfer = Transfer(state.row.group, state.place, state.row.process, state.peer)
                known.setdefault(transfer, state)


def transfer_of(begins: StateRow) -> Transfer:
    return Transfer(begins.row.group, begins.place, begins.peer, begins.row.process)


def state_transfer(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    transfers = Transfers(groups)
    _check_donors(groups, transfers, found)
    for process in groups.processes:
        for memberships in process.memberships.values():
            for membership in memberships:
                _check_joiner(groups, terms, transfers, membership, found)
                _check_choice(groups, membership, found)
    _check_prefixes(groups, terms, found)


def _check_donors(groups: GroupHistory, transfers: Transfers, found: Findings) -> None:
    for transfer, asked in transfers.asked.items():
        donor = groups.by_name.get(transfer.donor)
        mine = donor.memberships.get(transfer.group, []) if donor is not None else []
        if not any(membership.offers_state for membership in mine):
            found.violated(
                f"Process {transfer.donor} was asked for the state of {transfer.group} and never offered it.",
                asked.row,
            )
    for transfer, given in transfers.given.items():
        if transfer not in transfers.asked:
            found.violated(
                f"Process {transfer.donor} gave {transfer.joiner} the state of {transfer.group} as of "
                f"{transfer.place} and had not been asked for it.",
                given.row,
            )


def _check_joiner(
    groups: GroupHistory, terms: Terms, transfers: Transfers, membership: Membership, found: Findings
) -> None:
    name, group = membership.process.name, membership.group
    begun: StateRow | None = None
    complete: StateRow | None = None
    for state in membership.states:
        if state.stage == "begins":
            begun = state
            if not membership.wants_state:
                found.violated(
                    f"Process {name} was given the state of {group} and had not asked for it.", state.row
                )
            if complete is not None:
                _twice(name, group, complete, state, found)
        elif state.stage == "last":
            if begun is None or begun.peer != state.peer:
                source = "no one" if begun is None else begun.peer or "nobody"
                found.violated(
                    f"Process {name} got the state of {group} from {state.peer} and not from {source}.",
                    state.row,
                )
                continue
            if complete is not None:
                _twice(name, group, complete, state, found)
            complete = state
            _check_whole(groups, terms, transfers, begun, state, found)


def _check_choice(groups: GroupHistory, membership: Membership, found: Findings) -> None:
    """Who joins gets the state from the first member, by number, that can give it. One that offers it and
    never wanted it itself can."""
    if not membership.views:
        return
    view, name = membership.views[0], membership.process.name
    for state in membership.states:
        if state.stage == "begins" and state.place == view.place:
            able = [other for other in view.members if other != name and _can_give(groups, other, view.group)]
            first = min(able, key=order_of, default=None)
            if first is not None and (state.peer == NOBODY or order_of(first) < order_of(state.peer)):
                found.violated(
                    f"Process {name} was told to get the state of {view.group} from "
                    f"{state.peer or 'nobody'}, when {first} was the first that could give it.",
                    state.row,
                )


def _can_give(groups: GroupHistory, name: str, group: str) -> bool:
    process = groups.by_name.get(name)
    mine = process.memberships.get(group, []) if process is not None else []
    return bool(mine) and all(one.offers_state and not one.wants_state for one in mine)


def _twice(name: str, group: str, first: StateRow, second: StateRow, found: Findings) -> None:
    found.violated(
        f"Process {name} had the state of {group} from {first.peer} when another began or ended, from "
        f"{second.peer}.",
        first.row,
        second.row,
    )


def _check_whole(
    groups: GroupHistory,
    terms: Terms,
    transfers: Transfers,
    begun: StateRow,
    last: StateRow,
    found: Findings,
) -> None:
    transfer = transfer_of(begun)
    given = transfers.given.get(transfer)
    text = f"Process {transfer.joiner} got the state of {transfer.group} as of {transfer.place}"
    if given is None:
        _missing(groups, terms, transfer, last, f"{text}, which {transfer.donor} never gave.", found)
    elif NO_DIGEST in (given.digest, last.digest):
        found.undecided("The states were not compared: the trace's level has no digests of them.")
    elif given.digest != last.digest:
        found.violated(
            f"{text} with digest {last.digest:08x}, and {transfer.donor} gave it with {given.digest:08x}.",
            given.row,
            last.row,
        )


def _missing(
    groups: GroupHistory, terms: Terms, transfer: Transfer, state: StateRow, text: str, found: Findings
) -> None:
    donor = processor_of(transfer.donor)
    if donor not in groups.ring.by_node:
        found.undecided(f"Node {donor}, the donor's, left no trace.")
        return
    told = groups.must_tell(terms, transfer.donor, state.row)
    found.overdue(told, text, state.row, nodes=[state.row.node, donor])


def _check_prefixes(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    """What a joiner loaded is what a replay of the order gives up to that place. Applications that keep such
    a digest write it down: the donor's when it is asked, the joiner's when it has loaded the state.

    Donors are not compared with each other: where parts of a group merge, each part has a past of its own.
    """
    prefixes: dict[tuple[str, Place, str], StateRow] = {}
    begun: dict[tuple[str, Place, str], StateRow] = {}
    for state in groups.states:
        if state.stage in ("prefix", "begins"):
            known = prefixes if state.stage == "prefix" else begun
            known[state.row.group, state.place, state.row.process] = state
    for state in groups.states:
        if state.stage == "state":
            group, joiner = state.row.group, state.row.process
            begins = begun.get((group, state.place, joiner))
            if begins is None:
                found.violated(
                    f"Process {joiner} loaded the state of {group} as of {state.place}, which nobody began.",
                    state.row,
                )
                continue
            prefix = prefixes.get((group, state.place, begins.peer))
            _check_prefix(groups, terms, transfer_of(begins), prefix, state, found)


def _check_prefix(
    groups: GroupHistory,
    terms: Terms,
    transfer: Transfer,
    prefix: StateRow | None,
    state: StateRow,
    found: Findings,
) -> None:
    text = f"The state of {transfer.group} as of {transfer.place} is {state.digest:08x} at {transfer.joiner}"
    if prefix is None:
        _missing(groups, terms, transfer, state, f"{text}, and {transfer.donor} has none.", found)
    elif prefix.digest != state.digest:
        found.violated(
            f"{text} and {prefix.digest:08x} at its donor {transfer.donor}.", prefix.row, state.row
        )
