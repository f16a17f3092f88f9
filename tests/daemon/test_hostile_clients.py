"""Hostile clients. Beside each, two well-behaved ones talk to each other all the time and notice nothing;
what the daemon keeps for clients stays within its bound; the cause is logged."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import LIMIT_S, Daemon, daemon

from totempole.groups import GroupConfig, pack
from totempole.session import (
    FOR_GOOD,
    HEAD,
    AskGroups,
    Done,
    GroupTable,
    Hello,
    Join,
    Kind,
    Large,
    Leave,
    Part,
    Policy,
    Refused,
    Send,
)
from totempole.session.codec import encode

MIB = 1024 * 1024
SETTINGS: dict[str, Any] = {
    "client_receive_bytes_max": MIB,
    "memory_bytes_max": 8 * MIB,
    "credit_bytes": 65_536,
}
GROUPS = GroupConfig(message_bytes_max=2 * MIB, processes_max=2_000)


class Company:
    """One sends, the other receives, until told to stop; every message arrives, in its place."""

    def __init__(self, it: Daemon) -> None:
        self._sender, self._receiver = it.program("calm"), it.program("calm")
        self._receiver.join("calm")
        self._sent = self._received = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(part,)) for part in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as failure:
            self._failure = failure

    def _send(self) -> None:
        while not self._stop.is_set():
            self._sender.send("calm", b"%d" % self._sent)
            self._sent += 1
            self._stop.wait(0.001)
        self._sender.send("calm", b"end")

    def _receive(self) -> None:
        while True:
            for payload in self._receiver.payloads(1):
                if payload == b"end":
                    return
                assert payload == b"%d" % self._received
                self._received += 1

    def go_on(self, messages: int = 20) -> None:
        """Until so many more have arrived."""
        goal = self._received + messages
        waited = threading.Event()
        for _ in range(int(LIMIT_S * 100)):
            if self._received >= goal or self._failure is not None:
                break
            waited.wait(0.01)
        assert self._failure is None, self._failure
        assert self._received >= goal

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        self._sender.socket.close()
        self._receiver.socket.close()
        assert self._failure is None, self._failure
        assert self._received == self._sent > 0


@contextmanager
def beset(tmp_path: Path, **settings: Any) -> Iterator[tuple[Daemon, Company]]:
    with daemon(tmp_path, GROUPS, **{**SETTINGS, **settings}) as it:
        company = Company(it)
        try:
            company.go_on()
            yield it, company
            company.go_on()
        finally:
            company.finish()
        status = it.snapshot()
        assert status["queued_bytes"] + status["large_bytes"] <= it.service.config.memory_bytes_max


def shout(it: Daemon, data: bytes, greet: bool = True) -> Any:
    """Sends the bytes, and gives the last word of the daemon."""
    with it.program("hostile", greet=greet) as program:
        with suppress(ConnectionError):
            program.socket.sendall(data)
        with suppress(OSError):
            program.socket.shutdown(socket.SHUT_WR)
        return program.last()


@pytest.mark.parametrize("greet", [False, True])
def test_random_bytes(tmp_path: Path, greet: bool) -> None:
    chance = random.Random(4)
    with beset(tmp_path) as (it, _):
        for _ in range(100):
            shout(it, chance.randbytes(chance.randrange(5, 5_000)), greet)
        it.wait_for(lambda status: status["clients"] == 2)
        assert {"frame unknown", "frame too long"} & set(it.reasons())
        fields = next(fields for name, fields in it.logged if name == "client disconnected")
        assert fields["pid"] > 0
        assert fields["text"]


def test_frames_with_one_byte_changed(tmp_path: Path) -> None:
    chance = random.Random(5)
    frames = [
        encode(Join(1, "g")),
        encode(Send(("g", "h"), pack([b"a", b"bcd"]))),
        encode(Large(2, Kind.SEND, 5)) + encode(Part(b"12345")),
        encode(AskGroups(3)),
        encode(Leave(4, "g")),
    ]
    with beset(tmp_path) as (it, _):
        for _ in range(150):
            data = bytearray(b"".join(frames))
            data[chance.randrange(len(data))] = chance.randrange(256)
            shout(it, bytes(data))
        it.wait_for(lambda status: status["clients"] == 2)


def test_half_frames(tmp_path: Path) -> None:
    whole = encode(Hello("half")) + encode(Join(1, "g")) + encode(Send(("g",), pack([b"x" * 100])))
    with beset(tmp_path) as (it, _):
        for length in range(1, len(whole)):
            shout(it, whole[:length], greet=False)
        it.wait_for(lambda status: status["clients"] == 2)
        assert "hung up amid a frame" in it.reasons()


def test_huge_lengths(tmp_path: Path) -> None:
    with beset(tmp_path) as (it, _):
        for kind in range(40):
            for length in (2**32 - 1, 2**31, 2 * MIB):
                last = shout(it, HEAD.pack(length, kind) + bytes(1_000))
                assert isinstance(last, Refused)
                assert last.request == FOR_GOOD
        it.wait_for(lambda status: status["clients"] == 2)


def test_a_flood_without_regard_to_the_credit(tmp_path: Path) -> None:
    data = encode(Send(("nobody",), pack([bytes(1_000)]))) * 2_000
    with beset(tmp_path) as (it, company):
        for _ in range(5):
            shout(it, data)
            company.go_on(5)
        it.wait_for(lambda status: status["clients"] == 2)
        assert "overrun" in it.reasons()


def test_a_flood_of_requests(tmp_path: Path) -> None:
    """Joins and leaves cost no credit: the daemon does not listen while too many wait."""
    data = b"".join(encode(Join(1, f"g{n % 50}")) + encode(Leave(2, f"g{n % 50}")) for n in range(5_000))
    with beset(tmp_path) as (it, company):
        with it.program("hostile") as program:
            writer = threading.Thread(target=lambda: _write_all(program.socket, data))
            writer.start()
            company.go_on(50)
            program.socket.close() if not writer.is_alive() else program.socket.shutdown(socket.SHUT_RDWR)
            writer.join(LIMIT_S)
        it.wait_for(lambda status: status["clients"] == 2)


def _write_all(sock: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        sock.sendall(data)


def test_many_floods_at_once(tmp_path: Path) -> None:
    """Each within its credit: all reading, none resting."""
    with beset(tmp_path) as (it, company):
        programs = [it.program("flood") for _ in range(20)]
        stop = threading.Event()

        def flood(program: Any) -> None:
            program.join("flood", Policy.SHED)
            while not stop.is_set():
                program.send("flood", bytes(500))

        threads = [threading.Thread(target=flood, args=(program,)) for program in programs]
        for thread in threads:
            thread.start()
        company.go_on(200)
        assert it.snapshot()["queued_bytes"] <= SETTINGS["memory_bytes_max"]
        stop.set()
        for program in programs:
            with suppress(OSError):
                program.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(LIMIT_S)
        for program in programs:
            program.socket.close()


@pytest.fixture(autouse=True)
def _quiet_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flooding thread ends when its socket does, with whatever that raises."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)


def test_a_thousand_connections(tmp_path: Path) -> None:
    with beset(tmp_path, clients_max=500) as (it, company):
        sockets = []
        refused = 0
        for _ in range(1_000):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(it.path))  # waits while the listener's queue is full
            sock.settimeout(LIMIT_S)
            sockets.append(sock)
        it.wait_for(lambda status: status["refused"].get("clients_max", 0) == 502)
        for sock in sockets[498:]:
            data = sock.recv(1_000)
            refused += b"clients_max" in data
        assert refused == 502
        company.go_on()
        for sock in sockets:
            sock.close()
        it.wait_for(lambda status: status["clients"] == 2)
        with it.program() as newcomer:
            newcomer.join("g")


def test_never_reading(tmp_path: Path) -> None:
    with beset(tmp_path) as (it, company):
        deaf = [it.program("deaf") for _ in range(10)]
        for program in deaf:
            program.join("calm", Policy.SHED)
            program.join("loud")
        with it.program("loud") as loud:
            for _ in range(100):
                loud.send("loud", bytes(20_000))
                assert it.snapshot()["queued_bytes"] <= SETTINGS["memory_bytes_max"]
        it.wait_for(lambda status: status["disconnected"].get("too slow", 0) == 10)
        company.go_on()
        it.skip(10)
        it.wait_for(lambda status: status["clients"] == 2)
        for program in deaf:
            program.socket.close()
        assert "too slow" in it.reasons()


def test_never_reading_answers(tmp_path: Path) -> None:
    with beset(tmp_path) as (it, _):
        program = it.program("deaf")
        data = encode(Leave(1, "not joined")) * 1_000
        with suppress(OSError):
            while True:
                program.socket.sendall(data)
        it.wait_for(lambda status: status["disconnected"].get("too slow", 0) == 1)
        program.socket.close()


def test_asking_for_the_table_all_the_time(tmp_path: Path) -> None:
    with beset(tmp_path) as (it, company), it.program("curious") as program:
        for number in range(500):
            program.join(f"group-{number}")
        program.write(*[AskGroups(number + 1) for number in range(2_000)])
        answers = [program.next() for _ in range(2_000)]
        assert sum(isinstance(answer, GroupTable) for answer in answers) >= 1
        company.go_on()


def test_asking_to_send_and_vanishing(tmp_path: Path) -> None:
    large = 2 * MIB
    with beset(tmp_path) as (it, _):
        for _ in range(10):
            with it.program("vanishing") as program:
                program.write(Large(1, Kind.SEND, large))
                program.expect(Done)
                program.write(Part(bytes(1_000)))
        it.wait_for(lambda status: status["clients"] == 2)
        assert it.snapshot()["large_bytes"] == 0


def test_asking_to_send_and_keeping_the_others_waiting(tmp_path: Path) -> None:
    large = 2 * MIB
    with beset(tmp_path) as (it, company), it.program("patient") as patient:
        hoarders = [it.program("hoarder") for _ in range(2)]
        for program in hoarders:
            program.write(Large(1, Kind.SEND, large))
            program.expect(Done)
        patient.write(Large(1, Kind.SEND, large))
        it.wait_for(lambda status: status["large_waiting"] == 1)
        company.go_on()
        it.skip(40)
        patient.expect(Done)
        for program in hoarders:
            assert "did not come in time" in program.last().text
            program.socket.close()
        assert "grant unused" in it.reasons()


def test_a_greeting_that_never_ends(tmp_path: Path) -> None:
    with beset(tmp_path) as (it, company):
        slow = [it.program(greet=False) for _ in range(50)]
        for program in slow:
            program.socket.sendall(encode(Hello("x" * 100))[:-1])
        company.go_on()
        it.wait_for(lambda status: status["clients"] == 52)
        it.skip(6)
        it.wait_for(lambda status: status["clients"] == 2)
        for program in slow:
            assert "no HELLO within 5 s" in program.last().text
            program.socket.close()
        assert "no greeting" in it.reasons()


def test_complaints_do_not_fill_the_log(tmp_path: Path) -> None:
    with beset(tmp_path) as (it, _):
        for _ in range(200):
            shout(it, b"\xff" * 100, greet=False)
        it.wait_for(lambda status: status["clients"] == 2)
        lines = len(it.logged)
        assert lines < 200
        assert it.snapshot()["disconnected"]["frame unknown"] == 200
