"""What log.md and the README say: the programs run, settings and lines are there, the numbers are true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from daemons import LIMIT_S, PATIENT, cluster
from totempole.client.appending import RUN_BYTES, RUN_RECORDS_MAX
from totempole.corel.fences import FENCES_MAX
from totempole.corel.zones import KEYS_MAX
from totempole.runtime.log_clocks import CLOCK_AHEAD_US_MAX
from totempole.runtime.log_config import LogSection
from totempole.runtime.node_log import RETRY_US
from totempole.runtime.status import LOG_STANDINGS
from totempole.settings import settings_of

ROOT = Path(__file__).parents[2]
LOG = (ROOT / "docs/log.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ALONE = "[log]\nenabled = true\nreplicas = [1]\n"


def blocks(language: str, page: str = LOG) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return LOG.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.nodes
def test_programs_run(tmp_path: Path) -> None:
    outputs = []
    with cluster(1, tmp_path, PATIENT + ALONE) as alone:
        first_program = next(text for text in blocks("python", README) if "session.log(" in text)
        for text in (*blocks("python"), first_program):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", text],
                env=os.environ | {"TOTEMPOLE_SOCKET": str(alone[1].socket)},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            assert (done.returncode, done.stderr) == (0, "")
            outputs.append(done.stdout.splitlines())
    (first, kept, last), (again,), (imported,), (same, *records) = outputs
    assert imported == "imported at [2, 3]"
    assert (first, kept[:14], last, again, same) == ("at 0", "kept here, as ", "at 1", "at 0", "at 0")
    assert records == ["0 b'buy 10'", "1 b'sell 5'"]


def test_the_settings_are_there() -> None:
    known = settings_of(LogSection)
    rows = [line.split("|")[1] for line in section("Settings").splitlines() if line.startswith("| `")]
    named = re.findall(r"`(\w+)`", " ".join(rows))
    assert set(named) == set(known)
    (example,) = blocks("toml")
    assert tomllib.loads(example)["log"].keys() <= known.keys()


def test_numbers_standings_and_lines_are_true() -> None:
    assert f"{KEYS_MAX:,}" in LOG
    assert f"{FENCES_MAX:,} names" in section("Fences")
    assert f"at most {RUN_RECORDS_MAX:,} of them,\n  of {RUN_BYTES // 1024} KiB" in section("Fences")
    assert f"every {RETRY_US // 1_000_000} s" in LOG
    assert f"more than {CLOCK_AHEAD_US_MAX // 1_000_000} s ahead" in section("Times").replace("\n", " ")
    text = section("What to do when")
    for standing in LOG_STANDINGS:
        assert f"`{standing}`" in text
    source = "\n".join(path.read_text() for path in (ROOT / "src/totempole").rglob("*.py"))
    for line in ("the log cannot be opened", "the log has failed", "not founded yet", "no log open"):
        assert line in text
        assert line in source
    for kind in ("slow-disk", "rolled-back", "damaged", "another-log", "clock", "founding", "forked"):
        assert f"`{kind}`" in text
        assert f'"{kind}"' in source
