"""Simulated programs on simulated processors: they join, send, fall behind, vanish and come again.

A program is a place to run at, `p.a`; a process is one life of it. A program that is asked for something
while it does not run begins a new life first, so that a plan need not know what the faults have done to it.
Its processor may be frozen or push back: then it waits, as a program whose `send` blocks.

Where two nodes have one number, each has programs of its own that do what the scenario tells the program of
that number. Both speak in its name, so that names of processes and numbers of messages may be used twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from functools import partial
from random import Random
from typing import cast
from zlib import crc32

from totempole.core.inputs import Command
from totempole.groups import GroupLayer, pack
from totempole.groups.commands import Connect, Disconnect, GiveState, LeaveGroup
from totempole.groups.commands import JoinGroup as Join
from totempole.groups.commands import Multicast as Send
from totempole.groups.events import (
    BecameSafe,
    GroupEvent,
    GroupMessages,
    GroupView,
    StateAsked,
    StateBegins,
    StateChunk,
    Taken,
    ToProcesses,
)
from totempole.groups.tracing import CRC_START
from totempole.sim.host import Host
from totempole.sim.load import payload
from totempole.sim.replica import Ledger, Mark, Replica, essence, state_of
from totempole.sim.script import JoinGroup, Multicast, OnProcess, ProcessAction, QuitGroup
from totempole.sim.world import World
from totempole.stack import ProcessorStack
from totempole.types import Place, ProcessId, ProcessorId

INBOX_MAX = 60
"""Events that wait for a process that has stalled; with more, its processor takes it for dead."""

STATE_PAUSES_US_MAX = (0, 20_000, 300_000)
"""A donor goes on working between two pieces of the state, for up to one of these."""


class Programs:
    """All programs of a world."""

    def __init__(self, world: World, doubled: Collection[ProcessorId] = ()) -> None:
        """`doubled`: the numbers that two nodes will use at some time."""
        self.world = world
        self.doubled = frozenset(doubled)
        self.ledger = Ledger()
        self.acts: Counter[str] = Counter()
        self.noticed: set[tuple[ProcessId, int]] = set()
        """Messages of which receivers are to be told when they have become safe."""
        self._hosts: dict[ProcessorId, list[Host]] = {}
        """Those that programs may run on, by number, in the order in which they appeared."""
        self._programs: dict[tuple[Host, str], Program] = {}
        self._running: dict[tuple[Host, int, int], Process] = {}
        """By host, its life, and the process's number."""
        self._numbers: dict[Host, tuple[int, int]] = {}
        """The incarnation in which a host last gave a number, and the number."""
        for host in world.hosts.values():
            self._attend(host)

    def _attend(self, host: Host) -> None:
        self._hosts.setdefault(host.me, []).append(host)
        host.listener = self._listen
        host.ready_listeners.append(partial(self._ready, host))

    def perform(self, action: ProcessAction) -> None:
        for host in self.world.nodes(action.processor):
            if host not in self._hosts[host.me]:
                self._attend(host)
            self._program(host, action.process).perform(action)

    def _program(self, host: Host, name: str) -> Program:
        program = self._programs.get((host, name))
        if program is None:
            which = self._hosts[host.me].index(host)
            random = self.world.random(f"process {host.me}.{name}" + " of a double" * which)
            program = self._programs[host, name] = Program(self, host, random)
        return program

    @property
    def running(self) -> list[Process]:
        return [process for process in self._running.values() if process.alive]

    def admit(self, process: Process) -> None:
        host = process.host
        self._running[host, host.life, process.id.number] = process

    def next_id(self, host: Host) -> ProcessId:
        """Numbers begin again in a new life, unless the last one ended before anyone could hear of it."""
        assert host.stack is not None
        incarnation = host.stack.incarnation
        last = self._numbers.get(host, (0, 0))
        groups = cast(ProcessorStack, host.stack).groups
        assert groups is not None, "processes need groups"
        number = last[1] + 1 if last[0] == incarnation else groups.first_process
        self._numbers[host] = (incarnation, number)
        return ProcessId(host.me, incarnation, number)

    def _listen(self, host: Host, event: object) -> None:
        if type(event) is ToProcesses:
            for number in event.processes:
                self._running[host, host.life, number].hear(event.event)
        elif type(event) is Taken:
            process = self._running.get((host, host.life, event.process))
            if process is not None:
                process.taken(event.weight)

    def _ready(self, host: Host) -> None:
        for process in self.running:
            if process.host is host:
                process.flush()


class Program:
    """A place where processes run, one after another."""

    def __init__(self, programs: Programs, host: Host, random: Random) -> None:
        self._programs = programs
        self._host = host
        self._random = random
        self._process: Process | None = None

    def perform(self, action: ProcessAction) -> None:
        if not self._host.alive:
            return
        if isinstance(action, OnProcess) and action.verb != "connect":
            if self._process is not None and self._process.connected:
                self._programs.acts[action.verb] += 1
                getattr(self._process, action.verb)()
            return
        process = self._running()
        match action:
            case JoinGroup():
                process.join(action.group, action.donor, action.wants_state)
            case QuitGroup():
                process.quit(action.group)
            case Multicast():
                self._programs.acts["multicast"] += 1
                for _ in range(action.units):
                    process.multicast(action)

    def _running(self) -> Process:
        if self._process is None or not self._process.connected:
            self._programs.acts["connect"] += 1
            self._process = Process(self._programs, self._host, self._random)
        return self._process


class Process:
    def __init__(self, programs: Programs, host: Host, random: Random) -> None:
        self.id = programs.next_id(host)
        self.host = host
        self.replicas: dict[str, Replica] = {}
        self.unsafe: set[tuple[ProcessId, int]] = set()
        """It waits to be told that these have become safe."""
        self._joins: Counter[str] = Counter()
        """Joins that have not happened yet: who leaves at once and joins again gets the views of both."""
        self._life = host.life
        self._programs = programs
        self._scheduler = programs.world.scheduler
        self._random = random
        self._gone = False
        self._stalled = False
        self._inbox: deque[GroupEvent] = deque()
        self._outgoing: deque[Command] = deque()
        self._waking = False
        self._sent = 0
        programs.admit(self)
        self._ask(Connect(self.id.number))

    @property
    def alive(self) -> bool:
        return self._life == self.host.life and self.host.alive

    @property
    def connected(self) -> bool:
        return self.alive and not self._gone

    @property
    def waiting(self) -> int:
        """What it has asked for and its processor has not taken yet."""
        return len(self._outgoing)

    # What it is told to do

    def join(self, group: str, donor: bool, wants_state: bool) -> None:
        if group not in self.replicas:
            self._programs.acts["join"] += 1
            self._joins[group] += 1
            self.replicas[group] = Replica(group, self.id, self._programs.ledger, wants_state)
            self._ask(Join(self.id.number, group, donor, wants_state))

    def quit(self, group: str) -> None:
        if self.replicas.pop(group, None) is not None:
            self._programs.acts["quit"] += 1
            self._ask(LeaveGroup(self.id.number, group))

    def multicast(self, action: Multicast) -> None:
        random = self._random
        sizes = [max(0, action.size - random.choice((0, 0, 0, 1, 7))) for _ in range(action.count)]
        batch = []
        if action.notice:
            self._programs.noticed.add((self.id, self._sent + 1))
        for size in sizes:
            self._sent += 1
            batch.append(payload(self.id.processor, self.id.number << 32 | self._sent, size))
        self._ask(Send(self.id.number, action.groups, pack(batch), action.service, action.notice))

    def disconnect(self) -> None:
        """In good order: after all it has asked for."""
        self._ask(Disconnect(self.id.number))
        self._gone = True

    def crash(self) -> None:
        """Vanishes without a word; its processor notices."""
        self._gone = True
        self._cut_off()

    def stall(self) -> None:
        self._stalled = True

    def wake(self) -> None:
        if self._stalled:
            self._programs.acts["caught up"] += bool(self._inbox)
            self._stalled = False
            self._wake_later()

    # Towards its processor

    def _ask(self, command: Command) -> None:
        self._outgoing.append(command)
        self.flush()

    def flush(self) -> None:
        while self._outgoing and self.alive and not self.host.paused and not self.host.retiring:
            command = self._outgoing[0]
            if self._layer.leaving and type(command) is not Disconnect:
                self._refused()
                continue
            if type(command) is Send and not self._layer.accepts(self.id.number):
                self._programs.acts["waited for room"] += 1
                return
            self._outgoing.popleft()
            self.host.ask(command)

    def _refused(self) -> None:
        """Its processor leaves the ring."""
        if type(self._outgoing.popleft()) is Connect:
            self._gone = True
            self._outgoing.clear()

    @property
    def _layer(self) -> GroupLayer:
        groups = cast(ProcessorStack, self.host.stack).groups
        assert groups is not None
        return groups

    def taken(self, weight: int) -> None:
        if self._outgoing:
            self._scheduler.at(self._scheduler.now_us, self.flush)

    # From its processor

    def hear(self, event: GroupEvent) -> None:
        if self._gone:
            return
        self._inbox.append(event)
        if not self._stalled:
            self._wake_later()
        elif len(self._inbox) > INBOX_MAX:
            self._programs.acts["disconnected as too slow"] += 1
            self._inbox.clear()
            self._stalled = False
            self._gone = True
            self._scheduler.at(self._scheduler.now_us, self._cut_off)

    def _cut_off(self) -> None:
        known = Connect(self.id.number) not in self._outgoing
        self._outgoing.clear()
        if known:
            self._ask(Disconnect(self.id.number))

    def _wake_later(self) -> None:
        if not self._waking:
            self._waking = True
            self._scheduler.at(self._scheduler.now_us, self._take)

    def _take(self) -> None:
        self._waking = False
        while self._inbox and self.connected and not self._stalled:
            self._take_one(self._inbox.popleft())

    def _take_one(self, event: GroupEvent) -> None:
        match event:
            case GroupMessages():
                self._take_messages(event)
            case GroupView():
                self._take_view(event)
            case BecameSafe():
                self.unsafe.discard((event.sender, event.number))
            case StateBegins(group, donor, place):
                if replica := self._inside(group):
                    replica.begin(place, donor is not None)
            case StateChunk(group, _, content, last):
                if replica := self._inside(group):
                    self._take_chunk(replica, bytes(content), last)
            case StateAsked(group, joiner, place):
                if replica := self._inside(group):
                    self._give(replica, joiner, place)

    def _take_messages(self, event: GroupMessages) -> None:
        # Of what two nodes say in one name each receiver may have another half (sim/doubles.py).
        if event.sender.processor in self._programs.doubled:
            return
        if (event.sender, event.number) in self._programs.noticed:
            self.unsafe.add((event.sender, event.number))
        for group in event.groups:
            if replica := self._inside(group):
                replica.hear(essence(event))

    def _inside(self, group: str) -> Replica | None:
        replica = self.replicas.get(group)
        return replica if replica is not None and replica.inside else None

    def _take_view(self, view: GroupView) -> None:
        replica = self.replicas.get(view.group)
        joins = view.changed == "join" and self.id not in view.together
        self._joins[view.group] -= joins
        if replica is not None and joins and not self._joins[view.group]:
            replica.joined()
        if replica is not None and replica.inside:
            replica.hear(Mark(view.place, view.together))

    # State

    def _take_chunk(self, replica: Replica, content: bytes, last: bool) -> None:
        replica.chunks.append(content)
        if last and replica.asked is not None:
            digest = replica.finish()
            self._record_state(replica.group, replica.asked, "state", digest)

    def _give(self, replica: Replica, joiner: ProcessId, place: Place) -> None:
        if replica.digest is None:
            self._programs.ledger.problems.append(
                f"{self.id} was asked for the state of {replica.group} while it waits for it"
            )
            return
        self._record_state(replica.group, place, "prefix", replica.digest)
        content = state_of(replica.digest, self._random)
        count = self._random.randint(1, 4)
        cuts = sorted(self._random.randint(0, len(content)) for _ in range(count - 1))
        pieces = [content[i:j] for i, j in zip([0, *cuts], [*cuts, len(content)], strict=True)]
        pause_us_max = self._random.choice(STATE_PAUSES_US_MAX)
        self._give_next(replica, joiner, place, deque(pieces), pause_us_max)

    def _give_next(
        self, replica: Replica, joiner: ProcessId, place: Place, pieces: deque[bytes], pause_us_max: int
    ) -> None:
        if not self.connected or self.replicas.get(replica.group) is not replica:
            return
        piece = pieces.popleft()
        self._ask(GiveState(self.id.number, replica.group, joiner, place, piece, not pieces))
        if pieces:
            later_us = self._scheduler.now_us + self._random.randint(0, pause_us_max)
            self._scheduler.at(later_us, self._give_next, replica, joiner, place, pieces, pause_us_max)

    def _record_state(self, group: str, place: Place, stage: str, digest: bytes) -> None:
        self.host.recorder.record(
            self._scheduler.now_us,
            "group_state",
            layer="groups",
            process=str(self.id),
            group=group,
            ring=place.key.ring_id,
            seq=place.key.seq,
            index=place.index,
            stage=stage,
            digest=crc32(digest, CRC_START),
        )
