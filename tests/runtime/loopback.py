"""Places on loopback that no other test uses at the same time, and ways to wait for what must come."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

LIMIT_S = 60
"""A wait that ends is short; one that fails may have met a very busy machine."""

PORTS = range(20_000, 32_000, 8)
"""Below what the kernel gives away by itself."""

has_ipv6 = pytest.mark.skipif(
    not Path("/proc/net/if_inet6").exists() or "lo\n" not in Path("/proc/net/if_inet6").read_text(),
    reason="loopback has no IPv6 here",
)


class Place:
    """Eight UDP ports from `port` on, and addresses of 127/8 that go with them."""

    def __init__(self, port: int) -> None:
        self.port = port

    def address(self, number: int) -> str:
        return f"127.{self.port >> 8}.{self.port & 255}.{number}"


@contextmanager
def a_place() -> Iterator[Place]:
    """Held by a TCP socket, which is in no UDP socket's way."""
    for port in PORTS:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        with holder:
            yield Place(port)
        return
    raise AssertionError("every place is taken")


def wait_until(holds: Callable[[], object], what: str = "") -> None:
    end_s = time.monotonic() + LIMIT_S
    for turn in count():
        if holds():
            return
        assert time.monotonic() < end_s, what or "what was waited for has not come"
        time.sleep(min(0.05, 0.001 * turn))
