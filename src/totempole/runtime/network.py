"""One network that a node is on: its sockets, where the others are on it, and how large its datagrams are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from totempole.core.effects import Role, Send
from totempole.errors import ConfigurationError, NetworkAbsentError
from totempole.runtime.addresses import AddressBook, Resolver
from totempole.runtime.config import NetworkConfig
from totempole.runtime.hints import NO_ADDRESS
from totempole.runtime.logs import event
from totempole.runtime.sockets import Address, Sockets
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId

BURST_BYTES = 60_000
"""A packet that one call of the kernel takes, headers and all."""


class Network:
    def __init__(self, number: int, config: NetworkConfig) -> None:
        self.number = number
        self.config = config
        self.sockets = Sockets(config)
        self.book = AddressBook(config)
        self.own: Address = self.sockets.own
        self.segment_bytes = self.sockets.segment_bytes
        """The largest datagram that the path takes, as far as is known."""
        self.packets_sent = self.bytes_sent = 0
        self.packets_received = self.bytes_received = 0
        self.resolver: Resolver | None = None
        self.on_unreachable: Callable[[ProcessorId], None] = lambda _processor: None

    def start(self, call: Callable[[Callable[[], None]], None]) -> None:
        """Begins to resolve its DNS name, if it has one. What is found is set on the thread of `call`."""
        if self.config.peers_dns:
            self.resolver = Resolver(self.config, lambda found: call(lambda: self.book.set_resolved(found)))
            self.resolver.start()

    def stop(self) -> None:
        if self.resolver is not None:
            self.resolver.stop()

    def send(self, send: Send) -> None:
        """To one, or to everyone, at the addresses that are known."""
        to, channel, bursts = send.to, send.channel, send.bursts
        book, sockets = self.book, self.sockets
        if to is None:
            for address in book.perhaps_everyone if send.role is Role.SEARCH else book.everyone:
                sockets.send(channel, bursts, address)
            return
        destination = (book.token_address if channel else book.data_address)(to)
        if destination is None:
            sockets.refused[NO_ADDRESS] += 1
            self.on_unreachable(to)
        else:
            sockets.send(channel, bursts, destination)

    # The path

    def narrows_to(self, fits: int) -> bool:
        """Whether that is less than what was known."""
        if fits >= self.segment_bytes:
            return False
        self.segment_bytes = fits
        return True

    def interface_bytes(self) -> int:
        """What the interface takes now; as much as before if the size is set by hand."""
        if self.config.segment_bytes:
            return self.segment_bytes
        try:
            return self.sockets.segment_bytes
        except OSError as error:
            name = self.sockets.interface.name
            raise NetworkAbsentError(
                f"interface {name}: {error.strerror}; start the node when it is back"
            ) from error

    def fit(self, ring: RingConfig, logger: logging.Logger) -> RingConfig:
        """The ring's settings with what only the sockets know: the segment size, and a window that fits."""
        sockets = self.sockets
        room = sockets.receive_buffer_bytes
        ring = replace(ring, segment_bytes=self.segment_bytes)
        if room >= ring.window_bytes:
            return ring
        packet_bytes_max = min(ring.packet_bytes_max, max(room // 2, BURST_BYTES))
        if room < packet_bytes_max:
            raise ConfigurationError(
                f"receive_buffer_bytes: the kernel gives {room} bytes, too few for one packet of "
                f"{packet_bytes_max}: {_remedy(sockets, ring)}"
            )
        event(
            logger,
            logging.WARNING,
            "receive buffer smaller than the window: window lowered to it",
            receive_buffer_bytes=room,
            window_bytes=ring.window_bytes,
            remedy=_remedy(sockets, ring),
        )
        return replace(
            ring,
            window_bytes=room,
            each_time_bytes=min(ring.each_time_bytes, room),
            packet_bytes_max=packet_bytes_max,
        )


def _remedy(sockets: Sockets, ring: RingConfig) -> str:
    if sockets.asked_buffer_bytes < ring.window_bytes:
        return f"set receive_buffer_bytes = {ring.window_bytes}"
    return f"sysctl -w net.core.rmem_max={ring.window_bytes}"
