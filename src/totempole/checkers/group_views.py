"""Views: all see the same ones, each is in its own, and they come before their messages."""

from __future__ import annotations

from bisect import bisect_left

from totempole.checkers.group_history import Delivery, GroupHistory, View, ViewId, ring_of
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.types import NO_RING, Place, RingId


def view_agreement(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    """Who installs a view is told the same of it as all others who do.

    Who came along differs where parts of a group merge, each with its own past; but whoever is named as
    company by several has the same company for all of them.
    """
    first: dict[ViewId, View] = {}
    companies: dict[ViewId, dict[frozenset[str], View]] = {}
    for process in groups.processes:
        for view in process.views:
            known = first.setdefault(view.id, view)
            if (known.regular, known.changed, known.members) != (view.regular, view.changed, view.members):
                _disagree(known, view, _named(known), _named(view), found)
            companies.setdefault(view.id, {}).setdefault(view.together, view)
    for told in companies.values():
        if len(told) > 1:
            _check_companies(list(told.values()), found)
    for node in groups.absent(name for view in first.values() for name in view.members):
        found.undecided(f"Node {node}, of which processes are in views, left no trace.")


def _check_companies(views: list[View], found: Findings) -> None:
    owners: dict[str, View] = {}
    for view in views:
        for name in sorted(view.together):
            other = owners.setdefault(name, view)
            if other is not view:
                _disagree(
                    other,
                    view,
                    f"together {_listed(other.together)}",
                    f"together {_listed(view.together)}",
                    found,
                )
                break


def _disagree(first: View, second: View, mine: str, yours: str, found: Findings) -> None:
    found.violated(
        f"Processes {first.owner} and {second.owner} were told differently of the view of group "
        f"{first.group} at {first.place}: {mine}, and {yours}.",
        first.row,
        second.row,
    )


def self_inclusion(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    """A process is in its views, and gets the messages of groups that it is in, and no others."""
    regular = _regular_views(groups)
    for process in groups.processes:
        name = process.name
        for event in process.events:
            if type(event) is View:
                if name not in event.members:
                    found.violated(
                        f"Process {name} installed a view of group {event.group} at {event.place} and is not "
                        f"in it: {_listed(event.members)}.",
                        event.row,
                    )
            elif type(event) is Delivery:
                _check_receiver(name, event, regular, found)


_Views = dict[tuple[str, RingId], tuple[list[Place], list[View]]]


def _regular_views(groups: GroupHistory) -> _Views:
    """For each group and ring its regular views, in order of place, as someone was told of them."""
    told = {view.id: view for process in groups.processes for view in process.views if view.regular}
    found: _Views = {}
    for view in sorted(told.values(), key=lambda view: view.place):
        places, views = found.setdefault((view.group, ring_of(view.place)), ([], []))
        places.append(view.place)
        views.append(view)
    return found


def _check_receiver(name: str, delivery: Delivery, regular: _Views, found: Findings) -> None:
    """Nobody is told that he has left. A later view of another must do, if there is one on the same ring:
    there all see the same members, though some may not come as far."""
    row, place = delivery.row, delivery.place
    if row.configuration != row.ring and delivery.views:
        return  # in a transitional configuration, whose members were cut off from others on the same ring
    witness: View | None = None
    for view in delivery.views:
        places, views = regular.get((view.group, ring_of(place)), ([], []))
        index = bisect_left(places, place)
        if not index or places[index - 1] <= view.place or name in views[index - 1].members:
            return
        witness = views[index - 1]
    text = f"Process {name} delivered {row.message} to {', '.join(row.groups.to)} at {place} "
    if witness is None:
        found.violated(f"{text}and is in no view of it.", row)
    else:
        found.violated(
            f"{text}and is not in the view of {witness.group} at {witness.place}, which process "
            f"{witness.owner} installed: {_listed(witness.members)}.",
            row,
            witness.row,
        )


def views_first(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    """The members of a new ring exchange their tables first: before that there are no views to deliver in.
    A transitional view ends with its configuration."""
    starts: dict[RingId, View] = {}
    for process in groups.processes:
        for view in process.views:
            if view.regular and view.changed == "configuration":
                known = starts.setdefault(ring_of(view.place), view)
                if view.place < known.place:
                    starts[ring_of(view.place)] = view
    for process in groups.processes:
        for event in process.events:
            start = starts.get(ring_of(event.place))
            # A transitional configuration has its place on the old ring, whose exchange may never have ended.
            if start is not None and event.place < start.place and event.place.key.conf_id == NO_RING:
                _too_early(event, start, found)
            if type(event) is Delivery:
                _check_transitional(event, found)


def _check_transitional(delivery: Delivery, found: Findings) -> None:
    row = delivery.row
    for view in delivery.views:
        if not view.regular and view.row.configuration != row.configuration and view.membership.left is None:
            found.violated(
                f"Process {row.process} delivered {row.message} in {row.configuration}, when its view of "
                f"{view.group} was still the transitional one at {view.place} of {view.row.configuration}.",
                view.row,
                row,
            )


def _too_early(event: View | Delivery, start: View, found: Findings) -> None:
    row = event.row
    what = f"delivered {row.message}" if row.message else f"installed a view of {row.group}"
    found.violated(
        f"Process {row.process} {what} at {event.place}, before the exchange of tables ended with the views "
        f"at {start.place}, which process {start.owner} installed.",
        row,
        start.row,
    )


def _named(view: View) -> str:
    return f"{view.row.configuration_kind} by {view.changed} {{{_listed(view.members)}}}"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
