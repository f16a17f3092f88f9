"""Real replicas on ideal groups: random runs with views, gaps, crashes and disks that lose what is unsynced.

A component is a list of messages and views in their order; each of its members has delivered so many of them.
When components change, those who go on together first deliver the same, then, in a transitional view, all
that they have sent themselves, and what the others have sent up to the first message that is missing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from totempole.core.effects import Append, Recall, SetTimer, Trace
from totempole.core.inputs import Command, Recalled
from totempole.core.io import Io, Scope
from totempole.corel.commands import AppendRecords, ChangeReplicas, CloseLog, OpenLog, ReadBarrier
from totempole.corel.config import LogConfig
from totempole.corel.frames import decode, encode
from totempole.corel.layer import LAYER, Replica
from totempole.corel.member import Phase, Timer
from totempole.corel.messages import GROUP, inbox
from totempole.corel.run import Run, pack_run
from totempole.corel.zones import Zones
from totempole.errors import SessionError
from totempole.groups.commands import JoinGroup, LeaveGroup, Multicast
from totempole.groups.events import GroupMessages, GroupView
from totempole.groups.packing import pack
from totempole.trace.recorder import Recorder
from totempole.trace.schema import LEVELS, Row
from totempole.types import NO_RING, ConfigurationKind, Fence, OrderKey, Place, ProcessId, RingId

PROCESS = 1
RECALLED = 3
"""Runs that are read at once."""
STEPS_MAX = 20_000


class Component:
    def __init__(self, ring: RingId) -> None:
        self.ring = ring
        self.events: list[GroupMessages | GroupView] = []

    def place(self) -> Place:
        return Place(OrderKey(self.ring, len(self.events), NO_RING), 0)


class Node:
    """A replica, its groups and its disk."""

    def __init__(self, world: World, me: int) -> None:
        self.world = world
        self.me = me
        self.recorder = Recorder(world.run, me, "protocol", world.rows.append)
        self.frames: list[bytes] = []
        self.incarnation = 0
        self.is_up = False
        self.component: Component | None = None
        self.delivered = 0
        self.numbers = 0

    def start(self) -> None:
        self.incarnation += 1
        self.recorder.incarnation = self.incarnation
        self.recorder.record(self.world.now_us, "restart")
        self.is_up, self.is_joined = True, False
        self.is_new = False
        """It was told of no view since it joined."""
        self.appends: deque[Append] = deque()
        self.recalls: list[Recall] = []
        self.timers: list[int] = []
        self.hints: deque[tuple[int, bytes]] = deque()
        """What has come past the order, and is not heard yet: by sender."""
        self.unsent: list[Multicast] = []
        self.io = Io(LEVELS["protocol"])
        scope = Scope(self.io, LAYER, timers=Timer)
        chance = random.Random(f"{self.world.run} {self.me} {self.incarnation}")
        config = self.world.config
        self.replica = Replica(scope, self, self.me, self.incarnation, config, chance.random)

    def open(self) -> None:
        self.do(OpenLog(tuple(self.frames)))

    def crash(self) -> None:
        """Of what is unsynced a first part may be there all the same."""
        kept = self.world.random.randrange(len(self.appends) + 1)
        for append in list(self.appends)[:kept]:
            self.frames += append.frames
        self.recorder.record(self.world.now_us, "crash")
        self.is_up = False
        self.component = None

    def do(self, command: Command) -> None:
        with suppress(SessionError):
            self.replica.commands[type(command)](command)
        self.settle()

    # What the replica sees of the groups

    def attach(self, user: Replica) -> int:
        return PROCESS

    def act(self, command: Command) -> None:
        match command:
            case JoinGroup(_, group) if group == GROUP:
                self.is_joined = self.is_new = True
                self.world.view(self, "join")
            case LeaveGroup(_, group) if group == GROUP:
                self.is_joined = False
                self.world.view(self, "leave")
            case Multicast():
                self.send(command)

    def send_unordered(self, payload: bytes) -> None:
        for other in self.world.up:
            if other is not self and other.component is self.component:
                other.hints.append((self.me, payload))

    def waiting(self, process: int) -> int:
        return 0

    def send(self, command: Multicast) -> None:
        if self.component is None:
            self.unsent.append(command)
            return
        self.numbers += 1
        name, component = self.name, self.component
        component.events.append(
            GroupMessages(
                name, self.numbers, 1, command.groups, command.batch, command.service, component.place()
            )
        )

    @property
    def name(self) -> ProcessId:
        return ProcessId(self.me, self.incarnation, PROCESS)

    def settle(self) -> None:
        """As the protocol `Groups` wants it, and the end of each input."""
        if not hasattr(self, "replica") or getattr(self, "_settling", False):
            return
        self._settling = True
        self.replica.settle()
        self._settling = False
        self.take()

    def take(self) -> None:
        effects = self.io.take()
        for effect in effects:
            match effect:
                case Append():
                    self.appends.append(effect)
                case Recall():
                    self.recalls.append(effect)
                case SetTimer(timer=timer) if timer.timer != Timer.DISK:
                    self.timers.append(timer.timer)
        self.recorder.effects(self.world.now_us, [each for each in effects if type(each) is Trace])

    # Steps of the world

    def hear(self, event: GroupMessages | GroupView) -> None:
        self.io.now_us = self.world.now_us
        groups = (event.group,) if isinstance(event, GroupView) else event.groups
        is_there = not isinstance(event, GroupView) or self.name in event.members
        if self.is_joined and is_there and {GROUP, inbox(self.me)} & {*groups}:
            if isinstance(event, GroupView) and event.kind is ConfigurationKind.REGULAR:
                self.is_new = self.is_new and self.name in event.together
            self.replica.told(event)
        self.settle()

    def next(self) -> bool:
        if self.component is None or self.delivered == len(self.component.events):
            return False
        self.delivered += 1
        self.hear(self.component.events[self.delivered - 1])
        return True

    def sync(self) -> bool:
        if not self.appends:
            return False
        append = self.appends.popleft()
        self.frames += append.frames
        self.replica.appended(append.ticket)
        self.settle()
        return True

    def expire(self) -> bool:
        if not self.timers:
            return False
        self.replica.expired(self.timers.pop(0))
        self.settle()
        return True

    def hint(self) -> bool:
        if not self.hints:
            return False
        self.replica.told_unordered(*self.hints.popleft())
        self.settle()
        return True

    def read(self) -> bool:
        if not self.recalls:
            return False
        recall = self.recalls.pop(0)
        zones, green = Zones(), list[Run]()
        for frame in self.frames:
            green += [ordered.run for ordered in zones.apply(decode(frame))]
        if recall.start < self.world.trimmed:
            mark = encode(self.replica.zones.mark())
            self.replica.recalled(Recalled(recall.ticket, (), mark))
        else:
            runs = tuple(map(pack_run, green[recall.start : recall.start + RECALLED]))
            self.replica.recalled(Recalled(recall.ticket, runs, None))
        self.settle()
        return True


class World:
    def __init__(self, seed: int, nodes: int, **settings: Any) -> None:
        self.run = f"log {seed}"
        self.random = random.Random(seed)
        self.races = random.Random(f"fences {seed}")
        self.steps_of: dict[str, int] = {}
        self.rows: list[Row] = []
        self.now_us = 0
        self.trimmed = 0
        self.requests = 0
        self.size = 0
        """Records have at least so many bytes."""
        self.rings = 0
        self.config = LogConfig(replicas=tuple(range(1, nodes + 1)), **settings)
        self.nodes = [Node(self, me) for me in range(1, nodes + 1)]
        for node in self.nodes:
            node.start()
        self.regroup([self.nodes])
        for node in self.nodes:
            node.open()

    @property
    def up(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up]

    # Views

    def view(self, node: Node, changed: str) -> None:
        component = node.component
        if component is None:
            return
        members = tuple([each.name for each in self.up if each.component is component and each.is_joined])
        together = tuple([each.name for each in self.up if each.name in members and not each.is_new])
        component.events.append(
            GroupView(GROUP, ConfigurationKind.REGULAR, members, together, component.place(), changed)
        )

    def regroup(self, parts: Iterable[Iterable[Node]]) -> None:
        parts = [list(part) for part in parts]
        moves = []
        for part in parts:
            self.rings += 1
            component = Component(RingId(self.rings, part[0].me))
            together: dict[int, list[Node]] = {}
            for node in part:
                together.setdefault(id(node.component), []).append(node)
            moves.append((part, component, list(together.values())))
        for _, _, groups in moves:
            for group in groups:
                self.leave_together(group)
        for part, component, _ in moves:
            for node in part:
                node.component, node.delivered = component, 0
            if any(node.is_joined for node in part):
                self.view(next(node for node in part if node.is_joined), "configuration")
            for node in part:
                unsent, node.unsent = node.unsent, []
                for command in unsent:
                    node.send(command)

    def leave_together(self, group: list[Node]) -> None:
        component = group[0].component
        if component is None:
            return
        events = list(component.events)
        cut = max(node.delivered for node in group)
        for node in group:
            while node.delivered < cut:
                node.next()
        names = {node.name for node in group}
        gap = self.random.randrange(cut, len(events) + 1)
        rest = [
            event
            for number, event in enumerate(events[cut:], cut)
            if isinstance(event, GroupMessages) and (event.sender in names or number < gap)
        ]
        members = tuple([node.name for node in group if node.is_joined])
        place = Place(OrderKey(component.ring, cut, RingId(self.rings, 0)), 0)
        transitional = GroupView(
            GROUP, ConfigurationKind.TRANSITIONAL, members, members, place, "configuration"
        )
        for node in group:
            node.component = None
            for event in (transitional, *rest):
                node.hear(event)

    # Runs

    def append(self, node: Node, *keys: str, log: str = "orders", fence: Fence | None = None) -> None:
        self.requests += 1
        count = len(keys) or self.random.randrange(1, 4)
        batch = pack([f"{self.requests} {index}".encode().ljust(self.size) for index in range(count)])
        node.do(AppendRecords(9, self.requests, log, batch, keys, self.now_us, fence))

    def read(self, node: Node) -> None:
        self.requests += 1
        node.do(ReadBarrier(9, self.requests))

    def step(self) -> bool:
        self.now_us += 10
        acts = [
            act
            for node in self.up
            for act in (node.next, node.next, node.sync, node.expire, node.read, node.hint)
        ]
        self.random.shuffle(acts)
        return any(act() for act in acts)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def quiet(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise AssertionError("the replicas never come to rest")

    def split(self) -> None:
        nodes = self.up
        self.random.shuffle(nodes)
        cut = self.random.randrange(1, len(nodes) + 1)
        self.regroup([part for part in (nodes[:cut], nodes[cut:]) if part])

    def disturb(self) -> None:
        chance = self.random.random()
        down = [node for node in self.nodes if not node.is_up]
        if chance < 0.25 and len(self.up) > 1:
            victims = self.random.sample(self.up, self.random.randrange(1, len(self.up)))
            for node in victims:
                node.crash()
            if self.random.random() < 0.7:
                self.split()
        elif chance < 0.6 and down:
            node = self.random.choice(down)
            node.start()
            self.split()
            node.open()
        elif chance < 0.65:
            self.random.choice(self.up).do(CloseLog("a test"))
        elif chance < 0.7:
            for node in self.up:
                if node.replica.phase is Phase.CLOSED and not node.is_joined and not node.appends:
                    node.open()
        else:
            self.split()

    def random_run(self, changes: int, appends: int, keys: int = 6) -> None:
        for _ in range(changes):
            for _ in range(self.random.randrange(appends)):
                few = [f"k{self.random.randrange(keys)}" for _ in range(self.random.randrange(3))]
                self.append(self.random.choice(self.up), *few, fence=self._fence())
                if self.random.random() < 0.5:
                    self.read(self.random.choice(self.up))
                self.steps(self.random.randrange(6))
            self.disturb()
            self.steps(self.random.randrange(40))
        self.heal()

    def _fence(self) -> Fence | None:
        """Of a few names, now and then one that was used before."""
        if self.races.random() < 0.6:
            return None
        name = self.races.choice("fgh")
        number = self.steps_of[name] = self.steps_of.get(name, 0) + self.races.choice((0, 0, 1, 1, 2))
        return Fence(name, number + 1, max(0, number - self.races.randrange(2)), number)

    def heal(self) -> None:
        """All are up and together, and come to rest."""
        for node in self.nodes:
            if not node.is_up:
                node.start()
        self.regroup([self.nodes])
        for node in self.nodes:
            if not node.is_joined:
                self.steps(20)
                node.open()
        self.quiet()

    def change(self, node: Node, processor: int, weight: int) -> None:
        self.requests += 1
        node.do(ChangeReplicas(9, self.requests, processor, weight))
