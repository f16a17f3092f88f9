"""What docs/upgrading.md says: versions that meet refuse each other clearly, and an upgrade loses nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemons import PATIENT, Cluster, Daemon, cluster, wait_until
from totempole import blocking, session
from totempole.cli import main
from totempole.corel import frames
from totempole.log import segments, snapshots
from totempole.runtime import hints, recording, storage
from totempole.runtime.status import StatusError, read_status
from totempole.segment import header
from totempole.session import log_frames
from totempole.trace import schema
from totempole.wire import layout

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/upgrading.md").read_text()
LOG = "[log]\nenabled = true\nreplicas = [1, 2, 3]\n"

NUMBERS = {
    "packets between nodes": f"version {layout.VERSION}",
    "the session of a program with its daemon": f"version {session.VERSION}",
    "the log service and its readers": f"version {log_frames.VERSION}",
    "segments and frames of the durable log": f"formats {segments.VERSION} and {frames.FORMAT}",
    "snapshots of replicated objects": f"format {snapshots.VERSION}",
    "a node's stable storage": f"format {storage.FORMAT_VERSION}",
    "traces": f"schema {schema.SCHEMA_VERSION}",
    "recorded inputs": f"version {recording.VERSION}",
}


def test_the_numbers_on_the_page_are_those_in_force() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert {what: rows[what] for what in NUMBERS} == NUMBERS
    assert layout.VERSION == header.VERSION, "packets and their segments have one number on the page"


def upgrade(daemon: Daemon) -> None:
    """Stops it, and starts in its place one that speaks another version of the wire."""
    daemon.end()
    with (daemon.directory.parent / f"log{daemon.number}").open("a") as log:
        argv = [sys.executable, str(HERE / "newer_wire.py"), "node", "--config", str(daemon.file)]
        daemon.process = subprocess.Popen(argv, stderr=log)


def status(daemon: Daemon) -> dict[str, Any]:
    try:
        return read_status(daemon.directory)
    except StatusError:
        return {}


def wait_for_order(them: Cluster, *numbers: int) -> None:
    """Until records are ordered on this side, by just these nodes."""

    def ordered() -> bool:
        logs = [status(them[number]).get("log", {}) for number in numbers]
        return all(log.get("standing") == "primary" and log["members"] == [*numbers] for log in logs)

    wait_until(
        lambda: ordered() and all(them[number].socket.exists() for number in numbers),
        lambda: "\n".join(daemon.log() for daemon in them.daemons.values()),
    )


def append(daemon: Daemon, record: bytes) -> None:
    with blocking.connect(daemon.socket) as program:
        program.log("orders").append(record)


@pytest.mark.nodes
def test_nodes_that_speak_other_versions_of_the_wire_go_on_and_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(2, tmp_path) as them:
        upgrade(them[2])
        wait_until(lambda: them[1].members() == [1] and them[2].members() == [2])
        for number in (1, 2):
            wait_until(lambda number=number: status(them[number])["dropped"].get("segment version"))
            assert set(status(them[number])["dropped"]) == {"segment version"}
            wait_until(lambda number=number: "why packets are dropped" in them[number].log())
            assert hints.dropped("segment version", sealed=False) in them[number].log()
        assert main(["status", "--config", str(them[1].file)]) == 3
        shown = " ".join(capsys.readouterr().out.split())
        assert "! packets dropped, segment version: a node of another version" in shown


@pytest.mark.nodes
def test_an_upgrade_over_a_change_of_the_wire_keeps_every_record(tmp_path: Path) -> None:
    with cluster(3, tmp_path, PATIENT + LOG) as them:
        wait_for_order(them, 1, 2, 3)
        append(them[1], b"before")
        upgrade(them[1])
        wait_for_order(them, 2, 3)
        append(them[2], b"on the old side")
        wait_until(lambda: status(them[1]).get("log", {}).get("standing") == "minority")
        assert them[1].members() == [1]
        upgrade(them[2])
        wait_for_order(them, 1, 2)
        append(them[1], b"on the new side")
        wait_until(lambda: status(them[3])["log"]["standing"] == "minority")
        upgrade(them[3])
        wait_for_order(them, 1, 2, 3)
        with blocking.connect(them[3].socket) as program:
            log = program.log("orders")
            log.append(b"after")
            found = [record.payload for record in log.read()]  # which has what this log has appended
    assert found == [b"before", b"on the old side", b"on the new side", b"after"]
