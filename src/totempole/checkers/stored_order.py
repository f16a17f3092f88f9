"""What logs on disk say by themselves: each is whole and follows its own rules, and all say the same."""

from __future__ import annotations

from collections.abc import Iterator

from totempole.checkers.stored_logs import (
    Fences,
    Keys,
    LogState,
    StoredDamage,
    StoredLogs,
    StoredMark,
    StoredRun,
)
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.types import ProcessorId

# log-intact


def intact(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """A torn tail, which was never synced, is no damage."""
    for log in logs.logs:
        for item in log.items:
            if isinstance(item, StoredDamage):
                found.violated(f"The log of node {log.node} is damaged: {item.text}", nodes=[log.node])


# log-positions


def positions(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """Places and positions go up without a gap, from segment to segment too. A record takes one position,
    unless its key was there before or its fence keeps it out."""
    for log in logs.logs:
        for state, item in log.steps():
            if isinstance(item, StoredMark):
                _check_mark(log.node, state, item, found)
            else:
                _check_run(log.node, state, item, found)


def _check_mark(node: ProcessorId, state: LogState, mark: StoredMark, found: Findings) -> None:
    if (mark.place, mark.position) != (state.place, state.position):
        found.violated(
            f"{mark.where} of node {node} begins with place {mark.place} and position {mark.position}; what "
            f"is before it ends with place {state.place} and position {state.position}.",
            nodes=[node],
        )


def _check_run(node: ProcessorId, state: LogState, run: StoredRun, found: Findings) -> None:
    wanted = 0 if run.kept_out else run.records - len(run.repeats)
    if (run.place, run.position) != (state.place, state.position):
        found.violated(
            f"The log of node {node} has run {run.message} at place {run.place} and position {run.position}; "
            f"what is before it ends with place {state.place} and position {state.position}.",
            nodes=[node],
            messages=[run.message],
        )
    elif run.positions != wanted:
        found.violated(
            f"In the log of node {node} run {run.message} takes {run.positions} positions from "
            f"{run.position} on; {wanted} of its {run.records} records have one.",
            nodes=[node],
            messages=[run.message],
        )


# log-time


def time(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """The time of the order never runs backwards."""
    for log in logs.logs:
        for state, item in log.steps():
            if isinstance(item, StoredMark):
                if item.time_us != state.time_us:
                    found.violated(
                        f"{item.where} of node {log.node} begins with time {item.time_us}; what is before it "
                        f"ends with {state.time_us}.",
                        nodes=[log.node],
                    )
            elif item.time_us < state.time_us:
                found.violated(
                    f"In the log of node {log.node} run {item.message} at position {item.position} has time "
                    f"{item.time_us}, and a run before it {state.time_us}.",
                    nodes=[log.node],
                    messages=[item.message],
                )


# log-once-per-key


def once_per_key(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """A key takes one position while it is remembered, and each repetition points at it."""
    for log in logs.logs:
        for state, item in log.steps(has_keys=True):
            if isinstance(item, StoredMark):
                _check_known(log.node, state, item, found)
            elif item.keys and not item.kept_out:
                _check_keys(log.node, state.keys, item, found)


def _check_known(node: ProcessorId, state: LogState, mark: StoredMark, found: Findings) -> None:
    if mark.keys == state.keys:
        return
    both = {**state.keys, **mark.keys}
    log, key = name = next(name for name in both if mark.keys.get(name) != state.keys.get(name))
    found.violated(
        f"{mark.where} of node {node} says that key {key!r} of log {log!r} {_has(mark.keys.get(name))}; it "
        f"{_has(state.keys.get(name))}.",
        nodes=[node],
    )


def _has(position: int | None) -> str:
    return "is not there" if position is None else f"has position {position}"


def _check_keys(node: ProcessorId, known: Keys, run: StoredRun, found: Findings) -> None:
    repeats = dict(run.repeats)
    position = run.position
    mine: dict[str, int] = {}
    """Of the keys of this run."""
    for index, key in enumerate(run.keys):
        first = (mine.get(key, known.get((run.log, key)))) if key else None
        if index not in repeats:
            if first is not None:
                found.violated(
                    f"In the log of node {node} key {key!r} of log {run.log!r} has position {position}, in "
                    f"run {run.message}, and position {first} before.",
                    nodes=[node],
                    messages=[run.message],
                )
            if key:
                mine[key] = position
            position += 1
        elif repeats[index] != first:
            found.violated(
                f"In the log of node {node} record {index} of run {run.message} is said to repeat position "
                f"{repeats[index]}; its key {key!r} {_has(first)}.",
                nodes=[node],
                messages=[run.message],
            )


# log-fences


def fences(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """A run with a fence takes positions exactly if the fence's mark lets it in, and then moves the mark."""
    for log in logs.logs:
        for state, item in log.steps():
            if isinstance(item, StoredMark):
                _check_fences(log.node, state, item, found)
            elif item.fence is not None or item.kept_out:
                _check_fence(log.node, state.fences, item, found)


def _check_fences(node: ProcessorId, state: LogState, mark: StoredMark, found: Findings) -> None:
    if mark.fences != state.fences:
        both = {**state.fences, **mark.fences}
        name = next(name for name in both if mark.fences.get(name) != state.fences.get(name))
        found.violated(
            f"{mark.where} of node {node} says that fence {name!r} has mark {_fence(mark.fences, name)}; it "
            f"has {_fence(state.fences, name)}.",
            nodes=[node],
        )


def _check_fence(node: ProcessorId, known: Fences, run: StoredRun, found: Findings) -> None:
    name = "" if run.fence is None else run.fence.name
    mark = known.get(name, (0, -1))
    lets_in = run.fence is None or run.fence.low <= mark[0] <= run.fence.high
    if run.kept_out != (() if lets_in else mark):
        what = f"kept out by mark {run.kept_out[0]}, set at {run.kept_out[1]}" if run.kept_out else "let in"
        bounds = "no fence" if run.fence is None else f"{name!r} lets in {run.fence.low} to {run.fence.high}"
        found.violated(
            f"In the log of node {node} run {run.message} is {what}. Its fence: {bounds}; the mark is "
            f"{_fence(known, name)}.",
            nodes=[node],
            messages=[run.message],
        )


def _fence(known: Fences, name: str) -> str:
    number, position = known.get(name, (0, -1))
    return f"{number}, set at {position}"


# log-replicas-agree


def replicas_agree(logs: StoredLogs, terms: Terms, found: Findings) -> None:
    """Where two logs have the same place, they have the same run there, with the same content, positions and
    time."""
    first: dict[int, tuple[ProcessorId, StoredRun]] = {}
    for log in logs.logs:
        for place, run in log.runs.items():
            node, other = first.setdefault(place, (log.node, run))
            for what, mine, theirs in _both(run, other):
                if mine != theirs:
                    found.violated(
                        f"At place {place} the log of node {node} has {what} {theirs}, and that of node "
                        f"{log.node} {mine}{_which(run, other)}.",
                        nodes=[node, log.node],
                        messages=dict.fromkeys((other.message, run.message)),
                    )
                    break


def _both(one: StoredRun, other: StoredRun) -> Iterator[tuple[str, object, object]]:
    """What two logs say of one thing after the other; the most telling is first."""
    yield "run", one.message, other.message
    yield "position", one.position, other.position
    yield "kind", one.kind, other.kind
    yield "a number of records", one.records, other.records
    yield "a number of positions", one.positions, other.positions
    yield "bytes", one.bytes, other.bytes
    yield "digest", one.digest, other.digest
    yield "stamp", one.stamp, other.stamp
    yield "time", one.time_us, other.time_us
    yield "repeats", dict(one.repeats), dict(other.repeats)
    yield "a mark that keeps it out", one.kept_out, other.kept_out


def _which(one: StoredRun, other: StoredRun) -> str:
    return f", for run {one.message}" if one.message == other.message else ""
