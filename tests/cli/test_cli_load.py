"""`totem load` with real daemons on loopback: what it sends, shows, judges, and how it ends."""

from __future__ import annotations

import json
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import Cluster, Program, cluster
from totempole.bench.load import Driver, Plan
from totempole.cli import load, main
from totempole.cli.output import Screen
from totempole.cli.reaching import daemons_of
from totempole.errors import TotemError
from totempole.types import Service

TOTEM = (sys.executable, "-m", "totempole")


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(2, tmp_path_factory.mktemp("ring")) as ring:
        yield ring


def sockets(ring: Cluster) -> list[str]:
    return [word for number in (1, 2) for word in ("--socket", str(ring[number].socket))]


def run(ring: Cluster, file: Path, *arguments: str) -> Any:
    assert main(["load", *arguments, *sockets(ring), "--json", str(file)]) == 0
    return json.loads(file.read_text())


@pytest.mark.nodes
def test_a_number_of_messages_of_clients_at_two_daemons(
    ring: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run(ring, tmp_path / "out", "--count", "500", "--rate", "5k/s", "--clients", "3")
    total = data["total"]
    assert (total["accepted"], total["delivered"], total["received"]) == (500, 500, 1500)
    assert (data["holds"], data["wrong"], data["clients"], data["daemons"]) == (True, [], 3, 2)
    latency = total["latency_us"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert sum(second["accepted"] for second in data["seconds"]) == 500
    text = capsys.readouterr().out
    assert text.split()[: len(load.COLUMNS)] == [*load.COLUMNS]
    assert "500 messages of 3 clients accepted, 500 came back" in text
    assert text.endswith("holds: all that was accepted was delivered exactly once, in order\n")


@pytest.mark.nodes
def test_as_many_as_the_ring_takes_in_sizes_and_services(ring: Cluster, tmp_path: Path) -> None:
    """Sizes from less than a datagram to more than a packet of the ring."""
    mix = ("--size", "40..2000:50,500000:1", "--service", "agreed:3,safe:1")
    data = run(ring, tmp_path / "out", "--saturate", "--seconds", "1", *mix)
    assert data["rate_per_s"] is None
    assert data["total"]["accepted"] == data["total"]["delivered"] > 50


@pytest.mark.nodes
def test_what_others_send_to_the_group_is_no_fault(ring: Cluster, tmp_path: Path) -> None:
    here = ("--config", str(ring[1].file))
    argv = [*TOTEM, "load", "shared", "--rate", "200", "--seconds", "60", *here]
    with (
        Program([*TOTEM, "send", "shared", *here], tmp_path) as other,
        Program(argv, tmp_path) as loading,
    ):
        loading.wait_for(r" +1 .*")
        other.type("not of this run")
        assert other.end() == 0
        assert loading.end(signal.SIGINT) == 0
    assert "1 messages of others" in loading.out
    assert "holds" in loading.out


@pytest.mark.nodes
def test_an_end_by_a_signal_is_an_end_with_a_summary(ring: Cluster, tmp_path: Path) -> None:
    argv = [*TOTEM, "load", "--saturate", "--seconds", "600", *sockets(ring), "--json", "-"]
    with Program(argv, tmp_path) as loading:
        loading.wait_for_remark(r" +1 .*")
        assert loading.end(signal.SIGTERM) == 0
    data = json.loads(loading.out)
    assert data["holds"] is True
    assert data["total"]["accepted"] == data["total"]["delivered"] > 0


@pytest.mark.nodes
def test_messages_that_die_with_a_daemon_are_named(tmp_path: Path) -> None:
    with cluster(2, tmp_path) as ring:
        argv = [*TOTEM, "load", "--rate", "500", "--seconds", "600", "--drain", "1", *sockets(ring)]
        with Program(argv, tmp_path) as loading:
            loading.wait_for(r" +1 .*")
            ring[2].end(signal.SIGKILL)
            loading.wait_for_remark("# the connection to .* is lost")
            assert loading.end(signal.SIGINT) == 1
    assert "! client 2 of client 1's" in loading.out
    assert " lost (" in loading.out
    assert loading.out.endswith("FAILS\n")


@pytest.mark.nodes
def test_quick_shows_the_summary_only(ring: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--quick", "--count", "20", *sockets(ring)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("20 messages of 2 clients")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rate", "0"], "totem load: argument --rate: '0' is not a rate"),
        (["--rate", "fast"], "totem load: argument --rate: 'fast' is not a rate"),
        (["--size", "12"], "totem load: argument --size: '12' is not a size: give bytes, like 64"),
        (["--size", "90..80"], "totem load: argument --size: '90..80' is not a size"),
        (["--size", "64:0"], "totem load: argument --size: '64:0': '0' is not a weight"),
        (
            ["--service", "fifo"],
            "totem load: argument --service: 'fifo' is not a service: give agreed or safe",
        ),
        (["--rate", "5", "--saturate"], "totem load: argument --saturate: not allowed with argument --rate"),
        (["--clients", "1"], "totem: load: --clients 1 for 2 daemons: give at least 2"),
        (["--tls-key", "k"], "totem: --tls-… is for a daemon on another host"),
        (["n" * 101], "totem: group name "),
    ],
)
def test_mistakes_are_one_line(
    ring: Cluster, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", *arguments, *sockets(ring)]) == 2
    text = capsys.readouterr().err
    assert text.startswith(problem)
    assert text.count("\n") == 1


def test_a_daemon_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--socket", "/no/such.sock"]) == 2
    assert capsys.readouterr().err.startswith("totem: no daemon at /no/such.sock: ")


def test_daemons_are_named_by_socket_and_by_host() -> None:
    tls = {"tls_certificate": "c", "tls_key": "k", "tls_authorities": "a", "tls_name": None}
    here = {"socket": ["a.sock", "b.sock"], "config": None, "host": ["h:1"]}
    first, second, third = daemons_of(Namespace(**here, **tls))
    assert (first, second) == ({"path": "a.sock"}, {"path": "b.sock"})
    assert (third["host"], third["tls"].key) == ("h:1", "k")
    assert daemons_of(Namespace(**dict.fromkeys((*here, *tls)))) == [{"path": None}]


def test_mixes_have_weights() -> None:
    assert load.sizes("64,100..200:3") == ((range(64, 65), 1.0), (range(100, 201), 3.0))
    assert load.services("agreed:4,safe:1") == ((Service.AGREED, 4.0), (Service.SAFE, 1.0))
    assert [load.rate(text) for text in ("5", "1000/s", "2.5k/s")] == [5.0, 1000.0, 2500.0]
    assert Plan(sizes=load.sizes("64:1,1000000:1")).run_messages == 1
    with pytest.raises(TotemError, match="at least 32 bytes"):
        Plan(sizes=((range(8, 9), 1.0),))


def test_the_table_shows_the_last_seconds_and_all_of_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # narrow terminals break the headings
    seconds = [load.Tally(seconds=1.0, accepted=10, delivered=number) for number in range(40)]
    shown = load._table(Plan(), seconds)
    assert shown.row_count == load.ROWS_SHOWN + 1
    Screen().print(shown)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "second",
        *(str(number) for number in range(26, 41)),
        "all",
    ]
    assert lines[-1].split()[:3] == ["all", "400", "780"]


def test_nothing_accepted_is_not_enough() -> None:
    assert Driver(Plan())._wrong(load.Tally()) == ["nothing was accepted"]
