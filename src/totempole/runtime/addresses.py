"""Where processors are: from the configuration, from a DNS name, and from what they say themselves.

A static list is the last word. Otherwise a processor is where it was last heard (`learned_addresses`): under
a seal nobody else can move it. The token's port is the one above the data's.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address

from totempole.learned_addresses import LearnedAddresses
from totempole.runtime.config import NetworkConfig
from totempole.runtime.sockets import Address
from totempole.types import ProcessorId

PORT_MAX = 65_534
"""The token has the port above."""


class AddressBook:
    def __init__(self, config: NetworkConfig) -> None:
        self._own: Address = (_canonical(config.address), config.port)
        self._static: dict[ProcessorId, Address] = {
            peer.processor: (_canonical(peer.address), peer.port or config.port)
            for peer in config.known_peers
        }
        self._learned: LearnedAddresses[Address] = LearnedAddresses()
        self._resolved: tuple[Address, ...] = ()
        self._group: Address | None = None
        if config.transport == "multicast":
            self._group = (config.group, config.port)
        self.everyone: tuple[Address, ...] = ()
        """Where data for all is sent: the group, or every peer in turn."""
        self.perhaps_everyone: tuple[Address, ...] = ()
        """Where Joins are sent."""
        self._update()

    def data_address(self, processor: ProcessorId) -> Address | None:
        return self._static.get(processor) or self._learned.known.get(processor)

    def token_address(self, processor: ProcessorId) -> Address | None:
        address = self.data_address(processor)
        return None if address is None else (address[0], address[1] + 1)

    def learn(self, processor: ProcessorId, source: Address, just_now: bool, now_us: int) -> None:
        """`just_now`: it is there. If not, it may have been."""
        if processor in self._static or source[1] > PORT_MAX:
            return
        if self._learned.learn(processor, source, just_now, now_us):
            self._update()

    def forget_strangers(self, now_us: int, members: Collection[ProcessorId]) -> None:
        if self._learned.forget_strangers(now_us, members):
            self._update()

    def set_resolved(self, addresses: Iterable[Address]) -> None:
        """What the DNS name resolves to now."""
        self._resolved = tuple([(_canonical(address), port) for address, port in addresses])
        self._update()

    def _update(self) -> None:
        if self._group is not None:
            self.everyone = self.perhaps_everyone = (self._group,)
            return
        known = dict.fromkeys((*self._static.values(), *self._resolved, *self._learned.known.values()))
        known.pop(self._own, None)
        self.everyone = tuple(known)
        self.perhaps_everyone = tuple(dict.fromkeys((*known, *self._learned.hints.values())))


def _canonical(address: str) -> str:
    """One spelling for each: IPv6 has many."""
    return str(ip_address(address))


class Resolver(threading.Thread):
    """Looks the DNS name up now and then, away from the ring, which must not wait for it."""

    def __init__(self, config: NetworkConfig, found: Callable[[list[Address]], None]) -> None:
        super().__init__(name="totempole-resolver", daemon=True)
        self.failure = ""
        self._config = config
        self._found = found
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            addresses = self._look_up()
            if addresses:
                self._found(addresses)
            # Until there is somebody to talk to, ask often.
            self._done.wait(self._config.peers_dns_refresh_s if addresses else 1)

    def stop(self) -> None:
        self._done.set()

    def _look_up(self) -> list[Address]:
        config = self._config
        family = socket.AF_INET6 if ":" in config.address else socket.AF_INET
        try:
            answers = socket.getaddrinfo(config.peers_dns, config.port, family, socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            self.failure = f"{config.peers_dns}: {getattr(error, 'strerror', None) or error}"
            return []
        self.failure = ""
        return [(str(answer[4][0]), config.port) for answer in answers]
