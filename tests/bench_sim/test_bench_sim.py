"""The simulator's benchmark: that it measures what it says. Its numbers are no test."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from totempole.bench import layers
from totempole.bench.layers import by_layer, layer_of
from totempole.bench.sim import Plan, Sample, Work, collector_at_rest, fuzz_runs, saturated_ring
from totempole.cli import bench, main
from totempole.types import RingKind

TINY = Plan(rounds=2, ring_us=2_000, seeds=(155,))
"""That seed is one processor with few events."""


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """A benchmark unfreezes what it finds: the tests themselves (tests/conftest.py)."""
    yield
    gc.collect()
    gc.freeze()


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    file = tmp_path / "bench.json"
    assert main(["bench", "sim", "--quick", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "packet events/s" in text
    assert "Where time goes" in text
    data = json.loads(file.read_text())
    assert [row["workload"] for row in data["rates"]] == ["classic ring", "accelerated ring", "fuzz, 1 seeds"]
    assert all(row["packet_events_per_s"] > 0 and len(row["rounds_s"]) == 2 for row in data["rates"])
    assert {"wire", "srp", "sim", "checkers"} <= set(data["layers"]["fuzz, 1 seeds"])


@pytest.mark.parametrize("kind", list(RingKind))
def test_a_saturated_ring_is_saturated(kind: RingKind) -> None:
    work = saturated_ring(kind, 5_000)()
    assert work.holds
    assert work.deliveries > 50
    assert work.simulated_us == 5_000


def test_fuzz_runs_are_judged() -> None:
    work = fuzz_runs((1,))
    assert (work.runs, work.holds) == (1, True)
    assert work.packet_events > 100


def test_rates_are_of_the_median_round() -> None:
    sample = Sample("x", Work(100, 10, 2_000_000, 4, True), (1.0, 2.0, 8.0))
    assert sample.packet_events_per_s == 50
    assert sample.deliveries_per_s == 5
    assert sample.runs_per_s == 2
    assert sample.simulated_per_s == 1
    assert sample.spread == 3.5


def test_the_collector_comes_back() -> None:
    with collector_at_rest():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


# Layers


def ours(package: str) -> tuple[str, int, str]:
    return f"{layers._ROOT}/{package}/module.py", 1, "function"


BUILTIN = ("~", 0, "<built-in>")
STDLIB = ("/usr/lib/python3/json/encoder.py", 5, "encode")


def test_files_have_layers() -> None:
    assert layer_of(ours("srp")[0]) == "srp"
    assert layer_of(f"{layers._ROOT}/types.py") == "other"
    assert layer_of(STDLIB[0]) is None


def test_what_is_not_ours_counts_for_its_callers() -> None:
    stats = {
        ours("wire"): (1, 1, 1.0, 4.0, {}),
        ours("sim"): (1, 1, 2.0, 4.0, {}),
        STDLIB: (1, 1, 0.5, 1.0, {ours("sim"): (1, 1, 0.5, 1.0)}),
        BUILTIN: (4, 4, 4.0, 4.0, {ours("wire"): (3, 3, 3.0, 3.0), STDLIB: (1, 1, 1.0, 1.0)}),
    }
    assert by_layer(stats) == pytest.approx({"wire": 4.0, "sim": 3.5})


def test_time_that_nobody_of_ours_asked_for_is_told_apart() -> None:
    assert by_layer({BUILTIN: (1, 1, 1.0, 1.0, {})}) == {"other": 1.0}
