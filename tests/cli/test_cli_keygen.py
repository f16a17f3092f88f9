"""`totem keygen`: what it writes, what it says to do next, and what it never shows."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from totempole.cli import main
from totempole.runtime import keyring

STEPS = ("--add", "--activate", "--retire")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "totem.key"


def ids(path: Path) -> list[int]:
    return [key.id for key in keyring.load(path).keys]


def secrets_in(path: Path) -> list[str]:
    return [line.split()[1] for line in path.read_text().splitlines() if not line.startswith("#")]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["keygen", *map(str, arguments)]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def test_a_new_key_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, path)
    assert "a new file with key 1" in text
    assert f'under [security]: key_file = "{path}"' in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ids(path) == [1]


def test_a_rotation_tells_what_comes_next(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, path)
    added = run(capsys, path, "--add")
    assert ids(path) == [1, 2]
    assert "key 2 is added and will be accepted; key 1 is still the active one" in added
    assert f"copy {path} to every host" in added
    assert "SIGHUP, or `systemctl reload`" in added
    assert f"totem keygen {path} --activate\n" in added
    activated = run(capsys, path, "--activate")
    assert ids(path) == [2, 1]
    assert "key 2 is now the active one; key 1 is still accepted" in activated
    assert f"totem keygen {path} --retire\n" in activated
    retired = run(capsys, path, "--retire")
    assert ids(path) == [2]
    assert "key 2 is the only one" in retired
    assert "the rotation is done" in retired


def test_how_far_a_rotation_is(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, path)
    told = [run(capsys, path, "--rotate")]
    for step in STEPS:
        run(capsys, path, step)
        before = path.read_bytes()
        told.append(run(capsys, path, "--rotate"))
        assert path.read_bytes() == before
    assert "No rotation is under way" in told[0]
    assert "key 1 is active, key 2 is accepted too" in told[1]
    assert f"the next step is: totem keygen {path} --activate\n" in told[1]
    assert f"the next step is: totem keygen {path} --retire\n" in told[2]
    assert told[3] == told[0].replace("key 1", "key 2")


def test_ids_that_do_not_tell_which_key_is_new(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, path)
    run(capsys, path, "--add")
    path.write_text(path.read_text().replace("\n2 ", "\n7 "))
    assert "nobody can tell which key is the new one" in run(capsys, path, "--rotate")


def test_no_secret_is_ever_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, path)
    secrets = secrets_in(path)
    for step in STEPS:
        shown += run(capsys, path, step) + run(capsys, path, "--rotate")
        secrets += secrets_in(path)
    assert not any(secret in shown for secret in secrets)
    assert len(set(secrets)) == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "exists, and may be the key of a running cluster"),
        (["--activate"], "the next step is --add"),
        (["--add", "--retire"], "not allowed with argument --add"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    arguments: list[str], problem: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, path)
    before = path.read_bytes()
    assert main(["keygen", str(path), *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert problem in found.err
    assert found.err.count("\n") == 1
    assert path.read_bytes() == before


def test_the_help_explains_a_rotation(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "--help")
    assert all(step in text for step in STEPS)
    assert "copy the file to every host" in text
