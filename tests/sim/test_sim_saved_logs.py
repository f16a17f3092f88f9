"""The logs of simulated replicas as files: as good as those of nodes, and what their traces tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.checkers.verdict import Outcome
from totempole.cli import main
from totempole.log.check import check
from totempole.sim.fuzz.log_plan import log_plan
from totempole.sim.saving import save_logs
from totempole.sim.scenario import run
from totempole.sim.script_runner import terms_of
from traced_logs import judged

WITHOUT = "processors p=1 q=2\nend 1s\n"
WITH = "processors p=1 q=2\ngroups\nlog p q\nat 800ms append p orders\nend 2s\n"


@pytest.mark.parametrize("seed", [11, pytest.param(3, marks=pytest.mark.search)])
def test_random_runs_leave_logs_that_are_what_their_traces_tell(tmp_path: Path, seed: int) -> None:
    """With crashes, bad disks, fences and repeated keys."""
    outcome = run(log_plan(seed), level="checked")
    directories = save_logs(tmp_path / "logs", outcome)
    assert len(directories) >= 3
    for directory in directories:
        assert check(directory).is_good
    for runs_max in (0, 7):
        report = judged(directories, outcome.judged_rows, runs_max, complete=terms_of(outcome).complete)
        assert {verdict.outcome for verdict in report.verdicts} == {Outcome.HOLDS}, str(report)


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.scenario"
    file.write_text(WITHOUT)
    assert main(["sim", str(file), "--logs", str(tmp_path / "none")]) == 2
    assert "this scenario has no durable log" in capsys.readouterr().err
    file.write_text(WITH)
    assert main(["sim", str(file), "--logs", str(tmp_path / "logs")]) == 0
    assert main(["sim", str(file), "--logs", str(tmp_path / "logs")]) == 2
    assert "it is there already" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["node1", "node2"]
