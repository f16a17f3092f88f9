"""What a processor of the ring says: packets to the link below, events to the layer above, and effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from totempole.core.effects import Channel, Role, Trace
from totempole.core.io import Scope
from totempole.core.order import Deliver, InstallConfiguration, OrderUser, SafeUpTo
from totempole.link import Below, Transmission
from totempole.segment.header import data_name
from totempole.srp.alarms import DeadLink, FormerLife, Impostor, SettingsDiffer
from totempole.srp.packets import (
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Unordered,
    Wake,
)
from totempole.srp.ring import Held
from totempole.srp.states import Timer
from totempole.types import (
    NO_RING,
    ByteRange,
    Configuration,
    ConfigurationKind,
    MessageId,
    OrderKey,
    ProcessorId,
    RingId,
)
from totempole.wire import Codec

_new = tuple.__new__
"""Makes a named tuple at a third of the cost of calling its class."""

SAID = (Join, NullMessage, Leave, Wake)
SAID_MAX = 256
"""Packets that a processor remembers having sent, to know them when they come back."""


class Output:
    """`now_us` is the time of the input at hand."""

    def __init__(self, scope: Scope, codec: Codec, below: Below) -> None:
        self.now_us = 0
        self.configuration = NO_RING
        """The configuration last installed."""
        self.above: OrderUser
        self.traces_token = scope.traces("token")
        self.traces_receive = scope.traces("receive")
        self.last_multicast_us = 0
        self.said: dict[int, Packet] = {}
        """What this life has said last beside messages and tokens, by its counter."""
        self.delivered = 0
        """Messages."""
        self._traces_deliver = scope.traces("deliver")
        self._scope = scope
        self._layer = scope.name[0]
        self._codec = codec
        self._below = below

    # Packets

    @property
    def segment_bytes(self) -> int:
        """The largest datagram that this processor can take."""
        return self._below.segment_bytes

    def limit_segments(self, least: int) -> None:
        """Cuts for the member of the ring that can take least."""
        self._below.limit_segments(least)

    def encode(self, packet: Packet) -> bytes:
        if type(packet) is RegularMessage:
            return self._codec.encode(packet, self._below.route(Role.MESSAGE, len(packet.contents)))
        return self._codec.encode(packet)

    def multicast(self, packet: Packet, data: bytes) -> None:
        self.last_multicast_us = self.now_us
        if type(packet) is RegularMessage:
            name = data_name(packet.ring_id, packet.seq)
            self._below.send(None, Channel.DATA, packet, data, Role.MESSAGE, name)
        else:
            self._remember(packet)
            role = Role.SEARCH if type(packet) is Join else Role.CONTROL
            self._below.send(None, Channel.DATA, packet, data, role)

    def retransmit(self, held: Held, ranges: tuple[ByteRange, ...]) -> int:
        """Sends the original bytes again, whole or in part; gives the number of bytes."""
        message, data = held
        name = data_name(message.ring_id, message.seq)
        sent = self._below.send(None, Channel.DATA, message, data, Role.RETRANSMISSION, name, ranges)
        length = sum([len(burst.data) for burst in sent[0].bursts])
        if self.traces("retransmit"):
            self.trace("retransmit", ring=str(message.ring_id), seq=message.seq, bytes=length)
        return length

    def _remember(self, packet: Packet) -> None:
        if isinstance(packet, SAID):
            self.said[packet.counter] = packet
            if len(self.said) > SAID_MAX:
                del self.said[next(iter(self.said))]

    def send(self, to: ProcessorId, packet: Packet) -> None:
        self._remember(packet)
        self._below.send(to, Channel.DATA, packet, self._codec.encode(packet), Role.CONTROL)

    def send_unordered(self, packet: Unordered) -> None:
        """Not counted as a multicast, nor remembered: it shows other rings nothing, as a Null would."""
        self._below.send(None, Channel.DATA, packet, self._codec.encode(packet), Role.CONTROL)

    def pass_token(self, to: ProcessorId, token: RegularToken | CommitToken) -> Transmission:
        """Gives the transmission back, to be repeated as it is if the token is lost."""
        role = Role.TOKEN if type(token) is RegularToken else Role.CONTROL
        data = self._codec.encode(token, self._below.route(role, 0))
        return self._below.send(to, Channel.TOKEN, token, data, role)

    def repeat_token(self, passed: Transmission) -> None:
        self._below.repeat(passed, Role.TOKEN_AGAIN if passed[0].role is Role.TOKEN else Role.CONTROL)

    @property
    def relays(self) -> bool:
        return self._below.relays

    def relay_token(self, to: ProcessorId, token: RegularToken, data: bytes = b"") -> None:
        """A copy of it. `data`: another's token as it came."""
        self._below.send(to, Channel.TOKEN, token, data or self._codec.encode(token), Role.TOKEN_AGAIN)

    # Timers and stable storage

    def set_timer(self, timer: Timer, after_us: int) -> None:
        self._scope.set_timer(timer, after_us)

    def cancel_timer(self, timer: Timer) -> None:
        self._scope.cancel_timer(timer)

    def expired(self, timer: Timer) -> None:
        self._scope.expired(timer)

    def persist(self, values: Mapping[str, int]) -> int:
        return self._scope.write(values)

    # What this processor learns of others

    def heard(self, processor: ProcessorId, *, just_now: bool) -> None:
        """The processor has spoken for itself: it can be reached where the packet at hand came from. If not
        `just_now`, the packet may be a repetition: a hint where nothing better is known."""
        self._scope.reachable(processor, just_now)

    def alarm(self, alarm: DeadLink | FormerLife | Impostor | SettingsDiffer) -> None:
        self._scope.alarm(alarm)

    def stopped(self) -> None:
        """This processor has left the ring and takes no further input."""
        self._scope.stopped()
        self.above.stopped()

    # The layer above

    def ready(self) -> None:
        """Submissions are welcome again."""
        self.above.ready()

    def safe(self, ring_id: RingId, seq: int) -> None:
        """Every member of the ring has received all messages up to `seq`."""
        if self.traces("safe"):
            self.trace("safe", ring=ring_id, seq=seq)
        self.above.safe(SafeUpTo(OrderKey(ring_id, seq, NO_RING)))

    def deliver(self, message: RegularMessage) -> None:
        self.delivered += 1
        origin = message.src_sender
        packet: Deliver = _new(
            Deliver,
            (
                _new(MessageId, (origin, message.incarnation, message.number)),
                origin,
                message.contents,
                message.service,
                _new(OrderKey, (message.ring_id, message.seq, NO_RING)),
                message.timestamp,
                self.configuration,
            ),
        )
        if self._traces_deliver:  # as `trace`: no row is more frequent
            self._scope.io.effects.append(_new(Trace, ("deliver", packet, self._layer)))
        self.above.deliver(packet)

    def deliver_unordered(self, sender: ProcessorId, contents: bytes) -> None:
        self.above.deliver_unordered(sender, contents)

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
        self._install(InstallConfiguration(configuration, key))

    def _install(self, installed: InstallConfiguration) -> None:
        if self.traces("configuration"):
            self._scope.trace("configuration", installed)
        self._scope.tell(installed)
        self.above.install(installed)

    # The trace

    def traces(self, kind: str) -> bool:
        return self._scope.traces(kind)

    def trace(self, kind: str, **columns: Any) -> None:
        self._scope.trace(kind, columns)

    def branch(self, name: str) -> None:
        """Notes that a rare branch was taken, so that a search can tell what it has reached."""
        if self._scope.traces("branch"):
            self._scope.trace("branch", {"reason": name})

    def drop(self, reason: str) -> None:
        if self._scope.traces("drop"):
            self._scope.trace("drop", {"reason": reason})
