"""A bench for one replicator: packets of the others are handed to it by hand, on the network of one's choice.

The ring above it is a stand-in that knows what it has and what it would ask for. `worlds` is for whole runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from totempole.core.effects import CancelTimer, Channel, Effect, Role, Send, SetTimer, TimerName, Trace
from totempole.core.inputs import Arrived, Command, Expired
from totempole.core.io import Io
from totempole.core.stack import Stack
from totempole.link import Link
from totempole.rrp.accounts import Accounts
from totempole.rrp.config import RedundancyConfig
from totempole.rrp.copies import CopyReassembler
from totempole.rrp.hello import Hello, Ways
from totempole.rrp.layer import LAYER, Replicator
from totempole.rrp.paths import Finding
from totempole.rrp.route import WHOLE, bits_of
from totempole.rrp.timers import Timer
from totempole.segment import Cutter
from totempole.segment.cutter import cut
from totempole.segment.header import data_name
from totempole.srp.config import RingConfig
from totempole.srp.packets import Join, RegularMessage, RegularToken
from totempole.stack import new_codec
from totempole.types import ProcessorId, RingId, Service

RING = RingId(8, 1)
NEXT_RING = RingId(12, 1)
ME = 1
PREDECESSOR = 3
GATE = TimerName(LAYER, 0, int(Timer.GATE))
HELLO = TimerName(LAYER, 0, int(Timer.HELLO))
WAIT_MOST_US = 5_000
CONFIG = RingConfig()


class StandIn:
    """A ring of three: it takes what comes, and says what it would ask for."""

    def __init__(self, members: tuple[ProcessorId, ...]) -> None:
        self.members = members
        self.token_wait_most_us = WAIT_MOST_US
        self.due: int | None = None
        """Messages up to here are due, on an accelerated ring; None: those before the token."""
        self.tokens: list[RegularToken] = []
        self.messages: list[RegularMessage] = []
        self.others: list[Any] = []
        self.refusals: list[str] = []
        self.newest: tuple[RingId, int] = (RING, 0)
        self._have: defaultdict[RingId, set[int]] = defaultdict(set)
        self._whole: Counter[RingId] = Counter()
        """There are all messages of a ring up to this number."""

    def awaits(self, token: RegularToken) -> bool:
        ring, seq = self.newest
        is_next = token.ring_id != ring or token.token_seq > seq
        return token.sender == (PREDECESSOR if PREDECESSOR in self.members else ME) and is_next

    def missing(self, token: RegularToken) -> Sequence[int]:
        have = self._have[token.ring_id]
        while self._whole[token.ring_id] + 1 in have:
            self._whole[token.ring_id] += 1
        up_to = token.seq if self.due is None else min(self.due, token.seq)
        return [seq for seq in range(self._whole[token.ring_id] + 1, up_to + 1) if seq not in have]

    def misses(self, token: RegularToken) -> bool:
        return bool(self.missing(token))

    def received(self, _network: int, packet: Any, _data: bytes) -> None:
        if type(packet) is RegularToken and (packet.sender == ME or self.awaits(packet)):
            self.tokens.append(packet)
            self.newest = (packet.ring_id, packet.token_seq)
        elif type(packet) is RegularMessage:
            self.messages.append(packet)
            self._have[packet.ring_id].add(packet.seq)
        else:
            self.others.append(packet)

    def refused(self, _network: int, reason: str) -> None:
        self.refusals.append(reason)


class Bench:
    def __init__(
        self,
        style: str = "passive",
        networks: int = 2,
        copies: int = 0,
        tokens: str = "all",
        capacities: tuple[int, ...] = (),
        segment_bytes: tuple[int, ...] = (),
        members: tuple[ProcessorId, ...] = (1, 2, 3),
        draw: float = 0.5,
    ) -> None:
        config = RedundancyConfig(style=style, copies=copies, tokens=tokens)
        self.networks = tuple(range(networks))
        self.capacities = capacities or (1,) * networks
        sizes = segment_bytes or (1_400,) * networks
        self.io = Io(frozenset({"branch", "drop"}))
        self.accounts = Accounts(self.capacities, config.copies_on(networks))
        self.codec = new_codec(CONFIG, None, True)
        reassembler = CopyReassembler(
            CONFIG.reassembly_bytes_max, self.io, self.accounts, 0, CONFIG.cluster_id
        )
        self.links = [
            Link(self.io, number, self.codec, Cutter(size, ME, 1, CONFIG.cluster_id), reassembler)
            for number, size in enumerate(sizes)
        ]
        self.ring = StandIn(members)
        self.replicator = Replicator(
            self.io,
            0,
            ME,
            1,
            config,
            tuple("abcdefg"[:networks]),
            self.capacities,
            self.codec,
            Cutter(sizes[0], ME, 1, CONFIG.cluster_id),
            self.links,
            self.accounts,
            reassembler,
            RegularMessage,
            RegularToken,
            lambda: draw,
        )
        self.replicator.connect(self.ring)
        for link in self.links:
            link.connect(self.replicator)
        receivers = dict(enumerate(self.links))
        self.stack = Stack(ME, 1, self.io, [*self.links, self.replicator], receivers)
        self.now_us = 1_000_000
        self.timers: dict[TimerName, int] = {}
        self.effects: list[Effect] = []
        self._counter = 0

    # What comes

    def feed(self, given: Any) -> list[Effect]:
        effects = self.stack.feed(self.now_us, given)
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.timer, None)
        self.effects += effects
        return effects

    def arrive(self, network: int, datagrams: Sequence[bytes], channel: Channel = Channel.DATA) -> None:
        for datagram in datagrams:
            self.feed(Arrived(network, channel, (datagram,), 0, f"address {network}"))

    def message(self, seq: int, on: Sequence[int] = (), sender: int = 2, size: int = 10) -> list[bytes]:
        """The datagrams of a message that was sent on these networks; by itself nothing comes."""
        packet = RegularMessage(
            sender, 1, RING, seq, seq, Service.AGREED, 0, sender, RING, (), False, False, bytes(size)
        )
        data = self.codec.encode(packet, bits_of(tuple(on) or self.networks) | WHOLE)
        bursts = cut(data_name(RING, seq), data, 1_400, (), CONFIG.cluster_id)
        return [datagram for burst in bursts for datagram in burst.datagrams]

    def token(
        self,
        token_seq: int,
        seq: int = 0,
        on: Sequence[int] = (),
        ring: RingId = RING,
        sender: ProcessorId = PREDECESSOR,
    ) -> list[bytes]:
        packet = RegularToken(sender, 1, ring, token_seq, seq, 0)
        data = self.codec.encode(packet, bits_of(tuple(on) or self.networks) | WHOLE)
        return self._control(data, sender)

    def join(self, sender: ProcessorId = 2) -> list[bytes]:
        packet = Join(sender, 1, 1, 0, 0, frozenset({sender}), frozenset(), 0)
        return self._control(self.codec.encode(packet), sender)

    def hello(
        self,
        network: int,
        counter: int,
        sender: ProcessorId = 2,
        padding: int = 0,
        incarnation: int = 1,
        ways: Ways | None = None,
        segment_bytes: int = 1_400,
    ) -> list[bytes]:
        ways = ways or self.replicator.watch.ways
        packet = Hello(sender, incarnation, counter, network, ways, segment_bytes, padding)
        return self._control(self.codec.encode(packet), sender)

    def _control(self, data: bytes, sender: ProcessorId) -> list[bytes]:
        self._counter += 1
        cutter = Cutter(9_000, sender, self._counter, CONFIG.cluster_id)
        return [datagram for burst in cutter.cut(data) for datagram in burst.datagrams]

    def come(self, what: list[bytes], *networks: int) -> None:
        """On these networks, one after the other."""
        for network in networks:
            self.arrive(network, what)

    def hellos(self, counter: int, sender: ProcessorId, networks: Sequence[int]) -> None:
        """A round of them, short and long, on these networks only."""
        for network in networks:
            for padding in (0, 1_000):
                self.come(self.hello(network, counter, sender, padding), network)

    def run_out(self, timer: TimerName) -> None:
        """Its time has come."""
        self.now_us = max(self.now_us, self.timers.pop(timer))
        self.feed(Expired(timer))

    def ask(self, command: Command) -> None:
        self.feed(command)

    # What follows

    @property
    def tokens(self) -> list[tuple[RingId, int]]:
        """Those that went up."""
        return [(token.ring_id, token.token_seq) for token in self.ring.tokens]

    @property
    def sequence(self) -> list[int]:
        return [message.seq for message in self.ring.messages]

    @property
    def found(self) -> list[Finding]:
        """The bad paths."""
        return list(self.replicator.findings)

    @property
    def crossed(self) -> list[tuple[int, int]]:
        return list(self.replicator.crossed)

    @property
    def holds(self) -> bool:
        return self.replicator._gate.held is not None

    def says(self, reason: str) -> int:
        return sum(
            isinstance(effect, Trace) and effect.columns.get("reason") == reason for effect in self.effects
        )

    def send(self, role: Role, to: ProcessorId | None = None, size: int = 100) -> list[Send]:
        """What a packet of this role is sent on."""
        packet: Any
        if role in (Role.MESSAGE, Role.RETRANSMISSION):
            packet = RegularMessage(
                ME, 1, RING, 1, 1, Service.AGREED, 0, ME, RING, (), False, False, bytes(size)
            )
            route = self.replicator.route(role, size) if role is Role.MESSAGE else self._last_route
            self._last_route = route
            data = self.codec.encode(packet, route)
            sent = self.replicator.send(to, Channel.DATA, packet, data, role, data_name(RING, 1))
        elif role is Role.TOKEN:
            packet = RegularToken(ME, 1, RING, 1, 0, 0)
            data = self.codec.encode(packet, self.replicator.route(role, 0))
            sent = self.replicator.send(to or 2, Channel.TOKEN, packet, data, role)
        else:
            packet = Join(ME, 1, 1, 0, 0, frozenset({ME}), frozenset(), 0)
            sent = self.replicator.send(to, Channel.DATA, packet, self.codec.encode(packet), role)
        self.io.take()
        return list(sent)

    _last_route = 0x81

    def networks_of(self, sent: Sequence[Send]) -> set[int]:
        return {network for send in sent for network in send.networks}
