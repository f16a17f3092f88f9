"""One processor's whole stack below the order interface: datagrams in, effects out.

Segments are put together, packets decoded, and handed to the machine. Whatever is wrong with bytes from the
network is counted, traced and dropped here; it never reaches the ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from totempole.effects import Effect, PushBack
from totempole.errors import CodecError, ConfigurationError
from totempole.order import Order
from totempole.segment import Cutter, Reassembler
from totempole.srp.config import RingConfig
from totempole.srp.machine import Machine
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.states import State, Timer
from totempole.srp.timestamps import TimestampClock
from totempole.types import PROCESSOR_MAX, ProcessorId, RingKind, Service
from totempole.wire import Codec
from totempole.wire.layout import GROUPS_MAX
from totempole.wire.packets import RegularMessage


@cache
def _codec(cluster_id: int, ring_kind: RingKind) -> Codec:
    """One for all endpoints of a process: what one of them has just decoded, the next need not."""
    return Codec(cluster_id, ring_kind)


class Endpoint(Order):
    """The order interface over one ring."""

    def __init__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str]
    ) -> None:
        """`stable` is what stable storage holds: nothing at the very first start."""
        if not 1 <= me <= PROCESSOR_MAX:
            raise ConfigurationError(f"processor = {me}: give a whole number from 1 to {PROCESSOR_MAX}")
        self.incarnation = stable.get("incarnation", 0) + 1
        self.dropped: Counter[str] = Counter()
        self._config = config
        self._codec = _codec(config.cluster_id, config.ring_kind)
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
        if arrived is None:
            return
        name, data = arrived
        try:
            packet = self._codec.decode(data)
        except CodecError as error:
            # A forged or damaged segment must not keep the true ones out.
            self._reassembler.forget(name)
            self._drop(error)
            return
        self.machine.receive(packet, data)

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
        self._output.drop(error.reason)
