"""The index of groups as the checkers have it and as Spark has it, in one shape, to be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agreement import Runs

from totempole.checkers.group_history import Delivery, GroupHistory, Membership, Message, Process, View
from totempole.checkers.history import History
from totempole.spark.group_silver import GroupSilver
from totempole.trace.schema import Row
from totempole.types import Place

Fact = tuple[Any, ...]
"""A table's name, a run, and columns; a process is told by its number, a row by (node, step)."""


def facts_of_checkers(runs: Runs) -> set[Fact]:
    found: set[Fact] = set()
    for run, (rows, _) in runs.items():
        ordered = sorted(rows, key=lambda row: (row.node, row.step))
        groups = GroupHistory(ordered, History(ordered))
        found |= {(fact[0], run, *fact[1:]) for fact in _facts(groups)}
    return found


def _facts(groups: GroupHistory) -> Iterator[Fact]:
    for number, process in enumerate(groups.processes):
        yield _process(groups, number, process)
        for memberships in process.memberships.values():
            for membership in memberships:
                yield _membership(number, membership, membership is memberships[-1])
                for state in membership.states:
                    yield "state of", _at(state.row), number, membership.index + 1
        for event in process.events:
            yield from _view(number, event) if type(event) is View else _delivery(number, event)
        for row, place in process.notices:
            yield "notice", _at(row), number, _flat(place)
    for message in groups.messages.values():
        yield _message(message)
        yield from (("again", message.name, _at(row)) for row in message.again)
    for state in groups.states:
        yield "state", _at(state.row), _flat(state.place), state.stage, state.peer, state.digest


def _process(groups: GroupHistory, number: int, process: Process) -> Fact:
    life = process.life
    final = life.stays[-1].name if life.stays else None
    latest = groups.by_name[process.name] is process
    current = groups.ring.current(process.node) is life
    gone = process.disconnected is not None
    return "process", number, process.name, process.node, gone, latest, process.ended, current, final


def _membership(number: int, membership: Membership, last: bool) -> Fact:
    views = membership.views
    ends = (_at(views[0].row), _at(views[-1].row)) if views else (None, None)
    return (
        *("membership", number, membership.group, membership.index + 1, last, _at(membership.join)),
        *(_at(membership.left), membership.offers_state, membership.wants_state, *ends),
    )


def _view(number: int, view: View) -> Iterator[Fact]:
    members, together = tuple(sorted(view.members)), tuple(sorted(view.together))
    before = _at(view.before.row) if view.before else None
    yield (
        *("view", _at(view.row), number, view.group, _flat(view.place), view.id[2], view.regular),
        *(view.changed, members, together, view.membership.index + 1, before),
    )


def _delivery(number: int, delivery: Any) -> Iterator[Fact]:
    assert type(delivery) is Delivery
    row = _at(delivery.row)
    yield "delivery", row, number, _flat(delivery.place), delivery.row.digest
    for view in delivery.views:
        yield "seen", row, number, view.group, _at(view.row), view.membership.index + 1


def _message(message: Message) -> Fact:
    first = (_at(message.first.row), _flat(message.first.place)) if message.first else None
    floor = _flat(message.floor) if message.floor else None
    sent = _at(message.sent)
    return "message", message.name, message.sender, message.number, message.end, sent, floor, first


def _at(row: Row | None) -> tuple[int, int] | None:
    return None if row is None else (row.node, row.step)


def _flat(place: Place) -> Fact:
    return (*place.key.ring_id, place.key.seq, *place.key.conf_id, place.index)


def facts_of_spark(groups: GroupSilver) -> set[Fact]:
    tables = {name: getattr(groups, name).collect() for name in _TELL}
    numbers = _numbers(tables["processes"])
    found: set[Fact] = set()
    for table, rows in tables.items():
        for row in rows:
            number = numbers[row.run, _shown(row.birth)] if "birth" in row else None
            found |= {(fact[0], row.run, *fact[1:]) for fact in _TELL[table](number, row)}
    return found


def _numbers(processes: list[Any]) -> dict[tuple[str, Any], int]:
    """Processes are numbered by birth, each run's from 0."""
    births = sorted((row.run, _shown(row.birth)) for row in processes)
    first: dict[str, int] = {}
    for index, (run, _) in enumerate(births):
        first.setdefault(run, index)
    return {(run, birth): index - first[run] for index, (run, birth) in enumerate(births)}


def _told_process(number: int, row: Any) -> Iterator[Fact]:
    flags = (row.disconnected, row.latest, row.ended, row.current)
    yield "process", number, row.process, row.node, *flags, row.final


def _told_membership(number: int, row: Any) -> Iterator[Fact]:
    ends = (_shown(view and view.row) for view in (row.first_view, row.last_view))
    yield (
        *("membership", number, row.group, row.membership, row["last"], _shown(row["join"])),
        *(_shown(row.left), row.offers_state, row.wants_state, *ends),
    )


def _told_view(number: int, row: Any) -> Iterator[Fact]:
    before = _shown(row.before and row.before.row)
    yield (
        *("view", _shown(row.row), number, row.group, _place(row.place), row.configuration, row.regular),
        *(row.changed, tuple(row.members), tuple(row.together), row.membership, before),
    )


def _told_delivery(number: int, row: Any) -> Iterator[Fact]:
    yield "delivery", _shown(row.row), number, _place(row.place), row.digest


def _told_reception(number: int, row: Any) -> Iterator[Fact]:
    if row.seen is not None:
        yield "seen", _shown(row.row), number, row.group, _shown(row.seen.row), row.seen.membership


def _told_notice(number: int, row: Any) -> Iterator[Fact]:
    yield "notice", _shown(row.row), number, _place(row.place)


def _told_state(number: int, row: Any) -> Iterator[Fact]:
    yield "state", _shown(row.row), _place(row.place), row.stage, row.peer, row.digest
    if row.membership:
        yield "state of", _shown(row.row), number, row.membership


def _told_send(number: int, row: Any) -> Iterator[Fact]:
    if row.again:
        yield "again", row.message, _shown(row.sent)


def _told_message(number: int, row: Any) -> Iterator[Fact]:
    first = (_shown(row.first.row), _place(row.first.place)) if row.first else None
    floor = _place(row.floor) if row.floor else None
    yield "message", row.message, row.sender, row.number, row.end, _shown(row.sent), floor, first


def _shown(row: Any) -> tuple[int, int] | None:
    return None if row is None else (row.node, row.step)


def _place(place: Any) -> Fact:
    return (*place.ring, place.seq, *place.conf, place["index"])


_TELL = {
    "processes": _told_process,
    "memberships": _told_membership,
    "views": _told_view,
    "deliveries": _told_delivery,
    "receptions": _told_reception,
    "notices": _told_notice,
    "states": _told_state,
    "sends": _told_send,
    "messages": _told_message,
}
