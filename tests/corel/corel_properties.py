"""What must hold of all replicas at every step: COReL's sentences, over the model's replicas and their disks.

One order of green runs is kept, that of whichever replica was first to know the next place. It never changes:
whatever any replica turns green, now or after a restart, must stand in it at the same place.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple
from unittest.mock import patch

from corel_model import World

from totempole.corel.events import Accepted, BarrierPassed, Durable, Fenced, Placed
from totempole.corel.frames import encode
from totempole.corel.layer import Replica
from totempole.corel.member import Member, Phase
from totempole.corel.quorum import NO_SET, ReplicaSet
from totempole.corel.run import Records, Run, RunId, RunKind, change_of, primary_of, records_of
from totempole.corel.zones import Ordered, Zones
from totempole.groups.packing import Batch


class Violation(Exception):
    """A property does not hold."""


class Green(NamedTuple):
    """A place in the one order."""

    run: Run
    position: int
    repeats: tuple[tuple[int, int], ...]
    time_us: int
    fenced: tuple[int, int] | None
    primary: int
    """The number of the primary component in which it turned green first."""


class Read(NamedTuple):
    """A barrier that a program has asked for."""

    processor: int
    process: int
    request: int


def check(holds: bool, name: str, **details: Any) -> None:
    if not holds:
        raise Violation(name + "".join(f" {key}={value}" for key, value in details.items()))


class Properties:
    """Told of every step of every replica. `keys_max`, `fences_max`: as `zones.KEYS_MAX` and
    `fences.FENCES_MAX` are for this run."""

    def __init__(self, keys_max: int = 65_536, fences_max: int = 4_096) -> None:
        self.world: World
        self.order: list[Green] = []
        self.places: dict[RunId, int] = {}
        self.accepted: set[RunId] = set()
        self.bodies: dict[RunId, bytes] = {}
        self.durable: dict[RunId, int] = {}
        """Runs whose program was told that they are on this replica's disk."""
        self.sent: dict[RunId, dict[tuple[int, int], int]] = {}
        """What the sender had when it sent the run."""
        self.stamps: dict[RunId, Any] = {}
        self.formations: dict[int, tuple[int, ...]] = {}
        """Primary components that were committed, by number."""
        self.entered: list[tuple[int, Phase]] = []
        """Phases that replicas have entered since somebody looked."""
        self.reads: dict[Read, int] = {}
        """Barriers that were asked for and have not passed: so many runs were green somewhere then."""
        self.passed = 0
        self.unsafe: set[int] = set()
        """Processors whose disks have lost what was durable."""
        self._green_vector: dict[tuple[int, int], int] = {}
        self._position = 0
        self._time_us = 0
        self._keys: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._keys_max = keys_max
        self._marks: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._fences_max = fences_max
        self._sets: list[ReplicaSet] = []
        """At each place, behind it."""

    # What programs are told

    def told(self, me: int, event: Any) -> None:
        if isinstance(event, Accepted):
            check(event.run not in self.accepted, "no-duplication", run=event.run)
            self.accepted.add(event.run)
        elif isinstance(event, Durable):
            zones = self.world.processors[me].disk.zones
            check(zones.has(event.run), "durable-before-told", run=event.run, at=me)
            self.durable.setdefault(event.run, me)
        elif isinstance(event, Placed):
            place = self.places.get(event.run)
            check(place is not None, "placed-is-green", run=event.run)
            assert place is not None
            green = self.order[place]
            check(green.fenced is None, "placed-is-let-in", run=event.run)
            expected = green.position, green.run.count - len(green.repeats), green.repeats
            check((event.position, event.count, event.repeats) == expected, "placed-as-green", run=event.run)
        elif isinstance(event, Fenced):
            place = self.places.get(event.run)
            check(place is not None, "fenced-is-green", run=event.run)
            assert place is not None
            told = event.mark, event.position
            check(told == self.order[place].fenced, "fenced-as-green", run=event.run, told=told)
        elif isinstance(event, BarrierPassed):
            self._passes(me, event)

    def reads_at(self, me: int, process: int, request: int) -> None:
        """All that is green anywhere is in the one order."""
        self.reads[Read(me, process, request)] = len(self.order)

    def forgets(self, me: int, process: int) -> None:
        self.reads = {read: green for read, green in self.reads.items() if read[:2] != (me, process)}

    def crashes(self, me: int) -> None:
        """Its programs must ask again."""
        self.reads = {read: green for read, green in self.reads.items() if read.processor != me}

    def _passes(self, me: int, event: BarrierPassed) -> None:
        read = Read(me, event.process, event.request)
        check(read in self.reads, "barrier-asked", read=read)
        green = self.reads.pop(read)
        check(event.place >= green, "barrier", read=read, place=event.place, green=green)
        check(self.world.replica(me).zones.green_runs >= event.place, "barrier-green", read=read)
        self.passed += 1

    # What replicas do

    def sends(self, replica: Member, run: Run) -> None:
        if run.id not in self.stamps:
            self.sent[run.id] = dict(replica.zones.vector)
            self.bodies[run.id] = run.body

    def before_step(self, replica: Member, frame: Any) -> int:
        """How much of the one order the replica holds, as green and yellow."""
        return self._held(replica.zones) if type(frame).__name__ == "Agreed" else 0

    def _held(self, zones: Zones) -> int:
        held = zones.green_runs
        for run in zones.yellow:
            if held < len(self.order) and self.order[held].run.id == run.id:
                held += 1
            else:
                break
        return held

    def stepped(self, replica: Member, frame: Any, ordered: list[Ordered], held: int) -> None:
        kind = type(frame).__name__
        for each in ordered:
            self._green(replica, each)
        if kind == "Placed":
            self._placed(replica, frame.run)
        elif kind == "Agreed":
            self._agreed(replica, frame)
            check(self._held(replica.zones) >= held, "yellow", at=replica.me, held=held)
        elif kind == "Committed":
            formation = frame.formation
            known = self.formations.setdefault(formation.number, formation.members)
            check(known == formation.members, "one-primary", number=formation.number)
        self._colours(replica)

    def _placed(self, replica: Member, run: Run) -> None:
        if run.kind == RunKind.PRIMARY:
            return
        check(self.bodies.get(run.id) == run.body, "integrity", run=run.id)
        stamp = self.stamps.setdefault(run.id, run.stamp)
        check(stamp == run.stamp, "one-stamp", run=run.id, at=replica.me)
        vector = replica.zones.vector
        for who, number in self.sent[run.id].items():
            check(vector.get(who, 0) >= number, "causal-held", run=run.id, at=replica.me, lacks=(who, number))

    def _agreed(self, replica: Member, frame: Any) -> None:
        number = replica.zones.committed.number
        if number in self.formations and frame.committed.number == number:
            check(self.formations[number] == frame.committed.members, "one-primary", number=number)

    def _colours(self, replica: Replica) -> None:
        """Reds are in the order of their stamps; nothing is in two zones."""
        zones = replica.zones
        stamps = [run.stamp for run in zones.red]
        check(stamps == sorted(stamps), "red-sorted", at=replica.me)
        pending = [run.id for run in (*zones.yellow, *zones.red)]
        check(len(pending) == len(set(pending)), "no-duplication", at=replica.me)

    # Green

    def _green(self, replica: Member, ordered: Ordered) -> None:
        place, run = ordered.place, ordered.run
        if place < len(self.order):
            known = self.order[place]
            check(
                known.run.id == run.id, "one-order", at=replica.me, place=place, run=run.id, is_=known.run.id
            )
            check(pack(known.run) == pack(run), "one-order-contents", at=replica.me, place=place)
            told = _told(ordered)
            check(told == known[1:5], "one-position", at=replica.me, place=place, told=told, is_=known[1:5])
            return
        check(place == len(self.order), "no-gap-in-green", at=replica.me, place=place)
        check(run.id not in self.places, "no-duplication", run=run.id, place=place)
        self._causal_green(run)
        number = replica.zones.committed.number
        if self.order:
            check(number >= self.order[-1].primary, "one-primary-orders", number=number, place=place)
        self._add(run, ordered, number)
        self._is_lasting(replica, place)

    def _causal_green(self, run: Run) -> None:
        if run.kind == RunKind.PRIMARY:
            return
        for who, number in self.sent[run.id].items():
            has = self._green_vector.get(who, 0)
            check(has >= number, "causal-green", run=run.id, who=who, before=number, has=has)
        who = run.id.origin, run.id.life
        check(self._green_vector.get(who, 0) == run.id.number - 1, "fifo-green", run=run.id)
        self._green_vector[who] = run.id.number

    def _add(self, run: Run, ordered: Ordered, number: int) -> None:
        """Positions are worked out here a second time, from the records alone."""
        position, repeats, fenced = self._position, (), None
        replicas = self._sets[-1] if self._sets else NO_SET
        if run.kind == RunKind.RECORDS:
            repeats, fenced = self._take(records_of(run), run.time_us)
        elif run.kind == RunKind.PRIMARY:
            primary = primary_of(run)
            replicas = (primary.founding or replicas).with_disks(primary.disks)
        elif run.kind == RunKind.CHANGE:
            change = change_of(run)
            replicas = replicas.changed(change.processor, change.disk, change.weight)
        green = Green(run, position, repeats, self._time_us, fenced, number)
        told = _told(ordered)
        check(told == green[1:5], "positions", place=ordered.place, told=told, is_=green[1:5])
        self.places[run.id] = len(self.order)
        self.order.append(green)
        self._sets.append(replicas)

    def _take(
        self, records: Records, time_us: int
    ) -> tuple[tuple[tuple[int, int], ...], tuple[int, int] | None]:
        """The repeats, and the mark that keeps the run out."""
        fence = records.fence
        if fence is not None:
            mark = self._marks.get(fence.name, (0, -1))
            if mark[0] < fence.low or mark[0] > fence.high:
                return (), mark
        self._time_us = max(self._time_us, time_us)
        places: list[int] = []
        repeats: list[tuple[int, int]] = []
        for index in range(len(Batch(records.batch))):
            key = records.keys[index] if records.keys else ""
            if key and (records.log, key) in self._keys:
                repeats.append((index, self._keys[records.log, key]))
                places.append(repeats[-1][1])
                continue
            if key:
                self._keys[records.log, key] = self._position
            places.append(self._position)
            self._position += 1
        while len(self._keys) > self._keys_max:
            self._keys.popitem(last=False)
        if fence is not None:
            self._marks[fence.name] = fence.number, places[0]
            self._marks.move_to_end(fence.name)
            if len(self._marks) > self._fences_max:
                self._marks.popitem(last=False)
        return tuple(repeats), None

    @property
    def replicas(self) -> ReplicaSet:
        return self._sets[-1] if self._sets else NO_SET

    def _is_lasting(self, replica: Replica, place: int) -> None:
        """The run is green or yellow on the disks of a quorum: of each set that is in force there. With the
        acknowledgements of all, on those of all members of the primary component."""
        there: dict[int, int] = {}
        for me, each in self.world.processors.items():
            zones = each.disk.zones
            if zones.green_runs + len(zones.yellow) > place and self._is_held_at(zones, place):
                there[me] = zones.disk
        before = self._sets[place - 1] if place else self._sets[0]
        members = replica.zones.committed.members
        for replicas in (before, self._sets[place]):
            check(replicas.is_durable(there, members), "green-lasts", place=place, there=sorted(there))
        if replica.config.acknowledgements == "all":
            check(
                set(members) - self.unsafe <= there.keys(), "yellow-at-all", place=place, there=sorted(there)
            )

    def _is_held_at(self, zones: Zones, place: int) -> bool:
        if place < zones.green_runs:
            return True
        return zones.yellow[place - zones.green_runs].id == self.order[place].run.id

    # The end

    def all_is_green(self, lives: set[tuple[int, int]]) -> None:
        """Property 3.8: everything that was accepted by a replica that lives, or was said to be on a disk
        that has lost nothing, is green at all. `lives`: of the replicas that are there."""
        for run in sorted(self.accepted):
            if (run.origin, run.life) in lives:
                check(run in self.places, "liveness", run=run)
        for run, at in self.durable.items():
            check(at in self.unsafe or run in self.places, "liveness-durable", run=run)
        for me in self.world.up:
            replica = self.world.replica(me)
            zones = replica.zones
            check(replica.phase.value == "primary", "liveness-primary", at=me, phase=replica.phase)
            check(zones.green_runs == len(self.order), "liveness-green", at=me, green=zones.green_runs)
            check(not zones.yellow and not zones.red, "liveness-pending", at=me)
            check(not replica.outbox.bytes, "liveness-outbox", at=me, bytes=replica.outbox.bytes)
            waits = [read for read in self.reads if read.processor == me]
            check(not waits, "liveness-barriers", at=me, waits=waits)
            mine, disks = zones.mark(), self.world.processors[me].disk.zones.mark()
            check(encode(mine) == encode(disks), "fold", at=me)


def _told(ordered: Ordered) -> tuple[Any, ...]:
    fenced = None if ordered.fenced is None else tuple(ordered.fenced)
    return ordered.position, ordered.repeats, ordered.time_us, fenced


def pack(run: Run) -> tuple[Any, ...]:
    return tuple(run.id), tuple(run.stamp), run.time_us, int(run.kind), run.count, run.body


def watched(properties: Properties, base: type[Replica] = Replica) -> type[Replica]:
    """A replica whose steps the properties are told of."""
    member: Any = part_of(base, "Member")
    ordering: Any = part_of(base, "Ordering")

    class WatchedMember(member):  # type: ignore[misc]
        def step(self, frame: Any) -> None:
            held = properties.before_step(self, frame)
            self._fresh: list[Ordered] = []
            super().step(frame)
            properties.stepped(self, frame, self._fresh, held)

        def _became_green(self, ordered: Ordered) -> None:
            self._fresh.append(ordered)
            super()._became_green(ordered)

        def enter(self, phase: Any, why: str) -> None:
            super().enter(phase, why)
            properties.entered.append((self.me, Phase(phase.value)))

    class WatchedOrdering(ordering):  # type: ignore[misc]
        def _send_data(self, run: Run, again: bool) -> None:
            if not again:
                properties.sends(self._member, run)
            super()._send_data(run, again)

    class Watched(base):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any) -> None:
            with patch.dict(base.told.__globals__, Member=WatchedMember, Ordering=WatchedOrdering):
                super().__init__(*given)

    return Watched


def part_of(base: type[Replica], name: str) -> Any:
    """A class that replicas of this class, which may be broken ones, are made of."""
    return base.told.__globals__[name]
