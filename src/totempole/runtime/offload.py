"""UDP segmentation and receive offload: many datagrams in one system call (DESIGN: the fast path).

The kernel may refuse either, at once or at the first datagram. Then a node goes on without, says so in its
log, and shows it in its status.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from functools import cache
from struct import pack

UDP_SEGMENT = 103
UDP_GRO = 104

SEGMENTS_MAX = 64
"""Datagrams that the kernel takes in one call."""

REFUSALS = frozenset({errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
"""How a kernel, or a device, says that it will not cut a burst."""


@dataclass(slots=True)
class Offload:
    """What is in use, and why not, if not."""

    send: bool = True
    receive: bool = True
    reason: str = ""

    def refuse_send(self, reason: str) -> None:
        self.send = False
        self.reason = reason

    def refuse_receive(self, reason: str) -> None:
        self.receive = False
        self.reason = reason


def enable_receive(sock: socket.socket, offload: Offload) -> None:
    if offload.receive:
        try:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        except OSError as error:
            offload.refuse_receive(f"UDP_GRO: {error.strerror}")


def probe_send(sock: socket.socket, offload: Offload) -> None:
    if offload.send:
        try:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)
        except OSError as error:
            offload.refuse_send(f"UDP_SEGMENT: {error.strerror}")


@cache
def segment_option(segment_bytes: int) -> list[tuple[int, int, bytes]]:
    """The control message that has a burst cut into datagrams of this size."""
    return [(socket.IPPROTO_UDP, UDP_SEGMENT, pack("=H", segment_bytes))]


def received_segment_bytes(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The size of the datagrams that a read gave back to back; 0 if it gave a single one."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_UDP and kind == UDP_GRO:
            return int.from_bytes(data[:4], "little")
    return 0
