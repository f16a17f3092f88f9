"""Reads the order as a table: ranges of positions are planned on the driver, and read on executors.

One `load()` is a snapshot: the driver looks once where the order ends, and every task reads its part of what
is before that. Whichever replica serves a part, the rows are the same.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from totempole.client.log_records import Reading
from totempole.errors import ConfigurationError, LogError, LogTrimmedError, SessionError
from totempole.log import arrow
from totempole.log import reader as files
from totempole.log.arrow import GreenRun
from totempole.log.blocks import Blocks
from totempole.session.log_frames import OrderedRun
from totempole.spark_table.columns import TYPES
from totempole.spark_table.options import ReadOptions, check_batch
from totempole.spark_table.planning import cut
from totempole.spark_table.survey import View, look_as_far_as, survey_of


def arrow_schema_of(schema: StructType, options: ReadOptions) -> Any:
    """As Spark wants batches to be. ConfigurationError: a program has given a schema of its own."""
    given = [(field.name, field.dataType) for field in schema.fields]
    if given != [(name, TYPES[name]) for name in options.columns]:
        raise ConfigurationError(
            f"schema {schema.simpleString()}: the columns are {', '.join(options.columns)}, with types of "
            "their own; leave schema(…) out, and name columns with the option columns"
        )
    return pa.schema(
        [pa.field(field.name, arrow.FIELDS[field.name].type, field.nullable) for field in schema.fields]
    )


@dataclass(frozen=True)
class PositionRange(InputPartition):
    """What one task reads."""

    start: int
    stop: int
    log: int
    """The log's own name."""
    replicas: tuple[str, ...]
    """Whom to ask first."""


def plan(view: View, start: int, stop: int, least: int) -> list[PositionRange]:
    """In parts of about one size, over the replicas in turn."""
    ranges = []
    for number, (first, last) in enumerate(cut(start, stop, view.sizes, least)):
        turn = number % max(len(view.replicas), 1)
        replicas = (*view.replicas[turn:], *view.replicas[:turn])
        ranges.append(PositionRange(first, last, view.log, replicas))
    return ranges


def data_loss(earliest: int, wanted: int) -> LogTrimmedError:
    """Kafka's users know this one."""
    return LogTrimmedError(
        f"Some data may have been lost: positions {wanted} to {earliest - 1} are not in the log any more, "
        f"which begins with position {earliest}. They were trimmed before they were read (option hold keeps "
        "what a stream has not read). If you want the query to go on with the earliest position instead of "
        "failing, set the option failOnDataLoss to false",
        earliest,
    )


class OrderReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_batch(options)
        self._options = ReadOptions.of(options)
        self._schema = arrow_schema_of(schema, self._options)

    def partitions(self) -> list[InputPartition]:
        spare_collector()
        options = self._options
        with closing(survey_of(options.access)) as survey:
            named = max(_given(options.starting), _given(options.ending))
            view = look_as_far_as(survey, named, options.access.patience_s)
            if view is None:
                name = "startingOffsets" if named == options.starting else "endingOffsets"
                raise ahead_of_log(name, named, survey.look().position)
        start = first_position(options.starting or "earliest", view, options)
        stop = view.position if options.ending is None else options.ending
        return [*plan(view, start, stop, options.partitions_min)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._schema, partition)


def _given(offset: object) -> int:
    return offset if isinstance(offset, int) else 0


def first_position(starting: int | str, view: View, options: ReadOptions) -> int:
    """Where reading begins. LogTrimmedError: that is trimmed."""
    if starting == "earliest":
        return view.first
    if starting == "latest":
        return view.position
    assert isinstance(starting, int), "there are no other words"
    if starting >= view.first:
        return starting
    if options.fails_on_data_loss:
        raise data_loss(view.first, starting)
    return view.first


def ahead_of_log(option: str, value: int, end: int) -> LogError:
    return LogError(
        f"option {option} = {value}: the log ends before that, its next record gets position {end}; give a "
        "position that is in the log"
    )


# On executors

_BLOCKS = Blocks()
"""A worker of Spark's reads one part after the other."""


@cache
def spare_collector() -> None:
    """Spark collects garbage after every task of a worker, and with it goes through all that was imported:
    that took as long as reading 20 MB. What is there when a worker is first asked stays anyway."""
    gc.freeze()


def read_range(options: ReadOptions, schema: Any, part: InputPartition) -> Iterator[Any]:
    """Arrow batches of one part. LogTrimmedError, if it was trimmed since it was planned."""
    if not isinstance(part, PositionRange):
        return iter(())  # Spark makes a part of nothing, where none is planned
    spare_collector()
    runs = _file_runs(options, part) if options.access.directory else _served_runs(options, schema, part)
    return arrow.to_batches(
        runs, part.start, part.stop, selection=options.selection, schema=schema, blocks=_BLOCKS
    )


def _served_runs(options: ReadOptions, schema: Any, part: PositionRange) -> Iterator[GreenRun]:
    """From the replicas, one after the other if need be."""
    start = part.start
    while True:
        reading = Reading(
            start=start,
            stop=part.stop,
            known=part.stop,
            columns=[name for name in ("position", "key", "payload") if name in ("position", *schema.names)],
            logs=options.selection.logs,
            without=options.selection.without,
        )
        try:
            yield from _runs_of(reading, options, part)
            return
        except LogTrimmedError as error:
            start = _after_loss(options, part, reading.position or start, error)


def _runs_of(reading: Reading, options: ReadOptions, part: PositionRange) -> Iterator[OrderedRun]:
    """SessionError: no replica gets any further."""
    reader = options.access.reader(prefer=part.replicas, blocks=_BLOCKS)
    reader.log_id = part.log
    patience_s = options.access.patience_s
    reached, reached_s = reading.position, time.monotonic()
    for answer in reader.answers(reading):
        runs = reading.advance(answer)
        yield from runs
        if runs or reading.position != reached:
            reached, reached_s = reading.position, time.monotonic()
        elif time.monotonic() - reached_s >= patience_s:
            raise _stuck(part, reached, patience_s, "start the replicas that are away")


def _stuck(part: PositionRange, reached: int | None, patience_s: float, way: str) -> SessionError:
    return SessionError(
        f"there has been nothing behind position {reached} for {patience_s:g} s (option timeout), and "
        f"position {part.stop - 1} was green when this was planned: {way}"
    )


def _after_loss(options: ReadOptions, part: PositionRange, reached: int, error: LogTrimmedError) -> int:
    if options.fails_on_data_loss or error.earliest <= reached:
        raise data_loss(error.earliest, reached) from error
    return error.earliest


def _file_runs(options: ReadOptions, part: PositionRange) -> Iterator[GreenRun]:
    """SessionError: the directory that this executor sees has not got so far."""
    reader = files.LogReader(Path(options.access.directory))
    patience_s = options.access.patience_s
    start, reached_s = part.start, time.monotonic()
    while start < part.stop:
        try:
            with reader.at_position(start, _BLOCKS) as cursor:
                while start < part.stop:
                    for ordered in cursor.runs():
                        _check_log(cursor, part, reader.directory)
                        start, reached_s = max(start, ordered.position + ordered.positions), time.monotonic()
                        yield ordered
                        if start >= part.stop:
                            return
                    if time.monotonic() - reached_s >= patience_s:
                        where = f"{reader.directory} has to be the same log for the driver and all executors"
                        raise _stuck(part, start, patience_s, where)
                    time.sleep(files.POLL_S)
        except LogTrimmedError as error:
            start = _after_loss(options, part, start, error)


def _check_log(cursor: files.Cursor, part: PositionRange, directory: Path) -> None:
    log = cursor.zones.log
    if log != part.log:
        raise LogError(f"{directory} has log {log:x} here, and log {part.log:x} on the driver")
