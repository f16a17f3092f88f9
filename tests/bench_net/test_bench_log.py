"""`totem bench log`: its figures, tables and aims, and a run in a short form. No speed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from rich.console import Console

from totempole.bench import etcd, log, log_nodes, pysyncobj
from totempole.bench.log import CASES, Plan, Samples
from totempole.bench.log_nodes import CatchUp, batch_of, green_again_ms
from totempole.bench.replicated import Load
from totempole.bench.workers import WorkerError
from totempole.cli import bench_log, main
from totempole.lab import LabError

MISSING = log.missing()
needs_peers = pytest.mark.skipif(bool(MISSING), reason=MISSING or "the peers can be run")

OURS, ETCD = CASES[0], CASES[1]


def load_of(records_per_s: float) -> Load:
    return Load(records_per_s, 1_500, 9_000, 12.5, 1_000)


def samples_of(ours: list[float], theirs: list[float]) -> Samples:
    samples = Samples(sync_us=[300.0])
    for size in log.SIZES:
        samples.loads[OURS.name, log_nodes.APPEND_MANY, size] = [load_of(rate) for rate in ours]
        samples.loads[ETCD.name, etcd.WAY, size] = [load_of(rate) for rate in theirs]
    return samples


def test_ratios_are_to_the_same_round() -> None:
    samples = samples_of([100, 60, 10], [10, 2, 5])
    assert samples.ratio(OURS, log_nodes.APPEND_MANY, 100) == 10
    assert samples.ratio(OURS, log_nodes.APPEND, 100) is None
    load = samples.load(OURS.name, log_nodes.APPEND_MANY, 100)
    assert load == load_of(60)
    assert samples.load(OURS.name, log_nodes.APPEND, 100) is None


def test_each_aim_holds_or_does_not() -> None:
    samples = samples_of([100], [10])
    samples.turns_us[OURS.name], samples.turns_us[ETCD.name] = [[900.0]], [[1_000.0]]
    samples.failovers_ms[log.OURS] = [200.0, 310.0, 320.0]
    samples.catch_up = CatchUp(1_000_000, 1_200_000, 8.0, 1.0, 50_000, 60_000, 30_000)
    samples.read_per_s = 2_500_000
    found = bench_log.aims(samples, Plan())
    assert [each.holds for each in found] == [False, True, True, True, False, True, False, True]
    assert found[0] == ("times etcd's records/s, 100 bytes, synced", "at least 20", "10", False)
    assert found[4][1:3] == ("at most 300", "310")


def test_an_aim_without_a_measurement_is_not_judged() -> None:
    assert bench_log.aims(Samples(), Plan()) == []


def test_tables_have_every_system_that_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    samples = samples_of([230_000], [4_600])
    console = Console(width=140)
    console.print(bench_log._load_table(samples, Plan(), synced=True))
    console.print(bench_log._load_table(samples, Plan(), synced=False))
    text = capsys.readouterr().out
    assert text.count("append_many") == text.count("gRPC Put") == 3
    assert "230,000" in text
    assert "50.0" in text
    assert bench_log._data(samples, Plan())["loads"][0]["ratio"] == 50


def test_batches_have_about_the_same_bytes() -> None:
    assert [batch_of(size) for size in (*log.SIZES, 10**6)] == [500, 50, 5, 1]


def test_green_again_is_the_end_of_the_longest_pause_after_the_kill() -> None:
    ms = 1_000_000
    answered = [0, 2 * ms, 100 * ms, 104 * ms, 290 * ms, 292 * ms, 320 * ms]
    assert green_again_ms(103 * ms, answered) == 187
    with pytest.raises(LabError, match="no record was green after the kill"):
        green_again_ms(400 * ms, answered)


def test_what_the_others_keep() -> None:
    assert CatchUp(10, 12, 1.0, 0.5, 200.0, 300.0, 150.0).kept == 0.75


def test_steps_are_the_clusters_that_are_started() -> None:
    assert log.QUICK.steps == len(CASES) + 3


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(etcd, "find_tool", lambda name: None)
    assert main(["bench", "log", "--quick"]) != 0
    assert "install the packages etcd-server, nghttp2-client" in capsys.readouterr().err


class Failing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def load(self, way: str, record_bytes: int, seconds: float) -> Load:
        raise WorkerError("a worker has ended: Traceback\nIndexError: list index out of range")

    def turns_us(self, record_bytes: int, count: int) -> list[float]:
        return [1.0] * count


def test_a_peer_that_fails_is_told_and_ours_must_not() -> None:
    samples = Samples()
    peer = next(case for case in CASES if case.name == "PySyncObj, journal")
    log._measure(peer, Failing(), log.QUICK, samples)
    assert samples.failures == ["PySyncObj, journal, 100 bytes: IndexError: list index out of range"]
    with pytest.raises(WorkerError):
        log._measure(OURS, Failing(), log.QUICK, samples)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """The path of a Unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="totem-") as name:
        yield Path(name)


@pytest.mark.long
@needs_peers
def test_bench_log(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (etcd, pysyncobj, log_nodes):
        monkeypatch.setattr(module, "WARM_UP_S", 0.1)
    monkeypatch.setattr(log_nodes, "CALLS", {log_nodes.APPEND: (10,), log_nodes.APPEND_MANY: (2,)})
    monkeypatch.setattr(log_nodes, "AFTER_KILL_S", 1.0)
    plan = replace(
        log.QUICK,
        seconds=0.2,
        sizes=(100,),
        turns=5,
        kills=1,
        missed=2_000,
        etcd_under_way=(10,),
        pysyncobj_under_way=(10,),
    )
    monkeypatch.setattr(log, "QUICK", plan)
    file = short_path / "log.json"
    words = ["bench", "log", "--quick", "--directory", str(short_path), "--json", str(file)]
    assert main(words) == 0
    found = json.loads(file.read_text())
    assert {row["system"] for row in found["loads"]} == {case.name for case in CASES if case.ways}
    assert all(one["records_per_s"] > 0 for row in found["loads"] for one in row["rounds"])
    assert {*found["one_at_a_time_us"]} == {case.name for case in CASES if case.turns}
    assert set(found["failover_ms"]) == {log.OURS, log.JUST_BACK, log.ETCD}
    assert found["catch_up"]["missed"] >= 2_000
    assert found["read_per_s"] > 0
    assert list(short_path.iterdir()) == [file]
