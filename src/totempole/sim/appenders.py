"""Simulated programs that append to the durable order and read behind barriers, and what they were told: the
other half of the trace.

A request is accepted, becomes durable at its node, and has its place; or its node fails, and nobody knows. A
barrier passes, sooner or later, while its node lives.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from totempole.checkers.verdict import Findings, Verdict
from totempole.corel.commands import AppendRecords, ChangeReplicas, ReadBarrier
from totempole.corel.events import Accepted, BarrierPassed, Durable, Fenced, Lost, Placed
from totempole.corel.layer import Replica
from totempole.corel.member import Phase
from totempole.corel.quorum import DYNAMIC
from totempole.corel.run import RunId
from totempole.errors import SessionError
from totempole.groups.packing import pack
from totempole.sim.host import Host
from totempole.sim.load import payload
from totempole.sim.log_disk import Fate
from totempole.sim.script_logs import Append, LogAction, OnLog, Read, SetReplica
from totempole.sim.world import World
from totempole.stack import ProcessorStack
from totempole.types import Fence, ProcessorId

PROCESS = 0
RETRY_US = 20_000
RETRIES_MAX = 50
"""A processor that is down or refuses is asked again, so often."""


@dataclass(slots=True)
class Request:
    processor: ProcessorId
    key: str
    """With the log's name."""
    count: int
    fence: Fence | None = None
    run: RunId | None = None
    durable: bool = False
    lost: bool = False
    placed: Placed | None = None
    fenced: Fenced | None = None


@dataclass(slots=True)
class Barrier:
    processor: ProcessorId
    life: int
    """Of the processor that was asked."""
    green: int
    """So many runs were green somewhere."""
    place: int = -1
    """Where it has passed."""


@dataclass(slots=True)
class Appenders:
    """All programs of a world that append or read."""

    world: World
    requests: list[Request] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for host in self.world.hosts.values():
            before = host.listener

            def listen(there: Host, event: object, before: object = before) -> None:
                if isinstance(event, Accepted | Durable | Placed | Fenced | Lost):
                    self._hear(event)
                elif isinstance(event, BarrierPassed):
                    self._pass(event)
                elif callable(before):
                    before(there, event)

            host.listener = listen

    def perform(self, action: LogAction) -> None:
        match action:
            case Append():
                for _ in range(action.units):
                    key = action.key and f"{action.log} {action.key}"
                    request = Request(action.processor, key, action.count, action.fence)
                    self.requests.append(request)
                    self._ask(request, len(self.requests) - 1, action, RETRIES_MAX)
            case Read(processor, units):
                for _ in range(units):
                    self._read(processor, RETRIES_MAX)
            case SetReplica(processor, other, weight):
                self._change(processor, other, weight)
            case OnLog():
                self._on_disk(action)

    def _ask(self, request: Request, number: int, action: Append, retries: int) -> None:
        host, world = self.world.hosts[request.processor], self.world
        size = action.size
        batch = pack([payload(request.processor, number << 16 | each, size) for each in range(action.count)])
        keys = tuple([action.key and f"{action.key}-{each}" for each in range(action.count)])
        keys = keys if action.key else ()
        command = AppendRecords(PROCESS, number, action.log, batch, keys, world.now_us, action.fence)
        try:
            if host.alive and not host.retiring and host.ask(command):
                self.acts["append"] += 1
                return
        except SessionError:
            self.acts["append refused"] += 1
        if retries:
            world.scheduler.at(world.now_us + RETRY_US, self._ask, request, number, action, retries - 1)

    def _read(self, processor: ProcessorId, retries: int) -> None:
        host, world = self.world.hosts[processor], self.world
        if not host.alive or host.paused or host.retiring:
            if retries:
                world.scheduler.at(world.now_us + RETRY_US, self._read, processor, retries - 1)
            return
        replicas = self._replicas()
        mine, others = replicas[processor], replicas.values()
        self.acts["barrier asked"] += 1
        if mine.phase.value != Phase.PRIMARY.value:
            self.acts["barrier asked outside a primary"] += 1
        elif any(each.zones.committed.number > mine.zones.committed.number for each in others):
            self.acts["barrier asked in a primary of the past"] += 1
        green = max(each.zones.green_runs for each in others)
        self.barriers.append(Barrier(processor, host.life, green))
        host.ask(ReadBarrier(PROCESS, len(self.barriers) - 1))

    def _replicas(self) -> dict[ProcessorId, Replica]:
        """Of the processors that are up."""
        return {
            me: cast(Replica, cast(ProcessorStack, host.stack).replica)
            for me, host in sorted(self.world.hosts.items())
            if host.alive
        }

    def _pass(self, event: BarrierPassed) -> None:
        barrier = self.barriers[event.request]
        assert barrier.place < 0, "a barrier passes once"
        barrier.place = event.place
        self.acts["barrier passed"] += 1

    def _change(self, processor: ProcessorId, other: ProcessorId, weight: int) -> None:
        host = self.world.hosts[processor]
        try:
            if host.alive and host.ask(ChangeReplicas(PROCESS, -1, other, weight)):
                self.acts["replica set changed"] += 1
        except SessionError:
            self.acts["change of replica set refused"] += 1

    def _on_disk(self, action: OnLog) -> None:
        world, me = self.world, action.processor
        disk = world.hosts[me].log_disk
        assert disk is not None, "a scenario with a log has disks for it"
        world.log_fault(me, action.verb)
        match action.verb:
            case "fill":
                disk.fill()
            case "slow":
                disk.slow(action.latency_us)
            case "stick":
                disk.stick()
            case "mend":
                disk.mend()
                world.hosts[me].reopen_log()
            case verb:
                disk.damage(Fate(verb), action.frames)

    def _hear(self, event: Accepted | Durable | Placed | Fenced | Lost) -> None:
        if event.request < 0 or event.process != PROCESS:
            return
        request = self.requests[event.request]
        match event:
            case Accepted(run=run):
                assert request.run is None, "a request is accepted once"
                request.run = run
            case Durable():
                request.durable = True
                self.acts["durable"] += 1
            case Lost():
                request.lost = True
            case Placed() | Fenced():
                assert request.placed is None is request.fenced, "a request is answered once"
                if isinstance(event, Placed):
                    request.placed = event
                    self.acts["placed"] += 1
                else:
                    request.fenced = event
                    self.acts["fenced"] += 1

    # What must hold beyond the trace

    def check(self, settled: bool) -> tuple[Verdict, ...]:
        """`settled`: the faults are over for long enough that everything must have its place."""
        verdicts = [self._places(), self._fences(), self._logs_agree(), self._barriers()]
        if settled:
            verdicts.append(self._settled())
        return tuple(verdicts)

    def _places(self) -> Verdict:
        """Positions that programs were told are true of every replica, and no two records share one."""
        found = Findings("appends-placed")
        taken: dict[int, RunId] = {}
        firsts: dict[str, int] = {}
        for request in self.requests:
            placed = request.placed
            if placed is None:
                continue
            for position in range(placed.position, placed.position + placed.count):
                if taken.setdefault(position, placed.run) != placed.run:
                    found.violated(f"Position {position} was told of {taken[position]} and of {placed.run}.")
            if request.key:
                first = placed.repeats[0][1] if placed.repeats else placed.position
                if firsts.setdefault(request.key, first) != first:
                    found.violated(
                        f"Key {request.key} was told to be at {firsts[request.key]} and at {first}."
                    )
        return found.verdict()

    def _fences(self) -> Verdict:
        """A mark is set once, and who was kept out by it was told where. There are few names: none is
        forgotten."""
        found = Findings("fences-told")
        set_at: dict[tuple[str, int], int] = {}
        for number, request in enumerate(self.requests):
            placed, fence = request.placed, request.fence
            if placed is None or fence is None:
                continue
            first = dict(placed.repeats).get(0, placed.position)
            if (fence.name, fence.number) in set_at:
                found.violated(f"Request {number} was let in by {fence}, and another before it.")
            set_at[fence.name, fence.number] = first
        for number, request in enumerate(self.requests):
            fenced, fence = request.fenced, request.fence
            if fenced is None:
                continue
            if fence is None or fence.low <= fenced.mark <= fence.high:
                found.violated(f"Request {number}, with {fence}, was kept out by mark {fenced.mark}.")
            elif set_at.get((fence.name, fenced.mark), fenced.position) != fenced.position:
                found.violated(
                    f"Request {number} was told that mark {fenced.mark} of {fence.name} was set at "
                    f"{fenced.position}; it was set at {set_at[fence.name, fenced.mark]}."
                )
        return found.verdict()

    def _barriers(self) -> Verdict:
        """No barrier has passed before what was green somewhere when it was asked for."""
        found = Findings("barriers-passed")
        for number, barrier in enumerate(self.barriers):
            if 0 <= barrier.place < barrier.green:
                found.violated(
                    f"Barrier {number} of {barrier.processor} was asked for when {barrier.green} runs were "
                    f"green, and has passed at {barrier.place}.",
                    nodes=[barrier.processor],
                )
        return found.verdict()

    def _logs_agree(self) -> Verdict:
        """All logs on all disks have the same runs at the same places, and the positions that were told."""
        found = Findings("logs-agree")
        places: dict[int, tuple[RunId, int, object]] = {}
        positions: dict[RunId, int] = {}
        for me, host in sorted(self.world.hosts.items()):
            assert host.log_disk is not None, "a scenario with a log has disks for it"
            for ordered in host.log_disk.ordered():
                mine = ordered.run.id, ordered.position, ordered.fenced
                if places.setdefault(ordered.place, mine) != mine:
                    found.violated(
                        f"At {ordered.place} {me} has {mine}, others {places[ordered.place]}.", nodes=[me]
                    )
                positions[ordered.run.id] = ordered.position
        if len({run for run, _, _ in places.values()}) < len(places):
            found.violated("A run is in the order twice.")
        for request in self.requests:
            placed = request.placed
            if placed is not None and positions.get(placed.run, placed.position) != placed.position:
                found.violated(
                    f"{placed.run} was told to be at {placed.position}, is at {positions[placed.run]}."
                )
        return found.verdict()

    def _settled(self) -> Verdict:
        found = Findings("log-settled")
        open_ones = {me: each for me, each in self._replicas().items() if each.is_open}
        if not self._may_form(open_ones):
            return found.verdict()
        # By value: a broken protocol has phases of its own.
        if not any(each.phase.value == Phase.PRIMARY.value for each in open_ones.values()):
            found.violated("No replica is in a primary component.", nodes=list(open_ones))
            return found.verdict()
        ends = {(each.phase, each.zones.green_runs, each.zones.position) for each in open_ones.values()}
        if len(ends) > 1:
            shown = {me: (each.phase.value, each.zones.green_runs) for me, each in open_ones.items()}
            found.violated(f"Replicas do not agree: {shown}.", nodes=list(open_ones))
        for me, each in open_ones.items():
            if each.zones.yellow or each.zones.red or each.outbox.bytes:
                found.violated(f"{me} has runs without a place.", nodes=[me])
        for number, request in enumerate(self.requests):
            if (
                request.durable
                and request.placed is None is request.fenced
                and not request.lost
                and self._is_answerable(request)
            ):
                found.violated(f"Request {number} ({request.run}) is durable and has no place.")
        for number, barrier in enumerate(self.barriers):
            me = barrier.processor
            if barrier.place < 0 and me in open_ones and self.world.hosts[me].life == barrier.life:
                found.violated(f"Barrier {number} of {me} never passes.", nodes=[me])
        return found.verdict()

    def _may_form(self, replicas: dict[ProcessorId, Replica]) -> bool:
        """Whether those that are there must have formed a primary component by now."""
        if not replicas:
            return False
        known = max((each.zones for each in replicas.values()), key=lambda zones: zones.green_runs)
        if not known.committed.number:
            return set(next(iter(replicas.values())).config.replicas) <= replicas.keys()
        disks = {me: each.zones.disk for me, each in replicas.items()}
        if any(each.rule == DYNAMIC for each in known.sets):
            return all(each.present(disks) == each.voters.keys() for each in known.sets)
        return bool(known.sets) and all(each.is_majority(disks) for each in known.sets)

    def _is_answerable(self, request: Request) -> bool:
        """Whether the life of the replica that took it goes on."""
        host = self.world.hosts[request.processor]
        stack = cast(ProcessorStack, host.stack)
        return (
            host.alive
            and request.run is not None
            and stack.replica is not None
            and stack.replica.outbox.is_own(request.run)
        )
