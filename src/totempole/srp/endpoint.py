"""One processor's whole stack below the order interface: datagrams in, effects out.

Segments are put together, packets decoded, and handed to the machine. Whatever is wrong with bytes from the
network is counted, traced and dropped here; it never reaches the ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from totempole.effects import Effect, Impostor, PushBack
from totempole.errors import CodecError, ConfigurationError
from totempole.order import Order
from totempole.segment import Cutter, NotNeighbours, PacketName, Reassembler
from totempole.srp.config import RingConfig
from totempole.srp.machine import Machine
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.states import State, Timer
from totempole.srp.timestamps import TimestampClock
from totempole.types import PROCESSOR_MAX, ProcessorId, RingKind, Service
from totempole.wire import Codec
from totempole.wire.layout import GROUPS_MAX
from totempole.wire.packets import Join, NullMessage, Packet, RegularMessage
from totempole.wire.seal import Keyring, Seal

CODECS_MAX = 16


@lru_cache(CODECS_MAX)
def _codec(cluster_id: int, ring_kind: RingKind, seal: Seal | None) -> Codec:
    """One for all endpoints without a seal: what one of them has just decoded, the next need not."""
    return Codec(cluster_id, ring_kind, seal)


class Endpoint(Order):
    """The order interface over one ring."""

    def __init__(
        self,
        me: ProcessorId,
        config: RingConfig,
        stable: Mapping[str, int],
        trace_kinds: frozenset[str],
        keyring: Keyring | None = None,
    ) -> None:
        """`stable` is what stable storage holds: nothing at the very first start. No keyring, no seal."""
        if not 1 <= me <= PROCESSOR_MAX:
            raise ConfigurationError(f"processor = {me}: give a whole number from 1 to {PROCESSOR_MAX}")
        self.me = me
        self.incarnation = stable.get("incarnation", 0) + 1
        self._first_life = "ring_seq" not in stable
        self.dropped: Counter[str] = Counter()
        self.drops = 0
        """All of them."""
        self._config = config
        self._seal: Seal | None = None
        if keyring is not None:
            self._seal = Seal(keyring, config.cluster_id, me, self.incarnation)
        self._codec = _codec(config.cluster_id, config.ring_kind, self._seal)
        self._reassembler = Reassembler(config.reassembly_bytes_max)
        cutter = Cutter(config.segment_bytes, me, self.incarnation)
        self._output = Output(self._codec, cutter, trace_kinds)
        clock = TimestampClock(stable.get("timestamp", 0), config.timestamp_interval)
        self._ordering = Ordering(me, self.incarnation, config, clock, self._output, self._reassembler.holes)
        ring_seq = max(stable.get("ring_seq", 0), stable.get("future_ring_seq", 0))
        self.machine = Machine(
            me, self.incarnation, ring_seq, config, self._ordering, self._output, self._decode_old
        )

    @property
    def token_first(self) -> bool:
        """Whether a token that waits beside data should be taken first (the accelerated ring)."""
        return self.machine.installed.token_first

    @property
    def queued(self) -> int:
        """Submissions that wait for the token."""
        return len(self._ordering.queue)

    @property
    def packets_ahead(self) -> int:
        return self.machine.installed.flow.packets_ahead

    @property
    def packet_bytes(self) -> int:
        return self.machine.installed.flow.packet_bytes

    @property
    def timeouts(self) -> dict[str, int]:
        """The timeouts in force, in microseconds."""
        timeouts = self.machine.timeouts
        names = ("token_retransmission_us", "token_loss_us", "join_us", "consensus_us")
        return {name.removesuffix("_us"): getattr(timeouts, name) for name in names}

    @property
    def state(self) -> State:
        return self.machine.state

    def start(self, now_us: int) -> list[Effect]:
        self._output.now_us = now_us
        self.machine.start()
        return self._output.take()

    def receive(self, now_us: int, datagrams: Sequence[bytes]) -> list[Effect]:
        self._output.now_us = now_us
        for datagram in datagrams:
            self._receive_one(datagram)
        return self._output.take()

    def receive_burst(self, now_us: int, burst: bytes, segment_bytes: int) -> list[Effect]:
        """Datagrams of one size, the last one perhaps shorter, as receive offload gives them."""
        self._output.now_us = now_us
        try:
            arrived = self._reassembler.receive_burst(burst, segment_bytes)
        except NotNeighbours:
            for start in range(0, len(burst), segment_bytes):
                self._receive_one(burst[start : start + segment_bytes])
        except CodecError as error:
            self._drop(error)
        else:
            if arrived is not None:
                self._receive_packet(*arrived)
        return self._output.take()

    def expire(self, now_us: int, timer: Timer) -> list[Effect]:
        self._output.now_us = now_us
        self.machine.expire(timer)
        return self._output.take()

    def submit(
        self, now_us: int, payload: bytes, service: Service, groups: tuple[int, ...] = ()
    ) -> list[Effect]:
        limit = self._config.packet_bytes_max
        if len(payload) > limit:
            raise ConfigurationError(
                f"a payload of {len(payload)} bytes exceeds packet_bytes_max = {limit}: send less at once, "
                "or let the group layer cut it up"
            )
        if len(groups) > GROUPS_MAX:
            raise ConfigurationError(f"a message to {len(groups)} groups: name at most {GROUPS_MAX}")
        self._output.now_us = now_us
        if not self.machine.accepts_submissions:
            self._output.add(PushBack())
        elif self._ordering.submit(payload, service, groups):
            self.machine.submitted()
        return self._output.take()

    def persisted(self, now_us: int, ticket: int) -> list[Effect]:
        self._output.now_us = now_us
        self.machine.persisted(ticket)
        return self._output.take()

    def rekey(self, now_us: int, keyring: Keyring) -> list[Effect]:
        """The key file has changed: seal with its active key, accept its others."""
        assert self._seal is not None, "an endpoint without a seal cannot be given keys"
        self._output.now_us = now_us
        self._seal.rekey(keyring)
        return self._output.take()

    def limit_segments(self, now_us: int, segment_bytes: int) -> list[Effect]:
        """The path has refused larger datagrams."""
        self._output.now_us = now_us
        self._output.limit_own_segments(segment_bytes)
        return self._output.take()

    def leave(self, now_us: int) -> list[Effect]:
        self._output.now_us = now_us
        self.machine.leave()
        return self._output.take()

    def _receive_one(self, datagram: bytes) -> None:
        try:
            arrived = self._reassembler.receive(datagram)
        except CodecError as error:
            self._drop(error)
            return
        if arrived is not None:
            self._receive_packet(*arrived)

    def _receive_packet(self, name: PacketName, data: bytes) -> None:
        try:
            packet = self._codec.decode(data)
        except CodecError as error:
            # A forged or damaged segment must not keep the true ones out.
            self._reassembler.forget(name)
            self._drop(error)
            return
        if packet[0] == self.me and self._is_impostors(packet):
            self._output.add(Impostor(packet.incarnation))
            self._drop(CodecError("processor number of our own"))
            return
        self.machine.receive(packet, data)

    def _is_impostors(self, packet: Packet) -> bool:
        """Whether somebody else sends in our name. Of our own packets only messages come back, repeated by
        others; and what a life before this one sent, repeated by whoever recorded it."""
        if type(packet) is RegularMessage:
            unborn = self._first_life and self.state is State.STARTING
            return unborn or packet.incarnation > self.incarnation
        return type(packet) in (Join, NullMessage) and (
            self._first_life or packet.incarnation >= self.incarnation
        )

    def _decode_old(self, data: bytes) -> RegularMessage | None:
        """The packet inside a message that was rebroadcast in recovery."""
        try:
            packet = self._codec.decode(data)
        except CodecError as error:
            self._drop(error)
            return None
        return packet if isinstance(packet, RegularMessage) else None

    def _drop(self, error: CodecError) -> None:
        self.dropped[error.reason] += 1
        self.drops += 1
        self._output.drop(error.reason)
