"""A world in which a test sees every input and effect of every processor and can hit exactly one packet.

Each test of this directory restates one claim of the paper (Totem, by section) and shows that the real
protocol keeps it. Claims are checked on what processors sent and delivered, not on what they had in mind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from totempole.checkers import check
from totempole.core.effects import Channel, Send, Tell
from totempole.core.inputs import Arrived, Input
from totempole.core.order import Deliver, InstallConfiguration
from totempole.segment import Cutter
from totempole.segment.header import SEGMENT
from totempole.sim.packet_filter import DropRule
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.srp.engine import SingleRing
from totempole.srp.formats import ring_codec
from totempole.srp.machine import Machine
from totempole.srp.operational import Operational
from totempole.srp.packets import CommitToken, Join, Packet, RegularMessage, RegularToken, name_of
from totempole.srp.ring import Ring
from totempole.srp.states import State
from totempole.stack import ProcessorStack
from totempole.trace.schema import Row
from totempole.trace.told import told
from totempole.types import Configuration, ConfigurationKind, ProcessorId, RingId, RingKind, Service

MS = 1_000
S = 1_000_000

CALM = RingConfig()

BUSY = RingConfig(idle_rounds=300)
"""The token does not rest for a while, so that rotations can be counted."""

ACCELERATED = RingConfig(idle_rounds=300, ring_kind=RingKind.ACCELERATED)

SLICE_US = 5
"""How finely `Lab.until` looks. A packet travels for 50 us at least."""

P = TypeVar("P", bound=Packet)


class Entry(NamedTuple):
    """One input of one processor, and what it did upon it."""

    at_us: int
    me: ProcessorId
    given: Input
    effects: list[Any]
    """What layers tell stands for itself."""

    def sent(self, kind: type[P]) -> list[P]:
        return [packet for packet in self.packets if isinstance(packet, kind)]

    @property
    def packets(self) -> list[Packet]:
        return [effect.packet for effect in self.effects if isinstance(effect, Send)]

    @property
    def delivered(self) -> list[Deliver]:
        return [effect for effect in self.effects if isinstance(effect, Deliver)]


class Sent(NamedTuple):
    at_us: int
    source: ProcessorId
    to: ProcessorId | None
    packet: Any


class Loss(DropRule):
    """Drops packets by what they are, not only by their kind."""

    def __init__(self, wanted: Callable[[Any], bool], to: ProcessorId | None, count: int) -> None:
        super().__init__("message", None, to, count)
        self._wanted = wanted

    def hits(self, source: ProcessorId, transmit: Send, routes: Any, network: int = 0) -> bool:
        if self.count < 1 or not self._wanted(transmit.packet):
            return False
        if self.to is not None and all(route.target != self.to for route in routes):
            return False
        self.count -= 1
        return True


class Lab:
    def __init__(
        self, processors: int | Iterable[ProcessorId], config: Any = CALM, *, seed: int = 1, **conditions: Any
    ) -> None:
        self.world = World(seed, processors, config, level="protocol", record_inputs=True, **conditions)
        for host in self.world.hosts.values():
            host.heeds_impostors = False

    # Running

    @property
    def everyone(self) -> tuple[ProcessorId, ...]:
        return tuple(self.world.hosts)

    def form(self, *components: Iterable[ProcessorId], within_us: int = 3 * S) -> Lab:
        """Starts everyone and waits for one ring, or for one in each component of a parted network."""
        rings = [tuple(sorted(component)) for component in components] or [self.everyone]
        if components:
            self.world.partition(rings)
        self.world.start()
        self.until_rings(*rings, within_us=within_us)
        return self

    def until_rings(self, *rings: Iterable[ProcessorId], within_us: int = 3 * S) -> None:
        wanted = [tuple(sorted(ring)) for ring in rings]
        self.until(
            lambda: all(self.members(me) == ring for ring in wanted for me in ring), within_us, slice_us=100
        )

    def until_next_rings(self, *rings: Iterable[ProcessorId], within_us: int = 3 * S) -> None:
        """As `until_rings`, but on rings that are not installed yet."""
        wanted = [tuple(sorted(ring)) for ring in rings]
        old = {me: self.ring(me).ring_id for ring in wanted for me in ring}
        self.until(
            lambda: all(
                self.members(me) == ring and self.ring(me).ring_id != old[me]
                for ring in wanted
                for me in ring
            ),
            within_us,
            slice_us=50,
        )

    def until_delivered(self, since_us: int, within_us: int) -> None:
        """Until everyone has delivered something."""
        self.until(lambda: all(self.delivered(me, since_us) for me in self.everyone), within_us)

    def until(self, holds: Callable[[], bool], within_us: int = S, slice_us: int = SLICE_US) -> None:
        """Runs until `holds`, which must come true within the time."""
        stop_us = self.world.now_us + within_us
        while not holds():
            assert self.world.now_us < stop_us, "it did not happen in time"
            self.world.run_for(slice_us)

    def run(self, duration_us: int) -> None:
        self.world.run_for(duration_us)

    def send(
        self, me: ProcessorId, count: int = 1, service: Service = Service.AGREED, size: int = 20
    ) -> None:
        for _ in range(count):
            assert self.world.submit(me, bytes(size), service)

    def lose(self, wanted: Callable[[Any], bool], to: ProcessorId | None = None, count: int = 10**9) -> None:
        self.world.medium.drop_next(Loss(wanted, to, count))

    def lose_messages(self, seq: int, sender: ProcessorId, to: Iterable[ProcessorId]) -> None:
        """The message of the present ring with this number, each time it is sent, to some."""
        ring_id = self.ring(sender).ring_id
        for target in to:
            self.lose(
                lambda p: isinstance(p, RegularMessage) and (p.ring_id, p.seq) == (ring_id, seq), target
            )

    def lose_token(self) -> None:
        """Every copy of the present rings' tokens from now on."""
        rings = {self.ring(me).ring_id for me in self.everyone if self.world.hosts[me].alive}
        self.lose(lambda p: isinstance(p, RegularToken) and p.ring_id in rings)

    def inject(self, me: ProcessorId, packet: Packet) -> list[Entry]:
        """Hands a processor a packet as if from the network; gives what it did with it."""
        config = self.world.hosts[me].config
        data = ring_codec(config.cluster_id, config.ring_kind).encode(packet)
        bursts = Cutter(config.segment_bytes, packet.sender, 1).cut(data, name_of(packet))
        datagrams = [datagram for burst in bursts for datagram in burst.datagrams]
        channel = Channel.TOKEN if isinstance(packet, RegularToken | CommitToken) else Channel.DATA
        # When the processor is idle, nothing else comes between.
        self.until(lambda: self.world.now_us >= self.world.hosts[me].busy_until_us)
        since_us = self.world.now_us
        before = len(self.entries(me, since_us))
        self.world.hosts[me].arrive(channel, datagrams, sum(map(len, datagrams)))
        return self.entries(me, since_us)[before : before + 1]

    # What there is

    def engine(self, me: ProcessorId) -> SingleRing:
        stack = self.world.hosts[me].stack
        assert isinstance(stack, ProcessorStack)
        return stack.ring

    def machine(self, me: ProcessorId) -> Machine:
        return self.engine(me).machine

    def state(self, me: ProcessorId) -> State | None:
        return self.machine(me).state if self.world.hosts[me].alive else None

    def ring(self, me: ProcessorId) -> Ring:
        return self.machine(me).installed

    def holds_token(self, me: ProcessorId) -> bool:
        """Whether the installed ring's token waits at a processor."""
        current = self.machine(me).current
        return isinstance(current, Operational) and current.holder.held is not None

    def members(self, me: ProcessorId) -> tuple[ProcessorId, ...]:
        """The ring that a processor is on; nothing while it is on none."""
        return self.ring(me).members if self.state(me) is State.OPERATIONAL else ()

    # What has happened

    @property
    def mark(self) -> int:
        return self.world.now_us

    def entries(self, me: ProcessorId, since_us: int = 0) -> list[Entry]:
        """Clocks do not drift here, so a processor's own time is everybody's."""
        found: list[Entry] = []
        for life in self.world.hosts[me].recordings:
            first = bisect_left(life.inputs, since_us, key=itemgetter(0))
            found += [
                Entry(at_us, me, given, [e.event if isinstance(e, Tell) else e for e in effects])
                for (at_us, given), effects in zip(life.inputs[first:], life.effects[first:], strict=True)
            ]
        return found

    def log(self, since_us: int = 0) -> list[Entry]:
        everything = [entry for me in self.everyone for entry in self.entries(me, since_us)]
        return sorted(everything, key=lambda entry: entry.at_us)

    def sent(self, kind: type[Packet], since_us: int = 0, source: ProcessorId | None = None) -> list[Sent]:
        return [
            Sent(entry.at_us, entry.me, effect.to, effect.packet)
            for entry in self.log(since_us)
            if source in (None, entry.me)
            for effect in entry.effects
            if isinstance(effect, Send) and isinstance(effect.packet, kind)
        ]

    def tokens(self, since_us: int = 0, source: ProcessorId | None = None) -> list[RegularToken]:
        return [sent.packet for sent in self.sent(RegularToken, since_us, source)]

    def joins(self, since_us: int = 0, source: ProcessorId | None = None) -> list[Join]:
        return [sent.packet for sent in self.sent(Join, since_us, source)]

    def delivered(self, me: ProcessorId, since_us: int = 0) -> list[Deliver]:
        return [d for entry in self.entries(me, since_us) for d in entry.delivered]

    def installed(
        self, me: ProcessorId, kind: ConfigurationKind | None = None, since_us: int = 0
    ) -> list[Configuration]:
        return [
            effect.configuration
            for entry in self.entries(me, since_us)
            for effect in entry.effects
            if isinstance(effect, InstallConfiguration) and kind in (None, effect.configuration.kind)
        ]

    def rows(self, kind: str, me: ProcessorId | None = None, since_us: int = 0) -> list[Row]:
        return [
            row
            for row in self.world.rows
            if row.kind == kind and me in (None, row.node) and row.at_us >= since_us
        ]

    def details(self, kind: str, me: ProcessorId | None = None, since_us: int = 0) -> list[str]:
        return [told(row) for row in self.rows(kind, me, since_us)]

    def installed_at(self, me: ProcessorId, ring_id: RingId) -> int:
        """When a processor installed a ring."""
        return next(row.at_us for row in self.rows("configuration", me) if row.configuration == str(ring_id))

    def assert_checkers_hold(self) -> None:
        violated = check(self.world.rows).violated
        assert not violated, "\n".join(map(str, violated))


def decoded(config: RingConfig, datagram: bytes) -> Packet:
    """The packet of a datagram that holds one whole."""
    return packet_of(config, datagram[SEGMENT.size :])


def packet_of(config: RingConfig, data: bytes) -> Packet:
    return ring_codec(config.cluster_id, config.ring_kind).decode(data)


def received(entry: Entry, config: RingConfig = CALM) -> list[Packet]:
    """What came in with a `receive`; small packets only."""
    return (
        [decoded(config, datagram) for datagram in entry.given.datagrams]
        if isinstance(entry.given, Arrived)
        else []
    )


def seqs(messages: Iterable[Any]) -> list[int]:
    """The sequence numbers of deliveries or of messages."""
    return [item.key.seq if isinstance(item, Deliver) else item.seq for item in messages]


def join(
    sender: ProcessorId,
    proc_set: Iterable[ProcessorId],
    fail_set: Iterable[ProcessorId] = (),
    *,
    ring_seq: int,
    counter: int = 10**6,
) -> Join:
    """A Join out of nowhere; its counter makes it newer than any true one."""
    return Join(sender, 10**6, counter, ring_seq, ring_seq, frozenset(proc_set), frozenset(fail_set), 0)
