"""What logs on disk say beside what traces tell: the same runs, and none that was told of is missing."""

from __future__ import annotations

from collections.abc import Iterator

from totempole.checkers.corel_order import end_of
from totempole.checkers.stored_logs import StoredLog, StoredLogs, StoredRun
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row
from totempole.types import ProcessorId

# log-matches-trace


def matches_trace(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """A replica's log has what its trace tells to be green, and its trace tells of what its log has: where
    the trace tells of places before and behind one."""
    told: dict[ProcessorId, set[int]] = {}
    for row in logs.greens:
        told.setdefault(row.node, set()).add(row.corel.place)
        log = logs.by_node.get(row.node)
        run = None if log is None else log.runs.get(row.corel.place)
        if run is not None:
            _compare(row, run, found)
    for telling in logs.tellings:
        log = logs.by_node.get(telling.node)
        if log is None:
            continue
        for place in logs.within(telling):
            if place in log.runs and place not in told.get(telling.node, ()):
                run = log.runs[place]
                found.violated(
                    f"The log of node {telling.node} has run {run.message} at place {place}; its trace tells "
                    f"of places {telling.start} to {telling.stop - 1}, and not of this one.",
                    nodes=[telling.node],
                    messages=[run.message],
                )


def _compare(row: Row, run: StoredRun, found: Findings) -> None:
    for what, traced, stored in _both(row, run):
        if traced != stored:
            found.violated(
                f"At place {run.place} the trace of node {row.node} has {what} {traced}, and its log "
                f"{stored}{_which(row, run)}.",
                row,
                messages=[run.message],
            )
            return


def _both(row: Row, run: StoredRun) -> Iterator[tuple[str, object, object]]:
    """What the trace and the log say of one thing after the other; the most telling is first."""
    yield "run", row.message, run.message
    yield "position", row.corel.position, run.position
    yield "kind", row.corel.run_kind, run.kind
    yield "a number of records", row.count, run.records
    yield "a number of positions", end_of(row) - row.corel.position, run.positions
    yield "bytes", row.bytes, run.bytes
    if row.digest:  # below the level `checked` there is none
        yield "digest", row.digest, run.digest
    yield "stamp", row.corel.stamp, run.stamp
    yield "repeats", dict(zip(row.corel.repeats, row.corel.firsts, strict=False)), dict(run.repeats)
    yield "a mark that keeps it out", row.corel.kept_out, run.kept_out


def _which(row: Row, run: StoredRun) -> str:
    return f", for run {run.message}" if row.message == run.message else ""


# log-keeps-told


def keeps_told(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """A run that any replica has told to be green is in every log that reaches so far, also in those of
    replicas without a trace. If the logs of all replicas are given, one of them reaches so far."""
    has_all = bool(logs.replicas) and logs.replicas <= logs.by_node.keys()
    for place, rows in sorted(logs.by_place.items()):
        row = _witness(rows)
        for log in logs.logs:
            run = log.runs.get(place)
            if run is not None and (run.message, run.position) != (row.message, row.corel.position):
                found.violated(
                    f"Node {row.node} has told that run {row.message} has place {place} and position "
                    f"{row.corel.position}; the log of node {log.node} has run {run.message} there, at "
                    f"position {run.position}.",
                    row,
                    nodes={row.node, log.node},
                )
        if has_all and not any(_reaches(log, row) for log in logs.logs):
            found.overdue(
                terms.complete,
                f"Node {row.node} has told that run {row.message} has position {row.corel.position}; no "
                "replica's log reaches so far.",
                row,
            )


def _witness(rows: list[Row]) -> Row:
    """The origin answers the program that has appended it."""
    return next((row for row in rows if row.node == row.origin), rows[0])


def _reaches(log: StoredLog, row: Row) -> bool:
    """Green or yellow: the green line is written a little later, and is found again by a majority."""
    place = row.corel.place - log.stop
    return place < 0 or row.message in log.pending[place : place + 1]
