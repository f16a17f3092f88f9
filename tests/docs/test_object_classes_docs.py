"""What object-classes.md says: its programs run, its limits and messages are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from totempole.errors import ObjectVersionError
from totempole.objects import records
from totempole.objects.codec import DEPTH_MAX
from totempole.objects.digests import INLINE_BYTES_MAX, STATE_BYTES_PER_COMMAND, Divergence
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Limits, Upgrade

PAGE = (Path(__file__).parents[2] / "docs/object-classes.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", BLOCKS)
def test_programs_run(program: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_limits_are_the_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)
    assert {name: int(value) for name, value in rows} == msgspec.structs.asdict(Limits())
    assert f"at most {DEPTH_MAX} deep" in PAGE
    assert (
        f"({STATE_BYTES_PER_COMMAND} bytes for each command), and above {INLINE_BYTES_MAX >> 20} MiB" in PAGE
    )


def test_a_migration_is_as_it_says() -> None:
    names: dict[str, type] = {}
    exec(compile(BLOCKS[1], "object-classes.md", "exec"), names)
    names["CounterOfVersion1"].object_name = "Counter"  # type: ignore[attr-defined]
    old, new = ObjectMachine(names["CounterOfVersion1"]), ObjectMachine(names["Counter"])
    opening = old.opening()
    assert opening is not None
    upgrade = records.encode(Upgrade(2, True))
    for machine in (old, new):
        machine.apply(opening, 0, 0)
        machine.state.value = 3
    new.apply(upgrade, 4_711, 0)
    assert new.state.values == {"total": 3}
    with pytest.raises(ObjectVersionError) as caught:
        old.apply(upgrade, 4_711, 0)
    assert f"`{caught.value}`" in WORDS


def test_a_divergence_reads_as_it_says() -> None:
    assert f"`{Divergence('h2', 'state', 4_096, 4_096, 8_192, 8_192)}`" in WORDS
