"""One network that a node is on: its sockets, where the others are on it, and how large its datagrams are.

A ring's only network must be there as long as the node runs. One of several may come late, go and come back:
`follow` looks how it is, closes its sockets when they are of no use any more, and opens them when they are.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from totempole.core.effects import Role, Send
from totempole.errors import ConfigurationError, NetworkAbsentError, NetworkError
from totempole.runtime.addresses import AddressBook, Resolver
from totempole.runtime.config import NetworkConfig
from totempole.runtime.hints import NETWORK_ABSENT, NO_ADDRESS
from totempole.runtime.interface import Condition, Interface, condition
from totempole.runtime.logs import event
from totempole.runtime.sockets import Address, Sockets
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId

BURST_BYTES = 60_000
"""A packet that one call of the kernel takes, headers and all."""


SEGMENT_BYTES_USUAL = {4: 1_472, 6: 1_452}
"""By address family: the datagrams that Ethernet takes, for a network that is not there yet."""


class Network:
    def __init__(
        self, number: int, config: NetworkConfig, name: str = "", others: Sequence[NetworkConfig] = ()
    ) -> None:
        """`others`: further networks under the same ring. If there are any this one may be absent; if not, it
        raises NetworkError."""
        self.number = number
        self.name = name or str(number + 1)
        self.config = config
        self.alone = alone = not others
        self.absence = ""
        """Why nothing can be sent or heard on it now; empty while something can."""
        self.sockets = Sockets(config, others, open_now=alone)
        self.book = AddressBook(config)
        self.own: Address = self.sockets.own
        self.packets_sent = self.bytes_sent = 0
        self.packets_received = self.bytes_received = 0
        self.resolver: Resolver | None = None
        self.on_unreachable: Callable[[ProcessorId], None] = lambda _processor: None
        self.on_opened: Callable[[Sequence[socket.socket]], None] = lambda _sockets: None
        self.on_closing: Callable[[Sequence[socket.socket]], None] = lambda _sockets: None
        self.segment_bytes = config.segment_bytes or SEGMENT_BYTES_USUAL[config.family]
        """The largest datagram that the path takes, as far as is known."""
        if not alone:
            self._open_if_there()
        if self.sockets.is_open:
            self.segment_bytes = self.sockets.segment_bytes

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
        if not sockets.is_open:
            sockets.refused[NETWORK_ABSENT] += 1
            return
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

    # Coming and going

    @property
    def is_there(self) -> bool:
        return not self.absence

    def follow(self, others: Iterable[Network]) -> bool:
        """Of one of several networks: looks how its interface is, closes sockets that are of no use any more,
        and opens them if they are; says whether it has opened them."""
        sockets = self.sockets
        if sockets.is_open:
            self._look()
        if sockets.is_open:
            return False
        try:
            sockets.open()
            check_separate(self, others)
            self.segment_bytes = sockets.segment_bytes
        except (ConfigurationError, NetworkError, OSError) as error:
            sockets.close()
            self.absence = str(error)
            return False
        self.on_opened(sockets.all)
        self._look()
        return sockets.is_open

    def _open_if_there(self) -> None:
        """At the start whatever cannot be opened is a mistake, except what is not there."""
        try:
            self.sockets.open()
        except NetworkAbsentError as error:
            self.absence = str(error)
        else:
            self._look()

    def _look(self) -> None:
        sockets = self.sockets
        name, address = sockets.interface.name, self.config.address
        how = condition(sockets.interface, address)
        if how is Condition.GONE:
            self.absence = f"interface {name} with address {address} is gone"
            self.on_closing(sockets.all)
            sockets.close()
        elif how is Condition.DOWN:
            self.absence = f"interface {name} is down, or has no carrier"
        else:
            self.absence = ""

    # The path

    def narrows_to(self, fits: int) -> bool:
        """Whether that is less than what was known."""
        if fits >= self.segment_bytes:
            return False
        self.segment_bytes = fits
        return True

    def interface_bytes(self) -> int:
        """What the interface takes now; as much as before if the size is set by hand."""
        if self.config.segment_bytes or not self.sockets.is_open:
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
            logging.INFO,
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


def check_networks(networks: Sequence[Network]) -> None:
    """At the start: one network at least is there, and no two are the same."""
    if not any(network.sockets.is_open for network in networks):
        raise NetworkAbsentError(networks[0].absence)
    if len(networks) > 1 and not networks[0].alone:
        for network in networks:
            if network.sockets.is_open:
                check_separate(network, networks)


def check_separate(network: Network, others: Iterable[Network]) -> None:
    """Two networks of a ring are two interfaces in two subnets. On loopback, as in tests, anything goes."""
    mine = network.sockets.interface
    for other in others:
        theirs = other.sockets.interface
        if other is network or mine.loopback or not other.sockets.is_open:
            continue
        if mine.number == theirs.number:
            raise ConfigurationError(
                f"{_pair(network, other)}: both are on interface {mine.name}: give each network its own"
            )
        if _overlap(mine, theirs):
            raise ConfigurationError(
                f"{_pair(network, other)}: both are in subnet {mine.subnet}: the kernel would send by one "
                "interface only; give each network a subnet of its own"
            )


def _pair(one: Network, other: Network) -> str:
    first, second = sorted((one, other), key=lambda network: network.number)
    return (
        f"[[network]] address = {first.config.address} of network {first.name} and "
        f"{second.config.address} of network {second.name}"
    )


def _overlap(one: Interface, other: Interface) -> bool:
    mine, theirs = one.subnet, other.subnet
    if mine is None or theirs is None or mine.version != theirs.version:
        return False
    return mine.network_address in theirs or theirs.network_address in mine
