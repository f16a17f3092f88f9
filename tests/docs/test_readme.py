"""The README's first program, the faults that it lives through, and its test, as a reader would type them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemons import LIMIT_S, Program
from totempole.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM, TEST = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2]
PYTHON = (sys.executable, "-W", "error")
WAITS_S = 3
"""A program that waits this long waits for the partition to end."""


@pytest.fixture
def place() -> Iterator[Path]:
    """With both files of the README. Its name is short: sockets have room for 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="readme-") as found:
        place = Path(found)
        (place / "store.py").write_text(PROGRAM)
        (place / "test_store.py").write_text(TEST)
        yield place


# The story, on three real nodes


def faults() -> list[str]:
    """What a reader is asked to type, in its order."""
    (listed,) = re.findall(r"run the program again after each: (.*?)\. ", PAGE, re.DOTALL)
    return re.findall(r"`(.*?)`", listed)


@contextmanager
def dev(place: Path) -> Iterator[Program]:
    with Program([sys.executable, "-m", "totempole", "dev"], place, TMPDIR=str(place)) as terminal:
        yield terminal
        terminal.type("quit")
        assert terminal.process.wait(LIMIT_S) == 0, terminal.out + terminal.err


def break_it(terminal: Program, command: str) -> str:
    """Types the command; gives the rings that there are then."""
    seen = len(terminal.out)
    terminal.type(command)
    terminal.wait_for(rf"dev> {re.escape(command)}(?:\n.*)*?\nrings? .* after .* s")
    return re.findall(r"^rings? (.*) after", terminal.out[seen:], re.MULTILINE)[-1]


def program(place: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PYTHON, "store.py"],
        cwd=place,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def prints_red(running: subprocess.Popen[str]) -> bool:
    said, complaints = running.communicate(timeout=LIMIT_S)
    return (said, complaints, running.returncode) == ("red\n", "", 0)


@pytest.mark.nodes
def test_the_program_lives_through_what_the_page_says(place: Path) -> None:
    """After the partition it waits in the minority, and ends when the network is whole."""
    assert faults() == ["kill 2", "start 2", "part 3 | 1 2", "heal"]
    with dev(place) as terminal:
        socket = terminal.wait_for(r".* export TOTEMPOLE_SOCKET=(\S+/node-3/\S+)")
        assert prints_red(program(place, TOTEMPOLE_SOCKET=socket))
        for command, rings in (("kill 2", "1 3"), ("start 2", "1 2 3")):
            assert break_it(terminal, command) == rings
            assert prints_red(program(place, TOTEMPOLE_SOCKET=socket)), command
        assert break_it(terminal, "part 3 | 1 2") == "3 | 1 2"
        waiting = program(place, TOTEMPOLE_SOCKET=socket)
        time.sleep(WAITS_S)
        assert waiting.poll() is None, waiting.communicate()
        assert break_it(terminal, "heal") == "1 2 3"
        assert prints_red(waiting)
        assert prints_red(program(place, TOTEMPOLE_SOCKET=socket))


# Its settings


def test_the_short_settings_are_those_of_the_page_with_times(capsys: pytest.CaptureFixture[str]) -> None:
    (typed,) = re.findall(
        r"^totem (node --print-config --short .*?) > node.toml$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert main(shlex.split(typed.replace("\\\n", " "))) == 0
    minutes = (ROOT / "docs" / "first-five-minutes.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", minutes, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out == shown


# Its test


def outcome(place: Path, *options: str) -> str:
    done = subprocess.run(
        [*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_store.py"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.mark.search
def test_its_test_passes_also_with_several_seeds(place: Path) -> None:
    """`@seeds(…)` in place of the one seed."""
    text = TEST.replace("\nasync def test_", "\n@seeds(2)\nasync def test_").replace("(3, seed=7)", "(3)")
    text = text.replace("import cluster", "import cluster, seeds")
    (place / "test_seeds.py").write_text(text)
    assert "2 passed" in outcome(place, "test_seeds.py")


@pytest.mark.nodes
def test_its_test_passes_on_real_daemons(place: Path) -> None:
    assert "1 passed" in outcome(place, "--totem-real")
