"""One simulated program with the object: its lives, its connection to a node, its callers.

A life has the real `ObjectHost` and `ObjectMachine`. A program that crashes forgets all but the receipts that
it was given; its next life begins with a snapshot or an empty machine, and with new client identities.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from totempole.client.appending import RecordName
from totempole.corel.commands import AppendRecords, ReadBarrier
from totempole.corel.events import Accepted, BarrierPassed, Durable, GreenLine, GreenRuns, Lost, Placed
from totempole.corel.run import RunId, RunKind, records_of
from totempole.corel.zones import Ordered
from totempole.errors import SessionError
from totempole.groups.packing import pack
from totempole.objects.host import ObjectHost
from totempole.objects.machine import ObjectMachine
from totempole.objects.pending import PendingCall, PendingRead
from totempole.objects.records import Outcome
from totempole.sim.log_disk import LogDisk
from totempole.sim.objects.connection import Connection
from totempole.sim.objects.history import Entry
from totempole.sim.objects.subject import Operation, Unknown

if TYPE_CHECKING:
    from totempole.sim.objects.programs import ObjectPrograms

RECONNECT_US = 3_000
RETRY_US = 20_000
BACKLOG_US = (200, 3_000), (200, 3_000), (5_000, 60_000)
"""How long reading the log service takes: most logs are short."""
SNAPSHOT_US = (100, 5_000)
WALL_US = 1_700_000_000_000_000
"""What clocks show when a run begins."""
DEADLINE_US = (300, 30_000, 300_000)
MODES = ("call", "call", "call", "call", "submit", "deadline")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a program keeps of a call that it has submitted."""

    entry: Entry
    client: str
    number: int
    born: int


class Program:
    """What outlives its crashes."""

    def __init__(self, programs: ObjectPrograms, processor: int, name: str) -> None:
        self.programs = programs
        self.processor = processor
        """Whose node it connects to at present."""
        self.name = f"{processor}.{name}"
        self.random: Random = programs.world.random(f"program {processor}.{name}")
        self.receipts: list[Receipt] = []
        """Not answered yet."""
        self.life: Life | None = None
        self.lives = 0
        self.left = 0
        """Operations that are still to do, after a restart, too."""

    def open(self) -> None:
        if self.life is None:
            self.lives += 1
            self.life = Life(self)
            self.life.begin()

    def crash(self) -> None:
        if self.life is not None:
            self.programs.acts["program crashed"] += 1
            self.life.end()
            self.life = None


class Life:
    """From the opening of the object to the program's end. It is the host's `Carrier`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.programs = program.programs
        self.world = program.programs.world
        self.subject = program.programs.subject
        self.random = program.random
        self.is_over = False
        self.is_stalled = False
        self.connection: Connection | None = None
        self.callers: list[Caller] = []
        self._inbox: list[object] = []
        """What comes while it has stalled."""
        self._ahead: dict[int, Ordered] = {}
        """Live runs behind those that the log service still has to give."""
        self._line = 0
        """The node has so many green runs."""
        self._is_reading = False
        self._appends: dict[int, bool] = {}
        """Records that wait for an answer on this connection, and whether they are red."""
        self._barriers: set[int] = set()
        self._unsent: list[tuple[int, bytes | None, bool]] = []
        """While there is no connection."""
        self.time_us = 0
        self._node = 0
        """The one that it was connected to last."""
        machine, place = self._first_machine()
        self.host: ObjectHost[Any] = self.programs.parts.host(machine, self)
        self.host.reached(place)

    def _first_machine(self) -> tuple[ObjectMachine[Any], int]:
        """From the newest snapshot of its node, or of another; or from nothing, by the log alone."""
        choice = self.random.choice(("own", "own", "any", "none"))
        nodes = [self.program.processor] if choice == "own" else sorted(self.programs.snapshots)
        found = [self.programs.snapshots[node][-1] for node in nodes if self.programs.snapshots.get(node)]
        if choice == "none" or not found:
            return self.programs.parts.machine(self.subject.type), 0
        place, content = max(found)
        self.programs.acts["opened from a snapshot"] += 1
        return self._restored(content), place

    def _restored(self, content: bytes) -> ObjectMachine[Any]:
        parts = self.programs.parts
        return parts.machine.restore(self.subject.type, parts.snapshot.decode(content))

    def begin(self) -> None:
        self.programs.acts["program opened"] += 1
        self._connect()
        self._after()

    def end(self) -> None:
        self.is_over = True
        if self.connection is not None:
            self.connection.close()
        for caller in self.callers:
            caller.leave()

    # Its connection

    def _connect(self) -> None:
        if self.is_over or self.connection is not None:
            return
        node = self.world.hosts[self.program.processor]
        if not node.alive or node.retiring:
            self.world.scheduler.at(self.world.now_us + RECONNECT_US, self._connect)
            return
        self.connection = self.programs.connect(node, self._hear)
        self.connection.broken = self._broken
        if self._node not in (0, node.me):
            self.host.moved()
        self._node = node.me
        unsent, self._unsent = self._unsent, []
        for number, payload, red in unsent:
            if payload is None:
                self.ask_barrier(number)
            else:
                self.append(number, payload, red=red)
        self._after()

    def _broken(self) -> None:
        """What was asked there may have been done."""
        self.connection = None
        self.programs.acts["disconnected"] += 1
        appends, self._appends = self._appends, {}
        barriers, self._barriers = self._barriers, set()
        for record in appends:
            self.host.doubtful(record)
        for barrier in sorted(barriers):
            self.host.barrier_failed(barrier)
        self.world.scheduler.at(self.world.now_us + RECONNECT_US, self._connect)
        self._after()

    def move(self) -> None:
        """To the next processor's node."""
        everyone = sorted(self.world.hosts)
        place = everyone.index(self.program.processor)
        self.program.processor = everyone[(place + 1) % len(everyone)]
        self.programs.acts["program moved"] += 1
        if self.connection is not None:
            self.connection.close()
            self._broken()

    # What the host asks for

    def append(self, record: int, payload: bytes, *, red: bool) -> None:
        if self.connection is None:
            self._unsent.append((record, payload, red))
            return
        self._appends[record] = red
        process, log = self.connection.process, self.subject.log
        command = AppendRecords(process, record, log, pack([payload]), (), WALL_US + self.world.now_us)
        self.connection.ask(command, lambda error: self._refused(record, error))

    def ask_barrier(self, barrier: int) -> None:
        if self.connection is None:
            self._unsent.append((barrier, None, False))
            return
        self._barriers.add(barrier)
        self.connection.ask(ReadBarrier(self.connection.process, barrier), lambda _e: self._failed(barrier))

    def retry_later(self) -> None:
        self.world.scheduler.at(self.world.now_us + RETRY_US, self._retry)

    def new_client(self) -> str:
        return self.programs.parts.new_client(self.program)

    def _retry(self) -> None:
        if not self.is_over:
            self.host.retry()
            self._after()

    def _refused(self, record: int, error: SessionError) -> None:
        if not self.is_over and self._appends.pop(record, None) is not None:
            self.programs.acts["append refused"] += 1
            self.host.refused(record, error)
            self._after()

    def _failed(self, barrier: int) -> None:
        """The node has no log open: asked again a little later."""
        if not self.is_over and barrier in self._barriers:
            self._barriers.discard(barrier)
            self.world.scheduler.at(self.world.now_us + RETRY_US, self._ask_again, barrier)

    def _ask_again(self, barrier: int) -> None:
        if not self.is_over:
            self.host.barrier_failed(barrier)
            self._after()

    # What the node says

    def _hear(self, event: object) -> None:
        if self.is_stalled:
            self._inbox.append(event)
        elif not self.is_over:
            self._take(event)
            self._after()

    def wake(self) -> None:
        self.is_stalled = False
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self._take(event)
        self._after()

    def _take(self, event: object) -> None:
        match event:
            case Accepted(_, record, run):
                self.host.named(record, _name(run))
            case Durable(_, record, run) if self._appends.get(record):
                del self._appends[record]
                self.host.durable(record, _name(run))
            case Placed(request=record):
                self._appends.pop(record, None)
                self.host.placed(record)
            case Lost(_, request, _, _) if request in self._barriers:
                self._failed(request)
            case Lost(_, record, _, _) if record in self._appends:
                del self._appends[record]
                self.host.doubtful(record)
            case BarrierPassed(_, barrier, place) if barrier in self._barriers:
                self._barriers.discard(barrier)
                self.host.barrier_passed(barrier, place)
            case GreenLine(place=place):
                self._line = max(self._line, place)
                self._read_backlog()
            case GreenRuns(runs):
                for ordered in runs:
                    self._take_run(ordered)

    # The order

    def _take_run(self, ordered: Ordered) -> None:
        if ordered.place > self.host.place:
            self._ahead[ordered.place] = ordered
            self._line = max(self._line, ordered.place + 1)
            self._read_backlog()
        elif ordered.place == self.host.place:
            self._feed(ordered)
            while (following := self._ahead.pop(self.host.place, None)) is not None:
                self._feed(following)

    def _feed(self, ordered: Ordered) -> None:
        run = ordered.run
        if run.kind is RunKind.RECORDS and ordered.fenced is None:
            records = records_of(run)
            if records.log == self.subject.log:
                self.time_us = ordered.time_us
                payloads = list(records.payloads)
                positions = range(ordered.position, ordered.position + len(payloads))
                self.host.fed(payloads, positions, ordered.time_us)
        self.host.reached(ordered.place + 1)
        self._hand_out()
        machine = self.host.machine
        digest = machine.take_digest(self.program.name)
        if digest is not None:
            self.programs.acts["digest announced"] += 1
            self.host.announce(digest)
        for event in machine.take_events():
            # By name: a broken machine has events of its own.
            if type(event).__name__ == "Divergence":
                self.programs.divergences.append(f"{self.program.name}: {event}")

    def _read_backlog(self) -> None:
        if not self._is_reading and self._line > self.host.place and not self.is_over:
            self._is_reading = True
            later_us = self.world.now_us + self.random.randint(*self.random.choice(BACKLOG_US))
            self.world.scheduler.at(later_us, self._take_backlog)

    def _take_backlog(self) -> None:
        self._is_reading = False
        if self.is_over:
            return
        disk = self.world.hosts[self.program.processor].log_disk
        assert disk is not None, "a scenario with objects has a log"
        runs = self._runs_of(disk)
        if not runs or runs[0].place > self.host.place:
            runs = self._runs_elsewhere() or runs
        if runs and runs[0].place > self.host.place:
            self._restore()
        for ordered in runs:
            self._take_run(ordered)
        self._ahead = {place: run for place, run in self._ahead.items() if place >= self.host.place}
        self.programs.acts["backlog read"] += 1
        self._read_backlog()
        self._after()

    def _runs_of(self, disk: LogDisk) -> list[Ordered]:
        return [ordered for ordered in disk.ordered() if ordered.place >= self.host.place]

    def _runs_elsewhere(self) -> list[Ordered]:
        """Another replica's log service has what this node lacks: its log was lost, or begins later."""
        for host in self.world.hosts.values():
            if host.alive and host.log_disk is not None:
                runs = self._runs_of(host.log_disk)
                if runs and runs[0].place == self.host.place:
                    return runs
        return []

    def _restore(self) -> None:
        """The log has been trimmed behind what it needs: it goes on from a newer snapshot."""
        stored = [kept[-1] for kept in self.programs.snapshots.values() if kept]
        place, content = max(stored, default=(0, b""))
        if place > self.host.place:
            self.programs.acts["restored from a snapshot"] += 1
            self.host.restored(self._restored(content), place)

    def write_snapshot(self) -> None:
        if self.host.machine.version:
            content = self.host.machine.snapshot().encode()
            later_us = self.world.now_us + self.random.randint(*SNAPSHOT_US)
            self.world.scheduler.at(
                later_us, self.programs.keep, self.program.processor, self.host.place, content
            )

    # Who waits

    def _after(self) -> None:
        """What has come is handed to those who wait; then the host sends."""
        host = self.host
        if self.program.receipts:
            self._ask_receipts()
        self._hand_out()
        host.pump()

    def _hand_out(self) -> None:
        settled = self.host.settled
        while settled:
            now, settled[:] = list(settled), []
            for waiting in now:
                hear: Callable[[Any], None] = waiting.waiter
                hear(waiting)

    def _ask_receipts(self) -> None:
        """Those of earlier lives; the host itself answers for its own."""
        machine, history = self.host.machine, self.programs.history
        left = []
        for receipt in self.program.receipts:
            outcome = machine.outcome_of(receipt.client, receipt.number)
            if outcome is None or self.host.find(receipt.client, receipt.number) is not None:
                left.append(receipt)
            elif history.is_open(receipt.entry):
                self.programs.acts["receipt answered in another life"] += 1
                self.programs.told_later(receipt.entry, outcome)
        self.program.receipts = [each for each in left if history.is_open(each.entry)]


def _name(run: RunId) -> RecordName:
    return RecordName((run.origin, run.life, run.number), 0, 0)


class Caller:
    """Does one operation after another."""

    def __init__(self, life: Life, name: str, count: int, pause_us: int) -> None:
        self.life = life
        self.count = count
        self._name = name
        self._pause_us = pause_us
        self._random = life.random
        self._workload: Generator[Operation, Any, None] = life.subject.workload(life.random, name)
        self._is_begun = False
        self._entry: Entry | None = None
        """What it waits for."""
        self._read: Operation = ()
        self._pending: dict[int, tuple[PendingCall, Entry]] = {}

    @property
    def is_waiting(self) -> bool:
        return self._entry is not None

    def go_on(self, result: Any = None) -> None:
        """The next operation, after a pause."""
        pause_us = int(self._random.expovariate(1 / self._pause_us)) if self._pause_us else 0
        self.life.world.scheduler.at(self.life.world.now_us + pause_us, self._next, result)

    def _next(self, result: Any) -> None:
        life = self.life
        if life.is_over or not self.count:
            return
        if life.is_stalled:
            life.world.scheduler.at(life.world.now_us + RETRY_US, self._next, result)
            return
        self.count -= 1
        life.program.left -= 1
        try:
            operation = self._workload.send(result) if self._is_begun else next(self._workload)
        except StopIteration:
            return
        self._is_begun = True
        self._perform(operation)
        life._after()

    def _perform(self, operation: Operation) -> None:
        life, (method, *arguments) = self.life, operation
        name = method if isinstance(method, str) else method.__name__
        entry = life.programs.history.begin(life.program.processor, self._name, name, tuple(arguments))
        self._entry = entry
        if entry.is_read:
            self._read = (name, *arguments)
            life.programs.read_begun(life.program.processor)
            life.host.read(self.has_read)
            return
        call = life.subject.type.encode_call(name, arguments)
        mode = self._random.choice(MODES)
        life.programs.acts[mode] += 1
        pending = life.host.call(name, call.arguments, self.settled, red=mode == "submit")
        self._pending[id(pending)] = pending, entry
        if mode == "deadline":
            at_us = life.world.now_us + self._random.choice(DEADLINE_US)
            life.world.scheduler.at(at_us, self._expire, pending, entry)

    def _expire(self, pending: PendingCall, entry: Entry) -> None:
        """Its deadline has passed: the call may be applied all the same, unless it was never sent."""
        history = self.life.programs.history
        if self.life.is_over or not history.is_open(entry):
            return
        if self.life.host.give_up(pending):
            self.life.programs.acts["given up before it was sent"] += 1
            history.without_effect(entry)
        else:
            self.life.programs.acts["unknown"] += 1
            self.life.programs.loose.append((entry, pending))
        self._pending.pop(id(pending), None)
        self._is_answered(entry, Unknown("the deadline has passed"))

    @property
    def waiting_for(self) -> list[tuple[Entry, PendingCall]]:
        return [(entry, pending) for pending, entry in self._pending.values()]

    def leave(self) -> None:
        """Its program is gone. What became of its calls only the log knows."""
        self.life.programs.loose += self.waiting_for

    def has_read(self, _read: PendingRead) -> None:
        """All that was green when it asked is applied: it reads now."""
        life = self.life
        entry, (name, *arguments) = self._entry, self._read
        assert entry is not None, "it waits for a read"
        state = life.host.machine.state
        try:
            result: Any = deepcopy(getattr(state, name)(*deepcopy(arguments)))
        except Exception as error:
            result = error
        life.programs.acts["read"] += 1
        life.programs.history.read(entry, result, life.host.machine.applied)
        self._is_answered(entry, result)

    def settled(self, pending: PendingCall) -> None:
        life = self.life
        found = self._pending.get(id(pending))
        if found is None:
            return  # it has given up
        entry = found[1]
        if pending.error is not None:
            del self._pending[id(pending)]
            if not pending.number:
                life.programs.history.without_effect(entry)
            self._is_answered(entry, Unknown(str(pending.error)))
        elif pending.outcome is None:
            assert pending.client is not None, "what is durable was sent"
            life.programs.acts["durable"] += 1
            receipt = Receipt(entry, pending.client.id, pending.number, pending.client.born)
            life.program.receipts.append(receipt)
            life.programs.receipts.append(receipt)
            self._is_answered(entry, None)
        else:
            del self._pending[id(pending)]
            self._told(life, entry, pending, pending.outcome)

    def _told(self, life: Life, entry: Entry, pending: PendingCall, outcome: Outcome) -> None:
        index = pending.number - pending.record.first if pending.record is not None else 0
        life.programs.history.told(entry, outcome, index, life.time_us)
        if self._random.random() < 0.7:
            life.host.release(pending)
        try:
            result = life.subject.type.decode_result(pending.method, outcome)
        except Exception as error:
            result = error
        self._is_answered(entry, result)

    def _is_answered(self, entry: Entry, result: Any) -> None:
        if self._entry is entry:
            self._entry = None
            self.go_on(result)
