"""What objects.md says of replicated objects: the programs run, names and errors are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daemons import LIMIT_S, PATIENT, cluster
from totempole import errors, objects
from totempole.objects import commands
from totempole.objects.commands import ObjectType
from totempole.objects.hosting import KEEP_S
from totempole.objects.replica import CallReceipt, Replica

ROOT = Path(__file__).parents[2]
OBJECTS = (ROOT / "docs/objects.md").read_text(encoding="utf-8")
ALONE = "[log]\nenabled = true\nreplicas = [1]\n"


def programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return OBJECTS.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.nodes
def test_programs_of_objects_run(tmp_path: Path) -> None:
    outputs = []
    with cluster(1, tmp_path, PATIENT + ALONE) as alone:
        for text in programs(OBJECTS):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", text],
                env=os.environ | {"TOTEMPOLE_SOCKET": str(alone[1].socket)},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            assert (done.returncode, done.stderr) == (0, "")
            outputs.append(done.stdout)
    bank, visits, ledger, twins, simulated = outputs
    assert bank == "left: 90 saved: 10\n"
    assert visits == "visits: 1\n"
    assert ledger == "10\n"
    assert twins == ""
    assert simulated.startswith("1 seeds, ")


def test_the_calls_are_there() -> None:
    text = section("Calls")
    for name in re.findall(r"`(?:await )?bank\.(\w+)", text):
        assert hasattr(Replica, name), name
    for name in re.findall(r"`(?:await )?receipt\.(\w+)", text):
        assert hasattr(CallReceipt, name), name


def test_the_ready_made_objects_have_what_is_said() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section("Ready-made objects"), re.MULTILINE)
    assert {name for name, _ in rows} == set(objects.__all__) - {"Lease", "Work"}
    for name, text in rows:
        cls = getattr(objects, name)
        named = set(re.findall(r"`([a-z_]+)`", text))
        assert all(hasattr(cls, each) for each in named)
        if name not in ("Fence", "SqliteObject"):
            assert set(ObjectType.of(cls).commands) <= named


def test_the_errors_are_there() -> None:
    for name in re.findall(r"`(\w+Error)`", section("What to do when")):
        assert hasattr(errors, name) or hasattr(commands, name), name


def test_the_numbers_are_true() -> None:
    assert f"every {KEEP_S * 1000:g} ms" in OBJECTS
