"""What became of each accepted message: who was entitled to it and never got it.

docs/groups.md "What is guaranteed": an accepted message is delivered to all members that stay, unless the
sender's daemon crashes first. The sender need not be a member. A message takes its place after all that its
processor had seen when it accepted it, in the configuration of that time or, sent again, in a later one. So
a process is entitled to it if it was in the group before that, and if its processor was with the sender's in
the configuration of that time and in all transitional configurations until the message had its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from totempole.checkers.group_history import GroupHistory, Membership, Message, Process
from totempole.trace.lives import Life
from totempole.types import RingId


class Missed(NamedTuple):
    """A member that never delivered a message which was sent after it had joined."""

    sender: Process
    message: Message
    membership: Membership


def missed(groups: GroupHistory) -> Iterator[Missed]:
    memberships: dict[str, list[Membership]] = {}
    delivered: dict[Process, set[Message]] = {}
    for process in groups.processes:
        delivered[process] = {delivery.message for delivery in process.deliveries}
        for group, mine in process.memberships.items():
            memberships.setdefault(group, []).extend(one for one in mine if one.views)
    for sender in groups.processes:
        for message in sender.sends:
            row, floor = message.sent, message.floor
            if row is None or floor is None:
                continue
            for group in dict.fromkeys(row.groups.to):
                for membership in memberships.get(group, ()):
                    if membership.views[0].place <= floor and message not in delivered[membership.process]:
                        yield Missed(sender, message, membership)


def was_with_sender(groups: GroupHistory, case: Missed, before: RingId | None = None) -> bool:
    """Whether the member's processor was with the sender's since the message was accepted: until the sender's
    life ended, or until it installed the ring `before`."""
    row, node = case.message.sent, case.membership.process.node
    assert row is not None
    change = groups.ring.configurations.get(row.configuration)
    if change is None or node not in change.members:
        return False
    return all(
        node in stay.members
        for stay in case.sender.life.stays
        if not stay.regular and stay.change.step > row.step and (before is None or stay.id < before)
    )


def left_in_good_order(groups: GroupHistory, life: Life) -> bool:
    """A processor that leaves sends first what its processes had accepted. One that crashes does not, nor one
    that runs out of time because it finds no ring."""
    left = life.ended and life.last is not None and life.last.kind == "leave"
    return left and (life.node, life.incarnation) not in groups.hurried
