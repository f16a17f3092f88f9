"""Corosync as a peer to be measured beside: its daemons on the hosts of a lab, clients of our own on them.

All settings but transport, encryption and addresses are corosync's defaults (token timeout, window, netmtu).
So is its realtime scheduling; but where there are more daemons than cores they then keep their clients from
running: `realtime=False` can be faster, and is to be tried by who looks for corosync's best.

A daemon has its own configuration, and its own /run, /dev/shm and state directory in a mount namespace, so
that many run on one machine; its sockets are apart by network namespace. The client is corosync_client.c,
compiled on the spot. Needs Debian's corosync, libcpg-dev and gcc: `missing()` tells.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from totempole.errors import TotemError
from totempole.lab import Host, Lab
from totempole.lab.commands import find_tool

SOURCE = Path(__file__).with_name("corosync_client.c")
HEADER = Path("/usr/include/corosync/cpg.h")
PORT = 5405
MULTICAST_GROUP = "239.192.77.1"
KEY_BYTES = 256
PRIVATE_DIRECTORIES = ("/run", "/dev/shm", "/var/lib/corosync")
START_S_MAX = 20.0
"""From the start of the daemons to a group of all clients. knet takes a few seconds to trust its links."""
START_TRIES_MAX = 3
ANSWER_S_MAX = 30.0
FAILOVER_S_MAX = 60.0
WARM_UP_S = 1.0
WINDOWS_BYTES = (16_000, 64_000, 256_000, 1_000_000)
"""Corosync is fastest with other windows at other sizes: each is tried for TRIAL_S, after SETTLING_S."""
WINDOW_MESSAGES_MIN = 4
SETTLING_S, TRIAL_S = 0.3, 0.7
SENDER = 1
"""The host that sends."""


class CorosyncError(TotemError):
    """Corosync did not do what it was to do. The text has the end of its log."""


class Transport(StrEnum):
    UDP = "udp"
    """IP multicast."""
    UDPU = "udpu"
    KNET = "knet"


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the slowest of the clients, one on each host, was delivered in the measured interval."""

    transport: Transport
    encrypted: bool
    message_bytes: int
    realtime: bool
    window: int
    """Messages of the sender that were under way at most: the fastest of those tried."""
    messages_per_s: float

    @property
    def megabytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes / 1e6


@dataclass(frozen=True, slots=True)
class Reading:
    """A client's counters at an instant of the monotonic clock."""

    at_ns: int
    delivered: int
    sent: int
    gap_ns: int = 0
    """The longest time without a delivery since the last reading."""
    changes: int = 0
    """Configurations of the ring, since the client has joined."""

    def messages_per_s_since(self, earlier: Reading) -> float:
        return (self.delivered - earlier.delivered) * 1e9 / (self.at_ns - earlier.at_ns)


def missing() -> str:
    """Why corosync cannot be run here, apart from what a lab needs; empty when it can."""
    packages = [name for name in ("corosync", "gcc") if find_tool(name) is None]
    packages += [] if HEADER.exists() else ["libcpg-dev"]
    return f"install the packages {', '.join(packages)}" if packages else ""


def transports(encrypted: bool) -> list[Transport]:
    """Corosync 3 encrypts over knet only."""
    return [Transport.KNET] if encrypted else list(Transport)


# What a user measures with


def throughput(
    lab: Lab,
    transport: Transport,
    encrypted: bool,
    message_bytes: int,
    seconds: float,
    realtime: bool = True,
) -> Throughput:
    """One sender keeps corosync full; ordered messages per second, as delivered at every host."""
    with Cluster(lab, transport, encrypted, realtime) as cluster:
        return cluster.throughput(message_bytes, seconds)


def latency(
    lab: Lab,
    transport: Transport,
    encrypted: bool,
    message_bytes: int = 64,
    rate: int = 200,
    count: int = 2000,
) -> list[float]:
    """Microseconds from sending to own delivery, one message each 1/rate s, in order of sending."""
    with Cluster(lab, transport, encrypted) as cluster:
        return cluster.latency(message_bytes, rate, count)


def failover(lab: Lab, transport: Transport, encrypted: bool = False) -> list[float]:
    """Milliseconds from kill -9 of the last host's daemon to the next configuration, at each other host."""
    with Cluster(lab, transport, encrypted) as cluster:
        return cluster.failover()


class Cluster:
    """A daemon on each host of the lab. Several sizes can be measured on one cluster; failover comes last."""

    def __init__(
        self,
        lab: Lab,
        transport: Transport,
        encrypted: bool = False,
        realtime: bool = True,
        links: int = 1,
        link_mode: str = "",
    ) -> None:
        """`links`: knet only, one on each of the lab's first networks; `link_mode`: passive, active or rr."""
        if encrypted and transport is not Transport.KNET:
            raise CorosyncError(f"transport is {transport}: corosync 3 encrypts over knet only")
        reason = missing()
        if reason:
            raise CorosyncError(f"corosync cannot be run here: {reason}")
        self._hosts = lab.hosts
        self._transport, self._encrypted, self._realtime = transport, encrypted, realtime
        self._links, self._link_mode = links, link_mode
        self._files = TemporaryDirectory(prefix="totempole-corosync-")
        self.directory = Path(self._files.name)
        self._daemons: dict[int, subprocess.Popen[Any]] = {}
        self._client = self.directory / "client"

    def __enter__(self) -> Cluster:
        try:
            compile_client(self._client)
            self._write_files()
            self._start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end_all()
        self._files.cleanup()

    def _start_all(self) -> None:
        """Daemons that start at the same time now and then never find each other: start them again."""
        for tries_left in reversed(range(START_TRIES_MAX)):
            for number, host in self._hosts.items():
                self._daemons[number] = self._start(host)
            try:
                for number, daemon in self._daemons.items():
                    self._telling(number, partial(_wait_for_daemon, daemon))
                with self._clients("sink", others="sink"):
                    return
            except CorosyncError:
                if not tries_left:
                    raise
                self._end_all()

    def _end_all(self) -> None:
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        self._daemons.clear()

    def _write_files(self) -> None:
        addresses = {number: host.addresses[: self._links] for number, host in self._hosts.items()}
        key = self.directory / "authkey"
        key.write_bytes(os.urandom(KEY_BYTES))
        key.chmod(0o400)
        for number in self._hosts:
            log = self._log(number)
            text = configuration(
                addresses, self._transport, self._encrypted, log, key, self._realtime, self._link_mode
            )
            self._file(number).write_text(text)

    def _file(self, number: int) -> Path:
        return self.directory / f"corosync-{number}.conf"

    def _log(self, number: int) -> Path:
        return self.directory / f"corosync-{number}.log"

    def _start(self, host: Host) -> subprocess.Popen[Any]:
        mounts = " && ".join(f"mount -t tmpfs tmpfs {directory}" for directory in PRIVATE_DIRECTORIES)
        # Every step becomes the next: the process that was started is the daemon.
        daemon = f"exec {find_tool('corosync')} -f -c {self._file(host.number)}"
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && {daemon}"]
        with (self.directory / f"output-{host.number}").open("wb") as output:
            return host.popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def throughput(self, message_bytes: int, seconds: float) -> Throughput:
        with self._clients("flood", str(message_bytes), others="sink") as clients:
            window = _best_window(clients, windows(message_bytes))
            rate = _rate(clients, window, WARM_UP_S, seconds)
        return Throughput(self._transport, self._encrypted, message_bytes, self._realtime, window, rate)

    def latency(self, message_bytes: int = 64, rate: int = 200, count: int = 2000) -> list[float]:
        words = map(str, (message_bytes, rate, count))
        with self._clients("latency", *words, others="sink") as (sender, *_):
            limit_s = START_S_MAX + count / rate
            return [float(line) for line in sender.lines_until("done", limit_s)]

    @contextmanager
    def paced(self, message_bytes: int, rate: int) -> Iterator[list[Client]]:
        """A client on each host sends so many messages a second, until the block ends."""
        with self._clients("pace", str(message_bytes), str(rate), others="pace") as clients:
            yield clients

    def failover(self) -> list[float]:
        last = max(self._hosts)
        with self._clients("watch", others="watch") as clients:
            time.sleep(WARM_UP_S)
            daemon = self._daemons[last]
            killed_ns = time.monotonic_ns()
            daemon.kill()
            survivors = [client for client in clients if client.number != last]
            found = [client.ring_of(len(self._hosts) - 1, FAILOVER_S_MAX) for client in survivors]
            daemon.wait()
        return [(at_ns - killed_ns) / 1e6 for at_ns in found]

    @contextmanager
    def _clients(self, mode: str, *words: str, others: str) -> Iterator[list[Client]]:
        """One on each host, the sender's first, all in the group."""
        clients: list[Client] = []
        members = str(len(self._hosts))
        try:
            for number in sorted(self._hosts, key=lambda number: number != SENDER):
                alike = number == SENDER or others == mode
                chosen = [mode, members, *words] if alike else [others, members]
                clients.append(Client(self._hosts[number], self._daemons[number].pid, self._client, chosen))
            for client in clients:
                self._telling(client.number, partial(client.expect, "ready", START_S_MAX))
            yield clients
        finally:
            for client in clients:
                client.close()

    def _telling(self, number: int, step: Callable[[], object]) -> None:
        """A step that fails is told with what the daemon had to say."""
        try:
            step()
        except CorosyncError as error:
            log = self._log(number)
            said = log.read_text(errors="replace")[-2000:] if log.exists() else "(no log)"
            raise CorosyncError(f"corosync over {self._transport}, host {number}: {error}\n{said}") from error


class Client:
    """corosync_client.c on a host, beside its daemon: in its mount namespace, where the shared memory is."""

    def __init__(self, host: Host, daemon_pid: int, program: Path, words: list[str]) -> None:
        self.number = host.number
        argv = ["nsenter", "--target", str(daemon_pid), "--mount", "--", str(program), *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._program = host.popen(argv, bufsize=0, **pipes)
        self._buffer = b""

    def close(self) -> None:
        self._program.kill()
        self._program.communicate()

    def reading(self, window: int | None = None) -> Reading:
        """A sender may be told how many of its messages may be under way from now on; at first none."""
        assert self._program.stdin is not None
        self._program.stdin.write(b"\n" if window is None else b"%d\n" % window)
        return Reading(*map(int, self.line(ANSWER_S_MAX).split()))

    def expect(self, word: str, limit_s: float) -> None:
        for _ in self.lines_until(word, limit_s):
            pass

    def lines_until(self, word: str, limit_s: float) -> Iterator[str]:
        give_up_s = time.monotonic() + limit_s
        while (line := self.line(give_up_s - time.monotonic())) != word:
            yield line

    def ring_of(self, nodes: int, limit_s: float) -> int:
        """When the ring of so many nodes came."""
        give_up_s = time.monotonic() + limit_s
        while True:
            at_ns, count = map(int, self.line(give_up_s - time.monotonic()).split())
            if count == nodes:
                return at_ns

    def line(self, limit_s: float) -> str:
        give_up_s = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            self._buffer += self._read(give_up_s - time.monotonic())
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def _read(self, limit_s: float) -> bytes:
        assert self._program.stdout is not None
        readable, _, _ = select.select([self._program.stdout], [], [], max(limit_s, 0))
        data: bytes = os.read(self._program.stdout.fileno(), 65536) if readable else b""
        if not data:
            self._program.kill()
            said = self._program.communicate()[1].decode(errors="replace").strip()
            raise CorosyncError(said or "the client got no answer in time")
        return data


def windows(message_bytes: int) -> list[int]:
    return sorted({max(WINDOW_MESSAGES_MIN, size // message_bytes) for size in WINDOWS_BYTES})


def _best_window(clients: list[Client], candidates: list[int]) -> int:
    """From small to large, until it is clear that larger ones are worse."""
    rates: dict[int, float] = {}
    for window in candidates:
        rates[window] = _rate(clients, window, SETTLING_S, TRIAL_S)
        if rates[window] < max(rates.values()) / 2:
            break
    return max(rates, key=lambda window: rates[window])


def _rate(clients: list[Client], window: int, settling_s: float, seconds: float) -> float:
    """Messages per second at the slowest client, the first being the sender."""
    clients[0].reading(window)
    time.sleep(settling_s)
    before = [client.reading() for client in clients]
    time.sleep(seconds)
    after = [client.reading() for client in clients]
    _drain(clients[0])
    pairs = zip(before, after, strict=True)
    return min(later.messages_per_s_since(earlier) for earlier, later in pairs)


def _drain(sender: Client) -> None:
    """Until nothing is under way, or what waits in corosync's queues would count for the next measurement."""
    give_up_s = time.monotonic() + ANSWER_S_MAX
    reading = sender.reading(window=0)
    while reading.delivered < reading.sent:
        if time.monotonic() > give_up_s:
            raise CorosyncError(f"{reading.sent - reading.delivered} messages were never delivered")
        time.sleep(0.01)
        reading = sender.reading()


def compile_client(target: Path) -> None:
    flags = ["-O2", "-Wall", "-Wextra"]
    argv = ["gcc", *flags, "-o", str(target), str(SOURCE), "-lcpg", "-lcorosync_common"]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise CorosyncError(f"{SOURCE.name} does not compile: {done.stderr.strip()}")


def _wait_for_daemon(daemon: subprocess.Popen[Any]) -> None:
    """Until the process is corosync itself: only then are its private directories mounted."""
    give_up_s = time.monotonic() + START_S_MAX
    while _name_of(daemon.pid) != "corosync":
        if daemon.poll() is not None or time.monotonic() > give_up_s:
            raise CorosyncError(f"the daemon did not start (exit code {daemon.poll()})")
        time.sleep(0.01)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def configuration(
    addresses: Mapping[int, Sequence[str]],
    transport: Transport,
    encrypted: bool,
    log: Path,
    key: Path,
    realtime: bool = True,
    link_mode: str = "",
) -> str:
    """A corosync.conf; what is not in it is at its default. A node has an address for each of its links."""
    totem = ["version: 2", "cluster_name: totempole-bench", f"transport: {transport}"]
    if encrypted:
        totem += ["crypto_model: openssl", "crypto_cipher: aes256", "crypto_hash: sha256", f"keyfile: {key}"]
    else:
        totem += ["crypto_cipher: none", "crypto_hash: none"]
    if transport is not Transport.KNET:
        totem += _interface(addresses[SENDER][0], transport)
    if link_mode:
        totem.append(f"link_mode: {link_mode}")
    logging = ["to_syslog: no", "to_stderr: no", "to_logfile: yes", f"logfile: {log}", "timestamp: hires"]
    nodes = [line for number, own in addresses.items() for line in _section("node", _node(number, own))]
    sections = [("totem", totem), ("nodelist", nodes), ("logging", logging)]
    if not realtime:
        sections.append(("system", ["sched_rr: no"]))
    return "\n".join(line for name, lines in sections for line in _section(name, lines)) + "\n"


def _node(number: int, addresses: Sequence[str]) -> list[str]:
    links = [f"ring{link}_addr: {address}" for link, address in enumerate(addresses)]
    return [*links, f"nodeid: {number}", f"name: host{number}"]


def _interface(address: str, transport: Transport) -> list[str]:
    lines = ["ringnumber: 0", f"bindnetaddr: {address.rsplit('.', 1)[0]}.0", f"mcastport: {PORT}"]
    if transport is Transport.UDP:
        lines.append(f"mcastaddr: {MULTICAST_GROUP}")
    return _section("interface", lines)


def _section(name: str, lines: list[str]) -> list[str]:
    return [f"{name} {{", *(f"    {line}" for line in lines), "}"]
