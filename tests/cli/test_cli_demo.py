"""`totem demo` from end to end: every packaged story holds, and both broken protocols are caught."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from totempole.cli import demo, demo_nodes, main
from totempole.errors import ConfigurationError


@pytest.mark.search
def test_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "cores", lambda: 1)
    monkeypatch.setattr(demo, "HUNTED_SEEDS", range(1, 2))
    monkeypatch.setattr(demo, "QUICK_SEEDS", range(1, 2))
    monkeypatch.setattr(demo, "QUICK_TRIALS_MAX", 3)
    file = tmp_path / "demo.json"
    assert main(["demo", "--quick", "--out", str(tmp_path / "demo"), "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "in one and the same order" in text
    assert "{(q) (r) s t u v}" in text
    assert "All of it held: 6 runs, 2 broken protocols caught" in text
    assert max(map(len, text.splitlines())) <= 100
    data = json.loads(file.read_text())
    assert data["holds"] is True
    assert [run["scenario"] for run in data["runs"]] == [
        "ring",
        "crash",
        "partition",
        "figure-4-15",
        "figure-4-16",
    ]
    assert all(run["holds"] for run in data["runs"])
    assert all(mutant["caught"] for mutant in data["mutants"])


def test_the_demo_removes_only_what_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigurationError, match="there is something else"):
        demo._empty(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.nodes
def test_without_root_the_processes_part_their_network_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_nodes, "missing", lambda: "network namespaces need root")
    played = demo_nodes.play(0.2, tmp_path)
    assert played.no_namespaces
    assert not played.report.violated
    members = {row.members for row in played.rows if row.kind == "configuration"}
    assert {(1, 2), (3, 4), (1, 2, 3, 4)} <= members
