"""`totem bench objects`: its figures, tables and aims, and a run in a short form. No speed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from rich.console import Console

from totempole.bench import etcd, etcd_objects, object_nodes, objects, pysyncobj
from totempole.bench.etcd import EtcdError, streams_of
from totempole.bench.etcd_objects import data_bytes, range_body, txn_body
from totempole.bench.object_classes import Store
from totempole.bench.object_nodes import Sample, SnapshotCost, busy_spans, cost_of, proportional_bytes
from totempole.bench.objects import CASES, QUICK, Cell, Plan, Samples
from totempole.bench.replicated import Load
from totempole.bench.workers import WorkerError
from totempole.cli import bench_objects, main
from totempole.objects.commands import Refused

MISSING = objects.missing()
needs_peers = pytest.mark.skipif(bool(MISSING), reason=MISSING or "the peers can be run")

OURS, ETCD, _, BATCHES, SINGLE = CASES
MS = 1_000_000


def load_of(calls_per_s: float) -> Load:
    return Load(calls_per_s, 1_500, 9_000, 12.5, 256)


def samples_of(ours: list[float], etcds: list[float], batches: list[float], single: list[float]) -> Samples:
    samples = Samples(sync_us=[300.0], load_average=[0.5])
    for size in objects.SIZES:
        for case, way, rates in (
            (OURS, object_nodes.CALL, ours),
            (ETCD, etcd_objects.CALL, etcds),
            (BATCHES, pysyncobj.WAY, batches),
            (SINGLE, pysyncobj.WAY, single),
        ):
            if rates:
                samples.calls[Cell(case.name, way, size, 256)] = [load_of(rate) for rate in rates]
    return samples


# etcd's side


def test_a_transaction_compares_and_puts() -> None:
    compare = b"\x08\x01" + b"\x1a\x01k" + b"\x20\x00"  # GREATER, the key, version 0, which is not left out
    put = b"\x12\x06" + b"\x0a\x01k" + b"\x12\x01v"
    message = b"\x0a\x07" + compare + b"\x12\x08" + put
    assert txn_body(b"k", b"v") == b"\0" + len(message).to_bytes(4, "big") + message


def test_a_read_is_linearisable_unless_it_is_said_to_be_local() -> None:
    assert range_body(b"k", is_local=False) == b"\0\0\0\0\x03" + b"\x0a\x01k"
    assert range_body(b"k", is_local=True) == b"\0\0\0\0\x05" + b"\x0a\x01k" + b"\x38\x01"


@pytest.mark.parametrize(
    ("under_way", "clients", "streams"),
    [(1, 1, 1), (16, 1, 16), (256, 4, 64), (1_000, 10, 100), (101, 101, 1)],
)
def test_streams_are_as_many_as_callers(under_way: int, clients: int, streams: int) -> None:
    assert streams_of(under_way) == [f"--clients={clients}", f"--max-concurrent-streams={streams}"]


def test_the_bytes_of_answers_are_in_h2loads_summary() -> None:
    said = "x\ntraffic: 1.2MB (1258291) total, 50KB (505) headers (space savings 93%), 1.1MB (1153434) data\n"
    assert data_bytes(said) == 1_153_434
    with pytest.raises(EtcdError, match="does not say"):
        data_bytes("finished in 1 s")


# Figures


def test_ratios_are_to_the_same_round_and_to_the_faster_mode() -> None:
    samples = samples_of([100, 60, 10], [10, 2, 5], [5, 30, 1], [50, 10, 1])
    cell = Cell(OURS.name, object_nodes.CALL, 100, 256)
    assert samples.ratio(cell, objects.ETCD) == 10
    assert samples.ratio(cell, objects.PYSYNCOBJ) == 2
    assert samples.ratio(cell._replace(callers=16), objects.ETCD) is None
    assert samples.ratio(cell._replace(way=object_nodes.CALL_MANY), objects.ETCD) is None


def test_a_mode_that_failed_in_a_round_does_not_count() -> None:
    samples = samples_of([100, 60], [10, 2], [5], [50, 10])
    assert samples.ratio(Cell(OURS.name, object_nodes.CALL, 100, 256), objects.PYSYNCOBJ) == 4
    samples = samples_of([100], [10], [], [])
    assert samples.ratio(Cell(OURS.name, object_nodes.CALL, 100, 256), objects.PYSYNCOBJ) is None


def cost(kept: float) -> SnapshotCost:
    return SnapshotCost(10**9, 12.0, 1_000, 1_000 * kept, 40.0, 1_200 * 10**6, 2_300 * 10**6)


def test_each_aim_holds_or_does_not() -> None:
    samples = samples_of([100], [10], [20], [5])
    samples.snapshot = cost(0.79)
    found = bench_objects.aims(samples, Plan())
    assert [each.holds for each in found] == [True, True, False, False, False]
    assert found[0] == (
        "Replica.call, times etcd's calls/s, 100 bytes, 256 callers",
        "at least 10",
        "10",
        True,
    )
    samples.snapshot = cost(0.81)
    assert bench_objects.aims(samples, Plan())[-1].holds
    assert bench_objects.aims(Samples(), Plan()) == []


def test_tables_have_every_system_that_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    samples = samples_of([230_000], [4_600], [1_000], [500])
    samples.snapshot = cost(0.9)
    samples.failures.append("PySyncObj, journal, 100 bytes: IndexError: [x]")
    samples.reads[Cell(OURS.name, object_nodes.READ, 100, 1)] = [load_of(7_000)]
    console = Console(width=160)
    console.print(bench_objects._call_table(samples, Plan()))
    console.print(bench_objects._read_table(samples, Plan()))
    for line in bench_objects._lines(samples):
        console.print(line)
    text = capsys.readouterr().out
    assert text.count("Replica.call ") == text.count("gRPC Txn") == 2
    for figure in ("230,000", "50.0", "230.0", "7,000", "90% of 1,000/s", "2,300 MB", "IndexError: [x]"):
        assert figure in text
    found = bench_objects._data(samples, Plan())
    assert found["calls"][0]["times_etcd"] == 50
    assert found["snapshot"]["kept"] == 0.9
    assert json.loads(json.dumps(found))["reads"][0]["callers"] == 1


def test_every_interface_is_measured_with_its_callers() -> None:
    cells = [cell for _, cell in objects.call_cells(QUICK)]
    assert len(cells) == len(set(cells))
    single = [cell for cell in cells if cell.way == object_nodes.BLOCKING_CALL]
    assert [(cell.size, cell.callers) for cell in single] == [(100, 1), (1_000, 1)]
    assert {cell.callers for cell in cells if cell.way == object_nodes.CALL} == {1, 16, 256}
    assert QUICK.steps == len(CASES) + 1


def test_a_snapshots_cost_is_what_calls_lose_meanwhile() -> None:
    """100 calls in 10 ms before it and after it, 50 meanwhile, and 100 ms without any."""
    samples, done = [], 0
    for step in range(300):
        is_busy = 100 <= step < 200
        done += (0 if 120 < step <= 130 else 50) if is_busy else 100
        samples.append(Sample(step * 10 * MS, done, is_busy))
    found = cost_of(5, samples, resident=7, peak=9)
    assert found.quiet_per_s == 10_000
    assert found.seconds == 1.0
    assert found.meanwhile_per_s == 4_550
    assert found.kept == 0.455
    assert found.longest_pause_ms == 110
    assert (found.state_bytes, found.resident_bytes, found.peak_bytes) == (5, 7, 9)


def test_a_snapshot_that_was_not_seen_from_its_beginning_to_its_end_does_not_count() -> None:
    busy = [Sample(1, 0, True), Sample(2, 1, False), Sample(3, 2, True)]
    assert busy_spans(busy) == []
    with pytest.raises(WorkerError, match="no snapshot"):
        cost_of(1, busy, 1, 1)


def test_memory_of_a_process_that_is_gone_is_none() -> None:
    assert proportional_bytes(2**22 + 1) == 0


# The class that is called


def test_the_store_does_what_etcds_transaction_does() -> None:
    store = Store()
    with pytest.raises(Refused):
        store.put_if("k", b"v")
    assert store.put("k", b"v") == 1
    assert store.put_if("k", b"w") == 2
    assert store.get("k") == b"w"
    assert store.fill(0, 3, 20) == 4
    assert {len(value) for key, value in store.values.items() if key != "k"} == {20}


# Runs


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(etcd, "find_tool", lambda name: None)
    assert main(["bench", "objects", "--quick"]) != 0
    assert "install the packages etcd-server, nghttp2-client" in capsys.readouterr().err


class Failing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def calls(self, way: str, size: int, callers: int, seconds: float) -> Load:
        raise WorkerError("a worker has ended: Traceback\nIndexError: list index out of range")

    def reads(self, way: str, size: int, callers: int, seconds: float) -> Load:
        raise AssertionError("none are asked for")


def test_a_peer_that_fails_is_told_and_ours_must_not() -> None:
    samples = Samples()
    objects._measure(BATCHES, Failing(), QUICK, samples)
    assert samples.failures == [
        "PySyncObj, journal, 100 bytes, 1 callers: IndexError: list index out of range"
    ]
    with pytest.raises(WorkerError):
        objects._measure(OURS, Failing(), QUICK, samples)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """The path of a Unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="totem-") as name:
        yield Path(name)


@pytest.mark.long
@needs_peers
def test_bench_objects(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (etcd_objects, object_nodes):
        monkeypatch.setattr(module, "SETTLING_S", 0.1)
    plan = replace(QUICK, seconds=0.3, sizes=(100,), callers=(1, 4), snapshot_bytes=10_000_000)
    monkeypatch.setattr(objects, "QUICK", plan)
    file = short_path / "objects.json"
    words = ["bench", "objects", "--quick", "--directory", str(short_path), "--json", str(file)]
    assert main(words) == 0
    found = json.loads(file.read_text())
    assert {row["system"] for row in found["calls"]} == {case.name for case in CASES}
    assert all(one["records_per_s"] > 0 for row in found["calls"] + found["reads"] for one in row["rounds"])
    assert len(found["reads"]) == 7
    assert found["snapshot"]["state_bytes"] == 10_000_000
    assert found["snapshot"]["peak_bytes"] >= found["snapshot"]["resident_bytes"] > 10_000_000
    assert list(short_path.iterdir()) == [file]
