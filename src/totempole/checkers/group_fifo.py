"""First in, first out: a sender's messages arrive in the order of sending, and none is passed over.

What is passed over can be judged on one ring. A process delivers a message on it: then its processor had all
that the ring carried before, so that whatever the sender had on the ring before must have come too, if it was
for a group that the receiver was in by then. Which messages these are is known from others who delivered
them; one that nobody delivered was on the ring if its sender was in that configuration when it sent it, and
after all that the sender's processor had seen by then.

From one ring to a later one, or from group to group, it can be judged of receivers whose processors stayed
with the sender's (group_fate.py): whatever came back to the sender was sent again before anything later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from totempole.checkers.group_fate import Missed, missed, was_with_sender
from totempole.checkers.group_history import Delivery, GroupHistory, Membership, Message, Process, ring_of
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row
from totempole.types import Place, RingId

SHOWN_MAX = 10


@dataclass(slots=True)
class _Line:
    """What one process sent to one group on one ring, in the order of sending."""

    messages: list[Message] = field(default_factory=list)
    floors: list[Place] = field(default_factory=list)
    """Each message has this place or a later one. They never decrease."""
    index: dict[Message, int] = field(default_factory=dict)

    def add(self, message: Message, floor: Place) -> None:
        self.index[message] = len(self.messages)
        self.messages.append(message)
        self.floors.append(max(floor, self.floors[-1]) if self.floors else floor)


_Lines = dict[tuple[str, str, RingId], _Line]


def first_in_first_out(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    lines: _Lines = {}
    for process in groups.processes:
        _check_numbers(process, found)
        for message in process.sends:
            _enlist(groups, message, lines)
    for process in groups.processes:
        _check_receiver(process, lines, found)
    _check_across_rings(groups, found)
    senders = {message.sender for message in groups.messages.values() if message.sent is None}
    for node in groups.absent(senders):
        found.undecided(f"Node {node}, whose processes sent messages, left no trace.")


def _check_numbers(process: Process, found: Findings) -> None:
    """A sender numbers its messages as it sends them."""
    expected = 1
    for message in process.sends:
        if message.number != expected and message.sent is not None:
            found.violated(
                f"Process {process.name} sent {message.name}, when its next message was number {expected}.",
                message.sent,
            )
        expected = message.end


def _enlist(groups: GroupHistory, message: Message, lines: _Lines) -> None:
    line = _line_of(groups, message)
    if line is not None and message.sent is not None:
        ring, floor = line
        for group in message.sent.groups.to:
            lines.setdefault((message.sender, group, ring), _Line()).add(message, floor)


def _line_of(groups: GroupHistory, message: Message) -> tuple[RingId, Place] | None:
    """The ring that carried the message, if that is known, and a place on it before which it was not."""
    row = message.sent
    assert row is not None
    if message.first is not None:
        return ring_of(message.first.place), message.first.place
    if message.floor is not None and _regular(groups, row):
        return groups.ring.ring(row.configuration), message.floor
    return None


def _regular(groups: GroupHistory, row: Row) -> bool:
    change = groups.ring.configurations.get(row.configuration)
    return change is not None and change.configuration_kind == "regular"


def _check_receiver(process: Process, lines: _Lines, found: Findings) -> None:
    latest: dict[str, Delivery] = {}
    cursors: dict[tuple[Membership, str, RingId], int] = {}
    for delivery in process.deliveries:
        message = delivery.message
        before = latest.get(message.sender)
        if before is not None and message.number < before.message.end:
            _out_of_order(before, delivery, found)
        else:
            latest[message.sender] = delivery
        _check_passed_over(delivery, lines, cursors, found)


def _check_passed_over(
    delivery: Delivery, lines: _Lines, cursors: dict[tuple[Membership, str, RingId], int], found: Findings
) -> None:
    message, ring = delivery.message, ring_of(delivery.place)
    for view in delivery.views:
        membership = view.membership
        line = lines.get((message.sender, view.group, ring))
        if line is None or message not in line.index:
            continue
        here = line.index[message]
        key = (membership, message.sender, ring)
        start = cursors.get(key)
        if start is None:
            start = bisect_left(line.floors, membership.views[0].place)
        cursors[key] = max(here + 1, start)
        left = membership.left
        if start < here and (left is None or left.step > delivery.row.step):
            _passed_over(delivery, view.group, line.messages[start:here], found)


def _check_across_rings(groups: GroupHistory, found: Findings) -> None:
    """At the first delivery that shows it. What was on the ring of that delivery is judged above."""
    records: dict[Process, _Records] = {}
    for case in missed(groups):
        receiver = case.membership.process
        if receiver not in records:
            records[receiver] = _records_of(receiver)
        later = _first_later(records[receiver].get(case.message.sender), case.message.number)
        if later is None or _on_one_line(groups, case, later):
            continue
        left = case.membership.left
        stays = left is None or left.step > later.row.step
        if stays and was_with_sender(groups, case, ring_of(later.place)):
            _passed_over(later, case.membership.group, [case.message], found)


_Records = dict[str, tuple[list[int], list[Delivery]]]
"""By sender: the numbers that were higher than all before, and their deliveries."""


def _records_of(process: Process) -> _Records:
    records: _Records = {}
    for delivery in process.deliveries:
        numbers, deliveries = records.setdefault(delivery.message.sender, ([], []))
        if not numbers or delivery.message.number > numbers[-1]:
            numbers.append(delivery.message.number)
            deliveries.append(delivery)
    return records


def _first_later(records: tuple[list[int], list[Delivery]] | None, number: int) -> Delivery | None:
    if records is None:
        return None
    numbers, deliveries = records
    index = bisect_right(numbers, number)
    return deliveries[index] if index < len(numbers) else None


def _on_one_line(groups: GroupHistory, case: Missed, later: Delivery) -> bool:
    line = _line_of(groups, case.message)
    groups_of_both = case.membership.group in later.row.groups.to
    return line is not None and groups_of_both and line[0] == ring_of(later.place)


def _passed_over(delivery: Delivery, group: str, missed: list[Message], found: Findings) -> None:
    row = delivery.row
    rows = [message.sent for message in missed[:SHOWN_MAX] if message.sent is not None]
    found.violated(
        f"Process {row.process} delivered {row.message} without {missed[0].name}, which the same sender had "
        f"sent to {group} before, where {row.process} was all the time.",
        row,
        *rows,
        nodes=[row.node],
    )


def _out_of_order(before: Delivery, delivery: Delivery, found: Findings) -> None:
    found.violated(
        f"Process {delivery.row.process} delivered {delivery.row.message} after {before.row.message}, which "
        f"{delivery.message.sender} had sent later.",
        before.row,
        delivery.row,
    )
