"""Programs that mean harm, and ones that may not come in: a daemon of a running ring bears them, and others
who behave, on the same daemon and on another, notice nothing."""

from __future__ import annotations

import random
import re
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from group_stage import STEADY, GroupStage, GroupStageMaker
from netns_stage import WAIT_S

from certificates import Authority
from totempole.groups import pack
from totempole.lab.cluster import Setup
from totempole.session import HEAD, AskGroups, Hello, Join, Kind, Large, Leave, Part, Policy, Send
from totempole.session.codec import encode

MIB = 1024 * 1024
CLIENTS_MAX = 300
UNREAD_MAX = 8 * MIB
MEMORY_MAX = 64 * MIB
CREDIT = MIB // 8
BESIDES = 48 * MIB
"""What a daemon may take beyond the memory that its setting allows: connections, and frames being read."""
SETTINGS = (
    f"clients.clients_max={CLIENTS_MAX}",
    f"clients.client_receive_bytes_max={UNREAD_MAX}",
    f"clients.memory_bytes_max={MEMORY_MAX}",
    f"clients.credit_bytes={CREDIT}",
    f"groups.message_bytes_max={16 * MIB}",
)
BEHAVED = {"p1": "c", "q1": "c", "p2": "c"}
LIMIT_S = 60.0
DESCRIPTORS = 4096


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    """For both ends of a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(DESCRIPTORS, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Attack:
    """Bad company for the daemon of host 1, by its socket."""

    def __init__(self, stage: GroupStage) -> None:
        self.stage = stage
        self.chance = random.Random(4)
        self.open = ExitStack()

    def connect(self, *frames: bytes) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        self.open.enter_context(sock)
        sock.connect(str(self.stage.daemons.socket(1)))  # with a time-out it would not wait for its turn
        sock.settimeout(LIMIT_S)
        with suppress(OSError):
            sock.sendall(b"".join(frames))
        return sock

    def shout(self, data: bytes, greet: bool = True) -> None:
        """And goes away, when the daemon has had enough of it."""
        with self.connect(encode(Hello("hostile")) if greet else b"", data) as sock, suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass

    # The kinds, and the reason that each is given in the log

    def random_bytes(self) -> None:
        for number in range(50):
            self.shout(self.chance.randbytes(self.chance.randrange(5, 5_000)), greet=bool(number % 2))

    def half_frames(self) -> None:
        whole = encode(Join(1, "half")) + encode(Send(("half",), pack([b"x" * 100])))
        for length in range(1, len(whole) - 1, 7):
            self.shout(whole[:length])

    def huge_lengths(self) -> None:
        for kind in (Kind.SEND, Kind.PART, Kind.JOIN, 99):
            for length in (2**32 - 1, 2**31, 2 * MIB):
                self.shout(HEAD.pack(length, kind) + bytes(1_000))

    def flood(self) -> None:
        """Without regard to the credit, for as long as the daemon bears it."""
        data = encode(Send(("nobody",), pack([bytes(10_000)]))) * (100 * CREDIT // 10_000)
        for _ in range(3):
            self.shout(data)

    def flood_of_requests(self) -> None:
        asks = [encode(Join(1, f"g{n}")) + encode(Leave(2, f"g{n}")) for n in range(50)]
        asks += [encode(AskGroups(n + 3)) for n in range(50)]
        for _ in range(5):
            self.connect(encode(Hello("hostile")), *asks).close()
        self.shout(encode(Leave(1, "no such group")) * 1_000 + b"\xff" * 5)

    def thousand_connections(self) -> None:
        for _ in range(1_000):
            self.connect()

    def never_read(self) -> None:
        for number in range(12):
            policy = Policy.SHED if number % 3 == 0 else Policy.DISCONNECT
            self.connect(encode(Hello("deaf")), encode(Join(1, "loud", policy)))
        self.stage.send("loud", "loud", 500_000, 3 * UNREAD_MAX // 500_000)

    def hoard(self) -> None:
        """Room for large messages that never come."""
        for _ in range(4):
            sock = self.connect(encode(Hello("hoarder")), encode(Large(1, Kind.SEND, 15 * MIB)))
            sock.settimeout(1)
            with suppress(OSError):
                while sock.recv(1_000):
                    sock.sendall(encode(Part(bytes(100_000))))


ATTACKS: tuple[tuple[Callable[[Attack], None], str], ...] = (
    (Attack.random_bytes, "frame unknown"),
    (Attack.half_frames, "hung up amid a frame"),
    (Attack.huge_lengths, "frame too long"),
    (Attack.flood, "overrun"),
    (Attack.flood_of_requests, "frame unknown"),
    (Attack.thousand_connections, "clients_max"),
    (Attack.never_read, "too slow"),
    (Attack.hoard, "hung up amid a frame"),
)


def test_hostile_programs_harm_nobody(groups: GroupStageMaker) -> None:
    with groups(hosts=2, setup=Setup(ring=STEADY), settings=SETTINGS) as stage:
        for name in BEHAVED:
            stage.program(name, int(name[1]), "c")
        stage.program("loud", 2, apart=True)
        stage.wait_members("c", *BEHAVED)
        for name in BEHAVED:
            stage.pace(name, "c", 40)
        stage.deliver(20)
        changes, views = stage.configuration_changes(), view_counts(stage)
        bound = stage.daemons.peak_resident_bytes(1) + MEMORY_MAX + BESIDES
        for attack, reason in ATTACKS:
            assert_borne(stage, attack, reason)
            assert stage.daemons.peak_resident_bytes(1) < bound, attack
        stage.wait(lambda: stage.status(1)["clients"]["clients"] == 2, "the attackers to be gone")
        stage.deliver(20, BEHAVED)
        assert stage.configuration_changes() == changes
        assert view_counts(stage) == views
    stage.assert_nothing_lost(BEHAVED)


def view_counts(stage: GroupStage) -> dict[str, int]:
    return {name: report["seen"]["view"] for name, report in stage.reports(BEHAVED).items()}


@contextmanager
def under(stage: GroupStage, attack: Callable[[Attack], None]) -> Iterator[None]:
    """While it lasts, and until all of it is over."""
    attacker = Attack(stage)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            attack(attacker)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    with attacker.open:
        try:
            yield
        finally:
            thread.join(2 * LIMIT_S)
        assert not thread.is_alive(), "the attack does not end"
        assert not failures, failures
        if attack is Attack.never_read:
            stage.wait(lambda: not stage.reports(["loud"])["loud"]["sending"], "all of the noise")
            stage.wait(
                lambda: "too slow" in stage.status(1)["clients"]["disconnected"], "a deaf one to be ended"
            )
            stage.deliver(20, BEHAVED)


def assert_borne(stage: GroupStage, attack: Callable[[Attack], None], reason: str) -> None:
    """The cause is in the log. That has so many lines a second for such things, and a busy machine makes an
    attack so slow that it is none: it is made again then."""
    give_up_s = time.monotonic() + WAIT_S
    while True:
        with under(stage, attack):
            stage.deliver(20, BEHAVED)
        if re.search(f'reason="?{reason}', stage.daemons.log(1)):
            return
        assert time.monotonic() < give_up_s, f"{reason} is not in the log\n{stage.logs()}"


# Who may come in

LET_IN, KEPT_OUT = 65_533, 65_534
COME_IN = """
import asyncio, os, ssl, sys
from totempole.client.endpoint import Tls
from totempole.client.events import Messages
from totempole.client.session import connect
from totempole.errors import TotemError

async def main(where, authority=None, *own):
    how = {"path": where}
    if authority:
        tls = Tls(*own, authority) if own else ssl.create_default_context(cafile=authority)
        how = {"host": where, "tls": tls}
    async with connect(**how, reconnect=False) as session, session.join("visitors") as group:
        await group.multicast(b"x" * 100)
        async for event in group:
            if isinstance(event, Messages):
                print("in")
                break

user, *words = sys.argv[1:]
os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
try:
    asyncio.run(main(*words))
except TotemError as error:
    print(error)
"""
PORT = 5410


def test_only_those_who_may_come_in(groups: GroupStageMaker, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="totempole-") as name:
        open_to_all = Path(name)
        open_to_all.chmod(0o755)
        authority = Authority(tmp_path)
        certificate, key = authority.issue("daemon", "10.77.0.1")
        settings = (
            f"clients.socket={open_to_all}/{{address}}.sock",
            "clients.socket_mode=0666",
            f'clients.users=["{LET_IN}"]',
            f"clients.listen={{address}}:{PORT}",
            f"clients.tls_certificate={certificate}",
            f"clients.tls_key={key}",
            f"clients.tls_authorities={authority.path}",
        )
        with groups(hosts=2, settings=settings) as stage:
            stage.program("p1", 1, "c")
            stage.program("p2", 2, "c")
            stage.wait_members("c", "p1", "p2")
            socket_path = str(stage.daemons.socket(1))
            assert come_in(stage, 1, LET_IN, socket_path) == "in"
            assert f"user {KEPT_OUT} may not connect" in come_in(stage, 1, KEPT_OUT, socket_path)
            daemon = f"{stage.lab.hosts[1].address}:{PORT}"
            own = authority.issue("spark.example")
            assert come_in(stage, 2, 0, daemon, authority.path, *own) == "in"
            (tmp_path / "other").mkdir()
            strangers = Authority(tmp_path / "other", "elsewhere").issue("spark.example")
            for certificates in (strangers, ()):
                assert "refused the session" in come_in(stage, 2, 0, daemon, authority.path, *certificates)
            stage.wait(lambda: sum(refusals(stage).values()) == 3, "three refusals")
            assert refusals(stage) == {"user": 1, "handshake": 2}
            assert {"user", "handshake"} <= set(re.findall("reason=(\\w+)", stage.daemons.log(1)))
            stage.pace("p1", "c", 40)
            stage.deliver(10)


def come_in(stage: GroupStage, host: int, user: int, where: str, *certificates: Path) -> str:
    argv = [sys.executable, "-P", "-c", COME_IN, str(user), where, *map(str, certificates)]
    return stage.lab.hosts[host].run(argv, timeout=LIMIT_S).stdout.strip()


def refusals(stage: GroupStage) -> dict[str, int]:
    refused: dict[str, int] = stage.status(1)["clients"]["refused"]
    return refused
