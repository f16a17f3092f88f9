"""Daemons (`totem node`) and programs as processes, on loopback, for tests of what a user runs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from totempole.runtime.status import StatusError, read_status

LIMIT_S = 60
"""A wait that ends is short; one that fails may have met a very busy machine."""

PORTS = range(12_000, 19_000, 8)
"""Below what the kernel gives away by itself, and apart from those of tests/runtime."""

PATIENT = "token_loss_us = 2000000\ntoken_retransmission_us = 200000\nconsensus_us = 100000\n"
"""A machine that stands still for a second breaks no ring of a test."""


def wait_until(holds: Callable[[], object], what: Callable[[], str] = lambda: "it does not come") -> None:
    end_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end_s, what()
        time.sleep(0.02)


class Daemon:
    """One `totem node`."""

    def __init__(self, number: int, directory: Path, settings: str) -> None:
        self.number = number
        self.directory = directory / f"node{number}"
        self.socket = self.directory / "clients.sock"
        self.file = directory / f"node{number}.toml"
        self.file.write_text(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] | None = None

    def start(self) -> None:
        with (self.directory.parent / f"log{self.number}").open("a") as log:
            argv = [sys.executable, "-m", "totempole", "node", "--config", str(self.file)]
            self.process = subprocess.Popen(argv, stderr=log, env=self.environment)

    def members(self) -> list[int]:
        try:
            document = read_status(self.directory)
        except StatusError:
            return []
        return document["members"] if document.get("state") == "operational" else []

    def log(self) -> str:
        return (self.directory.parent / f"log{self.number}").read_text()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            self.process = None


class Cluster:
    def __init__(self, count: int, directory: Path, port: int, ring: str, networks: Sequence[str]) -> None:
        numbers = range(1, count + 1)
        self.daemons = {
            number: Daemon(
                number,
                directory,
                f'processor = {number}\ndirectory = "node{number}"\nlag_alarm_ms = 60000\n'
                + _network_tables(number, numbers, port, networks)
                + f"[security]\nunsealed = true\n[ring]\n{ring}",
            )
            for number in numbers
        }

    def __getitem__(self, number: int) -> Daemon:
        return self.daemons[number]

    def start(self) -> None:
        for daemon in self.daemons.values():
            daemon.start()
        self.wait_for_ring(*self.daemons)

    def wait_for_ring(self, *numbers: int) -> None:
        wanted = list(numbers)
        wait_until(
            lambda: all(
                self.daemons[number].members() == wanted and self.daemons[number].socket.exists()
                for number in numbers
            ),
            lambda: "\n".join(daemon.log() for daemon in self.daemons.values()),
        )


def pause(them: Cluster, *numbers: int) -> None:
    """Nodes that hang: their sockets stay, and nobody answers."""
    _signal(them, numbers, signal.SIGSTOP)


def resume(them: Cluster, *numbers: int) -> None:
    _signal(them, numbers, signal.SIGCONT)


def _signal(them: Cluster, numbers: Sequence[int], how: signal.Signals) -> None:
    for number in numbers:
        process = them[number].process
        assert process is not None
        process.send_signal(how)


def _network_tables(number: int, numbers: Sequence[int], port: int, networks: Sequence[str]) -> str:
    """One network without a name, or several with names."""
    text = "[network]\n"
    for place, name in enumerate(networks or [""]):
        address = f"127.{port >> 8}.{(port & 255) + place}."
        peers = ", ".join(f'"{other}@{address}{other}"' for other in numbers)
        if name:
            text = f'{text if place else ""}[[network]]\nname = "{name}"\n'
        text += f'address = "{address}{number}"\nport = {port}\ntransport = "mesh"\npeers = [{peers}]\n'
    return text + ('[redundancy]\nstyle = "passive"\n' if len(networks) > 1 else "")


@contextmanager
def cluster(
    count: int, directory: Path, ring: str = PATIENT, networks: Sequence[str] = (), start: bool = True
) -> Iterator[Cluster]:
    """So many daemons that have formed a ring, on one network or on several, which have names; or that a test
    starts itself. Their place is held by a TCP socket, as in tests/runtime."""
    for port in PORTS:
        with socket.socket() as holder:
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                continue
            found = Cluster(count, directory, port, ring, networks)
            try:
                if start:
                    found.start()
                yield found
            finally:
                for daemon in found.daemons.values():
                    daemon.end(signal.SIGKILL)
            return
    raise AssertionError("every place is taken")


def _take_interrupts() -> None:
    """Who runs in the background of a shell inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """A process with lines in and lines out."""

    def __init__(self, argv: Sequence[str], directory: Path, **environment: str) -> None:
        number = len([*directory.glob("program*.out")])
        self.out_file, self.err_file = (directory / f"program{number}.{end}" for end in ("out", "err"))
        with self.out_file.open("wb") as out, self.err_file.open("wb") as err:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env=os.environ | environment,
                preexec_fn=_take_interrupts,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()

    def type(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    @property
    def out(self) -> str:
        return self.out_file.read_text(errors="backslashreplace")

    @property
    def err(self) -> str:
        return self.err_file.read_text(errors="backslashreplace")

    def wait_for(self, pattern: str) -> str:
        """Until a line of its output is that."""
        found: list[str] = []

        def there() -> bool:
            found[:] = re.findall(f"^{pattern}$", self.out, re.MULTILINE)
            assert found or self.process.poll() is None, f"{pattern!r} before it ended: {self.out}{self.err}"
            return bool(found)

        wait_until(there, lambda: f"{pattern!r} in: {self.out}{self.err}")
        return found[-1]

    def wait_for_remark(self, pattern: str) -> None:
        wait_until(lambda: re.search(pattern, self.err), lambda: f"{pattern!r} in: {self.err}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, how: signal.Signals | None = None) -> int:
        """By a signal, or by the end of its input."""
        if how is not None:
            self.process.send_signal(how)
        elif self.process.stdin:
            self.process.stdin.close()
        return self.process.wait(LIMIT_S)
