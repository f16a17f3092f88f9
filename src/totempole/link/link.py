"""One ring's packets on one network.

Down: an encoded packet is cut into datagrams that fit the path. Up: segments are put together and packets
decoded. Whatever is wrong with bytes from the network is told as a reason, and never reaches the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from totempole.core.effects import Channel, Role, Send
from totempole.core.io import Io
from totempole.core.stack import BaseLayer
from totempole.errors import CodecError
from totempole.segment import Burst, Cutter, NotNeighbours, PacketName, Reassembler
from totempole.types import ByteRange, ProcessorId, RingId
from totempole.wire import Codec
from totempole.wire.layout import DATAGRAM_BYTES_MIN

_new = tuple.__new__
"""Makes a named tuple at a third of the cost of calling its class."""

Transmission = tuple[Send, ...]
"""A transmission, to be repeated as it is if it is lost."""


class LinkUser(Protocol):
    """What stands above a link: an engine, or a layer that joins several links."""

    def received(self, network: int, packet: Any, data: bytes) -> None:
        """A packet of the ring's, and its bytes."""
        ...

    def refused(self, network: int, reason: str) -> None:
        """Bytes that are no packet of the ring's."""
        ...


class Below(Protocol):
    """What an engine sees below it: a link, or a layer that joins several."""

    relays: bool
    """Whether members may hand each other's tokens on. Where networks are redundant, such a copy would pass
    for one that the token's sender sent on its network."""

    @property
    def segment_bytes(self) -> int:
        """The largest datagram that this processor can take."""
        ...

    def route(self, role: Role, length: int) -> int:
        """What the header of a packet of about so many bytes says of its networks; 0 where there is one."""
        ...

    def send(
        self,
        to: ProcessorId | None,
        channel: Channel,
        packet: Any,
        data: bytes,
        role: Role,
        name: PacketName | None = None,
        ranges: Sequence[ByteRange] = (),
    ) -> Transmission:
        """An encoded packet, or these ranges of it; to everyone if `to` is None."""
        ...

    def repeat(self, sent: Transmission, role: Role) -> None: ...

    def limit_segments(self, least: int) -> None:
        """Cut for the member of the ring that can take least."""
        ...

    def holes(self, ring_id: RingId, seq: int) -> tuple[ByteRange, ...]:
        """What is missing of a message of which a part is here; empty when nothing is."""
        ...


class Link(BaseLayer):
    relays = True

    def __init__(self, io: Io, network: int, codec: Codec, cutter: Cutter, reassembler: Reassembler) -> None:
        self.name = ("link", network)
        self.network = network
        self.segment_bytes = cutter.segment_bytes
        self._io = io
        self._networks = (network,)
        self._codec = codec
        self._cutter = cutter
        self._reassembler = reassembler
        self._ring_segment_bytes = cutter.segment_bytes
        self.holes = reassembler.holes

    def connect(self, above: LinkUser) -> None:
        self._above = above

    # Down

    def route(self, _role: Role, _length: int) -> int:
        return 0

    def cut(self, data: bytes, name: PacketName | None, ranges: Sequence[ByteRange]) -> tuple[Burst, ...]:
        """The datagrams of a packet, or of these ranges of it."""
        # No bursts: the ranges lie outside the packet. A damaged segment told the requester another length.
        return self._cutter.cut(data, name, ranges) or self._cutter.cut(data, name)

    @property
    def cut_bytes(self) -> int:
        """How long datagrams are that everyone on the ring can take."""
        return self._cutter.segment_bytes

    def send(
        self,
        to: ProcessorId | None,
        channel: Channel,
        packet: Any,
        data: bytes,
        role: Role,
        name: PacketName | None = None,
        ranges: Sequence[ByteRange] = (),
    ) -> Transmission:
        send: Send = _new(Send, (self._networks, to, channel, self.cut(data, name, ranges), role, packet))
        self._io.effects.append(send)
        return (send,)

    def repeat(self, sent: Transmission, role: Role) -> None:
        self._io.effects += [send._replace(role=role) for send in sent]

    def limit_segments(self, least: int) -> None:
        self._ring_segment_bytes = least
        self._cut_for_all()

    def narrowed(self, segment_bytes: int) -> None:
        """The path has refused larger datagrams."""
        self.segment_bytes = max(DATAGRAM_BYTES_MIN, segment_bytes)
        self._cut_for_all()

    def _cut_for_all(self) -> None:
        fits = min(self.segment_bytes, self._ring_segment_bytes)
        self._cutter.segment_bytes = max(DATAGRAM_BYTES_MIN, fits)

    # Up

    def arrived(self, datagrams: Sequence[bytes], segment_bytes: int) -> None:
        if segment_bytes:
            self._arrived_burst(datagrams[0], segment_bytes)
            return
        for datagram in datagrams:
            try:
                found = self._reassembler.receive(datagram)
            except CodecError as error:
                self._above.refused(self.network, error.reason)
            else:
                if found is not None:
                    self._arrived_packet(*found)

    def _arrived_burst(self, burst: bytes, segment_bytes: int) -> None:
        try:
            found = self._reassembler.receive_burst(burst, segment_bytes)
        except NotNeighbours:
            starts = range(0, len(burst), segment_bytes)
            self.arrived([burst[start : start + segment_bytes] for start in starts], 0)
        except CodecError as error:
            self._above.refused(self.network, error.reason)
        else:
            if found is not None:
                self._arrived_packet(*found)

    def _arrived_packet(self, name: PacketName, data: bytes) -> None:
        try:
            packet = self._codec.decode(data)
        except CodecError as error:
            # A forged or damaged segment must not keep the true ones out.
            self._reassembler.forget(name)
            self._above.refused(self.network, error.reason)
        else:
            self._above.received(self.network, packet, data)
