"""A cluster on this machine, without root: `totem node` on 127.0.0.1, .2, .3, that can be parted and killed.

    with LocalCluster(3, directory) as cluster:
        cluster.part([1], [2, 3])
        cluster.wait()
        cluster.heal()
        cluster.kill(2)
        cluster.start(2)
        cluster.wait()

Nothing is simulated: each node is a process of its own, with sockets, a disk and a durable log. A partition
is made by the daemons themselves, which drop what comes from the other side (runtime/packet_filter.py). The
nodes reach each other by unicast and share a key that was made for them: no other ring of this machine mixes
in.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from totempole.lab.commands import LabError
from totempole.lab.daemons import SETTLE_S, Daemons
from totempole.lab.loopback import LoopbackLab
from totempole.runtime import keyring
from totempole.runtime.status import StatusError

NODES_MAX = 16
PORT = 5400
PORTS_TRIED = range(PORT, PORT + 400, 10)
PAUSE_S = 0.02
LEAVE_S = 10.0

SETTINGS = """\
processor = {number}
directory = "node-{number}"

[network]
address = "{address}"
port = {port}
transport = "mesh"
peers = [{peers}]

[security]
key_file = "totem.key"

[clients]
clients_max = 100

[log]
enabled = true
replicas = [{replicas}]
"""


class LocalCluster:
    """Nodes by number, from 1. Each call that changes something returns at once; `wait` waits until the rings
    are as they should be."""

    def __init__(self, nodes: int, directory: Path, network: str = "", port: int = 0) -> None:
        """Files go to `directory`, where a cluster of before goes on. `network`: the first three bytes of the
        addresses, like 127.0.0; this process's own if it is empty. `port`: any that is free if it is 0."""
        if not 1 <= nodes <= NODES_MAX:
            raise LabError(f"{nodes} nodes: give a number from 1 to {NODES_MAX}")
        self.lab = LoopbackLab(nodes, network)
        self.directory = directory
        self.numbers = tuple(self.lab.hosts)
        self._held = ExitStack()
        with self._held as held:
            self._own_directory(held)
            self.port = self._free_port(port, held)
            self._held = held.pop_all()
        self.paused: set[int] = set()
        self.sides: tuple[tuple[int, ...], ...] = (self.numbers,)
        """Who hears whom; one side while the network is whole."""
        self._write_files()
        self.daemons = Daemons(self.lab, directory, None, filtered=True)

    def __enter__(self) -> Self:
        try:
            for number in self.numbers:
                self.start(number)
            self.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all of them at once, and waits for that."""
        for number in list(self.daemons.processes):
            self.kill(number)
        self._held.close()

    def leave(self) -> None:
        """All leave the ring together; whoever takes too long is killed by `close`."""
        for number in list(self.paused):
            self.resume(number)
        for number in self.daemons.processes:
            self.daemons.signal(number, signal.SIGTERM)
        give_up_s = time.monotonic() + LEAVE_S
        for process in self.daemons.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, give_up_s - time.monotonic()))

    # Files and ports

    def address(self, number: int) -> str:
        return self.lab.hosts[number].address

    def socket(self, number: int) -> Path:
        """For programs: the value of TOTEMPOLE_SOCKET."""
        return self.daemons.socket(number)

    def _own_directory(self, held: ExitStack) -> None:
        """Keeps it for this cluster alone while that lasts."""
        self.directory.mkdir(parents=True, exist_ok=True)
        known = len(list(self.directory.glob("node-*.toml")))
        if known not in (0, len(self.numbers)):
            raise LabError(f"{self.directory} has a cluster of {known} nodes: give --nodes {known}")
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"{self.directory}: another cluster runs there: give another directory") from None

    def _write_files(self) -> None:
        key_file = self.directory / "totem.key"
        if not key_file.exists():
            keyring.create(key_file)
        peers = ", ".join(f'"{number}@{self.address(number)}"' for number in self.numbers)
        replicas = ", ".join(map(str, self.numbers))
        for number in self.numbers:
            text = SETTINGS.format(
                number=number, address=self.address(number), port=self.port, peers=peers, replicas=replicas
            )
            (self.directory / f"node-{number}.toml").write_text(text, encoding="utf-8")

    def _free_port(self, wanted: int, held: ExitStack) -> int:
        """A port that the nodes can have, and the next one. It is held for them by TCP, which they do not
        use: another cluster that starts at the same time takes another port."""
        refused: list[str] = []
        for port in [wanted] if wanted else PORTS_TRIED:
            try:
                held.enter_context(_bound(socket.SOCK_STREAM, self.address(1), port))
                self._try_ports(port)
                return port
            except LabError as error:
                refused.append(str(error))
        raise LabError(f"{refused[0]}: give another --port, or end what uses it (ss -tulpn shows it)")

    def _try_ports(self, port: int) -> None:
        with ExitStack() as opened:
            for number in self.numbers:
                for each in (port, port + 1):
                    opened.enter_context(_bound(socket.SOCK_DGRAM, self.address(number), each))

    # Faults

    def part(self, *sides: Collection[int]) -> None:
        """Only nodes of one side hear each other. Nodes that no side names are a further side."""
        named = [number for side in sides for number in side]
        unknown = sorted(set(named) - set(self.numbers))
        if unknown:
            raise LabError(f"there is no node {unknown[0]}: give {_one_of(self.numbers)}")
        if len(set(named)) < len(named):
            raise LabError("a node is on one side only")
        rest = tuple(number for number in self.numbers if number not in named)
        self.sides = tuple(tuple(sorted(side)) for side in (*sides, rest) if side)
        for side in self.sides:
            for number in side:
                self._cut(number, [self.address(other) for other in self.numbers if other not in side])

    def heal(self) -> None:
        self.part(self.numbers)

    @property
    def is_parted(self) -> bool:
        return len(self.sides) > 1

    def _cut(self, number: int, addresses: Collection[str]) -> None:
        """A daemon that is paused does not answer until it is resumed, and one that has just started may not
        have its socket yet."""
        if number in self.paused:
            raise LabError(f"node {number} is paused: resume it first")
        give_up_s = time.monotonic() + SETTLE_S
        while True:
            try:
                self.daemons.cut(number, addresses)
                return
            except StatusError as error:
                if not self.is_running(number) or time.monotonic() > give_up_s:
                    raise LabError(f"node {number} cannot be parted: {error}") from error
                time.sleep(PAUSE_S)

    def start(self, number: int) -> None:
        self._check(number, running=False)
        self.daemons.start(number)

    def kill(self, number: int) -> None:
        """As a crash: kill -9."""
        self._check(number, running=True)
        self.paused.discard(number)
        self.daemons.kill(number)

    def stop(self, number: int) -> None:
        """The node leaves the ring. Waits for its end."""
        self._check(number, running=True)
        if number in self.paused:
            self.resume(number)
        self.daemons.end(number)

    def pause(self, number: int) -> None:
        """The process stands still, as on a machine that hangs."""
        self._check(number, running=True)
        self.daemons.signal(number, signal.SIGSTOP)
        self.paused.add(number)

    def resume(self, number: int) -> None:
        self._check(number, running=True)
        self.daemons.signal(number, signal.SIGCONT)
        self.paused.discard(number)

    def _check(self, number: int, *, running: bool) -> None:
        if number not in self.numbers:
            raise LabError(f"there is no node {number}: give {_one_of(self.numbers)}")
        if running and number not in self.daemons.processes:
            raise LabError(f"node {number} does not run: start it first")
        if not running and self.is_running(number):
            raise LabError(f"node {number} runs already")

    # How it is

    def is_running(self, number: int) -> bool:
        process = self.daemons.processes.get(number)
        return process is not None and process.poll() is None

    @property
    def rings(self) -> list[tuple[int, ...]]:
        """What should form: of each side, those that run."""
        alive = [number for number in self.daemons.processes if number not in self.paused]
        sides = [tuple(number for number in side if number in alive) for side in self.sides]
        return [side for side in sides if side]

    def wait(self, timeout_s: float = SETTLE_S) -> float:
        """Until the rings are `rings`, programs can connect, and a ring of all nodes has its log; gives the
        seconds that it took. LabError when a node has ended by itself, or when it takes too long."""
        started_s = time.monotonic()
        rings = self.rings
        self.daemons.wait_for(*rings, timeout_s=timeout_s)
        for number in (number for ring in rings for number in ring):
            while not self._takes_programs(number, with_log=rings == [self.numbers]):
                if time.monotonic() - started_s > timeout_s or not self.is_running(number):
                    raise LabError(f"node {number} is not ready: {self.daemons.said(number)}")
                time.sleep(PAUSE_S)
        return time.monotonic() - started_s

    def _takes_programs(self, number: int, with_log: bool) -> bool:
        log = self.status(number).get("log", {}) if with_log else {"standing": "primary"}
        return self.socket(number).exists() and log.get("standing") == "primary"

    def dropped(self, number: int) -> int:
        """Datagrams that the node's packet filter has dropped since its start."""
        return int(self.status(number).get("packet_filter", {}).get("dropped", 0))

    def status(self, number: int) -> dict[str, Any]:
        """Empty when there is no answer."""
        return self.daemons.status(number) if number not in self.paused else {}


def _bound(kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, kind)
    try:
        sock.bind((address, port))
    except (OSError, OverflowError) as error:
        sock.close()
        name = "TCP" if kind is socket.SOCK_STREAM else "UDP"
        raise LabError(f"{name} {address} port {port}: {getattr(error, 'strerror', error)}") from None
    return sock


def _one_of(numbers: Collection[int]) -> str:
    return ", ".join(map(str, numbers))
