"""Snapshots put to log services and got from them: by both kinds of programs, through kills, from two."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import totempole
from certificates import Authority
from crowded import crowded
from serving import LIMIT_S, QUICK, Service, serving
from totempole.client import blocking_log_reader, log_reader
from totempole.client.endpoint import Reconnect, Tls
from totempole.client.log_endpoints import log_endpoints
from totempole.errors import LogError, SessionError
from totempole.log.snapshots import HEAD_BYTES, StoredHead, pack_head, snapshot_name, snapshots_of
from totempole.log_service import snapshots as service_module
from totempole.log_service.snapshots import SnapshotService
from totempole.log_service.source import Source
from totempole.objects.snapshot_store import BlockingSnapshotStore, LoadedSnapshot, SnapshotStore
from totempole.objects.snapshot_transfer import SnapshotError, SnapshotRefusedError
from totempole.session.log_frames import (
    GetSnapshot,
    ListSnapshots,
    PutChunk,
    PutFrom,
    PutSnapshot,
    Request,
    SnapshotFound,
    SnapshotMissing,
    SnapshotRefused,
    SnapshotStored,
)
from written_logs import LOG, WrittenLog

pytestmark = pytest.mark.nodes

KINDS = ["blocking", "asyncio"]
MIB = 1024 * 1024
NOBODY = 65_534


class Bytes:
    """A content; `read` may be disturbed."""

    def __init__(self, content: bytes, disturb: Callable[[int], object] = lambda _: None) -> None:
        self.content = content
        self.size = len(content)
        self.crc = crc32(content)
        self.reads: list[int] = []
        self._disturb = disturb

    def read(self, offset: int, size: int) -> bytes:
        self.reads.append(offset)
        self._disturb(offset)
        return self.content[offset : offset + size]


def head_of(position: int, content: bytes, name: str = "bank", log: int = 0) -> StoredHead:
    return StoredHead(name, position, "Bank", 1, len(content), crc32(content), log)


class Stores:
    """What a test asks, of the blocking store or of that for asyncio."""

    def __init__(self, kind: str, *sockets: Path, reconnect: Reconnect | None = QUICK) -> None:
        self.kind = kind
        self._endpoints = [endpoint for path in sockets for endpoint in log_endpoints(path)]
        self._reconnect = reconnect

    def blocking(self) -> BlockingSnapshotStore:
        return BlockingSnapshotStore(
            blocking_log_reader.LogReader(self._endpoints, reconnect=self._reconnect)
        )

    def put(self, head: StoredHead, content: Bytes) -> SnapshotStored:
        return self._ask("put", head, content)  # type: ignore[no-any-return]

    def load(self, name: str = "bank", below: int | None = None) -> LoadedSnapshot | None:
        return self._ask("load", name, below)  # type: ignore[no-any-return]

    def newest(self, name: str = "bank", below: int | None = None) -> StoredHead | None:
        return self._ask("newest", name, below)  # type: ignore[no-any-return]

    def chunks(self, head: StoredHead, each: Callable[[int], object] = lambda _: None) -> bytes:
        if self.kind == "blocking":
            return _joined(self.blocking().chunks(head), each)

        async def collect() -> bytes:
            found = bytearray()
            async for chunk in self._store().chunks(head):
                found += chunk
                each(len(found))
            return bytes(found)

        return totempole.run(asyncio.wait_for(collect(), LIMIT_S))  # type: ignore[no-any-return]

    def _store(self) -> SnapshotStore:
        return SnapshotStore(log_reader.LogReader(self._endpoints, reconnect=self._reconnect))

    def _ask(self, what: str, *arguments: Any) -> Any:
        if self.kind == "blocking":
            return getattr(self.blocking(), what)(*arguments)

        async def ask() -> Any:
            return await getattr(self._store(), what)(*arguments)

        return totempole.run(asyncio.wait_for(ask(), LIMIT_S))


def _joined(chunks: Iterator[bytes], each: Callable[[int], object]) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        each(len(found))
    return bytes(found)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    written = WrittenLog(tmp_path / "log")
    written.append([b"x"] * 100, log="objects/bank")
    return written


@pytest.fixture
def service(tmp_path: Path, log: WrittenLog) -> Iterator[Service]:
    with serving(log.directory, tmp_path / "clients-log.sock") as running:
        yield running


def files_of(log: WrittenLog) -> list[str]:
    directory = snapshots_of(log.directory)
    return sorted(os.listdir(directory)) if directory.exists() else []


# Good weather


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_is_got(log: WrittenLog, service: Service, kind: str) -> None:
    stores = Stores(kind, service.socket)
    assert stores.load() is None
    content = os.urandom(3 * MIB + 17)
    assert stores.put(head_of(50, content), Bytes(content)) == SnapshotStored(1, (50,))
    loaded = stores.load()
    assert loaded is not None
    assert loaded.content == content
    assert loaded.head == head_of(50, content, log=LOG)
    assert stores.put(head_of(60, b"next"), Bytes(b"next")).positions == (60, 50)
    assert stores.put(head_of(70, b""), Bytes(b"")).positions == (70, 60)
    newest, before = stores.newest(), stores.newest(below=69)
    assert newest is not None
    assert before is not None
    assert (newest.position, before.position) == (70, 60)
    assert stores.newest(below=59) is None
    assert stores.newest("queue") is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_with_many_descriptors_puts_and_gets(log: WrittenLog, service: Service, kind: str) -> None:
    stores = Stores(kind, service.socket)
    with crowded():
        assert stores.put(head_of(50, b"state"), Bytes(b"state")) == SnapshotStored(1, (50,))
        loaded = stores.load()
    assert loaded is not None
    assert loaded.content == b"state"


def test_a_snapshot_is_for_its_service_user_alone(log: WrittenLog, service: Service) -> None:
    Stores("blocking", service.socket).put(head_of(5, b"a"), Bytes(b"a"))
    directory = snapshots_of(log.directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in directory.iterdir()] == [0o600]


# What is refused


def test_a_position_that_is_not_green_is_refused(log: WrittenLog, service: Service) -> None:
    store = Stores("blocking", service.socket)
    with pytest.raises(SnapshotRefusedError, match="position 101") as refused:
        store.put(head_of(101, b"a"), Bytes(b"a"))
    assert refused.value.kind == "position"
    assert files_of(log) == []


def test_a_position_that_becomes_green_soon_is_waited_for(log: WrittenLog, service: Service) -> None:
    timer = threading.Timer(0.5, lambda: log.append([b"y"]))
    timer.start()
    stored = Stores("blocking", service.socket).put(head_of(101, b"a"), Bytes(b"a"))
    timer.join()
    assert stored.positions == (101,)


def test_a_snapshot_of_another_log_is_refused_and_not_given(log: WrittenLog, service: Service) -> None:
    store = Stores("blocking", service.socket).blocking()
    with pytest.raises(LogError, match="is of log"):
        store.put(head_of(5, b"a", log=LOG + 1), Bytes(b"a"))
    store.put(head_of(5, b"a"), Bytes(b"a"))
    path = snapshots_of(log.directory) / snapshot_name("bank", 5)
    content = path.read_bytes()
    path.write_bytes(pack_head(head_of(5, b"a", log=LOG + 1)) + content[HEAD_BYTES:])
    assert store.newest("bank") is None
    with pytest.raises(SnapshotError, match="no such snapshot"):
        list(store.chunks(head_of(5, b"a", log=LOG)))


def test_a_wrong_checksum_is_refused_and_leaves_nothing(log: WrittenLog, service: Service) -> None:
    wrong = Bytes(b"state" * 100_000)
    head = StoredHead("bank", 5, "Bank", 1, wrong.size, 4711)
    with pytest.raises(SnapshotRefusedError) as refused:
        Stores("blocking", service.socket).put(head, wrong)
    assert refused.value.kind == "content"
    assert files_of(log) == []


def test_too_many_bytes_are_refused(tmp_path: Path, log: WrittenLog) -> None:
    with serving(log.directory, tmp_path / "clients-log.sock", snapshots_bytes_max=MIB) as service:
        content = Bytes(bytes(2 * MIB))
        with pytest.raises(SnapshotRefusedError, match="more than 1048576") as refused:
            Stores("blocking", service.socket).put(head_of(5, content.content), content)
        assert refused.value.kind == "room"


def test_a_directory_of_others_is_refused(log: WrittenLog, service: Service) -> None:
    snapshots_of(log.directory).mkdir()
    snapshots_of(log.directory).chmod(0o777)
    store = Stores("blocking", service.socket, reconnect=None)
    with pytest.raises(SnapshotRefusedError, match="0777"):
        store.put(head_of(5, b"a"), Bytes(b"a"))
    with pytest.raises(SessionError, match="0777"):
        store.newest()


def test_one_program_puts_at_a_time(log: WrittenLog, service: Service) -> None:
    inner: list[BaseException] = []
    content = os.urandom(2 * MIB)

    def second(offset: int) -> None:
        if offset and not inner:
            try:
                Stores("blocking", service.socket).put(head_of(6, b"b"), Bytes(b"b"))
            except SnapshotRefusedError as error:
                inner.append(error)

    Stores("blocking", service.socket).put(head_of(5, content), Bytes(content, second))
    assert isinstance(inner[0], SnapshotRefusedError)
    assert inner[0].kind == "busy"
    assert Stores("blocking", service.socket).put(head_of(6, b"b"), Bytes(b"b")).positions == (6, 5)


# A stranger's frames


def _link(service: Service) -> Any:
    reader = blocking_log_reader.LogReader(log_endpoints(service.socket))
    return reader.connected(reader.replicas())


def _answers(link: Any) -> None:
    """Until the service hangs up."""
    while True:
        assert isinstance(link.next(5), PutFrom)


def test_frames_in_a_wrong_place_end_the_connection(log: WrittenLog, service: Service) -> None:
    head = head_of(5, b"states", log=LOG)
    for frames in (
        [PutChunk(b"x")],
        [PutSnapshot(head), ListSnapshots()],
        [PutSnapshot(head), PutSnapshot(head_of(6, b"b", log=LOG), True)],
        [PutSnapshot(head), PutChunk(b"")],
        [PutSnapshot(head), PutChunk(bytes(MIB))],
    ):
        with _link(service) as (link, _):
            for frame in frames:
                link.send(frame)
            with pytest.raises(SessionError):
                _answers(link)
    assert Stores("blocking", service.socket).put(head_of(5, b"good"), Bytes(b"good")).positions == (5,)


def test_more_than_was_said_is_refused(log: WrittenLog, service: Service) -> None:
    with _link(service) as (link, _):
        link.send(PutSnapshot(head_of(5, b"state", log=LOG)))
        link.send(PutChunk(b"statesmen"))
        assert isinstance(link.next(5), PutFrom)
        refused = link.next(5)
    assert isinstance(refused, SnapshotRefused)
    assert refused.kind == "content"


def test_a_malformed_head_is_refused(log: WrittenLog, service: Service) -> None:
    with _link(service) as (link, _):
        link.send(PutSnapshot(StoredHead("", 5, "Bank", 1, 1, 1, LOG)))
        assert link.next(5).kind == "head"
        link.send(PutSnapshot(StoredHead("bank", -5, "Bank", 1, 1, 1, LOG)))
        assert link.next(5).kind == "head"


# Kills


@pytest.mark.parametrize("kind", KINDS)
def test_a_put_goes_on_when_the_service_is_killed(
    tmp_path: Path, log: WrittenLog, service: Service, kind: str
) -> None:
    content = os.urandom(4 * MIB)
    kills = iter([1 * MIB, 3 * MIB])
    following = [next(kills)]

    def disturb(offset: int) -> None:
        if following and offset >= following[0]:
            following[:] = [at for at in (next(kills, None),) if at is not None]
            _wait_for(lambda: any(_size(log) > HEAD_BYTES for _ in (1,)))
            service.kill()
            service.start()

    put = Bytes(content, disturb)
    stored = Stores(kind, service.socket).put(head_of(50, content), put)
    assert stored.positions == (50,)
    loaded = Stores(kind, service.socket).load()
    assert loaded is not None
    assert loaded.content == content
    sent = [after for before, after in zip(put.reads, put.reads[1:], strict=False) if after < before]
    assert len(sent) >= 2, "it was interrupted"


def _size(log: WrittenLog) -> int:
    directory = snapshots_of(log.directory)
    return sum(path.stat().st_size for path in directory.iterdir()) if directory.exists() else 0


def _wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_put_that_broke_off_is_gone_on_with(log: WrittenLog, service: Service) -> None:
    content = os.urandom(4 * MIB)

    class Stop(Exception):
        pass

    def stop(offset: int) -> None:
        if offset >= 3 * MIB:
            raise Stop

    store = Stores("blocking", service.socket)
    with pytest.raises(Stop):
        store.put(head_of(50, content), Bytes(content, stop))
    _wait_for(lambda: _size(log) >= 2 * MIB)
    _wait_for(lambda: _is_free(service, content))
    again = Bytes(content)
    store.put(head_of(50, content), again)
    assert store.load() == LoadedSnapshot(head_of(50, content, log=LOG), bytearray(content))
    first_sent = next(at for at, after in zip(again.reads, again.reads[1:], strict=False) if after > at)
    assert _size(log) == HEAD_BYTES + len(content)
    assert first_sent == 0, "what is there is compared first"
    assert len(again.reads) < 4 * 4 + 4, "and not sent again"


def _is_free(service: Service, content: bytes) -> bool:
    with _link(service) as (link, _):
        link.send(PutSnapshot(head_of(50, content, log=LOG)))
        return isinstance(link.next(5), PutFrom)


@pytest.mark.parametrize("kind", KINDS)
def test_a_get_goes_on_when_the_service_is_killed(log: WrittenLog, service: Service, kind: str) -> None:
    content = os.urandom(12 * MIB)
    stores = Stores(kind, service.socket)
    stores.put(head_of(50, content), Bytes(content))
    kills = [MIB, 6 * MIB]

    def disturb(came: int) -> None:
        if kills and came >= kills[0]:
            del kills[0]
            service.kill()
            service.start()

    assert stores.chunks(head_of(50, content, log=LOG), disturb) == content
    assert not kills


# Two services


@pytest.fixture
def two(tmp_path: Path, log: WrittenLog) -> Iterator[tuple[Service, Service]]:
    other = WrittenLog(tmp_path / "other", processor=2)
    other.append([b"x"] * 100, log="objects/bank")
    with (
        serving(log.directory, tmp_path / "a-log.sock") as first,
        serving(other.directory, tmp_path / "b-log.sock", 2) as second,
    ):
        yield first, second


@pytest.mark.parametrize("kind", KINDS)
def test_a_get_goes_on_at_another_replica(two: tuple[Service, Service], kind: str) -> None:
    first, second = two
    content = os.urandom(12 * MIB)
    for service in two:
        Stores(kind, service.socket).put(head_of(50, content), Bytes(content))

    def disturb(came: int) -> None:
        if came >= 2 * MIB and first.process is not None:
            first.kill()

    both = Stores(kind, first.socket, second.socket)
    assert both.chunks(head_of(50, content, log=LOG), disturb) == content
    loaded = both.load()
    assert loaded is not None
    assert loaded.content == content


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_is_got_from_another_replica(two: tuple[Service, Service], kind: str) -> None:
    first, second = two
    Stores(kind, second.socket).put(head_of(50, b"state"), Bytes(b"state"))
    both = Stores(kind, first.socket, second.socket)
    loaded = both.load()
    assert loaded is not None
    assert loaded.head.position == 50
    assert both.put(head_of(60, b"more"), Bytes(b"more")) == SnapshotStored(1, (60,))
    first.kill()
    assert both.put(head_of(70, b"more"), Bytes(b"more")) == SnapshotStored(2, (70, 50))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_one_is_passed_over_and_named(two: tuple[Service, Service], kind: str) -> None:
    first, second = two
    for service in two:
        for position in (50, 60):
            content = f"state {position}".encode()
            Stores(kind, service.socket).put(head_of(position, content), Bytes(content))
    directory = Path(first.settings.directory)
    for position in (50, 60):
        path = snapshots_of(directory) / snapshot_name("bank", position)
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 1
        path.write_bytes(damaged)
    loaded = Stores(kind, first.socket, second.socket).load()
    assert loaded is not None
    assert loaded.content == b"state 60", "the other has it"
    assert Stores(kind, first.socket).load() is None
    told = first.told()
    assert "position 60 does not fit its checksum" in told
    assert "position 50 does not fit its checksum" in told
    assert [name for name in os.listdir(snapshots_of(directory)) if not name.endswith(".damaged")] == []


def test_no_service_is_an_error_and_not_an_absence(tmp_path: Path) -> None:
    store = Stores("blocking", tmp_path / "none-log.sock", reconnect=None)
    with pytest.raises(SessionError, match="no log service"):
        store.newest()
    with pytest.raises(SessionError, match="no log service"):
        store.put(head_of(1, b"a"), Bytes(b"a"))
    with pytest.raises(SessionError, match="no log service"):
        list(store.blocking().chunks(head_of(1, b"a")))


def test_a_snapshot_before_what_is_kept_of_the_log_is_of_no_use(
    log: WrittenLog, service: Service, tmp_path: Path
) -> None:
    store = Stores("blocking", service.socket)
    store.put(head_of(50, b"a"), Bytes(b"a"))
    log.begin_segment()
    log.append([b"x"] * 10, log="objects/bank")
    assert store.newest() is not None
    log.trim(2)
    assert store.newest() is None
    store.put(head_of(100, b"a"), Bytes(b"a"))
    assert store.newest() == head_of(100, b"a", log=LOG)


def test_missing_and_found_are_answered(log: WrittenLog, service: Service) -> None:
    Stores("blocking", service.socket).put(head_of(50, b"abc"), Bytes(b"abc"))
    with _link(service) as (link, _):
        for asked in (GetSnapshot("bank", 51), GetSnapshot("bank", 50, 4), GetSnapshot("bank", 50, -1)):
            link.send(asked)
            assert isinstance(link.next(5), SnapshotMissing)
        link.send(GetSnapshot("bank", 50, 1))
        assert isinstance(link.next(5), SnapshotFound)
        assert link.next(5).content == b"bc"


PUT_AS_NOBODY = f"""
import os, sys
from totempole.client.blocking_log_reader import LogReader
from totempole.client.log_endpoints import log_endpoints
from totempole.log.snapshots import StoredHead
from totempole.objects.snapshot_store import BlockingSnapshotStore
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
try:
    store = BlockingSnapshotStore(LogReader(log_endpoints(sys.argv[1])))
    print(store.put(StoredHead("bank", 1, "Bank", 1, 0, 0), None))
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(
    ("users", "reply"),
    [((), f"user {NOBODY} may not read this log"), ((str(NOBODY),), "SnapshotStored(processor=1")],
)
def test_only_those_who_may_send_may_put(users: tuple[str, ...], reply: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        log = WrittenLog(path / "log")
        log.append([b"x"] * 100)
        with serving(log.directory, path / "clients-log.sock", socket_mode=0o666, users=users):
            argv = [sys.executable, "-c", PUT_AS_NOBODY, str(path / "clients.sock")]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert reply in done.stdout + done.stderr


def test_programs_on_other_hosts_put_and_get_by_tls(tmp_path: Path, log: WrittenLog) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.path}
    texts = {name: str(path) for name, path in files.items()}
    with serving(log.directory, tmp_path / "clients-log.sock", listen=address, **texts):
        endpoints = log_endpoints(None, address, Tls(*authority.issue("host"), authority.path))
        store = BlockingSnapshotStore(blocking_log_reader.LogReader(endpoints))
        content = os.urandom(5 * MIB)
        assert store.put(head_of(50, content), Bytes(content)).positions == (50,)
        loaded = store.load("bank")
        assert loaded is not None
        assert loaded.content == content


def test_a_put_that_hangs_keeps_no_other_from_putting(log: WrittenLog) -> None:
    """In this process, with a short patience."""

    async def never(_: int) -> Request:
        await asyncio.sleep(60)
        raise AssertionError

    async def put() -> None:
        source = Source(log.directory)
        keeping_up = asyncio.create_task(source.keep_up())
        await source.refresh()
        service = SnapshotService(source, 1, lambda text: None)
        sent: list[Any] = []

        async def send(answer: Any) -> None:
            sent.append(answer)

        with pytest.raises(EOFError):
            await service.put(PutSnapshot(head_of(50, b"state", log=LOG)), never, send)
        assert sent == [PutFrom(0, 0)]

        async def good(_: int) -> Request:
            return PutChunk(b"state")

        await service.put(PutSnapshot(head_of(50, b"state", log=LOG)), good, send)
        assert sent[-1] == SnapshotStored(1, (50,))
        service.close()
        keeping_up.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_module, "PUT_SILENCE_S", 0.1)
        asyncio.run(put())
