"""A host of a lab: one namespace, with an interface on each network."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from totempole.lab import commands

MULTICAST = "239.0.0.0/8"


class Host:
    """One namespace: its addresses, and programs that run there."""

    def __init__(self, namespace: str, number: int, ipv6: bool, networks: int = 1) -> None:
        self.namespace = namespace
        self.number = number
        self.addresses = tuple(f"10.77.{network}.{number}" for network in range(networks))
        """On each network, of a subnet of its own."""
        self.addresses6 = tuple(address6(network, number) if ipv6 else "" for network in range(networks))
        self.address, self.address6, self.device = self.addresses[0], self.addresses6[0], device(0)
        self._programs: list[subprocess.Popen[Any]] = []

    def popen(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program here; `options` are those of subprocess.Popen. Its `pid` is the program's own."""
        program = subprocess.Popen(self._inside(argv), **options)
        self._programs = [other for other in self._programs if other.poll() is None]
        self._programs.append(program)
        return program

    def run(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end; CalledProcessError when it fails, unless `check=False`."""
        chosen: dict[str, Any] = {"check": True, "capture_output": True, "text": True, **options}
        return subprocess.run(self._inside(argv), **chosen)

    def end_programs(self) -> None:
        for program in self._programs:
            if program.poll() is None:
                program.kill()
            program.wait()
        self._programs.clear()

    def _inside(self, argv: Sequence[str | os.PathLike[str]]) -> list[str]:
        return commands.inside(self.namespace, [os.fspath(word) for word in argv])

    def __repr__(self) -> str:
        return f"Host({self.number}, {self.namespace!r})"


# Names of what a network is made of, and its commands


def device(network: int) -> str:
    """A host's end of its cable."""
    return f"eth{network}"


def bridge(network: int) -> str:
    return f"br{network}"


def medium(network: int) -> str:
    return f"medium{network}"


def address6(network: int, number: int) -> str:
    return f"fd77:0:0:{network:x}::{number:x}" if network else f"fd77::{number:x}"


def port_line(end: str, network: int) -> str:
    return f"link set {end} addrgenmode none master {bridge(network)} up"


def interface_lines(host: Host, network: int) -> list[str]:
    """May be said again: an interface that is set down keeps its address and loses its routes."""
    name = device(network)
    return [
        f"link set {name} up",
        f"addr replace {host.addresses[network]}/24 brd + dev {name}",
        f"route replace {MULTICAST} dev {name} metric {network}",
        *address6_lines(host, network),
    ]


def address6_lines(host: Host, network: int) -> list[str]:
    # Duplicate address detection would keep the address unusable for a second or two.
    address = host.addresses6[network]
    return [f"addr replace {address}/64 dev {device(network)} nodad"] if address else []
