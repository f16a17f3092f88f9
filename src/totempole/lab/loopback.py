"""Hosts without root: addresses of the loopback interface. Real processes and real sockets, but no faults of
the network other than those of processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any


class LoopbackHost:
    """One address of 127.0.0.0/8, where programs run like anywhere on this machine."""

    def __init__(self, number: int) -> None:
        self.number = number
        # A process of its own may have a lab of its own: its number keeps the two apart.
        self.address = f"127.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}.{number}"
        self.address6 = ""
        self.addresses, self.addresses6 = (self.address,), (self.address6,)

    def popen(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen([os.fspath(word) for word in argv], **options)


class LoopbackLab:
    def __init__(self, hosts: int) -> None:
        self.hosts = {number: LoopbackHost(number) for number in range(1, hosts + 1)}
