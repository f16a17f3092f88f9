"""`totem bench rrp`, in a short form: that every case and fault is measured, and what it gives. No speed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from totempole.bench import corosync, gaps, ring, rrp
from totempole.bench.ring import Throughput
from totempole.cli import main
from totempole.lab import missing

MISSING_COROSYNC = missing() or corosync.missing()
needs_lab = pytest.mark.skipif(bool(missing()), reason=missing() or "a lab can be had")
needs_corosync = pytest.mark.skipif(bool(MISSING_COROSYNC), reason=MISSING_COROSYNC or "corosync can be run")

ONE, ACTIVE, PASSIVE, *_ = rrp.CASES


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warming up."""
    monkeypatch.setattr(ring, "WARM_UP_S", 0.1)


def run_bench(words: list[str], file: Path) -> Any:
    assert main(["bench", "rrp", *words, "--quick", "--json", str(file)]) == 0
    return json.loads(file.read_text())


def test_ratios_are_to_the_same_round() -> None:
    rates = rrp.Rates()
    for one, two in ((10.0, 20.0), (5.0, 9.0), (1.0, 5.0)):
        for case, rate in ((ONE, one), (PASSIVE, two)):
            rates.add(4, case, Throughput(1_000, rate, 0, 0, 0))
    assert rates.ratio(4, 1_000, PASSIVE) == 2
    assert rates.rate(4, 1_000, PASSIVE) == 9_000
    assert rates.ratio(4, 1_000, ONE) is None


def test_what_004_measured_stands_beside_it() -> None:
    assert rrp.published_ratio(4, 1_000, PASSIVE) == 10_272 / 8_294
    assert rrp.published_ratio(6, 100, ACTIVE) == 8_113 / 8_617
    assert rrp.published_ratio(4, 1_001, PASSIVE) is None
    assert rrp.published_ratio(4, 1_000, ONE) is None


def test_aims_are_those_of_the_styles() -> None:
    assert {case.name: round(case.aim, 3) for case in rrp.CASES if case.aim} == {
        "active": 0.95,
        "passive": 1.9,
        "active-passive, 2 of 3": 1.4,
        "passive, 100 and 10 Mbit/s": 0.935,
        "active, unshaped": 0.6,
        "passive, unshaped": 0.95,
    }


@needs_lab
def test_bench_rrp(
    tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tuple(case for case in rrp.CASES if case.name in (rrp.UNREPLICATED, "passive, 100 and 10 Mbit/s"))
    monkeypatch.setattr(
        rrp, "QUICK", replace(rrp.QUICK, seconds=0.3, nodes=(3,), sizes=(1_000,), cases=cases)
    )
    found = run_bench([], tmp_path / "rrp.json")
    assert [row["case"] for row in found["rates"]] == [case.name for case in cases]
    assert all(row["bytes_per_s"][0] > 0 for row in found["rates"])
    assert found["rates"][1]["ratio"] > 0
    assert "100 and 10 Mbit/s" in capsys.readouterr().out


@needs_corosync
def test_bench_rrp_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "KNET_SETTLE_S", 0.1)
    monkeypatch.setattr(gaps, "QUICK", replace(gaps.QUICK, seconds=1.0))
    found = run_bench(["--gaps"], tmp_path / "gaps.json")
    assert [each["system"] for each in found["systems"]] == ["totempole, passive", "corosync, knet passive"]
    assert all(len(each["gaps_ms"]) == len(gaps.STEPS) for each in found["systems"])
    assert found["systems"][0]["changes"] == 0
    assert set(found["ratios"]) == {gaps.CUT, gaps.LOSS}
