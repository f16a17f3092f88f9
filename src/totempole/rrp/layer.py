"""The ring's packets on several networks at once (004): active, passive and active-passive replication.

The three styles differ in one number, on how many networks each message goes (`copies`): all, one, or K of N
(§7). What they have in common:

- Tokens go on every network in service, in passive replication too (004: on one). What a copy proves is in
  `gate`. `tokens = "one"` is 004's way.
- Whatever is sent again, and whatever forms a ring, goes on every network, faulty or not. 004 stops sending
  on a network that it finds faulty. Then half of each of two networks may fail, so that any two processors
  still share one, and yet the ring breaks up again and again.
- Only active replication waits for all copies of a token when nothing is missing: its networks stay in step
  (requirement A3). The others do so by waiting for what is missing (P2).
- A processor alone on its ring gets its own token, on no network (004 is silent).
- Networks may differ in the size of their datagrams: packets are cut for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any, Protocol
from zlib import crc32

from totempole.core.effects import Channel, Role, Send
from totempole.core.io import Io, Scope
from totempole.core.stack import BaseLayer, Commands
from totempole.errors import ConfigurationError
from totempole.link import Link, LinkUser, Transmission
from totempole.rrp.accounts import Accounts, Taken
from totempole.rrp.alarms import WaysDiffer
from totempole.rrp.commands import AddNetwork, NetworkBack, NetworkLost, RemoveNetwork
from totempole.rrp.config import RedundancyConfig
from totempole.rrp.copies import CopyReassembler
from totempole.rrp.gate import TokenGate, Waiting
from totempole.rrp.hello import Hello, Ways
from totempole.rrp.paths import Evidence, Finding, Lost, Path
from totempole.rrp.route import WHOLE, Spread, bits_of, networks_in, route_of, sound_route, stripes
from totempole.segment import Cutter, PacketName
from totempole.types import ByteRange, ProcessorId
from totempole.wire import Codec
from totempole.wire.layout import DATAGRAM_BYTES_MIN

LAYER = "rrp"

HELLO_GAP_US = 50_000
"""While processors search each other they say hello as often as this, and no more often."""

ROTATION_WEIGHT = 4
"""The messages of one rotation count as so many losses, at most: a moment's overflow is no fault."""

HASTE = 4
"""While a network is not in service hellos come so much more often."""

HELLO_ROOM = 128
"""What a long hello leaves of a datagram for headers and seal."""

LONG_MAX = 9_000
"""A long hello, at most: what the largest common networks take."""

WARY_US = 1_000_000
"""When a token had to be passed again, so long all tokens go on every network: where each goes on one, a dead
network would cost one after the other, and the ring in the end."""

CROSSED_LEAST = 3
"""Rounds in which a hello of one network comes on another: so many mean that the two are wired together, and
as many without it that they are not any more."""

SILENT_LEAST = 10
"""So many packets without a hello, and one should have come."""

SPEAKERS_MAX = 1024
"""Processors of which it is known what they said."""


class Timer(IntEnum):
    GATE = 0
    HELLO = 1


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


class Speaker:
    """What one processor has said of itself, on each network."""

    __slots__ = ("crossed", "crossed_now", "heard", "incarnation", "paths", "segment_bytes", "ways")

    def __init__(self, incarnation: int, networks: int) -> None:
        self.incarnation = incarnation
        self.heard = [[0, 0] for _ in range(networks)]
        """The counters of its latest hellos on each network, short and long."""
        self.segment_bytes = [0] * networks
        self.paths = [Path() for _ in range(networks)]
        self.ways: Ways | None = None
        """As it has said last."""
        self.crossed: dict[tuple[int, int], int] = {}
        """How many rounds of its hellos have crossed from one network to another, less those that did not."""
        self.crossed_now: set[tuple[int, int]] = set()
        """In this round."""

    def resize(self, networks: int) -> None:
        """This processor has more networks, or fewer."""
        more = range(networks - len(self.paths))
        self.heard = [*self.heard, *([0, 0] for _ in more)][:networks]
        self.segment_bytes = [*self.segment_bytes, *(0 for _ in more)][:networks]
        self.paths = [*self.paths, *(Path() for _ in more)][:networks]
        self.crossed = {pair: rounds for pair, rounds in self.crossed.items() if max(pair) < networks}
        self.crossed_now = {pair for pair in self.crossed_now if max(pair) < networks}


class Replicator(BaseLayer):
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
        self.findings: tuple[Finding, ...] = ()
        """The bad paths from members of the ring to this processor."""
        self.crossed: tuple[tuple[int, int], ...] = ()
        """Networks that are wired together, as far as this processor can tell."""
        self.holes = reassembler.holes
        self._everywhere = False
        self._io = io
        self._scope = Scope(io, LAYER, instance, Timer)
        self._me = me
        self._incarnation = incarnation
        self._config = config
        self._codec = codec
        self._cutter = cutter
        self._links = {link.network: place for place, link in enumerate(links)}
        self._link = list(links)
        self._networks = tuple(link.network for link in links)
        self._accounts = accounts
        self._message, self._token = message, token
        self._draw = draw
        self._gate = TokenGate()
        self._spread = Spread(capacities, self.copies, min(link.segment_bytes for link in links))
        self._next_token = me
        """Not the same at all processors, or they would all send their tokens on a dead network in one
        rotation."""
        self._wary_until_us = 0
        self._speakers: dict[ProcessorId, Speaker] = {}
        self._silent: dict[ProcessorId, int] = {}
        """How many packets have come of processors that have never said hello."""
        self._monitored: tuple[ProcessorId, ...] = ()
        self._least = self.segment_bytes
        self._interface_lost = 0
        self._counter = 0
        self._hello_us = -HELLO_GAP_US
        self._ways = self._own_ways()
        self._ring: RingAbove
        self._maker: Links

    def connect(self, above: RingAbove) -> None:
        self._ring = above

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

    def loss(self, sender: ProcessorId, network: int) -> float:
        """The share of what it sent lately on a network and did not come."""
        speaker = self._speakers.get(sender)
        return speaker.paths[network].loss if speaker and network < len(speaker.paths) else 0.0

    def hears(self, sender: ProcessorId, network: int) -> bool:
        """Whether anything of it has come lately on a network."""
        speaker = self._speakers.get(sender)
        if speaker is None or network >= len(speaker.paths):
            return False
        return bool(speaker.heard[network][0]) and not speaker.paths[network].bad

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
        self._say_hello_with(role)
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
        """`least` is what every member takes on any network; hellos say more of each."""
        self._least = least
        self._fit()

    def _fit(self) -> None:
        for place, link in enumerate(self._link):
            others = [member for member in self._monitored if member != self._me]
            told = [self._segment_bytes_of(member, place) or self._least for member in others]
            link.limit_segments(min(told, default=link.segment_bytes))

    def _follow_members(self) -> None:
        members = self._ring.members
        if members is not self._monitored:
            self._monitored = members
            self._fit()
            self._find()

    def _segment_bytes_of(self, member: ProcessorId, place: int) -> int:
        speaker = self._speakers.get(member)
        return speaker.segment_bytes[place] if speaker else 0

    # Up

    def refused(self, network: int, reason: str) -> None:
        self._ring.refused(network, reason)

    def received(self, network: int, packet: Any, data: bytes) -> None:
        kind = type(packet)
        if kind is self._message:
            route = sound_route(route_of(data), self._all, self.copies)
            self._accounts.take(packet.ring_id, packet.seq, Taken(packet.sender, route, len(data)))
            self._ring.received(network, packet, data)
        elif kind is self._token:
            self._take_token(network, packet, data)
        elif kind is Hello:
            self._take_hello(self._links[network], packet)
        else:
            self._note_speech(packet.sender)
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
            gate.begin(key, token.sender, route_of(data) & self._all, place, self._io.now_us)
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
        waits_for_copies = self.copies == len(self._link) and self._config.tokens == "all"
        return not waits_for_copies and not self._ring.misses(token)

    def _pass_up(self) -> None:
        self._scope.cancel_timer(Timer.GATE)
        self._follow_members()
        network, token, data = self._gate.release()
        shares = self._accounts.visit(
            token.ring_id, token.seq, self._ring.missing(token), self._io.now_us, self._gate.late_us
        )
        for share in shares:
            for _ in range(min(share.messages, ROTATION_WEIGHT)):
                self._note(share.sender, share.network, Evidence.MESSAGES, share.lost)
        self._ring.received(network, token, data)

    def _note_copies(self) -> None:
        for sender, place, is_lost in self._gate.settled(self._io.now_us):
            self._note(sender, place, Evidence.TOKENS, float(is_lost))

    def expired(self, timer: int) -> None:
        self._scope.expired(Timer(timer))
        if timer == Timer.GATE:
            if self._gate.held is not None:
                self._branch("token passed up by its timer")
                self._pass_up()
        else:
            self._say_hello()

    # What comes, and what does not

    def _note(self, sender: ProcessorId, place: int, evidence: Evidence, lost: float) -> None:
        if sender == self._me or sender not in self._ring.members or place >= len(self._link):
            return
        if self._speaker(sender).paths[place].note(evidence, lost):
            self._find()

    def _speaker(self, processor: ProcessorId) -> Speaker:
        speaker = self._speakers.get(processor)
        if speaker is None:
            if len(self._speakers) >= SPEAKERS_MAX:
                strangers = [known for known in self._speakers if known not in self._ring.members]
                for stranger in strangers or list(self._speakers)[:1]:
                    del self._speakers[stranger]
            speaker = self._speakers[processor] = Speaker(0, len(self._link))
        return speaker

    def _find(self) -> None:
        """Looks at all paths from members again."""
        found = []
        for member in sorted(self._ring.members):
            if member == self._me:
                continue
            speaker = self._speakers.get(member)
            for place in range(len(self._link)):
                path = speaker.paths[place] if speaker else None
                if self._interface_lost >> place & 1:  # whatever is known of the member
                    found.append(Finding(place, member, True, int(Lost.INTERFACE)))
                elif path is not None and path.bad:
                    found.append(Finding(place, member, path.dead, path.lost))
        self.findings = tuple(found)

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
            self._interface_lost |= 1 << place
            self._find()

    def _network_back(self, command: NetworkBack) -> None:
        place = self._links.get(command.network)
        if place is not None and self._interface_lost >> place & 1:
            self._interface_lost &= ~(1 << place)
            for speaker in self._speakers.values():
                # Clear when hellos have come for a while, and not at once.
                speaker.paths[place].suspect()
            self._find()
            self._greet(place)

    def _greet(self, place: int) -> None:
        """The interface may be a new one with another hardware address. What comes from it by unicast has the
        others learn that; a hello to all does not, and their tokens would go to the old one for a while."""
        if not self._counter:
            return  # nobody knows an address of this life yet
        link = self._link[place]
        size = max(DATAGRAM_BYTES_MIN, link.segment_bytes)
        hello = Hello(self._me, self._incarnation, self._counter, place, self._ways, size, 0)
        data = self._codec.encode(hello)
        for member in self._ring.members:
            if member != self._me:
                bursts = link.cut(data, self._cutter.next_name(), ())
                send = Send((link.network,), member, Channel.DATA, bursts, Role.SEARCH, hello)
                self._io.effects.append(send)

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
        self._interface_lost &= self._all
        self.copies = self._config.copies_on(len(links))
        self._spread.change(capacities, self.copies, min(link.segment_bytes for link in links))
        self._accounts.change(capacities, self.copies)
        self._ways = self._own_ways()
        for speaker in self._speakers.values():
            speaker.resize(len(links))
        self._fit()
        self._find()
        self._find_crossed()

    # Hellos

    def _say_hello_with(self, role: Role) -> None:
        """From the first packet on: before it this life is not on stable storage. While processors search
        each other, more often."""
        if self._io.now_us - self._hello_us >= HELLO_GAP_US and (role is Role.SEARCH or not self._counter):
            self._say_hello()

    def _say_hello(self) -> None:
        self._counter += 1
        self._hello_us = self._io.now_us
        self._end_crossing(self._speaker(self._me))
        after_us = self._config.hello_us // (HASTE if self._is_troubled else 1)
        self._scope.set_timer(Timer.HELLO, int(after_us * (0.9 + self._draw() / 5)))
        for place, link in enumerate(self._link):
            room = min(link.cut_bytes, LONG_MAX) - HELLO_ROOM
            for padding in (0, max(0, room)):
                size = max(DATAGRAM_BYTES_MIN, link.segment_bytes)
                hello = Hello(self._me, self._incarnation, self._counter, place, self._ways, size, padding)
                data = self._codec.encode(hello)
                bursts = link.cut(data, self._cutter.next_name(), ())
                send = Send((link.network,), None, Channel.DATA, bursts, Role.SEARCH, hello)
                self._io.effects.append(send)

    @property
    def _is_troubled(self) -> bool:
        """Whether a network has failed: the others wait to learn what it is, or that it is over."""
        return bool(self.findings) or self.service != self._all

    def _take_hello(self, place: int, hello: Hello) -> None:
        if hello.sender == self._me:
            if hello.incarnation == self._incarnation and place != hello.network < len(self._link):
                self._note_crossed(self._speaker(self._me), hello.network, place)
            return
        speaker = self._speaker(hello.sender)
        if hello.incarnation < speaker.incarnation:
            self._drop("hello of a former life")
            return
        if hello.incarnation > speaker.incarnation:
            self._meet(hello, speaker)
        newest = max(map(max, speaker.heard))
        if hello.network != place:
            if hello.counter >= newest and hello.network < len(self._link):
                self._note_crossed(speaker, hello.network, place)
            return
        heard, long = speaker.heard[place], int(hello.padding > 0)
        if hello.counter <= heard[long]:
            self._drop("stale hello")
            return
        if hello.counter > newest:
            self._end_crossing(speaker)
            self._end_round(hello.sender, speaker, newest)
            self._compare_ways(hello, speaker)
        heard[long] = hello.counter
        self._scope.reachable(hello.sender, just_now=True)
        if speaker.segment_bytes[place] != hello.segment_bytes:
            speaker.segment_bytes[place] = hello.segment_bytes
            self._fit()

    def _note_speech(self, sender: ProcessorId) -> None:
        """Whoever speaks and says no hello is on one network only: its ring and this one cannot meet."""
        speaker = self._speakers.get(sender)
        if sender == self._me or (speaker is not None and speaker.incarnation):
            return
        if len(self._silent) >= SPEAKERS_MAX:
            self._silent.clear()
        times = self._silent[sender] = self._silent.get(sender, 0) + 1
        if times == SILENT_LEAST:
            self._scope.alarm(WaysDiffer(sender, "networks", 1, self._ways.networks))

    def _meet(self, hello: Hello, speaker: Speaker) -> None:
        """A new life of a processor: nothing that was heard before is its own."""
        speaker.incarnation = hello.incarnation
        speaker.heard = [[0, 0] for _ in self._link]
        speaker.crossed.clear()
        speaker.crossed_now.clear()
        speaker.ways = None

    def _compare_ways(self, hello: Hello, speaker: Speaker) -> None:
        """Tells of differences when another processor has said something new. Of networks that only one of
        the two has, that is the difference, and not their names and capacities."""
        theirs, mine = hello.ways, self._ways
        if theirs == speaker.ways:
            return
        speaker.ways = theirs
        names = ["networks", "tokens"]
        if theirs.networks == mine.networks:
            names += ["copies", "names", "capacities"]
        elif (theirs.copies, mine.copies) != (theirs.networks, mine.networks):
            names.append("copies")
        for name in [name for name in Ways._fields if name in names]:
            there, here = getattr(theirs, name), getattr(mine, name)
            if there != here:
                self._scope.alarm(WaysDiffer(hello.sender, name, there, here))

    def _end_round(self, sender: ProcessorId, speaker: Speaker, counter: int) -> None:
        """The next round of hellos begins: what is missing of this one is lost."""
        if not counter or sender not in self._ring.members:
            return
        changed = False
        common = speaker.ways.networks if speaker.ways else 0
        for path, (short, long) in [*zip(speaker.paths, speaker.heard, strict=True)][:common]:
            changed |= path.note(Evidence.SHORT, float(short < counter))
            changed |= path.note(Evidence.LONG, float(long < counter))
            changed |= path.round(clean=short >= counter and long >= counter)
        if changed:
            self._find()

    def _note_crossed(self, speaker: Speaker, said: int, place: int) -> None:
        """A hello of one network has come on another. A single one may be somebody's repetition."""
        pair = (min(said, place), max(said, place))
        if pair not in speaker.crossed_now:
            speaker.crossed_now.add(pair)
            speaker.crossed[pair] = min(speaker.crossed.get(pair, 0) + 1, CROSSED_LEAST)
            self._find_crossed()

    def _end_crossing(self, speaker: Speaker) -> None:
        """The next round of a processor's hellos begins."""
        for pair in [pair for pair in speaker.crossed if pair not in speaker.crossed_now]:
            speaker.crossed[pair] -= 1
            if not speaker.crossed[pair]:
                del speaker.crossed[pair]
                self._find_crossed()
        speaker.crossed_now.clear()

    def _find_crossed(self) -> None:
        found = set()
        for speaker in self._speakers.values():
            for pair, rounds in speaker.crossed.items():
                if rounds == CROSSED_LEAST or pair in self.crossed:
                    found.add(pair)
        self.crossed = tuple(sorted(found))

    # The trace

    def _branch(self, name: str) -> None:
        if self._scope.traces("branch"):
            self._scope.trace("branch", {"reason": name})

    def _drop(self, reason: str) -> None:
        if self._scope.traces("drop"):
            self._scope.trace("drop", {"reason": reason})
