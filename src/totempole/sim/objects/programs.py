"""All programs of a world that have the object: who runs, what is called, and what is kept for the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from totempole.corel.events import (
    Accepted,
    BarrierPassed,
    Durable,
    GreenEnded,
    GreenLine,
    GreenRuns,
    Lost,
    Placed,
)
from totempole.objects.host import ObjectHost
from totempole.objects.machine import ObjectMachine
from totempole.objects.pending import PendingCall
from totempole.objects.records import Outcome
from totempole.objects.snapshots import Snapshot
from totempole.sim.host import Host
from totempole.sim.objects.connection import Connection
from totempole.sim.objects.history import Entry, History
from totempole.sim.objects.program import Caller, Program, Receipt
from totempole.sim.objects.subject import Subject
from totempole.sim.script_objects import ObjectAction, OnHost, Work
from totempole.sim.world import World
from totempole.types import ProcessorId

SNAPSHOTS_KEPT = 2
AFTER_PAUSE_US = 50_000
"""A read that is asked for so soon after a pause counts as one after the pause."""

ToOne = Accepted | Durable | Placed | Lost | BarrierPassed
ToAll = GreenLine | GreenRuns | GreenEnded


def _new_client(program: Program) -> str:
    return f"{program.random.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True)
class ObjectParts:
    """What programs are made of. A search puts a broken part in the place of a true one."""

    machine: type[ObjectMachine[Any]] = ObjectMachine
    host: type[ObjectHost[Any]] = ObjectHost
    snapshot: type[Snapshot] = Snapshot
    new_client: Callable[[Program], str] = _new_client


class ObjectPrograms:
    def __init__(self, world: World, subject: Subject, parts: ObjectParts | None = None) -> None:
        self.world = world
        self.subject = subject
        self.parts = parts or ObjectParts()
        self.history = History(world, subject)
        self.acts: Counter[str] = Counter()
        self.programs: dict[tuple[ProcessorId, str], Program] = {}
        self.snapshots: dict[ProcessorId, list[tuple[int, bytes]]] = {}
        """On the disk of each node, with the place behind the last run that is in it; the newest one last."""
        self.receipts: list[Receipt] = []
        """All that were given."""
        self.loose: list[tuple[Entry, PendingCall]] = []
        """Calls of which nobody was told what became."""
        self.divergences: list[str] = []
        """What programs found when they compared what others announced with what they hold."""
        self.later: list[tuple[Entry, Outcome]] = []
        self._connections: dict[int, Connection] = {}
        self._last = 0
        self._resumed: dict[ProcessorId, int] = {}
        """When a processor went on that was paused with the token in hand."""
        world.resumed_with_token = self.resumed
        for host in world.hosts.values():
            self._attend(host)

    def _attend(self, host: Host) -> None:
        before = host.listener

        def listen(there: Host, event: object) -> None:
            if isinstance(event, ToOne) and event.process:
                connection = self._connections.get(event.process)
                if connection is not None and connection.host is there:
                    connection.tell(event)
            elif isinstance(event, ToAll):
                for connection in list(self._connections.values()):
                    if connection.host is there and connection.is_open:
                        connection.tell(event)
            elif before is not None:
                before(there, event)

        host.listener = listen

    # Actions

    def perform(self, action: ObjectAction) -> None:
        program = self._program(action.processor, action.program)
        match action:
            case OnHost(verb="open"):
                program.open()
            case OnHost(verb="crash"):
                program.crash()
            case OnHost(verb=verb) if program.life is not None:
                self.acts[f"program: {verb}"] += 1
                life = program.life
                acts: dict[str, Callable[[], None]] = {
                    "wake": life.wake,
                    "snapshot": life.write_snapshot,
                    "move": life.move,
                }
                if verb == "stall":
                    life.is_stalled = True
                else:
                    acts[verb]()
            case Work() if program.life is not None:
                self._work(program, action)

    def _program(self, processor: ProcessorId, name: str) -> Program:
        program = self.programs.get((processor, name))
        if program is None:
            program = self.programs[processor, name] = Program(self, processor, name)
        return program

    def _work(self, program: Program, action: Work) -> None:
        life = program.life
        assert life is not None, "it runs"
        for number in range(action.callers):
            count = action.count // action.callers + (number < action.count % action.callers)
            caller = Caller(life, f"{program.name}.{program.lives}.{len(life.callers)}", count, action.pause)
            life.callers.append(caller)
            program.left += count
            caller.go_on()

    # What programs need

    def connect(self, node: Host, hear: Callable[[object], None]) -> Connection:
        self._last += 1
        random = self.world.random(f"connection {self._last}")
        connection = Connection(self.world, node, self._last, random, hear)
        self._connections = {number: each for number, each in self._connections.items() if each.is_open}
        self._connections[self._last] = connection
        return connection

    def keep(self, processor: ProcessorId, place: int, content: bytes) -> None:
        """A snapshot is on the node's disk, if the node is there."""
        if self.world.hosts[processor].alive:
            kept = self.snapshots.setdefault(processor, [])
            if not kept or kept[-1][0] < place:
                self.acts["snapshot written"] += 1
                kept.append((place, content))
                del kept[:-SNAPSHOTS_KEPT]

    def unanswered(self) -> Iterator[tuple[Entry, PendingCall]]:
        """Calls of which nobody was told what became: nobody waits for them any more, or somebody still
        does."""
        yield from self.loose
        for program in self.programs.values():
            if program.life is not None:
                for caller in program.life.callers:
                    yield from caller.waiting_for

    def told_later(self, entry: Entry, outcome: Outcome) -> None:
        self.later.append((entry, outcome))
        self.history.told(entry, outcome, 0, -1)

    # A read after a pause

    def resumed(self, processor: ProcessorId) -> None:
        """It goes on, and what has waited for it is the ring's token."""
        self.acts["resumed with the token in hand"] += 1
        self._resumed[processor] = self.world.now_us

    def read_begun(self, processor: ProcessorId) -> None:
        host = self.world.hosts[processor]
        resumed_us = self._resumed.get(processor)
        if host.paused and host.has_token_waiting:
            self.acts["read while paused with the token in hand"] += 1
        elif resumed_us is not None and self.world.now_us - resumed_us <= AFTER_PAUSE_US:
            self.acts["read after a pause with the token in hand"] += 1
