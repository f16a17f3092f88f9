"""Reliable delivery: Totem §3.5, theorems 4.5 to 4.10."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from itertools import chain

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life, Stay
from totempole.trace.schema import Row


def unique_messages(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.5. One place, one message; one message, one place; originated once."""
    messages: dict[tuple[str, int], Row] = {}
    places: dict[str, Row] = {}
    for row in chain(history.originations, history.receives, history.deliveries):
        message = row.message
        if not message:
            continue
        there = messages.setdefault((row.ring, row.seq), row)
        if there.message != message:
            found.violated(
                f"Place {row.seq} of ring {row.ring} holds two messages: node {there.node} saw "
                f"{there.message} there and node {row.node} saw {message}.",
                there,
                row,
            )
        here = places.setdefault(message, row)
        if here.seq != row.seq or here.ring != row.ring:
            found.violated(
                f"Message {message} has two places: node {here.node} saw it at {here.seq} of {here.ring} "
                f"and node {row.node} at {row.seq} of {row.ring}.",
                here,
                row,
            )
    for row in history.originations:
        first = history.originated[row.message]
        if first is not row:
            found.violated(f"Message {row.message} was originated twice.", first, row)


def single_delivery(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.6, over all of a node's lives."""
    for row in history.deliveries:
        first = history.delivered[row.message][row.node]
        if first is not row:
            found.violated(f"Node {row.node} delivered message {row.message} twice.", first, row)


def no_spurious_delivery(history: History, terms: Terms, found: Findings) -> None:
    """What is delivered was originated, by whom it says, on a ring that it was a member of, and before."""
    for message, deliverers in history.delivered.items():
        source = history.originated.get(message)
        if source is None:
            _check_unknown(history, terms, next(iter(deliverers.values())), found)
            continue
        ring = history.configurations.get(source.ring)
        if ring is not None and source.node not in ring.members:
            found.violated(
                f"Node {source.node} originated {message} on ring {source.ring}, of which it is no member.",
                source,
                *deliverers.values(),
            )
        for row in deliverers.values():
            _check_source(terms, source, row, found)


def _check_unknown(history: History, terms: Terms, row: Row, found: Findings) -> None:
    if row.origin not in history.by_node:
        found.undecided(f"Node {row.origin}, the originator of {row.message}, left no trace.")
        return
    life = history.life_of(row.message)
    if life is not None and life.cut_short:
        told = terms.same_clock and life.last is not None and life.last.at_us >= row.at_us
    else:
        told = terms.complete or (terms.same_clock and history.last_at.get(row.origin, -1) >= row.at_us)
    found.overdue(
        told, f"Node {row.node} delivered {row.message}, which node {row.origin} never originated.", row
    )


def _check_source(terms: Terms, source: Row, row: Row, found: Findings) -> None:
    if row.origin != source.node:
        found.violated(
            f"Node {row.node} delivered {row.message} as from node {row.origin}, but node {source.node} "
            "originated it.",
            source,
            row,
        )
    early = row.step < source.step if row.node == source.node else row.at_us < source.at_us
    if early and (terms.same_clock or row.node == source.node):
        found.violated(
            f"Node {row.node} delivered {row.message} before node {source.node} originated it.", source, row
        )


def self_delivery(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.7. Due at the latest when the originator installs its next regular configuration."""
    for life, stay, row in _originations(history):
        if row.node in history.delivered.get(row.message, ()):
            continue
        next_stay = life.left_for_good(stay.place)
        if next_stay is not None:
            found.violated(
                f"Node {row.node} installed {next_stay.name} without having delivered its own message "
                f"{row.message} of {row.ring}.",
                row,
                next_stay.change,
            )
        elif not life.ended:
            found.overdue(
                terms.complete, f"Node {row.node} never delivered its own message {row.message}.", row
            )


def _originations(history: History) -> Iterator[tuple[Life, Stay, Row]]:
    for life in history.lives:
        for stay in life.stays:
            for row in stay.events:
                if row.kind == "originate":
                    yield life, stay, row


def delivery_in_origin_configuration(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.9. In the configuration of its ring, or in the transitional one right after it."""
    for life in history.lives:
        for row in life.stray:
            if row.kind == "deliver":
                found.violated(f"Node {row.node} delivered {row.message} in no configuration at all.", row)
        ring = ""
        for stay in life.stays:
            ring = stay.name if stay.regular else ring
            name = stay.name
            for row in stay.deliveries:
                if row.ring != ring or row.configuration != name:
                    found.violated(
                        f"Node {row.node} delivered {row.message} of ring {row.ring} in {row.configuration}, "
                        f"when it was in {name} of ring {ring}.",
                        row,
                    )


def all_messages_absent_change(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.8. Whoever stays in a configuration delivers all that is originated in it."""
    for life, stay in history.open_stays():
        if not stay.regular:
            continue
        for node in history.absent(stay.members):
            found.undecided(f"Node {node} of configuration {stay.name} left no trace.")
        for row in undelivered(history, life, stay):
            found.overdue(
                terms.complete,
                f"Node {life.node} stayed in {stay.name} and never delivered {row.message} of node "
                f"{row.origin or row.node}.",
                row,
                nodes=[life.node],
            )


def undelivered(history: History, life: Life, stay: Stay) -> list[Row]:
    """What is known to be on the ring of a regular stay and was delivered neither in it nor right after."""
    slots = history.slots.get(stay.name, {})
    following = life.transitional_after(stay)
    seen = {row.seq for row in stay.deliveries}
    if following is not None:
        seen.update(row.seq for row in following.deliveries)
    return [slots[seq] for seq in history.numbers(stay.name) if seq not in seen]


def transitional_delivery(history: History, terms: Terms, found: Findings) -> None:
    """Totem §4.3, figure 4.15: what is delivered by the end of a transitional configuration.

    That is all messages up to the first that none of its members has received, whoever sent them, and beyond
    it all that its members originated.
    """
    for life in history.lives:
        for stay in life.stays:
            following = life.transitional_after(stay)
            if not stay.regular or following is None:
                continue
            _check_transition(history, terms, life, stay, following, found)


def _check_transition(
    history: History, terms: Terms, life: Life, stay: Stay, following: Stay, found: Findings
) -> None:
    for node in history.absent(following.members):
        found.undecided(f"Node {node} of configuration {following.name} left no trace.")
    moved_on = life.after(following) is not None
    if life.ended and not moved_on:
        return
    up_to_gap = True
    for row in undelivered(history, life, stay):
        source = history.originated.get(row.message)
        holder = _holder(history, life, stay, following, row) if up_to_gap else None
        up_to_gap = holder is not None
        if holder is not None and (source is None or source.node not in following.members):
            found.overdue(
                moved_on or terms.complete,
                f"Node {life.node} ended the transitional configuration {following.name} without having "
                f"delivered {row.message}, which its member {holder.node} had received, as all before it.",
                holder,
                following.change,
                nodes=[life.node],
            )
        elif source is not None and source.node in following.members:
            found.overdue(
                moved_on or terms.complete,
                f"Node {life.node} ended the transitional configuration {following.name} without having "
                f"delivered {row.message} of its member {source.node}.",
                source,
                following.change,
                nodes=[life.node],
            )


def _holder(history: History, life: Life, stay: Stay, following: Stay, row: Row) -> Row | None:
    """The receipt of a message that is in no doubt, by a member of the transitional configuration.

    What a member receives later than its shift to Recover is not part of the exchange (Totem §4.3).
    """
    if _may_follow_a_gap(history, stay, row.seq):
        return None
    new_ring = life.after(following)
    for member in following.members:
        agreed = history.committed.get(new_ring.name, {}).get(member) if new_ring is not None else None
        if agreed is not None:
            receipt = agreed[0].receipts.get(stay.name, {}).get(row.seq)
            if receipt is not None and receipt.step < agreed[1].step:
                return receipt
    return None


def _may_follow_a_gap(history: History, stay: Stay, seq: int) -> bool:
    """Whether a place is empty between this one and the last that was delivered in the regular configuration.

    There may have been a message whose rows are missing. Where nothing was delivered, the first place that is
    known is the ring's first, if no rows of its members are missing.
    """
    numbers = history.numbers(stay.name)
    if stay.deliveries:
        start = max(row.seq for row in stay.deliveries)
    elif history.has_all_rows_of(history.configurations[stay.name].members):
        start = numbers[0]
    else:
        return True
    return bisect(numbers, seq) - bisect(numbers, start) != seq - start


def same_messages_in_consecutive_configurations(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.10, virtual synchrony: who moves from C1 to C2 together delivered the same set in C1."""
    moves: dict[tuple[str, str], Stay] = {}
    for life in history.lives:
        for stay in life.stays:
            following = life.after(stay)
            if following is not None:
                first = moves.setdefault((stay.name, following.name), stay)
                _compare(first, stay, following, found)
    _check_open_moves(history, terms, moves, found)


def _compare(first: Stay, second: Stay, following: Stay, found: Findings) -> None:
    mine = [row.message for row in first.deliveries]
    yours = [row.message for row in second.deliveries]
    if mine == yours or set(mine) == set(yours):
        return
    odd = set(mine) ^ set(yours)
    rows = [row for row in chain(first.deliveries, second.deliveries) if row.message in odd]
    found.violated(
        f"Nodes {first.change.node} and {second.change.node} moved from {first.name} to {following.name} "
        f"together, but only node {rows[0].node} delivered {rows[0].message} in {first.name}.",
        *rows[:10],
        nodes=[first.change.node, second.change.node],
    )


def _check_open_moves(
    history: History, terms: Terms, moves: dict[tuple[str, str], Stay], found: Findings
) -> None:
    last = {life.node: stay.name for life, stay in history.open_stays()}
    for old, new in moves:
        members = history.configurations[new].members
        for node in history.absent(members):
            found.undecided(f"Node {node} of configuration {new} left no trace.")
        if not terms.complete:
            for node in members:
                if last.get(node) == old:
                    found.undecided(f"Node {node} may yet follow from {old} to {new}.")
