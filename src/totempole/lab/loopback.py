"""Hosts without root: addresses of the loopback interface. Real processes and real sockets; the network
itself has no faults but those of the daemons' own packet filters (`Daemons.cut`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any


class LoopbackHost:
    """One address of 127.0.0.0/8, where programs run like anywhere on this machine."""

    def __init__(self, number: int, network: str) -> None:
        self.number = number
        self.address = f"{network}.{number}"
        self.address6 = ""
        self.addresses, self.addresses6 = (self.address,), (self.address6,)

    def popen(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen([os.fspath(word) for word in argv], **options)


class LoopbackLab:
    def __init__(self, hosts: int, network: str = "") -> None:
        """`network`: the first three bytes of their addresses; those of this process if it is empty."""
        # A process of its own may have a lab of its own: its number keeps the two apart.
        own = f"127.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
        self.hosts = {number: LoopbackHost(number, network or own) for number in range(1, hosts + 1)}
