"""Reads the order as a stream: an offset is a position, and says of which log.

The driver's part lives as long as its query, and keeps its connections. It moves a hold behind the query, if
one is asked for: what the query has not committed is not trimmed then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from totempole.errors import ConfigurationError, LogError, LogTrimmedError
from totempole.session.log_frames import Measure
from totempole.spark_table.holding import HoldMover
from totempole.spark_table.options import ReadOptions, check_stream
from totempole.spark_table.reading import (
    ahead_of_log,
    arrow_schema_of,
    data_loss,
    first_position,
    plan,
    read_range,
)
from totempole.spark_table.survey import Survey, View, look_as_far_as, survey_of

IDLE_S = 60.0
"""While only other logs grow, a query with `subscribe` has no batches, but one in so long: its offset moves
on then, and its hold."""

Offset = dict[str, Any]


class OrderStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one on the driver, which plans, and one for the executors, which reads."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_stream(options)
        self._options = ReadOptions.of(options)
        self._schema = arrow_schema_of(schema, self._options)
        self._following: Following | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_following": None}

    @property
    def _driver(self) -> Following:
        if self._following is None:
            self._following = Following(self._options)
        return self._following

    def initialOffset(self) -> Offset:
        return self._driver.first()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Python sources give one limit. It stands for both: `latestOffset` keeps to them."""
        options = self._options
        if options.rows_max:
            return ReadMaxRows(options.rows_max)
        return ReadMaxBytes(options.bytes_max) if options.bytes_max else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._driver.next(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Offset | None:
        return self._driver.progress()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.stop_at_latest()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [*self._driver.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._schema, partition)

    def commit(self, end: Offset) -> None:
        self._driver.commit(end)

    def stop(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None


class Following:
    """The driver's part, while its query runs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._survey: Survey = survey_of(options.access)
        self._view: View | None = None
        """The last one."""
        self._hold = HoldMover(options.access, options.hold) if options.hold else None
        self._stop: int | None = None
        """Not to go further than this (availableNow)."""
        self._is_checked = False
        """Offsets of a checkpoint were compared with the log."""
        self._planned = 0
        """Where the last batch ends."""
        self._scanned = 0
        """No record that is wanted lies between the offset and this."""
        self._idle_since_s = time.monotonic()

    def close(self) -> None:
        if self._hold is not None:
            self._hold.close()
        self._survey.close()

    # Offsets

    def first(self) -> Offset:
        options = self._options
        starting = "latest" if options.starting is None else options.starting
        wanted = starting if isinstance(starting, int) else 0
        view = self._view = look_as_far_as(self._survey, wanted, options.access.patience_s)
        if view is None:
            raise ahead_of_log("startingOffsets", wanted, self._look().position)
        position = first_position(starting, view, options)
        self._is_checked = True
        if self._hold is not None:
            self._hold.move(position)
        return _offset(view, position)

    def next(self, start: Offset, *, is_limited: bool) -> Offset:
        """Where the batch ends that begins at `start`."""
        position = _position(start)
        view = self._checked(start, position)
        stop = view.position if self._stop is None else min(self._stop, view.position)
        if stop > position and ((is_limited and self._options.has_limit) or self._options.selection.logs):
            stop = self._bounded(position, stop, view, is_limited)
        self._planned = max(stop, position)
        return _offset(view, self._planned)

    def _bounded(self, position: int, stop: int, view: View, is_limited: bool) -> int:
        """The same, if there are bounds; and without a batch for other logs than those that are read."""
        options = self._options
        rows_max, bytes_max = (options.rows_max, options.bytes_max) if is_limited else (0, 0)
        is_bounded = bool(rows_max or bytes_max)
        first = max(self._kept_from(position, view), self._scanned)
        while first < stop:
            logs, without = options.selection
            try:
                measured = self._survey.measure(
                    Measure(first, stop, rows_max if is_bounded else 1, bytes_max, logs, without)
                )
            except LogTrimmedError as error:  # since the view was taken
                first = self._lose(error.earliest, first)
                continue
            if measured.rows:
                self._idle_since_s = time.monotonic()
                return measured.position if is_bounded else stop
            self._scanned = first = measured.position
            break
        if not options.selection.logs or self._stop is not None:
            return min(first, stop)
        if time.monotonic() - self._idle_since_s < IDLE_S:
            return position
        self._idle_since_s = time.monotonic()
        return first

    def progress(self) -> Offset | None:
        """What the query's progress shows as the source's latest offset."""
        view = self._view
        if view is None:
            return None
        return _offset(view, view.position) | {"behind": max(view.position - self._planned, 0)}

    def stop_at_latest(self) -> None:
        self._stop = self._look().position

    # Batches

    def plan(self, start: Offset, end: Offset) -> list[Any]:
        position, stop = _position(start), _position(end)
        if position >= stop:
            return []
        view = self._view
        if view is None or view.position < stop or not self._is_checked:
            view = self._checked(end, stop)
        _check_log(start, view)
        return list(plan(view, self._kept_from(position, view), stop, self._options.partitions_min))

    def commit(self, end: Offset) -> None:
        if self._hold is not None:
            self._hold.move(_position(end))
            if self._stop is not None:
                self._hold.wait()  # the query may end at any time, and its last move with it

    # Within

    def _look(self) -> View:
        self._view = self._survey.look()
        return self._view

    def _checked(self, offset: Offset, position: int) -> View:
        """A view, once the log has got to this offset. LogError: it is not of this log."""
        if self._is_checked:
            view = self._look()
            _check_log(offset, view)
            return view
        _check_log(offset, self._look())
        found = look_as_far_as(self._survey, position, self._options.access.patience_s)
        if found is None:
            raise LogError(
                f"the checkpoint is ahead of the log: it has the records before position {position}, and the "
                f"next record of the log gets position {self._look().position}. The cluster was rolled back "
                "(an old backup, or lost disks), or replicas are away. What was read may not be in the log "
                "any more: bring the replicas back, or start the query with a new checkpoint"
            )
        self._view = found
        self._is_checked = True
        return found

    def _kept_from(self, position: int, view: View) -> int:
        return position if position >= view.first else self._lose(view.first, position)

    def _lose(self, earliest: int, position: int) -> int:
        """Goes on at the earliest position, if the query may."""
        if self._options.fails_on_data_loss:
            raise data_loss(earliest, position)
        return earliest


def _offset(view: View, position: int) -> Offset:
    return {"position": position, "log": f"{view.log:x}"}


def _position(offset: Offset) -> int:
    position = offset.get("position")
    if not isinstance(position, int) or not isinstance(offset.get("log"), str):
        raise ConfigurationError(
            f'offset {offset!r}: this source has offsets like {{"position": 5, "log": "a1"}}; the checkpoint '
            "belongs to another source, or to another version of this one"
        )
    return position


def _check_log(offset: Offset, view: View) -> None:
    if offset["log"] != f"{view.log:x}":
        raise LogError(
            f"the checkpoint is of log {offset['log']}, and the replicas have log {view.log:x}: they belong "
            "to another cluster, or their log was rescued since. Name the replicas of the first one, or "
            "start with a new checkpoint"
        )
