"""Nodes and their log services: three of each as real processes, and programs that append and read."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import totempole
from certificates import Authority
from daemons import PATIENT, Cluster, Daemon, cluster, wait_until
from totempole import blocking
from totempole.cli import main
from totempole.client.endpoint import Reconnect
from totempole.errors import ConfigurationError, SessionError
from totempole.runtime.config import NodeConfig
from totempole.runtime.status import StatusError, read_status

pytestmark = pytest.mark.nodes

LOG = "[log]\nenabled = true\nreplicas = [1, 2, 3]\nsegment_bytes = 65536\n"
QUICK = Reconnect(first_s=0.05, most_s=0.2)
LIMIT_S = 60.0


def log_of(daemon: Daemon) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_status(daemon.directory).get("log", {})
        return found
    except StatusError:
        return {}


def service_pid(daemon: Daemon) -> int:
    pid = (log_of(daemon).get("service") or {}).get("pid")
    return pid or 0


def is_running(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def them(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(3, tmp_path_factory.mktemp("ring"), PATIENT + LOG) as them:
        wait_until(
            lambda: all(log_of(daemon).get("standing") == "primary" for daemon in them.daemons.values()),
            lambda: "\n".join(daemon.log() for daemon in them.daemons.values()),
        )
        yield them


def test_a_program_reads_what_it_has_appended(them: Cluster) -> None:
    async def program() -> None:
        async with totempole.connect(them[1].socket) as session, session.log("mine") as log:
            first = await log.append(b"one")
            await log.append_many([b"two", b"three"], ["k2", "k3"])
            found = [record async for record in log.read(first)]
            assert [record.payload for record in found] == [b"one", b"two", b"three"]
            assert [record.key for record in found] == ["", "k2", "k3"]
            assert found[0].origin == 1
            batches = [batch async for batch in log.batches(first)]
            assert [len(batch) for batch in batches] == [1, 2]
            assert (await log.reader.status()).processor == 1

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_program_without_asyncio_too(them: Cluster) -> None:
    with blocking.connect(them[2].socket) as session, session.log("yours") as log:
        first = log.append(b"one")
        assert [record.payload for record in log.read(first)] == [b"one"]
        assert [list(batch.payloads) for batch in log.batches(first)] == [[b"one"]]


def test_every_replica_serves_the_same_order(them: Cluster) -> None:
    with blocking.connect(them[3].socket) as session, session.log("same") as log:
        last = log.append_many([f"{number}".encode() for number in range(500)])[-1]
    found = []
    for daemon in them.daemons.values():
        with blocking.connect(daemon.socket) as session:
            found.append([*session.log("same").read(0, last + 1, follow=True)])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 500


def test_a_service_that_is_killed_is_started_again(them: Cluster) -> None:
    """And whoever follows goes on."""

    async def program() -> None:
        async with totempole.connect(them[1].socket, reconnect=QUICK) as session, session.log("kept") as log:
            first = await log.append(b"before")
            following = log.read(first, follow=True)
            assert (await anext(following)).payload == b"before"
            killed = service_pid(them[1])
            os.kill(killed, signal.SIGKILL)
            await log.append(b"after")
            assert (await anext(following)).payload == b"after"
            wait_until(lambda: service_pid(them[1]) not in (0, killed), them[1].log)

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert log_of(them[1])["service"]["restarts"] >= 1
    assert "the log service has ended, and is started again" in them[1].log()


def test_a_node_that_is_killed_takes_its_service_along(them: Cluster) -> None:
    """A reader that knows several nodes goes on at another."""
    pid = service_pid(them[3])

    async def program() -> None:
        paths = [them[3].socket, them[2].socket]
        async with totempole.connect(paths, reconnect=QUICK) as session, session.log("away") as log:
            first = await log.append(b"before")
            following = log.read(first, follow=True)
            assert (await anext(following)).payload == b"before"
            them[3].end(signal.SIGKILL)
            wait_until(lambda: not is_running(pid))
            async with totempole.connect(them[2].socket) as other:
                await other.log("away").append(b"after")
            assert (await anext(following)).payload == b"after"

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_node_that_ends_in_good_order_ends_its_service(them: Cluster) -> None:
    pid = service_pid(them[2])
    assert is_running(pid)
    them[2].end(signal.SIGTERM)
    wait_until(lambda: not is_running(pid))
    assert not (them[2].directory / "clients-log.sock").exists()


def test_other_hosts_read_with_the_clients_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node")
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as holder:
            ports.append(holder.getsockname()[1])
    daemon, reading = (f"127.0.0.1:{port}" for port in ports)
    files = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\ntls_authorities = "{authority.path}"\n'
    settings = f'[clients]\nlisten = "{daemon}"\n{files}' + LOG.replace("1, 2, 3", "1")
    mine, my_key = authority.issue("program")
    tls = totempole.Tls(mine, my_key, authority.path)
    with cluster(1, tmp_path, f'{PATIENT}{settings}listen = "{reading}"\n'):

        async def program() -> None:
            async with totempole.connect(host=daemon, tls=tls, reconnect=QUICK) as session:
                async with session.log("far", replicas=reading) as log:
                    first = await log.append(b"from afar")
                    assert [record.payload async for record in log.read(first)] == [b"from afar"]
                with pytest.raises(SessionError, match="on another host"):
                    _ = session.log("far").reader

        asyncio.run(asyncio.wait_for(program(), LIMIT_S))
        words = [
            "--tls-certificate",
            str(mine),
            "--tls-key",
            str(my_key),
            "--tls-authorities",
            str(authority.path),
        ]
        assert main(["log", "show", "--host", reading, *words]) == 0
        assert "from afar" in capsys.readouterr().out
        assert main(["log", "show", "--host", reading]) == 2


def test_listen_needs_the_clients_certificates(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    text = f'processor = 1\ndirectory = "{tmp_path}/node"\n[network]\naddress = "127.0.0.1"\n'
    text += "[security]\nunsealed = true\n[log]\nenabled = true\n"
    file.write_text(text + 'listen = "127.0.0.1:5411"\n')
    with pytest.raises(ConfigurationError, match="without TLS nobody is let in"):
        NodeConfig.load(file)
    file.write_text(text + 'listen = "somewhere"\n')
    with pytest.raises(ConfigurationError, match="give ADDRESS:PORT"):
        NodeConfig.load(file)
