"""What is wrong after a run under fire: the logs of the replicas, the table and the answers, row for row."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from fire_points import Start

from totempole.client.blocking_log_reader import log_reader
from totempole.log.check import check
from totempole.log.reader import LogReader

SHOWN = 5
"""Of each kind of wrong, so many are named."""


class Row(NamedTuple):
    position: int
    time_us: int
    origin: int
    log: str
    message: str
    key: str
    payload: bytes


class Answer(NamedTuple):
    """A row of the log "out", as the program under fire makes it."""

    partition: int
    start: int
    position: int
    key: str
    digest: str
    padding: int

    @classmethod
    def of(cls, payload: bytes) -> Answer:
        partition, start, position, key, digest, padding = payload.decode().split("|")
        assert not padding.strip("x"), "it is made of x"
        return cls(int(partition), int(start), int(position), key, digest, len(padding))


def rows_of_log(directory: Path) -> list[Row]:
    """Of all logs of a replica, from its files."""
    return [
        Row(
            record.position,
            record.time_us,
            record.run.origin,
            record.log,
            f"{record.run}.{record.index}",
            record.key,
            record.payload,
        )
        for record in LogReader(directory).records()
    ]


def rows_of_table(files: Iterable[Path]) -> list[Row]:
    """As Spark has written it."""
    found = []
    for file in sorted(files):
        table = pq.ParquetFile(file).read()
        times_us = pc.cast(table.column("time"), "timestamp[us]").cast("int64").to_pylist()
        columns = [table.column(name).to_pylist() for name in ("position", "origin", "log", "message")]
        keys, payloads = (table.column(name).to_pylist() for name in ("key", "payload"))
        for position, origin, log, message, time_us, key, payload in zip(
            *columns, times_us, keys, payloads, strict=True
        ):
            found.append(Row(position, time_us, origin, log, message, key or "", payload))
        assert set(table.column("colour").to_pylist()) <= {"green"}, file
    return sorted(found)


def table_files(directory: Path, batches: int | None = None) -> list[Path]:
    """Of a table, or of its first so many batches: those that are committed."""
    found = []
    for file in directory.rglob("*.parquet"):
        batch = file.parent.name.removeprefix("batch=")
        if batches is None or (batch.isdecimal() and int(batch) < batches):
            found.append(file)
    return found


def some(rows: Sequence[Any]) -> str:
    shown = ", ".join(str(row)[:160] for row in rows[:SHOWN])
    return f"{len(rows)}: {shown}{', …' if len(rows) > SHOWN else ''}"


def differences(name: str, found: Sequence[Row], wanted: Sequence[Row]) -> list[str]:
    """Both are in the order of positions."""
    if found == wanted:
        return []
    counted, expected = Counter(found), Counter(wanted)
    wrong = []
    if lost := sorted((expected - counted).elements()):
        wrong.append(f"{name} lacks {some(lost)}")
    if added := sorted((counted - expected).elements()):
        wrong.append(f"{name} has besides, or twice, {some(added)}")
    return wrong or [f"{name} has its rows in another order"]


def judge_appended(rows: Sequence[Row], payloads: Mapping[str, bytes], told: Mapping[str, int]) -> list[str]:
    """All that was appended to the log "in" is there once, where its program was told."""
    wrong = []
    counted = Counter(row.key for row in rows)
    if twice := [key for key, count in counted.items() if count > 1]:
        wrong.append(f"the log in has keys twice: {some(twice)}")
    if lost := [key for key in told if key not in counted]:
        wrong.append(f"the log in lacks keys: {some(lost)}")
    if other := [row for row in rows if payloads.get(row.key) != row.payload]:
        wrong.append(f"the log in has rows that nobody appended: {some(other)}")
    if moved := [row for row in rows if told.get(row.key, row.position) != row.position]:
        wrong.append(f"rows are not where their programs were told: {some(moved)}")
    return wrong


def judge_answers(rows: Sequence[Row], answers: Sequence[Row], starts: Sequence[Start]) -> list[str]:
    """The log "out" has one answer for each row of "in", the right one, in order within each partition."""
    wrong = []
    found = [Answer.of(row.payload) for row in answers]
    counted = Counter(answer.position for answer in found)
    wanted = {row.position: row for row in rows}
    if twice := sorted(position for position, count in counted.items() if count > 1):
        wrong.append(f"rows are answered twice: {some(twice)}")
    if lost := sorted(position for position in wanted if position not in counted):
        wrong.append(f"rows are not answered: {some(lost)}")
    if other := [answer for answer in found if not _is_right(answer, wanted, starts)]:
        wrong.append(f"answers are wrong: {some(other)}")
    # Batches follow each other, and so do the rows of a partition: whatever the batch, it only goes forward.
    last: dict[int, int] = {}
    turned = []
    for answer in found:
        if answer.position <= last.get(answer.partition, -1):
            turned.append(answer)
        last[answer.partition] = answer.position
    if turned:
        wrong.append(f"answers are not in the order of their partition: {some(turned)}")
    return wrong


def _is_right(answer: Answer, wanted: Mapping[int, Row], starts: Sequence[Start]) -> bool:
    row = wanted.get(answer.position)
    return (
        row is not None
        and answer.key == row.key
        and answer.digest == hashlib.sha256(row.payload).hexdigest()
        and answer.start < len(starts)
        and answer.padding == starts[answer.start].padding
    )


def judge_replicas(logs: Mapping[int, Sequence[Row]]) -> list[str]:
    first, *others = sorted(logs)
    return [
        each
        for other in others
        for each in differences(f"replica {other}, compared with replica {first},", logs[other], logs[first])
    ]


def judge_files(directories: Iterable[Path]) -> list[str]:
    """As `totem log check` does it."""
    return [f"{directory}: {each}" for directory in directories for each in check(directory).all_problems]


def judge_served(number: int, socket: Path, log: Sequence[Row]) -> list[str]:
    """The log service gives what the files have; a record's place in its run it does not tell."""
    wanted = [row._replace(message=row.message.rpartition(".")[0]) for row in log]
    served = [
        Row(
            record.position,
            record.time_us,
            record.origin,
            record.log,
            str(record.run),
            record.key,
            record.payload,
        )
        for record in log_reader(path=socket).read()
    ]
    return differences(f"what replica {number} serves", served, wanted)
