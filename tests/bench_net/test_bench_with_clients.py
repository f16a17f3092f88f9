"""The benchmarks through daemon and client, each in a short form: that they run and what they give. No speed.

They are run as their users do, by the command, with plans that take a few seconds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from totempole.bench import clients, compare, compare_pysyncobj, corosync, daemons, pysyncobj, ring
from totempole.bench.clients import Plan, spread
from totempole.bench.daemons import DaemonBench, NodeBench, Throughput
from totempole.bench.workers import Worker, WorkerError
from totempole.cli import main
from totempole.cli.bench_compare import LATENCIES, VARIANTS
from totempole.lab import Lab, LabError, missing
from totempole.lab.cluster import Setup
from totempole.lab.namespaces import processes

MISSING_COROSYNC = missing() or corosync.missing()
MISSING_PYSYNCOBJ = missing() or pysyncobj.missing()
needs_lab = pytest.mark.skipif(bool(missing()), reason=missing() or "a lab can be had")
needs_corosync = pytest.mark.skipif(bool(MISSING_COROSYNC), reason=MISSING_COROSYNC or "corosync can be run")
needs_pysyncobj = pytest.mark.skipif(bool(MISSING_PYSYNCOBJ), reason=MISSING_PYSYNCOBJ or "it can be run")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warming up."""
    for module in (daemons, ring, clients, corosync, pysyncobj):
        monkeypatch.setattr(module, "WARM_UP_S", 0.1)


def run_bench(words: list[str], file: Path, expected: int = 0) -> Any:
    assert main(["bench", *words, "--quick", "--json", str(file)]) == expected
    return json.loads(file.read_text())


def test_figures() -> None:
    assert Throughput(500, 2_000, 0).megabytes_per_s == 1
    assert [spread(count) for count in (1, 3, 12)] == [[1], [1, 1, 1], [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]]
    assert sum(spread(100)) == 100


def test_fairness_is_the_smallest_share_over_the_largest() -> None:
    sessions = [{"received": 30, "own": own, "end": ""} for own in (5, 10, 15)]
    reports = [{"seconds": 2.0, "sessions": sessions[:2]}, {"seconds": 3.0, "sessions": sessions[2:]}]
    summary = clients.summary(reports, 4096)
    assert summary == clients.Round(10, 40, 5 / 15, 4096, 0)


def test_a_client_that_was_disconnected_has_no_share_in_rates() -> None:
    sessions = [{"received": 30, "own": 30, "end": ""}, {"received": 3, "own": 0, "end": "fell behind"}]
    summary = clients.summary([{"seconds": 1.0, "sessions": sessions}], 0)
    assert (summary.ordered_per_s, summary.fairness, summary.ended) == (30, 0, 1)


def test_steps_are_the_clusters_that_are_started() -> None:
    assert compare.QUICK.steps == 2 * 3 + 3
    assert compare_pysyncobj.QUICK.steps == 4


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pysyncobj, "find_spec", lambda name: None)
    assert main(["bench", "compare", "pysyncobj", "--quick"]) != 0
    assert "install the package pysyncobj" in capsys.readouterr().err


@needs_lab
def test_daemons_and_clients_are_measured_and_leave_nothing(tmp_path: Path, hurried: None) -> None:
    with Lab("daemons", hosts=2) as lab:
        with DaemonBench(lab, tmp_path, Setup()) as bench:
            found = bench.throughput(320, seconds=0.2)
            assert found.messages_per_s > 0
            assert found.changes == 0
            assert bench.throughput(320, seconds=0.2, service="safe").messages_per_s > 0
            assert 0 < len(bench.latencies_us(64, rate=100, count=20)) <= 22
            assert len(bench.turns_us(64, 10)) == 10
            assert bench.daemons.resident_bytes(1) > 1_000_000
            assert bench.daemons.cpu_s(1) > 0
        for host in lab.hosts.values():
            assert processes([host.namespace]) == []


@needs_lab
def test_programs_with_nodes_of_their_own_are_measured_and_leave_nothing(
    tmp_path: Path, hurried: None
) -> None:
    with Lab("nodes", hosts=2) as lab:
        with NodeBench(lab, tmp_path, Setup()) as bench:
            assert bench.throughput(320, seconds=0.2).messages_per_s > 0
            assert 0 < len(bench.latencies_us(64, rate=100, count=20)) <= 22
        for host in lab.hosts.values():
            assert processes([host.namespace]) == []


@needs_lab
def test_a_daemon_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    with (
        Lab("daemons", hosts=1) as lab,
        pytest.raises(LabError, match=r"the daemon of host 1 has ended.*credit_bytes"),
        DaemonBench(lab, tmp_path, Setup(), settings=["clients.credit_bytes=1"]),
    ):
        pass


@needs_lab
def test_a_worker_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    with Lab("daemons", hosts=1) as lab:
        worker = Worker(lab.hosts[1], daemons.CLIENT, [tmp_path / "nobody"], tmp_path / "log")
        with pytest.raises(WorkerError, match=r"client_worker on host 1 has ended: .*no socket at"):
            worker.answer()
        worker.close()


@needs_lab
def test_bench_clients(tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "QUICK", Plan(rounds=1, seconds=0.5, clients=(1, 3)))
    found = run_bench(["clients"], tmp_path / "clients.json")
    assert [crowd["clients"] for crowd in found] == [1, 3]
    for crowd in found:
        assert crowd["ordered_per_s"] > 0
        assert 0 <= crowd["fairness"] <= 1
        assert crowd["resident_bytes"] > 1_000_000
        assert crowd["ended"] == 0
    assert found[0]["fairness"] == 1


@needs_corosync
def test_bench_compare_corosync_in_latency_only(
    tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "LATENCIES", replace(compare.LATENCIES, latency_count=20))
    monkeypatch.setattr(compare, "variants", lambda sealed: [(corosync.Transport.UDPU, False)])
    file = tmp_path / "latency.json"
    assert main(["bench", "compare", "corosync", "--latency", "--rounds", "1", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["throughput"] == []
    ours = {f"totempole, {name}" for name in LATENCIES.values()}
    assert set(found["latency_us"]) == {"corosync udpu -rt", *ours}
    assert "kill -9" not in capsys.readouterr().out


@needs_corosync
def test_bench_compare_corosync_with_one_size(
    tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "QUICK", replace(compare.QUICK, seconds=0.2))
    monkeypatch.setattr(compare, "variants", lambda sealed: [(corosync.Transport.UDPU, False)])
    found = run_bench(["compare", "corosync", "--bytes", "320"], tmp_path / "compare.json")
    assert [row["bytes"] for row in found["throughput"]] == [320]
    assert found["latency_us"] == {}
    said = capsys.readouterr().out
    assert "own delivery" not in said
    assert "kill -9" not in said


@needs_corosync
def test_bench_compare_corosync(tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(compare.QUICK, sizes=(320,), seconds=0.2, latency_count=20)
    monkeypatch.setattr(compare, "QUICK", plan)
    monkeypatch.setattr(compare, "variants", lambda sealed: [(corosync.Transport.UDP, False)])
    found = run_bench(["compare", "corosync"], tmp_path / "compare.json")
    (row,) = found["throughput"]
    assert set(row["totempole"]) == set(VARIANTS)
    assert all(rate > 0 for rounds in row["totempole"].values() for rate in rounds)
    for way in LATENCIES.values():
        assert set(found["latency_us"][f"totempole, {way}"]) == {"50", "99", "99.9"}


@needs_pysyncobj
def test_bench_compare_pysyncobj(tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(compare_pysyncobj.QUICK, sizes=(64,), seconds=0.2, turns=5, windows=(100,))
    monkeypatch.setattr(compare_pysyncobj, "QUICK", plan)
    found = run_bench(["compare", "pysyncobj"], tmp_path / "compare.json")
    (row,) = found["throughput"]
    assert set(row["totempole"]) == set(compare_pysyncobj.ways())
    assert set(row["pysyncobj"]) == set(compare_pysyncobj.MODES.values())
    assert len(found["latency_us"]) == 5
