"""The ring's packets on several networks at once (RRP): active, passive and active-passive replication.

The three styles differ in one number, on how many networks each message goes (`copies`): all, one, or K of N
(§7). What they have in common:

- Tokens go on every network in service, in passive replication too (RRP: on one). What a copy proves is in
  `gate`. `tokens = "one"` is RRP's way.
- Whatever is sent again, and whatever forms a ring, goes on every network, faulty or not. RRP stops sending
  on a network that it finds faulty. Then half of each of two networks may fail, so that any two processors
  still share one, and yet the ring breaks up again and again.
- Only active replication waits for all copies of a token when nothing is missing: its networks stay in step
  (requirement A3). Passive replication does so by waiting for what is missing (P2). Where some networks carry
  what others lack, nothing is missing while one falls behind: then active-passive waits for its copies, too.
- A processor alone on its ring gets its own token, on no network (RRP is silent).
- Networks may differ in the size of their datagrams: packets are cut for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol
from zlib import crc32

from totempole.core.effects import Channel, Role, Send
from totempole.core.io import Io, Scope
from totempole.core.stack import BaseLayer, Commands
from totempole.errors import ConfigurationError
from totempole.link import Link, LinkUser, Transmission
from totempole.rrp.accounts import Accounts, Taken
from totempole.rrp.commands import AddNetwork, NetworkBack, NetworkLost, RemoveNetwork
from totempole.rrp.config import RedundancyConfig
from totempole.rrp.copies import CopyReassembler
from totempole.rrp.gate import TokenGate, Waiting
from totempole.rrp.hello import Hello, Ways
from totempole.rrp.paths import Evidence, Finding
from totempole.rrp.route import WHOLE, Spread, bits_of, networks_in, route_of, sound_route, stripes
from totempole.rrp.timers import Timer
from totempole.rrp.watching import Watch
from totempole.segment import Cutter, PacketName
from totempole.types import ByteRange, ProcessorId
from totempole.wire import Codec

LAYER = "rrp"

ROTATION_WEIGHT = 4
"""The messages of one rotation count as so many losses, at most: a moment's overflow is no fault."""

WARY_US = 1_000_000
"""When a token had to be passed again, so long all tokens go on every network: where each goes on one, a dead
network would cost one after the other, and the ring in the end."""


class RingAbove(LinkUser, Protocol):
    """What the layer asks of the ring that stands on it."""

    @property
    def members(self) -> tuple[ProcessorId, ...]: ...

    @property
    def token_wait_most_us(self) -> int:
        """How long a token may be held back at each hop."""
        ...

    def awaits(self, token: Any) -> bool:
        """Whether it is the token that the ring would take next."""
        ...

    def missing(self, token: Any) -> Sequence[int]:
        """The messages that the ring would ask for if it took the token now."""
        ...

    def misses(self, token: Any) -> bool:
        """Whether there are any."""
        ...


class Links(Protocol):
    """What makes and forgets links on networks that come and go for good."""

    def add(self, network: int, segment_bytes: int) -> Link: ...

    def remove(self, network: int) -> None: ...


_cut_bytes = attrgetter("cut_bytes")
_new = tuple.__new__


class Replicator(BaseLayer):
    relays = False

    def __init__(
        self,
        io: Io,
        instance: int,
        me: ProcessorId,
        incarnation: int,
        config: RedundancyConfig,
        names: tuple[str, ...],
        capacities: tuple[int, ...],
        codec: Codec,
        cutter: Cutter,
        links: Sequence[Link],
        accounts: Accounts,
        reassembler: CopyReassembler,
        message: type,
        token: type,
        draw: Callable[[], float],
    ) -> None:
        """`message` and `token` are the classes of the ring's packets that have a route."""
        self.name = (LAYER, instance)
        self.copies = config.copies_on(len(links))
        self.names = names
        self.capacities = capacities
        self.service = self._all = (1 << len(links)) - 1
        """The networks that carry what is sent first."""
        self.drained = 0
        """The networks that carry no data at all."""
        self.holes = reassembler.holes
        self._everywhere = False
        self._io = io
        self._scope = Scope(io, LAYER, instance, Timer)
        self._me = me
        self._config = config
        self._cutter = cutter
        self._links = {link.network: place for place, link in enumerate(links)}
        self._link = list(links)
        self._networks = tuple(link.network for link in links)
        self._accounts = accounts
        self._message, self._token = message, token
        self._gate = TokenGate()
        self._spread = Spread(capacities, self.copies, min(link.segment_bytes for link in links))
        self._next_token = me
        """Not the same at all processors, or they would all send their tokens on a dead network in one
        rotation."""
        self._wary_until_us = 0
        self.watch = Watch(
            self._scope, me, incarnation, config.hello_us, codec, cutter, self._link, self._own_ways(), draw
        )
        self._ring: RingAbove
        self._maker: Links

    def connect(self, above: RingAbove) -> None:
        self._ring = above
        self.watch.connect(above)

    def connect_links(self, maker: Links) -> None:
        self._maker = maker

    def _own_ways(self) -> Ways:
        return Ways(
            len(self._link),
            self.copies,
            int(self._config.tokens == "all"),
            crc32("\n".join(self.names).encode()),
            crc32(repr(self.capacities).encode()),
        )

    # What the node shows

    @property
    def networks(self) -> tuple[int, ...]:
        """Their numbers in the stack."""
        return self._networks

    @property
    def segment_bytes(self) -> int:
        """The largest datagram that this processor can take on any network."""
        return min(link.segment_bytes for link in self._link)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The bad paths from members of the ring to this processor."""
        return self.watch.findings

    @property
    def crossed(self) -> tuple[tuple[int, int], ...]:
        """Networks that are wired together, as far as this processor can tell."""
        return self.watch.crossed

    # The service, which all members decide on together (totempole.networks)

    def serve(self, service: int, drained: int, everywhere: bool) -> None:
        """From now on first sends go on the networks in `service`; with `everywhere`, on all of these."""
        assert service, "the last network in service is never marked"
        assert not service & drained, "a drained network carries no data"
        for place in networks_in(service & ~self.service):
            self._spread.returned(place)
        self.service, self.drained, self._everywhere = service, drained, everywhere

    # Down

    def route(self, role: Role, length: int) -> int:
        if role is Role.MESSAGE:
            self._spread.settle()
            return self.service | WHOLE if self._everywhere else self._spread.route(length, self.service)
        if role is not Role.TOKEN:
            return 0
        if self._config.tokens == "all" or self._everywhere or self._io.now_us < self._wary_until_us:
            return self.service | WHOLE
        networks = networks_in(self.service)
        first = self._next_token = (self._next_token + 1) % len(networks)
        count = min(self.copies, len(networks))
        return bits_of([networks[(first + place) % len(networks)] for place in range(count)]) | WHOLE

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
        name = name or self._cutter.next_name()
        if to == self._me:
            return self._emit(((0, ()),), to, channel, packet, data, role, name)
        if self.watch.is_hello_due(role):
            self._say_hello()
        route = route_of(data)
        if role is Role.MESSAGE and route:
            carried = stripes(len(data), route, self.capacities, self.copies)
        elif role is Role.TOKEN and route:
            carried = tuple((place, ()) for place in networks_in(route))
        else:
            carried = tuple((place, tuple(ranges)) for place in self._everyone(role))
        return self._emit(carried, to, channel, packet, data, role, name)

    def repeat(self, sent: Transmission, role: Role) -> None:
        """On every network, wherever it went at first."""
        if role is Role.TOKEN_AGAIN:
            self._wary_until_us = self._io.now_us + WARY_US
        networks = tuple(self._networks[place] for place in self._everyone(role))
        first = sent[0]
        if first.to == self._me:
            networks = first.networks
        self._io.effects.append(first._replace(networks=networks, role=role))

    def _everyone(self, role: Role) -> tuple[int, ...]:
        """The networks for what is sent again, and for what forms a ring."""
        holds_data = role is Role.RETRANSMISSION or role is Role.TOKEN_AGAIN
        return networks_in(self._all & ~self.drained if holds_data else self._all)

    def _emit(
        self,
        carried: Iterable[tuple[int, tuple[ByteRange, ...]]],
        to: ProcessorId | None,
        channel: Channel,
        packet: Any,
        data: bytes,
        role: Role,
        name: PacketName,
    ) -> Transmission:
        """One transmission for all networks that carry the same datagrams. A token may be repeated on
        another network than those that it went on: it is cut for all of them."""
        alike: dict[tuple[int, tuple[ByteRange, ...]], list[int]] = {}
        for place, ranges in carried:
            size = 0 if channel is Channel.TOKEN else self._link[place].cut_bytes
            alike.setdefault((size, ranges), []).append(place)
        sent = []
        for (size, ranges), places in alike.items():
            link = self._link[places[0]] if size else min(self._link, key=_cut_bytes)
            bursts = link.cut(data, name, ranges)
            networks = tuple([self._networks[place] for place in places])
            sent.append(Send(networks, to, channel, bursts, role, packet))
        self._io.effects += sent
        return tuple(sent)

    def limit_segments(self, least: int) -> None:
        self.watch.limit_segments(least)

    def _say_hello(self) -> None:
        self.watch.say_hello(hasty=self.service != self._all)

    # Up

    def refused(self, network: int, reason: str) -> None:
        self._ring.refused(network, reason)

    def received(self, network: int, packet: Any, data: bytes) -> None:
        kind = type(packet)
        if kind is self._message:
            route = sound_route(route_of(data), self._all, self.copies)
            self._accounts.take(packet.ring_id, packet.seq, _new(Taken, (packet.sender, route, len(data))))
            self._ring.received(network, packet, data)
        elif kind is self._token:
            self._take_token(network, packet, data)
        elif kind is Hello:
            self.watch.take_hello(self._links[network], packet)
        else:
            self.watch.note_speech(packet.sender)
            self._ring.received(network, packet, data)

    def settle(self) -> None:
        """A message has come, perhaps the one that a held token waits for."""
        if self._gate.held is not None and self._is_through(self._gate.held.token):
            self._pass_up()

    # Tokens

    def _take_token(self, network: int, token: Any, data: bytes) -> None:
        gate, place = self._gate, self._links[network]
        key = (token.ring_id, token.token_seq)
        if token.sender == self._me:
            self._ring.received(network, token, data)
        elif key == gate.key:
            gate.copy(place, self._io.now_us)
            if gate.held is not None and self._is_through(token):
                self._pass_up()
        elif self._ring.awaits(token):
            alive = self._accounts.take_heard()
            gate.begin(key, token.sender, route_of(data) & self._all, place, self._io.now_us, alive)
            self._note_copies()
            gate.held = Waiting(network, token, data)
            if self._is_through(token):
                self._pass_up()
            else:
                self._scope.set_timer(Timer.GATE, gate.wait_us(self._ring.token_wait_most_us))
        else:
            gate.late_copy(key, place, self._io.now_us)
            self._ring.received(network, token, data)  # which says what is wrong with it

    def _is_through(self, token: Any) -> bool:
        """Whether the token may go up: nothing is under way any more that it could overtake."""
        gate = self._gate
        if gate.lost == 0 and not self.service & ~gate.named:
            return True
        waits_for_copies = self.copies == len(self._link) or (self.copies > 1 and gate.is_behind)
        if waits_for_copies and self._config.tokens == "all":
            return False
        return not self._ring.misses(token)

    def _pass_up(self) -> None:
        self._scope.cancel_timer(Timer.GATE)
        self.watch.follow_members()
        network, token, data = self._gate.release()
        shares = self._accounts.visit(
            token.ring_id, token.seq, self._ring.missing(token), self._io.now_us, self._gate.late_us
        )
        for share in shares:
            weight = min(share.messages, ROTATION_WEIGHT)
            self.watch.note(share.sender, share.network, Evidence.MESSAGES, share.lost, weight)
        self._ring.received(network, token, data)

    def _note_copies(self) -> None:
        for sender, place, is_lost in self._gate.settled(self._io.now_us):
            self.watch.note(sender, place, Evidence.TOKENS, float(is_lost))

    def expired(self, timer: int) -> None:
        self._scope.expired(Timer(timer))
        if timer == Timer.GATE:
            if self._gate.held is not None:
                self._branch("token passed up by its timer")
                self._pass_up()
        else:
            self._say_hello()

    # Interfaces

    @property
    def commands(self) -> Commands:
        return {
            NetworkLost: self._network_lost,
            NetworkBack: self._network_back,
            AddNetwork: self._add_network,
            RemoveNetwork: self._remove_network,
        }

    def _network_lost(self, command: NetworkLost) -> None:
        place = self._links.get(command.network)
        if place is not None:
            self.watch.interface_lost(place)

    def _network_back(self, command: NetworkBack) -> None:
        place = self._links.get(command.network)
        if place is not None:
            self.watch.interface_back(place)

    # Networks that come and go for good

    def _add_network(self, command: AddNetwork) -> None:
        if command.ring != self.name[1]:
            return
        self._config.copies_on(len(self._link) + 1)  # which refuses too many
        link = self._maker.add(command.network, command.segment_bytes)
        self._have([*self._link, link], (*self.names, command.name), (*self.capacities, command.capacity))

    def _remove_network(self, command: RemoveNetwork) -> None:
        if command.network not in self._links:
            return
        place = self._links[command.network]
        if place != len(self._link) - 1:
            raise ConfigurationError(f"network {self.names[place]}: it is not the last")
        self._config.copies_on(place)  # which refuses too few
        if not self.service & ~(1 << place):
            raise ConfigurationError(f"network {self.names[place]}: no other network is in service")
        self._maker.remove(command.network)
        self._gate.forget(place)
        self._have(self._link[:-1], self.names[:-1], self.capacities[:-1])

    def _have(self, links: list[Link], names: tuple[str, ...], capacities: tuple[int, ...]) -> None:
        """From now on it has these networks: one more at the end, or one less."""
        self._link, self.names, self.capacities = links, names, capacities
        self._links = {link.network: place for place, link in enumerate(links)}
        self._networks = tuple(link.network for link in links)
        self._all = (1 << len(links)) - 1
        self.service &= self._all
        self.drained &= self._all
        self.copies = self._config.copies_on(len(links))
        self._spread.change(capacities, self.copies, min(link.segment_bytes for link in links))
        self._accounts.change(capacities, self.copies)
        self.watch.change(links, self._own_ways())

    # The trace

    def _branch(self, name: str) -> None:
        if self._scope.traces("branch"):
            self._scope.trace("branch", {"reason": name})
