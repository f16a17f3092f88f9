"""One order for all groups (Totem CACM "The Totem Process Group Interface")."""

from __future__ import annotations

from totempole.checkers.group_history import Delivery, GroupHistory, Message, View
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.types import Place


def one_order(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    """Every process sees messages and views at increasing places, in whatever groups it is, and a message has
    one place for all: so any two agree on the order of what both deliver, without being compared."""
    there: dict[Place, Delivery] = {}
    for process in groups.processes:
        latest: View | Delivery | None = None
        for event in process.events:
            if latest is not None and event.place <= latest.place:
                _out_of_order(latest, event, found)
            else:
                latest = event
            if type(event) is Delivery:
                _check_place(event, there, found)


def _check_place(delivery: Delivery, there: dict[Place, Delivery], found: Findings) -> None:
    row, place, message = delivery.row, delivery.place, delivery.message
    other = there.setdefault(place, delivery)
    if other.message is not message:
        found.violated(
            f"Place {place} holds two messages: process {other.row.process} delivered {other.row.message} "
            f"there and process {row.process} {row.message}.",
            other.row,
            row,
        )
    if message.first is not None and message.first.place != place:
        _two_places(message, delivery, found)


def _two_places(message: Message, delivery: Delivery, found: Findings) -> None:
    assert message.first is not None
    first = message.first
    found.violated(
        f"Message {message.name} has two places: process {first.row.process} delivered it at {first.place} "
        f"and process {delivery.row.process} at {delivery.place}.",
        first.row,
        delivery.row,
    )


def _out_of_order(latest: View | Delivery, event: View | Delivery, found: Findings) -> None:
    found.violated(
        f"Process {event.row.process} was told of {_named(event)} at {event.place} after {_named(latest)} at "
        f"{latest.place}.",
        latest.row,
        event.row,
    )


def _named(event: View | Delivery) -> str:
    return event.row.message or f"the view of {event.row.group}"
