"""`totem sim` from end to end: small files, the packaged ones, exit codes, JSON, traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from totempole import scenarios
from totempole.checkers.terms_file import read_terms
from totempole.cli import main
from totempole.trace.ndjson import read_ndjson
from totempole.trace.reader import read_trace

SMALL = """\
processors p=1 q=2
seed 3
at 400ms send p 5 safe
at 600ms partition (p) (q)
at 1s heal
end 2s
expect delivered q 5
expect configurations q: {p q} [q] {q} [q] {p q}
expect checkers hold
expect settled 500ms
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.scenario"
    path.write_text(SMALL)
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_scenario_that_holds(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small)]) == 0
    text = capsys.readouterr().out
    assert "{p q}" in text
    assert "» partition (p) (q)" in text
    assert "safe-delivery" in text
    assert "Totem §3.5, theorem 4.15" in text
    assert ": holds." in " ".join(text.split())
    assert "\x1b[" not in text


def test_expectations_that_fail_are_told(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text(SMALL.replace("delivered q 5", "delivered q 6"))
    assert main(["sim", str(small)]) == 1
    text = capsys.readouterr().out
    assert "expect delivered q 6: it has delivered 5" in text
    assert ": FAILS." in " ".join(text.split())


def test_a_broken_protocol_is_seen(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--mutant", "safe-delivered-as-agreed"]) == 1
    text = capsys.readouterr().out
    assert "safe-delivery violated; nodes 1, 2" in text
    assert "expect settled 500ms: safe-delivery: violated" in text


def test_the_story(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--story", "--quick"]) == 0
    text = capsys.readouterr().out
    assert "q    installs {p q} regular" in text
    assert "Properties" not in text


def test_the_data_are_the_tables(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    assert main(["sim", str(small), "--json", str(file)]) == 0
    data = read(file)
    assert data["holds"] is True
    assert data["seed"] == 3
    assert len(data["trace_digest"]) == 64
    q = next(row for row in data["processors"] if row["processor"] == "q")
    assert (q["delivered"], q["safe"], q["ends in"]) == (5, 5, "{p q}")
    kinds = [(part["kind"], part["members"]) for part in q["configurations"]]
    assert kinds[-2:] == [("transitional", ["q"]), ("regular", ["p", "q"])]
    assert {row["verdict"] for row in data["properties"]} == {"holds"}
    assert data["failures"] == []


def test_json_on_standard_output_stands_alone(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--json", "-"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["holds"] is True
    assert "Properties" in found.err


def test_the_trace_can_be_read_again(small: Path, tmp_path: Path) -> None:
    trace = tmp_path / "small.ndjson"
    assert main(["sim", str(small), "--quick", "--trace", str(trace)]) == 0
    assert {"deliver", "token", "configuration"} <= {row.kind for row in read_ndjson(trace)}


def test_another_seed_is_another_run(small: Path, tmp_path: Path) -> None:
    digests = set()
    for number, extra in enumerate(([], ["--seed", "3"], ["--seed", "4"])):
        file = tmp_path / f"{number}.json"
        assert main(["sim", str(small), "--quick", "--json", str(file), *extra]) == 0
        digests.add(read(file)["trace_digest"])
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("processors p=1\nat 1s explode p\nend 2s\n", "line 2: 'at 1s explode p': unknown action 'explode'"),
        ("processors p=1\n", "no end: finish with a line like `end 10s`"),
    ],
)
def test_a_bad_scenario_is_one_line(
    text: str, problem: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(text)
    assert main(["sim", str(small)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"totem: {small}")
    assert problem in error
    assert error.count("\n") == 1


def test_a_trace_that_cannot_be_written_is_one_line(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--quick", "--trace", "/nowhere/at/all.ndjson"]) == 2
    assert "totem: [Errno 2]" in capsys.readouterr().err
    assert main(["sim", str(small), "--quick", "--trace", f"{small}/below"]) == 2
    assert "totem: [Errno 20]" in capsys.readouterr().err


def test_the_trace_as_a_directory_has_its_terms(small: Path, tmp_path: Path) -> None:
    assert main(["sim", str(small), "--quick", "--trace", str(tmp_path / "traces")]) == 0
    rows = read_trace(tmp_path / "traces")
    assert {"deliver", "token", "configuration"} <= {row.kind for row in rows}
    assert list(read_terms(tmp_path / "traces")) == list({row.run for row in rows})


def test_the_packaged_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in scenarios.names())
    assert "appendix-a.events" in scenarios.names()


def test_an_events_file_is_known_by_its_lines(tmp_path: Path) -> None:
    events, file = tmp_path / "part.cfg", tmp_path / "out.json"
    events.write_text("# soon\npartition: 400000 193 (100 104) (101)\npartition: 800000 193 (100 101 104)\n")
    assert main(["sim", str(events), "--quick", "--json", str(file)]) == 0
    data = read(file)
    assert [row["ends in"] for row in data["processors"]] == ["{100 101 104}"] * 3
    assert all(row["sent"] for row in data["processors"])


@pytest.mark.search
def test_the_events_file_of_the_appendix_with_some_of_its_processors(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    arguments = ["sim", "appendix-a.events", "--processors", "101", "103", "--quick", "--json", str(file)]
    assert main(arguments) == 0
    data = read(file)
    assert [(row["processor"], row["ends in"]) for row in data["processors"]] == [
        ("101", "{101}"),
        ("103", "{103}"),
    ]
    assert data["simulated_us"] == 94_000_000


TWO_NETWORKS = """\
partition: 400000 63 (1 2) (3)
partition: 500000 193 (100 101) (104)
partition: 800000 193 (100 101 104)
"""


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    path = tmp_path / "two.events"
    path.write_text(TWO_NETWORKS)
    return path


def events_run(networks: Path, *options: str) -> Any:
    file = networks.with_suffix(".json")
    assert main(["sim", str(networks), *options, "--quick", "--json", str(file)]) == 0
    return read(file)


@pytest.mark.search
def test_one_network_of_an_events_file_is_chosen(networks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(networks)]) == 2
    assert "events on networks 63, 193: choose one with --network" in capsys.readouterr().err
    assert [row["processor"] for row in events_run(networks, "--network", "193")["processors"]] == [
        "100",
        "101",
        "104",
    ]
    assert [row["ends in"] for row in events_run(networks, "-n", "63")["processors"]] == ["{1 2}"] * 2 + [
        "{3}"
    ]
    assert main(["sim", str(networks), "-n", "5"]) == 2
    assert "no events on network 5: give one of 63, 193" in capsys.readouterr().err


@pytest.mark.search
def test_messages_and_tokens_are_lost_as_the_appendix_says(networks: Path) -> None:
    """`cmm -m 0.95` loses messages, `cmm -t 0.95` loses tokens, neither loses both."""
    lost = {
        letter: events_run(networks, "-n", "63", letter, "0.95")["datagrams"]["lost"]
        for letter in ("-m", "-t")
    }
    assert all(lost.values())
    assert "lost" not in events_run(networks, "-n", "63", "-m", "1", "-t", "1")["datagrams"]


def test_the_packet_drivers_of_an_events_file_have_their_parameters(networks: Path) -> None:
    """The driver fills the queue up to one window, -w, at a time."""
    plain, small = (
        events_run(networks, "-n", "63", *more) for more in ([], ["-w", "20", "-e", "10", "-s", "64"])
    )
    assert sum(row["sent"] for row in small["processors"]) * 5 == sum(
        row["sent"] for row in plain["processors"]
    )


def test_a_processor_halts_at_the_discard_limit(networks: Path) -> None:
    data = events_run(networks, "-n", "63", "-d", "150")
    more = events_run(networks, "-n", "63")
    assert all(150 <= row["delivered"] < 200 for row in data["processors"])
    assert all(row["delivered"] > 200 for row in more["processors"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["-m", "2"], "'2' is not a probability"),
        (["-t", "x"], "'x' is not a probability"),
        (["-d", "0"], "'0': give a whole number of at least 1"),
    ],
)
def test_wrong_parameters_are_named(
    networks: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", str(networks), *options]) == 2
    assert problem in capsys.readouterr().err


def test_the_parameters_are_for_events_files(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "-n", "1", "-m", "0.5"]) == 2
    assert "leave out --network, --message-reception" in capsys.readouterr().err


def test_an_events_file_can_be_insisted_on(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", str(small), "--events"]) == 2
    assert "the only event is `partition:`" in capsys.readouterr().err
