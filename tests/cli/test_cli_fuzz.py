"""`totem fuzz` from end to end, with few seeds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from totempole.cli import fuzz, main, mutants
from totempole.cli.fuzz import SearchReport
from totempole.cli.output import Screen
from totempole.sim.fuzz.coverage import EXPECTED
from totempole.sim.fuzz.search import Tally
from totempole.sim.fuzz.trial import Verdict
from totempole.sim.scenario import parse

CAUGHT = "safe delivered as agreed"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert main(["fuzz", "--seeds", "1:3", "--jobs", "1", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "Seeds 1:3: 2 runs, none failed." in text
    assert "branch " in text
    data = read(file)
    assert (data["first"], data["stop"], data["done"], data["failures"]) == (1, 3, 2, [])
    assert set(EXPECTED) <= set(data["coverage"])
    assert data["missing"] == [name for name in EXPECTED if not data["coverage"][name]]
    assert data["holds"] is True


def test_a_search_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "resume.json"
    Tally(1, 3, done=1, packet_events=5).save(file)
    assert main(["fuzz", "--seeds", "1:3", "--jobs", "1", "--resume", str(file)]) == 0
    assert "2 runs, none failed" in capsys.readouterr().out
    assert read(file)["done"] == 2
    assert main(["fuzz", "--seeds", "7:9", "--resume", str(file)]) == 2
    assert "belongs to a search from seed 1" in capsys.readouterr().err


def test_an_interrupted_search_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(tally: Tally, *_: object, **__: object) -> Tally:
        tally.add(0, Verdict("seed-0", packet_events=7))
        raise KeyboardInterrupt

    monkeypatch.setattr(fuzz, "search", interrupted)
    file = tmp_path / "resume.json"
    assert main(["fuzz", "--seeds", "0:9", "--jobs", "1", "--resume", str(file)]) == 130
    assert (read(file)["done"], read(file)["packet_events"]) == (1, 7)
    assert "1 seeds done, 0 failed; the same command goes on" in capsys.readouterr().err


def test_failing_seeds_come_with_the_command_that_replays_them(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(0, 3)
    tally.add(0, Verdict("seed-0"))
    tally.add(1, Verdict("seed-1", ("safe-delivery",), "text"))
    report = SearchReport(tally, 2, 1.0)
    report.show(Screen())
    assert not report.holds
    assert "totem fuzz --seed 1" in capsys.readouterr().out
    assert report.data()["failures"] == [
        {"seed": 1, "violated": ["safe-delivery"], "text": "text", "replay": "totem fuzz --seed 1"}
    ]


def test_a_large_search_must_have_reached_everything(capsys: pytest.CaptureFixture[str]) -> None:
    reached = Counter(dict.fromkeys(EXPECTED, 1))
    assert SearchReport(Tally(0, 1_000, done=1_000, coverage=reached), 0, 1.0).holds
    del reached["branch: promise given"]
    assert SearchReport(Tally(0, 999, done=999, coverage=reached), 0, 1.0).holds
    blind = SearchReport(Tally(0, 1_000, done=1_000, coverage=reached), 0, 1.0)
    assert not blind.holds
    blind.show(Screen())
    assert "Never reached: branch: promise given" in capsys.readouterr().out


@pytest.mark.search
def test_a_run_with_two_nodes_of_one_number_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the rows of that number: they are of two nodes, and no one story. The rest holds."""
    assert main(["fuzz", "--seed", "1385"]) == 0
    text = capsys.readouterr().out
    assert "double 6" in text
    assert "seed-1385: holds" in text


def test_one_seed_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seed.json"
    assert main(["fuzz", "--seed", "1", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "\nseed 1\n" in text
    assert "starts, incarnation 1" in text
    assert "agreed-order" in text
    data = read(file)
    assert data["holds"] is True
    assert parse(data["text"]).seed == 1
    assert main(["fuzz", "--seed", "1", "--trace-hash"]) == 0
    assert capsys.readouterr().out == f"1 {data['trace_digest']}\n"


@pytest.mark.search
def test_a_broken_protocol_is_caught_and_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("totempole.cli.replay.TRIALS_MAX", 6)
    small, file = tmp_path / "small.scenario", tmp_path / "found.json"
    arguments = ["fuzz", "--mutant", CAUGHT, "--seeds", "1:2", "--shrink", "--out", str(small)]
    assert main([*arguments, "--json", str(file)]) == 1
    text = capsys.readouterr().out
    assert f'Run it again: totem sim {small} --mutant "{CAUGHT}"' in text
    data = read(file)
    assert "safe-delivery" in data["violated"]
    assert data["mutant"] == CAUGHT
    assert "safe-delivery" in data["shrunk"]["violated"]
    assert len(parse(small.read_text()).steps) < len(parse(data["text"]).steps)
    assert main(["sim", str(small), "--mutant", CAUGHT, "--quick"]) == 1


def test_nothing_is_shrunk_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--seed", "1", "--shrink"]) == 0
    assert "Nothing to shrink" in capsys.readouterr().out


def test_the_mutants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--mutants"]) == 0
    assert CAUGHT in capsys.readouterr().out


def test_the_mutants_are_hunted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [mutants.find_mutant(CAUGHT), mutants.find_mutant("the promise never given")]
    monkeypatch.setattr(mutants.hunt_all, "__defaults__", (chosen,))
    file = tmp_path / "kills.json"
    assert main(["fuzz", "--mutants", "--seeds", "1:2", "--jobs", "1", "--json", str(file)]) == 1
    text = capsys.readouterr().out
    assert "2 mutants, seeds 1:2: 1 survived" in text
    kills = {kill["mutant"]: kill["seed"] for kill in read(file)["mutants"]}
    assert kills == {CAUGHT: 1, "the promise never given": None}
