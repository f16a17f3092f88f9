"""Real daemons on loopback that part, heal, crash and come back, without root; and who may not do that."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemons import wait_until
from totempole import blocking
from totempole.cli import main
from totempole.lab.commands import LabError
from totempole.lab.local_cluster import LocalCluster
from totempole.runtime.control import FilterRequest, ask_node
from totempole.runtime.packet_filter import PacketFilter
from totempole.runtime.status import StatusError

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def whole(cluster: LocalCluster) -> Iterator[None]:
    yield
    for number in list(cluster.paused):
        cluster.resume(number)
    for number in cluster.numbers:
        if not cluster.is_running(number):
            cluster.start(number)
    cluster.heal()
    cluster.wait()


@pytest.fixture
def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def members(cluster: LocalCluster) -> dict[int, list[int]]:
    return {number: cluster.status(number)["members"] for number in cluster.numbers}


def test_a_partition_and_its_end(cluster: LocalCluster) -> None:
    cluster.part([1], [2, 3])
    cluster.wait()
    assert members(cluster) == {1: [1], 2: [2, 3], 3: [2, 3]}
    wait_until(lambda: all(cluster.dropped(number) for number in cluster.numbers))
    cluster.heal()
    cluster.wait()
    assert members(cluster) == {1: [1, 2, 3], 2: [1, 2, 3], 3: [1, 2, 3]}


def test_a_node_that_starts_while_the_network_is_parted_is_parted_from_its_first_packet(
    cluster: LocalCluster,
) -> None:
    cluster.part([1, 2])
    cluster.wait()
    assert cluster.sides == ((1, 2), (3,))
    cluster.kill(3)
    before = len(cluster.daemons.log(3))
    cluster.start(3)
    cluster.wait()
    wait_until(lambda: cluster.dropped(3))
    assert members(cluster)[3] == [3]
    said = cluster.daemons.log(3)[before:]
    assert "members=3" in said
    assert "members=1" not in said


def test_a_crash_a_leave_and_a_process_that_stands_still(cluster: LocalCluster) -> None:
    cluster.kill(2)
    cluster.wait()
    assert cluster.rings == [(1, 3)]
    cluster.start(2)
    cluster.wait()
    cluster.stop(1)
    cluster.wait()
    assert cluster.rings == [(2, 3)]
    cluster.start(1)
    cluster.wait()
    cluster.pause(3)
    cluster.wait()
    assert cluster.rings == [(1, 2)]
    assert cluster.status(1)["members"] == [1, 2]
    cluster.resume(3)
    cluster.wait()
    assert members(cluster) == {1: [1, 2, 3], 2: [1, 2, 3], 3: [1, 2, 3]}


def test_groups_and_the_durable_log_work_at_once(cluster: LocalCluster) -> None:
    with blocking.connect(str(cluster.socket(1))) as session:
        with session.join("orders") as group:
            group.multicast(b"buy 10")
        with session.log("orders") as log:
            assert log.append(b"paid") >= 0


@pytest.mark.parametrize(
    ("sides", "says"),
    [([[1], [4]], "there is no node 4"), ([[1, 2], [2, 3]], "a node is on one side only")],
)
def test_a_partition_that_makes_no_sense(cluster: LocalCluster, sides: list[list[int]], says: str) -> None:
    with pytest.raises(LabError, match=says):
        cluster.part(*sides)
    assert not cluster.is_parted


def test_what_a_node_is_asked_that_cannot_be(cluster: LocalCluster) -> None:
    with pytest.raises(LabError, match="node 2 runs already"):
        cluster.start(2)
    with pytest.raises(LabError, match="there is no node 7"):
        cluster.kill(7)
    cluster.kill(2)
    with pytest.raises(LabError, match="node 2 does not run"):
        cluster.pause(2)


def test_a_port_that_is_taken_is_named(cluster: LocalCluster, tmp_path: Path) -> None:
    says = f"TCP {cluster.address(1)} port {cluster.port}: Address already in use"
    with pytest.raises(LabError, match=says):
        LocalCluster(3, tmp_path, port=cluster.port)
    other = LocalCluster(3, tmp_path)
    assert other.port != cluster.port
    other.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((cluster.address(2), 0))
        taken = stranger.getsockname()[1]
        with pytest.raises(LabError, match=f"UDP {cluster.address(2)} port {taken}: Address already in use"):
            LocalCluster(3, tmp_path, port=taken)


def test_a_directory_is_for_one_cluster(cluster: LocalCluster) -> None:
    with pytest.raises(LabError, match="another cluster runs there"):
        LocalCluster(3, cluster.directory)
    with pytest.raises(LabError, match="has a cluster of 3 nodes"):
        LocalCluster(4, cluster.directory)


# Who may not


PRODUCTION = """\
processor = 1
directory = "state"
[network]
address = "{address}"
port = {port}
[security]
unsealed = true
[log]
enabled = true
replicas = [1]
"""


def test_a_daemon_that_was_not_started_for_it_refuses_a_filter(tmp_path: Path, free_port: int) -> None:
    file = tmp_path / "node.toml"
    file.write_text(PRODUCTION.format(address="127.0.0.1", port=free_port))
    argv = [sys.executable, "-m", "totempole", "node", "--config", str(file)]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until((tmp_path / "state" / "control.sock").exists)
            with pytest.raises(StatusError, match="no packet filter"):
                ask_node(tmp_path / "state", FilterRequest(("127.0.0.2",)))
        finally:
            process.terminate()


def test_a_node_of_a_real_network_cannot_have_a_filter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(PRODUCTION.format(address="192.0.2.1", port=5400))
    assert main(["node", "--config", str(file), "--lab"]) == 2
    assert "192.0.2.1: a packet filter is for nodes on loopback" in capsys.readouterr().err


def test_help_does_not_speak_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--help"]) == 0
    assert "--lab" not in capsys.readouterr().out


# The filter


def test_the_filter_drops_what_comes_from_some_addresses_and_nothing_else() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        for sock, address in ((ours, "127.0.0.1"), (near, "127.0.0.2"), (far, "127.0.0.3")):
            sock.bind((address, 0))
        where = ours.getsockname()
        far.sendto(b"cut", where)
        near.sendto(b"heard", where)
        far.sendto(b"cut", where)
        packets = PacketFilter(["127.0.0.3"])
        read = packets.read(ours)
        assert read is not None
        assert read.data == b"heard"
        assert packets.read(ours) is None
        assert packets.dropped == 2
        packets.cut = frozenset()
        far.sendto(b"heard too", where)
        assert packets.read(ours) is not None


def test_nodes_leave_when_whoever_started_them_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom totempole.lab.local_cluster import LocalCluster\n"
        "with LocalCluster(1, Path(sys.argv[1])) as cluster:\n"
        "    print(cluster.daemons.processes[1].pid, flush=True)\n    time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: not (tmp_path / "node-1" / "status.sock").exists())
    wait_until(lambda: not _cmdline(pid))


def _cmdline(pid: int) -> bytes:
    """Empty of a process that has ended and that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
