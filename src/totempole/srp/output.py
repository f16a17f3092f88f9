"""Where a processor's effects are collected, and packets become datagrams on their way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from totempole.effects import (
    CancelTimer,
    Channel,
    Deliver,
    Effect,
    InstallConfiguration,
    Persist,
    SetTimer,
    Trace,
    Transmit,
)
from totempole.segment import Cutter
from totempole.srp.config import SEGMENT_BYTES_LEAST
from totempole.srp.ring import Held
from totempole.srp.states import Timer
from totempole.types import (
    NO_RING,
    ByteRange,
    Configuration,
    ConfigurationKind,
    OrderKey,
    ProcessorId,
    RingId,
)
from totempole.wire import Codec
from totempole.wire.packets import (
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Wake,
)

SAID = (Join, NullMessage, Leave, Wake)
SAID_MAX = 256
"""Packets that a processor remembers having sent, to know them when they come back."""


class Output:
    """Effects of the input being handled, in order; `now_us` is that input's time."""

    def __init__(self, codec: Codec, cutter: Cutter, trace_kinds: frozenset[str]) -> None:
        self.now_us = 0
        self.configuration = NO_RING
        """The configuration last installed."""
        self._codec = codec
        self._cutter = cutter
        self.segment_bytes = cutter.segment_bytes
        """The largest datagram that this processor can take."""
        self._ring_segment_bytes = cutter.segment_bytes
        self._trace_kinds = trace_kinds
        self.traces_token = "token" in trace_kinds
        self.traces_receive = "receive" in trace_kinds
        self._effects: list[Effect] = []
        self._armed: set[Timer] = set()
        self._ticket = 0
        self.last_multicast_us = 0
        self.said: dict[int, Packet] = {}
        """What this life has said last beside messages and tokens, by its counter."""

    def take(self) -> list[Effect]:
        effects = self._effects
        self._effects = []
        return effects

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    # Packets

    def encode(self, packet: Packet) -> bytes:
        return self._codec.encode(packet)

    def multicast(self, packet: Packet, data: bytes) -> None:
        self.last_multicast_us = self.now_us
        if type(packet) is not RegularMessage:
            self._remember(packet)
        bursts = self._cutter.cut_packet(packet, data)
        self._effects.append(Transmit(None, Channel.DATA, bursts, packet))

    def retransmit(self, held: Held, ranges: tuple[ByteRange, ...]) -> int:
        """Sends the original bytes again, whole or in part; gives the number of bytes."""
        bursts = self._cutter.cut_ranges(held.message, held.data, ranges)
        if not bursts:
            # The ranges lie outside the packet: a damaged segment told the requester another length.
            bursts = self._cutter.cut_packet(held.message, held.data)
        self._effects.append(Transmit(None, Channel.DATA, bursts, held.message))
        sent = sum([len(burst.data) for burst in bursts])
        if self.traces("retransmit"):
            message = held.message
            self.trace("retransmit", ring=str(message.ring_id), seq=message.seq, bytes=sent)
        return sent

    def _remember(self, packet: Packet) -> None:
        if isinstance(packet, SAID):
            self.said[packet.counter] = packet
            if len(self.said) > SAID_MAX:
                del self.said[next(iter(self.said))]

    def send(self, to: ProcessorId, packet: Packet) -> None:
        self._remember(packet)
        bursts = self._cutter.cut_packet(packet, self._codec.encode(packet))
        self._effects.append(Transmit(to, Channel.DATA, bursts, packet))

    def pass_token(self, to: ProcessorId, token: RegularToken | CommitToken) -> Transmit:
        """Gives the transmission back, to be repeated as it is if the token is lost."""
        bursts = self._cutter.cut_packet(token, self._codec.encode(token))
        transmit = Transmit(to, Channel.TOKEN, bursts, token)
        self._effects.append(transmit)
        return transmit

    def limit_segments(self, least: int) -> None:
        """Cuts for the member of the ring that can take least."""
        self._ring_segment_bytes = least
        self._cut_for_all()

    def limit_own_segments(self, most: int) -> None:
        """The path has refused larger datagrams."""
        self.segment_bytes = max(SEGMENT_BYTES_LEAST, most)
        self._cut_for_all()

    def _cut_for_all(self) -> None:
        fits = min(self.segment_bytes, self._ring_segment_bytes)
        self._cutter.segment_bytes = max(SEGMENT_BYTES_LEAST, fits)

    # Timers and stable storage

    def set_timer(self, timer: Timer, after_us: int) -> None:
        self._armed.add(timer)
        self._effects.append(SetTimer(timer, self.now_us + after_us))

    def cancel_timer(self, timer: Timer) -> None:
        if timer in self._armed:
            self._armed.discard(timer)
            self._effects.append(CancelTimer(timer))

    def expired(self, timer: Timer) -> None:
        self._armed.discard(timer)

    def persist(self, values: Mapping[str, int]) -> int:
        self._ticket += 1
        self._effects.append(Persist(self._ticket, values))
        return self._ticket

    # The application

    def deliver(self, message: RegularMessage) -> None:
        self._effects.append(
            Deliver(
                message.message_id,
                message.src_sender,
                message.contents,
                message.service,
                OrderKey(message.ring_id, message.seq, NO_RING),
                message.timestamp,
                self.configuration,
            )
        )

    def install(
        self,
        kind: ConfigurationKind,
        id_: RingId,
        members: tuple[ProcessorId, ...],
        ring_id: RingId,
        seq: int,
    ) -> None:
        regular = kind is ConfigurationKind.REGULAR
        key = OrderKey(ring_id, seq, self.configuration if regular else id_)
        configuration = Configuration(kind, id_, tuple(sorted(members)), ring_id, seq, self.configuration)
        self.configuration = id_
        self._effects.append(InstallConfiguration(configuration, key))

    # The trace

    def traces(self, kind: str) -> bool:
        return kind in self._trace_kinds

    def trace(self, kind: str, **columns: Any) -> None:
        self._effects.append(Trace(kind, columns))

    def branch(self, name: str) -> None:
        """Notes that a rare branch was taken, so that a search can tell what it has reached."""
        if "branch" in self._trace_kinds:
            self._effects.append(Trace("branch", {"reason": name}))

    def drop(self, reason: str) -> None:
        if "drop" in self._trace_kinds:
            self._effects.append(Trace("drop", {"reason": reason}))
