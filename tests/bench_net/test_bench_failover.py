"""`totem bench failover`, in a short form: that it kills idle and busy rings, and what it gives. No speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from totempole.bench import failover
from totempole.cli import main
from totempole.lab import missing
from totempole.srp.config import RingConfig


def test_the_ratio_is_of_medians() -> None:
    assert failover.Failovers([100, 200, 1000], [90, 240, 300], []).ratio == 1.2


@pytest.mark.skipif(bool(missing()), reason=missing() or "a lab can be had")
def test_bench_failover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(failover, "QUICK", failover.Plan(rounds=1, busy_s=0.3))
    file = tmp_path / "failover.json"
    assert main(["bench", "failover", "--quick", "--idle", "1", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["idle_s"] == 1
    assert len(found["busy_ms"]) == len(found["idle_ms"]) == failover.HOSTS - 1
    assert min(found["busy_ms"] + found["idle_ms"]) > 0
    assert found["ratio"] > 0
    assert found["stretched_ms"][0] >= RingConfig().token_loss_us / 1000
    assert "idle for 1 s" in capsys.readouterr().out
