"""The durable order as a Spark table and stream: how fast it is read and written, beside Parquet.

One session of Spark on all cores of this machine does everything, in turns, so that whatever else the machine
does falls upon all. Logs are synthetic (`synthetic_log`): read from their directory, and from log services,
which are processes on the same cores. The same rows as Parquet, not compressed, are the limit. Figures are
medians over rounds, ratios are taken in each round.

Then what needs real nodes, three of them on loopback addresses: how soon a record that was appended is seen
by a streaming query, and how fast rows are written.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from totempole.bench import kafka
from totempole.bench.kafka import KafkaRates

if TYPE_CHECKING:
    from totempole.bench.source_reading import Logs
    from totempole.bench.spark_processes import Memory

SMALL, LARGE = 100, 1_000
SIZES = (SMALL, LARGE)
DIRECTORY, ONE, THREE, PARQUET = "directory", "1 replica", "3 replicas", "Parquet"
ORIGINS = (DIRECTORY, ONE, THREE, PARQUET)
TASKS = (1, 2, 4)
AS_PLANNED = 0
"""As many tasks as the source plans."""
COLUMNS = ("", "position,payload", "position")
"""Of reads at 100 bytes. Empty: all."""
TRIGGER_MS = 100
WARM_UP_ROWS = 1_000

READ_PER_S_AIM = 2_000_000.0
"""At 100 bytes, on two cores."""
PARQUET_AIM = 0.5
GROWTH_AIM = 1.2
"""Time for each row of the longer log, over that of the shorter one, at most."""
MEMORY_GROWTH_AIM = 1.1
LATENCY_MS_AIM = 500.0
SINK_PER_S_AIM = 200_000.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 3
    sizes: tuple[int, ...] = SIZES
    tasks: tuple[int, ...] = TASKS
    stream_tasks: tuple[int, ...] = TASKS
    rows: int = 100_000_000
    """Of the longest log, with records of 100 bytes."""
    small_rows: int = 10_000_000
    """Of 100 bytes, that are read at once where the length is not what is measured."""
    large_rows: int = 2_000_000
    """Of 1000 bytes, likewise."""
    growth: tuple[int, ...] = (1_000_000, 10_000_000)
    """Rows that are read in each round, with each number of tasks, beside all rows once."""
    stream_batches: int = 10
    """Of streams that are read, and bounded by `maxOffsetsPerTrigger`."""
    sink_batches: int = 5
    """Of one that is written."""
    appends: int = 400
    """Seen by a streaming query, one by one."""
    sink_bytes: int = 250_000_000
    client_rows: int = 1_000_000
    """That clients without Spark read."""
    kafka: str = ""
    """The address of a broker; none: one is started, where there is one."""
    directory: Path | None = None
    """None: that of temporary files."""

    def read_rows(self, size: int) -> int:
        return min(self.small_rows, self.rows) if size == SMALL else self.large_rows

    def rows_of(self, size: int) -> int:
        """Of the log with records of this size."""
        return self.rows if size == SMALL else self.large_rows

    def sink_rows(self, size: int) -> int:
        return min(self.read_rows(size), self.sink_bytes // size)

    @property
    def disk_bytes(self) -> int:
        """What all of it needs at once, about: logs, Parquet's files, and what nodes and staged rows take."""
        logs = sum(self.rows_of(size) * size for size in self.sizes)
        parquet = sum(self.read_rows(size) * (size + 50) for size in self.sizes)
        sink = 2 * len(self.sizes) * 2 * 3 * self.sink_bytes
        return int(1.1 * (logs + parquet + sink)) + 2_000_000_000

    @property
    def steps(self) -> int:
        """What is told of, all told."""
        cells = len(self.sizes) * len(self.tasks) * len(ORIGINS)
        in_round = cells + 2 * len(COLUMNS) + len(list(growth_cells(self)))
        once = len(list(longest_cells(self))) + 1 + len(list(stream_cells(self))) + 1
        return 2 * len(self.sizes) + self.rounds * in_round + once + 2 * len(self.sizes) + 1


QUICK = Plan(
    rounds=1,
    stream_tasks=(2,),
    rows=10_000_000,
    small_rows=3_000_000,
    large_rows=500_000,
    growth=(1_000_000,),
    stream_batches=4,
    sink_batches=3,
    appends=100,
    sink_bytes=60_000_000,
    client_rows=200_000,
)


class Cell(NamedTuple):
    """What is measured together in every round."""

    size: int
    origin: str
    tasks: int = AS_PLANNED
    columns: str = ""
    rows: int = 0
    """0: as many as the plan reads at once."""


class StreamCell(NamedTuple):
    """A stream that ends with the log."""

    size: int
    origin: str
    tasks: int = AS_PLANNED
    batches: int = 1


@dataclass(frozen=True, slots=True)
class Reading:
    rows: int
    seconds: float
    java_cpu_s: float = 0.0
    worker_cpu_s: float = 0.0
    """Of Python's workers."""
    service_cpu_s: float = 0.0

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def row_us(self) -> float:
        return self.seconds * 1e6 / self.rows

    @property
    def cpu_us(self) -> float:
        """Of one row: that does not depend on what else the machine does."""
        return (self.java_cpu_s + self.worker_cpu_s + self.service_cpu_s) * 1e6 / self.rows


@dataclass(frozen=True, slots=True)
class Batches:
    """A stream, from its start to its end."""

    seconds: float
    batches: tuple[tuple[int, float], ...]
    """Of each: rows and seconds."""

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self.batches)

    @property
    def later_per_s(self) -> float:
        """Rows per second from the second batch on: the first one starts everything. 0: there is no other."""
        seconds = sum(seconds for _, seconds in self.batches[1:])
        return sum(rows for rows, _ in self.batches[1:]) / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that Spark has written into the log of three nodes."""

    way: str
    size: int
    rows: int
    seconds: float
    later_per_s: float = 0.0
    """Of a stream: from its second batch on."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


@dataclass(slots=True)
class Samples:
    """Everything measured."""

    load_average: list[float] = field(default_factory=list)
    """Of the machine, over the minute before each round."""
    reads: dict[Cell, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    longest: dict[Cell, Reading] = field(default_factory=dict)
    """All rows of the longest log, once."""
    memory: dict[Cell, Memory] = field(default_factory=dict)
    """Meanwhile, with tasks as planned."""
    streams: dict[StreamCell, tuple[Reading, Batches]] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    clients_per_s: dict[str, float] = field(default_factory=dict)
    """Rows that programs without Spark read, by interface."""
    kafka: list[KafkaRates] = field(default_factory=list)
    kafka_missing: str = ""
    wrong: list[str] = field(default_factory=list)
    """Rows that are not what they should be: speed means nothing then."""

    def ratio(self, cell: Cell) -> float | None:
        """Times what Parquet does in the same round, with as many tasks and the same columns: the median."""
        theirs = self.reads.get(cell._replace(origin=PARQUET), [])
        pairs = zip(self.reads.get(cell, []), theirs, strict=False)
        ratios = [mine.rows_per_s / other.rows_per_s for mine, other in pairs]
        return median(ratios) if ratios else None

    def cpu_ratio(self, cell: Cell) -> float | None:
        """The same for what the cores do for a row."""
        theirs = self.reads.get(cell._replace(origin=PARQUET), [])
        pairs = zip(self.reads.get(cell, []), theirs, strict=False)
        ratios = [other.cpu_us / mine.cpu_us for mine, other in pairs if mine.cpu_us]
        return median(ratios) if ratios else None

    def growth(self, plan: Plan, tasks: int = AS_PLANNED) -> list[Reading]:
        """The median of the readings of each length, from the directory with this number of tasks."""
        found = [
            median_reading(self.reads[cell])
            for cell in growth_cells(plan)
            if cell.tasks == tasks and self.reads[cell]
        ]
        longest = self.longest.get(longest_cell(plan, DIRECTORY, tasks))
        return found if longest is None else [*found, longest]

    def worst_growth(self, plan: Plan, tasks: int = AS_PLANNED) -> float | None:
        """Time for each row of a longer log over that of a shorter one."""
        found = [reading.row_us for reading in self.growth(plan, tasks)]
        ratios = [later / earlier for at, earlier in enumerate(found) for later in found[at + 1 :]]
        return max(ratios, default=None)


def median_reading(rounds: list[Reading]) -> Reading:
    return Reading(
        rounds[0].rows,
        median(one.seconds for one in rounds),
        median(one.java_cpu_s for one in rounds),
        median(one.worker_cpu_s for one in rounds),
        median(one.service_cpu_s for one in rounds),
    )


def read_cells(plan: Plan) -> Iterator[Cell]:
    """In the order of the table."""
    for size in plan.sizes:
        for tasks in plan.tasks:
            for origin in ORIGINS:
                yield Cell(size, origin, tasks)


def column_cells(plan: Plan) -> Iterator[Cell]:
    for columns in COLUMNS:
        for origin in (DIRECTORY, PARQUET):
            yield Cell(SMALL, origin, AS_PLANNED, columns)


def growth_cells(plan: Plan) -> Iterator[Cell]:
    for tasks in (AS_PLANNED, *plan.tasks):
        for rows in plan.growth:
            yield Cell(SMALL, DIRECTORY, tasks, "", rows)


def longest_cell(plan: Plan, origin: str, tasks: int = AS_PLANNED) -> Cell:
    return Cell(SMALL, origin, tasks, "", plan.rows)


def longest_cells(plan: Plan) -> Iterator[Cell]:
    for origin in (DIRECTORY, THREE):
        yield longest_cell(plan, origin)
    for tasks in plan.tasks:
        yield longest_cell(plan, DIRECTORY, tasks)


def stream_cells(plan: Plan) -> Iterator[StreamCell]:
    """In the order of the table."""
    for size in plan.sizes:
        yield StreamCell(size, THREE)
        for tasks in plan.stream_tasks:
            for origin in (DIRECTORY, ONE, THREE):
                yield StreamCell(size, origin, tasks, plan.stream_batches)


def missing() -> str:
    """Why it cannot be run here; empty when it can."""
    absent = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if absent:
        return f"install the package {', '.join(absent)} (pip install '.[spark]' in a clone)"
    return ""


def measure(plan: Plan, tell: Tell) -> Samples:
    from totempole.bench.source_reading import Logs
    from totempole.bench.synthetic_log import check_room
    from totempole.spark.session import LARGE as MANY_ROWS
    from totempole.spark.session import open_session

    samples = Samples()
    with TemporaryDirectory(prefix="totem-bench-", dir=plan.directory) as name:
        directory = Path(name)
        check_room(directory, plan.disk_bytes)
        with (
            open_session("totem bench source", settings=MANY_ROWS | {"spark.driver.memory": "3g"}) as spark,
            Logs(spark, directory, plan) as logs,
        ):
            for size in plan.sizes:
                tell(f"writing a log with {size} bytes a record")
                logs.write(size)
                tell("the same rows as Parquet")
                logs.write_parquet(size)
                samples.wrong += logs.differences(size)
            for _ in range(plan.rounds):
                samples.load_average.append(os.getloadavg()[0])
                for cells in (read_cells(plan), column_cells(plan), growth_cells(plan)):
                    for cell in cells:
                        tell(f"{cell.size} bytes from {cell.origin}")
                        samples.reads[cell].append(logs.read(cell))
            _measure_length(plan, logs, samples, tell)
            _measure_streams(plan, logs, samples, tell)
            _measure_clients(plan, logs, samples, tell)
            _measure_nodes(plan, directory, logs, samples, tell)
    return samples


def _measure_length(plan: Plan, logs: Logs, samples: Samples, tell: Tell) -> None:
    """All of the longest log."""
    for cell in longest_cells(plan):
        tell(f"{cell.rows:,} rows from {cell.origin}")
        samples.longest[cell], memory = logs.read_all(cell)
        if cell.tasks == AS_PLANNED:
            samples.memory[cell] = memory
    tell(f"{plan.rows:,} rows counted")
    count = logs.count(DIRECTORY)
    if count != plan.rows:
        samples.wrong.append(f"{count:,} rows were counted of {plan.rows:,}")


def _measure_streams(plan: Plan, logs: Logs, samples: Samples, tell: Tell) -> None:
    for cell in stream_cells(plan):
        tell(f"a stream, {cell.size} bytes from {cell.origin}")
        samples.streams[cell] = logs.stream(cell)
        rows, found = plan.read_rows(cell.size), samples.streams[cell][1].rows
        if found != rows:
            samples.wrong.append(f"a stream has read {found:,} rows of {rows:,}")


def _measure_clients(plan: Plan, logs: Logs, samples: Samples, tell: Tell) -> None:
    tell("clients without Spark")
    rows = min(plan.client_rows, plan.read_rows(SMALL))
    samples.clients_per_s = logs.client_rates(rows)
    samples.kafka_missing = kafka.missing(plan.kafka)
    if not samples.kafka_missing:
        samples.kafka = [kafka.measure(rows * SMALL // size, size, plan.kafka) for size in plan.sizes]


def _measure_nodes(plan: Plan, directory: Path, logs: Logs, samples: Samples, tell: Tell) -> None:
    from totempole.bench.source_nodes import Nodes

    with TemporaryDirectory(prefix="n-", dir=directory) as home, Nodes(Path(home), logs.spark) as nodes:
        tell("from append to a streaming query")
        samples.latencies_ms = nodes.latencies_ms(plan.appends, TRIGGER_MS)
        for size in plan.sizes:
            rows = plan.sink_rows(size)
            tell(f"writing {size} bytes, a batch")
            nodes.write(logs, size, WARM_UP_ROWS, "warm-up")
            seconds = nodes.write(logs, size, rows, f"batch-{size}")
            samples.written.append(Written("batch", size, rows, seconds))
            tell(f"writing {size} bytes, a stream")
            stream = nodes.write_stream(logs, size, rows, plan.sink_batches, f"stream-{size}")
            samples.written.append(Written("stream", size, rows, stream.seconds, stream.later_per_s))
            for log in (f"batch-{size}", f"stream-{size}"):
                found = nodes.count(log)
                if found != rows:
                    samples.wrong.append(f"{found:,} rows are in the log {log}, of {rows:,} written")
