"""`totem replay` from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import totempole
from recordings import life, write
from sweeps import first_of
from totempole.cli import main, replay_inputs
from totempole.core.inputs import Start, Written
from totempole.jitter import jitter
from totempole.runtime import keyring
from totempole.runtime.recording import InputRecorder, RecordingHeader
from totempole.stack import StackSpec, build


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recording") / "inputs.totem", life())


def test_an_identical_replay(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    assert main(["replay", str(path), "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert f"Processor 1, incarnation 1: identical. {len(life().inputs):,} inputs agree over" in text
    assert "The recording ends here: closed." in text
    assert "1 2 3" in text
    assert "operational" in text
    data = json.loads(file.read_text())
    assert (data["identical"], data["agreed"], data["difference"]) == (True, len(life().inputs), None)
    assert sum(data["inputs"].values()) == len(life().inputs)
    assert [1, 2] in [item["members"] for item in data["configurations"]]
    assert data["last_us"] == life().inputs[-1][0]


@pytest.mark.parametrize("hash_seed", first_of(["1", "4242"]))
def test_any_other_process_replays_the_same(tmp_path: Path, hash_seed: str) -> None:
    path = write(tmp_path / "x", life("protocol"))
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": str(Path(totempole.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "totempole", "replay", str(path)], env=environment, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_json_alone_on_standard_output(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["identical"] is True


def test_quick(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(replay_inputs, "QUICK_INPUTS", 400)
    monkeypatch.setattr(replay_inputs, "CONFIGURATIONS_SHOWN", 1)
    assert main(["replay", str(path), "--quick"]) == 0
    text = capsys.readouterr().out
    assert "400 inputs agree" in text
    assert "The rest was not read." in text
    assert " before these" in text


def test_a_difference_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = life()
    changed = list(found.inputs)
    now_us, given = changed[0]
    changed[0] = (now_us + 7, given)
    effects = [[], *found.effects[1:]]
    path = write(tmp_path / "x", replace(found, inputs=changed, effects=effects))
    file = tmp_path / "report.json"
    assert main(["replay", str(path), "--json", str(file)]) == 1
    text = capsys.readouterr().out
    assert "DIFFERENT" in text
    assert "input 0, Start, at 0.000000 s: its " in text
    difference: dict[str, Any] = json.loads(file.read_text())["difference"]
    assert (difference["index"], difference["input"], difference["at_us"]) == (0, "Start", now_us + 7)
    assert difference["effects"]


def test_a_sealed_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = keyring.create(tmp_path / "totem.key")
    spec = StackSpec(1)
    header = RecordingHeader(spec, {}, frozenset(), tuple(key.id for key in keys.keys))
    stack = build(spec, {}, keyring=keys, draw=jitter(1, {}))
    path = tmp_path / "x"
    with InputRecorder(path, header) as recorder:
        recorder.record(0, Start(), stack.feed(0, Start()))
        recorder.record(9, Written(1), stack.feed(9, Written(1)))
    assert main(["replay", str(path)]) == 2
    assert "sealed with key 1: give the key file that has it (--key-file)" in capsys.readouterr().err
    assert main(["replay", str(path), "--key-file", str(tmp_path / "totem.key")]) == 0
    assert "2 inputs agree" in capsys.readouterr().out


def test_what_is_no_recording_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "nowhere")]) == 2
    assert main(["replay", __file__]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "cannot be read (No such file or directory)" in lines[0]
    assert "not a recording of a node's inputs" in lines[1]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json [FILE]" in text
    assert "--quick" in text
