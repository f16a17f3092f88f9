"""Log services that are killed, slow or hostile readers, other users and hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from struct import pack

import pytest

from certificates import Authority
from serving import LIMIT_S, QUICK, Reader, Service, serving
from totempole.client.blocking_log_reader import LogReader
from totempole.client.endpoint import Tls
from totempole.client.log_endpoints import log_endpoints
from totempole.errors import LogError, LogTrimmedError, SessionError
from totempole.session.log_frames import (
    FRAME_BYTES_MAX,
    VERSION,
    Answer,
    Failed,
    FrameBuffer,
    Hello,
    Read,
    Request,
    Welcome,
    decode_answer,
    encode,
)
from written_logs import LOG, WrittenLog

pytestmark = pytest.mark.nodes

KINDS = ["blocking", "asyncio"]


def write_runs(log: WrittenLog, runs: int, size: int = 1000, records: int = 100) -> None:
    for _ in range(runs):
        first = log.zones.position
        log.append([f"{first + index:08d}".encode().ljust(size, b".") for index in range(records)])


# Services that go away


@pytest.mark.parametrize("kind", KINDS)
def test_a_reading_goes_on_when_its_service_is_killed(tmp_path: Path, kind: str) -> None:
    log = WrittenLog(tmp_path / "log")
    write_runs(log, 50)
    service = Service(log.directory, tmp_path / "clients-log.sock")
    service.start()
    service.wait_until_there()
    total = 12_000

    def disturb() -> None:
        for _ in range(3):
            write_runs(log, 20)
            time.sleep(0.3)
            service.kill()
            service.start()
        write_runs(log, 10)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        found = Reader.at(kind, tmp_path / "clients.sock").records(0, total, follow=True)
    finally:
        thread.join()
        service.kill()
    assert [record.position for record in found] == list(range(total))
    assert all(int(record.payload[:8]) == record.position for record in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reading_goes_on_at_another_replica(tmp_path: Path, kind: str) -> None:
    """The second is behind for a while: the reading waits for it, and misses nothing."""
    logs = [WrittenLog(tmp_path / f"log{number}", processor=number) for number in (1, 2)]
    write_runs(logs[0], 60)
    write_runs(logs[1], 20)
    services = [
        Service(log.directory, tmp_path / f"node{number}-log.sock", number)
        for number, log in enumerate(logs, 1)
    ]
    for service in services:
        service.start()
        service.wait_until_there()
    taken: list[int] = []

    def catch_up() -> None:
        time.sleep(0.3)
        services[0].kill()
        time.sleep(0.3)
        write_runs(logs[1], 60)

    thread = threading.Thread(target=catch_up)
    thread.start()
    try:
        reader = Reader.at(kind, tmp_path / "node1.sock", tmp_path / "node2.sock")
        taken = [record.position for record in reader.records(0, 8_000, follow=True)]
    finally:
        thread.join()
        services[1].kill()
    assert taken == list(range(8_000))


def test_what_one_replica_has_trimmed_another_may_have(tmp_path: Path) -> None:
    logs = [WrittenLog(tmp_path / f"log{number}", processor=number) for number in (1, 2)]
    for log in logs:
        write_runs(log, 2)
        log.begin_segment()
        write_runs(log, 1)
    logs[0].trim(2)
    with (
        serving(logs[0].directory, tmp_path / "node1-log.sock", 1),
        serving(logs[1].directory, tmp_path / "node2-log.sock", 2),
    ):
        both = Reader.at("blocking", tmp_path / "node1.sock", tmp_path / "node2.sock")
        assert [record.position for record in both.records(0)] == list(range(300))
        logs[1].trim(2)
        with pytest.raises(LogTrimmedError, match="position 200"):
            both.records(0)


def test_another_log_is_refused_in_the_midst_of_a_reading(tmp_path: Path) -> None:
    """A log that was rescued, or another cluster's, is not read on as if it were the same."""
    mine, other = WrittenLog(tmp_path / "log"), WrittenLog(tmp_path / "other", log=LOG + 1)
    write_runs(mine, 2)
    write_runs(other, 3)
    path = tmp_path / "clients.sock"
    reader = LogReader(log_endpoints(path), reconnect=QUICK)
    with serving(mine.directory, tmp_path / "clients-log.sock"):
        reading = reader.read(follow=True)
        assert next(reading).position == 0
    with serving(other.directory, tmp_path / "clients-log.sock"), pytest.raises(LogError, match="rescued"):
        for _ in reading:
            pass


def test_a_service_ends_with_its_node(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    service = Service(log.directory, tmp_path / "clients-log.sock")
    service.start()
    service.wait_until_there()
    reader = LogReader(log_endpoints(tmp_path / "clients.sock"))
    reading = reader.read(0, follow=True)
    timer = threading.Timer(0.3, service.end)
    timer.start()
    with pytest.raises(SessionError, match="lost"):
        next(reading)
    timer.join()
    assert not service.socket.exists()


def test_a_reader_without_a_service_gives_up_in_time(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="check that the node runs"):
        LogReader(log_endpoints(tmp_path / "clients.sock")).status()


def test_a_damaged_log_ends_its_service_with_a_reason(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    write_runs(log, 1)
    last = max(log.directory.glob("*.segment"))
    content = bytearray(last.read_bytes())
    content[0] ^= 1
    last.write_bytes(content)
    service = Service(log.directory, tmp_path / "clients-log.sock")
    service.start()
    assert service.process is not None
    assert service.process.wait(LIMIT_S) == 3
    service.end()
    assert "does not begin like a segment" in service.told()


# Readers


def test_slow_readers_hold_up_nobody(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    write_runs(log, 400)  # more than sockets hold
    with serving(log.directory, tmp_path / "clients-log.sock") as service:
        lazy = [Raw(service.socket) for _ in range(20)]
        for raw in lazy:
            assert isinstance(raw.ask(Hello()), Welcome)
            raw.send(Read(start=0, follow=True))
        started_s = time.monotonic()
        found = Reader.at("blocking", tmp_path / "clients.sock").records(0, 40_000)
        taken_s = time.monotonic() - started_s
        assert len(found) == 40_000
        assert taken_s < LIMIT_S / 2
        assert _memory_bytes(service) < 400 * 1024 * 1024
        status = Reader.at("blocking", tmp_path / "clients.sock").ask("status")
        assert status.readers == 21
        for raw in lazy:
            raw.close()


def _memory_bytes(service: Service) -> int:
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_many_followers_get_everything(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    found: list[list[int]] = []
    with serving(log.directory, tmp_path / "clients-log.sock"):

        def follow() -> None:
            records = Reader.at("blocking", tmp_path / "clients.sock").records(0, 1_000, follow=True)
            found.append([record.position for record in records])

        threads = [threading.Thread(target=follow) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            write_runs(log, 1, size=10)
            time.sleep(0.02)
        for thread in threads:
            thread.join()
    assert found == [list(range(1_000))] * 8


class Raw:
    """A program that speaks for itself."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        self._socket.connect(str(path))
        self._buffer: FrameBuffer[Answer] = FrameBuffer(decode_answer, FRAME_BYTES_MAX)

    def send(self, request: Request | bytes) -> None:
        with suppress(BrokenPipeError):  # what it has said is there to be read
            self._socket.sendall(request if isinstance(request, bytes) else encode(request))

    def ask(self, request: Request | bytes) -> Answer | None:
        """None: it has hung up."""
        self.send(request)
        while count := self._socket.recv_into(self._buffer.room()):
            for answer in self._buffer.filled(count):
                return answer
        return None

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        pack(">I", 2**31),
        pack(">I", 3) + b"abc",
        bytes(encode(Read())),
        bytes(encode(Hello())) + bytes(encode(Hello())),
    ],
    ids=["http", "too long", "no frame", "no hello", "two hellos"],
)
def test_nonsense_ends_its_own_connection_only(tmp_path: Path, request_bytes: bytes) -> None:
    log = WrittenLog(tmp_path / "log")
    write_runs(log, 1)
    with serving(log.directory, tmp_path / "clients-log.sock") as service:
        raw = Raw(service.socket)
        answer = raw.ask(request_bytes)
        while isinstance(answer, Welcome):
            answer = raw.ask(b"")
        assert answer is None
        raw.close()
        assert len(Reader.at("blocking", tmp_path / "clients.sock").records()) == 100
        assert "malformed request" in service.told()


def test_requests_that_cannot_be_are_refused_with_words(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    with serving(log.directory, tmp_path / "clients-log.sock") as service:
        raw = Raw(service.socket)
        assert isinstance(raw.ask(Hello()), Welcome)
        for request, words in [
            (Read(columns=("colour",)), "a record has position"),
            (Read(start=-7), "cannot be"),
            (Read(place=-1), "cannot be"),
        ]:
            answer = raw.ask(request)
            assert isinstance(answer, Failed)
            assert words in answer.text
        raw.close()
        newer = Raw(service.socket)
        answer = newer.ask(Hello(VERSION + 1))
        assert isinstance(answer, Failed)
        assert answer.kind == "version"
        newer.close()


def test_readers_are_bounded(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    with serving(log.directory, tmp_path / "clients-log.sock", readers_max=2) as service:
        first, second = Raw(service.socket), Raw(service.socket)
        assert isinstance(first.ask(Hello()), Welcome)
        assert isinstance(second.ask(Hello()), Welcome)
        third = Raw(service.socket)
        answer = third.ask(Hello())
        assert isinstance(answer, Failed)
        assert "as many as clients.clients_max allows" in answer.text
        for raw in (first, second, third):
            raw.close()
        Reader.at("blocking", tmp_path / "clients.sock").ask("status")


# Who may read

NOBODY = 65_534
READ_AS_NOBODY = f"""
import os, sys
from totempole.client.blocking_log_reader import LogReader
from totempole.client.log_endpoints import log_endpoints
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
try:
    print(LogReader(log_endpoints(sys.argv[1])).status())
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(
    ("mode", "users", "reply"),
    [
        (0o666, (), f"user {NOBODY} may not read this log"),
        (0o666, (str(NOBODY),), "ReplicaStatus"),
        (0o660, (str(NOBODY),), "Permission denied"),
    ],
)
def test_another_user(mode: int, users: tuple[str, ...], reply: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        log = WrittenLog(path / "log")
        with serving(log.directory, path / "clients-log.sock", socket_mode=mode, users=users):
            argv = [sys.executable, "-c", READ_AS_NOBODY, str(path / "clients.sock")]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert reply in done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_readers_on_other_hosts_prove_who_they_are(tmp_path: Path, kind: str) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    certificate, key = authority.issue("node")
    log = WrittenLog(tmp_path / "log")
    write_runs(log, 30)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    address = f"127.0.0.1:{port}"
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.path}
    texts = {name: str(path) for name, path in files.items()}
    with serving(log.directory, tmp_path / "clients-log.sock", listen=address, **texts):
        good = Tls(*authority.issue("reader"), authority.path)
        found = Reader.by_tls(kind, address, good).records(5)
        assert [record.position for record in found] == list(range(5, 3_000))
        bad = Tls(*stranger.issue("spy"), authority.path)
        with pytest.raises(SessionError):
            LogReader(log_endpoints(None, address, bad)).status()
