"""Completion and manual pages are made from the parser: shells take them, and nothing is left out."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from totempole.cli import main
from totempole.cli.command import VERBS, whole_parser
from totempole.cli.completion import SHELLS, completion
from totempole.cli.man import pages
from totempole.cli.options import parsers_of


@pytest.fixture(scope="module")
def bash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "totem.bash"
    file.write_text(completion("bash"))
    return file


ASK = """
source "$1"; shift
function_of=$(complete -p totem | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
"$function_of" totem "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(file: Path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    command = ["bash", "--norc", "-c", ASK, "ask", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_takes_the_completion(bash_file: Path) -> None:
    subprocess.run(["bash", "-n", str(bash_file)], check=True)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["totem", "sta"], {"status"}),
        (["totem", "log", "re"], {"remove", "replace", "rescue"}),
        (["totem", "status", "--clu"], {"--cluster"}),
        (["totem", "status", "--need", "maj"], {"majority"}),
        (["totem", "completion", ""], {*SHELLS}),
    ],
)
def test_bash_completes(bash_file: Path, words: list[str], offered: set[str]) -> None:
    assert completed(bash_file, *words) == offered


def test_every_command_is_completed(bash_file: Path) -> None:
    assert {verb.name for verb in VERBS} <= completed(bash_file, "totem", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "--print-config" in text
    if shell != "bash" and shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_there_is_a_page_for_each_command_and_an_entry_for_each_option() -> None:
    found = pages()
    assert {f"totem-{verb.name}.1" for verb in VERBS} <= found.keys()
    assert {"totem.1", "totem-log-show.1", "totem-bench-compare.1"} <= found.keys()
    for parser in parsers_of(whole_parser()):
        page = found[f"{parser.prog.replace(' ', '-')}.1"]
        assert page.startswith(".TH ")
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                for option in action.option_strings:
                    assert option.replace("-", "\\-") in page, f"{parser.prog} {option}"


def test_pages_are_the_same_on_every_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pages()
    monkeypatch.setenv("COLUMNS", "40")
    assert pages() == before


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff here")
def test_groff_has_nothing_to_complain_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", str(tmp_path / "man1")]) == 0
    files = sorted((tmp_path / "man1").iterdir())
    assert capsys.readouterr().out.startswith(f"{len(files)} pages")
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_json_means_the_same_everywhere() -> None:
    """Alone it is standard output; where a command prints lines as they come, there is no FILE."""
    for parser in parsers_of(whole_parser()):
        for action in parser._actions:
            if "--json" in action.option_strings:
                streams = parser.prog in ("totem listen", "totem log show", "totem log follow")
                assert action.nargs == (0 if streams else "?"), parser.prog
                assert action.const == (True if streams else "-"), parser.prog
