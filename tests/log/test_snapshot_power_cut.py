"""A snapshot that was said to be kept outlives kills and power cuts; one that has its name is whole.

As in test_log_power_cut: a preloaded library notes what was written, and what was not synced is taken back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from powercut import build, compiler
from snapshot_cut_program import MISTAKES

import totempole

PROGRAM = Path(__file__).with_name("snapshot_cut_program.py")

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(compiler() is None, reason="no C compiler: scripts/system-packages test"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("powercut"))


def run(library: Path, directory: Path, rounds: int, seed: int, mistake: str = "") -> dict[str, Any]:
    (directory / "snapshots").mkdir(mode=0o700)
    argv = [sys.executable, PROGRAM, directory / "snapshots", str(rounds), str(seed), mistake]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "PYTHONPATH": str(Path(totempole.__file__).parents[1]),
    }
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == ("wrong" in found), done.stderr
    return found


def test_what_is_kept_outlives_kills_and_power_cuts(library: Path, tmp_path: Path) -> None:
    found = run(library, tmp_path, rounds=80, seed=4)
    assert "wrong" not in found, found
    assert found["kills"] == 80
    assert found["cuts"] > 40
    assert found["taken_back"] > 100
    assert found["kept"] > 30
    assert found["garbled"] > 0, "parts that a power cut has garbled were seen, and written anew"
    assert found["refused"] > 0, "syncs have failed"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 26))
def test_hundreds_of_power_cuts(library: Path, tmp_path: Path, seed: int) -> None:
    found = run(library, tmp_path, rounds=400, seed=seed)
    assert "wrong" not in found, found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found_out(library: Path, tmp_path: Path, mistake: str) -> None:
    assert run(library, tmp_path, rounds=400, seed=3, mistake=mistake)["wrong"]
