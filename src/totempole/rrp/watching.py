"""Who is heard on which network, and who is not: hellos, and the evidence of messages and tokens.

Processors say hello on each network, short and long (`hello`). Hellos that come on one network and not on
another tell what is wrong with that one, also while nothing else is sent on it. What tokens and messages tell
is noted here, too, by path (`paths`). Hellos also tell how long datagrams may be, that two networks are wired
together, and that somebody uses the networks in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from totempole.core.effects import Channel, Role, Send
from totempole.core.io import Scope
from totempole.link import Link
from totempole.rrp.alarms import WaysDiffer
from totempole.rrp.hello import Hello, Ways
from totempole.rrp.paths import Evidence, Finding, Lost, Path
from totempole.rrp.timers import Timer
from totempole.segment import Cutter
from totempole.types import ProcessorId
from totempole.wire import Codec
from totempole.wire.layout import DATAGRAM_BYTES_MIN

HELLO_GAP_US = 50_000
"""While processors search each other they say hello as often as this, and no more often."""

HASTE = 4
"""While a network is not in service hellos come so much more often."""

HELLO_ROOM = 128
"""What a long hello leaves of a datagram for headers and seal."""

LONG_MAX = 9_000
"""A long hello, at most: what the largest common networks take."""

CROSSED_LEAST = 3
"""Rounds in which a hello of one network comes on another: so many mean that the two are wired together, and
as many without it that they are not any more."""

SILENT_LEAST = 10
"""So many packets without a hello, and one should have come."""

SPEAKERS_MAX = 1024
"""Processors of which it is known what they said."""


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


class Membership(Protocol):
    """What is asked of the ring."""

    @property
    def members(self) -> tuple[ProcessorId, ...]: ...


class Watch:
    """What one processor of a ring on several networks hears of the others."""

    def __init__(
        self,
        scope: Scope,
        me: ProcessorId,
        incarnation: int,
        hello_us: int,
        codec: Codec,
        cutter: Cutter,
        links: Sequence[Link],
        ways: Ways,
        draw: Callable[[], float],
    ) -> None:
        """`scope` is that of the layer which it belongs to."""
        self.findings: tuple[Finding, ...] = ()
        """The bad paths from members of the ring to this processor."""
        self.crossed: tuple[tuple[int, int], ...] = ()
        """Networks that are wired together, as far as this processor can tell."""
        self.ways = ways
        """How this processor uses the networks."""
        self._scope = scope
        self._io = scope.io
        self._me = me
        self._incarnation = incarnation
        self._interval_us = hello_us
        self._codec = codec
        self._cutter = cutter
        self._link = links
        self._draw = draw
        self._speakers: dict[ProcessorId, Speaker] = {}
        self._silent: dict[ProcessorId, int] = {}
        """How many packets have come of processors that have never said hello."""
        self._monitored: tuple[ProcessorId, ...] = ()
        self._least = min(link.segment_bytes for link in links)
        """The largest datagram that every member takes on any network."""
        self._interface_lost = 0
        self._counter = 0
        self._hello_us = -HELLO_GAP_US
        self._ring: Membership

    def connect(self, ring: Membership) -> None:
        self._ring = ring

    def change(self, links: Sequence[Link], ways: Ways) -> None:
        """From now on it has these networks: one more at the end, or one less."""
        self._link, self.ways = links, ways
        self._interface_lost &= (1 << len(links)) - 1
        for speaker in self._speakers.values():
            speaker.resize(len(links))
        self._fit()
        self.find()
        self._find_crossed()

    # What the node shows

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

    # How long datagrams may be

    def limit_segments(self, least: int) -> None:
        """`least` is what every member takes on any network; hellos say more of each."""
        self._least = least
        self._fit()

    def follow_members(self) -> None:
        members = self._ring.members
        if members is not self._monitored:
            self._monitored = members
            self._fit()
            self.find()

    def _fit(self) -> None:
        for place, link in enumerate(self._link):
            others = [member for member in self._monitored if member != self._me]
            told = [self._segment_bytes_of(member, place) or self._least for member in others]
            link.limit_segments(min(told, default=link.segment_bytes))

    def _segment_bytes_of(self, member: ProcessorId, place: int) -> int:
        speaker = self._speakers.get(member)
        return speaker.segment_bytes[place] if speaker else 0

    # What comes, and what does not

    def note(self, sender: ProcessorId, place: int, evidence: Evidence, lost: float, count: int = 1) -> None:
        if sender == self._me or sender not in self._ring.members or place >= len(self._link):
            return
        if self._speaker(sender).paths[place].note(evidence, lost, count):
            self.find()

    def _speaker(self, processor: ProcessorId) -> Speaker:
        speaker = self._speakers.get(processor)
        if speaker is None:
            if len(self._speakers) >= SPEAKERS_MAX:
                strangers = [known for known in self._speakers if known not in self._ring.members]
                for stranger in strangers or list(self._speakers)[:1]:
                    del self._speakers[stranger]
            speaker = self._speakers[processor] = Speaker(0, len(self._link))
        return speaker

    def find(self) -> None:
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

    def interface_lost(self, place: int) -> None:
        self._interface_lost |= 1 << place
        self.find()

    def interface_back(self, place: int) -> None:
        if self._interface_lost >> place & 1:
            self._interface_lost &= ~(1 << place)
            for speaker in self._speakers.values():
                # Clear when hellos have come for a while, and not at once.
                speaker.paths[place].suspect()
            self.find()
            self._greet(place)

    def _greet(self, place: int) -> None:
        """The interface may be a new one with another hardware address. What comes from it by unicast has the
        others learn that; a hello to all does not, and their tokens would go to the old one for a while."""
        if not self._counter:
            return  # nobody knows an address of this life yet
        link = self._link[place]
        size = max(DATAGRAM_BYTES_MIN, link.segment_bytes)
        hello = Hello(self._me, self._incarnation, self._counter, place, self.ways, size, 0)
        data = self._codec.encode(hello)
        for member in self._ring.members:
            if member != self._me:
                bursts = link.cut(data, self._cutter.next_name(), ())
                send = Send((link.network,), member, Channel.DATA, bursts, Role.SEARCH, hello)
                self._io.effects.append(send)

    # Hellos

    def is_hello_due(self, role: Role) -> bool:
        """With a packet of this role: from the first one on, for before it this life is not on stable
        storage. While processors search each other, more often."""
        since_us = self._io.now_us - self._hello_us
        return since_us >= HELLO_GAP_US and (role is Role.SEARCH or not self._counter)

    def say_hello(self, hasty: bool) -> None:
        """`hasty`: a network has failed, and the others wait to learn what it is, or that it is over."""
        self._counter += 1
        self._hello_us = self._io.now_us
        self._end_crossing(self._speaker(self._me))
        after_us = self._interval_us // (HASTE if hasty or self.findings else 1)
        self._scope.set_timer(Timer.HELLO, int(after_us * (0.9 + self._draw() / 5)))
        for place, link in enumerate(self._link):
            room = min(link.cut_bytes, LONG_MAX) - HELLO_ROOM
            for padding in (0, max(0, room)):
                size = max(DATAGRAM_BYTES_MIN, link.segment_bytes)
                hello = Hello(self._me, self._incarnation, self._counter, place, self.ways, size, padding)
                data = self._codec.encode(hello)
                bursts = link.cut(data, self._cutter.next_name(), ())
                send = Send((link.network,), None, Channel.DATA, bursts, Role.SEARCH, hello)
                self._io.effects.append(send)

    def take_hello(self, place: int, hello: Hello) -> None:
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

    def note_speech(self, sender: ProcessorId) -> None:
        """Whoever speaks and says no hello is on one network only: its ring and this one cannot meet."""
        speaker = self._speakers.get(sender)
        if sender == self._me or (speaker is not None and speaker.incarnation):
            return
        if len(self._silent) >= SPEAKERS_MAX:
            self._silent.clear()
        times = self._silent[sender] = self._silent.get(sender, 0) + 1
        if times == SILENT_LEAST:
            self._scope.alarm(WaysDiffer(sender, "networks", 1, self.ways.networks))

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
        theirs, mine = hello.ways, self.ways
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
            self.find()

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

    def _drop(self, reason: str) -> None:
        if self._scope.traces("drop"):
            self._scope.trace("drop", {"reason": reason})
