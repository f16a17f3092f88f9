"""Nothing that was acknowledged is lost: processes killed with -9 at any moment, and power cuts.

kill -9 alone would prove nothing about syncing, for the kernel keeps what it was given. So a library that is
preloaded notes what was written, and what was not synced is taken back (powercut.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from powercut import PowerCut, build, compiler, read_journal
from powercut_program import MISTAKES

import totempole

PROGRAM = Path(__file__).with_name("powercut_program.py")

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(compiler() is None, reason="no C compiler: scripts/system-packages test"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("powercut"))


def preloaded(library: Path, **more: str) -> dict[str, str]:
    source = str(Path(totempole.__file__).parents[1])
    return {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": source, **more}


def run(library: Path, directory: Path, rounds: int, seed: int, mistake: str = "") -> dict[str, Any]:
    (directory / "log").mkdir()
    argv = [sys.executable, PROGRAM, directory / "log", str(rounds), str(seed), mistake]
    done = subprocess.run(argv, env=preloaded(library), capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == ("wrong" in found), done.stderr
    return found


def test_what_was_acknowledged_outlives_kills_and_power_cuts(library: Path, tmp_path: Path) -> None:
    found = run(library, tmp_path, rounds=50, seed=1)
    assert "wrong" not in found, found
    assert found["kills"] == 50
    assert found["cuts"] > 20
    assert found["taken_back"] > 100
    assert found["positions"] > 1000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 16))
def test_hundreds_of_power_cuts(library: Path, tmp_path: Path, seed: int) -> None:
    found = run(library, tmp_path, rounds=100, seed=seed)
    assert "wrong" not in found, found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_store_that_does_not_sync_is_found_out(library: Path, tmp_path: Path, mistake: str) -> None:
    assert run(library, tmp_path, rounds=300, seed=3, mistake=mistake)["wrong"]


WRITES = """
import os, sys
root = sys.argv[1]
file = os.open(f"{root}/a", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"1" * 2000, 0)
os.fdatasync(file)
place = os.open(root, os.O_RDONLY)
os.fsync(place)
os.pwritev(file, [b"2" * 1000, b"3" * 3000], 0)
os.rename(f"{root}/a", f"{root}/b")
other = os.open(f"{root}/c", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 100)
"""


def test_the_library_takes_back_what_was_not_synced(library: Path, tmp_path: Path) -> None:
    """And nothing else. Sectors are taken back apart, names from the last on."""
    seen = set()
    for seed in range(60):
        root = tmp_path / str(seed)
        root.mkdir()
        cut = PowerCut(root, tmp_path / f"journal-{seed}", Random(seed))
        argv = [sys.executable, "-S", "-c", WRITES, root]
        subprocess.run(argv, env=preloaded(library, **cut.environment(0)), check=True)
        assert len(read_journal(cut.journal)) == 8
        cut.take_back()
        names = sorted(path.name for path in root.iterdir())
        assert names in (["a"], ["b"], ["b", "c"])
        content = (root / names[0]).read_bytes()
        assert len(content) in (100, 2000)
        if len(content) == 2000:
            assert content[512 * 2 + 100] in b"\x0013"
        seen.add((tuple(names), content[:1], len(content)))
    assert len(seen) > 6


WRITES_AGAIN = """
import os, sys
root = sys.argv[1]
file = os.open(f"{root}/a", os.O_RDWR | os.O_CREAT)
place = os.open(root, os.O_RDONLY)
os.fsync(place)
os.pwrite(file, b"1" * 4000, 0)
try:
    os.fdatasync(file)
except OSError:
    os.pwrite(file, b"2" * 1000, 512)
    os.fdatasync(file)
"""


def test_what_is_written_again_after_a_failed_sync_stays(library: Path, tmp_path: Path) -> None:
    """And the file keeps its size. Of the other sectors, what the failed sync lost may be gone."""
    seen = set()
    for seed in range(30):
        root = tmp_path / str(seed)
        root.mkdir()
        cut = PowerCut(root, tmp_path / f"journal-{seed}", Random(seed))
        argv = [sys.executable, "-S", "-c", WRITES_AGAIN, root]
        subprocess.run(argv, env=preloaded(library, **cut.environment(0, fail=1)), check=True)
        cut.take_back()
        content = (root / "a").read_bytes()
        assert len(content) == 4000
        assert content[512:1512] == b"2" * 1000
        seen |= {content[:1], content[-1:]}
    assert seen == {b"\0", b"1"}
