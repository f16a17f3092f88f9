"""Replicas over a ring and disks that a test conducts: the real layers of groups and of the durable order.

There are no tokens and clocks. A ring is a list of packets, of which each member has received some. A change
forms new rings; each member installs its own when it is told to, or is taken into another before. So
all that groups promise comes up, and no more: transitional views, gaps for those who did not come along,
exchanges that are abandoned, and packets that are sent again in the next epoch.

What is sent outside of the order comes to whom a test likes, when it likes, as often as it likes, or never:
also to processors on other rings, which a ring would keep it from.

A disk holds frames in segments. What is appended becomes durable later, in order; a crash loses a part of the
rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from totempole.core.effects import Alarm, Append, Recall, SetTimer, Tell, TimerName
from totempole.core.inputs import Appended, Command, Expired, Recalled
from totempole.core.io import Io, Scope
from totempole.core.order import Deliver, InstallConfiguration, Order, OrderUser
from totempole.core.stack import BaseLayer, Stack
from totempole.corel.commands import CloseLog, OpenLog
from totempole.corel.config import LogConfig
from totempole.corel.frames import Begun, Mark, decode, encode
from totempole.corel.layer import LAYER, Replica
from totempole.corel.member import Timer
from totempole.corel.run import Run, pack_run
from totempole.corel.zones import Zones
from totempole.groups import GroupConfig, GroupLayer
from totempole.jitter import jitter
from totempole.types import NO_RING, Configuration, ConfigurationKind, MessageId, OrderKey, RingId, Service

RING_STEP = 4
PACKET_BYTES = 1_400
PACKETS_AHEAD = 3
HINTS_MAX = 100
"""What was sent outside of the order, and can still come."""


# The ring


class Packet(NamedTuple):
    origin: int
    incarnation: int
    number: int
    payload: bytes


class Comes(Command):
    """What the order brings up, in one input."""

    __slots__ = ("events",)

    def __init__(self, events: list[Any]) -> None:
        self.events = events


class Hint(NamedTuple):
    """Sent outside of the order."""

    ring: Ring
    sender: int
    payload: bytes


class ByHand(BaseLayer, Order):
    """One processor's end of the ring."""

    name = ("by hand", 0)
    packets_ahead = PACKETS_AHEAD
    packet_bytes = PACKET_BYTES

    def __init__(self, me: int, incarnation: int) -> None:
        self.me = me
        self.incarnation = incarnation
        self.queue: deque[Packet] = deque()
        self.unordered: deque[bytes] = deque()
        self.above: OrderUser
        self._number = 0

    @property
    def commands(self) -> Any:
        return {Comes: self._come}

    @property
    def queued(self) -> int:
        return len(self.queue)

    def submit(
        self, payload: bytes, service: Service, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        self._number += 1
        self.queue.append(Packet(self.me, self.incarnation, self._number, payload))
        return True

    def send_unordered(self, payload: bytes) -> None:
        self.unordered.append(payload)

    def leave(self, *, more_to_come: bool = False) -> None:
        raise AssertionError("nobody leaves the ring")

    def _come(self, comes: Comes) -> None:
        for event in comes.events:
            if isinstance(event, Deliver):
                self.above.deliver(event)
            elif isinstance(event, Hint):
                self.above.deliver_unordered(event.sender, event.payload)
            else:
                self.above.install(event)


class Ring:
    def __init__(self, id_: RingId, members: tuple[int, ...]) -> None:
        self.id = id_
        self.members = members
        self.log: list[Packet] = []
        self.received: dict[int, set[int]] = {me: set() for me in members}
        self.delivered = dict.fromkeys(members, 0)

    def packet(self, seq: int) -> Deliver:
        origin, incarnation, number, payload = self.log[seq - 1]
        key = OrderKey(self.id, seq, NO_RING)
        message = MessageId(origin, incarnation, number)
        return Deliver(message, origin, memoryview(payload), Service.AGREED, key, 0, self.id)


class Move(NamedTuple):
    """A ring that has formed and that one of its members has not installed yet."""

    ring: Ring
    companions: tuple[int, ...]
    """Who come along from the ring before."""
    have: frozenset[int]
    """Packets of the ring before that one of them has received."""
    boundary: int
    """The last packet that they deliver before the transitional configuration."""


# The disk


class Disk:
    """Outlives its processor's crashes. `zones` is the fold of its durable frames."""

    def __init__(self) -> None:
        self.segments: list[list[bytes]] = []
        self.waiting: deque[Append] = deque()
        """Not durable yet."""
        self.answers: deque[int] = deque()
        """Durable, and not said so yet."""
        self.recalls: deque[Recall] = deque()
        self.kept_from = 0
        self._mark: Mark
        """The state at `kept_from`, if that is not the beginning."""
        self.zones = Zones()
        self.runs: list[Run] = []
        """Green ones, from `kept_from` on."""

    @property
    def frames(self) -> list[bytes]:
        return [frame for segment in self.segments for frame in segment]

    def sync(self) -> None:
        """The oldest append becomes durable."""
        append = self.waiting.popleft()
        self._write(append.frames, append.is_segment)
        self.answers.append(append.ticket)

    def _write(self, frames: tuple[bytes, ...], is_segment: bool) -> None:
        if is_segment or not self.segments:
            self.segments.append([])
        for content in frames:
            self.segments[-1].append(content)
            self._fold(content)

    def _fold(self, content: bytes) -> None:
        frame = decode(content)
        before = self.zones.green_runs
        ordered = self.zones.apply(frame)
        if self.zones.green_runs != before + len(ordered):  # the log begins anew, at another's mark
            assert isinstance(frame, Begun | Mark)
            self.runs.clear()
            self.kept_from = self.zones.green_runs
            self._mark = frame.mark if isinstance(frame, Begun) else frame
        self.runs += [each.run for each in ordered]

    def crash(self, rng: Random, may_lose: bool = True) -> None:
        """Of what waited, the first frames may be there."""
        while self.waiting and (not may_lose or rng.random() < 0.5):
            self.sync()
        if self.waiting and rng.random() < 0.5:
            torn = self.waiting.popleft()
            whole = rng.randrange(len(torn.frames))
            if whole:
                self._write(torn.frames[:whole], torn.is_segment)
        self.waiting.clear()
        self.answers.clear()
        self.recalls.clear()

    def opened(self, is_damaged: bool, entropy: int) -> OpenLog:
        frames = self.frames
        start = max((at for at, each in enumerate(frames) if isinstance(decode(each), Mark)), default=0)
        return OpenLog(tuple(frames[start:]), self.kept_from, is_damaged, entropy=entropy)

    def empty(self) -> None:
        self.__init__()  # type: ignore[misc]

    def roll_back(self, frames: int) -> None:
        """Only so many of its frames are left."""
        kept, segments = self.frames[:frames], self.segments
        starts = {0}
        for segment in segments:
            starts.add(max(starts) + len(segment))
        self.__init__()  # type: ignore[misc]
        for at, content in enumerate(kept):
            self._write((content,), at in starts)

    def trim(self, segments: int) -> None:
        """The oldest segments go."""
        del self.segments[:segments]
        mark = decode(self.segments[0][0])
        assert isinstance(mark, Mark)
        if mark.green_runs > self.kept_from:
            del self.runs[: mark.green_runs - self.kept_from]
            self.kept_from, self._mark = mark.green_runs, mark

    def recall(self) -> Recalled:
        ticket, start, bytes_max = self.recalls.popleft()
        if start < self.kept_from:
            return Recalled(ticket, (), encode(self._mark))
        runs: list[bytes] = []
        size = 0
        for run in self.runs[start - self.kept_from :]:
            runs.append(pack_run(run))
            size += run.size
            if size >= bytes_max:
                break
        return Recalled(ticket, tuple(runs), None)


# All of it


class Processor:
    def __init__(self, me: int, config: LogConfig) -> None:
        self.me = me
        self.config = config
        self.disk = Disk()
        self.incarnation = 0
        self.ring_seq = 0
        self.is_up = False
        self.order: ByHand
        self.groups: GroupLayer
        self.replica: Replica
        self.stack: Stack
        self.ring: Ring
        self.move: Move | None = None
        self.timers: set[TimerName] = set()
        self.requests = 0


class World:
    def __init__(
        self,
        configs: dict[int, LogConfig],
        seed: int = 0,
        replica: type[Replica] = Replica,
        told: Callable[[int, Any], None] | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.processors = {me: Processor(me, config) for me, config in configs.items()}
        self.alarms: list[tuple[int, Any]] = []
        self.hints: deque[Hint] = deque(maxlen=HINTS_MAX)
        """The latest, whoever has got them."""
        self._fresh: list[Hint] = []
        """Those that nobody has got yet."""
        self.now_us = 0
        self._replica = replica
        self._told = told or (lambda me, event: None)

    @property
    def up(self) -> list[int]:
        return [me for me, each in self.processors.items() if each.is_up]

    def replica(self, me: int) -> Replica:
        return self.processors[me].replica

    # Inputs and effects

    def feed(self, me: int, given: Any) -> None:
        each = self.processors[me]
        self.now_us += 1
        for effect in each.stack.feed(self.now_us, given):
            if type(effect) is Append:
                each.disk.waiting.append(effect)
            elif type(effect) is Recall:
                each.disk.recalls.append(effect)
            elif type(effect) is SetTimer:
                if effect.timer.timer != Timer.DISK:  # a test lets that one expire
                    each.timers.add(effect.timer)
            elif type(effect) is Tell:
                if effect.layer[0] == LAYER:
                    self._told(me, effect.event)
            elif type(effect) is Alarm:
                self.alarms.append((me, effect.alarm))
        while each.order.unordered:
            hint = Hint(each.ring, me, each.order.unordered.popleft())
            self.hints.append(hint)
            self._fresh.append(hint)

    def start(self, me: int, opens: bool = True) -> None:
        """Comes up, alone on its ring."""
        each = self.processors[me]
        each.incarnation += 1
        each.is_up = True
        each.move = None
        each.timers.clear()
        each.order = ByHand(me, each.incarnation)
        io = Io(frozenset())
        each.groups = each.order.above = GroupLayer(
            Scope(io, "groups"), each.order, me, each.incarnation, GroupConfig(), PACKET_BYTES
        )
        stable = {"incarnation": each.incarnation}
        each.replica = self._replica(
            Scope(io, LAYER, 0, Timer), each.groups, me, each.incarnation, each.config, jitter(me, stable)
        )
        layers = (each.order, each.groups, each.replica)
        each.stack = Stack(me, each.incarnation, io, layers, {})
        each.ring_seq += RING_STEP
        ring = each.ring = Ring(RingId(each.ring_seq, me), (me,))
        key = OrderKey(ring.id, 0, NO_RING)
        self.feed(me, Comes([_install(ConfigurationKind.REGULAR, ring.id, ring.members, key)]))
        if opens:
            self.open(me)

    def open(self, me: int, is_damaged: bool = False) -> None:
        self.feed(me, self.processors[me].disk.opened(is_damaged, self.rng.getrandbits(62)))

    def close(self, me: int) -> None:
        """The log fails: what was not durable may be there or not."""
        each = self.processors[me]
        self.feed(me, CloseLog("it has failed"))
        each.disk.crash(self.rng)

    def crash(self, me: int, may_lose: bool = True) -> None:
        each = self.processors[me]
        each.is_up = False
        each.move = None
        each.disk.crash(self.rng, may_lose)

    # The ring

    def originate(self, me: int, packets: int = 1) -> None:
        """Gives queued packets their places. Only their sender has received them."""
        each = self.processors[me]
        if each.move is None:
            ring = each.ring
            for _ in range(min(packets, len(each.order.queue))):
                ring.log.append(each.order.queue.popleft())
                ring.received[me].add(len(ring.log))

    def receive(self, me: int, seq: int) -> None:
        """Ahead of what it has delivered."""
        self.processors[me].ring.received[me].add(seq)

    def undelivered(self, me: int) -> int:
        each = self.processors[me]
        return 0 if each.move is not None else len(each.ring.log) - each.ring.delivered[me]

    def deliver(self, me: int, packets: int = 1) -> None:
        each = self.processors[me]
        ring = each.ring
        for _ in range(packets):
            if each.move is not None or not self.undelivered(me) or not self._is_reachable(ring, me):
                return
            seq = ring.delivered[me] = ring.delivered[me] + 1
            ring.received[me].add(seq)
            self.feed(me, Comes([ring.packet(seq)]))

    def hint(self, me: int, hint: Hint) -> None:
        """What was sent outside of the order comes to one processor."""
        if me != hint.sender:
            self.feed(me, Comes([hint]))

    def hint_all(self) -> bool:
        """What nobody has got yet comes to all on its ring who are up. Whether there was any."""
        fresh, self._fresh = self._fresh, []
        for hint in fresh:
            for me in self.up:
                if self.processors[me].ring is hint.ring:
                    self.hint(me, hint)
        return bool(fresh)

    def lose_hints(self) -> None:
        self._fresh.clear()

    def _is_reachable(self, ring: Ring, me: int) -> bool:
        """Whether somebody who is still there can send it the next packet."""
        seq = ring.delivered[me] + 1
        return seq in ring.received[me] or any(
            seq in ring.received[other]
            for other in ring.members
            if self.processors[other].is_up and self.processors[other].ring is ring
        )

    def form(self, *components: Iterable[int], boundaries: bool = True) -> None:
        """New rings form. Their members install them later."""
        for component in components:
            members = tuple(sorted(component))
            for me in members:
                self._abandon(me)
            self._form(members, boundaries)

    def _abandon(self, me: int) -> None:
        each = self.processors[me]
        if each.move is not None and self.rng.random() < 0.5:
            each.ring.received[me] |= each.move.have
        each.move = None

    def _form(self, members: tuple[int, ...], boundaries: bool) -> None:
        seq = RING_STEP + max(self.processors[me].ring_seq for me in members)
        new = Ring(RingId(seq, members[0]), members)
        rings = {id(self.processors[me].ring): self.processors[me].ring for me in members}
        for old in rings.values():
            companions = tuple(me for me in members if self.processors[me].ring is old)
            have = frozenset[int]().union(*(old.received[me] for me in companions))
            first_gap = next(seq for seq in range(1, len(old.log) + 2) if seq not in have)
            least = max(old.delivered[me] for me in companions)
            boundary = self.rng.randint(least, first_gap - 1) if boundaries else first_gap - 1
            for me in companions:
                self.processors[me].ring_seq = seq
                self.processors[me].move = Move(new, companions, have, boundary)

    def install(self, me: int) -> None:
        each = self.processors[me]
        move, old = each.move, each.ring
        assert move is not None
        new, companions, have, boundary = move
        transitional = RingId(new.id.seq - RING_STEP // 2, companions[0])
        events: list[Any] = [old.packet(seq) for seq in range(old.delivered[me] + 1, boundary + 1)]
        key = OrderKey(old.id, boundary, transitional)
        events.append(_install(ConfigurationKind.TRANSITIONAL, transitional, companions, key))
        is_gap = False
        for seq in range(boundary + 1, len(old.log) + 1):
            is_gap = is_gap or seq not in have
            if seq in have and (not is_gap or old.log[seq - 1].origin in companions):
                events.append(old.packet(seq))
        key = OrderKey(new.id, 0, transitional)
        events.append(_install(ConfigurationKind.REGULAR, new.id, new.members, key))
        each.ring, each.move = new, None
        self.feed(me, Comes(events))

    def install_all(self) -> None:
        for me in self.up:
            if self.processors[me].move is not None:
                self.install(me)

    def change(self, *components: Iterable[int]) -> None:
        """New rings, at once."""
        self.form(*components, boundaries=False)
        self.install_all()

    # The disk

    def sync(self, me: int) -> None:
        """All that waits becomes durable, and it is told."""
        each = self.processors[me]
        while each.disk.waiting:
            each.disk.sync()
        self.answer(me)

    def answer(self, me: int) -> None:
        each = self.processors[me]
        while each.disk.answers:
            self.feed(me, Appended(each.disk.answers.popleft()))

    def recall(self, me: int) -> None:
        self.feed(me, self.processors[me].disk.recall())

    def expire(self, me: int) -> None:
        each = self.processors[me]
        timers = sorted(each.timers)
        each.timers.clear()
        for timer in timers:
            self.feed(me, Expired(timer))

    # Until nothing is to be done any more

    def step_all(self, timers: bool = True, disks: Iterable[int] | None = None) -> bool:
        """Everybody does what there is to do, once. Whether there was anything."""
        busy = False
        with_disks = set(self.up if disks is None else disks)
        for me in self.up:
            each = self.processors[me]
            if each.order.queue and each.move is None:
                self.originate(me, len(each.order.queue))
                busy = True
            if me in with_disks and (each.disk.waiting or each.disk.answers):
                self.sync(me)
                busy = True
            while each.disk.recalls and me in with_disks:
                self.recall(me)
                busy = True
        for me in self.up:
            if self.undelivered(me) and self._is_reachable(self.processors[me].ring, me):
                self.deliver(me, 1_000_000)
                busy = True
        if self.hint_all():
            busy = True
        if timers and not busy:
            for me in self.up:
                if self.processors[me].timers:
                    self.expire(me)
                    busy = True
        return busy

    def run(self, steps: int = 10_000, timers: bool = True, disks: Iterable[int] | None = None) -> None:
        for _ in range(steps):
            if not self.step_all(timers, disks):
                return
        raise TimeoutError(f"not calm after {steps} steps")


def _install(
    kind: ConfigurationKind, id_: RingId, members: tuple[int, ...], key: OrderKey
) -> InstallConfiguration:
    return InstallConfiguration(Configuration(kind, id_, members, key.ring_id, key.seq, NO_RING), key)
