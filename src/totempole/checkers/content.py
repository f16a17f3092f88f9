"""What a message carries arrives as it was sent (Totem §3.5), and its timestamps order it (Totem §5.1)."""

from __future__ import annotations

from itertools import pairwise

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row


def service_kept(history: History, terms: Terms, found: Findings) -> None:
    """Theorem 4.16 asks for delivery as the originator requested: its service, and its payload unchanged."""
    # An engine that leaves an origination's size out leaves it out of all of them.
    sizes = history.facts.sizes
    for message, deliverers in history.delivered.items():
        rows = iter(deliverers.values())
        source = history.originated.get(message)
        if source is None:
            source = next(rows)
            found.undecided(f"The origination of {message} is not in the trace.")
        compare_size = sizes or source.kind == "deliver"
        for row in rows:
            if row.service != source.service:
                found.violated(
                    f"Node {row.node} delivered {message} as {row.service}, and node {source.node} has it "
                    f"as {source.service}.",
                    source,
                    row,
                )
            if compare_size and row.bytes != source.bytes:
                found.violated(
                    f"Node {row.node} delivered {row.bytes} bytes of {message}, and node {source.node} has "
                    f"{source.bytes}.",
                    source,
                    row,
                )
            _check_digest("delivered", source, row, found)
    for row in history.receives:
        source = history.originated.get(row.message)
        if source is not None:
            _check_digest("received", source, row, found)
    for message, row in _submitted(history).items():
        source = history.originated.get(message)
        if source is not None:
            _check_digest("originated", row, source, found)


def _submitted(history: History) -> dict[str, Row]:
    """The last submission of each message. A life that ends before its first write originates nothing, and
    the next one, which finds the same incarnation on the disk, uses its names again."""
    return {row.message: row for life in history.lives for row in life.submissions}


def _check_digest(what: str, source: Row, row: Row, found: Findings) -> None:
    """A trace below the level `checked` has no digests."""
    if source.digest != row.digest and source.digest and row.digest:
        found.violated(
            f"Node {row.node} {what} {row.message} with digest {row.digest:08x}, and node {source.node} has "
            f"{source.digest:08x}.",
            source,
            row,
        )


def timestamps(history: History, terms: Terms, found: Findings) -> None:
    """Totem §5.1: they grow along a ring, and along a processor's originations whatever fails between. A
    message is later than every message that its originator has delivered in the same life, on any ring."""
    for ring, slots in history.slots.items():
        for seq, following in pairwise(history.numbers(ring)):
            before, after = slots[seq], slots[following]
            if after.timestamp <= before.timestamp:
                found.violated(
                    f"On ring {ring} message {after.message} at {following} has timestamp {after.timestamp}, "
                    f"no later than {before.timestamp} of {before.message} at {seq}.",
                    before,
                    after,
                )
    _check_originators(history, found)
    _check_causes(history, found)
    for row in history.deliveries:
        source = history.originated.get(row.message)
        if source is not None and source.timestamp != row.timestamp:
            found.violated(
                f"Node {row.node} delivered {row.message} with timestamp {row.timestamp}, and it was "
                f"originated with {source.timestamp}.",
                source,
                row,
            )


def _check_originators(history: History, found: Findings) -> None:
    for node, lives in history.by_node.items():
        mine = [
            row for life in lives for stay in life.stays for row in stay.events if row.kind == "originate"
        ]
        for before, after in pairwise(mine):
            if after.timestamp <= before.timestamp:
                found.violated(
                    f"Node {node} gave {after.message} timestamp {after.timestamp}, no later than "
                    f"{before.timestamp} of {before.message} before it.",
                    before,
                    after,
                )


def _check_causes(history: History, found: Findings) -> None:
    """A Lamport clock. Its value is written only before the next message or token leaves, so the next life
    may not know of what this one received last."""
    for life in history.lives:
        latest: Row | None = None
        for stay in life.stays:
            for row in stay.events:
                if row.kind == "deliver":
                    if latest is None or row.timestamp > latest.timestamp:
                        latest = row
                elif latest is not None and row.timestamp <= latest.timestamp:
                    found.violated(
                        f"Node {life.node} gave {row.message} timestamp {row.timestamp}, no later than "
                        f"{latest.timestamp} of {latest.message}, which it had delivered.",
                        latest,
                        row,
                    )
