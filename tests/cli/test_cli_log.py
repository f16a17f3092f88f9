"""`totem log`, with real nodes and on directories, as people type it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from daemons import LIMIT_S, PATIENT, Cluster, Daemon, Program, cluster, wait_until
from totempole import Fence, blocking
from totempole.cli import log as log_command
from totempole.cli import main
from totempole.cli.log_rescue import FLAG
from totempole.cli.log_source import Span
from totempole.log.segments import segment_numbers
from totempole.runtime.status import StatusError, read_status
from totempole.session.log_frames import log_socket_of

pytestmark = pytest.mark.nodes

TOTEM = (sys.executable, "-m", "totempole")
LOG = "[log]\nenabled = true\nreplicas = [1, 2, 3]\nsegment_bytes = 65536\n"


def log_of(daemon: Daemon) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_status(daemon.directory).get("log", {})
        return found
    except StatusError:
        return {}


def wait_for_members(them: Cluster, members: list[int], *numbers: int) -> None:
    wait_until(
        lambda: all(
            log_of(them[number]).get("standing") == "primary" and log_of(them[number])["members"] == members
            for number in numbers
        ),
        lambda: "\n".join(them[number].log() for number in numbers),
    )


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes: three replicas, and one that only learns."""
    with cluster(4, tmp_path_factory.mktemp("ring"), PATIENT + LOG) as ring:
        wait_for_members(ring, [1, 2, 3, 4], 1, 2, 3, 4)
        wait_until(lambda: all(Path(log_socket_of(ring[number].socket)).exists() for number in (1, 2, 3, 4)))
        with blocking.connect(ring[1].socket) as session:
            session.log("orders").append_many([f"buy {number}".encode() for number in range(30)])
            session.log("orders").append(b"sell 1", key="order-1")
            session.log("notes").append(b"\xff\x00")
        yield ring


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def totem_log(*words: object, text: str = "") -> subprocess.CompletedProcess[str]:
    argv = [*TOTEM, "log", *map(str, words)]
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=LIMIT_S)


def done(*words: object) -> str:
    found = totem_log(*words)
    assert found.returncode == 0, found.stderr + found.stdout
    return found.stdout


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# Reading


def test_show_prints_the_last_records(ring: Cluster) -> None:
    shown = done("show", "--config", ring[1].file)
    assert len(shown.splitlines()) == 20
    assert "orders  buy 29" in shown
    assert "orders [order-1]  sell 1" in shown
    assert "notes  \\xff\\x00" in shown


def test_show_gives_a_range_as_json(ring: Cluster) -> None:
    shown = lines_of(done("show", "--socket", ring[2].socket, "--start", 29, "--stop", 32, "--json"))
    assert [line["position"] for line in shown] == [29, 30, 31]
    assert shown[1]["key"] == "order-1"
    assert shown[2]["base64"] == "/wA="
    assert shown[0]["origin"] == 1


def test_show_of_one_log_has_gaps_in_its_positions(ring: Cluster) -> None:
    shown = lines_of(done("show", "--config", ring[3].file, "--log", "notes", "--start", 0, "--json"))
    assert [line["position"] for line in shown] == [31]


def test_show_tells_of_the_logs_own_runs(ring: Cluster) -> None:
    shown = done("show", "--config", ring[1].file, "--start", 0, "--events")
    assert "primary 1: 1, 2, 3" in shown


def test_show_and_status_work_on_files(ring: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    shutil.copytree(ring[1].directory / "log", copy, ignore=shutil.ignore_patterns("*.new", "*.lock", "lock"))
    assert "sell 1" in done("show", "--directory", copy)
    assert "sell 1" in done("show", "--directory", ring[1].directory)
    status = totem_log("status", "--directory", copy, "--json", "-")
    assert status.returncode == 1, "no node runs there"
    document = json.loads(status.stdout)
    assert (document["position"], document["standing"]) == (32, "stopped")


def test_a_range_the_wrong_way_round_is_refused(ring: Cluster) -> None:
    found = totem_log("show", "--config", ring[1].file, "--start", 9, "--stop", 3)
    assert found.returncode == 2
    assert "give a position behind --start 9" in found.stderr


def test_follow_prints_what_is_ordered_until_it_is_interrupted(
    ring: Cluster, stack: ExitStack, tmp_path: Path
) -> None:
    argv = [*TOTEM, "log", "follow", "--config", str(ring[2].file), "--start", "31", "--json"]
    follower = stack.enter_context(Program(argv, tmp_path))
    follower.wait_for(".*/wA=.*")
    with blocking.connect(ring[3].socket) as session:
        where = session.log("notes").append(b"followed")
    line = json.loads(follower.wait_for(".*followed.*"))
    assert line["position"] == where
    assert line["origin"] == 3
    follower.process.send_signal(signal.SIGINT)
    assert follower.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("from_files", [False, True], ids=["service", "files"])
def test_export_writes_parquet(ring: Cluster, tmp_path: Path, from_files: bool) -> None:
    where = ("--directory", ring[1].directory) if from_files else ("--config", ring[1].file)
    file = tmp_path / "orders.parquet"
    done("export", file, "--log", "orders", "--stop", 31, *where)
    table = parquet.read_table(file)
    assert table.num_rows == 31
    assert table["position"].to_pylist() == list(range(31))
    assert table["key"][30].as_py() == "order-1"
    assert table["payload"][0].as_py() == b"buy 0"
    assert not [*tmp_path.glob("*.part")]


def test_export_writes_ndjson_and_replaces_nothing_unasked(ring: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "part.ndjson"
    told = json.loads(
        done("export", file, "--start", 28, "--stop", 32, "--config", ring[1].file, "--json", "-")
    )
    assert told["rows"] == 4
    assert [line["position"] for line in lines_of(file.read_text())] == [28, 29, 30, 31]
    again = totem_log("export", file, "--config", ring[1].file)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    done("export", file, "--force", "--start", 0, "--stop", 1, "--config", ring[1].file)
    assert len(file.read_text().splitlines()) == 1


def test_export_wants_to_know_the_format(tmp_path: Path) -> None:
    found = totem_log("export", tmp_path / "orders.csv", "--directory", tmp_path)
    assert found.returncode == 2
    assert ".parquet or .ndjson" in found.stderr


# Standing


def test_status_shows_replicas_and_positions(ring: Cluster) -> None:
    shown = done("status", "--config", ring[1].file)
    assert "primary: records become green" in shown
    assert "no vote" in shown
    document = json.loads(done("status", "--config", ring[1].file, "--json", "-"))
    assert [each["processor"] for each in document["replicas"]] == [1, 2, 3]
    assert document["position"] >= 32
    assert document["first_position"] == 0
    assert document["missing"] == []


def test_status_shows_the_marks_of_fences(ring: Cluster, tmp_path: Path) -> None:
    with blocking.connect(ring[1].socket) as session:
        log = session.log("orders")
        log.append_many([b"a"], fence=Fence("nightly\nimport", number=1, low=0, high=0))
        (where,) = log.append_many([b"b"], fence=Fence("hourly", number=7, low=0, high=0))
    document = json.loads(done("status", "--config", ring[1].file, "--json"))
    latest = document["fences"]["latest"]
    assert document["fences"]["count"] == 2
    assert latest[0] == {"name": "hourly", "number": 7, "position": where}
    text = " ".join(done("status", "--config", ring[1].file).split())
    assert f"hourly at 7 (position {where})" in text
    assert "nightly\\nimport at 1" in text
    shutil.copytree(ring[1].directory / "log", tmp_path / "copy")
    found = totem_log("status", "--directory", tmp_path / "copy", "--json", "-")
    assert json.loads(found.stdout)["fences"]["count"] == 2


def test_holds_are_set_shown_and_released(ring: Cluster) -> None:
    done("hold", "spark-7", 5, "--socket", ring[2].socket)
    wait_until(lambda: log_of(ring[1])["holds"] == {"spark-7": 5})
    assert "spark-7" in done("holds", "--config", ring[1].file)
    found = totem_log("trim", 10, "--yes", "--config", ring[1].file)
    assert found.returncode == 1
    assert "spark-7" in found.stdout
    done("hold", "spark-7", "--release", "--socket", ring[2].socket)
    wait_until(lambda: log_of(ring[1])["holds"] == {})
    assert "No reader" in done("holds", "--config", ring[1].file)


def test_check_tells_good_from_damaged(ring: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    shutil.copytree(ring[1].directory / "log", copy, ignore=shutil.ignore_patterns("*.new"))
    assert "The log is good." in done("check", copy)
    first = min(copy.glob("*.segment"))
    content = bytearray(first.read_bytes())
    content[content.index(b"buy 3")] ^= 1
    first.write_bytes(content)
    found = totem_log("check", copy, "--json", "-")
    assert found.returncode == 1
    assert not json.loads(found.stdout)["is_good"]
    nothing = totem_log("check", tmp_path)
    assert nothing.returncode == 2
    assert "no log" in nothing.stderr


# Changes


def test_replicas_are_added_replaced_and_removed(ring: Cluster) -> None:
    assert "replicas are 1, 2, 3, 4" in done("add", 4, "--config", ring[1].file)
    assert "as they were already" in done("add", 4, "--config", ring[2].file)
    assert "replicas are 1, 2, 4" in done("remove", 3, "--config", ring[2].file)
    assert "replicas are 1, 2, 3" in done("replace", 4, 3, "--config", ring[4].file)
    found = totem_log("add", 9, "--config", ring[1].file)
    assert found.returncode == 1
    assert "does not take part" in found.stdout


def first_position(daemon: Daemon) -> int:
    document = json.loads(done("status", "--config", daemon.file, "--json", "-"))
    return int(document["first_position"])


def test_trim_asks_first_and_removes_whole_segments(ring: Cluster) -> None:
    with blocking.connect(ring[1].socket) as session:
        log = session.log("bulk")
        for _ in range(4):
            where = log.append_many([bytes(1000)] * 100)[-1]
    wait_until(lambda: len(segment_numbers(ring[1].directory / "log")) > 3)
    found = totem_log("trim", where, "--config", ring[1].file)
    assert found.returncode == 2
    assert "give --yes" in found.stderr
    assert "segments are gone" in done("trim", where, "--yes", "--config", ring[1].file)
    wait_until(lambda: first_position(ring[1]) > 0)
    first = first_position(ring[1])
    assert first <= where
    found = totem_log("show", "--start", 0, "--stop", 5, "--config", ring[1].file)
    assert found.returncode == 2
    assert f"position {first}" in found.stderr
    assert len(done("show", "--start", 0, "--stop", 5, "--config", ring[2].file).splitlines()) == 5
    too_far = totem_log("trim", 10**9, "--yes", "--config", ring[1].file)
    assert "the log ends at position" in too_far.stdout


def test_a_change_that_would_lose_the_quorum_is_refused(tmp_path: Path) -> None:
    with cluster(3, tmp_path, PATIENT + LOG) as them:
        wait_for_members(them, [1, 2, 3], 1, 2, 3)
        them[3].end(signal.SIGTERM)
        wait_for_members(them, [1, 2], 1, 2)
        status = totem_log("status", "--config", them[1].file)
        assert status.returncode == 1
        assert "replicas are missing: 3" in status.stdout
        found = totem_log("remove", 2, "--config", them[1].file)
        assert found.returncode == 0, "of two halves, the one with the lowest number may order"
        found = totem_log("remove", 1, "--config", them[1].file)
        assert found.returncode == 1
        assert "no majority" in found.stdout


def test_rescue_goes_on_from_one_replica(tmp_path: Path) -> None:
    with cluster(3, tmp_path, PATIENT + LOG) as them:
        wait_for_members(them, [1, 2, 3], 1, 2, 3)
        with blocking.connect(them[2].socket) as session:
            session.log("orders").append_many([b"a", b"b"])
        running = totem_log("rescue", them[2].directory, FLAG)
        assert running.returncode == 2, running.stdout
        for daemon in them.daemons.values():
            daemon.end(signal.SIGKILL)
        before = totem_log("rescue", them[2].directory)
        assert before.returncode == 1
        assert "May be lost" in before.stdout
        told = json.loads(done("rescue", them[2].directory, FLAG, "--json", "-"))
        assert "The log is good." in done("check", them[2].directory)
        them[2].socket.unlink()  # a killed node leaves it behind
        them[2].start()
        wait_for_members(them, [2], 2)
        wait_until(them[2].socket.exists, them[2].log)
        with blocking.connect(them[2].socket) as session:
            assert session.log("orders").append(b"c") == 2
        document = json.loads(done("status", "--config", them[2].file, "--json", "-"))
        assert document["log"] == told["log"]
        assert [each["processor"] for each in document["replicas"]] == [2]
        them[1].start()
        them.wait_for_ring(1, 2)
        assert [each["processor"] for each in log_of(them[2])["replicas"]] == [2]
        wait_until(lambda: log_of(them[1]).get("standing") == "minority", them[1].log)
        assert log_of(them[1])["log"] != told["log"], "an old member does not join"


def test_rescue_of_a_log_of_one_is_refused(ring: Cluster, tmp_path: Path) -> None:
    found = totem_log("rescue", tmp_path)
    assert found.returncode == 2
    assert "no log in it" in found.stderr


# Help


@pytest.mark.parametrize("verb", [verb.name for verb in log_command.VERBS])
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", verb, "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


def test_without_a_node_the_error_names_the_way_out(tmp_path: Path) -> None:
    found = totem_log("show", "--socket", tmp_path / "clients.sock")
    assert found.returncode == 2
    assert "check that the node runs and has a log" in found.stderr


def test_positions_are_told_up_to_the_last_that_there_is() -> None:
    assert str(Span(0, 5)) == "positions 0 to 4"
    assert str(Span(1_000, 1_001)) == "position 1,000"
    assert str(Span(7, 7)) == "no records before position 7"
