"""Reads the sockets of a node's networks in a fair order, and feeds its stack with what arrives.

Data goes before the token unless the protocol says otherwise (the accelerated ring): a token that arrives
with data is taken when that data is. Several networks are read a slice at a time, so that a flood on one of
them does not delay another.

Datagrams are read one by one and put together as receive offload would have: most networks do not do it for
us. A packet of 60 KB is 44 datagrams. Taken one at a time they would cost 44 passes through segment and
wire; taken together, one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from totempole.core.effects import Channel
from totempole.core.inputs import Arrived, Input
from totempole.runtime.meters import Meters
from totempole.runtime.network import Network
from totempole.runtime.packet_filter import PacketFilter
from totempole.runtime.sockets import Address, Read
from totempole.stack import ProcessorStack

READS_MAX = 256
"""Reads of one socket before the loop looks at anything else."""

SLICE = 32
"""Reads of one socket of several networks before the next socket has its turn."""


class Receiver:
    """Drains the sockets that are ready. All methods are for the loop's thread."""

    def __init__(
        self,
        networks: Sequence[Network],
        own_addresses: AbstractSet[Address],
        meters: Meters,
        feed: Callable[[Input], None],
    ) -> None:
        """`networks` and `own_addresses` may change while the node runs."""
        self.filter: PacketFilter | None = None
        """Set on a node in a lab."""
        self.drop_source: Address = networks[0].own
        """The source of the packet that was dropped last."""
        self._networks = networks
        self._own_addresses = own_addresses
        self._meters = meters
        self._feed = feed

    def begin_life(self, stack: ProcessorStack) -> None:
        """What arrives from now on is for this stack."""
        self._stack = stack
        self._ring = stack.ring
        self._drops_seen = 0

    def has_token(self, ready: Mapping[int, int]) -> bool:
        return any(network.sockets.token.fileno() in ready for network in self._networks)

    def read_one(self, network: Network, ready: Mapping[int, int]) -> None:
        """Reads the only network of a node."""
        token = network.sockets.token
        token_waits = token.fileno() in ready
        if token_waits and self._stack.token_first(network.number):
            self._drain(network, Channel.TOKEN, token, 1)
            token_waits = False
        for sock in network.sockets.data_sockets:
            if sock.fileno() in ready:
                self._drain(network, Channel.DATA, sock, READS_MAX)
        if token_waits:
            self._drain(network, Channel.TOKEN, token, 1)

    def read_several(self, ready: Mapping[int, int]) -> None:
        """Reads the data of all networks first, a slice of each in turn, so that none waits for one that is
        flooded. A network's token is taken as soon as its data is."""
        tokens = [network for network in self._networks if network.sockets.token.fileno() in ready]
        first = {network.number for network in tokens if self._stack.token_first(network.number)}
        tokens = self._take_tokens(tokens, {network.number for network in tokens} - first)
        data = [
            (network, sock)
            for network in self._networks
            for sock in (*network.sockets.data_sockets, *network.sockets.strays)
            if sock.fileno() in ready
        ]
        for _ in range(READS_MAX // SLICE):
            data = [
                (network, sock)
                for network, sock in data
                if not self._drain(network, Channel.DATA, sock, SLICE)
            ]
            if not data:
                break
            tokens = self._take_tokens(tokens, {network.number for network, _ in data})
        self._take_tokens(tokens)

    def _take_tokens(self, tokens: list[Network], but: Collection[int] = ()) -> list[Network]:
        """Takes the tokens of these networks, except those of the networks in `but`, which are returned."""
        for network in tokens:
            if network.number not in but:
                self._drain(network, Channel.TOKEN, network.sockets.token, 1)
        return [network for network in tokens if network.number in but]

    def _drain(self, network: Network, channel: Channel, sock: socket.socket, reads: int) -> bool:
        """Whether nothing is left."""
        read = network.sockets.read if self.filter is None else self.filter.read
        reading = Reading(read, sock, reads)
        for arrived in reading:
            self._receive(network, channel, arrived)
        return reading.is_empty

    def _receive(self, network: Network, channel: Channel, read: Read) -> None:
        data, segment_bytes, source = read
        if source in self._own_addresses:
            return  # our own multicast, which loopback gives back, or another network that is wired to this
        meters = self._meters
        meters.packets_received += 1
        meters.bytes_received += len(data)
        network.packets_received += 1
        network.bytes_received += len(data)
        self._feed(Arrived(network.number, channel, (data,), segment_bytes, source))
        if self._ring.drops != self._drops_seen:
            self._drops_seen = self._ring.drops
            self.drop_source = source


class Reading:
    """What up to so many reads give. Neighbours of one source and one size come in one piece; the last one
    may be shorter."""

    __slots__ = ("_read", "_reads", "_sock", "is_empty")

    def __init__(self, read: Callable[[socket.socket], Read | None], sock: socket.socket, reads: int) -> None:
        self._read = read
        self._sock = sock
        self._reads = reads
        self.is_empty = False
        """Whether the last read gave nothing: there is no more."""

    def __iter__(self) -> Iterator[Read]:
        read, sock = self._read, self._sock
        run: list[bytes] = []
        source = ("", 0)
        size = 0
        for _ in range(self._reads):
            arrived = read(sock)
            if arrived is None:
                self.is_empty = True
                break
            data, segment_bytes, came_from = arrived
            if run and (segment_bytes or came_from != source or len(data) > size):
                yield _together(run, size, source)
                run = []
            if segment_bytes:
                yield arrived
                continue
            if not run:
                source, size = came_from, len(data)
            run.append(data)
            if len(data) < size:
                yield _together(run, size, source)
                run = []
        if run:
            yield _together(run, size, source)


def _together(run: list[bytes], size: int, source: tuple[str, int]) -> Read:
    if len(run) == 1:
        return Read(run[0], 0, source)
    return Read(b"".join(run), size, source)
