"""The table `log_records`: who had which record of the durable order when, by traces and by logs on disk.

One row for each position and node: what the node's trace tells of the record, and whether the node's log has
it. The two are joined by position, range by range: an executor reads the range of each log itself, so that
records travel once, into the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from totempole.corel.zones import Ordered
from totempole.spark.log_files import LogFiles, read_runs
from totempole.spark.log_parts import deal, greens_in, parts_of
from totempole.spark.log_ranges import RANGE_RECORDS, RANGE_RUNS, range_of, ranges_of
from totempole.trace.layers.corel import GREEN, RED, YELLOW

_COLUMNS: dict[str, Any] = {
    "run": StringType(),
    "position": LongType(),
    "node": LongType(),
    "log": StringType(),
    "message": StringType(),
    "origin": LongType(),
    "key": StringType(),
    "bytes": LongType(),
    "time": TimestampType(),
    "appended_at_us": LongType(),
    "red_at_us": LongType(),
    "yellow_at_us": LongType(),
    "green_at_us": LongType(),
    "latency_us": LongType(),
    "on_disk": BooleanType(),
}

SCHEMA = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])
"""`message` is origin.life.number.index, as a receipt begins. `time` is the order's own, and `bytes` the
record's: both are known from a log only. Times in µs are those of the trace: appended at the origin, red,
yellow and green at `node`; `latency_us` is from the first to the last, as good as the two clocks agree.
`on_disk`: whether the node's log has the record; null if its log was not given."""

_TIMES = ("appended_at_us", "red_at_us", "yellow_at_us", "green_at_us")


def log_records(
    events: DataFrame,
    logs: Sequence[LogFiles] = (),
    *,
    payloads: bool = False,
    runs_max: int = RANGE_RUNS,
    records_max: int = RANGE_RECORDS,
) -> DataFrame:
    """`events`: raw events. With logs, of the one run that these are of; without, of any runs: the table then
    says what the traces tell. `payloads`: with a column `payload`, known where the log has the record."""
    schema = StructType([*SCHEMA, StructField("payload", BinaryType())]) if payloads else SCHEMA
    told = _told(events)
    last = greens_in(events).agg(F.max("corel_place")).collect()[0][0]
    if last is None and not logs:
        return events.sparkSession.createDataFrame([], schema)
    starts = ranges_of(logs, 0 if last is None else last + 1, runs_max, records_max)
    dealt = deal(told, starts).groupBy("run", "part")
    runs = (events if logs else greens_in(events)).select("run").distinct().collect()
    parts = parts_of(events.sparkSession, [row["run"] for row in runs], starts).groupBy("run", "part")
    return dealt.cogroup(parts).applyInArrow(_join(tuple(logs), tuple(starts), payloads), schema)


def _told(events: DataFrame) -> DataFrame:
    """A row for each run of records that a node has told to be green: when it had which colour there, and
    when its origin accepted it."""
    colour = F.col("new_state")
    rows = events.where("kind = 'colour' and corel_run_kind = 'records'")
    first = F.struct("at_us", "corel_place", "corel_position", "count", "corel_repeats", "corel_kept_out")
    told = (
        rows.groupBy("run", "node", "message", "origin")
        .agg(
            F.min(F.when(colour == RED, F.col("at_us"))).alias("red_at_us"),
            F.min(F.when(colour == YELLOW, F.col("at_us"))).alias("yellow_at_us"),
            F.min_by(first, F.when(colour == GREEN, F.col("step"))).alias("green"),
        )
        .where("green is not null and size(green.corel_kept_out) = 0")
        .select("*", "green.*")
        .drop("green")
        .withColumnRenamed("at_us", "green_at_us")
    )
    accepted = events.where("kind = 'accept'").groupBy("run", "message")
    known = accepted.agg(
        F.min("at_us").alias("appended_at_us"),
        F.min_by(F.struct(F.col("corel_log").alias("log"), F.col("corel_keys").alias("keys")), "step").alias(
            "accept"
        ),
    )
    return told.join(known, ["run", "message"], "left").select("*", "accept.*").drop("accept")


# On the executors


def _join(logs: tuple[LogFiles, ...], starts: tuple[int, ...], payloads: bool) -> Callable[[Any, Any], Any]:
    def join(table: Any, parts: Any) -> Any:
        """`table` is what traces tell of a range; `parts` has its only row."""
        import pyarrow as pa

        (known,) = parts.to_pylist()
        start, stop = range_of(starts, known["part"])
        told = table.to_pylist()
        appended = {row["message"]: row["appended_at_us"] for row in told}
        by_node: dict[int, dict[str, Any]] = {}
        for row in told:
            by_node.setdefault(row["node"], {})[row["message"]] = row
        found: list[dict[str, Any]] = []
        for log in logs:
            mine = by_node.get(log.node, {})
            found += _on_disk(log, start, stop, mine, appended, payloads)
        given = {log.node for log in logs}
        for node, rows in by_node.items():
            found += _only_told(rows.values(), False if node in given else None)
        schema = _arrow_schema(payloads)
        tables = [_complete(each, known["run"], schema) for each in found]
        return pa.concat_tables([schema.empty_table(), *tables])

    return join


def _on_disk(
    log: LogFiles,
    start: int,
    stop: int,
    told: dict[str, Any],
    appended: Mapping[str, int | None],
    payloads: bool,
) -> Iterator[dict[str, Any]]:
    """Columns of the records that the log has. What is told of the same is taken out of `told`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from totempole.log.arrow import to_batches

    runs: list[tuple[int, str]] = []
    times: list[tuple[int | None, ...]] = []

    def noted() -> Iterator[Ordered]:
        for ordered in read_runs(log, start, stop):
            if ordered.positions:
                message = str(ordered.run.id)
                row = told.get(message)
                if row is not None and row["corel_position"] == ordered.position:
                    del told[message]
                    times.append(tuple(row[name] for name in _TIMES))
                else:
                    times.append((appended.get(message), None, None, None))
                runs.append((ordered.position, message))
            yield ordered

    done = 0
    for batch in to_batches(noted()):
        first = [position for position, _ in runs[done:]]
        of_run = pa.array(np.searchsorted(first, batch.column("position").to_numpy(), side="right") - 1)
        names = pa.array([message for _, message in runs[done:]], pa.string()).take(of_run)
        found = {
            "position": batch.column("position"),
            "node": pa.repeat(pa.scalar(log.node, pa.int64()), batch.num_rows),
            "log": batch.column("log"),
            "message": pc.binary_join_element_wise(names, batch.column("index").cast(pa.string()), "."),
            "origin": batch.column("origin"),
            "key": batch.column("key"),
            "bytes": pc.binary_length(batch.column("payload")),
            "time": batch.column("time"),
            "on_disk": pa.repeat(pa.scalar(True), batch.num_rows),
        }
        for place, name in enumerate(_TIMES):
            found[name] = pa.array([each[place] for each in times[done:]], pa.int64()).take(of_run)
        if payloads:
            found["payload"] = batch.column("payload")
        yield found
        done = len(runs)


def _only_told(rows: Any, on_disk: bool | None) -> Iterator[dict[str, Any]]:
    """Columns of records that a trace tells of, and the log has not got."""
    import pyarrow as pa

    found: dict[str, list[Any]] = {
        name: [] for name in ("position", "node", "log", "message", "origin", "key", *_TIMES)
    }
    for row in rows:
        repeats = set(row["corel_repeats"])
        taken = [index for index in range(row["count"]) if index not in repeats]
        keys = row["keys"] or ()
        found["position"] += range(row["corel_position"], row["corel_position"] + len(taken))
        found["message"] += [f"{row['message']}.{index}" for index in taken]
        found["key"] += [keys[index] or None if keys else None for index in taken]
        for name in ("node", "log", "origin", *_TIMES):
            found[name] += [row[name]] * len(taken)
    count = len(found["position"])
    texts = ("log", "message", "key")
    columns = {
        name: pa.array(values, pa.string() if name in texts else pa.int64()) for name, values in found.items()
    }
    if count:
        yield columns | {"on_disk": pa.repeat(pa.scalar(on_disk, pa.bool_()), count)}


def _complete(columns: dict[str, Any], run: str, schema: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(columns["position"])
    columns |= {
        "run": pa.repeat(pa.scalar(run), count),
        "latency_us": pc.subtract(columns["green_at_us"], columns["appended_at_us"]),
    }
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrow_schema(payloads: bool) -> Any:
    """The same as Arrow has it."""
    import pyarrow as pa

    types = {
        StringType(): pa.string(),
        LongType(): pa.int64(),
        BooleanType(): pa.bool_(),
        TimestampType(): pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in _COLUMNS.items()])
    return schema.append(pa.field("payload", pa.binary())) if payloads else schema
