"""The command itself: help, versions, exit codes, and what goes wrong as one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from totempole.cli import bench, demo, fuzz, main, sim
from totempole.errors import TotemError


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n    {verb}" in text for verb in ("demo", "sim", "fuzz", "bench"))
    assert "exit codes" in text


@pytest.mark.parametrize("verb", [["demo"], ["sim"], ["fuzz"], ["bench", "sim"]])
def test_every_command_that_judges_takes_json_and_quick(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json [FILE]" in text
    assert "--quick" in text


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("totem ")


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "totempole", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:6]) == (0, "totem ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "totem: the following arguments are required: COMMAND (see totem --help)"),
        (["tell"], "totem: there is no command 'tell': give one of demo, dev, node, "),
        (["nodes"], "totem: there is no command 'nodes': did you mean node? (see totem --help)"),
        (
            ["log", "stat"],
            "totem log: there is no command 'stat': did you mean state? (see totem log --help)",
        ),
        (["dev", "more"], "totem dev: there is no such argument: more (see totem dev --help)"),
        (
            ["log", "check", ".", "--config"],
            "totem log check: there is no such argument: --config (see totem log check --help)",
        ),
        (["dev", "--port", "65535"], "totem dev: argument --port: '65535': give a port from 1 to 65534"),
        (
            ["fuzz", "--seeds", "9"],
            "totem fuzz: argument --seeds: '9' is not a range of seeds",
        ),
        (["fuzz", "--seeds", "9:3"], "totem fuzz: argument --seeds: '9:3' is empty"),
        (["fuzz", "--jobs", "0"], "totem fuzz: argument --jobs: '0': give a whole number of at least 1"),
        (["fuzz", "--shrink"], "totem: fuzz: --shrink needs --seed N or --mutant NAME"),
        (["fuzz", "--seed", "1", "--out", "x"], "totem: fuzz: --out is where --shrink writes"),
        (["fuzz", "--mutant", "no such"], "totem: --mutant no such: no mutant is called that"),
        (["fuzz", "--mutant", "promise"], "totem: --mutant promise: several mutants are called that"),
        (["sim"], "totem: sim: name a scenario file"),
        (["sim", "nowhere.scenario"], "totem: nowhere.scenario: no such file; scenarios that come with"),
        (
            ["sim", "ring", "--processors", "1"],
            "totem: ring.scenario: a scenario says this itself: leave out --processors",
        ),
        (["sim", "appendix-a", "--processors", "x"], "totem: --processors x: give numbers from 1"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith(problem)
    assert found.err.count("\n") == 1


def test_an_error_of_ours_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> int:
        raise TotemError("first\n  second")

    monkeypatch.setattr(demo, "run_demo", fail)
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "totem: first second\n"


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        (demo, "run_demo", ["demo"]),
        (sim, "run_sim", ["sim", "ring"]),
        (fuzz, "run_fuzz", ["fuzz"]),
        (bench, "run_sim_bench", ["bench", "sim"]),
    ],
)
def test_an_interrupted_command_exits_130(
    module: object,
    name: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, interrupt)
    assert main(arguments) == 130
    assert capsys.readouterr().err == "totem: interrupted\n"
