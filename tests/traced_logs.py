"""Replicas' logs on disk, and the traces that go with them: a test breaks one of the two.

All replicas append the same runs. The trace of each is what a replica would have told of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from totempole.checkers.parts import PART_LISTED_MAX, merged
from totempole.checkers.stored import STORED, judge_stored
from totempole.checkers.stored_logs import StoredLog, StoredLogs
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Outcome, Report
from totempole.spark.log_files import LogFiles, find_logs, read_items, read_runs
from totempole.spark.log_ranges import END, range_of, ranges_of
from totempole.trace.schema import Row, in_layers
from written_logs import WrittenLog

RUN = "written"
STEP_US = 100


class Replicas:
    """Three replicas, each with its log in a directory and its trace."""

    def __init__(self, directory: Path, nodes: Sequence[int] = (1, 2, 3)) -> None:
        self.logs = {node: WrittenLog(directory / f"node{node}", processor=node) for node in nodes}

    def each(self, act: Callable[[WrittenLog], object]) -> None:
        for log in self.logs.values():
            act(log)

    def append(
        self, *payloads: bytes, keys: tuple[str, ...] = (), origin: int = 1, log: str = "orders"
    ) -> None:
        self.each(lambda each: each.append(payloads, keys, log=log, origin=origin))

    def begin_segment(self) -> None:
        self.each(WrittenLog.begin_segment)

    def directories(self, *nodes: int) -> list[Path]:
        return [self.logs[node].directory for node in nodes or self.logs]

    def rows(self, *nodes: int) -> list[Row]:
        """Traces of the level `checked`, of what the logs have by now. Times are one clock's."""
        return [row for node in nodes or self.logs for row in trace_of(self.logs[node].directory)]


def good(directory: Path) -> Replicas:
    """Three segments: runs with and without keys, a repeated key, two origins, a hold."""
    replicas = Replicas(directory)
    replicas.append(b"a", b"bb", keys=("k1", "k2"))
    replicas.append(b"ccc", origin=2)
    replicas.begin_segment()
    replicas.append(b"again", b"d", keys=("k1", "k3"), origin=2)
    replicas.append(*(b"%d" % number for number in range(50)), log="payments")
    replicas.begin_segment()
    replicas.append(b"e", keys=("k4",), origin=3)
    replicas.append(b"f")
    return replicas


def trace_of(directory: Path) -> list[Row]:
    (log,) = find_logs([directory])
    rows: list[Row] = []

    def tell(kind: str, at_us: int, **columns: Any) -> None:
        rows.append(Row(RUN, log.node, 1, len(rows), at_us, "corel", kind, **in_layers("corel", {**columns})))

    tell("log_open", 0, green_runs=0)
    for ordered in read_runs(log, 0, END):
        run, at_us = ordered.run, STEP_US * (ordered.place + 1)
        (item,) = (
            each for each in read_items(log, ordered.place, ordered.place + 1) if hasattr(each, "digest")
        )
        of_run = {
            "message": item.message,
            "origin": run.id.origin,
            "run_kind": item.kind,
            "count": item.records,
            "bytes": item.bytes,
            "digest": item.digest,
        }
        if run.id.origin == log.node:
            tell("accept", at_us, log=item.log, keys=item.keys, **of_run)
        colour = {"stamp": item.stamp, **of_run}
        tell("colour", at_us + log.node, old_state="", new_state="yellow", place=item.place, **colour)
        repeats = {
            "repeats": tuple(index for index, _ in item.repeats),
            "firsts": tuple(first for _, first in item.repeats),
            "kept_out": item.kept_out,
        }
        green = {"old_state": "yellow", "new_state": "green", "place": item.place, "position": item.position}
        tell("colour", at_us + 10 * log.node, **green, **repeats, **colour)
        if item.kind == "primary":
            tell("replica_set", at_us + 10 * log.node, members=(1, 2, 3), place=item.place)
    return rows


# Judging without Spark


def judged(directories: Sequence[Path], rows: Sequence[Row] = (), runs_max: int = 0, **terms: Any) -> Report:
    """By the whole, or in ranges of so many runs."""
    logs = find_logs(directories)
    whole = StoredLogs.whole([stored(log, 0, END) for log in logs], rows)
    known = Terms(**terms)
    if not runs_max:
        return judge_stored(whole, known)
    starts = ranges_of(logs, max((row.corel.place + 1 for row in whole.greens), default=0), runs_max)
    verdicts: dict[str, list[Any]] = {item.name: [] for item in STORED}
    for part in range(len(starts)):
        start, stop = range_of(starts, part)
        index = StoredLogs(
            [stored(log, start, stop) for log in logs],
            [row for row in whole.greens if start <= row.corel.place < stop],
            whole.tellings,
            whole.replicas,
            start,
            stop,
        )
        for item in STORED:
            verdicts[item.name].append(item.judge(index, known, PART_LISTED_MAX))
    return Report(tuple(merged(each) for each in verdicts.values()))


def stored(log: LogFiles, start: int, stop: int) -> StoredLog:
    return StoredLog(log.node, list(read_items(log, start, stop)), log.place, log.pending)


def violated(report: Report) -> set[str]:
    return {verdict.property for verdict in report.verdicts if verdict.outcome is Outcome.VIOLATED}
