"""`totem bench source`: the durable order as a Spark table and stream, beside Parquet and Kafka's client."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from totempole.bench import source
from totempole.bench.compare import percentile
from totempole.bench.source import (
    AS_PLANNED,
    DIRECTORY,
    PARQUET,
    SMALL,
    THREE,
    Cell,
    Plan,
    Reading,
    Samples,
    median_reading,
)
from totempole.cli import options
from totempole.cli.bench_log import Aim, at_least, at_most
from totempole.cli.bench_rounds import chosen_plan, stepping
from totempole.cli.output import Screen, table
from totempole.errors import TotemError

if TYPE_CHECKING:
    from totempole.bench.spark_processes import Memory

RATES = ("rows/s", "MB/s")
LATER = "from the second batch on"
CPU = ("CPU µs/row", "Java", "Python", "services")


def add(benches: options.Verbs) -> None:
    parser = options.verb(
        benches, "source", "the order as a Spark table and stream: rows read and written, beside Parquet"
    )
    options.add_judging(parser, quick="one round, and a log of ten million rows")
    parser.add_argument("--rounds", type=options.at_least_one, metavar="N", help="medians over N rounds")
    parser.add_argument(
        "--rows",
        type=options.at_least_one,
        metavar="N",
        help="of the longest log, 100 bytes each (100,000,000; --quick: 10,000,000)",
    )
    parser.add_argument(
        "--directory", metavar="DIR", help="where logs and Parquet are written, and removed after (/tmp)"
    )
    parser.add_argument(
        "--kafka", default="", metavar="HOST:PORT", help="a broker, to measure Kafka's client beside it"
    )
    parser.set_defaults(run=run_source)


def run_source(arguments: argparse.Namespace) -> int:
    reason = source.missing()
    if reason:
        raise TotemError(f"Spark cannot be measured here: {reason}")
    screen = Screen(arguments.json)
    plan = planned(arguments)
    with stepping(screen, plan.steps) as tell:
        samples = source.measure(plan, tell)
    for shown in (
        _read_table(samples, plan),
        _column_table(samples, plan),
        _growth_table(samples, plan),
        _stream_table(samples, plan),
        _written_table(samples),
    ):
        screen.print(shown)
        screen.print()
    for line in _lines(samples):
        screen.print(line)
    screen.print()
    screen.print(_aim_table(samples, plan))
    for text in samples.wrong:
        screen.print(f"[bold red]{escape(text)}: its speed means nothing[/]")
    screen.save_json(_data(samples, plan))
    return 1 if samples.wrong else 0


def planned(arguments: argparse.Namespace) -> Plan:
    plan = chosen_plan(arguments, source.QUICK, Plan())
    rows = arguments.rows or plan.rows
    return replace(
        plan,
        rows=rows,
        growth=tuple([each for each in plan.growth if each < rows]),
        kafka=arguments.kafka,
        directory=Path(arguments.directory) if arguments.directory else None,
    )


# Tables


def _read_table(samples: Samples, plan: Plan) -> Table:
    numbers = (*RATES, "x Parquet", *CPU)
    heads = ("bytes", "tasks")
    title = "Batches, all columns: medians"
    shown = table(*heads, "from", *numbers, title=title, right=(*heads, *numbers))
    before: tuple[int, int] | None = None
    for cell in source.read_cells(plan):
        rounds = samples.reads.get(cell)
        if rounds:
            now = (cell.size, cell.tasks)
            head = ("", "") if now == before else (str(cell.size), str(cell.tasks))
            before = now
            shown.add_row(*head, cell.origin, *_reading_cells(samples, cell, median_reading(rounds)))
    return shown


def _reading_cells(samples: Samples, cell: Cell, reading: Reading) -> tuple[str, ...]:
    ratio = None if cell.origin == PARQUET else samples.ratio(cell)
    return (
        *_rates(reading, cell.size),
        "" if ratio is None else f"{ratio:.2f}",
        *_cpu(reading),
    )


def _rates(reading: Reading, size: int) -> tuple[str, str]:
    return f"{reading.rows_per_s:,.0f}", f"{reading.rows_per_s * size / 1e6:,.0f}"


def _cpu(reading: Reading) -> tuple[str, ...]:
    each_s = (reading.java_cpu_s, reading.worker_cpu_s, reading.service_cpu_s)
    shares = [f"{seconds * 1e6 / reading.rows:.2f}" if seconds >= 0.005 else "" for seconds in each_s]
    return f"{reading.cpu_us:.2f}", *shares


def _column_table(samples: Samples, plan: Plan) -> Table:
    numbers = ("rows/s", "x Parquet", *CPU)
    title = f"The option columns, {SMALL} bytes, tasks as planned"
    shown = table("columns", "from", *numbers, title=title, right=numbers)
    for cell in source.column_cells(plan):
        rounds = samples.reads.get(cell)
        if rounds:
            name = "" if cell.origin == PARQUET else cell.columns or "all"
            rate, _, *rest = _reading_cells(samples, cell, median_reading(rounds))
            shown.add_row(name, cell.origin, rate, *rest)
    return shown


def _growth_table(samples: Samples, plan: Plan) -> Table:
    numbers = ("rows", "seconds", "µs/row", "growth", "CPU µs/row", "Python MB", "last/before", "Java MB")
    heads = ("tasks",)
    title = f"Growth, {SMALL} bytes; memory of the largest Python worker"
    shown = table("from", *heads, *numbers, title=title, right=(*heads, *numbers))
    for tasks in (AS_PLANNED, *plan.tasks):
        found = samples.growth(plan, tasks)
        for reading in found:
            growth = f"{reading.row_us / found[0].row_us:.2f}"
            is_longest = reading is samples.longest.get(source.longest_cell(plan, DIRECTORY, tasks))
            memory = samples.memory.get(source.longest_cell(plan, DIRECTORY, tasks)) if is_longest else None
            shown.add_row(DIRECTORY, _tasks(tasks), *_growth_cells(reading, growth, memory))
    served = source.longest_cell(plan, THREE)
    if served in samples.longest:
        cells = _growth_cells(samples.longest[served], "", samples.memory.get(served))
        shown.add_row(THREE, _tasks(AS_PLANNED), *cells)
    return shown


def _growth_cells(reading: Reading, growth: str, memory: Memory | None) -> tuple[str, ...]:
    return (
        f"{reading.rows:,}",
        f"{reading.seconds:.1f}",
        f"{reading.row_us:.2f}",
        growth,
        f"{reading.cpu_us:.2f}",
        "" if memory is None else f"{memory.peak_bytes / 1e6:,.0f}",
        "" if memory is None else f"{memory.growth:.2f}",
        "" if memory is None else f"{memory.java_peak_bytes / 1e6:,.0f}",
    )


def _tasks(tasks: int) -> str:
    return "planned" if tasks == AS_PLANNED else str(tasks)


def _stream_table(samples: Samples, plan: Plan) -> Table:
    numbers = ("rows", *RATES, LATER, *CPU)
    heads = ("bytes", "tasks", "batches")
    title = "Streams (availableNow)"
    shown = table(*heads, "from", *numbers, title=title, right=(*heads, *numbers))
    for cell in source.stream_cells(plan):
        if cell in samples.streams:
            reading, batches = samples.streams[cell]
            head = (str(cell.size), _tasks(cell.tasks), str(cell.batches), cell.origin)
            later = _later(batches.later_per_s)
            shown.add_row(*head, f"{reading.rows:,}", *_rates(reading, cell.size), later, *_cpu(reading))
    return shown


def _later(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s else ""


def _written_table(samples: Samples) -> Table:
    numbers = ("rows", "seconds", *RATES, LATER)
    heads = ("bytes",)
    title = "Written into the log of three nodes"
    shown = table(*heads, "as", *numbers, title=title, right=(*heads, *numbers))
    for each in samples.written:
        rate = each.rows_per_s
        shown.add_row(
            str(each.size),
            each.way,
            f"{each.rows:,}",
            f"{each.seconds:.1f}",
            f"{rate:,.0f}",
            f"{rate * each.size / 1e6:,.1f}",
            _later(each.later_per_s),
        )
    return shown


def _lines(samples: Samples) -> Iterator[str]:
    if samples.latencies_ms:
        times = [percentile(samples.latencies_ms, percent) for percent in (50, 99)]
        yield (
            f"From append to a streaming query with a trigger of {source.TRIGGER_MS} ms: p50 {times[0]:,.0f} "
            f"ms, p99 {times[1]:,.0f} ms, of {len(samples.latencies_ms):,} records"
        )
    for name, rate in samples.clients_per_s.items():
        yield f"A program without Spark, {name}: {rate:,.0f} rows/s of {SMALL} bytes"
    for each in samples.kafka:
        yield (
            f"Kafka's client, {each.record_bytes} bytes, broker {escape(each.broker)}: "
            f"{each.consumed_per_s:,.0f} rows/s consumed, {each.produced_per_s:,.0f} produced"
        )
    if samples.kafka_missing:
        yield f"Kafka's client is not measured: {escape(samples.kafka_missing)}"
    if samples.load_average:
        loads = ", ".join(f"{load:.1f}" for load in samples.load_average)
        yield f"Load average of the machine before each round: {loads}"


# Aims


def aims(samples: Samples, plan: Plan) -> list[Aim]:
    """Those of which there is a measurement."""
    found = [*_read_aims(samples, plan)]
    for tasks in (AS_PLANNED, *plan.tasks):
        growth = samples.worst_growth(plan, tasks)
        if growth is not None:
            what = f"time per row, a longer log over a shorter, tasks: {_tasks(tasks)}"
            found.append(at_most(what, source.GROWTH_AIM, growth))
    for cell, memory in samples.memory.items():
        what = f"memory of a Python worker, last third over the one before, {cell.origin}"
        found.append(at_most(what, source.MEMORY_GROWTH_AIM, memory.growth))
    if samples.latencies_ms:
        for percent in (50, 99):
            what = f"from append to a streaming query, p{percent}, ms"
            latency_ms = percentile(samples.latencies_ms, percent)
            found.append(at_most(what, source.LATENCY_MS_AIM, latency_ms))
    for each in samples.written:
        if each.size == SMALL:
            what = f"rows/s written, {each.way}, {SMALL} bytes"
            found.append(at_least(what, source.SINK_PER_S_AIM, each.later_per_s or each.rows_per_s))
    return found


def _read_aims(samples: Samples, plan: Plan) -> Iterator[Aim]:
    """With the number of tasks that is best, in each round."""
    for origin in (DIRECTORY, THREE):
        for size in plan.sizes:
            mine, theirs = (_best_rates(samples, plan, size, each) for each in (origin, PARQUET))
            if mine and size == SMALL:
                yield at_least(f"rows/s read, {SMALL} bytes, {origin}", source.READ_PER_S_AIM, median(mine))
            if mine and theirs:
                ratio = median(one / other for one, other in zip(mine, theirs, strict=True))
                yield at_least(f"of Parquet's rows/s, {size} bytes, {origin}", source.PARQUET_AIM, ratio)


def _best_rates(samples: Samples, plan: Plan, size: int, origin: str) -> list[float]:
    """Rows per second of each round."""
    by_tasks = [samples.reads.get(Cell(size, origin, tasks), []) for tasks in plan.tasks]
    return [max(one.rows_per_s for one in rounds) for rounds in zip(*by_tasks, strict=True)]


def _aim_table(samples: Samples, plan: Plan) -> Table:
    shown = table("", "aim", "found", title="Aims", right=("aim", "found"))
    for each in aims(samples, plan):
        colour = "green" if each.holds else "red"
        shown.add_row(each.what, each.aim, f"[{colour}]{each.found}[/]")
    return shown


# Data


def _data(samples: Samples, plan: Plan) -> dict[str, Any]:
    cells = [*source.read_cells(plan), *source.column_cells(plan), *source.growth_cells(plan)]
    latencies_ms = samples.latencies_ms
    return {
        "load_average": samples.load_average,
        "reads": [
            {
                **cell._asdict(),
                "columns": cell.columns or "all",
                "rows": samples.reads[cell][0].rows,
                "times_parquet": samples.ratio(cell),
                "times_parquet_by_cpu": samples.cpu_ratio(cell),
                "rounds": [_reading_data(one) for one in samples.reads[cell]],
            }
            for cell in cells
            if samples.reads.get(cell)
        ],
        "longest": [cell._asdict() | _reading_data(one) for cell, one in samples.longest.items()],
        "memory": {
            cell.origin: {
                "peak_bytes": memory.peak_bytes,
                "growth": memory.growth,
                "java_peak_bytes": memory.java_peak_bytes,
                "samples": memory.workers,
            }
            for cell, memory in samples.memory.items()
        },
        "streams": [
            cell._asdict()
            | _reading_data(one)
            | {"later_per_s": batches.later_per_s, "batches": batches.batches}
            for cell, (one, batches) in samples.streams.items()
        ],
        "latency_ms": None
        if not latencies_ms
        else {
            "count": len(latencies_ms),
            "p50": percentile(latencies_ms, 50),
            "p99": percentile(latencies_ms, 99),
            "max": max(latencies_ms),
        },
        "written": [asdict(each) | {"rows_per_s": each.rows_per_s} for each in samples.written],
        "clients_per_s": samples.clients_per_s,
        "kafka": [asdict(each) for each in samples.kafka],
        "kafka_missing": samples.kafka_missing,
        "aims": [each._asdict() for each in aims(samples, plan)],
        "wrong": samples.wrong,
    }


def _reading_data(reading: Reading) -> dict[str, Any]:
    return asdict(reading) | {"rows_per_s": reading.rows_per_s, "cpu_us": reading.cpu_us}
