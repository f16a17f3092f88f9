"""The single ring as an engine: the order interface above, packets from a link below.

What a packet's numbers and sender must be is judged here, before the machine sees it: whatever is wrong is
counted, traced and dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from totempole.core.effects import LayerName
from totempole.core.io import Io, Scope
from totempole.core.order import OrderUser
from totempole.core.stack import BaseLayer, Commands
from totempole.errors import CodecError, ConfigurationError
from totempole.link import Below
from totempole.srp import reach
from totempole.srp.alarms import FormerLife, Impostor
from totempole.srp.commands import Rekey
from totempole.srp.config import RingConfig
from totempole.srp.layout import GROUPS_MAX
from totempole.srp.machine import NOTICES, Machine
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.packets import (
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Unordered,
    Wake,
)
from totempole.srp.states import State, Timer
from totempole.srp.timestamps import TimestampClock
from totempole.types import PROCESSOR_MAX, ProcessorId, Service
from totempole.wire import Codec

LAYER = "srp"
_TIMERS = tuple(Timer)

MISSING_MAX = 1024
"""Places behind the first gap that are looked at for others."""

WAIT_TARGETS = 3
"""In a loaded rotation a token is held back for at most this many times the target of a rotation."""

GIVE_WAY_MAX = 3
"""How often a first life gives way to its own number. What it heard may have been recordings of a former
life, which was lost with its storage; they must not keep it from starting for ever. If the number is truly in
use, its owner then begins a life above this one, which no recording can do."""


class SingleRing(BaseLayer):
    def __init__(
        self,
        io: Io,
        instance: int,
        me: ProcessorId,
        incarnation: int,
        config: RingConfig,
        stable: Mapping[str, int],
        codec: Codec,
        below: Below,
        draw: Callable[[], float],
    ) -> None:
        """`stable` is what stable storage holds of this ring: nothing at the very first start.

        `draw` gives random numbers from 0 to 1, which spread the timeouts of different processors.
        """
        if not 1 <= me <= PROCESSOR_MAX:
            raise ConfigurationError(f"processor = {me}: give a whole number from 1 to {PROCESSOR_MAX}")
        self.name: LayerName = (LAYER, instance)
        self.me = me
        self.incarnation = incarnation
        self.config = config
        self._gives_way = "future_ring_seq" not in stable and stable.get("gave_way", 0) < GIVE_WAY_MAX
        """Whether this is the first life on this storage, and should not speak while its number is in use."""
        self.dropped: Counter[str] = Counter()
        self.drops = 0
        """Total of `dropped`."""
        self._io = io
        self._codec = codec
        self._output = Output(Scope(io, LAYER, instance, Timer), codec, below)
        clock = TimestampClock(stable.get("timestamp", 0), config.timestamp_interval)
        self._ordering = Ordering(me, incarnation, config, clock, self._output, below.holes)
        ring_seq = max(stable.get("ring_seq", 0), stable.get("future_ring_seq", 0))
        self.machine = Machine(
            me, incarnation, ring_seq, config, self._ordering, self._output, draw, self._decode_old
        )

    def connect(self, above: OrderUser) -> None:
        self._output.above = above

    # What the node shows

    @property
    def token_first(self) -> bool:
        """Whether a token that waits beside data should be taken first (the accelerated ring)."""
        return self.machine.processor.installed.token_first

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
    def delivered(self) -> int:
        """Messages, in this life."""
        return self._output.delivered

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

    # The stack

    @property
    def commands(self) -> Commands:
        return {Rekey: self._rekey}

    def start(self) -> None:
        self._output.now_us = self._io.now_us
        self.machine.start()

    def expired(self, timer: int) -> None:
        self._output.now_us = self._io.now_us
        self.machine.expire(_TIMERS[timer])

    def written(self, ticket: int) -> None:
        self._output.now_us = self._io.now_us
        self.machine.persisted(ticket)

    def _rekey(self, command: Rekey) -> None:
        self._codec.rekey(command.keyring)

    # The order

    def submit(
        self, payload: bytes, service: Service, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        limit = self.config.packet_bytes_max
        if len(payload) > limit:
            raise ConfigurationError(
                f"a payload of {len(payload)} bytes exceeds packet_bytes_max = {limit}: send less at once, "
                "or let the group layer cut it up"
            )
        if len(groups) > GROUPS_MAX:
            raise ConfigurationError(f"a message to {len(groups)} groups: name at most {GROUPS_MAX}")
        return self._submit(payload, service, groups, at_rest=at_rest)

    def report(self, payload: bytes) -> bool:
        """As an agreed message, before all that waits: what is said of the ring's own networks must not wait
        for a full queue."""
        return self._submit(payload, Service.AGREED, (), first=True)

    def _submit(
        self,
        payload: bytes,
        service: Service,
        groups: tuple[int, ...],
        first: bool = False,
        at_rest: bool = False,
    ) -> bool:
        self._output.now_us = self._io.now_us
        taken = self.machine.accepts_submissions and self._ordering.submit(
            payload, service, groups, first, at_rest
        )
        if taken:
            self.machine.submitted()
        return taken

    def send_unordered(self, payload: bytes) -> None:
        self._output.now_us = self._io.now_us
        self.machine.send_unordered(payload)

    def leave(self, *, more_to_come: bool = False) -> None:
        self._output.now_us = self._io.now_us
        self.machine.leave(more_to_come)

    # What a layer between the ring and its networks asks (rrp)

    @property
    def members(self) -> tuple[ProcessorId, ...]:
        """Of the ring that this processor is on, or is about to be on."""
        return self.machine.current.ring.members

    @property
    def token_wait_most_us(self) -> int:
        """How long a token may be held back at each hop, and the ring still be sure of it.

        Longer under load, as far as the timeouts have followed the ring: nothing else keeps a fast network in
        step with a slow one. The token may be passed again meanwhile, which does no harm."""
        members, config = len(self.members), self.config
        unloaded_us = min(config.token_retransmission_us // 4, config.token_loss_us // (4 * members))
        if not self.machine.installed.flow.loaded:
            return unloaded_us
        loaded_us = min(self.machine.timeouts.token_loss_us // 4, WAIT_TARGETS * config.rotation_target_us)
        return max(unloaded_us, loaded_us // members)

    def awaits(self, token: RegularToken) -> bool:
        return self.machine.awaits(token)

    def misses(self, token: RegularToken) -> bool:
        """Whether messages would be asked for if the token were taken now."""
        return self.machine.current.ring.my_aru < self.machine.due_up_to(token)

    def missing(self, token: RegularToken) -> list[int]:
        """Which those are, as far as a token can ask for them."""
        ring = self.machine.current.ring
        first, last = ring.my_aru + 1, self.machine.due_up_to(token)
        return [seq for seq in range(first, min(last, first + MISSING_MAX) + 1) if seq not in ring.messages]

    # The link

    def refused(self, _network: int, reason: str) -> None:
        self._drop(reason)

    def received(self, _network: int, packet: Packet, data: bytes) -> None:
        self._output.now_us = self._io.now_us
        if packet[0] == self.me and self._is_from_elsewhere(packet):
            return
        machine = self.machine
        # Most packets are messages and tokens of the ring. A few comparisons are enough for these.
        if type(packet) is RegularMessage:
            near = machine.is_near(packet)
        elif type(packet) is RegularToken:
            near = machine.is_near_token(packet)
        elif type(packet) is Join and self._is_of_a_former_life(packet):
            return
        else:
            near = type(packet) in NOTICES  # nobody takes over what is in these
        if near or not self._is_out_of_reach(packet, len(data)):
            machine.receive(packet, data)

    def _is_of_a_former_life(self, join: Join) -> bool:
        """Refused, and told: a processor that was rolled back would use ring numbers and timestamps again."""
        latest = self.machine.outsiders.life_of_joins(join.sender)
        if join.incarnation >= latest:
            return False
        self._output.alarm(FormerLife(join.sender, join.incarnation, latest))
        if self._output.traces("branch"):
            self._output.trace(
                "branch", origin=join.sender, count=join.incarnation, reason="join of a former life"
            )
        self._drop("join of a former life")
        return True

    def _is_out_of_reach(self, packet: Packet, length: int) -> bool:
        problem = reach.leap(packet, length, self.machine.own_numbers(packet))
        if problem:
            self._drop(problem)
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
        elif isinstance(packet, Join | NullMessage | Leave | Wake | Unordered):
            impostor = self._is_impostors(packet)
        else:
            return False
        if impostor:
            self._output.alarm(Impostor(packet.incarnation))
        self._drop("processor number of our own" if impostor else "echo of our own")
        return True

    def _is_impostors(self, packet: Join | NullMessage | Leave | Wake | Unordered) -> bool:
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
            self._drop(error.reason)
            return None
        if not isinstance(packet, RegularMessage) or self._is_out_of_reach(packet, len(data)):
            return None
        return packet

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1
        self.drops += 1
        self._output.drop(reason)
