"""What a newcomer meets first: what `make demo` installs, pipes, and machines that lack something."""

from __future__ import annotations

import multiprocessing
import os
import re
import stat
import subprocess
import sys
import tomllib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from totempole.cli import demo_text, dev, main, options
from totempole.errors import ConfigurationError
from totempole.sim.fuzz import pools
from totempole.spark.java import GONE, INCUBATOR, quiet_home

ROOT = Path(__file__).parents[2]
TOOLS = ("mypy", "ruff", "hypothesis", "pysyncobj", "pytest", "import-linter")


def requirements(extra: str) -> Iterator[str]:
    """Of an extra and of those that it names."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in extras[extra]:
        found = re.fullmatch(r"totempole\[(.*)\]", word)
        if not found:
            yield re.split(r"[<>=]", word)[0]
        else:
            for other in found[1].split(","):
                yield from requirements(other)


def test_the_demo_needs_no_tool_of_a_developer() -> None:
    assert "pyspark" in set(requirements("demo"))
    assert not set(requirements("demo")) & set(TOOLS)
    assert set(TOOLS) <= set(requirements("dev"))
    assert set(requirements("demo")) <= set(requirements("dev"))


def steps(target: str) -> str:
    """What make would do in a clone that is new."""
    argv = ["make", "--dry-run", "--always-make", target]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_demo_is_installed_with_progress_and_without_the_tools() -> None:
    text = steps("demo")
    assert "--editable '.[demo]'" in text
    assert "--quiet" not in text
    assert "[dev]" not in text
    assert "system-packages" not in text, "a demo installs nothing on the machine"
    assert all("--use-pep517" in line for line in text.splitlines() if "/pip install" in line)


def test_tests_add_to_what_the_demo_has_installed() -> None:
    text = steps("test")
    assert text.index("'.[demo]'") < text.index("'.[dev]'") < text.index("pytest")
    assert text.count("scripts/system-packages") == 1


def test_root_is_told_what_is_installed_and_why_before_it_is(tmp_path: Path) -> None:
    """On the machine, not only in `.venv`: nobody expects that of tests."""
    for name, line in {"id": "echo 0", "apt-get": 'echo "apt-get $1" >&2'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "system-packages", "test"],
        env={"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    before, apt, after = done.stdout.partition("apt-get update")
    assert "installs Debian packages with apt-get" in before
    assert "  default-jre-headless: Java for Spark\n" in before
    assert "run as a user without root to install nothing" in before
    assert apt
    assert "apt-get install" in after
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert "`make test` run as root also installs" in readme


# Pipes


@pytest.mark.parametrize("words", [["node", "--print-config"], ["sim", "--list"]])
def test_a_reader_that_has_ended_is_no_trouble(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        argv = [sys.executable, "-m", "totempole", *words]
        done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


# Machines that lack something


def test_missing_shared_memory_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing:
        def Pool(self, *_: Any) -> Any:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(multiprocessing, "get_context", lambda _how: Refusing())
    monkeypatch.setattr(pools, "SHARED_MEMORY", str(tmp_path / "shm"))
    assert main(["fuzz", "--seeds", "0:4", "--jobs", "2"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/shm is missing (Permission denied)" in said
    assert "mount -t tmpfs -o mode=1777 tmpfs" in said


def test_another_refusal_is_not_blamed_on_shared_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Refusing:
        def Pool(self, *_: Any) -> Any:
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(multiprocessing, "get_context", lambda _how: Refusing())
    monkeypatch.setattr(pools, "SHARED_MEMORY", str(tmp_path))
    with pytest.raises(OSError, match="Too many open files") as raised:
        pools.open_pool(2)
    assert not isinstance(raised.value, ConfigurationError)


@pytest.mark.parametrize(("version", "left"), [(17, f"-Xmx1g {GONE} a b"), (25, "-Xmx1g a b")])
def test_java_is_not_asked_for_what_it_would_warn_of(tmp_path: Path, version: int, left: str) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    says = f"echo 'openjdk version \"{version}.0.1\"' >&2"
    java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {says}; else echo "$@"; fi\n')
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    home = quiet_home(java.parent.parent)
    argv = [home / "bin" / "java", "-Xmx1g", INCUBATOR, GONE, "a b"]
    assert subprocess.run(argv, capture_output=True, text=True).stdout == f"{left}\n"
    assert quiet_home(home) == home


# The node that is meant


def test_a_socket_that_is_named_names_its_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After `export TOTEMPOLE_SOCKET=…`, `totem status` asks the same node as `totem send`."""
    nothing = Namespace(config=None, directory=None)
    monkeypatch.setenv("TOTEMPOLE_SOCKET", str(tmp_path / "clients.sock"))
    assert options.directory_of(nothing, "status") == options.DIRECTORY, "its socket is elsewhere"
    (tmp_path / "status.sock").touch()
    assert options.directory_of(nothing, "status") == tmp_path
    assert options.directory_of(Namespace(config=None, directory="d"), "status") == Path("d")
    monkeypatch.delenv("TOTEMPOLE_SOCKET")
    assert options.directory_of(nothing, "status") == options.DIRECTORY


def test_a_directory_in_place_of_a_socket_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["send", "orders", "x", "--socket", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert (
        f"no daemon at {tmp_path}: a directory; name the socket in it, like {tmp_path}/clients.sock" in said
    )


def test_another_terminal_is_told_the_virtual_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "my venv" / "bin" / "activate"
    script.parent.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my venv"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert dev.activation("totem") == "", "it has none"
    script.touch()
    assert dev.activation("totem") == f"source '{script}'"
    assert dev.activation(".venv/bin/totem") == "", "the other commands have their paths, too"
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert dev.activation("totem") == "", "it is the system's"


# What comes next


def test_the_demo_takes_as_long_as_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Help said a minute or two, and the page with times has three to five."""
    assert main(["demo", "--help"]) == 0
    assert "in a few minutes" in capsys.readouterr().out
    assert "make demo     # a few minutes:" in (ROOT / "README.md").read_text()


def test_the_demo_ends_with_commands_that_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"]) == 0
    verbs = set(re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE))
    for command in (command for steps in demo_text.NEXT.values() for command, _ in steps):
        first, second, *_ = f"{command} ".split(" ")
        assert second in verbs if first == "{totem}" else (ROOT / first.rstrip(",")).exists()
    page, heading = demo_text.NEXT["Now a program of your own"][1][0].split(", ")
    assert f"\n## {heading.strip(chr(34))}\n" in (ROOT / page).read_text()


def test_the_command_is_called_as_it_can_be_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / ".venv" / "bin" / "totem"
    command.parent.mkdir(parents=True)
    command.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/totem", "demo"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert options.totem_command() == ".venv/bin/totem"
    monkeypatch.setenv("PATH", str(command.parent))
    assert options.totem_command() == "totem"
