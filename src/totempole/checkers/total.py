"""The global delivery order of extended virtual synchrony: Totem §3.5, theorems 4.17 and 4.18."""

from __future__ import annotations

from itertools import combinations

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Stay
from totempole.trace.schema import Row
from totempole.types import NO_RING, ProcessorId, RingId

_Key = tuple[RingId, int, RingId]


def global_order(history: History, terms: Terms, found: Findings) -> None:
    _check_identifiers(history, found)
    if not _has_witness(history):
        _compare_pairs(history, found)


def _check_identifiers(history: History, found: Findings) -> None:
    """Theorem 4.17: what a node delivers, changes included, increases in (ring_id, seq, conf_id)."""
    for life in history.lives:
        high: _Key = (NO_RING, -1, NO_RING)
        latest: Row | None = None
        for stay in life.stays:
            for row in (stay.change, *stay.deliveries):
                key = _change_key(history, stay) if row is stay.change else _key(history, row)
                if key > high:
                    high, latest = key, row
                elif latest is not None:
                    found.violated(
                        f"Node {row.node} delivered {_named(row)} after {_named(latest)}, which the global "
                        "order has the other way round.",
                        latest,
                        row,
                    )


def _key(history: History, row: Row) -> _Key:
    return history.ring(row.ring), row.seq, NO_RING


def _change_key(history: History, stay: Stay) -> _Key:
    change = stay.change
    return history.ring(change.ring), change.seq, history.ring(change.previous) if stay.regular else stay.id


def _named(row: Row) -> str:
    return row.message or f"the change to {row.configuration}"


def _has_witness(history: History) -> bool:
    """Whether one ranking of all messages increases along every node's deliveries.

    Such a ranking proves that all nodes agree, wherever it comes from, so this trusts no sequence number:
    it takes the places seen first as a guess, and tests it.
    """
    ranks = {message: _key(history, next(iter(rows.values()))) for message, rows in history.delivered.items()}
    for messages in _sequences(history).values():
        last: _Key = (NO_RING, -1, NO_RING)
        for message in messages:
            rank = ranks[message]
            if rank <= last:
                return False
            last = rank
    return True


def _sequences(history: History) -> dict[ProcessorId, dict[str, Row]]:
    """What each node delivered, in its order, over all of its lives."""
    sequences: dict[ProcessorId, dict[str, Row]] = {}
    for node, lives in history.by_node.items():
        mine = sequences[node] = {}
        for life in lives:
            for stay in life.stays:
                for row in stay.deliveries:
                    mine.setdefault(row.message, row)
    return sequences


def _compare_pairs(history: History, found: Findings) -> None:
    """Between two nodes it is enough to compare neighbours among the messages that both delivered."""
    sequences = _sequences(history)
    for p, q in combinations(sorted(sequences), 2):
        yours = sequences[q]
        before: Row | None = None
        for message, row in sequences[p].items():
            if message not in yours:
                continue
            if before is not None and yours[message].step < yours[before.message].step:
                found.violated(
                    f"Node {p} delivered {before.message} before {message}, and node {q} the other way "
                    "round.",
                    before,
                    row,
                    yours[message],
                    yours[before.message],
                )
            before = row
