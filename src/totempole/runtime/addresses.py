"""Where processors are: from the configuration, from a DNS name, and from what they say themselves.

A static list is the last word. Otherwise a processor is where its latest fresh Join came from (the effect
`Heard`): under a seal nobody else can move it. Where any other word of its own came from, which somebody may
have repeated, is good for Joins only, to get a fresh one from it. The token's port is the one above the
data's.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address

from totempole.runtime.config import NetworkConfig
from totempole.runtime.sockets import Address
from totempole.types import ProcessorId

PORT_MAX = 65_534
"""The token has the port above."""

LEARNED_MAX = 4_096
"""Processors whose address is remembered; the one heard first is forgotten first."""
STRANGER_US = 60_000_000
"""So long is one sent everything that is not on the ring, and has not been heard."""


class AddressBook:
    def __init__(self, config: NetworkConfig) -> None:
        self._own: Address = (_canonical(config.address), config.port)
        self._static: dict[ProcessorId, Address] = {
            peer.processor: (_canonical(peer.address), peer.port or config.port) for peer in config.peers
        }
        self._learned: dict[ProcessorId, Address] = {}
        self._heard_us: dict[ProcessorId, int] = {}
        self._hints: dict[ProcessorId, Address] = {}
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
        return self._static.get(processor) or self._learned.get(processor)

    def token_address(self, processor: ProcessorId) -> Address | None:
        address = self.data_address(processor)
        return None if address is None else (address[0], address[1] + 1)

    def learn(self, processor: ProcessorId, source: Address, just_now: bool, now_us: int) -> None:
        """`just_now`: it is there. If not, it may have been."""
        if processor in self._static or source[1] > PORT_MAX:
            return
        if just_now:
            self._hints.pop(processor, None)
            self._heard_us[processor] = now_us
        known = self._learned if just_now else self._hints
        if known.get(processor) == source or (not just_now and processor in self._learned):
            return
        known[processor] = source
        if len(known) > LEARNED_MAX:
            self._forget(next(iter(known)))
        self._update()

    def forget_strangers(self, now_us: int, members: Collection[ProcessorId]) -> None:
        """Those who have gone for good: what comes after them at their address is not to be sent our data."""
        gone = [
            processor
            for processor, heard_us in self._heard_us.items()
            if processor not in members and now_us - heard_us > STRANGER_US
        ]
        for processor in gone:
            self._forget(processor)
        if gone:
            self._update()

    def _forget(self, processor: ProcessorId) -> None:
        self._learned.pop(processor, None)
        self._heard_us.pop(processor, None)
        self._hints.pop(processor, None)

    def set_resolved(self, addresses: Iterable[Address]) -> None:
        """What the DNS name resolves to now."""
        self._resolved = tuple([(_canonical(address), port) for address, port in addresses])
        self._update()

    def _update(self) -> None:
        if self._group is not None:
            self.everyone = self.perhaps_everyone = (self._group,)
            return
        known = dict.fromkeys((*self._static.values(), *self._resolved, *self._learned.values()))
        known.pop(self._own, None)
        self.everyone = tuple(known)
        self.perhaps_everyone = tuple(dict.fromkeys((*known, *self._hints.values())))


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
