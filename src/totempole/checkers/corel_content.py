"""A run is what its origin made of it (COReL, Property 3.1), and a replica has it once (Property 3.2)."""

from __future__ import annotations

from collections.abc import Iterable

from totempole.checkers.corel_history import LogHistory, RunName, is_green, run_name
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.corel import GREEN
from totempole.trace.schema import Row
from totempole.types import ProcessorId

# corel-integrity


def integrity(log: LogHistory, terms: Terms, found: Findings) -> None:
    for name, by_node in log.by_run.items():
        rows = [row for mine in by_node.values() for row in mine]
        run = run_name(name)
        if run.is_record:
            _check_record(log, run, rows[0], terms, found)
        else:
            _check_accepted(log, run, rows[0], terms, found)
        accept = log.accepts.get(name)
        _check_contents(rows if accept is None else [accept, *rows], found)


def _check_accepted(log: LogHistory, run: RunName, row: Row, terms: Terms, found: Findings) -> None:
    if row.message in log.accepts:
        return
    if run.origin not in log.ring.by_node:
        found.undecided(f"Node {run.origin} left no trace.")
    elif log.must_tell(terms, run.origin, row, run.life):
        found.violated(f"Node {row.node} has run {row.message}, which node {run.origin} never accepted.", row)


def _check_record(log: LogHistory, run: RunName, row: Row, terms: Terms, found: Findings) -> None:
    """The record of a primary is made by those who commit it."""
    if run.life in log.committed:
        return
    absent = log.ring.absent(log.processors)
    for node in absent:
        found.undecided(f"Node {node} left no trace.")
    if not absent and all(log.must_tell(terms, node, row) for node in log.by_node):
        found.violated(f"Node {row.node} has the record of primary {run.life}, which nobody committed.", row)


def _check_contents(rows: list[Row], found: Findings) -> None:
    first = rows[0]
    stamped = next((row for row in rows if row.corel.stamp), first)
    told: set[ProcessorId] = set()
    for row in rows[1:]:
        if row.node in told:
            continue
        if _content(row) != _content(first):
            told.add(row.node)
            found.violated(
                f"Run {row.message} is {_text(row)} at node {row.node}, and {_text(first)} at node "
                f"{first.node}.",
                first,
                row,
            )
        elif row.corel.stamp and row.corel.stamp != stamped.corel.stamp:
            told.add(row.node)
            found.violated(
                f"Run {row.message} has stamp {row.corel.stamp} at node {row.node}, and "
                f"{stamped.corel.stamp} at node {stamped.node}.",
                stamped,
                row,
            )


def _content(row: Row) -> tuple[str, int, int, int]:
    return row.corel.run_kind, row.count, row.bytes, row.digest


def _text(row: Row) -> str:
    return f"{row.corel.run_kind} of {row.count} records, {row.bytes} bytes, digest {row.digest}"


# corel-no-duplication


def no_duplication(log: LogHistory, terms: Terms, found: Findings) -> None:
    for name, by_node in log.by_run.items():
        greens = [row for mine in by_node.values() for row in mine if is_green(row)]
        _check_places(name, greens, found)
        place = greens[0].corel.place if greens else None
        for node, rows in by_node.items():
            _check_replica(log, node, rows, place, found)


def _check_places(name: str, greens: Iterable[Row], found: Findings) -> None:
    places: dict[int, Row] = {}
    for row in greens:
        if row.corel.place not in places:
            places[row.corel.place] = row
            first = next(iter(places.values()))
            if row is not first:
                found.violated(
                    f"Run {name} has two places in the order: {first.corel.place} at node {first.node}, and "
                    f"{row.corel.place} at node {row.node}.",
                    first,
                    row,
                )


def _check_replica(
    log: LogHistory, node: ProcessorId, rows: list[Row], place: int | None, found: Findings
) -> None:
    """`place`: of the run in the order, if it has one."""
    held: Row | None = None
    for opening, mine in log.openings_of(node, rows):
        if held is not None and (
            held.new_state != GREEN or opening is None or held.corel.place >= opening.corel.green_runs
        ):
            held = None  # the disk had it not, or the rows that follow tell of it
        for row in mine:
            if held is not None and not row.old_state:
                found.violated(
                    f"Node {node} took run {row.message}, which it had already as {held.new_state}.",
                    held,
                    row,
                )
            elif not row.old_state and not is_green(row) and _is_within(place, row):
                found.violated(
                    f"Node {node} took run {row.message} as {row.new_state}; it has place {place} among the "
                    f"{row.corel.green_runs} runs that are green there.",
                    row,
                )
            held = row if row.new_state else None


def _is_within(place: int | None, row: Row) -> bool:
    return place is not None and row.corel.green_runs > place
