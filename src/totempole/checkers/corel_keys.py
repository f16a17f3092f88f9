"""A record with a key takes a position once, through retries, failover and restarts."""

from __future__ import annotations

from typing import NamedTuple

from totempole.checkers.corel_history import LogHistory, is_green
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row

KEYS_MAX = 65_536
"""A key is remembered until so many later records with keys are green: what is promised."""


class _First(NamedTuple):
    row: Row
    position: int
    count: int  # type: ignore[assignment]
    """Records with keys that had taken positions before it."""


def once_per_key(log: LogHistory, terms: Terms, found: Findings) -> None:
    """Along the order, each key's first record takes a position, and each later one is said to repeat it. A
    run whose acceptance is not in the trace has keys that nobody knows."""
    order: dict[int, Row] = {}
    for row in log.of_kind("colour"):
        if is_green(row):
            order.setdefault(row.corel.place, row)
    firsts: dict[tuple[str, str], _First] = {}
    taken = 0
    is_whole = True
    """Whether the order so far is known, with its keys."""
    for expected, (place, row) in enumerate(sorted(order.items())):
        is_whole &= place == expected
        accept = log.accepts.get(row.message)
        if row.corel.run_kind == "records" and accept is None:
            is_whole = False
        if accept is None or row.corel.kept_out:
            continue
        repeats = dict(zip(row.corel.repeats, row.corel.firsts, strict=True))
        position = row.corel.position
        for index, key in enumerate(accept.corel.keys or ("",) * accept.count):
            first = firsts.get((accept.corel.log, key)) if key else None
            if index in repeats:
                _check_repeat(row, accept, index, repeats[index], first, is_whole, found)
                continue
            if first is not None and taken - first.count <= KEYS_MAX:
                found.violated(
                    f"Key {key!r} of log {accept.corel.log!r} took position {position} in run {row.message}, "
                    f"and position {first.position} before, in run {first.row.message}.",
                    first.row,
                    row,
                )
            if key:
                firsts[accept.corel.log, key] = _First(row, position, taken)
                taken += 1
            position += 1


def _check_repeat(
    row: Row, accept: Row, index: int, claimed: int, first: _First | None, is_whole: bool, found: Findings
) -> None:
    keys = accept.corel.keys
    key = keys[index] if index < len(keys) else ""
    if not key or (first is None and is_whole) or (first is not None and first.position != claimed):
        where = f"has position {first.position}" if first is not None else "was not there before"
        found.violated(
            f"Record {index} of run {row.message} is said to repeat position {claimed}; its key {key!r} "
            f"{where}.",
            *([] if first is None else [first.row]),
            row,
        )
