"""One processor's whole stack below the order interface: datagrams in, effects out.

Segments are put together, packets decoded, and handed to the machine. Whatever is wrong with bytes from the
network is counted, traced and dropped here; it never reaches the ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from totempole.effects import Effect, FormerLife, Impostor, PushBack
from totempole.errors import CodecError, ConfigurationError
from totempole.order import Order
from totempole.segment import Cutter, NotNeighbours, PacketName, Reassembler
from totempole.srp import reach
from totempole.srp.config import RingConfig
from totempole.srp.machine import Machine
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.states import State, Timer
from totempole.srp.timestamps import TimestampClock
from totempole.types import PROCESSOR_MAX, ProcessorId, RingKind, Service
from totempole.wire import Codec
from totempole.wire.layout import GROUPS_MAX
from totempole.wire.packets import Join, Leave, NullMessage, Packet, RegularMessage, RegularToken, Wake
from totempole.wire.seal import Keyring, Seal

CODECS_MAX = 16

GIVE_WAY_MAX = 3
"""How often a first life gives way to its own number. What it heard may have been recordings of a former
life, which was lost with its storage; they must not keep it from starting for ever. If the number is truly in
use, its owner then begins a life above this one, which no recording can do."""


@lru_cache(CODECS_MAX)
def _codec(cluster_id: int, ring_kind: RingKind, seal: Seal | None, check_contents: bool) -> Codec:
    """One for all endpoints without a seal: what one of them has just decoded, the next need not."""
    return Codec(cluster_id, ring_kind, seal, check_contents)


def _no_spread() -> float:
    return 0.0


class Endpoint(Order):
    """The order interface over one ring."""

    def __init__(
        self,
        me: ProcessorId,
        config: RingConfig,
        stable: Mapping[str, int],
        trace_kinds: frozenset[str],
        keyring: Keyring | None = None,
        draw: Callable[[], float] = _no_spread,
    ) -> None:
        """`stable` is what stable storage holds: nothing at the very first start. No keyring, no seal.

        `draw` gives random numbers from 0 to 1, which spread the timeouts of different processors.
        """
        if not 1 <= me <= PROCESSOR_MAX:
            raise ConfigurationError(f"processor = {me}: give a whole number from 1 to {PROCESSOR_MAX}")
        self.me = me
        self.incarnation = stable.get("incarnation", 0) + 1
        self._gives_way = "future_ring_seq" not in stable and stable.get("gave_way", 0) < GIVE_WAY_MAX
        """Whether this is the first life on this storage, and should not speak while its number is in use."""
        self.dropped: Counter[str] = Counter()
        self.drops = 0
        """All of them."""
        self._config = config
        self._seal: Seal | None = None
        if keyring is not None:
            self._seal = Seal(keyring, config.cluster_id, me, self.incarnation)
        self._codec = _codec(config.cluster_id, config.ring_kind, self._seal, bool(config.check_contents))
        self._reassembler = Reassembler(config.reassembly_bytes_max, config.cluster_id)
        cutter = Cutter(config.segment_bytes, me, self.incarnation, config.cluster_id)
        self._output = Output(self._codec, cutter, trace_kinds)
        clock = TimestampClock(stable.get("timestamp", 0), config.timestamp_interval)
        self._ordering = Ordering(me, self.incarnation, config, clock, self._output, self._reassembler.holes)
        ring_seq = max(stable.get("ring_seq", 0), stable.get("future_ring_seq", 0))
        self.machine = Machine(
            me, self.incarnation, ring_seq, config, self._ordering, self._output, draw, self._decode_old
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
    def unsafe(self) -> int:
        """Submissions that not every member of the ring is known to have received."""
        ring = self.machine.installed
        later = range(ring.safe_up_to + 1, self._ordering.last_originated + 1)
        own = (seq in ring.messages and ring.messages[seq].message.sender == self.me for seq in later)
        return self.queued + sum(own)

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
    def gives_way(self) -> bool:
        """Whether this is a first life that yields to whoever has its number, in whichever life."""
        return self._gives_way

    def life_of(self, processor: ProcessorId) -> int:
        """The latest incarnation that it has sent a Join in, as far as this processor remembers; or 0."""
        return self.machine.outsiders.life_of_joins(processor)

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

    def leave(self, now_us: int, *, more_to_come: bool = False) -> list[Effect]:
        self._output.now_us = now_us
        self.machine.leave(more_to_come)
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
        if packet[0] == self.me and self._is_from_elsewhere(packet):
            return
        if type(packet) is Join and self._is_of_a_former_life(packet):
            return
        if self._is_near(packet) or not self._is_out_of_reach(packet, len(data)):
            self.machine.receive(packet, data)

    def _is_near(self, packet: Packet) -> bool:
        """Most packets are messages and tokens of the ring. A few comparisons are enough for these."""
        if type(packet) is RegularMessage:
            return self.machine.is_near(packet)
        return type(packet) is RegularToken and self.machine.is_near_token(packet)

    def _is_of_a_former_life(self, join: Join) -> bool:
        """Refused, and told: a processor that was rolled back would use ring numbers and timestamps again."""
        latest = self.machine.outsiders.life_of_joins(join.sender)
        if join.incarnation >= latest:
            return False
        self._output.add(FormerLife(join.sender, join.incarnation, latest))
        if self._output.traces("branch"):
            self._output.trace(
                "branch", origin=join.sender, count=join.incarnation, reason="join of a former life"
            )
        self._drop(CodecError("join of a former life"))
        return True

    def _is_out_of_reach(self, packet: Packet, length: int) -> bool:
        problem = reach.leap(packet, length, self.machine.own_numbers(packet))
        if problem:
            self._drop(CodecError(problem))
        return bool(problem)

    def _is_from_elsewhere(self, packet: Packet) -> bool:
        """Whether a packet in our own name, which has come from the network, goes no further.

        Messages come back rightly, repeated by others, and a processor alone sends tokens to itself. All else
        is an echo, which anyone can send who has recorded it, or an impostor's.
        """
        if type(packet) is RegularMessage:
            unborn = self._gives_way and self.state is State.STARTING
            impostor = unborn or packet.incarnation > self.incarnation
            if not impostor:
                return False
        elif isinstance(packet, Join | NullMessage | Leave | Wake):
            impostor = self._is_impostors(packet)
        else:
            return False
        if impostor:
            self._output.add(Impostor(packet.incarnation))
        self._drop(CodecError("processor number of our own" if impostor else "echo of our own"))
        return True

    def _is_impostors(self, packet: Join | NullMessage | Leave | Wake) -> bool:
        """Whether neither this life nor one before it can have said it.

        Before its first life a processor cannot know: its storage may be new, or lost.
        """
        if packet.incarnation != self.incarnation:
            return self._gives_way or packet.incarnation > self.incarnation
        said = self._output.said.get(packet.counter, packet)
        return packet.counter > self.machine.counter or said != packet

    def _decode_old(self, data: bytes) -> RegularMessage | None:
        """The packet inside a message that was rebroadcast in recovery."""
        try:
            packet = self._codec.decode(data)
        except CodecError as error:
            self._drop(error)
            return None
        if not isinstance(packet, RegularMessage) or self._is_out_of_reach(packet, len(data)):
            return None
        return packet

    def _drop(self, error: CodecError) -> None:
        self.dropped[error.reason] += 1
        self.drops += 1
        self._output.drop(error.reason)
