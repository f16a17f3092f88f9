"""`totem node` as one of a ring: it takes part, reloads its keys on SIGHUP, and leaves on SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from netns_stage import Stage, StageMaker

from totempole.lab.cluster import Setup
from totempole.runtime import keyring
from totempole.runtime.status import StatusError, read_status


def start(ring: Stage, number: int) -> subprocess.Popen[bytes]:
    file = ring.cluster.directory / f"node-{number}.toml"
    with open(ring.cluster.directory / f"daemon-{number}.log", "wb") as log:
        argv = [sys.executable, "-P", "-m", "totempole", "node", "--config", str(file)]
        return ring.lab.hosts[number].popen(argv, stderr=log)


def status(ring: Stage, number: int) -> dict[str, Any]:
    try:
        return read_status(ring.cluster.directory / f"node-{number}")
    except StatusError:
        return {}


def key_ids(ring: Stage) -> dict[int, list[int]]:
    players = {number: ring.status(number)["key_ids"] for number in ring.running}
    return {**players, 3: status(ring, 3)["key_ids"]}


def test_a_daemon_takes_part_reloads_and_leaves(stage: StageMaker, tmp_path: Path) -> None:
    key_file = tmp_path / "ring.key"
    keyring.create(key_file)
    with stage(hosts=3, setup=Setup(key_file=key_file)) as ring:
        ring.load()
        ring.leave(3)
        daemon = start(ring, 3)
        ring.wait(lambda: status(ring, 3).get("members") == [1, 2, 3], "the daemon to be in the ring")
        for step in (keyring.add, keyring.activate, keyring.retire):
            step(key_file)
            daemon.send_signal(signal.SIGHUP)
            ring.cluster.tell("rekey")
            ids = [key.id for key in keyring.load(key_file).keys]
            ring.wait(
                lambda ids=ids: key_ids(ring) == {1: ids, 2: ids, 3: ids}, f"all to have the keys {ids}"
            )
            ring.deliver(50)
        assert status(ring, 3)["totals"]["messages_delivered"] > 0
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0
        ring.wait_for([1, 2])
        ring.deliver()
    assert len({row.incarnation for row in ring.of_kind("deliver") if row.node == 3}) == 2
