"""A host that overhears tokens and shows them to a wrong member. It has no key, and needs none.

Run as a program, it sends on every UDP datagram that its network card sees, as it is. It ends when its
standard input is closed, and prints how many it has shown.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from totempole.lab import Lab, commands, queues
from totempole.lab.filter import port

ETHERNET_BYTES = 14
UDP_HEADER_BYTES = 8
ETH_P_IP = 0x0800
TOKEN_PORT = 5401
FRAME_BYTES_MAX = 65_535


class Eavesdropper:
    """On a host of its own. The switch mirrors tokens of one link to it."""

    def __init__(self, lab: Lab, host: int) -> None:
        self.shown = 0
        """Known when it has ended."""
        self._lab = lab
        self._host = host

    @contextmanager
    def showing(self, source: int, target: int, wrong: int) -> Iterator[None]:
        """Each token from `source` to `target` is shown to `wrong` too."""
        hosts, device = self._lab.hosts, port(source)
        argv = [sys.executable, "-P", __file__, hosts[wrong].address]
        program = hosts[self._host].popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        commands.tc(self._mirror(device, hosts[target].address), self._lab.switch)
        try:
            yield
        finally:
            commands.tc([queues.end_detour(device)], self._lab.switch)
            self.shown = int(program.communicate()[0])

    def _mirror(self, device: str, address: str) -> list[str]:
        tokens = f"match ip dst {address} match ip dport {TOKEN_PORT} 0xffff"
        return [
            f"qdisc add dev {device} ingress",
            f"filter add dev {device} parent ffff: protocol ip u32 {tokens} "
            f"action mirred egress mirror dev {port(self._host)}",
        ]


def show(address: str) -> int:
    """Sends on what it hears, until its input ends; gives how much that was."""
    shown = 0
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP)) as ear,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
    ):
        while True:
            ready, _, _ = select.select([ear, sys.stdin], [], [])
            if sys.stdin in ready:
                return shown
            mouth.sendto(datagram_of(ear.recv(FRAME_BYTES_MAX)), (address, TOKEN_PORT))
            shown += 1


def datagram_of(frame: bytes) -> bytes:
    packet = frame[ETHERNET_BYTES:]
    header_bytes = 4 * (packet[0] & 0x0F)
    return packet[header_bytes + UDP_HEADER_BYTES :]


if __name__ == "__main__":
    print(show(sys.argv[1]))
