"""One order for all replicas, which only grows (COReL, Property 3.6; two of the invariants of §5.4)."""

from __future__ import annotations

from totempole.checkers.corel_history import LogHistory, is_green
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row
from totempole.types import ProcessorId

# corel-one-order


def one_order(log: LogHistory, terms: Terms, found: Findings) -> None:
    """A place holds one run. With `corel-no-changes-in-green`, which says that a replica fills its places
    from the first on, the order of each is a prefix of one order."""
    for place, by_node in sorted(log.by_place.items()):
        greens = [row for _, rows in sorted(by_node.items()) for row in rows if is_green(row)]
        others: dict[tuple[ProcessorId, str], Row] = {}
        for row in greens:
            if row.message != greens[0].message:
                others.setdefault((row.node, row.message), row)
        for row in others.values():
            found.violated(
                f"Place {place} of the order holds run {greens[0].message} at node {greens[0].node}, and run "
                f"{row.message} at node {row.node}.",
                greens[0],
                row,
            )


# corel-agreed-green


def agreed_green(log: LogHistory, terms: Terms, found: Findings) -> None:
    """Replicas that have the same green prefix have the same of it: the positions of its records, which of
    them repeat a key, which runs a fence has kept out, and what a disk or another replica says of it."""
    prefixes: dict[int, Row] = {}
    for row in log.of_kind("log_open", "fetched"):
        if row.kind == "log_open" or row.reason == "mark":
            other = prefixes.setdefault(row.corel.green_runs, row)
            if other.corel.position != row.corel.position:
                _apart(row.corel.green_runs, other, other.corel.position, row, row.corel.position, found)
    for place, by_node in sorted(log.by_place.items()):
        greens = [row for _, rows in sorted(by_node.items()) for row in rows if is_green(row)]
        if greens:
            _compare(greens, found)
            _compare_prefix(place, greens[0], prefixes, found)


def _compare(greens: list[Row], found: Findings) -> None:
    first, told = greens[0], set[ProcessorId]()
    for row in greens[1:]:
        if row.message == first.message and _result(row) != _result(first) and row.node not in told:
            told.add(row.node)
            found.violated(
                f"Run {row.message}, at place {row.corel.place}, has {_text(first)} at node {first.node}, "
                f"and {_text(row)} at node {row.node}.",
                first,
                row,
            )


def _result(row: Row) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return row.corel.position, row.corel.repeats, row.corel.firsts, row.corel.kept_out


def _text(row: Row) -> str:
    if row.corel.kept_out:
        mark, position = row.corel.kept_out
        return f"been kept out at position {row.corel.position}, by mark {mark}, set at {position},"
    repeats = dict(zip(row.corel.repeats, row.corel.firsts, strict=False))
    return f"position {row.corel.position} and repeats {repeats or 'nothing'}"


def _compare_prefix(place: int, row: Row, prefixes: dict[int, Row], found: Findings) -> None:
    """The run takes positions from where its prefix ends, and the next prefix begins behind them."""
    before, after = prefixes.get(place), prefixes.get(place + 1)
    if before is not None and before.corel.position != row.corel.position:
        _apart(place, before, before.corel.position, row, row.corel.position, found)
    end = end_of(row)
    if after is not None and after.corel.position != end:
        _apart(place + 1, after, after.corel.position, row, end, found)


def end_of(row: Row) -> int:
    """The position behind a green run."""
    if row.corel.kept_out:
        return row.corel.position
    return row.corel.position + row.count - len(row.corel.repeats)


def _apart(runs: int, one: Row, mine: int, other: Row, theirs: int, found: Findings) -> None:
    found.violated(
        f"After {runs} runs the next position is {mine} by node {one.node}, and {theirs} by node "
        f"{other.node}.",
        one,
        other,
    )


# corel-no-changes-in-green


def no_changes_in_green(log: LogHistory, terms: Terms, found: Findings) -> None:
    for node, rows in sorted(log.by_node.items()):
        _check_node(node, rows, found)


def _check_node(node: ProcessorId, rows: list[Row], found: Findings) -> None:
    held: dict[int, Row] = {}
    """What this replica has told of each place, through all its openings."""
    length: int | None = None
    position: int | None = None
    for row in rows:
        if row.kind == "log_open" or (row.kind == "fetched" and row.reason == "mark"):
            length, position = row.corel.green_runs, row.corel.position
        elif row.kind == "colour" and is_green(row):
            place = row.corel.place
            if length is not None and place != length:
                found.violated(
                    f"Node {node} has put run {row.message} at place {place} of its green prefix of {length} "
                    "runs.",
                    row,
                )
            elif position is not None and row.corel.position != position:
                found.violated(
                    f"Node {node} has given run {row.message} position {row.corel.position}; the next one "
                    f"was {position}.",
                    row,
                )
            other = held.setdefault(place, row)
            if other.message != row.message:
                found.violated(
                    f"Node {node} had run {other.message} at place {place} of its green prefix, and has run "
                    f"{row.message} there.",
                    other,
                    row,
                )
            length, position = place + 1, end_of(row)
