"""A partition without root: a daemon that drops what comes from some addresses.

For tests and for `totem dev`, on one machine. A daemon has a filter only if it was started with one (`totem
node --lab`), and that is refused on any address but loopback: no node of a real network can be cut off
this way. The filter is set anew by a request to the daemon's control socket.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from totempole.errors import ConfigurationError
from totempole.runtime.config import NodeConfig
from totempole.runtime.sockets import Read, Sockets


class PacketFilter:
    """Any thread may set `cut`; the driver's thread reads."""

    def __init__(self, cut: Iterable[str] = ()) -> None:
        self.cut = frozenset(cut)
        """Addresses: nothing that comes from them is heard."""
        self.dropped = 0
        """Datagrams, or bursts that the kernel put together."""

    def read(self, sock: socket.socket) -> Read | None:
        """The next that is not cut, or None."""
        while (arrived := Sockets.read(sock)) is not None and arrived.source[0] in self.cut:
            self.dropped += 1
        return arrived

    def document(self) -> dict[str, Any]:
        """For the node's status."""
        return {"cut": sorted(self.cut), "dropped": self.dropped}


def check_loopback(config: NodeConfig) -> None:
    """Raises ConfigurationError unless the node is on loopback only."""
    for network in config.networks:
        if not ip_address(network.address).is_loopback:
            raise ConfigurationError(
                f"--lab: the node is at {network.address}: a packet filter is for nodes on loopback"
            )
