"""`totem network`, and all that shows a redundant ring's networks: real daemons, two networks of loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import LIMIT_S, Cluster, Daemon, cluster, wait_until
from totempole.cli import main
from totempole.client import blocking
from totempole.client.events import NetworkChanged
from totempole.runtime.control import Request as ControlRequest
from totempole.runtime.control import ask_node
from totempole.runtime.status import StatusError, read_status

pytestmark = pytest.mark.nodes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three daemons on the networks `left` and `right`. All tests leave both in service."""
    with cluster(3, tmp_path_factory.mktemp("ring"), networks=("left", "right")) as ring:
        wait_until(lambda: states(ring[1]) == ["in_service"] * 2)
        yield ring


def totem(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "totempole", *words, "--config", str(daemon.file)]
    environment = os.environ | {"COLUMNS": "160"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=environment)


def networks(daemon: Daemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_status(daemon.directory)["networks"]
    return found


def states(daemon: Daemon) -> list[str]:
    return [network["state"] for network in networks(daemon)]


def is_agreed(daemon: Daemon) -> bool:
    return bool(read_status(daemon.directory)["redundancy"]["agreed"])


def settled(ring: Cluster) -> None:
    wait_until(lambda: all(map(is_agreed, ring.daemons.values())))


def test_a_table_of_what_is_well(ring: Cluster) -> None:
    settled(ring)
    done = totem(ring[2], "network")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^left +in service +0\.0% +\d+% +lo +127\.\S+ port \d+", done.stdout, re.MULTILINE)
    assert re.search(r"^right +in service", done.stdout, re.MULTILINE)
    listed = json.loads(totem(ring[2], "network", "list", "--json", "-").stdout)
    assert [network["name"] for network in listed["networks"]] == ["left", "right"]
    assert (listed["processor"], listed["members"]) == (2, [1, 2, 3])


def test_the_status_has_each_network(ring: Cluster) -> None:
    with blocking.connect(ring[1].socket) as session, session.join("g") as group:
        group.multicast_many([b"x" * 1000] * 500)
    wait_until(
        lambda: all(network["bytes_sent"] > 100_000 for network in read_status(ring[1].directory)["networks"])
    )
    document = read_status(ring[1].directory)
    assert document["redundancy"] == {"style": "passive", "copies": 1, "agreed": True}
    for network in document["networks"]:
        assert network["packets_received"] > 0
        assert network["loss"].keys() == {"2", "3"}
        assert 0.2 < network["share_sent"] < 0.8
    assert sum(network["share_sent"] for network in document["networks"]) == pytest.approx(1)
    page = totem(ring[1], "status").stdout
    assert re.search(r"^networks +passive, each message on 1 of 2; 2 in service", page, re.MULTILINE)
    assert re.search(r"^network left +in service *$", page, re.MULTILINE)
    assert "everyone hears everyone" in page


def test_a_network_is_drained_everywhere_at_one_place_and_restored(ring: Cluster) -> None:
    settled(ring)
    with blocking.connect(ring[3].socket) as session:
        events = session.events(networks=True)
        assert {events.next(LIMIT_S).state for _ in range(2)} == {"in_service"}  # type: ignore[union-attr]
        done = totem(ring[1], "network", "drain", "right", "--json", "-")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert (answer["outcome"], answer["state"], answer["processor"]) == ("done", "drained", 1)
        told = events.next(LIMIT_S)
        assert isinstance(told, NetworkChanged)
        assert (told.name, told.before, told.state) == ("right", "in_service", "drained")
        assert told.place is not None
        assert (str(told.place.key.ring_id), told.place.key.seq) == (answer["ring"], answer["seq"])
        assert session.networks(LIMIT_S)[1].state == "drained"

        shown = totem(ring[2], "network")
        assert shown.returncode == 0
        assert re.search(r"^right +drained", shown.stdout, re.MULTILINE)
        assert "network right is drained: totem network restore right" in shown.stdout
        before = networks(ring[1])[1]
        assert totem(ring[1], "network", "drain", "right").stdout.startswith(
            "network right is drained already"
        )
        refused = totem(ring[1], "network", "drain", "left")
        assert (refused.returncode, refused.stdout) == (
            1,
            "network left is not drained: no other network is in service\n",
        )
        with session.join("g") as group:
            group.multicast_many([b"x" * 1000] * 500)
            events.next(LIMIT_S)
        assert networks(ring[1])[1]["bytes_sent"] - before["bytes_sent"] < 400_000, "hellos only"

        done = totem(ring[2], "network", "restore", "2")
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(
            r"network right is restored on all nodes, at \d+ of ring \S+ \(asked node 2\)\n", done.stdout
        )
        wait_until(lambda: states(ring[1]) == ["in_service"] * 2)
    for daemon in ring.daemons.values():
        wait_until(lambda daemon=daemon: "info    network in service" in daemon.log(), daemon.log)
        lines = re.findall(r"(network drained .*)\n", daemon.log())
        assert len(lines) == 1, "the same line at each"
        assert f"ring={answer['ring']} seq={answer['seq']}" in lines[0]
        assert "warning network drained" in daemon.log()
    assert "warning network request refused processor=1 network=left" in ring[1].log()
    assert "request refused" not in ring[2].log()


def test_what_cannot_be_asked(ring: Cluster, tmp_path: Path) -> None:
    done = totem(ring[1], "network", "drain", "middle")
    assert done.returncode == 2
    assert "network 'middle': the ring has left, right; give one of these" in done.stderr
    done = totem(ring[1], "network", "drain")
    assert (done.returncode, "give a network" in done.stderr) == (2, True)
    done = totem(ring[1], "network", "drain", "left", "--wait", "601")
    assert (done.returncode, "--wait 601: give at most 600 s" in done.stderr) == (2, True)
    again = totem(ring[1], "network", "restore", "left")
    assert (again.returncode, again.stdout.split(" (")[0]) == (0, "network left is restored already")
    nowhere = subprocess.run(
        [sys.executable, "-m", "totempole", "network", "drain", "left", "--directory", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert nowhere.returncode == 2
    assert (
        "no node runs in this directory, or it is still starting (any node of the ring can be asked"
        in nowhere.stderr
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"ask": "drain", "network": "left", "wait_s": 601}\n',
        b"{}\n",
        b"[]\n",
        b"nonsense\n",
        b'{"ask": "burn", "network": "left", "wait_s": 1}\n',
        b"x" * 5_000,
    ],
)
def test_nonsense_is_answered_and_survived(ring: Cluster, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(LIMIT_S)
        sock.connect(str(ring[1].directory / "control.sock"))
        sock.sendall(line)
        answer = json.loads(sock.recv(10_000))
    assert answer == {"error": "a request that this node does not understand"}


def test_only_the_nodes_user_may_ask(ring: Cluster) -> None:
    assert (ring[1].directory / "control.sock").stat().st_mode & 0o777 == 0o600


def test_a_ring_that_stands_still_is_not_waited_for_without_end(
    ring: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is with somebody who is stopped. What was asked may be done later, and is undone then.

    The command runs in this process: while another one starts on a busy machine, the ring gives up the two.
    """
    words = ["network", "drain", "right", "--wait", "0.2", "--config", str(ring[1].file)]
    main(["network", "--help"])  # has loaded what it needs
    capsys.readouterr()
    processes = [ring[number].process for number in (2, 3)]
    for process in processes:
        assert process is not None
        process.send_signal(signal.SIGSTOP)
    try:
        code = main(words)
    finally:
        for process in processes:
            assert process is not None
            process.send_signal(signal.SIGCONT)
    said = capsys.readouterr()
    assert (code, said.out) == (3, "")
    assert "network right: not done within 0.2 s; it may be done later: look with totem network" in said.err
    ring.wait_for_ring(1, 2, 3)
    wait_until(lambda: states(ring[1])[1] == "drained" and is_agreed(ring[1]))
    assert ask_node(ring[1].directory, ControlRequest("restore", "right"))["outcome"] == "done"


def test_one_network_has_no_table_and_nothing_to_drain(tmp_path: Path) -> None:
    with cluster(1, tmp_path) as alone:
        document = read_status(alone[1].directory)
        assert "networks" not in document
        assert "redundancy" not in document
        assert not (alone[1].directory / "control.sock").exists()
        shown = totem(alone[1], "network")
        assert (shown.returncode, "One network" in shown.stdout) == (0, True)
        refused = totem(alone[1], "network", "drain", "1")
        assert refused.returncode == 2
        assert "node 1: the ring is on one network, which cannot be taken out of service" in refused.stderr
        assert re.search(r"^network +mesh at ", totem(alone[1], "status").stdout, re.MULTILINE)
        with blocking.connect(alone[1].socket) as session:
            assert session.networks(LIMIT_S) == ()
        with pytest.raises(StatusError, match="no such socket"):
            ask_node(alone[1].directory, ControlRequest("drain", "1"))


def test_a_network_that_fails_is_shown_everywhere_and_comes_back(tmp_path: Path) -> None:
    """The third node listens at another port of `right`, until it is started again."""
    with cluster(3, tmp_path, networks=("left", "right")) as ring:
        port = free_port()
        ring[1].end()
        ring[1].file.write_text(ring[1].file.read_text() + f"[metrics]\nport = {port}\n")
        ring[1].start()
        third = ring[3].file.read_text()
        ring[3].end()
        right = third.index('name = "right"')
        own_port = re.search(r"\nport = (\d+)", third[right:])
        assert own_port is not None
        wrong = third[right:].replace(own_port[0], f"\nport = {int(own_port[1]) + 2}", 1)
        ring[3].file.write_text(third[:right] + wrong)
        ring[3].start()
        ring.wait_for_ring(1, 2, 3)
        with blocking.connect(ring[2].socket) as session:
            events = session.events(networks=True)
            fault = "3 cannot send or receive"
            wait_until(lambda: networks(ring[1])[1]["why"] == fault, ring[1].log)
            assert _until(events, "right", "faulty").why
            _check_fault_is_shown(ring, fault, port)
            refused = totem(ring[2], "network", "drain", "left")
            assert (refused.returncode, "no other network is in service" in refused.stdout) == (1, True)

            ring[3].end()
            ring[3].file.write_text(third)
            ring[3].start()
            _until(events, "right", "in_service")
        ring.wait_for_ring(1, 2, 3)
        wait_until(lambda: states(ring[3]) == ["in_service"] * 2)
        assert re.search(r"info    network in service .*network=right .*fault=none", ring[1].log())
        assert totem(ring[1], "network").returncode == 0


def _until(events: Any, name: str, state: str) -> NetworkChanged:
    while True:
        event = events.next(LIMIT_S)
        assert isinstance(event, NetworkChanged)
        if (event.name, event.state) == (name, state):
            return event


def _check_fault_is_shown(ring: Cluster, fault: str, port: int) -> None:
    assert re.search(
        r'warning network out of service .*network=right state=faulty before=\w+ fault="', ring[1].log()
    )
    shown = totem(ring[1], "network")
    assert shown.returncode == 1
    assert re.search(r"^right +faulty", shown.stdout, re.MULTILINE)
    assert re.search(r"^3 +no +no +\.", shown.stdout, re.MULTILINE)
    assert f"! network right, faulty: {fault}: cable, port or card of this host" in shown.stdout
    page = totem(ring[1], "status").stdout
    assert f"faulty: {fault}" in page
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        metrics = answer.read().decode()
    assert 'totempole_network_state{network="right",state="faulty"} 1.0' in metrics
    assert 'totempole_network_state{network="left",state="in_service"} 1.0' in metrics
    assert 'totempole_network_bad_paths{network="right"} 4.0' in metrics
    assert re.search(r'totempole_network_loss_ratio\{network="right",sender="3"\} 0\.[1-9]', metrics)
    assert 'totempole_network_bytes_sent_total{network="left"}' in metrics
