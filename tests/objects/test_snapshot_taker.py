"""When snapshots are taken, how, and what becomes of providers that raise, hang or are killed."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

import pytest

from crowded import crowded
from totempole.errors import SessionError
from totempole.log.snapshots import StoredHead
from totempole.objects import snapshot_taker, spool
from totempole.objects.pace import LEAST_BYTES, RECORD_BYTES, Pace, stagger_of
from totempole.objects.snapshot_taker import SnapshotTaker, Subject
from totempole.objects.snapshot_transfer import Content, SnapshotRefusedError
from totempole.objects.spool import EncodingChild, ProviderError, Spool, encode_now
from totempole.session.log_frames import SnapshotStored


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.snapshots: dict[int, bytes] = {}
        self.heads: list[StoredHead] = []
        self.error: Exception | None = None

    def kept(self, object_name: str) -> StoredHead | None:
        return max(self.heads, key=lambda head: head.position, default=None)

    def put(self, head: StoredHead, content: Content) -> SnapshotStored:
        if self.error is not None:
            raise self.error
        found = content.read(0, head.size)
        assert crc32(found) == head.crc
        assert len(found) == head.size
        self.snapshots[head.position] = found
        self.heads.append(head)
        return SnapshotStored(3, tuple(sorted(self.snapshots, reverse=True)[:2]))


class Host:
    """Applies commands of 1000 bytes; the state is their number, `size` times."""

    def __init__(self, least_bytes: int = 10_000, **options: object) -> None:
        self.store = Kept()
        self.state = 0
        self.size = 1
        self.stored: list[tuple[int, ...]] = []
        self.can_fork = True
        self.provide: Callable[[], Iterable[bytes]] = lambda: [b"%08d" % self.state * self.size]
        self.taker = SnapshotTaker(
            self.store,
            "bank",
            lambda: Subject("bank", "Bank", 1, lambda: self.provide(), self.can_fork),
            lambda told: self.stored.append(told.positions),
            pace=Pace(least_bytes),
            run=lambda work: work(),
            **options,  # type: ignore[arg-type]
        )

    def apply(self, commands: int) -> None:
        for _ in range(commands):
            self.state += 1
            self.taker.applied(self.state, 1000 - RECORD_BYTES)


# When


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    pace = Pace(10_000)
    for position in range(1, 10):
        pace.applied(position, 1000 - RECORD_BYTES)
        assert not pace.is_due
    pace.applied(10, 1000 - RECORD_BYTES)
    assert pace.is_due


def test_snapshots_of_a_small_state_are_far_apart() -> None:
    """Each costs its program, the log service and the disk milliseconds, however small it is: programs call
    with 100 MB/s."""
    pace = Pace()
    pace.stored(1, 500)
    for position in range(2, 17):
        pace.applied(position, 1_000_000)
        assert not pace.is_due


@pytest.mark.parametrize("growth", [0.0, 0.3, 1.0])
def test_snapshots_cost_no_more_than_the_commands(growth: float) -> None:
    """Whatever part of the commands stays in the state."""
    pace = Pace(1_000)
    written = commands = 0
    taken = []
    for position in range(1, 100_001):
        pace.applied(position, 100 - RECORD_BYTES)
        commands += 100
        if pace.is_due:
            size = 500 + int(growth * commands)
            pace.mark()
            pace.stored(position, size)
            written += size
            taken.append(position)
    assert written <= 2 * commands + 1_000
    if growth == 1.0:
        assert len(taken) < 20, "distances double"


def test_the_same_commands_give_the_same_moments() -> None:
    def moments() -> list[int]:
        host = Host()
        host.apply(200)
        return sorted(host.store.snapshots)

    assert moments() == moments()


def test_hosts_do_not_all_take_theirs_at_once() -> None:
    staggers = {stagger_of("bank", processor) for processor in range(1, 10)}
    assert len(staggers) == 9
    assert all(0 <= each <= 1 for each in staggers)
    first, second = (Pace(LEAST_BYTES, stagger=stagger_of("bank", each)) for each in (1, 2))
    assert first.distance_bytes != second.distance_bytes


def test_another_programs_snapshot_counts() -> None:
    pace = Pace(10_000)
    for position in range(1, 101):
        pace.applied(position, 1000 - RECORD_BYTES)
    assert pace.since_bytes == 100_000
    pace.stored(95, 500)
    assert 5_000 <= pace.since_bytes <= 6_000
    pace.stored(50, 500)
    assert pace.since_bytes <= 6_000, "it is older than one that is known"
    pace.stored(1_000, 500)
    assert pace.since_bytes == 0, "it is ahead of this host"


def test_what_is_remembered_of_positions_is_bounded() -> None:
    pace = Pace(1_000)
    for position in range(1, 200_000):
        pace.applied(position, 1_000)
    assert len(pace._positions) <= 128
    pace.stored(100_000, 1)
    assert pace.since_bytes == pytest.approx(100_000 * 1_064, rel=0.05)


def test_failures_double_the_distance_up_to_a_bound() -> None:
    pace = Pace(1_000)
    distances = []
    for _ in range(10):
        pace.failed()
        distances.append(pace.distance_bytes)
    assert distances[:3] == [2_000, 4_000, 8_000]
    assert distances[-1] == distances[-2] == 64_000
    pace.stored(0, 0)
    assert pace.distance_bytes == 1_000


# How


def test_snapshots_are_of_the_position_where_they_are_taken() -> None:
    host = Host()
    host.apply(100)
    assert len(host.store.snapshots) >= 5
    for position, content in host.store.snapshots.items():
        assert int(content) == position
    assert host.stored[-1] == tuple(sorted(host.store.snapshots, reverse=True)[:2])


def test_the_first_is_encoded_in_a_child_and_small_ones_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_taker, "SLOW_S", 60.0)  # a busy machine is no slow provider
    host = Host()
    host.provide = lambda: [b"%d" % os.getpid()]
    host.apply(60)
    pids = [int(content) for _, content in sorted(host.store.snapshots.items())]
    assert pids[0] != os.getpid()
    assert set(pids[1:]) == {os.getpid()}


def test_large_ones_are_encoded_in_a_child() -> None:
    host = Host(small_bytes=100)
    host.provide = lambda: [b"%d" % os.getpid(), bytes(1_000)]
    host.apply(60)
    pids = [int(content.rstrip(b"\0")) for content in host.store.snapshots.values()]
    assert len(pids) > 3
    assert os.getpid() not in pids


def test_small_ones_that_take_long_are_encoded_in_a_child_next_time() -> None:
    host = Host()
    pids = []

    def provide() -> Iterable[bytes]:
        time.sleep(0.03)
        return [b"%d" % os.getpid()]

    host.provide = provide
    host.apply(60)
    pids = [int(content) == os.getpid() for _, content in sorted(host.store.snapshots.items())]
    assert pids[:4] == [False, True, False, False]


def test_commands_that_are_applied_meanwhile_are_not_in_it() -> None:
    waiting: list[Callable[[], None]] = []
    host = Host(small_bytes=0)
    host.taker.run = waiting.append
    host.apply(10)
    waiting.pop()()  # asks
    host.apply(1)
    assert host.taker.is_busy
    host.apply(30)
    waiting.pop()()  # encodes and puts
    host.apply(1)
    assert host.store.snapshots == {11: b"%08d" % 11}
    assert not host.taker.is_busy


def test_it_asks_before_it_takes_one() -> None:
    host = Host()
    host.apply(9)
    host.store.heads.append(StoredHead("bank", 9, "Bank", 1, 8, 0))
    host.apply(6)
    assert host.store.snapshots == {}, "another program has put one"
    host.apply(10)
    assert len(host.store.snapshots) == 1


@pytest.mark.parametrize("kind", ["busy", "old"])
def test_another_programs_put_is_no_error(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.store.error = SnapshotRefusedError(kind, "others")
    host.apply(50)
    assert not caplog.records
    host.store.error = None
    host.apply(20)
    assert host.store.snapshots


def test_one_that_is_not_due_can_be_asked_for() -> None:
    host = Host()
    host.apply(1)
    host.taker.begin()
    host.taker.settle()
    host.taker.settle()
    assert list(host.store.snapshots) == [1]


def test_one_can_be_of_a_later_position_than_the_last_command() -> None:
    """What lies between is of other logs: an object that nobody calls does not hold the log back."""
    host = Host()
    host.apply(3)
    for position in (500, 900, 900):
        host.taker.begin(position)
        host.taker.settle()
        host.taker.settle()
    assert host.store.snapshots == {500: b"%08d" % 3, 900: b"%08d" % 3}
    host.taker.begin(1_000)
    host.state = 2_000
    host.taker.applied(2_000, 10)
    host.taker.settle()
    assert max(host.store.snapshots) == 2_000, "commands that came meanwhile are in it"


def test_a_class_that_is_more_than_memory_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", _fail)
    host = Host(small_bytes=0)
    host.can_fork = False
    host.apply(20)
    assert host.store.snapshots


# Where there is no fork


def _fail(*_: object) -> int:
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


def test_where_a_fork_fails_it_is_encoded_between_two_commands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "fork", _fail)
    before = os.listdir("/proc/self/fd")
    host = Host(small_bytes=0)
    host.apply(100)
    assert len(host.store.snapshots) >= 3
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, "once"
    assert "cannot be started" in said[0]
    assert "calls wait" in said[0]
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("count", [0, 1], ids=["asking", "putting"])
def test_where_no_thread_can_be_started_calls_go_on(count: int, caplog: pytest.LogCaptureFixture) -> None:
    """Where processes are limited, threads are, too."""

    def run(work: Callable[[], None]) -> None:
        begun.append(work)
        if len(begun) == count + 1:
            raise RuntimeError("can't start new thread")
        work()

    begun: list[Callable[[], None]] = []
    host, before = Host(), (children(), set(os.listdir("/proc/self/fd")))
    host.taker.run = run
    host.apply(50)
    assert host.stored, "it is tried again"
    assert "can't start new thread" in caplog.text
    assert (children(), set(os.listdir("/proc/self/fd"))) == before


def test_where_there_is_no_fork_it_is_encoded_between_two_commands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(os, "fork")
    host = Host()
    host.apply(30)
    assert host.store.snapshots
    assert "this platform cannot fork" in caplog.text


# Providers


def _raise() -> Iterator[bytes]:
    yield b"some"
    raise ValueError("a lock cannot be carried")


def _raise_at_once() -> Iterable[bytes]:
    raise RecursionError("too deep")


def _hang() -> Iterable[bytes]:
    time.sleep(60)
    return []


def _die() -> Iterable[bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def _leave() -> Iterable[bytes]:
    raise SystemExit(0)


def children() -> set[str]:
    """Of this process, those that have ended and were not waited for included."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return set(file.read().split())


@pytest.mark.parametrize(
    ("provide", "text"),
    [
        (_raise, "ValueError: a lock cannot be carried"),
        (_raise_at_once, "RecursionError: too deep"),
        (_hang, "longer than 0.2 s"),
        (_die, "by signal 9"),
        (_leave, "SystemExit: 0"),
    ],
)
def test_a_provider_that_fails_is_told_once_and_calls_go_on(
    caplog: pytest.LogCaptureFixture, provide: Callable[[], Iterable[bytes]], text: str
) -> None:
    host = Host(deadline_s=0.2 if provide is _hang else 30.0)  # a busy machine takes long to fork
    good, host.provide = host.provide, provide
    before = len(os.listdir("/proc/self/fd"))
    others = children()
    host.apply(60)
    assert host.store.snapshots == {}
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "object bank: no snapshot could be taken; calls go on" in said[0]
    assert text in said[0]
    host.provide = good
    host.taker._deadline_s = 30.0
    host.apply(200)
    assert host.store.snapshots, "it is tried again"
    assert len(os.listdir("/proc/self/fd")) == before
    assert children() <= others, "no child is left"


@pytest.mark.parametrize("provide", [_raise, _raise_at_once])
def test_a_provider_that_raises_between_two_commands(
    caplog: pytest.LogCaptureFixture, provide: Callable[[], Iterable[bytes]]
) -> None:
    host = Host()
    host.can_fork = False
    host.provide = provide
    host.apply(60)
    assert host.store.snapshots == {}
    assert len(caplog.records) == 1


def test_a_service_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.store.error = SessionError("no log service at /x")
    host.apply(300)
    assert len(caplog.records) == 1
    assert "no log service" in caplog.text
    assert "it is tried again" in caplog.text


def test_a_full_disk_of_the_program_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    host = Host()
    host.can_fork = False
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        host.apply(30)
    assert "No space left" in caplog.text
    host.apply(100)
    assert host.store.snapshots


def test_a_subject_that_raises_is_no_end(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()

    def fail() -> Subject:
        raise RuntimeError("no subject")

    host.taker._subject = fail
    host.apply(30)
    assert "no subject" in caplog.text


def test_closing_gives_up_what_is_being_encoded(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    threads: list[threading.Thread] = []

    def run(work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        threads.append(thread)

    host.taker.run = run
    host.provide = _hang
    host.apply(10)
    threads[0].join()
    host.apply(1)
    started_s = time.monotonic()
    host.taker.close()
    threads[1].join()
    assert time.monotonic() - started_s < 5
    host.apply(100)
    assert len(threads) == 2
    assert not caplog.records


# The child


def _encoded(provide: Callable[[], Iterable[bytes]]) -> bytes:
    file = Spool()
    try:
        EncodingChild(provide, file, 10).wait()
        return file.read(0, file.size)
    finally:
        file.close()


def test_the_child_has_no_descriptors_of_the_program() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)

    def provide() -> Iterable[bytes]:
        return [" ".join(sorted(os.listdir("/proc/self/fd"), key=int)).encode()]

    open_there = [int(word) for word in _encoded(provide).split()]
    os.close(reading)
    os.close(writing)
    assert writing not in open_there
    assert len(open_there) <= 3 + 2 + 1, "standard ones, the file, the report, and that of the listing"


def test_a_program_with_many_descriptors_gets_its_snapshots() -> None:
    with crowded():
        assert _encoded(lambda: [b"state"]) == b"state"


def test_the_childs_prints_lead_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    def provide() -> Iterable[bytes]:
        os.write(1, b"hello")
        os.write(2, b"hello")
        return [b"x"]

    assert _encoded(provide) == b"x"
    assert capfd.readouterr() == ("", "")


def test_signals_of_the_program_are_not_the_childs() -> None:
    seen: list[int] = []
    old = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:

        def provide() -> Iterable[bytes]:
            os.kill(os.getpid(), signal.SIGTERM)
            return [b"%d" % len(seen)]

        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert _encoded(provide) == b"0"
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
        assert not seen
    finally:
        signal.signal(signal.SIGTERM, old)


def test_a_child_whose_program_is_gone_is_ended_by_the_kernel() -> None:
    file = Spool()
    child = EncodingChild(_hang, file, 0.3)
    started_s = time.monotonic()
    _, status = os.waitpid(child.pid, 0)
    assert os.WTERMSIG(status) == signal.SIGALRM
    assert time.monotonic() - started_s < 5
    with pytest.raises(ProviderError):
        child.wait()
    file.close()


def test_a_program_that_waits_for_all_its_children_is_no_harm() -> None:
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert _encoded(lambda: [b"abc", bytearray(b"de"), memoryview(b"f")]) == b"abcdef"  # type: ignore[list-item]
    finally:
        signal.signal(signal.SIGCHLD, old)


@pytest.mark.search
def test_a_fork_while_other_threads_hold_locks() -> None:
    """Logging, printing and allocating all the time: the child is never caught in a lock of theirs."""
    stop = threading.Event()
    logger = logging.getLogger("noise")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False

    def noise() -> None:
        while not stop.is_set():
            logger.error("x")
            b"".join([bytes(100) for _ in range(100)])

    threads = [threading.Thread(target=noise) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            assert len(_encoded(lambda: [bytes(1000)] * 10)) == 10_000
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_fork_from_another_thread_than_the_first() -> None:
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(_encoded(lambda: [b"abc"])))
    thread.start()
    thread.join()
    assert found == [b"abc"]


def test_encoding_at_once_gives_the_same() -> None:
    file = Spool()
    encode_now(lambda: [b"abc", b"", b"def"], file)
    assert (file.read(0, 100), file.size, file.crc) == (b"abcdef", 6, crc32(b"abcdef"))
    assert file.read(4, 100) == b"ef"
    file.close()


# Mistakes that these tests must find


def test_descriptors_that_stay_open_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_close_all_but", lambda *_: None)
    with pytest.raises(AssertionError):
        test_the_child_has_no_descriptors_of_the_program()


def test_signals_that_are_not_blocked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: frozenset())
    with pytest.raises((AssertionError, ProviderError)):
        test_signals_of_the_program_are_not_the_childs()


def test_taking_one_position_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = SnapshotTaker._take

    def off(taker: SnapshotTaker) -> None:
        taker._position += 1
        advance(taker)

    monkeypatch.setattr(snapshot_taker.SnapshotTaker, "_take", off)
    with pytest.raises(AssertionError):
        test_snapshots_are_of_the_position_where_they_are_taken()
