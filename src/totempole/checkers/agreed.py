"""Delivery in agreed order: Totem §3.5, theorems 4.13 and 4.14."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Stay
from totempole.trace.schema import Row


def agreed_order(history: History, terms: Terms, found: Findings) -> None:
    """By increasing seq, without a gap but for what only those left behind had (Totem §4.3)."""
    doubtful: set[str] = set()
    for life in history.lives:
        for stay in life.stays:
            if not stay.regular:
                continue
            last = _check_regular(history, stay, found)
            following = life.transitional_after(stay)
            if following is not None:
                _check_transitional(history, stay, following, last, found)
            if stay.name in history.slots and history.absent(stay.members):
                doubtful.add(stay.name)
    _check_common_prefix(history, found)
    for ring in sorted(doubtful):
        found.undecided(f"A member of ring {ring} left no trace, and messages of it may have been skipped.")


def _check_regular(history: History, stay: Stay, found: Findings) -> int:
    """Returns the highest sequence number delivered, or -1."""
    numbers = history.numbers(stay.name)
    index, last = 0, -1
    for row in stay.deliveries:
        if row.ring != stay.name:
            continue
        seq = row.seq
        if index < len(numbers) and numbers[index] == seq:
            index, last = index + 1, seq
        elif seq <= last:
            _out_of_order(history, last, row, found)
        else:
            skipped = numbers[index : bisect_left(numbers, seq)]
            _skipped(history, skipped, row, found)
            index, last = bisect_right(numbers, seq), seq
    return last


def _check_transitional(history: History, stay: Stay, following: Stay, last: int, found: Findings) -> None:
    numbers = history.numbers(stay.name)
    index = bisect_right(numbers, last)
    for row in following.deliveries:
        if row.ring != stay.name:
            continue
        seq = row.seq
        if seq <= last:
            _out_of_order(history, last, row, found)
            continue
        place = bisect_left(numbers, seq)
        if place > index:
            gap = [n for n in numbers[index:place] if _origin(history, stay.name, n) in following.members]
            _skipped(history, gap, row, found)
        index, last = bisect_right(numbers, seq), seq


def _origin(history: History, ring: str, seq: int) -> int:
    row = history.slots[ring][seq]
    return row.node if row.kind == "originate" else row.origin


def _check_common_prefix(history: History, found: Findings) -> None:
    """Theorem 4.14 within a transitional configuration: no one skips what another delivers in it."""
    told: dict[tuple[str, str], list[list[Row]]] = {}
    for life in history.lives:
        for stay in life.stays:
            if not stay.regular:
                for ring, rows in _by_ring(stay.deliveries).items():
                    told.setdefault((stay.name, ring), []).append(rows)
    for (name, _), together in told.items():
        everything: dict[int, Row] = {}
        for rows in together:
            for row in rows:
                everything.setdefault(row.seq, row)
        for rows in together:
            _check_prefix(everything, name, rows, found)


def _by_ring(deliveries: list[Row]) -> dict[str, list[Row]]:
    """Numbers of different rings do not compare. Mostly there is but one ring."""
    found: dict[str, list[Row]] = {}
    for row in deliveries:
        found.setdefault(row.ring, []).append(row)
    return found


def _check_prefix(everything: dict[int, Row], name: str, deliveries: list[Row], found: Findings) -> None:
    mine = {row.seq for row in deliveries}
    if len(mine) == len(everything):
        return
    last = deliveries[-1]
    for seq in sorted(everything.keys() - mine):
        if seq < last.seq:
            found.violated(
                f"Node {last.node} delivered {last.message} in {name} without "
                f"{everything[seq].message}, which node {everything[seq].node} delivered there.",
                last,
                everything[seq],
            )


def _out_of_order(history: History, last: int, row: Row, found: Findings) -> None:
    later = history.slots.get(row.ring, {}).get(last, row)
    found.violated(
        f"Node {row.node} delivered {row.message} at {row.seq} of {row.ring} after "
        f"{later.message} at {last}.",
        row,
        later,
        nodes=[row.node],
    )


def _skipped(history: History, seqs: list[int], row: Row, found: Findings) -> None:
    if seqs:
        missed = [history.slots[row.ring][seq] for seq in seqs[:10]]
        found.violated(
            f"Node {row.node} delivered {row.message} at {row.seq} of {row.ring} without having delivered "
            f"{missed[0].message} at {seqs[0]}.",
            row,
            *missed,
            nodes=[row.node],
        )
